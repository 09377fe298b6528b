"""Figures and tables: what a reader must see is there, in the right colour, and the same every time."""

import io
import itertools
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dynamics_cases import DISCRETE, layout_of, random_transitions
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image
from rich.console import Console

import elden
from elden import viewing
from elden.dynamics.runs import Run
from elden.graphs.gradient import Gradient
from elden.graphs.registry import DETECTORS
from elden.studies import figures
from elden.studies.config import GraphGranularity, Row
from elden.studies.measuring import Breakdown, GranularityResult, Held, measure_granularity
from elden.studies.results import RowResult
from elden.transitions import Transitions
from elden.viewing import style
from elden.viewing.graphs import FALSE_ALARM, FOUND, MISSED, NOTHING, episode_strip, graph_heatmap, outcomes, self_edges
from elden.viewing.matrices import Side, break_map, relative_scores
from elden.viewing.tables import (
    Cell,
    EdgeCount,
    LambdaPoint,
    Table,
    edge_breakdown,
    format_value,
    lambda_curve,
    markdown_table,
    method_bars,
    rich_table,
    score_histogram,
)

DST = ("agent.x", "agent.y", "fish.x")
SRC = (*DST, "action")
TRUTH = np.array([[1, 0, 1, 1], [0, 1, 0, 0], [0, 0, 1, 0]], bool)
SCORES = np.array([[0.9, 0.1, 0.8, 0.2], [0.7, 0.9, 0.0, 0.1], [0.0, 0.1, 0.9, 0.0]], np.float32)
THRESHOLD = 0.5
METRICS = {"roc_auc": "ROC-AUC", "f1": "best F1"}
CELLS = [
    Cell("thawing", "gradient", "roc_auc", 0.71, 0.01),
    Cell("thawing", "gradient", "f1", 0.57, 0.004),
    Cell("thawing", "pcmi", "roc_auc", 0.55, 0.01),
    Cell("thawing", "pcmi", "f1", 0.6, None),
    Cell("carwash", "gradient", "roc_auc", 0.78, 0.02),
    Cell("carwash", "gradient", "f1", 0.66, 0.02),
    Cell("carwash", "pcmi", "roc_auc", 0.73, 0.02),
]
POINTS = [
    LambdaPoint("thawing", coefficient, metric, mean, 0.01)
    for metric in METRICS
    for coefficient, mean in ((1e-2, 0.71), (None, 0.48), (0, 0.57), (1e-3, 0.64))
]
EDGES = [EdgeCount("rare", 4, 1), EdgeCount("often", 100, 75), EdgeCount("never", 0, 0)]


def rendered(figure: Figure) -> np.ndarray:
    """The pixels `[row, column, rgba]` of a figure."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    return np.asarray(canvas.buffer_rgba())  # type: ignore[no-untyped-call]


def shown_values(axes: Axes) -> np.ndarray:
    """The values that the cells of a matrix of 3 × (3 + 1) show, without the gap before the action."""
    drawn = axes.collections[0].get_array()
    assert drawn is not None
    return np.delete(np.ma.getdata(drawn).reshape(3, 5), 3, axis=1)


def words(figure: Figure) -> list[str]:
    """Every text a reader sees."""
    rendered(figure)
    found = figure.findobj(lambda artist: hasattr(artist, "get_text") and artist.get_visible())
    return [artist.get_text() for artist in found if artist.get_text()]  # type: ignore[attr-defined]


def color_at(figure: Figure, axes: Axes, x: float, y: float) -> np.ndarray:
    """The colour, in [0, 1], of the pixel where a point of the axes' data is drawn."""
    pixels = rendered(figure)
    column, row = axes.transData.transform((x, y))
    rgb: np.ndarray = pixels[pixels.shape[0] - 1 - int(row), int(column), :3] / 255.0
    return rgb


def histogram() -> Figure:
    rng = np.random.default_rng(0)
    truth = rng.random((20, 3, 4)) < 0.2
    return score_histogram(np.where(truth, 0.5, 0.01) * rng.random(truth.shape), truth, 0.1, 0.05, "scores")


