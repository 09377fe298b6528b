"""Pictures and tables for people: graphs, scores and results, without a look at the code.

`tables` prints the same table to a terminal and to Markdown, and draws tables as charts; `graphs` draws dependency
graphs, with `matrices` for one graph; `style` is the look they share. matplotlib is loaded with the first figure, so
that printing a table stays quick.
"""

from typing import TYPE_CHECKING

from elden.lazy import lazily

if TYPE_CHECKING:
    from elden.viewing.comparison import Line, bonus_curves, running_mean, stage_bars
    from elden.viewing.graphs import episode_strip, graph_heatmap, outcomes, self_edges
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
    "rich_table",
    "running_mean",
    "save",
    "score_histogram",
    "self_edges",
    "solve_map",
    "stage_bars",
]

_HOMES = {
    "Cell": "elden.viewing.tables",
    "EdgeCount": "elden.viewing.tables",
    "LambdaPoint": "elden.viewing.tables",
    "Line": "elden.viewing.comparison",
    "MapCell": "elden.viewing.map",
    "Table": "elden.viewing.tables",
    "bonus_curves": "elden.viewing.comparison",
    "edge_breakdown": "elden.viewing.tables",
    "episode_strip": "elden.viewing.graphs",
    "format_value": "elden.viewing.tables",
    "graph_heatmap": "elden.viewing.graphs",
    "lambda_curve": "elden.viewing.tables",
    "map_table": "elden.viewing.map",
    "markdown_table": "elden.viewing.tables",
    "method_bars": "elden.viewing.tables",
    "outcomes": "elden.viewing.graphs",
    "self_edges": "elden.viewing.graphs",
    "rich_table": "elden.viewing.tables",
    "running_mean": "elden.viewing.comparison",
    "save": "elden.viewing.style",
    "score_histogram": "elden.viewing.tables",
    "solve_map": "elden.viewing.map",
    "stage_bars": "elden.viewing.comparison",
}
__getattr__, __dir__ = lazily(__name__, _HOMES)
