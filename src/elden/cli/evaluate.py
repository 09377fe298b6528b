"""`elden evaluate`: how the agents of a training do, and what they and their models see depend on what."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import tyro
from jaxtyping import Float
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from elden.cli.console import make_console
from elden.cli.detect import refusals
from elden.cli.episodes import Episode, graph_frames
from elden.cli.errors import BROKEN, UsageError, check_range, check_seed
from elden.cli.opening import OpeningOptions
from elden.cli.running import study_progress
from elden.cli.steps import record
from elden.graphs.intervention import Intervention
from elden.hosts.worker import EnvironmentFailedError
from elden.provenance import provenance
from elden.storage.files import write_csv, write_json
from elden.training.edges import Between, Edge
from elden.training.evaluation import Evaluation, EvaluationConfig, Example, Models, Outcomes, evaluate
from elden.training.run import TrainingRun, card_of_world
from elden.viewing.pictures import write_gif
from elden.worlds.base import World, WorldState

RESULTS = "evaluation.json"
"""Name of the file with the results."""

_MOST_SEEDS = 8
_MOST_EDGES = 20
_TILE, _FPS = 40, 2.0


@dataclass(frozen=True)
class Evaluate(OpeningOptions):
    """Play episodes with the agents of a training run, finished or stopped; leaves tables, a video and learning curves.

    All agents play the same initial states, with the newest state that the training has kept.
    """

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN", help_behavior_hint="(required)")] = (
        Path()
    )
    """The run folder."""
    episodes: int = 200
    """Episodes of each agent."""
    greedy: bool = False
    """Let agents take their most likely action. Otherwise they draw by their probabilities, as they do in training."""
    seed: int = 0
    """Decides the initial states and all randomness; apart from what a training run with this seed has seen."""
    automatic_threshold: bool = False
    """Read the models' graphs at a threshold set from what the last steps of the training changed, not at the
    training's own."""
    graph_episodes: int = 50
    """Episodes of each agent, the first ones, in which edges are counted: reading models takes longer than playing."""
    physics: bool = False
    """Play in the kitchen with physics (robosuite) instead of its twin, without further training."""
    agents: int = 0
    """With --physics, only the first so many agents; 0 takes all."""

    def __post_init__(self) -> None:
        """Check the values."""
        super().__post_init__()
        check_range("episodes", self.episodes, 1, 1_000_000)
        check_range("graph-episodes", self.graph_episodes, 1, 1_000_000)
        check_range("agents", self.agents, 0, 1_000_000)
        if self.agents and not self.physics:
            raise UsageError(f"--agents {self.agents} given, but it is read with --physics alone")
        if self.physics:
            for option, given in (
                ("automatic-threshold", self.automatic_threshold),
                ("graph-episodes", self.graph_episodes != Evaluate.graph_episodes),
            ):
                if given:
                    raise UsageError(f"--{option} given, but --physics reads no graphs of models")
        check_seed(self.seed)

    def run(self, command_line: str) -> None:
        """Play, and say what came of it."""
        if self.folder == Path():
            raise UsageError(
                "elden evaluate needs the folder of a run, such as runs/train/thawing-influence-count-plus"
            )
        with refusals(self.folder, ""), self.allowing(command_line):
            training = TrainingRun.open(self.folder, trust=self.trust, step_limit_s=self.step_limit_s)
        config = EvaluationConfig(self.episodes, self.greedy, self.seed, self.automatic_threshold, self.graph_episodes)
        if self.physics:
            from elden.cli import physics

            if self.agents > training.config.seeds:
                raise UsageError(f"--agents {self.agents} given, but the training has {training.config.seeds}")
            physics.report(make_console(), training, config, self.agents or training.config.seeds, command_line)
            return
        try:
            report(make_console(), training, config, command_line)
        except EnvironmentFailedError as error:
            make_console().print(f"stopped: {error}", markup=False)
            raise SystemExit(BROKEN) from None


def report(console: Console, training: TrainingRun, config: EvaluationConfig, command_line: str) -> Evaluation:
    """Evaluate, write everything into the run folder, print the tables, and name the files."""
    folder = training.folder
    with refusals(folder.path, ""):
        training.metrics()  # before anything takes time
        with study_progress(console) as tell:
            found = evaluate(training, config, tell)
        card = {
            **provenance(command_line),
            "world": card_of_world(training.world),
            "bonus": training.config.bonus_name,
            "finished": training.finished,
            **found.to_json(),
            "between_entities": between_entities(found),
            "warning": (warning := density_warning(found, training)),
        }
        write_json(folder.path / RESULTS, card)
        write_csv(folder.tables / "edges.csv", found.edge_rows())
        if found.example is not None and isinstance(training.world, World):
            _write_video(folder.media / "episode.gif", training.world, found, found.example)
        drawn = _write_curves(folder.media / "curves.png", training)
    title = (
        f"{found.config.policy} policy after {found.env_steps:,} steps, {found.config.episodes} episodes of each agent"
    )
    console.print(rate_table(found.outcomes, found.seeds, found.stage_names, title))
    if found.entities.true is None and found.models is None:
        console.print("Neither the environment nor the bonus knows local graphs, so there are no edges to tell of.\n")
    else:
        console.print(_edge_table(found))
    if found.models is not None:
        console.print(_between_table(found))
    if warning is not None:
        console.print(f"\n{warning}")
    console.print("\nLook at")
    if drawn:
        console.print(f"  {folder.media / 'curves.png'}   (learning curves)")
    if (shown := found.example) is not None:
        what = "solved" if shown.success else "not solved"
        whose = f"episode {shown.number} of seed {found.seeds[shown.agent]}, {what}"
        console.print(f"  {folder.media / 'episode.gif'}   ({whose}, with its local graphs)")
    console.print(f"  {folder.tables / 'edges.csv'}   (every edge of every agent)")
    console.print(f"  {folder.path / RESULTS}")
    return found


