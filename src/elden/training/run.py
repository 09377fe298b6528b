"""A training run on the host: compiled iterations, with logs, checkpoints and time limits between them.

Everything that an iteration does depends on its number, the seed and the state before it. So a training run that was
stopped or killed, and then continues from the last state that was kept, makes the same numbers as one that was never
interrupted. Environments of others are the exception: where they are cannot be kept, so new episodes begin.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from elden.ahead import compile_ahead
from elden.dynamics.runs import Deadline, OutOfTimeError
from elden.hosts.world import HostConfig, HostWorld, UntrustedModuleError
from elden.names import PREFIX
from elden.provenance import code_digest, provenance
from elden.storage.checkpoints import Checkpoints, Kept
from elden.storage.folder import RunFolder, RunFolderError, read_config
from elden.storage.plain import from_plain, plain
from elden.training.algorithm import Loop, LoopState
from elden.training.config import TrainingConfig
from elden.training.host import HostProgram
from elden.training.rollout import Metrics
from elden.worlds.base import World
from elden.worlds.registry import make, world_card

SeedMetrics: TypeAlias = dict[str, list[float]]
"""Metrics of one iteration, a number for each seed."""

Progress: TypeAlias = Callable[[int, int, SeedMetrics], None]
"""Called with the iterations done and to be done, and the metrics of the last one."""

STATE_VERSION = 9
"""Changes when the same settings and seed no longer give the same training."""

_CALL_S = 60.0
_YEAR_S = 365.25 * 86_400

_MAY_BE_MISSING = ("episode/", "stage/", "graph/")
"""Metrics that are NaN in a rollout in which no episode ends, or no graph is read."""


class NotFiniteError(ArithmeticError):
    """A number of a training run is not finite; the message says which part's, and when."""


@dataclass(frozen=True)
class Clock:
    """Time that a training took so far, over all sittings."""

    compile_s: float = 0.0
    train_s: float = 0.0

    def plus(self, compile_s: float = 0.0, train_s: float = 0.0) -> "Clock":
        """With more time."""
        return Clock(self.compile_s + compile_s, self.train_s + train_s)

    @classmethod
    def load(cls, card: Mapping[str, object]) -> "Clock":
        """From what was written beside a state."""
        value = card.get("clock")
        known = value if isinstance(value, Mapping) else {}
        return cls(float(known.get("compile_s", 0.0)), float(known.get("train_s", 0.0)))


@dataclass(frozen=True)
class Call:
    """A call of the compiled program that has ended.

    Attributes:
        reached: Iterations of the training that were done when it ended.
        iterations: How many of them it made.
        seconds: How long it took.
    """

    reached: int
    iterations: int
    seconds: float

    @property
    def each_s(self) -> float:
        """How long an iteration took."""
        return self.seconds / self.iterations


