"""How trained agents do: episodes played with what a training has kept, and what depended on what in them.

Each episode has a number, and its layout and all its chances come from that number and the evaluation's seed alone. So
all agents play the same layouts, another number of episodes changes none of them, and agents of different trainings can
be compared pair by pair.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, Num, Shaped

from elden.agents.ppo import ActorCritic
from elden.bonuses.model_based import ModelState
from elden.bonuses.reading import MajorityReader, models_of, reader_of
from elden.data.folder import RunFolderError
from elden.dynamics.training import Transitions
from elden.factors import Factors, Granularity
from elden.pytree import pytree
from elden.training.loop import Loop
from elden.training.run import Training
from elden.worlds.base import Transition, WorldState

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with what is done, and how many episodes have been and will be played."""

_APART = 0x6576616C
"""Folded into the seed, so that an evaluation's chances are never those of a training with the same seed."""
_MOST_STEPS = 50_000
"""Steps of all agents that are held in memory at a time."""


@dataclass(frozen=True)
class EvaluationConfig:
    """How agents are tried."""

    episodes: int = 200
    """Episodes of each agent."""
    greedy: bool = False
    """Whether agents do what they think most likely right, instead of drawing by their probabilities."""
    seed: int = 0
    """Decides the layouts and all chance."""
    automatic_threshold: bool = False
    """Whether the models' graphs are read at a threshold set from what the last steps of the training changed, instead
    of the training's own."""

    def __post_init__(self) -> None:
        if self.episodes < 1:
            raise ValueError(f"episodes={self.episodes} given; at least 1 is played")

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
def play(
    loop: Loop[Any], greedy: bool, networks: ActorCritic, key: Key[Array, ""], numbers: Int[Array, " episode"]
) -> Played:
    """Play the episodes of these numbers with each agent.

    Args:
        loop: The training's loop.
        greedy: Whether the most likely action is taken.
        networks: The agents, stacked.
        key: The evaluation's key.
        numbers: Numbers of the episodes.
    """
    world, actions = loop.world, loop.agent.actions
    keys = jax.vmap(lambda number: jax.random.split(jax.random.fold_in(key, number)))(numbers)
    first: WorldState = jax.vmap(world.reset)(keys[:, 0])
    agents, episodes = networks.free.shape[0], numbers.shape[0]

    def act(
        network: ActorCritic, inputs: Float[Array, "episode feature"], keys: Key[Array, " episode"]
    ) -> Int[Array, " episode"]:
        said = network.numbers(inputs)
        return actions.mode(said) if greedy else jax.vmap(actions.sample)(keys, said)

    def step(carry: _Carry, time: Int[Array, ""]) -> tuple[_Carry, tuple[WorldState, Transition, _Mask]]:
        states, going = carry
        now = jax.vmap(lambda key: jax.random.split(jax.random.fold_in(key, time)))(keys[:, 1])
        obs = jax.vmap(jax.vmap(world.observe))(states)
        inputs = loop.inputs(obs, jax.vmap(jax.vmap(world.elapsed_fraction))(states))
        action = jax.vmap(act, in_axes=(0, 0, None))(networks, inputs, now[:, 0])
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
        solvable: Whether it could be.
        stages: Which stages were reached.
        length: Steps until the task was solved, else until the episode was over.
    """

    success: Bool[np.ndarray, "agent episode"]
    solvable: Bool[np.ndarray, "agent episode"]
    stages: Bool[np.ndarray, "agent episode stage"]
    length: Int[np.ndarray, "agent episode"]

    @classmethod
    def of(cls, played: Played) -> "Outcomes":
        """Those of episodes that were played to their ends."""
        counts, success = np.asarray(played.counts), np.asarray(played.steps.success)
        solved = (success & counts).any(0)
        return cls(
            success=solved,
            solvable=np.broadcast_to(np.asarray(played.solvable), solved.shape),
            stages=(np.asarray(played.steps.stages) & counts[..., None]).any(0),
            length=(counts & ~success).sum(0) + solved,
        )

    def rates(self, stage_names: tuple[str, ...], agent: int | None = None) -> dict[str, object]:
        """Means over the episodes of one agent, or of all of them together; None where there is no such episode."""
        which = slice(None) if agent is None else agent
        success, solvable, stages, length = (
            part[which] for part in (self.success, self.solvable, self.stages, self.length)
        )
        return {
            "episodes": success.size,
            "success_rate": _mean(success),
            "success_rate_solvable": _mean(success[solvable]),
            "solvable_rate": _mean(solvable),
            "normalized_stage": _mean(stages),
            "stages": {name: _mean(stages[..., i]) for i, name in enumerate(stage_names)},
            "mean_length": _mean(length),
            "mean_length_solved": _mean(length[success]),
        }


@dataclass(frozen=True)
class Edges:
    """How often each edge was there in the steps of each agent.

    Attributes:
        dst_names: Names of the destinations.
        src_names: Names of the sources, the action last.
        steps: Steps of each agent.
        episodes: Episodes of each agent.
        true: Steps in which the edge was in the world's true local graph.
        true_episodes: Episodes with such a step.
        called: Steps in which most members of the agent's own ensemble see the edge; None without an ensemble.
        both: Steps in which both hold.
    """

    dst_names: tuple[str, ...]
    src_names: tuple[str, ...]
    steps: Int[np.ndarray, " agent"]
    episodes: int
    true: Int[np.ndarray, "agent dst src"]
    true_episodes: Int[np.ndarray, "agent dst src"]
    called: Int[np.ndarray, "agent dst src"] | None
    both: Int[np.ndarray, "agent dst src"] | None

    @classmethod
    def count(
        cls,
        names: tuple[tuple[str, ...], tuple[str, ...]],
        counts: Bool[np.ndarray, "time agent episode"],
        truth: Bool[np.ndarray, "time agent episode dst src"],
        called: Bool[np.ndarray, "time agent episode dst src"] | None,
    ) -> "Edges":
        """Those of some episodes."""
        mask = counts[..., None, None]
        true = truth & mask
        seen = None if called is None else called & mask
        return cls(
            *names,
            steps=counts.sum((0, 2)),
            episodes=counts.shape[2],
            true=true.sum((0, 2)),
            true_episodes=true.any(0).sum(1),
            called=None if seen is None else seen.sum((0, 2)),
            both=None if seen is None else (seen & true).sum((0, 2)),
        )

    def __add__(self, other: "Edges") -> "Edges":
        """The same edges in more episodes."""

        def plus(mine: _Counts | None, theirs: _Counts | None) -> _Counts | None:
            return None if mine is None or theirs is None else mine + theirs

        return Edges(
            self.dst_names,
            self.src_names,
            self.steps + other.steps,
            self.episodes + other.episodes,
            self.true + other.true,
            self.true_episodes + other.true_episodes,
            plus(self.called, other.called),
            plus(self.both, other.both),
        )

    def rows(self, agent: int | None = None) -> list["Edge"]:
        """Every edge, of one agent or of all of them together."""

        def of(counts: _Counts) -> Int[np.ndarray, "dst src"]:
            return np.asarray(counts.sum(0) if agent is None else counts[agent])

        agents = len(self.steps) if agent is None else 1
        steps = int(self.steps.sum() if agent is None else self.steps[agent])
        true, true_episodes = of(self.true), of(self.true_episodes)
        called, both = (None if part is None else of(part) for part in (self.called, self.both))
        return [
            Edge(
                dst,
                src,
                steps,
                agents * self.episodes,
                int(true[i, j]),
                int(true_episodes[i, j]),
                None if called is None else int(called[i, j]),
                None if both is None else int(both[i, j]),
            )
            for i, dst in enumerate(self.dst_names)
            for j, src in enumerate(self.src_names)
        ]


_Counts: TypeAlias = Int[np.ndarray, "agent dst src"]


@dataclass(frozen=True)
class Edge:
    """How often one edge was there: counts as in `Edges`, and what follows from them."""

    dst: str
    src: str
    steps: int
    episodes: int
    true: int
    true_episodes: int
    called: int | None
    both: int | None

    def __add__(self, other: "Edge") -> "Edge":
        """Both as one, under the name of this one."""

        def plus(mine: int | None, theirs: int | None) -> int | None:
            return None if mine is None or theirs is None else mine + theirs

        return Edge(
            self.dst,
            self.src,
            self.steps + other.steps,
            self.episodes + other.episodes,
            self.true + other.true,
            self.true_episodes + other.true_episodes,
            plus(self.called, other.called),
            plus(self.both, other.both),
        )

    @property
    def own(self) -> bool:
        """Whether it comes from the destination itself, or from a part of it, or from what it is a part of."""
        dst, src = self.dst.split("."), self.src.split(".")
        return all(one == other for one, other in zip(dst, src, strict=False))

    @property
    def true_rate(self) -> float:
        """Share of steps in which it was true."""
        return self.true / self.steps

    @property
    def episode_rate(self) -> float:
        """Share of episodes in which it was true at least once."""
        return self.true_episodes / self.episodes

    @property
    def called_rate(self) -> float | None:
        """Share of steps in which the models see it."""
        return None if self.called is None else self.called / self.steps

    @property
    def recall(self) -> float | None:
        """Share of the steps with it in which the models see it."""
        return None if self.both is None or not self.true else self.both / self.true

    @property
    def precision(self) -> float | None:
        """Share of the steps in which the models see it in which it was there."""
        return None if self.both is None or not self.called else self.both / self.called

    @property
    def agreement(self) -> float | None:
        """Share of steps in which the models and the world say the same."""
        if self.called is None or self.both is None:
            return None
        return 1.0 - (self.true + self.called - 2 * self.both) / self.steps

    def to_json(self) -> dict[str, object]:
        """As plain values."""
        return {
            "dst": self.dst,
            "src": self.src,
            "own_past": self.own,
            "steps": self.steps,
            "true_steps": self.true,
            "true_rate": self.true_rate,
            "true_episodes": self.true_episodes,
            "episode_rate": self.episode_rate,
            "called_steps": self.called,
            "called_rate": self.called_rate,
            "recall": self.recall,
            "precision": self.precision,
            "agreement": self.agreement,
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
        called: The models' graphs between entities; None without models.
    """

    agent: int
    number: int
    success: bool
    states: WorldState
    steps: Transition
    called: Bool[np.ndarray, "time dst src"] | None


