"""One table of several that `elden reproduce` has made of the same models, each with some of the methods.

Measuring a large world takes one core minutes for each method, and a machine has many cores:

    for m in gradient pcmi …; do
        elden reproduce table1 --worlds minecraft --models MODELS --methods $m --no-figures --out parts/$m &
    done
    python tools/join_tables.py --parts parts/* --out joined

Times to score a transition are left out: they were not taken one after the other.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import tyro

from elden.graphs.registry import DETECTORS
from elden.storage.files import write_json, write_text
from elden.studies.paper import METRICS, paper_cells
from elden.studies.tables import comparison_table, granularity_words
from elden.viewing import Cell, Table, format_value, markdown_table, method_bars, save
from elden.viewing.style import SELF_EDGES_ALONE

Content: TypeAlias = Mapping[str, Any]

_MEASURES = {"roc_auc": "ROC-AUC", "f1": "best F1", "auto_f1": "automatic F1"}
_EDGES = {"": "all edges", "_between": "self-edges left out"}


@dataclass(frozen=True)
class Args:
    """What to join."""

    parts: tuple[Path, ...]
    """Folders of the tables."""
    out: Path
    """Folder for the joined one."""


def joined(parts: Sequence[Content]) -> dict[str, Any]:
    """The content of one table with the rows of all parts.

    Raises:
        ValueError: The parts differ in more than their methods, or two of them have the same one.
    """
    frames = [_frame(part) for part in parts]
    if any(frame != frames[0] for frame in frames):
        raise ValueError("the parts differ in more than their methods")
    methods: dict[str, Content] = {}
    for part in parts:
        for name, row in _world(part)["methods"].items():
            if name in methods:
                raise ValueError(f"{name} is in two parts")
            methods[name] = {key: value for key, value in row.items() if key not in ("cost_s", "relative_cost")}
    order = sorted(methods, key=list(DETECTORS).index)
    ours = {
        granularity: [
            cell for name in order for part in parts for cell in part["ours"][granularity] if cell["method"] == name
        ]
        for granularity in parts[0]["ours"]
    }
    return {
        **frames[0],
        "ours": ours,
        "methods": {name: methods[name] for name in order},
        "training": {name: group for part in parts for name, group in _world(part)["training"].items()},
        "provenance": [part["provenance"] for part in parts],
    }


def _world(part: Content) -> Content:
    (world,) = part["worlds"].values()
    return dict(world)


def _frame(part: Content) -> dict[str, Any]:
    """What all parts must share."""
    world = _world(part)
    (config,) = part["configs"].values()
    kept = {key: world[key] for key in ("world", "level", "eval_episodes", "eval_transitions", "self_edges_alone")}
    changes = {name: value for name, value in part["changes"].items() if name != "methods"}
    settings = {name: value for name, value in config.items() if name != "methods"}
    return {"kind": part["kind"], "preset": part["preset"], "changes": changes, "config": settings, **kept}


def tables(content: Content) -> list[Table]:
    """The table beside the paper's at every granularity, then every granularity's measures."""
    world = content["world"]["name"]
    settings = ", ".join([f"preset {content['preset']}", *(f"{k}={v}" for k, v in content["changes"].items())])
    made = []
    for granularity in content["ours"]:
        cells = [Cell(**cell) for cell in content["ours"][granularity]] + alone(content, granularity)
        made.append(comparison_table(cells, paper_cells(), f"{world}, {granularity_words(granularity)} ({settings})"))
    for granularity in content["ours"]:
        for suffix, words in _EDGES.items():
            rows = []
            for name, row in content["methods"].items():
                mean, error = (row["levels"][granularity][key] for key in ("mean", "standard_error"))
                rows.append(
                    (name, *(format_value(mean[m + suffix], error[m + suffix], digits=3) for m in _MEASURES)),
                )
            rate = next(iter(content["methods"].values()))["levels"][granularity]["mean"]["positive_rate" + suffix]
            title = f"{world}, {granularity_words(granularity)}, {words} ({rate:.1%} are on)"
            made.append(Table(title, ("method", *_MEASURES.values()), tuple(rows), frozenset()))
    return made


def alone(content: Content, granularity: str) -> list[Cell]:
    """What self-edges alone would get."""
    known = content["self_edges_alone"][granularity]
    return [Cell(content["world"]["name"], SELF_EDGES_ALONE, metric, known[metric], None) for metric in METRICS]


def main(args: Args) -> None:
    """Join, and write table.json, table.md and the figure."""
    try:
        content = joined([json.loads((part / "table.json").read_text()) for part in args.parts])
    except ValueError as error:
        sys.exit(str(error))
    args.out.mkdir(parents=True, exist_ok=True)
    write_json(args.out / "table.json", content)
    commands = "\n".join(f"- `{one['command']}` on {one['device']}, {one['date']}" for one in content["provenance"])
    words = "\n\n".join(map(markdown_table, tables(content)))
    write_text(args.out / "table.md", f"{words}\n\nJoined by `tools/join_tables.py` from\n\n{commands}\n")
    granularity = content["level"]
    cells = [Cell(**cell) for cell in content["ours"][granularity]] + alone(content, granularity)
    name, updates = content["world"]["name"], content["config"]["updates"]
    title = f"Table 1, {name} ({granularity_words(granularity)}, {updates:,} updates)"
    save(method_bars(cells, paper_cells(), METRICS, title), args.out / "method_bars.png")


if __name__ == "__main__":
    main(tyro.cli(Args))