FIGURES: dict[str, Callable[[], Figure]] = {
    "heatmap": lambda: graph_heatmap(TRUTH, SCORES, THRESHOLD, DST, SRC, "one", self_edges(DST, SRC)),
    "average": lambda: graph_heatmap(np.stack([TRUTH] * 2), np.stack([SCORES] * 2), THRESHOLD, DST, SRC, "many"),
    "strip": lambda: episode_strip(TRUTH[None], SCORES[None], THRESHOLD, DST, SRC, ["go"]),
    "edges": lambda: edge_breakdown(EDGES, "edges"),
    "bars": lambda: method_bars(CELLS, CELLS[:3], METRICS, "bars"),
    "lambda": lambda: lambda_curve(POINTS, POINTS[:2], METRICS, "curve"),
    "histogram": histogram,
}


@pytest.mark.parametrize("name", FIGURES)
def test_saving_twice_gives_the_same_small_file(name: str, tmp_path: Path) -> None:
    for i in range(2):
        style.save(FIGURES[name](), tmp_path / f"{i}.png")
    first, second = ((tmp_path / f"{i}.png").read_bytes() for i in range(2))
    assert first == second
    assert len(first) < style.MAX_BYTES
    with Image.open(tmp_path / "0.png") as image:
        assert image.info == {}
    assert b"matplotlib" not in first.lower()


