"""One comparison of bonuses from training runs that were made apart: run folders, and rows of earlier tables.

Where one machine cannot hold a whole comparison, its parts are joined here. What each row was made by
(command, code, date) stays with it.

    python tools/join_comparisons.py --out results/exploration/minecraft --steps 2048000
        --rows "elden=runs/gpu/minecraft_elden_every@1144895" "cai=7f7db96:results/exploration/minecraft/table.json"

Parts of a grid that machines have trained apart, by worlds or by bonuses, are joined as whole tables, in which every
world and bonus keeps its title:

    python tools/join_comparisons.py --out results/grid --tables runs/a/table.json runs/b/table.json

A row is `NAME=PLACE`. PLACE is a run folder, `@COMMIT` behind it saying of which commit the code is, or a `table.json`,
`COMMIT:` before it taking it as it was there, `#ROW` behind it naming its row where that has another name.
"""

import json
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import tyro

from elden.studies.exploration import Agents, report


@dataclass(frozen=True)
class Args:
    """What to join."""

    out: Path
    """Folder for the table and the figures."""
    rows: tuple[str, ...] = ()
    """Rows of one world, in their order."""
    tables: tuple[str, ...] = ()
    """Files `table.json` of `elden compare`, all rows of which are taken; `COMMIT:` before one is allowed too."""
    later_wins: bool = False
    """Where several tables have a cell, take that of the last one, instead of refusing them."""
    steps: int | None = None
    """Show longer training runs up to there; None shows all of them."""
    note: str | None = None
    """What else is to be known of the table."""


def row(word: str, out: Path) -> Agents:
    """The agents of a row."""
    name, equals, place = word.partition("=")
    if not equals:
        sys.exit(f"--rows {word!r} given; a row is NAME=PLACE")
    file, _, other = place.partition("#")
    if Path(file).suffix != ".json":
        folder, _, commit = place.partition("@")
        agents = without_folder(Agents.read(Path(folder), name))
        return replace(agents, notes={"commit": commit} if commit else {})
    rows = json.loads(text(file, out))["rows"]
    for known in rows:
        if known["contender"] == (other or name):
            return replace(Agents.load(known), contender=name)
    sys.exit(f"{file} has no row {other or name!r}; it has {', '.join(each['contender'] for each in rows)}")


def text(place: str, out: Path) -> str:
    """A file, or what it was at a commit."""
    commit, colon, path = place.rpartition(":")
    if colon:
        return subprocess.run(["git", "show", f"{commit}:{path}"], check=True, capture_output=True, text=True).stdout
    if Path(path).resolve().parent == out.resolve():
        sys.exit(f"{path} is about to be written again; say of which commit it is, as COMMIT:{path}")
    return Path(path).read_text()


def without_folder(agents: Agents) -> Agents:
    """The same, their command without the folder that it wrote to, which says nothing elsewhere."""
    if "command" not in agents.summary:
        return agents
    command = shlex.join(shlex.split(re.sub(r"\s--out[=\s]\S+", "", str(agents.summary["command"]))))
    return replace(agents, summary={**agents.summary, "command": command})


def grid(files: tuple[str, ...], out: Path, later_wins: bool = False) -> list[Agents]:
    """All rows of several tables, worlds and contenders in the order in which they first occur."""
    agents = [without_folder(Agents.load(one)) for file in files for one in json.loads(text(file, out))["rows"]]
    worlds = list(dict.fromkeys(each.world for each in agents))
    names = list(dict.fromkeys(each.contender for each in agents))
    if later_wins:
        agents = list({(each.world, each.contender): each for each in agents}.values())
    cells = [(each.world, each.contender) for each in agents]
    if twice := [f"{name} in {world}" for world, name in dict.fromkeys(cells) if cells.count((world, name)) > 1]:
        sys.exit(f"more than one table has {', '.join(twice)}; give each once")
    for world in worlds:
        cards = [json.dumps(each.card, sort_keys=True) for each in agents if each.world == world and each.card]
        if len(set(cards)) > 1:
            sys.exit(f"{world!r} has other options in one table than in another; give them different names")
    return sorted(agents, key=lambda each: (worlds.index(each.world), names.index(each.contender)))


def read(args: Args) -> list[Agents]:
    """What the arguments name."""
    if bool(args.rows) == bool(args.tables):
        sys.exit("give either --rows or --tables")
    if args.tables:
        return grid(args.tables, args.out, args.later_wins)
    agents = [row(word, args.out) for word in args.rows]
    names, worlds = [each.contender for each in agents], {each.world for each in agents}
    if len(worlds) > 1 or len(set(names)) < len(names):
        sys.exit(f"rows of {', '.join(sorted(worlds))} named {', '.join(names)}: give one world, and each name once")
    return agents


def main(args: Args) -> None:
    """Read, cut and write."""
    agents = read(args)
    if args.steps is not None:
        agents = [each.until(args.steps) for each in agents]
    args.out.mkdir(parents=True, exist_ok=True)
    given = (
        f"{'--later-wins ' * args.later_wins}--tables {shlex.join(args.tables)}"
        if args.tables
        else f"--rows {shlex.join(args.rows)}"
    )
    words = [given, *([] if args.steps is None else [f"--steps {args.steps}"])]
    report(agents, args.out, f"join_comparisons.py --out {args.out} {' '.join(words)}", args.note)
    file = args.out / "table.json"  # curves of many agents: a number on a line of its own would be most of the file
    file.write_text(json.dumps(json.loads(file.read_text()), separators=(",", ":"), ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(tyro.cli(Args))
