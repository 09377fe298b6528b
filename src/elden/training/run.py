"""A training run on the host: compiled iterations, with logs, checkpoints and time limits between them.

Everything that an iteration does depends on its number, the seed and the state before it. So a training run that was
stopped or killed, and then continues from the last state that was kept, makes the same numbers as one that was never
interrupted. Environments of others are the exception: where they are cannot be kept, so new episodes begin.
"""

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from elden.ahead import compile_ahead
from elden.hosts.world import HostConfig, HostWorld, UntrustedModuleError
from elden.names import PREFIX
from elden.provenance import code_digest, provenance
from elden.storage.arrays import VERSIONS
from elden.storage.checkpoints import Checkpoints, Kept
from elden.storage.files import StorageError
from elden.storage.folder import SUMMARY, RunFolder, RunFolderError, is_number, read_config
from elden.storage.plain import from_plain, plain
from elden.storage.resumable import LONG_S, SAVE_EVERY_S, Deadline, Reached, Resumable
from elden.training.algorithm import Loop, LoopState
from elden.training.config import TrainingConfig
from elden.training.host import HostProgram
from elden.training.rollout import Metrics
from elden.worlds.base import World
from elden.worlds.registry import make, world_card

_log = logging.getLogger(__name__)

SeedMetrics: TypeAlias = dict[str, list[float]]
"""Metrics of one iteration, a number for each seed."""

Progress: TypeAlias = Callable[[int, int, SeedMetrics], None]
"""Called with the iterations done and to be done, and the metrics of the last one."""

_CALL_S = 60.0
_YEAR_S = 365.25 * 86_400

_MAY_BE_MISSING = ("episode/", "stage/", "graph/")
"""Metrics that are NaN in a rollout in which no episode ends, or no graph is read."""