@dataclass(frozen=True)
class Models:
    """What the agents' models were read with.

    Attributes:
        detector: Name of the detector.
        members: Models in the ensemble of each agent.
        thresholds: Of each agent, from which score on an edge counts.
        levels: What destinations and sources of the models' own graphs are.
    """

    detector: str
    members: int
    thresholds: tuple[float, ...]
    levels: tuple[Granularity, Granularity]


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
        finest: The same edges at the level of the models, or between variables where there are none.
        models: What the models were read with; None where there are none that can be read.
        example: The first episode that was solved; where there is none, the first with most stages.
    """

    config: EvaluationConfig
    seeds: tuple[int, ...]
    stage_names: tuple[str, ...]
    env_steps: int
    outcomes: Outcomes
    entities: Edges
    finest: Edges
    models: Models | None
    example: Example

    def rates(self, agent: int | None = None) -> dict[str, object]:
        """Means over the episodes of one agent, or of all of them together."""
        return self.outcomes.rates(self.stage_names, agent)

    def to_json(self) -> dict[str, object]:
        """As plain values."""
        return {
            "policy": self.config.policy,
            "seed": self.config.seed,
            "episodes": self.config.episodes,
            "env_steps": self.env_steps,
            "seeds": [{"seed": seed, **self.rates(agent)} for agent, seed in enumerate(self.seeds)],
            "together": self.rates(),
            "models": self.models,
            "edges": [edge.to_json() for edge in self.entities.rows()],
            "film": {
                "seed": self.seeds[self.example.agent],
                "episode": self.example.number,
                "success": self.example.success,
            },
        }

    def edge_rows(self) -> list[Mapping[str, object]]:
        """All edges of all agents, and of all together, at both levels, for a table."""
        rows: list[Mapping[str, object]] = []
        for level, edges in {"entities": self.entities, "finest": self.finest}.items():
            for agent, seed in [(None, "all"), *enumerate(self.seeds)]:
                rows += [{"level": level, "seed": seed, **edge.to_json()} for edge in edges.rows(agent)]
        return rows


def evaluate(training: Training, config: EvaluationConfig, progress: Progress | None = None) -> Evaluation:
    """Play episodes with the newest whole state of a training, and see what depended on what in them.

    Args:
        training: The training, finished or stopped.
        config: How agents are tried.
        progress: Told of what is done.

    Raises:
        RunFolderError: The training has not kept a state yet.
    """
    kept = training.kept()
    if kept is None:
        raise RunFolderError(f"{training.folder.path} has kept no state yet; there is nothing to evaluate")
    loop, tell = training.loop, progress or (lambda *_: None)
    found = models_of(loop.bonus, kept.tree.bonus)
    reader = None if found is None else reader_of(found[0], training.config.bonus.detector)
    states = None if found is None else found[1]
    if reader is not None and states is not None and config.automatic_threshold:
        states = jax.jit(jax.vmap(reader.automatic))(states)
    key = jax.random.fold_in(jax.random.key(config.seed), _APART)
    total, agents = config.episodes, training.config.seeds
    pieces = math.ceil(total / max(1, _MOST_STEPS // (agents * loop.world.max_steps)))
    size = math.ceil(total / pieces)
    parts: list[_Part] = []
    for first in range(0, total, size):
        tell("playing", first, total)
        numbers = first + jnp.arange(size, dtype=jnp.int32)
        played = play(loop, config.greedy, kept.tree.policy.network, key, numbers)
        called = None
        if reader is not None and states is not None:
            steps = played.steps
            called = np.asarray(read_graphs(reader, states, steps.obs, steps.action, steps.next_obs))
        best = parts[-1].example if parts else None
        parts.append(_part(loop.world.factors, reader, played, called, first, min(size, total - first), best))
    tell("playing", total, total)
    return Evaluation(
        config=config,
        seeds=tuple(training.config.all_seeds),
        stage_names=loop.world.stage_names,
        env_steps=kept.number * training.config.loop.steps_per_iteration,
        outcomes=_joined([part.outcomes for part in parts]),
        entities=_sum([part.entities for part in parts]),
        finest=_sum([part.finest for part in parts]),
        models=None if reader is None or states is None else _models(reader, states),
        example=parts[-1].example,
    )


@dataclass(frozen=True)
class _Part:
    """What some of the episodes have come to; the example is the best one so far."""

    outcomes: Outcomes
    entities: Edges
    finest: Edges
    example: Example


def _part(
    factors: Factors,
    reader: MajorityReader | None,
    played: Played,
    called: Bool[np.ndarray, "time agent episode dst src"] | None,
    first: int,
    number: int,
    best: Example | None,
) -> _Part:
    """The first `number` of these episodes, whose own numbers begin at `first`."""
    every = Outcomes.of(played)
    parts = (every.success, every.solvable, every.stages, every.length)
    outcomes = Outcomes(*(part[:, :number] for part in parts))
    counts = np.asarray(played.counts)[:, :, :number]
    truth = np.asarray(played.steps.graph)[:, :, :number]
    own = None if called is None else called[:, :, :number]
    levels: tuple[Granularity, Granularity] = ("variable", "variable") if reader is None else reader.levels
    names = factors.source_names(levels[0])[:-1], factors.source_names(levels[1])
    coarse = None if own is None else _to_entities(factors, own, levels)
    whole = (factors.entity_names, factors.source_names("entity"))
    fine_truth = np.asarray(factors.reduce_graph(truth, *levels))
    return _Part(
        outcomes,
        Edges.count(whole, counts, np.asarray(factors.reduce_graph(truth)), coarse),
        Edges.count(names, counts, fine_truth, own),
        _better(best, outcomes, played, coarse, first),
    )


def _better(
    best: Example | None,
    outcomes: Outcomes,
    played: Played,
    called: Bool[np.ndarray, "time agent episode dst src"] | None,
    first: int,
) -> Example:
    """The example so far, or one of these episodes where it is better."""
    # By number of the episode, then by agent.
    worth = np.where(outcomes.success, 1000, outcomes.stages.sum(-1) + 1).T
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
        called=None if called is None else called[:length, agent, number],
    )


def _worth(example: Example) -> int:
    """The most for a success, else the number of stages."""
    return 1000 if example.success else int(example.steps.stages[-1].sum()) + 1


def _to_entities(
    factors: Factors,
    graph: Bool[np.ndarray, "*batch dst src"],
    levels: tuple[Granularity, Granularity],
) -> Bool[np.ndarray, "*batch entity source"]:
    """A graph between entities: an edge is there where any of their variables' is."""
    if levels[0] == "variable":
        graph = np.stack([graph[..., rows, :].any(-2) for rows in factors.entity_slices], -2)
    if levels[1] == "variable":
        columns = [graph[..., group].any(-1) for group in factors.entity_slices]
        graph = np.stack([*columns, graph[..., -1]], -1)
    return graph


def _models(reader: MajorityReader, states: ModelState) -> Models:
    thresholds = tuple(map(float, np.asarray(states.memory.threshold)))
    return Models(reader.detector.name, reader.models.ensemble_config.members, thresholds, reader.levels)


def _joined(parts: list[Outcomes]) -> Outcomes:
    def join(name: str) -> np.ndarray:
        return np.concatenate([getattr(part, name) for part in parts], axis=1)

    return Outcomes(join("success"), join("solvable"), join("stages"), join("length"))


def _sum(parts: list[Edges]) -> Edges:
    total, *others = parts
    for part in others:
        total = total + part
    return total


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if values.size else None
