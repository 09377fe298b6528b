"""Many ensembles side by side in one program: seeds and values of λ as a leading axis.

Ensembles that differ only in λ are the same until λ starts to rise, so they are trained once up to there; those whose λ
is 0 never pay for derivatives.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from elden.dynamics.training import Metrics, Settings, Trainer, TrainState, Transitions

Progress = Callable[[int, int, dict[str, list[float]]], None]
"""Called with the model updates done and to be done, and the last metrics of each run."""


@dataclass(frozen=True)
class Run:
    """One ensemble's seed and settings; the rest is its trainer's."""

    seed: int
    penalty: float = 0.0
    mixup: float = 1.0


@dataclass(frozen=True)
class Speed:
    """Time of a training, compilation apart."""

    compile_s: float
    train_s: float
    updates: int

    @property
    def updates_per_s(self) -> float:
        """Updates of one ensemble times the number of ensembles, by the second."""
        return self.updates / self.train_s if self.train_s > 0 else float("nan")


class _Clock:
    """Sums up compile and run times over the programs of one training."""

    def __init__(self) -> None:
        self.compile_s = self.train_s = 0.0
        self.updates = 0

    def speed(self) -> Speed:
        return Speed(self.compile_s, self.train_s, self.updates)


def train_runs(
    trainer: Trainer,
    runs: Sequence[Run],
    data: Transitions,
    num_updates: int,
    segment: int = 1000,
    progress: Progress | None = None,
) -> tuple[TrainState, Speed]:
    """Train one ensemble for each run.

    Args:
        trainer: Shape of the ensembles and their training.
        runs: Seeds and settings.
        data: Transitions to train on, shared by all.
        num_updates: Updates of each ensemble.
        segment: Updates between two returns to the host.
        progress: Called after every segment.

    Returns:
        The trained ensembles, the run being the first axis of every leaf, and how fast that went.
    """
    if not runs or num_updates < 1:
        raise ValueError(f"{len(runs)} runs of {num_updates} updates given; both must be at least 1")
    free = [run for run in runs if run.penalty == 0]
    start = min(trainer.config.penalty_start, num_updates) if len(free) < len(runs) else num_updates
    bases = sorted({(run.seed, run.mixup) for run in runs})
    clock = _Clock()
    total = len(bases) * start + len(runs) * (num_updates - start)
    stage = _Stage(trainer, data, segment, clock, total, progress)
    begun = stage.train([Run(seed, 0.0, mixup) for seed, mixup in bases], None, 0, start, derivatives=False)
    forked = _take(begun, [bases.index((run.seed, run.mixup)) for run in runs])
    parts, order = [], []
    for derivatives in (False, True):
        chosen = [i for i, run in enumerate(runs) if (run.penalty > 0) == derivatives]
        if chosen:
            part = _take(forked, chosen)
            if start < num_updates:
                part = stage.train([runs[i] for i in chosen], part, start, num_updates, derivatives)
            parts.append(part)
            order += chosen
    joined: TrainState = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)
    return _take(joined, np.argsort(order).tolist()), clock.speed()


def _take(state: TrainState, index: Sequence[int]) -> TrainState:
    taken: TrainState = jax.tree.map(lambda leaf: leaf[np.asarray(index)], state)
    return taken


@dataclass(frozen=True)
class _Stage:
    """A stretch of training in which all runs do the same."""

    trainer: Trainer
    data: Transitions
    segment: int
    clock: _Clock
    total: int
    progress: Progress | None

    def train(
        self, runs: Sequence[Run], state: TrainState | None, start: int, stop: int, derivatives: bool
    ) -> TrainState:
        keys = jax.vmap(jax.random.key)(jnp.array([run.seed for run in runs], jnp.uint32))
        if state is None:
            state = _untrained(self.trainer, self.data, keys)
        settings = [self.trainer.settings(run.penalty, run.mixup) for run in runs]
        stacked: Settings = jax.tree.map(lambda *leaves: jnp.stack(leaves), *settings)
        mixup = any(run.mixup > 0 for run in runs)
        for first in range(start, stop, self.segment):
            size = min(self.segment, stop - first)
            program = _program(self.trainer, size, derivatives, mixup)
            arguments = (state, stacked, self.data, keys, jnp.int32(first))
            began = time.perf_counter()
            if first == start or size != self.segment:
                program.lower(*arguments).compile()
                self.clock.compile_s += time.perf_counter() - began
                began = time.perf_counter()
            state, metrics = program(*arguments)
            said = {name: np.asarray(value).tolist() for name, value in metrics.items()}
            self.clock.train_s += time.perf_counter() - began
            self.clock.updates += size * len(runs)
            if self.progress is not None:
                self.progress(self.clock.updates, self.total, said)
        return state


def _untrained(trainer: Trainer, data: Transitions, keys: Key[Array, " run"]) -> TrainState:
    init = partial(trainer.init, data_size=data.action.shape[0])
    state: TrainState = jax.jit(jax.vmap(init))(jax.vmap(lambda key: jax.random.fold_in(key, 0))(keys))
    return state


@lru_cache(maxsize=32)
def _program(trainer: Trainer, size: int, derivatives: bool, mixup: bool) -> jax.stages.Wrapped:
    """The compiled updates of one segment for all runs."""

    def train(
        state: TrainState, settings: Settings, data: Transitions, key: Key[Array, ""], first: Int[Array, ""]
    ) -> tuple[TrainState, Metrics]:
        key = jax.random.fold_in(jax.random.fold_in(key, 1), first)
        return trainer.train(state, settings, data, key, size, derivatives, mixup)

    return jax.jit(jax.vmap(train, in_axes=(0, 0, None, 0, None)), donate_argnums=0)
