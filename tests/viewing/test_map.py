"""Which bonus solves which world: intervals, censored medians, and the map."""

import math
from pathlib import Path

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from elden.studies.intervals import censored_median, exact_interval
from elden.viewing import MapCell, map_table, save, solve_map


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(0, 10, 0.0, 0.3085), (10, 10, 0.6915, 1.0), (5, 10, 0.1871, 0.8129), (1, 2, 0.0126, 0.9874), (8, 8, 0.6306, 1)],
)
def test_intervals_are_those_of_clopper_and_pearson(successes: int, trials: int, low: float, high: float) -> None:
    assert exact_interval(successes, trials) == pytest.approx((low, high), abs=5e-5)


def test_impossible_counts_are_refused() -> None:
    for successes, trials, level in ((-1, 3, 0.95), (4, 3, 0.95), (0, 0, 0.95), (1, 2, 1.0)):
        with pytest.raises(ValueError, match="given"):
            exact_interval(successes, trials, level)
    with pytest.raises(ValueError, match="at least one agent"):
        censored_median(np.array([]))


@pytest.mark.parametrize(
    ("times", "median"),
    [
        ([3.0, 1.0, 2.0], 2.0),
        ([4.0, 1.0, 2.0, 3.0], 2.5),
        ([1.0, np.nan, 2.0], 2.0),
        ([1.0, np.nan, np.nan, 2.0], 2.0),  # exactly half
        ([1.0, np.nan, np.nan], math.inf),
        ([np.nan], math.inf),
    ],
)
def test_a_median_is_known_once_half_have_arrived(times: list[float], median: float) -> None:
    assert censored_median(np.array(times)) == median


def cell(world: str, contender: str, solved: int, agents: int = 10, finished: bool = True) -> MapCell:
    median = 250_000.0 if 2 * solved >= agents else math.inf
    return MapCell(world, contender, solved, agents, exact_interval(solved, agents), median, 1_000_000, finished)


def grid() -> list[MapCell]:
    worlds = [*(f"world {i}" for i in range(12)), "chain --depth 6 --noisy 2 --intricate-variables 3"]
    return [cell(world, f"bonus {i}", min(i, 10)) for world in worlds for i in range(11)][:-1]


def test_a_map_has_a_cell_for_each_bonus_and_world(tmp_path: Path) -> None:
    figure = solve_map(grid(), "title", 0.95)
    axes = figure.axes[0]
    assert sum(isinstance(patch, Rectangle) for patch in axes.patches) == 11 * 13
    assert len(axes.texts) == 2 * (11 * 13 - 1)  # the last cell is not there
    assert [text.get_text() for text in axes.texts[:2]] == ["0/10", "–"]
    assert [text.get_text() for text in axes.texts[-2:]] == ["10/10", "0.25M"]
    titles = [label.get_text() for label in axes.get_xticklabels()]
    assert titles[-1] == "chain\n--depth 6\n--noisy 2\n--intricate-\nvariables 3\n(1M)"
    assert [label.get_text() for label in axes.get_yticklabels()] == [f"bonus {i}" for i in range(11)]
    assert any("10 agents in each cell" in text.get_text() for text in figure.texts)
    save(figure, tmp_path / "map.png")


def test_text_of_a_cell_stands_out_from_its_colour() -> None:
    from matplotlib.colors import to_rgb

    axes = solve_map(grid(), "title", 0.95).axes[0]
    weights = np.array([0.299, 0.587, 0.114])
    patches = {
        (patch.get_x() + 0.5, patch.get_y() + 0.5): patch for patch in axes.patches if isinstance(patch, Rectangle)
    }
    for text in axes.texts:
        column, row = text.get_position()
        background = patches[column, round(row)].get_facecolor()
        assert abs(weights @ (np.array(to_rgb(text.get_color())) - np.array(background[:3]))) > 0.3


def test_a_table_of_the_map_has_intervals_and_censored_medians() -> None:
    table = map_table([cell("a", "elden", 10), cell("b", "elden", 3, finished=False), cell("b", "none", 0)], "title")
    assert table.columns == ("bonus", "a", "b")
    assert table.rows == (
        ("elden", "10/10 [0.69, 1.00], 250,000", "3/10 [0.07, 0.65], > 1,000,000 …"),
        ("none", "–", "0/10 [0.00, 0.31], > 1,000,000"),
    )
    assert cell("b", "none", 0).numbers()["median_steps"] is None


def test_impossible_maps_are_refused() -> None:
    with pytest.raises(ValueError, match="no agents"):
        solve_map([], "title", 0.95)
    with pytest.raises(ValueError, match="elden in a: 3 of 2 agents"):
        MapCell("a", "elden", 3, 2, (0.0, 1.0), 1.0, 1)
