"""One comparison of bonuses from trainings that were made apart: run folders, and rows of earlier tables.

A device lent by the hour does not hold a whole comparison at once. What each row was made by (command, code, date)
stays with it.

    python benchmarks/join_comparisons.py --out results/compare_minecraft_gpu --steps 2048000
        --rows "elden=runs/minecraft-elden@1144895" "cai=results/compare_minecraft_gpu/table.json"

A row is `NAME=PLACE`, PLACE being a run folder or a `table.json`; `#ROW` behind a table names its row where that has
another name, and `@COMMIT` behind a folder says of which commit the code was.
"""

import json
import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import tyro

from elden.studies.exploration import Agents, report


@dataclass(frozen=True)
class Args:
    """What to join."""

    rows: tuple[str, ...]
    """The rows, in their order."""
    out: Path
    """Folder for the table and the figures."""
    steps: int | None = None
    """Cut longer trainings there; None leaves them as they are."""
    note: str | None = None
    """What else is to be known of the table."""


def row(word: str) -> Agents:
    """The agents of a row."""
    name, equals, place = word.partition("=")
    if not equals:
        sys.exit(f"--rows {word!r} given; a row is NAME=PLACE")
    if ".json" not in place:
        folder, _, commit = place.partition("@")
        agents = Agents.read(Path(folder), name)
        summary = dict(agents.summary)
        if summary:
            summary["command"] = without_folder(str(summary["command"]))
        return replace(agents, summary=summary, notes={"commit": commit} if commit else {})
    file, _, other = place.partition("#")
    rows = json.loads(Path(file).read_text())["rows"]
    for known in rows:
        if known["contender"] == (other or name):
            return replace(Agents.load(known), contender=name)
    sys.exit(f"{file} has no row {other or name!r}; it has {', '.join(each['contender'] for each in rows)}")


def without_folder(command: str) -> str:
    """A command without the folder that it wrote to, which says nothing elsewhere."""
    words = shlex.split(command)
    if "--out" in words:
        place = words.index("--out")
        del words[place : place + 2]
    return shlex.join(words)


def main(args: Args) -> None:
    """Read, cut and write."""
    agents = [row(word) for word in args.rows]
    if args.steps is not None:
        agents = [each.until(args.steps) for each in agents]
    args.out.mkdir(parents=True, exist_ok=True)
    report(agents, args.out)
    file = args.out / "table.json"
    content = json.loads(file.read_text())
    if args.note is not None:
        content["provenance"]["note"] = args.note
    file.write_text(json.dumps(content, separators=(",", ":"), ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(tyro.cli(Args))