def test_a_users_own_settings_do_not_change_a_figure(tmp_path: Path) -> None:
    import matplotlib as mpl

    style.save(FIGURES["bars"](), tmp_path / "a.png")
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "black", "lines.linewidth": 9, "xtick.labelsize": 20}):
        style.save(FIGURES["bars"](), tmp_path / "b.png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


@pytest.mark.slow
def test_save_makes_a_large_picture_smaller_and_refuses_other_formats(tmp_path: Path) -> None:
    figure = style.new_figure(8, 8)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.imshow(np.random.default_rng(0).random((500, 500, 3)))
    style.save(figure, tmp_path / "noise.png")
    assert (tmp_path / "noise.png").stat().st_size <= style.MAX_BYTES
    with pytest.raises(ValueError, match=r"saved as \.png, got 'noise\.pdf'"):
        style.save(figure, tmp_path / "noise.pdf")


def test_tables_load_no_matplotlib() -> None:
    code = "import sys, elden.viewing; elden.viewing.markdown_table; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_every_public_name_is_there_and_others_are_not() -> None:
    assert all(callable(getattr(viewing, name)) for name in viewing.__all__)
    with pytest.raises(AttributeError, match="no attribute 'pie'"):
        getattr(viewing, "pie")  # noqa: B009


def test_outcomes_by_hand() -> None:
    expected = [
        [FOUND, NOTHING, FOUND, MISSED],
        [FALSE_ALARM, FOUND, NOTHING, NOTHING],
        [NOTHING, NOTHING, FOUND, NOTHING],
    ]
    np.testing.assert_array_equal(outcomes(TRUTH, SCORES, THRESHOLD), expected)
    at_threshold = outcomes(jnp.array([[True, False]]), jnp.array([[0.5, 0.5]], jnp.float32), THRESHOLD)
    np.testing.assert_array_equal(at_threshold, [[FOUND, FALSE_ALARM]])


def test_own_past_within_and_between_granularities() -> None:
    np.testing.assert_array_equal(self_edges(DST, SRC), np.eye(3, 4, dtype=bool))
    mixed = self_edges(DST, ("agent", "fish", "action"))
    np.testing.assert_array_equal(mixed, [[1, 0, 0], [1, 0, 0], [0, 1, 0]])


def test_sides_group_variables_and_set_the_action_apart() -> None:
    side = Side(SRC)
    assert side.groups == [("agent", 0, 2), ("fish", 2, 3), ("action", 3.5, 4.5)]
    assert side.small == ["x", "y", "x", ""]
    assert Side(("agent", "fish")).extent == 2


@pytest.mark.parametrize(
    ("row", "column", "color"),
    [(0, 0, style.FOUND), (0, 2, style.FOUND), (0, 3.5, style.MISSED), (1, 0, style.FALSE_ALARM), (2, 1, style.PAPER)],
)
def test_a_cell_has_the_colour_of_its_outcome(row: int, column: float, color: str) -> None:
    figure = graph_heatmap(TRUTH, SCORES, THRESHOLD, DST, SRC, "one")
    # Near the corner, since marks are in the middle.
    np.testing.assert_allclose(color_at(figure, figure.axes[2], column + 0.12, row + 0.12), to_rgb(color), atol=0.01)


def test_truth_and_score_panels_show_truth_and_scores() -> None:
    figure = graph_heatmap(TRUTH, SCORES, THRESHOLD, DST, SRC, "one")
    truth, scores = figure.axes[:2]
    for i, j in np.ndindex(TRUTH.shape):
        x, y = Side(SRC).starts[j] + 0.5, i + 0.5
        expected = to_rgb(style.INK if TRUTH[i, j] else style.PAPER)
        np.testing.assert_allclose(color_at(figure, truth, x, y), expected, atol=0.01)
        red, _, blue = color_at(figure, scores, x, y)
        assert (blue - red > 0.15) == (SCORES[i, j] >= THRESHOLD), (i, j)


def test_masked_cells_are_grey_and_not_counted() -> None:
    mask = self_edges(DST, SRC)
    figure = graph_heatmap(TRUTH, SCORES, THRESHOLD, DST, SRC, "one", mask)
    seen = {tuple(color_at(figure, axes, 0.5, 0.5).round(2)) for axes in figure.axes[:3]}
    assert all(max(rgb) - min(rgb) < 0.05 and 0.7 < min(rgb) < 0.99 for rgb in seen), seen
    assert {"edge: 2", "found: 1", "missed: 1", "false alarm: 1", "left out"} <= set(words(figure))
    unmasked = words(graph_heatmap(TRUTH, SCORES, THRESHOLD, DST, SRC, "one"))
    assert {"edge: 5", "found: 4", "missed: 1", "false alarm: 1"} <= set(unmasked)
    assert "left out" not in unmasked


def test_heatmap_names_every_entity_once_a_panel() -> None:
    said = words(graph_heatmap(TRUTH, SCORES, THRESHOLD, DST, SRC, "The title"))
    assert said.count("agent") == 4  # once for rows, once over the columns of each panel
    assert said.count("action") == 3
    assert {"The title", "True graph", "Scores", "Found and missed", "threshold"} <= set(said)


def test_averages_of_many_graphs_equal_given_averages() -> None:
    rng = np.random.default_rng(0)
    truths, scores = rng.random((30, 3, 4)) < 0.3, rng.random((30, 3, 4))
    whole = graph_heatmap(truths, scores, THRESHOLD, DST, SRC, "many")
    given = graph_heatmap(truths.mean(0), (scores >= THRESHOLD).mean(0), THRESHOLD, DST, SRC, "many")
    true, mean, predicted, apart = whole.axes[:4]
    for ours, theirs in zip((true, predicted, apart), given.axes[:3], strict=True):
        np.testing.assert_array_equal(shown_values(ours), shown_values(theirs))
    expected = (scores >= THRESHOLD).mean(0) - truths.mean(0)
    np.testing.assert_allclose(shown_values(apart), expected, atol=1e-12)
    np.testing.assert_allclose(shown_values(mean), scores.mean(0), atol=1e-12)
    assert "Mean score" in words(whole)
    assert "Mean score" not in words(given)


def test_mean_scores_of_zero_and_below_are_white() -> None:
    scores = np.array([[[-2.0, 0.0, 0.1]], [[-2.0, 0.0, 0.1]]])
    figure = graph_heatmap(scores > 0, scores, 0.05, ("a",), ("a", "b", "c"), "log-ratios")
    below, none, above = (color_at(figure, figure.axes[1], x + 0.5, 0.5) for x in range(3))
    np.testing.assert_allclose(below, to_rgb(style.PAPER), atol=0.01)
    np.testing.assert_allclose(none, to_rgb(style.PAPER), atol=0.01)
    assert above.sum() < 1.0


def test_the_sign_of_a_difference_is_a_colour() -> None:
    truth, predicted = np.array([[0.9, 0.1, 0.5]]), np.array([[0.1, 0.9, 0.5]])
    figure = graph_heatmap(truth, predicted, THRESHOLD, ("a",), ("a", "b", "c"), "signs")
    shown = [color_at(figure, figure.axes[2], x + 0.5, 0.5) for x in range(3)]
    for rgb, color in zip(shown, (style.MISSED, style.FALSE_ALARM, style.PAPER), strict=True):
        np.testing.assert_allclose(rgb, to_rgb(color), atol=0.02)


@given(
    st.lists(st.floats(-50, 50, width=32), min_size=4, max_size=4),
    st.floats(-20, 20, width=32),
)
def test_relative_scores_keep_the_side_of_the_threshold(values: list[float], threshold: float) -> None:
    scores = np.array(values, np.float64).reshape(2, 2)
    shown, norm, ticks, _ = relative_scores(scores, threshold, np.zeros((2, 2), bool))
    assert np.isfinite(shown).all()
    assert set(ticks.values()) >= {"threshold"}
    np.testing.assert_array_equal(shown >= 0, scores >= threshold)
    blue = break_map()(norm(shown))
    np.testing.assert_array_equal(blue[..., 2] - blue[..., 0] > 0.15, scores >= threshold)


@pytest.mark.parametrize(("world", "expected"), [("thawing", 11), ("carwash", 17), ("minecraft", 40)])
def test_graphs_of_worlds_fit(world: str, expected: int, tmp_path: Path) -> None:
    factors = elden.make(world).factors
    rng = np.random.default_rng(0)
    dst, src = factors.variable_names, (*factors.variable_names, "action")
    truth = rng.random((2, expected, expected + 1)) < 0.1
    figure = graph_heatmap(truth, rng.random(truth.shape), 0.9, dst, src, world, self_edges(dst, src))
    style.save(figure, tmp_path / "a.png")
    width, height = figure.get_size_inches()
    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    for text in figure.axes[0].texts + figure.axes[2].texts:
        box = text.get_window_extent(renderer)
        assert box.x0 >= 0, text
        assert box.x1 <= width * style.DPI, text
        assert box.y1 <= height * style.DPI, text
    labels = [tick.get_window_extent(renderer) for tick in figure.axes[0].get_yticklabels()]
    assert all(low.y1 <= high.y0 + 1 for high, low in itertools.pairwise(labels))


def test_strip_of_an_episode_has_a_graph_and_a_picture_for_every_step(key: jax.Array) -> None:
    world = elden.make("thawing")
    state = world.reset(key, solvable=True)
    step = jax.jit(lambda key, state: world.step(key, state, world.scripted(key, state)))
    graphs, names, pictures = [], [], []
    for step_key in jax.random.split(key, 4):
        pictures.append(elden.viewing.pictures.draw(world.scene(state), 16))
        state, transition = step(step_key, state)
        graphs.append(np.asarray(transition.graph))
        names.append(world.action_names[int(transition.action)])
    truths = np.stack(graphs)
    dst = world.factors.variable_names
    src = (*dst, "action")
    perfect = truths.astype(np.float32)
    figure = episode_strip(truths, perfect, THRESHOLD, dst, src, names, pictures, mask=self_edges(dst, src))
    assert len(figure.axes) == 8
    headings = [f"{i}  {name}" for i, name in enumerate(names)]
    assert [word for word in words(figure) if word[:1].isdigit() and "  " in word] == headings
    assert any(word.startswith("4 steps, each pictured before its action;") for word in words(figure))
    drawn = figure.axes[1].collections[0].get_array()
    assert drawn is not None
    shown = np.asarray(np.ma.filled(drawn, NOTHING)).reshape(11, 13)
    np.testing.assert_array_equal(np.delete(shown, 11, axis=1) == FOUND, truths[0] & ~self_edges(dst, src))
    assert not np.isin(shown, [MISSED, FALSE_ALARM]).any()


def test_strip_of_entities_is_arrows_in_the_three_colours() -> None:
    dst, src = ("agent", "fish"), ("agent", "fish", "action")
    truth = np.array([[[1, 1, 1], [0, 1, 0]]], bool)
    scores = np.array([[[0.9, 0.9, 0.1], [0.9, 0.9, 0.1]]])
    figure = episode_strip(truth, scores, THRESHOLD, dst, src, ["pick"], mask=self_edges(dst, src))
    arrows = [(to_rgb(patch.get_edgecolor()), patch.get_linestyle()) for patch in figure.axes[0].patches]
    dashes = {style.FOUND: "solid", style.MISSED: "dashed", style.FALSE_ALARM: "dotted"}
    drawn = {color: found for color in dashes for found in arrows if found[0] == to_rgb(color)}
    assert len(arrows) == 3
    assert set(drawn) == set(dashes)
    assert len({dash for _, dash in drawn.values()}) == 3
    assert {"agent", "fish", "action", "0  pick"} <= set(words(figure))


def test_strip_draws_only_the_steps_asked_for_and_wraps() -> None:
    truths, scores = np.stack([TRUTH] * 30), np.stack([SCORES] * 30)
    names = [f"act{i}" for i in range(30)]
    few = episode_strip(truths, scores, THRESHOLD, DST, SRC, names, steps=[3, 7])
    assert [w for w in words(few) if "act" in w and w != "action"] == ["3  act3", "7  act7"]
    many = episode_strip(truths, scores, THRESHOLD, DST, SRC, names)
    assert len({round(axes.get_position().y0, 3) for axes in many.axes}) > 1
    assert len(many.axes) == 30


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"truth": TRUTH[:, :3]}, r"truth has shape \(3, 3\), but 3 names of rows and 4 of columns"),
        ({"scores": SCORES[:2]}, r"scores has shape \(2, 4\)"),
        ({"scores": np.stack([SCORES] * 2)}, r"truth has shape \(3, 4\) but scores have \(2, 3, 4\)"),
        ({"scores": np.where(TRUTH, np.nan, SCORES)}, "5 of 12 scores are not finite"),
        ({"threshold": float("nan")}, "threshold is nan"),
        ({"mask": np.zeros((3, 3), bool)}, r"mask has shape \(3, 3\), but the graph is \(3, 4\)"),
        ({"truth": TRUTH * 2.0}, r"truth of float64 is an average.*lie in \[0, 2\]"),
        ({"dst_names": ()}, "got 0 for rows"),
    ],
)
def test_heatmap_refuses_what_does_not_fit(change: dict[str, object], message: str) -> None:
    fitting = {
        "truth": TRUTH,
        "scores": SCORES,
        "threshold": THRESHOLD,
        "dst_names": DST,
        "src_names": SRC,
        "title": "",
    }
    with pytest.raises(ValueError, match=message):
        graph_heatmap(**{**fitting, **change})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"action_names_per_step": ["go"]}, "2 steps, but 1 names of actions"),
        ({"pictures": [np.zeros((4, 4, 3), np.uint8)]}, "2 steps, but 1 pictures"),
        ({"pictures": [np.zeros((4, n, 3), np.uint8) for n in (4, 5)]}, "pictures of several shapes"),
        ({"steps": [2]}, r"steps=\[2\] given; draw one or more of the steps 0 to 1"),
        ({"steps": []}, "draw one or more"),
        ({"scores": np.stack([SCORES] * 3)}, r"truth has shape \(2, 3, 4\) but scores have \(3, 3, 4\)"),
    ],
)
def test_strip_refuses_what_does_not_fit(change: dict[str, object], message: str) -> None:
    fitting = {
        "truths": np.stack([TRUTH] * 2),
        "scores": np.stack([SCORES] * 2),
        "threshold": THRESHOLD,
        "dst_names": DST,
        "src_names": SRC,
        "action_names_per_step": ["go", "stay"],
    }
    with pytest.raises(ValueError, match=message):
        episode_strip(**{**fitting, **change})  # type: ignore[arg-type]