class TrainingRun:
    """Agents in training in one world."""

    def __init__(
        self,
        world: World | HostWorld,
        config: TrainingConfig,
        folder: Path,
        *,
        iterations_per_call: int = 1,
        save_every_s: float = 300.0,
        keep: int = 2,
        deadline: Deadline | None = None,
        progress: Progress | None = None,
        command: str | None = None,
    ) -> None:
        """Begin a training run, or open one that was stopped.

        Args:
            world: Where agents act.
            config: How they learn.
            folder: The run folder. One that holds an unfinished training with the same settings continues.
            iterations_per_call: Iterations between two returns to the host, at most: a call takes no more than about a
                minute, going by the one before.
            save_every_s: Time after which the state is kept.
            keep: How many states are kept.
            deadline: When to stop, at the end of a call. No call is begun that would take longer, if the last one did.
            progress: Called after every iteration.
            command: The command line, for the records.

        Raises:
            RunFolderError: The folder holds something else.
        """
        if iterations_per_call < 1 or keep < 1:
            raise ValueError(f"iterations_per_call={iterations_per_call}, keep={keep} given; both must be 1 or more")
        if isinstance(world, HostWorld) and iterations_per_call > 1:
            raise ValueError(
                f"iterations_per_call={iterations_per_call} given; {world.name} is stepped on the host, so every"
                " rollout returns there"
            )
        code_digest()  # now: sources may be edited while a training runs
        self.world, self.config, self.iterations_per_call = world, config, iterations_per_call
        self.loop: Loop[Any] = Loop.of(world, config)
        identity = self.identity(world, config)
        self.folder = RunFolder(folder, identity)
        self.slots = Checkpoints(self.folder.checkpoints, _identity_of_states(identity), keep)
        self.save_every_s = save_every_s
        self.deadline = deadline or Deadline()
        self.progress = progress
        self.command = command
        self.call_began: float | None = None
        """When the call that is running began, of `time.monotonic`; None while there is none."""
        self.last_call: Call | None = None
        """The call that has ended last in this sitting."""

    @classmethod
    def open(
        cls, folder: Path, *, trust: str | None = None, step_limit_s: float | None = None, **options: Any
    ) -> "TrainingRun":
        """A training run that was begun before, from its folder alone.

        Args:
            folder: The run folder.
            trust: `gym:MODULE`, where the run's environment is in this module: it is imported, which runs it.
            step_limit_s: How long an environment of others may take; None leaves it at the default.
            options: Those of `TrainingRun` that do not change its results.

        Raises:
            UntrustedModuleError: The run's environment is in another module.
            RunFolderError: The folder holds no training run.
        """
        config = read_config(folder)
        if config.get("version", STATE_VERSION) != STATE_VERSION:
            raise RunFolderError(f"{folder} was made by another version of elden, whose states this one cannot read")
        try:
            world, settings = config["world"], from_plain(TrainingConfig, config["training"])
            return cls(world_of_card(world, trust, step_limit_s), settings, folder, **options)
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, RunFolderError | UntrustedModuleError):
                raise
            raise RunFolderError(f"{folder} holds no training run that can continue: {error}") from None

    @classmethod
    def extend(cls, folder: Path, steps: int, trust: str | None = None) -> None:
        """Let a training run, finished or not, have more steps.

        The result is as if it had had them from the start, but where the learning rate falls: there it continues
        with the rate that a training run of the new length has at this point. So do the schedules of learnt masks.

        Args:
            folder: The run folder.
            steps: Steps of each seed in all.
            trust: As for `open`.

        Raises:
            RunFolderError: The folder holds no training run, or one that cannot have so many steps.
        """
        training = cls.open(folder, trust=trust)
        config, known = training.config, training.config.loop.steps
        if steps <= known:
            raise RunFolderError(f"{folder} has {known} steps already; --steps {steps} given, which is no more")
        speed = training.folder.read_summary().get("steps_per_s") if training.finished else None
        each_s = 1.0 / speed if isinstance(speed, int | float) and speed > 0 else 0.0
        if (years := (steps - known) * config.seeds * each_s / _YEAR_S) > 1:
            raise RunFolderError(
                f"--steps {steps} given, which takes {years:,.0f} years at the {speed:,.0f} steps/s that {folder} had"
            )
        try:
            longer = replace(config, loop=replace(config.loop, steps=steps))
        except ValueError as error:
            raise RunFolderError(f"--{error}") from None
        with training.folder.locked():
            training.folder.change(cls.identity(training.world, longer))

    @staticmethod
    def identity(world: World | HostWorld, config: TrainingConfig) -> dict[str, object]:
        """Everything that decides the results of a training run, as its folder has it."""
        return {"world": card_of_world(world), "training": config, "version": STATE_VERSION}

    @property
    def finished(self) -> bool:
        """Whether the results are there."""
        return self.folder.finished

    @property
    def begins_episodes_anew(self) -> bool:
        """Whether a state is kept from which the training can continue only with new episodes."""
        return isinstance(self.world, HostWorld) and any(self.folder.checkpoints.glob("[0-9]*"))

    @property
    def keys(self) -> Key[Array, " seed"]:
        """A random key for each agent, which all of its randomness comes from."""
        return jax.vmap(jax.random.key)(jnp.array(self.config.all_seeds, jnp.uint32))

    def run(self) -> LoopState[Any]:
        """Train to the end, and write the results.

        Raises:
            OutOfTimeError: The deadline has passed; the state is kept.
            NotFiniteError: A number is not finite; the state before it was is kept.
            EnvironmentFailedError: An environment of somebody else's failed; the state before is kept.
            RunFolderError: Another process is training in the folder.
        """
        with self.folder.locked():
            return self._run()

    def _run(self) -> LoopState[Any]:
        state, iteration, clock = self._begin()
        with self._programs(iteration) as program_of:
            state, clock = self._turn(program_of, state, iteration, clock)
        self.folder.write_summary(self._summary(clock))
        return state

    def _turn(
        self, program_of: "_ProgramOf", state: LoopState[Any], iteration: int, clock: Clock
    ) -> tuple[LoopState[Any], Clock]:
        """All iterations that are left."""
        keys, total = self.keys, self.config.loop.iterations
        kept, saved = iteration, time.monotonic()
        try:
            while iteration < total:
                program, compile_s = program_of(min(self.iterations_per_call, total)).ready(state, keys)
                number = self._next(total - iteration)
                self.call_began = time.monotonic()
                after, metrics = program(state, keys, jnp.int32(iteration), jnp.int32(number))
                logged = list(_by_iteration(metrics))[:number]
                call = Call(iteration + number, number, time.monotonic() - self.call_began)
                self.last_call, self.call_began = call, None
                clock = clock.plus(compile_s, call.seconds)
                for i, each in enumerate(logged):
                    self._check(iteration + i, each)
                # Both at once: whatever happens while metrics are logged, a state is kept under its own number.
                first, state, iteration = iteration, after, iteration + number
                for i, each in enumerate(logged, 1):
                    self._log(first + i, each)
                if iteration < total and self._ends_before(call.each_s):
                    why = "is over" if self.deadline.over else f"leaves no time for another {call.each_s:.3g} s"
                    raise OutOfTimeError(f"the time limit {why}, after {iteration} of {total} iterations")
                if time.monotonic() - saved > self.save_every_s:
                    self._save(iteration, state, clock)
                    kept, saved = iteration, time.monotonic()
        finally:  # also when it is stopped
            if iteration > kept:
                self._save(iteration, state, clock)
            self.folder.close()
        return state, clock

    def _next(self, left: int) -> int:
        """How many iterations the next call has: one at first, then as many as take a minute, or until the deadline.

        Args:
            left: How many there are to be done.
        """
        if self.last_call is None:
            return 1
        seconds = _CALL_S if self.deadline.at_s is None else min(_CALL_S, self.deadline.at_s - time.monotonic())
        fit = int(seconds / max(self.last_call.each_s, 1e-6))
        return max(1, min(self.iterations_per_call, left, fit))

    def _ends_before(self, seconds: float) -> bool:
        """Whether the deadline comes before so many seconds are over."""
        return self.deadline.at_s is not None and time.monotonic() + seconds >= self.deadline.at_s

    @contextmanager
    def _programs(self, iteration: int) -> "Iterator[_ProgramOf]":
        """What makes some iterations, from this one on; environments on the host are closed at the end."""
        if not isinstance(self.world, HostWorld) or iteration >= self.config.loop.iterations:
            yield lambda number: _program(self.loop, number, self.config.seeds)
            return
        program = HostProgram(self.loop, self.config, iteration)
        try:
            yield lambda number: program
        finally:
            program.close()

    def kept(self) -> Kept[LoopState[Any]] | None:
        """The newest whole state on disk, under its number of iterations; None where nothing was kept yet."""
        return self.slots.restore(_init(self.loop)(self.keys))

    def _begin(self) -> tuple[LoopState[Any], int, Clock]:
        """The last state that was kept, or the first one of all."""
        state = _init(self.loop)(self.keys)
        kept = self.slots.restore(state)
        iteration = 0 if kept is None else kept.number
        self.folder.forget_after(iteration * self.config.loop.steps_per_iteration)
        return (state, 0, Clock()) if kept is None else (kept.tree, iteration, Clock.load(kept.card))

    def _check(self, iteration: int, logged: SeedMetrics) -> None:
        """Refuse numbers that are not finite, but for those of what did not happen in the iteration."""
        loop = self.config.loop
        missing: tuple[str, ...] = _MAY_BE_MISSING
        if iteration < loop.warmup_iterations:
            missing += ("policy/",) if loop.learn_in_warmup else ("policy/", "dynamics/", "bonus/")
        for name, values in logged.items():
            if not name.startswith(missing) and not all(map(math.isfinite, values)):
                step = iteration * loop.steps_per_iteration
                raise NotFiniteError(f"{name} is {values} in the rollout from step {step} on; the state before is kept")

    def _log(self, iteration: int, logged: SeedMetrics) -> None:
        step = iteration * self.config.loop.steps_per_iteration
        self.folder.log(step, logged)
        if self.progress is not None:
            self.progress(iteration, self.config.loop.iterations, logged)

    def _save(self, iteration: int, state: LoopState[Any], clock: Clock) -> None:
        self.slots.save(iteration, state, {"clock": {"compile_s": clock.compile_s, "train_s": clock.train_s}})

    def _summary(self, clock: Clock) -> dict[str, object]:
        loop, lines = self.config.loop, list(self.folder.metrics())
        steps = loop.iterations * loop.steps_per_iteration
        last = [line for line in lines if float(str(line["step"])) > 0.9 * steps]
        seeds = [_summary_of_seed(seed, index, lines, last) for index, seed in enumerate(self.config.all_seeds)]
        return {
            **provenance(self.command),
            "world": self.world.name,
            "bonus": self.config.bonus_name,
            "seeds": seeds,
            "env_steps": steps,
            "compile_s": clock.compile_s,
            "wall_s": clock.train_s,
            "steps_per_s": steps * self.config.seeds / clock.train_s if clock.train_s > 0 else None,
        }


