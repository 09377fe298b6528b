"""`elden play`: step a world from the keyboard and see what depends on what."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated

import tyro
from rich.console import Console

from elden.cli.console import make_console
from elden.cli.errors import check_seed
from elden.cli.game import Game, new_game, press
from elden.cli.keys import assign_keys, keys_in
from elden.cli.screen import draw_game
from elden.cli.terminal import character_mode, gives_keys, read_keys
from elden.cli.worlds import world_choice
from elden.worlds.base import World


@dataclass(frozen=True)
class Play:
    """Step a world from the keyboard; every step shows which variables depended on which."""

    world: Annotated[World, tyro.conf.arg(name="", constructor_factory=world_choice)]
    """Which world."""
    seed: int = 0
    """Decides the initial states and all randomness."""
    keys: Annotated[str | None, tyro.conf.arg(metavar="KEYS")] = None
    """Play these keys instead of the keyboard's, print every frame and leave. Arrows are written < > ^ v."""

    def __post_init__(self) -> None:
        """Check the options."""
        check_seed(self.seed)

    def run(self, command_line: str) -> None:
        """Play until Q, the end of the keys, or Ctrl-C."""
        assign_keys(self.world.action_names)  # refuses a world with too many actions before anything is compiled
        console = make_console()
        typed = self.keys is None
        live = typed and console.is_terminal and gives_keys(sys.stdin)
        game = self._start(console, live)
        keys = read_keys(sys.stdin) if self.keys is None else keys_in(self.keys)
        mode = character_mode(sys.stdin) if typed else contextlib.nullcontext()
        with mode, _display(console, live) as show, contextlib.suppress(KeyboardInterrupt):
            show(game)
            for key in keys:
                game = press(game, key)
                if game.quit:
                    break
                show(game)
        console.print(_farewell(game))

    def _start(self, console: Console, live: bool) -> Game:
        """The first episode; a player at a terminal waits for the compiler here and not at the first key."""
        with console.status(f"compiling {self.world.name} ..."):
            game = new_game(self.world, self.seed)
            if live:
                press(game, next(iter(assign_keys(self.world.action_names))))
        return game


@contextlib.contextmanager
def _display(console: Console, live: bool) -> Iterator[Callable[[Game], None]]:
    """How games are shown: on a screen of their own, which is gone afterwards, or one under the other."""
    if not live:
        yield lambda game: console.print(draw_game(game, console), "")
        return
    with console.screen() as screen:
        yield lambda game: screen.update(draw_game(game, console, console.height))


def _farewell(game: Game) -> str:
    step = game.now.step
    end = "not solved" if step is None or not step.success else "solved"
    stages = f"{sum(map(bool, game.now.state.stages))} of {game.world.num_stages} stages"
    taken = len(game.history) - 1
    return f"episode {game.episode}: {taken} step{'' if taken == 1 else 's'}, {stages}, {end}"
