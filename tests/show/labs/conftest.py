"""What the tests of drawn pictures share."""

from inspect import signature
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.figure import Figure

from labkit.evidence.fit import fit_sweep
from labkit.show import labs


@pytest.fixture
def drawn():
    """``drawn(name, **setting)``: (artists, result) of a lab that showed its defaults before."""

    def draw(name, **setting):
        lab = getattr(labs, name)
        artists = lab.build(Figure(lab.size))
        needed = [k for k, p in signature(lab.compute).parameters.items() if p.default is p.empty]
        for values in ({k: setting[k] for k in needed}, setting):
            result = lab.compute(**values)
            lab.update(artists, result)
        return artists, result

    return draw


@pytest.fixture(scope="session")
def line_fit():
    """The fit of a made-up sweep over 8 ranks: an AllReduce takes 28 us + S / (80 GB/s), 4 KiB to 1 GiB."""
    size = 2.0 ** np.arange(12, 31)
    time = 28e-6 + size / 80e9
    sweep = SimpleNamespace(
        collective="all_reduce", n_ranks=8, size=size, time=time, busbw=time, wrong=0 * size, in_place=None
    )
    return fit_sweep(sweep)