def _episode(world: World, example: Example) -> Episode:
    """The example, on the host."""

    def at(place: int) -> WorldState:
        state: WorldState = jax.tree.map(lambda leaf: leaf[place], example.states)
        return state

    states = tuple(map(at, range(len(example.steps.action) + 1)))
    steps = (jax.tree.map(lambda leaf, k=k: leaf[k], example.steps) for k in range(len(states) - 1))
    return Episode(states, tuple(record(world, after, step) for after, step in zip(states[1:], steps, strict=True)))


def _write_video(file: Path, world: World, found: Evaluation, example: Example) -> None:
    episode = _episode(world, example).until_success()
    members = 0 if found.models is None else found.models.members
    note = "" if members == 0 else "   (its one model)" if members == 1 else f"   (most of {members} models)"
    write_gif(file, graph_frames(world, episode, example.predicted, _TILE, _FPS, note), _FPS)


def _write_curves(file: Path, training: TrainingRun) -> bool:
    """Draw the learning curves, where there is a line to draw."""
    from elden.viewing.curves import Curve, learning_curves
    from elden.viewing.style import save

    lines = training.metrics()
    if not lines:
        return False

    def values(name: str) -> Float[np.ndarray, "time agent"]:
        missing = [math.nan] * training.config.seeds
        rows = [line.get(name) or missing for line in lines]
        return np.array([[math.nan if value is None else value for value in row] for row in rows], float)

    solvable = isinstance(training.world, World)  # of environments of others nobody knows
    success = "episode/success_solvable" if solvable else "episode/success"
    curves = [
        Curve(
            "Success over solvable initial states" if solvable else "Success",
            "share of episodes",
            values(success),
            share=True,
        ),
        Curve("Stages reached", "mean share of stages", values("episode/normalized_stage"), share=True),
        Curve(f"Bonus ({training.config.bonus_name})", "mean over steps, unscaled", values("bonus/mean")),
        Curve("Loss of the dynamics models", "negative log-likelihood, nats", values("dynamics/nll")),
    ]
    names = [f"seed {seed}" for seed in training.config.all_seeds]
    title = f"{training.world.name}, bonus {training.config.bonus_name}: how agents learn"
    save(learning_curves([line["step"] for line in lines], curves, title, names), file)
    return True


def rate_table(outcomes: Outcomes, seeds: Sequence[int], stage_names: tuple[str, ...], title: str) -> Table:
    """Each agent's rates in a column, and those of all together."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    table.add_column("")
    shown = seeds[:_MOST_SEEDS]
    columns: list[Mapping[str, Any]] = [outcomes.rates(stage_names, agent) for agent in range(len(shown))]
    for seed in shown:
        table.add_column(f"seed {seed}", justify="right")
    if len(seeds) > 1:
        table.add_column(f"all {len(seeds)}", justify="right")
        columns.append(outcomes.rates(stage_names))
    rows = {
        "success": "success_rate",
        "success over solvable initial states": "success_rate_solvable",
        "initial states that are solvable": "solvable_rate",
        "stages reached": "normalized_stage",
    }
    for name, key in rows.items():
        table.add_row(name, *(_share(column[key]) for column in columns))
    for stage in stage_names:
        table.add_row(f"  {stage}", *(_share(column["stages"][stage]) for column in columns))
    for name, key in {"steps until solved or over": "mean_length", "steps until solved": "mean_length_solved"}.items():
        table.add_row(name, *("–" if column[key] is None else f"{column[key]:.1f}" for column in columns))
    return table


def _edge_table(found: Evaluation) -> Table:
    """The edges between entities that were true or predicted, most frequent first; self-edges as one."""
    rows = found.entities.rows()
    others = sorted(
        (row for row in rows if not row.is_self_edge), key=lambda row: (-(row.true or 0), -(row.predicted or 0))
    )
    fired = [row for row in others if row.true or row.predicted]
    table = Table(title="edges of the local graphs, all agents together", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("effect <- cause")
    true = ("in steps", "in episodes") if found.entities.true is not None else ()
    seen = ("predicted",) if found.models is not None else ()
    both = ("recall", "precision", "agreement") if true and seen else ()
    for name in (*true, *seen, *both):
        table.add_column(name, justify="right")
    for row in fired[:_MOST_EDGES]:
        table.add_row(f"{row.dst} <- {row.src}", *_edge_cells(row))
    table.add_section()
    own = reduce(add, (row for row in rows if row.is_self_edge))
    table.add_row("self-edges", *_edge_cells(own))
    table.caption, table.caption_justify = _caption(found, others, len(fired)), "left"
    return table


_BETWEEN = {
    "true edges": "true_rate",
    "predicted edges": "predicted_rate",
    "precision": "precision",
    "recall": "recall",
    "F1": "f1",
}


def _medians(parts: Sequence[Between]) -> dict[str, float | None]:
    """Of each measure the median over agents, those left out of which it is not known."""

    def median(name: str) -> float | None:
        known = [value for part in parts if (value := getattr(part, name)) is not None]
        return statistics.median(known) if known else None

    return {name: median(name) for name in _BETWEEN.values()}


def between_entities(found: Evaluation) -> dict[str, object] | None:
    """How well models predict the edges between different entities: each agent's, the median, and all as one."""
    if found.models is None:
        return None
    parts = [found.entities.between(agent) for agent in range(len(found.seeds))]
    return {
        "seeds": [{"seed": seed, **part.to_json()} for seed, part in zip(found.seeds, parts, strict=True)],
        "median": _medians(parts),
        "together": found.entities.between().to_json(),
    }