def test_edge_breakdown_is_sorted_and_says_the_share() -> None:
    figure = edge_breakdown(EDGES, "edges")
    counts = figure.axes[0]
    assert [label.get_text() for label in counts.get_yticklabels()] == ["often", "rare", "never"]
    assert [bar.get_width() for bar in counts.patches] == [100, 4, 0, 75, 1, 0]  # type: ignore[attr-defined]
    assert {"75%  (75 of 100)", "25%  (1 of 4)", "never true"} <= set(words(figure))
    with pytest.raises(ValueError, match="3 found of 2 true edges"):
        EdgeCount("odd", 2, 3)
    with pytest.raises(ValueError, match="empty sequence"):
        edge_breakdown([], "edges")


def test_method_bars_have_a_panel_for_each_world_and_gaps_for_missing_numbers() -> None:
    figure = method_bars(CELLS, [*CELLS[:3], Cell("kitchen", "pcmi", "f1", 0.28)], METRICS, "bars")
    assert [axes.get_title("left") for axes in figure.axes] == ["thawing", "carwash"]
    heights = [sorted(p.get_height() for p in axes.patches if p.get_height()) for axes in figure.axes]  # type: ignore[attr-defined]
    assert heights == [[0.55, 0.57, 0.6, 0.71], [0.66, 0.73, 0.78]]
    hollow = [
        [float(y) for line in axes.lines if line.get_marker() == "D" for y in np.asarray(line.get_ydata())]
        for axes in figure.axes
    ]
    assert hollow == [[0.71, 0.55, 0.57], []]
    colors = {to_rgb(patch.get_facecolor()) for patch in figure.axes[0].patches}
    assert colors == {to_rgb(style.method_color(method)) for method in ("gradient", "pcmi")}
    assert {"gradient", "pcmi", "the paper", "± standard error"} <= set(words(figure))
    assert "the paper" not in words(method_bars(CELLS, [], METRICS, "bars"))


