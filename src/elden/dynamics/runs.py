"""Many ensembles side by side in one program, seeds and values of λ being a leading axis; training can be resumed.

A group of runs is trained in stages. Runs that differ only in λ are the same until λ starts to rise, so up to there one
run stands for all of them; then those with and those without λ part, and only those with λ pay for derivatives. Every
run is cut where λ starts to rise, so that it makes the same updates whatever is trained beside it. The last two states
of each stage are kept under their numbers of updates.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from elden.ahead import compile_ahead
from elden.dynamics.spread import Spread
from elden.dynamics.training import Metrics, Model, Settings, Trainer, TrainState
from elden.storage.checkpoints import Checkpoints
from elden.storage.files import StorageError
from elden.storage.resumable import Clock, Deadline, Reached, Resumable
from elden.transitions import Transitions

Progress: TypeAlias = Callable[[int, int, dict[str, list[float]]], None]
"""Called with the model updates done and to be done, and the last metrics of each run."""

Restored: TypeAlias = Callable[[str, int], None]
"""Called with the stage and the update from which it continues."""

Log: TypeAlias = Callable[[str, int, dict[str, list[float]]], None]
"""Called with the stage, the update and the metrics of each of its runs."""

_STAGES = ("begin", "free", "penalised")

_Tree = TypeVar("_Tree")


@dataclass(frozen=True)
class Run:
    """One ensemble's seed and settings; the rest is its trainer's."""

    seed: int
    penalty: float = 0.0
    mixup: float = 1.0


@dataclass(frozen=True)
class Speed:
    """Time of a training run, compilation apart."""

    compile_s: float
    train_s: float
    updates: int

    @property
    def updates_per_s(self) -> float:
        """Updates of one ensemble times the number of ensembles, by the second."""
        return self.updates / self.train_s if self.train_s > 0 else float("nan")


@dataclass(frozen=True)
class StoredModel:
    """One run's model.

    Attributes:
        model: Every leaf begins with the axis member.
        skipped: Updates that were skipped because they were not finite.
        speed: How fast it was trained, beside the others of its program.
    """

    model: Model
    skipped: int
    speed: Speed


@dataclass(frozen=True)
class Trained:
    """A group of trained models.

    Attributes:
        models: Every leaf begins with the axes run and member.
        speeds: How fast each was trained, all sittings together; equal for those that were trained side by side.
        skipped: Updates that each run skipped because they were not finite.
    """

    models: Model
    speeds: tuple[Speed, ...]
    skipped: Int[np.ndarray, " run"]

    @property
    def speed(self) -> Speed:
        """All of them together."""
        return _sum(list(dict.fromkeys(self.speeds)))

    def take(self, index: Sequence[int]) -> Model:
        """The models of some of the runs."""
        return _take(self.models, index)

    def stored(self, index: int) -> StoredModel:
        """One run's model, to be kept."""
        model: Model = jax.tree.map(lambda leaf: leaf[index], self.models)
        return StoredModel(model, int(self.skipped[index]), self.speeds[index])