def _between_table(found: Evaluation) -> Table:
    """Each agent's measures over all edges between different entities in a column, and their medians."""
    title = "all edges between different entities, over all steps"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    table.add_column("")
    parts = [found.entities.between(agent) for agent in range(len(found.seeds))]
    for seed in found.seeds[:_MOST_SEEDS]:
        table.add_column(f"seed {seed}", justify="right")
    if len(parts) > 1:
        table.add_column("median", justify="right")
    medians = _medians(parts)
    for name, key in _BETWEEN.items():
        if found.entities.true is None and key != "predicted_rate":
            continue
        values = [getattr(part, key) for part in parts[:_MOST_SEEDS]] + [medians[key]] * (len(parts) > 1)
        table.add_row(name, *map(_share, values))
    return table


def density_warning(found: Evaluation, training: TrainingRun) -> str | None:
    """A line for models that predict nearly all or nearly no edges between different entities, and what to try then."""
    if found.models is None:
        return None
    parts = {seed: found.entities.between(agent) for agent, seed in enumerate(found.seeds)}
    words = []
    for density in ("nearly all", "nearly none"):
        alike = {seed: part.predicted_rate or 0.0 for seed, part in parts.items() if part.density == density}
        if not alike:
            continue
        whose = "all agents" if len(alike) == len(parts) else f"seed{'s' * (len(alike) > 1)} {_listed(alike)}"
        low, high = (f"{share:.2%}" for share in (min(alike.values()), max(alike.values())))
        words.append(
            f"The models of {whose} predict {density} of the edges between different entities"
            f" ({low if low == high else f'{low} to {high}'}), so their graphs say little."
        )
    return f"{' '.join(words)} {_advice(found.models, training)}" if words else None


def _listed(seeds: Iterable[int]) -> str:
    """Seeds in words, the first ones where there are many."""
    words = list(map(str, seeds))
    return ", ".join(words) if len(words) <= _MOST_SEEDS else f"{', '.join(words[:_MOST_SEEDS])} and others"


def _advice(models: Models, training: TrainingRun) -> str:
    """What has not been tried yet against graphs that are full or empty."""
    tries = []
    if not models.automatic and not training.config.bonus.automatic_threshold:
        tries.append("elden evaluate with --automatic-threshold")
    if models.detector != Intervention.name:
        tries.append(f"a training run with --bonus.detector {Intervention.name}")
    return f"Try {' or '.join(tries or ['a longer training of the models'])}."


def _caption(found: Evaluation, others: Sequence[Edge], fired: int) -> str:
    """What the table leaves out, and how models were read."""
    more = f" {fired - _MOST_EDGES} more are in edges.csv." if fired > _MOST_EDGES else ""
    if found.config.graph_episodes < found.config.episodes:
        more += f" Edges are counted in the first {found.config.graph_episodes} episodes of each agent."
    never = sum(not edge.true for edge in others)
    words = f"{never} of {len(others)} edges between different nodes were never there.{more}"
    if found.entities.true is None:
        words = f"The environment tells no true local graphs, so only what models see is counted.{more}"
    if found.models is None:
        return f"{words} The bonus has no models whose graphs can be read."
    low, high = min(found.models.thresholds), max(found.models.thresholds)
    at = f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"
    rule = "automatic threshold" if found.models.automatic else "threshold"
    models, many = found.models, found.models.members > 1
    whose = f"Models see an edge where more than half of {models.members} do" if many else "Read off one model an agent"
    return f"{words} {whose} ({models.detector}, {rule} {at})."


def _edge_cells(edge: Edge) -> list[str]:
    cells = [edge.true_rate, edge.episode_rate] if edge.true is not None else []
    cells += [edge.predicted_rate] if edge.predicted is not None else []
    cells += [edge.recall, edge.precision, edge.agreement] if edge.both is not None else []
    return list(map(_share, cells))


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"
