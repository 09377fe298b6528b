"""`elden info`: what a world is made of, what one can do in it, and what depends on what."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

import tyro
from rich.table import Table
from rich.text import Text

from elden.cli.console import make_console, wrap_items
from elden.cli.edges import rule_lines
from elden.cli.worlds import describe_options, first_line, world_choice
from elden.factors import Entity
from elden.worlds.base import World


@dataclass(frozen=True)
class Info:
    """Describe a world: its variables, actions, stages and the rules of its local graph."""

    world: Annotated[World, tyro.conf.arg(name="", constructor_factory=world_choice)]
    """Which world."""

    def run(self, command_line: str) -> None:
        """Print the description."""
        world, console = self.world, make_console()
        console.print(Text.assemble((world.name, "bold"), f" {describe_options(world)}"))
        console.print(Text(f"{first_line(world.__doc__)}\n{_facts(world)}\n"))
        console.print(_factor_table(world))
        actions = (f"{i} {name}" for i, name in enumerate(world.action_names))
        stages = (f"{i} {name}" for i, name in enumerate(world.stage_names, 1))
        console.print(_list("actions", actions, console.width))
        console.print(_list("stages (the last one is success)", stages, console.width))
        console.print(_rule_table(world))


def _facts(world: World) -> str:
    variables = world.factors.num_variables
    facts = [f"{variables} variables", f"{world.num_actions} actions", f"horizon {world.max_steps} steps"]
    smallest = getattr(world, "smallest_size", None)
    if smallest is not None:
        facts.append(f"smallest size {smallest}")
    facts.append(f"{world.book.possible.sum()} of {variables**2} off-diagonal edges can fire")
    return " · ".join(facts)


def _factor_table(world: World) -> Table:
    """One row per entity; the numbers are rows and columns of the graph."""
    table = Table("graph index", "entity", "variables and their ranges", title="variables", title_justify="left")
    for entity, part in zip(world.factors.entities, world.factors.entity_slices, strict=True):
        last = part.stop - 1
        table.add_row(str(last) if part.start == last else f"{part.start}-{last}", entity.name, _variables(entity))
    for entity in () if world.hidden is None else world.hidden.entities:
        table.add_row("not observed", entity.name, _variables(entity))
    return table


def _variables(entity: Entity) -> str:
    words = []
    for variable in entity.variables:
        size = f"{variable.kind.size} times " if variable.kind.size > 1 else ""
        words.append(f"{variable.name} {size}{variable.kind}")
    return "   ".join(words)


def _list(title: str, items: Iterable[str], width: int) -> Text:
    """A title, and the items in as many lines as they take, none of them broken."""
    return Text.assemble((title, "italic"), "\n", "\n".join(wrap_items(items, width, gap=3)), "\n")


def _rule_table(world: World) -> Table:
    table = Table(title="local graph", title_justify="left", caption_justify="left")
    table.add_column("event", overflow="fold")
    table.add_column("edges that it switches on", overflow="fold")
    for event, edges in rule_lines(world.factors, world.book.rules):
        table.add_row(event, edges)
    table.caption = (
        "Every variable depends on its own past too, but for '(not itself)'. {1} is the event's first word after ':'."
    )
    return table
