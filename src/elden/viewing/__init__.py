"""Pictures and tables for people: graphs, scores and results, without a look at the code.

`tables` prints the same table to a terminal and to Markdown, and draws tables as charts; `graphs` draws dependency
graphs, with `matrices` for one graph; `style` is the look they share. matplotlib is loaded with the first figure, so
that printing a table stays quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elden.viewing.comparison import Line, bonus_curves, running_mean, stage_bars
    from elden.viewing.graphs import episode_strip, graph_heatmap, outcomes, own_past
    from elden.viewing.map import MapCell, map_table, solve_map
    from elden.viewing.style import save
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

_HOMES = {
    "Cell": "tables",
    "EdgeCount": "tables",
    "LambdaPoint": "tables",
    "Line": "comparison",
    "MapCell": "map",
    "Table": "tables",
    "bonus_curves": "comparison",
    "edge_breakdown": "tables",
    "episode_strip": "graphs",
    "format_value": "tables",
    "graph_heatmap": "graphs",
    "lambda_curve": "tables",
    "map_table": "map",
    "markdown_table": "tables",
    "method_bars": "tables",
    "outcomes": "graphs",
    "own_past": "graphs",
    "rich_table": "tables",
    "running_mean": "comparison",
    "save": "style",
    "score_histogram": "tables",
    "solve_map": "map",
    "stage_bars": "comparison",
}

__all__ = [
    "Cell",
    "EdgeCount",
    "LambdaPoint",
    "Line",
    "MapCell",
    "Table",
    "bonus_curves",
    "edge_breakdown",
    "episode_strip",
    "format_value",
    "graph_heatmap",
    "lambda_curve",
    "map_table",
    "markdown_table",
    "method_bars",
    "outcomes",
    "own_past",
    "rich_table",
    "running_mean",
    "save",
    "score_histogram",
    "solve_map",
    "stage_bars",
]


def __getattr__(name: str) -> object:
    """Import a public name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'elden.viewing' has no attribute {name!r}")
    return getattr(import_module(f"elden.viewing.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
