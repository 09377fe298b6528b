"""What scripted episodes came to: per episode and in total, as a table, as text and as JSON."""

import io
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from elden.cli.console import PIPED_WIDTH
from elden.cli.edges import off_diagonal
from elden.cli.episodes import Episode
from elden.cli.worlds import describe_options
from elden.storage.files import write_text
from elden.worlds.base import World
from elden.worlds.labels import event_type


@dataclass(frozen=True)
class Outcome:
    """How one episode went.

    Attributes:
        success: Whether the task was solved.
        first_success_step: The step that solved it.
        length: Steps taken.
        stages: Names of the stages reached.
        total_reward: Sum of the rewards.
        edges: Off-diagonal edges that fired, summed over steps.
        event_types: In how many steps at least one event of a type happened, by type.
    """

    success: bool
    first_success_step: int | None
    length: int
    stages: tuple[str, ...]
    total_reward: float
    edges: int
    event_types: dict[str, int]


def outcome(world: World, episode: Episode) -> Outcome:
    """How the episode went."""
    last = episode.steps[-1]
    types = Counter(kind for step in episode.steps for kind in {event_type(event) for event in step.events})
    return Outcome(
        success=last.success,
        first_success_step=episode.first_success,
        length=len(episode.steps),
        stages=tuple(name for name, reached in zip(world.stage_names, last.stages, strict=True) if reached),
        total_reward=sum(step.reward for step in episode.steps),
        edges=sum(int(off_diagonal(step.graph).sum()) for step in episode.steps),
        event_types=dict(types),
    )


@dataclass(frozen=True)
class VideoSummary:
    """Which episode was recorded (from 1), and how many steps of it."""

    file: str
    episode: int
    steps: int


@dataclass(frozen=True)
class Summary:
    """Scripted episodes and all that is needed to repeat them."""

    origin: Mapping[str, str | int]
    world: World
    seed: int
    epsilon: float
    outcomes: tuple[Outcome, ...]
    video: VideoSummary

    @property
    def steps(self) -> int:
        """Steps over all episodes."""
        return sum(one.length for one in self.outcomes)

    @property
    def success_rate(self) -> float:
        """Share of episodes that were solved."""
        return sum(one.success for one in self.outcomes) / len(self.outcomes)

    @property
    def positive_rate(self) -> float:
        """Share of off-diagonal entries of the true graph that were on, over all steps."""
        return sum(one.edges for one in self.outcomes) / (self.steps * self.world.factors.num_variables**2)

    @property
    def event_types(self) -> dict[str, int]:
        """In how many steps an event of each type happened, most frequent first; those that never did are listed."""
        counts = Counter({event_type(event): 0 for event in self.world.book.events})
        for one in self.outcomes:
            counts.update(one.event_types)
        return dict(counts.most_common())

    def to_json(self) -> dict[str, object]:
        """The summary as plain values."""
        return {
            **self.origin,
            "world": {"name": self.world.name, **asdict(self.world)},
            "seed": self.seed,
            "epsilon": self.epsilon,
            "video": asdict(self.video),
            "episodes": [_episode_json(one) for one in self.outcomes],
            "totals": {
                "episodes": len(self.outcomes),
                "success_rate": self.success_rate,
                "steps": self.steps,
                "event_types": self.event_types,
                "positive_rate": self.positive_rate,
            },
        }


def _episode_json(one: Outcome) -> dict[str, object]:
    return {
        "success": one.success,
        "first_success_step": one.first_success_step,
        "length": one.length,
        "stages": list(one.stages),
        "return": one.total_reward,
    }


def summary_table(summary: Summary) -> Group:
    """The summary for people."""
    return Group(_origin_table(summary), "", _episode_table(summary), _total_table(summary), "", _event_table(summary))


def write_summary(summary: Summary, folder: Path) -> list[Path]:
    """Write summary.txt and summary.json, and say where they are."""
    text, data = folder / "summary.txt", folder / "summary.json"
    words = io.StringIO()
    plain = Console(file=words, width=PIPED_WIDTH, color_system=None, markup=False, emoji=False, highlight=False)
    plain.print(summary_table(summary))
    write_text(text, words.getvalue())
    write_text(data, json.dumps(summary.to_json(), indent=2) + "\n")
    return [text, data]


def _episode_table(summary: Summary) -> Table:
    world = summary.world
    options = describe_options(world)
    made = Table(title=f"{world.name} {options}".strip(), title_justify="left")
    for head in ("episode", "solved", "at step", "length", "return", "stages"):
        made.add_column(head, justify="left" if head in ("solved", "stages") else "right")
    for number, one in enumerate(summary.outcomes, 1):
        solved = Text("yes", "green") if one.success else Text("no", "red")
        stages = f"{len(one.stages)}/{world.num_stages}"
        missing = [name for name in world.stage_names if name not in one.stages]
        made.add_row(
            str(number),
            solved,
            "-" if one.first_success_step is None else str(one.first_success_step),
            str(one.length),
            f"{one.total_reward:g}",
            f"{stages}, without {', '.join(missing)}" if missing else stages,
        )
    return made


def _total_table(summary: Summary) -> Table:
    made = Table.grid(padding=(0, 2, 0, 0))
    solved = sum(one.success for one in summary.outcomes)
    made.add_row("success rate", f"{summary.success_rate:.0%} ({solved} of {len(summary.outcomes)} episodes)")
    made.add_row("steps", str(summary.steps))
    made.add_row("positive rate", f"{summary.positive_rate:.2%} of the off-diagonal edges were on in a step")
    return made


def _event_table(summary: Summary) -> Table:
    made = Table("event", "in steps", "share", title="what happened, by type of event", title_justify="left")
    for kind, count in summary.event_types.items():
        made.add_row(kind, str(count), f"{count / summary.steps:.0%}")
    return made


def _origin_table(summary: Summary) -> Table:
    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_row("command", str(summary.origin["command"]))
    made.add_row("date", str(summary.origin["date"]))
    made.add_row("versions", ", ".join(f"{name} {summary.origin[name]}" for name in ("elden", "jax", "python")))
    made.add_row("device", str(summary.origin["device"]))
    made.add_row("seed", f"{summary.seed}, epsilon {summary.epsilon:g}")
    return made