@dataclass(frozen=True)
class ModelTraining:
    """A group of runs that are trained side by side.

    Attributes:
        trainer: Shape of the models and their training.
        runs: Seeds and settings.
        data: Transitions to train on.
        num_updates: Updates of each run.
        segment: Updates between two returns to the host.
        folder: Where states of training are kept until `forget`; None keeps nothing.
        identity: What decides the result, for the card of what is kept.
        deadline: When to stop.
        progress: Called after every segment.
        log: Called after every segment.
        restored: Called before a stage begins.
    """

    trainer: Trainer
    runs: tuple[Run, ...]
    data: Transitions
    num_updates: int
    segment: int = 1000
    folder: Path | None = None
    identity: Mapping[str, object] = field(default_factory=dict)
    deadline: Deadline = Deadline()  # noqa: RUF009 (frozen)
    progress: Progress | None = None
    log: Log | None = None
    restored: Restored | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        if not self.runs or self.num_updates < 1 or self.segment < 1:
            raise ValueError(
                f"{len(self.runs)} runs of {self.num_updates} updates in segments of {self.segment} given;"
                " all must be at least 1"
            )

    @property
    def _start(self) -> int:
        """Up to where runs that differ only in λ are the same."""
        if all(run.penalty == 0 for run in self.runs):
            return self.num_updates
        return min(self.trainer.config.penalty_start, self.num_updates)

    @property
    def _bases(self) -> list[tuple[int, float]]:
        return sorted({(run.seed, run.mixup) for run in self.runs})

    @property
    def total(self) -> int:
        """Updates over all runs."""
        return len(self._bases) * self._start + len(self.runs) * (self.num_updates - self._start)

    def finish(self) -> Trained:
        """Train to the end, from wherever an earlier sitting stopped.

        Raises:
            OutOfTimeError: The deadline has passed; the state is kept.
            ValueError: The folder holds states of another training run.
        """
        state, speed = self._train()
        return Trained(state.model, (speed,) * len(self.runs), np.asarray(state.skipped))

    def forget(self) -> None:
        """Remove the states that were kept: the models are safe."""
        for stage in _STAGES:
            if (states := self._states(stage)) is not None:
                states.clear()
        if self.folder is not None and self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _untrained(self, keys: Key[Array, " run"]) -> TrainState:
        init = partial(self.trainer.init, data_size=self.data.action.shape[0])
        state: TrainState = jax.vmap(init)(jax.vmap(lambda key: jax.random.fold_in(key, 0))(keys))
        return state

    def _train(self) -> tuple[TrainState, Speed]:
        start, bases = self._start, self._bases
        alike = [Run(seed, 0.0, mixup) for seed, mixup in bases]
        begun, speed = self._stage("begin", alike, None, (0, start), Speed(0.0, 0.0, 0))
        forked = _take(begun, [bases.index((run.seed, run.mixup)) for run in self.runs])
        parts: list[TrainState] = []
        order: list[int] = []
        for name in _STAGES[1:]:
            chosen = [i for i, run in enumerate(self.runs) if (run.penalty > 0) == (name == "penalised")]
            if chosen:
                part, runs = _take(forked, chosen), [self.runs[i] for i in chosen]
                part, speed = self._stage(name, runs, part, (start, self.num_updates), speed)
                parts.append(part)
                order += chosen
        joined: TrainState = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)
        return _take(joined, np.argsort(order).tolist()), speed

    def _stage(
        self, name: str, runs: Sequence[Run], state: TrainState | None, span: tuple[int, int], before: Speed
    ) -> tuple[TrainState, Speed]:
        """Train these runs over a span of updates; and the time of this stage and those before."""
        keys = jax.vmap(jax.random.key)(jnp.array([run.seed for run in runs], jnp.uint32))
        states, begun = self._states(name), self._begin(name, state, keys, span)
        settings = [self.trainer.settings(run.penalty, run.mixup) for run in runs]
        stacked: Settings = jax.tree.map(lambda *leaves: jnp.stack(leaves), *settings)
        spread = Spread.here(len(runs))
        programs = _programs(self.trainer, name == "penalised", any(run.mixup > 0 for run in runs), spread)
        dealt, stacked, keys = spread.deal((begun.state, stacked, keys))
        data = spread.copy(self.data)

        def speed(at: Reached[TrainState]) -> Speed:
            return _sum([before, Speed(at.clock.compile_s, at.clock.train_s, (at.number - span[0]) * len(runs))])

        def advance(at: Reached[TrainState]) -> tuple[Reached[TrainState], Callable[[], None]]:
            size = min(self._next_cut(at.number), span[1]) - at.number
            arguments = (at.state, stacked, data, keys, spread.copy(jnp.int32(at.number)))
            state, metrics, took = programs.run(size, arguments)
            after = Reached(at.number + size, state, at.clock.plus(took.compile_s, took.train_s))
            return after, lambda: self._tell(name, after.number, speed(after).updates, metrics)

        def save(at: Reached[TrainState]) -> None:
            if states is not None:
                states.save(at.number, spread.collect(at.state), {"clock": asdict(at.clock)})

        work = Resumable(span[1], f"updates of stage {name!r}", advance, save, self.deadline)
        end = work.run(Reached(begun.number, dealt, begun.clock))
        return spread.collect(end.state), speed(end)

    def _begin(
        self, name: str, state: TrainState | None, keys: Key[Array, " run"], span: tuple[int, int]
    ) -> Reached[TrainState]:
        """The newest state of a stage that was kept; where there is none the given one, or an untrained one."""

        def first() -> TrainState:
            return jax.jit(self._untrained)(keys) if state is None else state

        states = self._states(name)
        kept = None if states is None else states.restore(first)
        begun = Reached(span[0], first()) if kept is None else Reached.of(kept)
        if not span[0] <= begun.number <= span[1]:
            raise StorageError(f"{self.folder} has a state of update {begun.number}, which does not lie in {span}")
        if self.restored is not None:
            self.restored(name, begun.number)
        return begun

    def _next_cut(self, update: int) -> int:
        """Where the segment ends that begins at this update."""
        start = self.trainer.config.penalty_start
        end = (update // self.segment + 1) * self.segment
        return min(end, start) if update < start else end

    def _tell(self, name: str, update: int, updates: int, metrics: dict[str, list[float]]) -> None:
        if self.log is not None:
            self.log(name, update, metrics)
        if self.progress is not None:
            self.progress(updates, self.total, metrics)

    def _states(self, name: str) -> Checkpoints | None:
        if self.folder is None:
            return None
        return Checkpoints(self.folder / name, "models", {**self.identity, "stage": name})


def _sum(speeds: Sequence[Speed]) -> Speed:
    return Speed(
        compile_s=sum(speed.compile_s for speed in speeds),
        train_s=sum(speed.train_s for speed in speeds),
        updates=sum(speed.updates for speed in speeds),
    )


_Arguments: TypeAlias = tuple[TrainState, Settings, Transitions, Key[Array, " run"], Int[Array, ""]]


class _Programs:
    """The compiled updates of one kind, by the size of a segment and the number of transitions."""

    def __init__(self, trainer: Trainer, derivatives: bool, mixup: bool, spread: Spread) -> None:
        self.trainer, self.derivatives, self.mixup, self.spread = trainer, derivatives, mixup, spread
        self.compiled: dict[tuple[int, int], Callable[..., tuple[TrainState, Metrics]]] = {}

    def run(self, size: int, arguments: _Arguments) -> tuple[TrainState, dict[str, list[float]], Clock]:
        """One segment of all runs, timed with compilation apart."""
        place, compile_s = (size, arguments[2].action.shape[0]), 0.0
        if place not in self.compiled:
            self.compiled[place], compile_s = self._compile(size, arguments)
        began = time.perf_counter()
        state, metrics = self.compiled[place](*arguments)
        numbers = {name: np.asarray(value)[: self.spread.runs].tolist() for name, value in metrics.items()}
        return state, numbers, Clock(compile_s, time.perf_counter() - began)

    def _compile(self, size: int, arguments: _Arguments) -> tuple[Callable[..., tuple[TrainState, Metrics]], float]:
        def train(
            state: TrainState, settings: Settings, data: Transitions, key: Key[Array, ""], first: Int[Array, ""]
        ) -> tuple[TrainState, Metrics]:
            key = jax.random.fold_in(jax.random.fold_in(key, 1), first)
            return self.trainer.train(state, settings, data, key, size, self.derivatives, self.mixup)

        many = jax.vmap(train, in_axes=(0, 0, None, 0, None))
        return compile_ahead(self.spread.over(many, (True, True, False, True, False)), arguments)


@lru_cache(maxsize=16)
def _programs(trainer: Trainer, derivatives: bool, mixup: bool, spread: Spread) -> _Programs:
    """What has been compiled so far for a trainer."""
    return _Programs(trainer, derivatives, mixup, spread)


def _take(tree: _Tree, index: Sequence[int]) -> _Tree:
    taken: _Tree = jax.tree.map(lambda leaf: leaf[np.asarray(index)], tree)
    return taken
