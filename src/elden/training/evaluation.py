"""How trained agents do: episodes played with what a training run has kept, and what depended on what in them.

Each episode has a number, and its initial state and all its randomness come from that number and the evaluation's seed
alone. So all agents play the same initial states, another number of episodes changes none of them, and agents of
different training runs can be compared pair by pair.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key, Num, Shaped

from elden.bonuses.beside import Beside
from elden.bonuses.model_based import ModelState
from elden.bonuses.reading import MajorityReader, models_of, reader_of
from elden.factors import Factors, Granularity
from elden.hosts.vector import Hosts
from elden.hosts.world import HostWorld
from elden.pytree import pytree
from elden.storage.folder import RunFolderError
from elden.training.algorithm import Loop
from elden.training.edges import Edges
from elden.training.host_play import HostPlayed, play_on_host
from elden.training.run import TrainingRun
from elden.transitions import Transitions
from elden.worlds.base import Transition, World, WorldState

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with what is done, and how many episodes have been and will be played."""

_APART = 0x6576616C
"""Folded into the seed, so that an evaluation's randomness is never that of a training run with the same seed."""
_MOST_STEPS = 50_000
"""Steps of all agents that are held in memory at a time."""


def evaluation_key(seed: int) -> Key[Array, ""]:
    """The key that all randomness of an evaluation with this seed comes from."""
    return jax.random.fold_in(jax.random.key(seed), _APART)


def episode_keys(seed: int, number: int | Int[Array, ""]) -> Key[Array, "2"]:
    """The keys of an episode: of its initial state, and of all its randomness."""
    return jax.random.split(jax.random.fold_in(evaluation_key(seed), number))


@dataclass(frozen=True)
class EvaluationConfig:
    """How agents are tried."""

    episodes: int = 200
    """Episodes of each agent."""
    greedy: bool = False
    """Whether agents do what they think most likely right, instead of drawing by their probabilities."""
    seed: int = 0
    """Decides the initial states and all randomness."""
    automatic_threshold: bool = False
    """Whether the models' graphs are read at a threshold set from what the last steps of the training changed, instead
    of the training's own."""
    graph_episodes: int = 50
    """Episodes of each agent, the first ones, in which edges are counted: reading models takes longer than playing."""

    def __post_init__(self) -> None:
        for name in ("episodes", "graph_episodes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} given; at least 1 is played")

    @property
    def policy(self) -> str:
        """How actions are chosen, in a word."""
        return "greedy" if self.greedy else "sampled"


@pytree()
@dataclass(frozen=True)
class Played:
    """What agents did in some episodes.

    Attributes:
        first: The states that episodes began with, the same for all agents.
        solvable: Whether the task could be solved from there.
        states: The states after each step.
        steps: The steps.
        counts: Whether the episode was still going on; steps after its end are to be ignored.
    """

    first: WorldState
    solvable: Bool[Array, " episode"]
    states: WorldState
    steps: Transition
    counts: Bool[Array, "time agent episode"]


@partial(jax.jit, static_argnums=(0, 1))
def play(loop: Loop[Any], greedy: bool, policy: Any, key: Key[Array, ""], numbers: Int[Array, " episode"]) -> Played:
    """Play the episodes of these numbers with each agent.

    Args:
        loop: The training's loop, in a world of ours.
        greedy: Whether the most likely action is taken.
        policy: The agents' states, stacked.
        key: The evaluation's key.
        numbers: Numbers of the episodes.
    """
    world = loop.world
    if not isinstance(world, World):
        raise TypeError(f"{world.name} is played on the host, by play_on_host")
    keys = jax.vmap(lambda number: jax.random.split(jax.random.fold_in(key, number)))(numbers)
    first: WorldState = jax.vmap(world.reset)(keys[:, 0])
    agents, episodes = jax.tree.leaves(policy)[0].shape[0], numbers.shape[0]

    def step(carry: _Carry, time: Int[Array, ""]) -> tuple[_Carry, tuple[WorldState, Transition, _Mask]]:
        states, going = carry
        now = jax.vmap(lambda key: jax.random.split(jax.random.fold_in(key, time)))(keys[:, 1])
        obs = jax.vmap(jax.vmap(world.observe))(states)
        elapsed = jax.vmap(jax.vmap(world.elapsed_fraction))(states)
        action = loop.actor.choose(policy, now[:, 0], obs, elapsed, greedy)
        after, taken = jax.vmap(jax.vmap(world.step), in_axes=(None, 0, 0))(now[:, 1], states, action)
        return (after, going & ~taken.done), (after, taken, going)

    begun: WorldState = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (agents, *leaf.shape)), first)
    times = jnp.arange(world.max_steps, dtype=jnp.int32)
    _, (states, steps, counts) = jax.lax.scan(step, (begun, jnp.ones((agents, episodes), jnp.bool_)), times)
    return Played(first, jax.vmap(world.solvable)(first), states, steps, counts)