def test_the_legend_of_few_bars_is_not_cut_off() -> None:
    rules = (style.SELF_EDGES_ALONE, style.ALL_INTO_CHANGED)
    cells = [Cell("thawing", name, "f1", 0.5, 0.1) for name in ("gradient", "intervention", *rules)]
    figure = method_bars(cells, [Cell("thawing", "gradient", "f1", 0.6)], {"f1": "F1"}, "bars")
    figure.draw_without_rendering()
    box = figure.legends[0].get_window_extent()
    assert 0 <= box.x0 < box.x1 <= figure.bbox.width


def test_method_bars_refuse_doubtful_numbers() -> None:
    with pytest.raises(ValueError, match="two cells for"):
        method_bars([CELLS[0], CELLS[0]], [], METRICS, "bars")
    with pytest.raises(ValueError, match="is nan; leave out the cell"):
        method_bars([Cell("thawing", "pcmi", "f1", float("nan"))], [], METRICS, "bars")
    with pytest.raises(ValueError, match="no cells to draw for 'cost'"):
        method_bars(CELLS, [], {"cost": "cost"}, "bars")


def test_lambda_curve_sets_zero_and_no_mixup_apart() -> None:
    figure = lambda_curve(POINTS, POINTS[:2], METRICS, "curve")
    axes = figure.axes[0]
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert labels == ["no mixup,\nλ = 0", "0", "$10^{-3}$", "$10^{-2}$"]
    places = axes.get_xticks()
    assert np.all(np.diff(places) > 0)
    joined = [np.stack([line.get_xdata(), line.get_ydata()], axis=-1).tolist() for line in axes.lines]
    assert [[-3, 0.64], [-2, 0.71]] in joined
    assert [axes.get_title("left") for axes in figure.axes] == ["ROC-AUC", "best F1"]
    with pytest.raises(ValueError, match="λ = -1"):
        lambda_curve([LambdaPoint("thawing", -1, "f1", 0.5)], [], METRICS, "curve")
    with pytest.raises(ValueError, match="no points to draw"):
        lambda_curve([], POINTS, METRICS, "curve")


