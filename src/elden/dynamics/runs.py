"""Many ensembles side by side in one program, seeds and values of λ being a leading axis; training can be resumed.

A group of runs is trained in stages. Runs that differ only in λ are the same until λ starts to rise, so up to there one
run stands for all of them; then those with and those without λ part, and only those with λ pay for derivatives. Every
run is cut where λ starts to rise, so that it makes the same updates whatever is trained beside it. The last two states
of each stage are kept under their numbers of updates; where the newer one is damaged the older one is used.
"""

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
from elden.storage.arrays import DamagedDataError
from elden.storage.checkpoints import Checkpoints
from elden.transitions import Transitions

Progress: TypeAlias = Callable[[int, int, dict[str, list[float]]], None]
"""Called with the model updates done and to be done, and the last metrics of each run."""

Restored: TypeAlias = Callable[[str, int], None]
"""Called with the stage and the update from which it continues."""

Log: TypeAlias = Callable[[str, int, dict[str, list[float]]], None]
"""Called with the stage, the update and the metrics of each of its runs."""

SAVE_EVERY_S = 300.0
"""Time after which a state is kept even if nothing asks for it."""

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


class OutOfTimeError(RuntimeError):
    """The time limit is over; what has been done is kept."""


@dataclass(frozen=True)
class Deadline:
    """A moment after which training stops, at the next return to the host. Every sitting makes some progress."""

    at_s: float | None = None

    @classmethod
    def after(cls, seconds: float | int | None) -> "Deadline":
        """So many seconds from now; None is never."""
        return cls(None if seconds is None else time.monotonic() + seconds)

    @property
    def over(self) -> bool:
        """Whether it has passed."""
        return self.at_s is not None and time.monotonic() >= self.at_s


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
    deadline: Deadline = Deadline()
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
        state, clocks = self._train()
        return Trained(state.model, (_sum(clocks),) * len(self.runs), np.asarray(state.skipped))

    def forget(self) -> None:
        """Remove the states that were kept: the models are safe."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _untrained(self, keys: Key[Array, " run"]) -> TrainState:
        init = partial(self.trainer.init, data_size=self.data.action.shape[0])
        state: TrainState = jax.vmap(init)(jax.vmap(lambda key: jax.random.fold_in(key, 0))(keys))
        return state

    def _train(self) -> tuple[TrainState, list["_Clock"]]:
        clocks: list[_Clock] = []
        start, bases = self._start, self._bases
        begun = self._stage("begin", [Run(seed, 0.0, mixup) for seed, mixup in bases], None, (0, start), False, clocks)
        forked = _take(begun, [bases.index((run.seed, run.mixup)) for run in self.runs])
        parts: list[TrainState] = []
        order: list[int] = []
        for name, derivatives in (("free", False), ("penalised", True)):
            chosen = [i for i, run in enumerate(self.runs) if (run.penalty > 0) == derivatives]
            if chosen:
                part, runs = _take(forked, chosen), [self.runs[i] for i in chosen]
                parts.append(self._stage(name, runs, part, (start, self.num_updates), derivatives, clocks))
                order += chosen
        joined: TrainState = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)
        return _take(joined, np.argsort(order).tolist()), clocks

    def _stage(
        self,
        name: str,
        runs: Sequence[Run],
        state: TrainState | None,
        span: tuple[int, int],
        derivatives: bool,
        clocks: list["_Clock"],
    ) -> TrainState:
        """Train these runs over a span of updates, and add the stage's clock to the list."""
        keys = jax.vmap(jax.random.key)(jnp.array([run.seed for run in runs], jnp.uint32))
        if state is None:
            state = jax.jit(self._untrained)(keys)
        saved = time.monotonic()
        state, clock = self._restore(name, state, span)
        clocks.append(clock)
        restored = clock.update
        if self.restored is not None:
            self.restored(name, max(restored, span[0]))
        settings = [self.trainer.settings(run.penalty, run.mixup) for run in runs]
        stacked: Settings = jax.tree.map(lambda *leaves: jnp.stack(leaves), *settings)
        spread = Spread.here(len(runs))
        programs = _programs(self.trainer, derivatives, any(run.mixup > 0 for run in runs), spread)
        state, stacked, keys = spread.deal((state, stacked, keys))
        data = spread.copy(self.data)
        begin = clock.update = clock.update or span[0]
        try:
            while clock.update < span[1]:
                if clock.update > begin:  # at least one segment in a sitting, however long compiling takes
                    self._check_time(name, clock)
                if time.monotonic() - saved > SAVE_EVERY_S:
                    self._save(name, spread.collect(state), clock)
                    saved = time.monotonic()
                first = clock.update
                size = min(self._next_cut(first), span[1]) - first
                state, said = programs.run(size, (state, stacked, data, keys, spread.copy(jnp.int32(first))), clock)
                clock.update, clock.updates = first + size, clock.updates + size * len(runs)
                self._tell(name, clocks, said)
        finally:  # also when it is stopped
            if clock.update > max(restored, span[0]):
                self._save(name, spread.collect(state), clock)
        return spread.collect(state)

    def _next_cut(self, update: int) -> int:
        """Where the segment ends that begins at this update."""
        start = self.trainer.config.penalty_start
        end = (update // self.segment + 1) * self.segment
        return min(end, start) if update < start else end

    def _check_time(self, name: str, clock: "_Clock") -> None:
        if self.deadline.over:
            raise OutOfTimeError(
                f"the time limit is over, in stage {name!r} at update {clock.update} of {self.num_updates}"
            )

    def _tell(self, name: str, clocks: Sequence["_Clock"], said: dict[str, list[float]]) -> None:
        if self.log is not None:
            self.log(name, clocks[-1].update, said)
        if self.progress is not None:
            self.progress(sum(clock.updates for clock in clocks), self.total, said)

    def _slots(self, name: str) -> Checkpoints | None:
        return None if self.folder is None else Checkpoints(self.folder / name, {**self.identity, "stage": name})

    def _save(self, name: str, state: TrainState, clock: "_Clock") -> None:
        """Keep a state and the one before it, and drop older ones."""
        if (slots := self._slots(name)) is not None:
            slots.save(clock.update, state, {"clock": clock.asdict()})

    def _restore(self, name: str, state: TrainState, span: tuple[int, int]) -> tuple[TrainState, "_Clock"]:
        """The newest state that was kept, with its clock; the given one where there is none."""
        slots = self._slots(name)
        kept = None if slots is None else slots.restore(state)
        if kept is None:
            return state, _Clock()
        if not span[0] <= kept.number <= span[1]:
            raise ValueError(f"{self.folder} has a state of update {kept.number}, which does not lie in {span}")
        return kept.tree, _Clock.load(kept.card.get("clock"))


@dataclass
class _Clock:
    """Where a stage is, and the time that it took so far."""

    update: int = 0
    updates: int = 0
    compile_s: float = 0.0
    train_s: float = 0.0

    def asdict(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in ("update", "updates", "compile_s", "train_s")}

    @classmethod
    def load(cls, values: object) -> "_Clock":
        if not isinstance(values, Mapping):
            raise DamagedDataError(f"a state of training has no clock but {values!r}")
        numbers = (int(values["update"]), int(values["updates"]))
        return cls(*numbers, float(values["compile_s"]), float(values["train_s"]))


def _sum(clocks: "Sequence[_Clock] | Sequence[Speed]") -> Speed:
    return Speed(
        compile_s=sum(clock.compile_s for clock in clocks),
        train_s=sum(clock.train_s for clock in clocks),
        updates=sum(clock.updates for clock in clocks),
    )


_Arguments: TypeAlias = tuple[TrainState, Settings, Transitions, Key[Array, " run"], Int[Array, ""]]


class _Programs:
    """The compiled updates of one kind, by the size of a segment and the number of transitions."""

    def __init__(self, trainer: Trainer, derivatives: bool, mixup: bool, spread: Spread) -> None:
        self.trainer, self.derivatives, self.mixup, self.spread = trainer, derivatives, mixup, spread
        self.compiled: dict[tuple[int, int], Callable[..., tuple[TrainState, Metrics]]] = {}

    def run(self, size: int, arguments: _Arguments, clock: _Clock) -> tuple[TrainState, dict[str, list[float]]]:
        """One segment of all runs, timed with compilation apart."""
        place = (size, arguments[2].action.shape[0])
        if place not in self.compiled:
            self.compiled[place], compile_s = self._compile(size, arguments)
            clock.compile_s += compile_s
        began = time.perf_counter()
        state, metrics = self.compiled[place](*arguments)
        said = {name: np.asarray(value)[: self.spread.runs].tolist() for name, value in metrics.items()}
        clock.train_s += time.perf_counter() - began
        return state, said

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