_Mask: TypeAlias = Bool[Array, "agent episode"]
_Carry: TypeAlias = tuple[WorldState, _Mask]


@partial(jax.jit, static_argnums=0)
def read_graphs(
    reader: MajorityReader,
    states: ModelState,
    obs: Num[Array, "time agent episode width"],
    action: Num[Array, "time agent episode"],
    next_obs: Num[Array, "time agent episode width"],
) -> Bool[Array, "time agent episode dst src"]:
    """The graphs that each agent's own models see in its steps."""

    def one(state: ModelState, *parts: Num[Array, "time episode ..."]) -> Bool[Array, "time episode dst src"]:
        flat = Transitions(*(part.reshape(-1, *part.shape[2:]) for part in parts))
        graphs = reader.graphs(state, flat)
        return graphs.reshape(*parts[1].shape, *graphs.shape[1:])

    return jax.vmap(one, in_axes=(0, 1, 1, 1), out_axes=1)(states, obs, action, next_obs)


@dataclass(frozen=True)
class Outcomes:
    """How episodes went.

    Attributes:
        success: Whether the task was solved.
        solvable: Whether it could be; None where nobody knows.
        stages: Which stages were reached.
        length: Steps until the task was solved, else until the episode was over.
    """

    success: Bool[np.ndarray, "agent episode"]
    solvable: Bool[np.ndarray, "agent episode"] | None
    stages: Bool[np.ndarray, "agent episode stage"]
    length: Int[np.ndarray, "agent episode"]

    @classmethod
    def of(cls, played: Played | HostPlayed) -> "Outcomes":
        """Those of episodes that were played to their ends."""
        counts, success = np.asarray(played.counts), np.asarray(played.steps.success)
        solved = (success & counts).any(0)
        return cls(
            success=solved,
            solvable=None if played.solvable is None else np.broadcast_to(np.asarray(played.solvable), solved.shape),
            stages=(np.asarray(played.steps.stages) & counts[..., None]).any(0),
            length=(counts & ~success).sum(0) + solved,
        )

    def rates(self, stage_names: tuple[str, ...], agent: int | None = None) -> dict[str, object]:
        """Means over the episodes of one agent, or of all of them together; None where there is no such episode."""
        which = slice(None) if agent is None else agent
        success, stages, length = (part[which] for part in (self.success, self.stages, self.length))
        solvable = None if self.solvable is None else self.solvable[which]
        return {
            "episodes": success.size,
            "success_rate": _mean(success),
            "success_rate_solvable": None if solvable is None else _mean(success[solvable]),
            "solvable_rate": None if solvable is None else _mean(solvable),
            "normalized_stage": _mean(stages),
            "stages": {name: _mean(stages[..., i]) for i, name in enumerate(stage_names)},
            "mean_length": _mean(length),
            "mean_length_solved": _mean(length[success]),
        }


@dataclass(frozen=True)
class Example:
    """One episode, to be shown.

    Attributes:
        agent: Whose, counted from 0.
        number: Number of the episode.
        success: Whether the task was solved.
        states: The states, one more than there are steps.
        steps: The steps, up to the end of the episode.
        predicted: The models' graphs between entities; None without models.
    """

    agent: int
    number: int
    success: bool
    states: WorldState
    steps: Transition
    predicted: Bool[np.ndarray, "time dst src"] | None


