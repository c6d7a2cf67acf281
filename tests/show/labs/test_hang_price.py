"""What the picture of a hang's price draws, worked out apart."""

import pytest

from labkit.errors import InputRefused
from labkit.show import labs


def test_lines_dot_and_shade_by_hand(drawn):
    artists, _ = drawn("hang_price", cards=128, hangs=3, limit=20, late=12, short=4)
    one, two = artists["lines"]
    minutes, hours = one.get_data()
    assert minutes.min() > 12 and hours == pytest.approx(3 * 128 * minutes / 60)
    assert two.get_ydata() == pytest.approx(3 * 128 * 4 / 60)
    assert artists["dot"].get_data() == ([20], [pytest.approx(128)])
    assert artists["shade"].get_x() + artists["shade"].get_width() == pytest.approx(12)


def words(**setting):
    return "\n".join(labs.hang_price.readout(labs.hang_price.compute(**setting)))


def test_the_readout_of_the_guide_s_figures():
    said = words()
    assert "64 cards, one limit of 30 min: 32 card-hours a hang, 128 card-hours a month of 4 hangs" in said
    assert "lets the job start" in said and "saves 83.3 % of the hours" in said
    late = words(late=45, short=30)
    assert "ends every start" in late and "no shorter than the first" in late


@pytest.mark.parametrize(
    "wrong", [{"cards": 0}, {"hangs": 1.5}, {"limit": -1}, {"late": "long"}, {"short": 0}]
)
def test_refused(wrong):
    with pytest.raises(InputRefused):
        labs.hang_price.compute(**wrong)