def _identity_of_states(identity: Mapping[str, object]) -> dict[str, object]:
    """Everything that decides what a state is: how many steps follow does not."""
    whole: Any = plain(identity)
    del whole["training"]["loop"]["steps"]
    return dict(whole)


def _summary_of_seed(
    seed: int, index: int, lines: list[dict[str, Any]], last: list[dict[str, Any]]
) -> dict[str, object]:
    """How one agent did."""

    def mean(name: str) -> float | None:
        values = [line[name][index] for line in last if line.get(name) and line[name][index] is not None]
        return float(np.mean(values)) if values else None

    solved = [line["step"] for line in lines if (line["episode/success"][index] or 0) > 0]
    return {
        "seed": seed,
        "success_rate": mean("episode/success"),
        "success_rate_solvable": mean("episode/success_solvable"),
        "normalized_stage": mean("episode/normalized_stage"),
        "first_success_step": solved[0] if solved else None,
    }


def _by_iteration(metrics: Mapping[str, Float[Array, "iteration seed"]]) -> Iterator[SeedMetrics]:
    """The metrics of each iteration."""
    arrays = {name: np.asarray(values) for name, values in metrics.items()}
    for i in range(len(next(iter(arrays.values())))):
        yield {name: values[i].tolist() for name, values in arrays.items()}


