"""`elden video`: watch the scripted policy of a world; a video and a summary are left behind."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import jax
import numpy as np
import tyro
from jaxtyping import Array, Key, UInt8
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from elden.cli import steps
from elden.cli.console import make_console
from elden.cli.episodes import Episode, frames
from elden.cli.errors import UsageError, check_range, check_seed
from elden.cli.summary import Outcome, Summary, VideoSummary, outcome, summary_table, write_summary
from elden.cli.worlds import shown_as, world_choice
from elden.provenance import provenance
from elden.viewing.pictures import write_gif
from elden.worlds.base import World
from elden.worlds.registry import make

_VIDEO = "episode.gif"
_DEFAULT = make("carwash", solvable_only=True)


def _solvable_world_choice() -> object:
    return world_choice(solvable_only=True)


@dataclass(frozen=True)
class Video:
    """Play scripted episodes of a world, and leave a video and a summary of them."""

    world: Annotated[World, tyro.conf.arg(name="", constructor_factory=_solvable_world_choice)] = _DEFAULT
    """Which world. Only solvable initial states are drawn here, unless --no-solvable-only is given."""
    episodes: int = 5
    """How many episodes are played."""
    epsilon: float = 0.1
    """How often the scripted action is replaced by a random one."""
    seed: int = 0
    """Decides the initial states and all randomness."""
    out: Annotated[Path | None, shown_as("PATH", "runs/video/WORLD, or runs/video/WORLD-physics")] = None
    """Folder for the video and the summary; earlier ones there are written over."""
    tile: int = 40
    """Pixels of a cell in the video."""
    fps: float = 4.0
    """Frames a second of the video."""
    physics: bool = False
    """Play kitchen with physics (robosuite) instead of its twin, and record it beside its local graphs."""

    def __post_init__(self) -> None:
        """Check the options."""
        check_seed(self.seed)
        check_range("episodes", self.episodes, 1, 1_000_000)
        check_range("epsilon", self.epsilon, 0, 1)
        check_range("tile", self.tile, 16, 200)
        check_range("fps", self.fps, 0.1, 50)

    @property
    def folder(self) -> Path:
        """Where the video goes."""
        if self.out is not None:
            return self.out
        return Path("runs/video") / f"{self.world.name}{'-physics' if self.physics else ''}"

    def run(self, command_line: str) -> None:
        """Play, record, sum up."""
        console = make_console()
        out = self.folder
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"--out {out} cannot be made a folder: {error.strerror}") from None
        if not os.access(out, os.W_OK):
            raise UsageError(f"--out {out} cannot be written to")
        outcomes, recorded, number = self._play(console)
        shown = recorded.until_success()
        write_gif(out / _VIDEO, self._frames(shown), self.fps)
        summary = Summary(
            origin=provenance(command_line),
            world=self.world,
            seed=self.seed,
            epsilon=self.epsilon,
            outcomes=tuple(outcomes),
            video=VideoSummary(_VIDEO, number, len(shown.steps)),
        )
        files = write_summary(summary, out)
        console.print(summary_table(summary))
        console.print("\nLook at")
        what = "solved" if outcomes[number - 1].success else "not solved"
        console.print(f"  {out / _VIDEO}   (episode {number}, {what})")
        for file in files:
            console.print(f"  {file}")

    def _frames(self, shown: Episode) -> list[UInt8[np.ndarray, "height width 3"]]:
        if self.physics:
            from elden.cli.physics import video_frames

            return video_frames(self.world, shown, self.tile, self.fps)
        return frames(self.world, shown, self.tile, self.fps)

    def _player(self) -> Callable[[Key[Array, ""], Callable[[], None]], Episode]:
        """What plays an episode."""
        if self.physics:
            from elden.cli.physics import kitchen_with_physics, play_scripted

            env = kitchen_with_physics(self.world, "rgb_array")
            return lambda key, advance: play_scripted(env, key, self.epsilon, advance)
        return lambda key, advance: play_episode(self.world, key, self.epsilon, advance)

    def _play(self, console: Console) -> tuple[list[Outcome], Episode, int]:
        """How all episodes went, and the one to record with its number: the first that was solved, else the first."""
        outcomes: list[Outcome] = []
        videos: dict[int, Episode] = {}
        play = self._player()
        with _progress(console, self.episodes, self.world.max_steps) as (advance, finish):
            for number in range(1, self.episodes + 1):
                key = jax.random.fold_in(jax.random.key(self.seed), number)
                episode = play(key, advance)
                outcomes.append(outcome(self.world, episode))
                if number == 1 or (outcomes[-1].success and not outcomes[0].success and len(videos) == 1):
                    videos[number] = episode
                finish(number, outcomes[-1])
        number = max(videos)
        return outcomes, videos[number], number


def play_episode(world: World, key: Key[Array, ""], epsilon: float, advance: Callable[[], None]) -> Episode:
    """One scripted episode, from reset to its end; `advance` is called at every step."""
    reset_key, key = jax.random.split(key)
    states = [steps.reset(world, reset_key)]
    taken: list[steps.Step] = []
    while not taken or not taken[-1].done:
        state, transition = steps.scripted_step(world, jax.random.fold_in(key, len(taken)), states[-1], epsilon)
        states.append(state)
        taken.append(steps.record(world, state, transition))
        advance()
    return Episode(tuple(states), tuple(taken))


@contextmanager
def _progress(
    console: Console, episodes: int, max_steps: int
) -> Iterator[tuple[Callable[[], None], Callable[[int, Outcome], None]]]:
    """A bar over steps on a terminal, a line per episode elsewhere."""
    words = TextColumn("{task.description}"), TextColumn("steps")
    columns = (words[0], BarColumn(), MofNCompleteColumn(), words[1], TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("compiling", total=episodes * max_steps)

        def advance() -> None:
            number = int(bar.tasks[task].completed) // max_steps + 1
            bar.update(task, advance=1, description=f"episode {number}/{episodes}")

        def finish(number: int, one: Outcome) -> None:
            bar.update(task, completed=number * max_steps)
            if not console.is_terminal:
                solved = f"solved at step {one.first_success_step}" if one.success else "not solved"
                console.print(f"episode {number}/{episodes}: {one.length} steps, {solved}")

        yield advance, finish