@dataclass(frozen=True)
class Models:
    """What the agents' models were read with.

    Attributes:
        detector: Name of the detector.
        members: Models in the ensemble of each agent.
        thresholds: Of each agent, from which score on an edge counts.
        automatic: Whether these were set for the evaluation, by the detector's own rule.
        granularity: What destinations and sources of the models' own graphs are.
    """

    detector: str
    members: int
    thresholds: tuple[float, ...]
    automatic: bool
    granularity: tuple[Granularity, Granularity]


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation has found.

    Attributes:
        config: How agents were tried.
        seeds: The agents' seeds.
        stage_names: Names of the stages.
        env_steps: Steps that each agent had been trained for.
        outcomes: How the episodes went.
        entities: Edges between entities.
        finest: The same edges at the models' granularity, or between variables where there are none.
        models: What the models were read with; None where there are none that can be read.
        example: The first episode that was solved; where there is none, the first with most stages. None where episodes
            cannot be shown.
    """

    config: EvaluationConfig
    seeds: tuple[int, ...]
    stage_names: tuple[str, ...]
    env_steps: int
    outcomes: Outcomes
    entities: Edges
    finest: Edges
    models: Models | None
    example: Example | None

    def rates(self, agent: int | None = None) -> dict[str, object]:
        """Means over the episodes of one agent, or of all of them together."""
        return self.outcomes.rates(self.stage_names, agent)

    def to_json(self) -> dict[str, object]:
        """As plain values."""
        return {
            "policy": self.config.policy,
            "seed": self.config.seed,
            "episodes": self.config.episodes,
            "graph_episodes": min(self.config.graph_episodes, self.config.episodes),
            "env_steps": self.env_steps,
            "seeds": [{"seed": seed, **self.rates(agent)} for agent, seed in enumerate(self.seeds)],
            "together": self.rates(),
            "models": self.models,
            "edges": [edge.to_json() for edge in self.entities.rows()],
            "video": None if self.example is None else self._video(self.example),
        }

    def _video(self, example: Example) -> dict[str, object]:
        return {"seed": self.seeds[example.agent], "episode": example.number, "success": example.success}

    def edge_rows(self) -> list[Mapping[str, object]]:
        """All edges of all agents, and of all together, at both granularities, for a table."""
        rows: list[Mapping[str, object]] = []
        for granularity, edges in {"entities": self.entities, "finest": self.finest}.items():
            for agent, seed in [(None, "all"), *enumerate(self.seeds)]:
                rows += [{"granularity": granularity, "seed": seed, **edge.to_json()} for edge in edges.rows(agent)]
        return rows


def evaluate(training: TrainingRun, config: EvaluationConfig, progress: Progress | None = None) -> Evaluation:
    """Play episodes with the newest whole state of a training run, and see what depended on what in them.

    Args:
        training: The training, finished or stopped.
        config: How agents are tried.
        progress: Told of what is done.

    Raises:
        RunFolderError: The training has not kept a state yet.
        EnvironmentFailedError: An environment of somebody else's failed.
    """
    kept = training.kept()
    if kept is None:
        raise RunFolderError(f"{training.folder.path} has kept no state yet; there is nothing to evaluate")
    loop, tell = training.loop, progress or (lambda *_: None)
    found = models_of(loop.bonus, kept.tree.bonus)
    reader = None if found is None else reader_of(found[0], training.config.bonus.detector)
    states = None if found is None else found[1]
    automatic = config.automatic_threshold or isinstance(loop.bonus, Beside)
    if reader is not None and states is not None and automatic:
        states = jax.jit(jax.vmap(reader.automatic))(states)
    key = evaluation_key(config.seed)
    total, agents = config.episodes, training.config.seeds
    size = _at_a_time(training, total)
    parts: list[_Part] = []
    with _player(loop, config.greedy, kept.tree.policy, key, agents * size) as play_some:
        for first in range(0, total, size):
            tell("playing", first, total)
            played, number = play_some(first + np.arange(size, dtype=np.int32)), min(size, total - first)
            counted = min(max(config.graph_episodes - first, 0), number)
            predicted = None
            if reader is not None and states is not None and counted:
                tell("reading graphs", first, min(config.graph_episodes, total))
                names = ("obs", "action", "next_obs")
                steps = (jnp.asarray(getattr(played.steps, name)[:, :, :counted]) for name in names)
                predicted = np.asarray(read_graphs(reader, states, *steps))
            best = parts[-1].example if parts else None
            parts.append(_part(loop.world.factors, reader, played, predicted, first, (number, counted), best))
    tell("playing", total, total)
    return Evaluation(
        config=config,
        seeds=tuple(training.config.all_seeds),
        stage_names=loop.world.stage_names,
        env_steps=kept.number * training.config.loop.steps_per_iteration,
        outcomes=_joined([part.outcomes for part in parts]),
        entities=_sum([part.entities for part in parts if part.entities is not None]),
        finest=_sum([part.finest for part in parts if part.finest is not None]),
        models=None if reader is None or states is None else _models(reader, states, automatic),
        example=parts[-1].example,
    )


def _at_a_time(training: TrainingRun, total: int) -> int:
    """How many episodes of each agent are played together."""
    loop, agents = training.loop, training.config.seeds
    most = max(1, _MOST_STEPS // (agents * loop.world.max_steps))
    if isinstance(loop.world, HostWorld):  # each of them is a process
        most = min(most, loop.config.num_envs)
    return math.ceil(total / math.ceil(total / most))


@contextmanager
def _player(
    loop: Loop[Any], greedy: bool, policy: Any, key: Key[Array, ""], number: int
) -> Iterator[Callable[[Int[np.ndarray, " episode"]], Played | HostPlayed]]:
    """What plays the episodes of some numbers, of which there are `number` of all agents at a time."""
    if isinstance(loop.world, HostWorld):
        with Hosts(loop.world, number, graphs=True) as hosts:
            yield lambda numbers: play_on_host(hosts, loop, greedy, policy, key, numbers)
        return
    yield lambda numbers: play(loop, greedy, policy, key, jnp.asarray(numbers))


@dataclass(frozen=True)
class _Part:
    """What some of the episodes amount to; the example is the best one so far. No edges where none are counted."""

    outcomes: Outcomes
    entities: Edges | None
    finest: Edges | None
    example: Example | None


def _part(
    factors: Factors,
    reader: MajorityReader | None,
    played: Played | HostPlayed,
    predicted: Bool[np.ndarray, "time agent episode dst src"] | None,
    first: int,
    among: tuple[int, int],
    best: Example | None,
) -> _Part:
    """Some of these episodes, whose own numbers begin at `first`.

    Args:
        factors: What states are made of.
        reader: What reads the models; None without models.
        played: The episodes.
        predicted: The edges that models predict, in those in which edges are counted.
        first: Number of the first episode.
        among: How many of them count, and in how many of these edges are counted.
        best: The best example so far.
    """
    number, counted = among
    every = Outcomes.of(played)
    parts = (every.success, every.solvable, every.stages, every.length)
    outcomes = Outcomes(*(None if part is None else part[:, :number] for part in parts))  # type: ignore[arg-type]
    if not counted:
        return _Part(outcomes, None, None, best)
    counts = np.asarray(played.counts)[:, :, :counted]
    graph = played.steps.graph
    truth = None if graph is None else np.asarray(graph)[:, :, :counted]
    own = predicted
    granularity: tuple[Granularity, Granularity] = ("variable", "variable") if reader is None else reader.granularity
    names = factors.source_names(granularity[0])[:-1], factors.source_names(granularity[1])
    coarse = None if own is None else to_entities(factors, own, granularity)
    whole = (factors.entity_names, factors.source_names("entity"))
    fine_truth = None if truth is None else np.asarray(factors.reduce_graph(truth, *granularity))
    coarse_truth = None if truth is None else np.asarray(factors.reduce_graph(truth))
    return _Part(
        outcomes,
        Edges.count(whole, counts, coarse_truth, coarse),
        Edges.count(names, counts, fine_truth, own),
        _better(best, outcomes, played, coarse, (first, counted)) if isinstance(played, Played) else None,
    )


def _better(
    best: Example | None,
    outcomes: Outcomes,
    played: Played,
    predicted: Bool[np.ndarray, "time agent episode dst src"] | None,
    among: tuple[int, int],
) -> Example:
    """The example so far, or a better one among the first of these episodes: number of the first, and how many."""
    first, counted = among
    # By number of the episode, then by agent.
    worth = np.where(outcomes.success, 1000, outcomes.stages.sum(-1) + 1).T[:counted]
    place = np.unravel_index(int(np.argmax(worth)), worth.shape)
    number, agent = int(place[0]), int(place[1])
    if best is not None and _worth(best) >= int(worth[place]):
        return best
    length = int(np.asarray(played.counts)[:, agent, number].sum())

    def cut(leaf: Shaped[Array, "time agent episode ..."]) -> Shaped[Array, "time ..."]:
        return leaf[:length, agent, number]

    begun: WorldState = jax.tree.map(lambda leaf: leaf[None, number], played.first)
    after: WorldState = jax.tree.map(cut, played.states)
    return Example(
        agent=agent,
        number=first + number,
        success=bool(outcomes.success[agent, number]),
        states=jax.tree.map(lambda *parts: jnp.concatenate(parts), begun, after),
        steps=jax.tree.map(cut, played.steps),
        predicted=None if predicted is None else predicted[:length, agent, number],
    )


def _worth(example: Example) -> int:
    """The most for a success, else the number of stages."""
    return 1000 if example.success else int(example.steps.stages[-1].sum()) + 1


def to_entities(
    factors: Factors,
    graph: Bool[np.ndarray, "*batch dst src"],
    granularity: tuple[Granularity, Granularity],
) -> Bool[np.ndarray, "*batch entity source"]:
    """A graph between entities: an edge is there where any of their variables' is."""
    if granularity[0] == "variable":
        graph = np.stack([graph[..., rows, :].any(-2) for rows in factors.entity_slices], -2)
    if granularity[1] == "variable":
        columns = [graph[..., group].any(-1) for group in factors.entity_slices]
        graph = np.stack([*columns, graph[..., -1]], -1)
    return graph


def _models(reader: MajorityReader, states: ModelState, automatic: bool) -> Models:
    thresholds = tuple(map(float, np.asarray(states.memory.threshold)))
    return Models(
        reader.detector.name, reader.models.ensemble_config.members, thresholds, automatic, reader.granularity
    )


def _joined(parts: list[Outcomes]) -> Outcomes:
    def join(name: str) -> np.ndarray:
        return np.concatenate([getattr(part, name) for part in parts], axis=1)

    solvable = None if parts[0].solvable is None else join("solvable")
    return Outcomes(join("success"), solvable, join("stages"), join("length"))


def _sum(parts: list[Edges]) -> Edges:
    total, *others = parts
    for part in others:
        total = total + part
    return total


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if values.size else None