_Advance: TypeAlias = Callable[
    [LoopState[Any], Key[Array, " seed"], Int[Array, ""], Int[Array, ""]], tuple[LoopState[Any], Metrics]
]
"""Makes iterations: of a state, keys, the number of the first one, and how many."""


_ProgramOf: TypeAlias = "Callable[[int], _Program | HostProgram]"


def card_of_world(world: World | HostWorld) -> dict[str, object]:
    """What `world_of_card` needs to make the world again."""
    return world.config.card() if isinstance(world, HostWorld) else world_card(world)


def world_of_card(
    card: Mapping[str, Any], trust: str | None = None, step_limit_s: float | None = None
) -> World | HostWorld:
    """The world that a training run is in; `trust` and `step_limit_s` as for `TrainingRun.open`.

    Raises:
        ValueError: It cannot be made.
    """
    if str(card["name"]).startswith(PREFIX):
        config = HostConfig.from_card(card["name"], card["options"], step_limit_s)
        config.check_trusted(trust)
        return HostWorld.look(config)
    return make(card["name"], **card["options"])


class _Program:
    """Some iterations as one compiled program; how many of them are made is said in the call."""

    def __init__(self, loop: Loop[Any], most: int) -> None:
        self.loop, self.most = loop, most
        self.compiled: _Advance | None = None

    def ready(self, state: LoopState[Any], keys: Key[Array, " seed"]) -> tuple[_Advance, float]:
        """The program, and the time that it took to compile where it had not been yet."""
        if self.compiled is not None:
            return self.compiled, 0.0
        self.compiled, compile_s = compile_ahead(self._advance, (state, keys, jnp.int32(0), jnp.int32(1)))
        return self.compiled, compile_s

    def _advance(
        self, state: LoopState[Any], keys: Key[Array, " seed"], first: Int[Array, ""], number: Int[Array, ""]
    ) -> tuple[LoopState[Any], Metrics]:
        """The state after these iterations, and metrics with an axis for iterations; zeros for those not made."""

        def one(state: LoopState[Any], iteration: Int[Array, ""]) -> tuple[LoopState[Any], Metrics]:
            return self.loop.iterate(state, keys, iteration)

        if self.most == 1:
            return jax.lax.scan(one, state, first + jnp.arange(1, dtype=jnp.int32))
        shapes = jax.eval_shape(lambda state: one(state, first)[1], state)
        logged: Metrics = {name: jnp.zeros((self.most, *each.shape), each.dtype) for name, each in shapes.items()}

        def advance(
            carry: tuple[Int[Array, ""], LoopState[Any], Metrics],
        ) -> tuple[Int[Array, ""], LoopState[Any], Metrics]:
            i, state, logged = carry
            state, metrics = one(state, first + i)
            return i + 1, state, {name: logged[name].at[i].set(each) for name, each in metrics.items()}

        _, state, logged = jax.lax.while_loop(lambda carry: carry[0] < number, advance, (jnp.int32(0), state, logged))
        return state, logged


@lru_cache(maxsize=8)
def _program(loop: Loop[Any], number: int, seeds: int) -> _Program:
    """What has been compiled so far for a loop."""
    return _Program(loop, number)


@lru_cache(maxsize=8)
def _init(loop: Loop[Any]) -> Callable[[Key[Array, " seed"]], LoopState[Any]]:
    return jax.jit(loop.init)