def test_score_histogram_shares_add_up_and_thresholds_are_marked() -> None:
    scores = np.array([-1.0, 0.0, 1e-3, 1e-2, 0.1, 1.0])
    truth = np.array([False, False, False, True, True, True])
    figure = score_histogram(scores, truth, 0.1, -0.5, "scores")
    axes = figure.axes[0]
    stairs = [patch.get_data().values.sum() for patch in axes.patches if hasattr(patch, "get_data")]
    np.testing.assert_allclose(stairs, [1, 1, 1 / 3, 1 / 3])
    bars = [patch.get_height() for patch in axes.patches if hasattr(patch, "get_height")]
    np.testing.assert_allclose(bars, [2 / 3])
    lines = [float(np.asarray(line.get_xdata())[0]) for line in axes.lines]
    assert lines[0] == pytest.approx(-1)
    assert lines[1] < -3
    assert {"true edges (3)", "no edges (3)", "≤ 0", "automatic threshold: 0.1"} <= set(words(figure))


@pytest.mark.parametrize("scores", [np.zeros(3), np.full(3, 2.0), -np.ones(3), np.array([1e-30, 1.0, 1e30])])
@pytest.mark.parametrize("truth", [np.zeros(3, bool), np.ones(3, bool)])
def test_score_histogram_of_degenerate_scores(scores: np.ndarray, truth: np.ndarray) -> None:
    figure = score_histogram(scores, truth, 0, 0.5, "scores")
    rendered(figure)
    assert np.isfinite(figure.axes[0].get_xlim()).all()


def test_score_histogram_refuses_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match=r"scores have shape \(3,\) but truth has \(4,\)"):
        score_histogram(np.zeros(3), np.zeros(4, bool), 0.1, 0.1, "")
    with pytest.raises(ValueError, match="1 of 2 scores are not finite"):
        score_histogram(np.array([1.0, np.inf]), np.zeros(2, bool), 0.1, 0.1, "")
    with pytest.raises(ValueError, match="threshold_best is nan"):
        score_histogram(np.ones(2), np.zeros(2, bool), 0.1, float("nan"), "")
    with pytest.raises(ValueError, match="empty array"):
        score_histogram(np.ones(0), np.zeros(0, bool), 0.1, 0.1, "")


