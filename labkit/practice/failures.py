"""How often to save: what checkpoints cost, against what a failure loses without them.

Failures come at random and independently of each other, as often early as late (Poisson); any card's failure
stops the whole job, which starts again from the last checkpoint.
"""

import numpy as np

from labkit.spec.checks import amount, together, whole
from labkit.units import plain

YEAR = 365.25 * 86400.0

# "The Llama 3 Herd of Models" (2024), section 3.3.4: 419 unexpected interruptions of a job of 16,384 cards in
# 54 days.
REPORTED = {"interruptions": 419, "cards": 16384, "days": 54}


def reported_failures() -> float:
    """Failures per card and year of the reported job.

    >>> round(reported_failures(), 3)
    0.173
    """
    years = REPORTED["days"] * 86400.0 / YEAR
    return REPORTED["interruptions"] / (REPORTED["cards"] * years)


def job_mtbf(failures, cards):
    """Mean seconds between failures of a job on ``cards`` cards that each have ``failures`` a year.

    That of one card, divided by their number. Refused: numbers not above 0.

    >>> round(job_mtbf(0.173, 16384) / 3600, 1)
    3.1
    """
    together("failures of a job", failures=failures, cards=cards)
    rate = amount(failures, "the failures of a card in a year")
    return plain(YEAR / (rate * whole(cards, "cards", arrays=True)))


def young_interval(save, mtbf):
    """The interval of least cost, seconds of training between saves: sqrt(2 x save x mtbf), Young (1974).

    First order: it takes for granted that saves are short against the interval, and the interval against the
    mean time between failures. ``save``: seconds that the job stands still for one.

    >>> young_interval(50, 10_000)
    1000.0
    """
    save, mtbf = _both(save, mtbf)
    return plain(np.sqrt(2 * save * mtbf))


def daly_interval(save, mtbf, restart=0.0, order=2):
    """The interval of least cost by Daly (2006), "A higher order estimate of the optimum checkpoint ...".

    ``order`` 1: sqrt(2 save (mtbf + restart)) - save. ``order`` 2, in which the restart falls out:
    sqrt(2 save mtbf) (1 + x/3 + x^2/9) - save with x = sqrt(save / (2 mtbf)); for saves of twice the mean
    time between failures and more, that time itself. It stays within 0.1 % of the least cost as long as a
    save is shorter than the mean time between failures (a test finds the optimum numerically).

    >>> [round(daly_interval(5, 60 * hours)) for hours in (24, 6)]
    [117, 57]
    """
    together("an interval", save=save, mtbf=mtbf, restart=restart, order=order)
    save, mtbf = _both(save, mtbf)
    restart = amount(restart, "the seconds of a restart", zero=True)
    order = whole(order, "the order of the estimate", 1, 2, arrays=True)
    first = np.sqrt(2 * save * (mtbf + restart)) - save
    x = np.sqrt(save / (2 * mtbf))
    second = np.where(save < 2 * mtbf, np.sqrt(2 * save * mtbf) * (1 + x / 3 + x**2 / 9) - save, mtbf)
    return plain(np.where(np.asarray(order) == 1, first, second))


def lost_share(interval, save, mtbf, restart=0.0, late=0.0):
    """The share of a job's time that does not advance it: saves, work lost to failures, restarts.

    Daly's (2006) complete cost function: ``interval`` useful seconds take, on the clock,
    mtbf x exp((restart + late) / mtbf) x (exp((interval + save) / mtbf) - 1); a failure may also strike
    during a save and a restart. ``late``: seconds from when the job goes on until the checkpoint is complete,
    as after an asynchronous save: so much more work is lost, which costs what a longer restart does.

    >>> round(lost_share(1000.0, 50.0, 10_000.0), 4), round(lost_share(1000.0, 50.0, 10_000.0, 300.0), 4)
    (0.0967, 0.1234)
    """
    together("lost time", interval=interval, save=save, mtbf=mtbf, restart=restart, late=late)
    save, mtbf = _both(save, mtbf, zero=True)
    interval = amount(interval, "the seconds between two saves")
    restart, late = (
        amount(seconds, what, zero=True)
        for seconds, what in ((restart, "the seconds of a restart"), (late, "the seconds of a late write"))
    )
    # exp(-t) of one run's chance to get through; written so that long times lose all instead of overflowing.
    through = np.exp(-(interval + save + restart + late) / mtbf)
    missed = -np.expm1(-(interval + save) / mtbf)
    return plain(1 - interval / mtbf * through / missed)


def parts_lost(interval, save, mtbf, restart=0.0, late=0.0) -> dict:
    """The same to first order, as shares by cause: saves, lost work, restarts; right where all are small.

    >>> {name: round(share, 3) for name, share in parts_lost(1000.0, 50.0, 10_000.0, 300.0).items()}
    {'saves': 0.05, 'lost work': 0.052, 'restarts': 0.03}
    """
    together("lost time", interval=interval, save=save, mtbf=mtbf, restart=restart, late=late)
    save, mtbf = _both(save, mtbf, zero=True)
    interval = amount(interval, "the seconds between two saves")
    restart, late = (
        amount(seconds, what, zero=True)
        for seconds, what in ((restart, "the seconds of a restart"), (late, "the seconds of a late write"))
    )
    return {
        "saves": plain(save / interval),
        "lost work": plain(((interval + save) / 2 + late) / mtbf),
        "restarts": plain(restart / mtbf),
    }


def _both(save, mtbf, zero=False) -> tuple[np.ndarray, np.ndarray]:
    together("an interval", save=save, mtbf=mtbf)
    return (
        amount(save, "the seconds of a save", zero=zero),
        amount(mtbf, "the mean seconds between failures"),
    )