class NotFiniteError(ArithmeticError):
    """A number of a training run is not finite; the message says which part's, and when."""


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
        save_every_s: float = SAVE_EVERY_S,
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
        self.states = Checkpoints(
            self.folder.checkpoints,
            "agents",
            _identity_of_states(identity),
            keep=keep,
            advice=f"elden resume {folder} --start-over begins again at step 0",
        )
        self.save_every_s = save_every_s
        self.deadline = deadline or Deadline()
        self.progress = progress
        self.command = command
        self.call_began: float | None = None
        """When the call that is running began, of `time.monotonic`; None while there is none."""
        self.last_call: Call | None = None
        """The call that has ended last in this sitting."""
        self._kept_s = 0.0
        """Seconds of training behind the state that was kept last."""
        self._unkept_s = 0.0
        """Seconds of training that no state holds, when the call began that is running."""

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
        try:
            if config["version"] != VERSIONS["agents"]:
                raise RunFolderError(
                    f"{folder} was made by another version of elden, whose states this one cannot read"
                )
            world, settings = config["world"], from_plain(TrainingConfig, config["training"])
            if not isinstance(world, dict) or not isinstance(world["name"], str):
                raise ValueError(f"its world is {world!r}")
            return cls(world_of_card(world, trust, step_limit_s), settings, folder, **options)
        except (StorageError, UntrustedModuleError):
            raise
        except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:  # edited by hand
            raise RunFolderError(f"{folder} holds no training run that can continue: {error}") from None

    @classmethod
    def extend(cls, folder: Path, steps: int, trust: str | None = None, step_limit_s: float | None = None) -> None:
        """Let a training run, finished or not, have more steps.

        The result is as if it had had them from the start, but where the learning rate falls: there it continues
        with the rate that a training run of the new length has at this point. So do the schedules of learnt masks.

        Args:
            folder: The run folder.
            steps: Steps of each seed in all.
            trust: As for `open`.
            step_limit_s: As for `open`.

        Raises:
            RunFolderError: The folder holds no training run, or one that cannot have so many steps.
        """
        training = cls.open(folder, trust=trust, step_limit_s=step_limit_s)
        config, rollout = training.config, training.config.loop.steps_per_iteration
        known = config.loop.iterations * rollout
        if steps <= known:
            raise RunFolderError(
                f"{folder} has {known} steps already, in rollouts of {rollout}; --steps {steps} given, which is no more"
            )
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
        return {"world": card_of_world(world), "training": config, "version": VERSIONS["agents"]}

    @property
    def finished(self) -> bool:
        """Whether the results are there."""
        return self.folder.finished

    @property
    def breakable_since(self) -> float | None:
        """When the call began that is running, of `time.monotonic`, if hardly more than itself would be lost with it.

        None where no call is running, or states behind which more than half a minute of training is are not kept.
        """
        return self.call_began if self._unkept_s <= LONG_S else None

    @property
    def begins_episodes_anew(self) -> bool:
        """Whether a state is kept from which the training can continue only with new episodes."""
        return isinstance(self.world, HostWorld) and bool(self.states.numbers)

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
        loop, begun = self.config.loop, self._begin()
        try:
            with self._programs(begun.number) as program_of:
                end = Resumable(
                    total=loop.iterations,
                    steps="iterations",
                    advance=partial(self._advance, program_of),
                    save=self._save,
                    deadline=self.deadline,
                    save_every_s=self.save_every_s,
                ).run(begun)
        finally:
            self.folder.close()
        self.folder.write_summary({**self._summary(end), "metrics": self.folder.seal()})
        return end.state

    def _advance(self, program_of: "_ProgramOf", at: "_Reached") -> "tuple[_Reached, Callable[[], None]]":
        """Some iterations, and what logs them.

        Raises:
            NotFiniteError: A number of them is not finite.
        """
        total = self.config.loop.iterations
        program, compile_s = program_of(min(self.iterations_per_call, total)).ready(at.state, self.keys)
        number = self._next(at.number)
        self._unkept_s, self.call_began = at.clock.train_s - self._kept_s, time.monotonic()
        try:
            state, metrics = program(at.state, self.keys, jnp.int32(at.number), jnp.int32(number))
            logged = list(_by_iteration(metrics))[:number]
            self.last_call = Call(at.number + number, number, time.monotonic() - self.call_began)
        finally:  # what follows, such as keeping the state, is not to be broken off
            self.call_began = None
        clock = at.clock.plus(compile_s, self.last_call.seconds)
        for i, each in enumerate(logged):
            self._check(at.number + i, each)

        def log() -> None:
            for i, each in enumerate(logged, 1):
                self._log(at.number + i, each)

        return Reached(at.number + number, state, clock), log

    def _next(self, done: int) -> int:
        """How many iterations the next call has: one at first, then as many as take a minute, or until the deadline.

        What the warm-up takes says nothing of iterations in which agents learn, so these begin with one again.

        Args:
            done: How many there are behind it.
        """
        warmup, left = self.config.loop.warmup_iterations, self.config.loop.iterations - done
        if self.last_call is None or done == warmup:
            return 1
        if done < warmup:
            left = warmup - done
        seconds = _CALL_S if self.deadline.at_s is None else min(_CALL_S, self.deadline.at_s - time.monotonic())
        fit = int(seconds / max(self.last_call.each_s, 1e-6))
        return max(1, min(self.iterations_per_call, left, fit))

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
        """The newest whole state on disk, under its number of iterations; None where nothing was kept yet.

        Raises:
            DamagedDataError: All that was kept is damaged.
        """
        return self.states.restore(lambda: _init(self.loop)(self.keys))

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of the metrics. Where they are not those that were written, a warning says so.

        Raises:
            RunFolderError: One is damaged.
        """
        lines = self.folder.metrics(self.config.seeds)
        self.folder.check_seal((self.summary() if self.finished else self.states.newest_card()).get("metrics"))
        return lines

    def summary(self) -> dict[str, Any]:
        """The results.

        Raises:
            RunFolderError: They are damaged.
        """
        summary = self.folder.read_summary()
        seeds = summary.get("seeds")
        warnings = summary.get("warnings", [])
        if not (isinstance(seeds, list) and all(map(_is_result, seeds)) and _is_list_of(str, warnings)):
            file = self.folder.path / SUMMARY
            raise RunFolderError(f"{file} holds no results of a training run; remove it, and resume writes it again")
        return summary

    def start_over(self) -> None:
        """Remove states, metrics and results: training begins again at step 0.

        Raises:
            RunFolderError: Another process is training in the folder, or files of others are among the states.
        """
        with self.folder.locked():
            if foreign := self.states.foreign():
                raise RunFolderError(
                    f"{foreign} is not elden's, or has lost the card.json that says so; remove it, or move it away"
                )
            self.states.clear()
            self.folder.begin_again()

    def _begin(self) -> "_Reached":
        """The last state that was kept, or the first one of all."""
        lines, kept = self.metrics(), self.kept()
        if lines and kept is None:
            _log.warning(
                "%s holds no state, so training begins at step 0; its %d lines of metrics are dropped",
                self.states.folder,
                len(lines),
            )
        begun = Reached(0, _init(self.loop)(self.keys)) if kept is None else Reached.of(kept)
        self.folder.forget_after(begun.number * self.config.loop.steps_per_iteration)
        self._kept_s = begun.clock.train_s
        return begun

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

    def _save(self, at: "_Reached") -> None:
        # A state is never ahead of its metrics.
        self.states.save(at.number, at.state, {"metrics": self.folder.seal(), "clock": asdict(at.clock)})
        self._kept_s = at.clock.train_s

    def _warnings(self, state: LoopState[Any], last: list[dict[str, Any]]) -> list[str]:
        """What is wrong with a training run that has come to its end, in words."""
        leaves = [np.abs(np.asarray(leaf)) for leaf in jax.tree.leaves(state.policy.network)]
        largest = np.max([leaf.reshape(self.config.seeds, -1).max(1, initial=0.0) for leaf in leaves], axis=0)
        entropy = last[0].get("policy/entropy") if last else None
        return [
            f"the policy of seed {seed} has run away: it always takes the same action (entropy {value:.2g}), and its"
            f" parameters are as large as {size:.3g}; try a smaller --ppo.learning-rate or a larger --ppo.entropy"
            for seed, value, size in zip(self.config.all_seeds, entropy or [], largest, strict=False)
            if value is not None and value < _NO_ENTROPY and size > _LARGE
        ]

    def _summary(self, end: "_Reached") -> dict[str, object]:
        loop, lines, clock = self.config.loop, self.metrics(), end.clock
        steps = loop.iterations * loop.steps_per_iteration
        last = [line for line in lines if float(str(line["step"])) > 0.9 * steps]
        seeds = [_summary_of_seed(seed, index, lines, last) for index, seed in enumerate(self.config.all_seeds)]
        return {
            **provenance(self.command),
            "world": self.world.name,
            "bonus": self.config.bonus_name,
            "warnings": self._warnings(end.state, lines[-1:]),
            "seeds": seeds,
            "env_steps": steps,
            "compile_s": clock.compile_s,
            "wall_s": clock.train_s,
            "steps_per_s": steps * self.config.seeds / clock.train_s if clock.train_s > 0 else None,
        }


_RESULTS = {"seed", "success_rate", "success_rate_solvable", "normalized_stage", "first_success_step"}
"""What the summary says of each seed."""


def _is_result(seed: object) -> bool:
    """Whether this is what a summary says of a seed: numbers, or nothing where there is none."""
    return (
        isinstance(seed, dict)
        and set(seed) >= _RESULTS
        and all(seed[name] is None or is_number(seed[name]) for name in _RESULTS)
    )


def _is_list_of(kind: type, values: object) -> bool:
    return isinstance(values, list) and all(isinstance(value, kind) for value in values)


_NO_ENTROPY, _LARGE = 1e-3, 100.0
"""A policy that takes always the same action has hardly any entropy; parameters as large as these have run away."""


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

    none: list[float] = [0.0] * (index + 1)
    solved = [line["step"] for line in lines if (line.get("episode/success", none)[index] or 0) > 0]
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
_Reached: TypeAlias = Reached[LoopState[Any]]


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
    """Some iterations as one compiled program; the call says how many."""

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