def test_values_are_written_with_their_error() -> None:
    assert format_value(0.714, 0.0061) == "0.71 ± 0.01"
    assert format_value(0.7) == "0.70"
    assert format_value(2, 1, digits=0) == "2 ± 1"
    assert format_value(None) == format_value(float("nan"), 0.1) == "–"


def test_markdown_and_terminal_print_the_same_words() -> None:
    table = Table("Two | one", ("method", "a|b"), (("x", "0.71 ± 0.01"), ("[red]y", "–")), frozenset({(0, 1)}))
    lines = markdown_table(table).splitlines()
    assert lines == [
        "**Two | one**",
        "",
        "| method | a\\|b |",
        "| :--- | ---: |",
        "| x | **0.71 ± 0.01** |",
        "| [red]y | – |",
    ]
    console = Console(width=60, record=True, file=io.StringIO())
    console.print(rich_table(table))
    said = console.export_text()
    assert all(word in said for word in ("Two | one", "a|b", "0.71 ± 0.01", "[red]y", "–"))
    with pytest.raises(ValueError, match="row 0 of 't' has 1 cells, but there are 2 columns"):
        Table("t", ("a", "b"), (("x",),))


def test_methods_and_worlds_keep_their_looks() -> None:
    known = list(style.METHOD_COLORS)
    assert len({style.method_color(method) for method in known}) == len(known)
    assert set(known) == {*DETECTORS, style.SELF_EDGES_ALONE, style.ALL_INTO_CHANGED}
    assert style.method_color("mine") == style.method_color("mine")
    assert style.world_look("thawing") != style.world_look("carwash")
    assert (style.text_color(style.BLUE), style.text_color(style.YELLOW)) == (style.PAPER, style.INK)


# What a study draws.


def test_an_episode_is_played_up_to_its_end() -> None:
    long = elden.make("thawing", max_steps=60)
    states, played = figures._play(long, jax.random.key(0))
    assert len(played.action) == len(states.elapsed) == 60
    solved = int(np.argmax(played.success)) + 1
    assert 1 < solved < 60
    states, played = figures._play(elden.make("thawing", max_steps=60, terminate_on_success=True), jax.random.key(0))
    assert len(played.action) == len(states.elapsed) == solved
    assert played.done.tolist() == [False] * (solved - 1) + [True]


def granularity_result(granularity: GraphGranularity) -> GranularityResult:
    """Of scores whose automatic threshold is known: what changed has edges of 0.8 or 0.9, what did not of 0.1."""
    mask = DISCRETE.edge_mask("entity", "entity")
    changed = np.array([[True, False], [False, True], [False, False]])
    height = 0.9 if granularity == "entity" else 0.8
    scores = np.where(changed[..., None], height, 0.1) * np.ones((3, 2, 3), np.float32)
    return measure_granularity(scores, scores > 0.5, scores, changed, mask, "change")


def test_graphs_between_entities_are_drawn_at_a_threshold_of_their_own() -> None:
    steps = random_transitions(layout_of(DISCRETE), 3)
    before = np.asarray(steps.obs)
    after = before.copy()
    after[0, 0], after[1, 2] = (before[0, 0] + 1) % 4, 1 - before[1, 2]
    held = Held(replace(steps, next_obs=jnp.asarray(after)), np.zeros((3, 3, 4), bool), np.zeros((3, 1), bool))
    asked: list[object] = []

    def score(transitions: Transitions) -> Float[np.ndarray, "step dst src"]:
        asked.append(transitions)
        changed = np.array([[True, False], [False, True], [False, False]])
        return np.where(changed[..., None], 0.3, 0.02) * np.ones((3, 2, 3), np.float32)

    def threshold(*granularities: GraphGranularity) -> float:
        seeds = ({granularity: granularity_result(granularity) for granularity in granularities},)
        row = Row("gradient", Gradient(), 0.0, 0.0)
        result = RowResult(row, seeds, 1.0, 1.0, 1.0, (0,), (Run(0),), (None,), Breakdown([], [], 0.5))
        return figures._entity_threshold(DISCRETE, result, held, score)

    assert threshold("variable", "entity") == pytest.approx(0.9)
    assert not asked
    assert threshold("variable") == pytest.approx(0.3)
    assert asked == [held.transitions]
