"""What `elden play` shows: the picture, the numbers, what depended on what, and the keys."""

import textwrap
from collections.abc import Sequence

import jax
import numpy as np
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from elden.cli.console import wrap_items
from elden.cli.edges import edge_lines, matrix_lines
from elden.cli.game import Game, Moment
from elden.cli.keys import COMMAND_KEYS, assign_keys, key_name
from elden.cli.worlds import describe_options
from elden.factors import Granularity
from elden.viewing import pictures

_GAP = 2
_LEAST_WORDS = 46
"""Words stand beside something else where at least so many columns are left for them."""
_GRAPH_LEGEND = "row <- column:  █ edge\n\\ self-edge  o self-edge cut\nA action"


def draw_game(game: Game, console: Console, height: int | None = None) -> RenderableType:
    """The whole screen.

    Args:
        game: The game.
        console: Where it will be shown; its width decides what stands beside what.
        height: Lines that there is room for: the first layout that fits is taken, from ample to scant.
    """
    grid, panel = _picture(game)
    layouts: list[RenderableType] = []
    for picture in ([grid, panel], []) if game.show_graph else ([grid, panel],):
        for graph in _graphs(game):
            layouts.append(_lay_out(game, picture, graph, console.width))
            if height is None or len(console.render_lines(layouts[-1])) <= height:
                return layouts[-1]
    return layouts[-1]


def _picture(game: Game) -> tuple[Text, Text]:
    """The grid, and what is written under it."""
    scene = game.world.scene(game.now.state)
    lines = pictures.text(scene, color=True).splitlines()
    grid, panel = lines[: scene.height], lines[scene.height + 1 :]
    return Text.from_ansi("\n".join(grid)), Text.from_ansi("\n".join(panel))


def _graphs(game: Game) -> list[Text | None]:
    """The graph where it is wanted, from ample to scant."""
    return [_graph(game, "variable"), _graph(game, "entity")] if game.show_graph else [None]


def _lay_out(game: Game, picture: Sequence[Text], graph: Text | None, width: int) -> RenderableType:
    """The words beside the grid, the graph beside the words; what there is no room for stands above or below."""
    columns, above, below = list(picture[:1]), list(picture), list(picture[1:])
    left = sum(_width(part) + _GAP for part in columns)
    if left + _LEAST_WORDS > width:
        columns, below, left = [], [], 0
    else:
        above = []
    beside = [] if graph is None else [graph]
    right = sum(_width(part) + _GAP for part in beside)
    if left + _LEAST_WORDS + right > width:
        below, beside, right = [*below, *beside], [], 0
    table = Table.grid(padding=(0, _GAP, 0, 0))
    table.add_row(*columns, Group(*_words(game, width - left - right - _GAP)), *beside)
    return Group(_title(game), *above, table, *below)


def _width(part: Text) -> int:
    return max(cell_len(line) for line in part.plain.splitlines())


def _title(game: Game) -> Text:
    options = describe_options(game.world)
    seed = f"seed {game.seed}, episode {game.episode}"
    return Text.assemble((game.world.name, "bold"), f" {options}" if options else "", (f"   {seed}", "dim"))


def _words(game: Game, width: int) -> list[Text]:
    now = game.now
    lines = [
        _line("step", [_count(game)], width),
        _line("stages", _stages(game), width),
        *_last_step(game, now, width),
        _line("keys", _keys(game), width),
    ]
    if now.over:
        lines.append(Text(_verdict(now), style="bold green" if _succeeded(now) else "bold red"))
    if game.note:
        lines.append(Text(game.note, style="yellow"))
    return lines


def _line(label: str, items: Sequence[str], width: int) -> Text:
    """A label and its items, none of them broken, wrapped under one another."""
    wrapped = wrap_items(items or ["-"], width - 8, gap=2)
    return Text.assemble((f"{label:<8}", "dim"), "\n        ".join(wrapped))


def _count(game: Game) -> str:
    now = game.now
    taken = len(game.history) - 1
    reward = 0.0 if now.step is None else now.step.reward
    success = "yes" if _succeeded(now) else "no"
    return f"{taken}/{game.world.max_steps}   reward {reward:g}   sum {now.collected:g}   success {success}"


def _succeeded(now: Moment) -> bool:
    return now.step is not None and now.step.success


def _stages(game: Game) -> list[str]:
    reached = np.asarray(jax.device_get(game.now.state.stages)).tolist()
    return [f"{'✓' if done else '·'} {name}" for name, done in zip(game.world.stage_names, reached, strict=True)]


def _last_step(game: Game, now: Moment, width: int) -> list[Text]:
    if now.step is None:
        return [_line("action", ["-"], width)]
    edges = edge_lines(game.world.factors, now.step.graph) or ["none: nothing depends on anything else"]
    return [
        _line("action", [now.step.action], width),
        _line("events", now.step.events, width),
        *(_wrapped_edge("edges" if i == 0 else "", edge, width) for i, edge in enumerate(edges)),
    ]


def _wrapped_edge(label: str, edge: str, width: int) -> Text:
    wrapped = textwrap.wrap(edge, max(20, width - 8), subsequent_indent="  ", break_on_hyphens=False)
    return Text.assemble((f"{label:<8}", "dim"), ("\n        ".join(wrapped), "cyan"))


def _keys(game: Game) -> list[str]:
    keys = assign_keys(game.world.action_names)
    actions = [f"{key} {game.world.action_names[action]}" for key, action in keys.items()]
    return [*actions, *(f"{key_name(key)} {meaning}" for key, meaning in COMMAND_KEYS.items())]


def _verdict(now: Moment) -> str:
    if _succeeded(now):
        return "Solved: the episode is over. R plays another one, Q quits."
    return "Time is up: the episode is over, unsolved. R plays another one, Q quits."


def _graph(game: Game, granularity: Granularity) -> Text:
    """The true local graph of the last step, as a matrix."""
    if game.now.step is None:
        return Text("graph   no step has been taken yet", style="dim")
    factors, graph = game.world.factors, game.now.step.graph
    if granularity == "entity":
        graph = np.asarray(factors.reduce_graph(graph))
    lines = matrix_lines(factors.source_names(granularity)[:-1], graph)
    return Text.assemble((_GRAPH_LEGEND, "dim"), "\n", "\n".join(lines))
