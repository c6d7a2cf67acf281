"""What is measured of a job: what is known of it, and what is refused."""

import numpy as np
import pytest
from pytest import approx

from labkit.errors import InputRefused
from labkit.evidence.measured import Measured, Throughput
from labkit.spec import StepTime


def test_a_term_is_known_where_it_shows_or_is_named_or_counted():
    job = Measured(step=StepTime(compute=1.0, bubble=0.1), known=("idle",))
    assert job.knows("bubble") and job.knows("idle") and not job.knows("data") and not job.knows("dp")
    assert Measured(step=StepTime(compute=1.0, communication=0.0)).knows("dp")
    assert not Measured().knows("compute")


def test_the_rate_is_the_given_one_or_that_of_the_step():
    step = StepTime(compute=2.0, tokens=100, gpus=4)
    assert Measured(step=step).rate == Throughput(50.0, 4)
    assert Measured(step=step, throughput=Throughput(7, 8)).rate == Throughput(7, 8)
    assert Measured(step=StepTime(compute=2.0)).rate is None


def test_how_long_the_mean_rank_waits():
    assert Measured(rank_work=[1, 1, 1, 3]).late == 1.5
    assert Measured(rank_arrivals=[[5, 5.2], [9, 9.4]]).late == approx(0.15)  # 0.1 and 0.2
    assert Measured(rank_steps=[1, 2]).late is None
    assert Measured(rank_work=np.ones((3, 2))).work.shape == (3, 2)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (dict(step=1.0), "give a StepTime"),
        (dict(step=StepTime()), "takes 0 seconds"),
        (dict(step=StepTime(compute=np.ones(2))), "takes single numbers"),
        (dict(known="bubble"), "give the names of terms"),
        (dict(known=("bubbles",)), "no term 'bubbles'"),
        (dict(causal=1), "causal"),
        (dict(throughput=160), "give a Throughput"),
        (dict(base_mfu=0), "base_mfu of a measured job is 0"),
        (dict(bucket_share=2), "use 0 to 1"),
        (dict(rank_work=[1, "2"]), "rank_work"),
        (dict(rank_work=[[1, 2], [3]]), "rank_work"),
        (dict(rank_steps=[[1, 2]]), "rank_steps"),
        (dict(rank_work=[1, -2]), "too small"),
        (dict(steps=[0, 1]), "too small"),
        (dict(steps=[np.nan]), "finite numbers"),
        (dict(rank_work=[1, 2], rank_stage=[0]), "one number of ranks"),
    ],
)
def test_refused(given, says):
    with pytest.raises(InputRefused, match=says):
        Measured(**given)
