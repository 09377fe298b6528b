"""Many environments of somebody else's side by side, each in its process, with flat observations."""

import contextlib
import multiprocessing
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from jaxtyping import Bool, Float, Int, Num

from elden.hosts.refusals import EnvironmentHangsError, close_quietly, hangs, time_limit
from elden.hosts.worker import EnvironmentFailedError, EnvMaker
from elden.hosts.world import HostWorld, flat

if TYPE_CHECKING:
    _AsyncVectorEnv = AsyncVectorEnv[Any, Any]
else:
    _AsyncVectorEnv = AsyncVectorEnv

_CLOSING_S = 2.0


@dataclass(frozen=True)
class HostStep:
    """One step of all environments.

    Attributes:
        next_obs: The true observations after the step, also where an episode has ended.
        following: What is observed next: the first of the next episode where one has ended.
        reward: The task's reward.
        terminated: Whether the step ended the task.
        truncated: Whether the episode was cut off.
        success: Whether the task has been solved in the episode.
        stages: Which stages have been reached in the episode.
        graph: The true local graph; None where it is not asked for, or not reported.
    """

    next_obs: Num[np.ndarray, "env width"]
    following: Num[np.ndarray, "env width"]
    reward: Float[np.ndarray, " env"]
    terminated: Bool[np.ndarray, " env"]
    truncated: Bool[np.ndarray, " env"]
    success: Bool[np.ndarray, " env"]
    stages: Bool[np.ndarray, "env stage"]
    graph: Bool[np.ndarray, "env dst src"] | None

    @property
    def done(self) -> Bool[np.ndarray, " env"]:
        """Whether the episode is over."""
        done: Bool[np.ndarray, " env"] = self.terminated | self.truncated
        return done


class Hosts:
    """Environments that are stepped together. An episode that ends is followed by the next one in the same step.

    Success is what `info["success"]` (or "is_success") tells, once true for the rest of the episode. Where an
    environment never tells it, an episode counts as solved as soon as its rewards add up to more than 0.
    """

    def __init__(self, world: HostWorld, number: int, graphs: bool = False) -> None:
        """Make the environments.

        Args:
            world: What they are.
            number: How many.
            graphs: Whether true local graphs are asked for.

        Raises:
            EnvironmentFailedError: One of them cannot be made.
        """
        self.world, self.number = world, number
        self.vector: Any = None
        self._gives_success, self._success = np.zeros(number, np.bool_), np.zeros(number, np.bool_)
        self._stages = np.zeros((number, len(world.stage_names)), np.bool_)
        self._return = np.zeros(number, np.float64)
        makers = [world.config.maker(i, graphs) for i in range(number)]
        try:
            with self._named("while it was made"):
                if world.config.processes:
                    _Processes(self, makers)
                else:
                    with time_limit(world.config.step_limit_s):
                        self.vector = SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Hosts":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def reset(self, seeds: Sequence[int]) -> Num[np.ndarray, "env width"]:
        """Begin episodes, each environment's randomness coming from its own seed from now on."""
        with self._named("in reset"):
            obs, info = self._call("reset", seed=list(map(int, seeds)))
            self._forget(np.ones(self.number, np.bool_))
            self._stages |= self._stages_in(info, np.ones(self.number, np.bool_))
            return flat(self.world.factors, obs, (self.number,))

    def step(self, actions: Int[np.ndarray, " env"]) -> HostStep:
        """Take a step in every environment."""
        with self._named("in step"):
            obs, reward, terminated, truncated, info = self._call("step", actions + self.world.first_action)
            done = terminated | truncated
            following = flat(self.world.factors, obs, (self.number,))
            last = self._last(info, done)
            success, stages = self._progress(info, last, reward, done)
            step = HostStep(
                next_obs=self._true(following, info, done),
                following=following,
                reward=reward.astype(np.float32),
                terminated=terminated,
                truncated=truncated & ~terminated,
                success=success,
                stages=stages,
                graph=self._graph(info, last, done),
            )
            if done.any():
                self._forget(done)
                self._stages[done] |= self._stages_in(info, done)[done]
            return step

    def close(self) -> None:
        """Close the environments, and end their processes, whatever state they are in."""
        vector, self.vector = self.vector, None
        if vector is None:
            return
        if isinstance(vector, _Processes):
            vector.end()
        else:
            close_quietly(vector, self.world.config.step_limit_s)
            vector.closed = True  # what is left of it must not try again when it is collected

    def _call(self, what: str, *given: Any, **options: Any) -> Any:
        """Reset or step all environments, none of which may take longer than the limit."""
        limit = self.world.config.step_limit_s
        if isinstance(self.vector, _Processes):
            getattr(self.vector, f"{what}_async")(*given, **options)
            return self.vector.waited(what, limit)
        with time_limit(limit):
            return getattr(self.vector, what)(*given, **options)

    @contextlib.contextmanager
    def _named(self, what: str) -> Iterator[None]:
        """Report failures of environments as such, by name; the caller closes the rest."""
        name = self.world.name
        try:
            with warnings.catch_warnings():
                # The error itself is raised here; Gymnasium warns of it too.
                warnings.filterwarnings("ignore", message=r"(?s).*ERROR: ", category=UserWarning)
                yield
        except EnvironmentFailedError as error:
            raise EnvironmentFailedError(str(error)) from None
        except EnvironmentHangsError as error:
            raise EnvironmentFailedError(f"an environment of {name} hangs {what}: {error}") from None
        except _TooLongError as error:
            which = f"environment {error.number} of {name} hangs" if error.number >= 0 else f"{name} hangs"
            limit = hangs(self.world.config.step_limit_s)
            raise EnvironmentFailedError(f"{which} {what}: {limit}") from None
        except (EOFError, ConnectionError) as error:
            which = "".join(f"environment {number} of " for number in self._gone()[:1]) or "an environment of "
            raise EnvironmentFailedError(
                f"the process of {which}{name} is gone ({what}); it ended without an error that Python could tell,"
                " such as a crash or lack of memory"
            ) from error
        except (ValueError, RuntimeError, gymnasium.error.Error) as error:
            raise EnvironmentFailedError(f"{name}, {what}: {error}") from error

    def _gone(self) -> list[int]:
        """Numbers of the environments whose processes have ended."""
        processes = list(getattr(self.vector, "processes", ()))
        # Not `is_alive`: a process that has closed everything may not be done dying.
        ended = connection.wait([process.sentinel for process in processes], _CLOSING_S)
        return [number for number, process in enumerate(processes) if process.sentinel in ended]

    def _forget(self, which: Bool[np.ndarray, " env"]) -> None:
        """New episodes in these environments."""
        self._success[which], self._stages[which], self._return[which] = False, False, 0.0

    def _last(self, info: dict[str, Any], done: Bool[np.ndarray, " env"]) -> dict[str, Any]:
        """The info of the steps themselves, of environments whose episode has ended."""
        last = info.get("final_info", {})
        return last if done.any() and isinstance(last, dict) else {}

    def _true(
        self, following: Num[np.ndarray, "env width"], info: dict[str, Any], done: Bool[np.ndarray, " env"]
    ) -> Num[np.ndarray, "env width"]:
        obs = following.copy()
        for i in np.flatnonzero(done):
            obs[i] = flat(self.world.factors, info["final_obs"][i], ())
        return obs

    def _progress(
        self,
        info: dict[str, Any],
        last: dict[str, Any],
        reward: Float[np.ndarray, " env"],
        done: Bool[np.ndarray, " env"],
    ) -> tuple[Bool[np.ndarray, " env"], Bool[np.ndarray, "env stage"]]:
        """Success and stages of the episodes up to this step."""
        success, given = _pick(info, last, "success", done)
        self._return += reward
        self._gives_success |= given
        if success is not None:
            self._success |= given & success
        self._success |= ~self._gives_success & (self._return > 0)
        self._stages |= np.where(done[:, None], self._stages_in(last, done), self._stages_in(info, ~done))
        if not self._gives_stages:
            self._stages[:, 0] = self._success
        return self._success.copy(), self._stages.copy()

    @property
    def _gives_stages(self) -> bool:
        return self.world.stage_names != ("success",)

    def _stages_in(self, info: dict[str, Any], which: Bool[np.ndarray, " env"]) -> Bool[np.ndarray, "env stage"]:
        """The stages that info tells of; none of environments that it tells nothing of."""
        nothing = np.zeros((self.number, len(self.world.stage_names)), np.bool_)
        stages, says = info.get("stages"), info.get("_stages")
        if not self._gives_stages or stages is None or says is None:
            return nothing
        if stages.shape != nothing.shape:
            raise ValueError(
                f"stages of shape {stages.shape[1:]} given; those of the first step were {nothing.shape[1:]}"
            )
        found: Bool[np.ndarray, "env stage"] = np.where((which & says)[:, None], stages, nothing)
        return found

    def _graph(
        self, info: dict[str, Any], last: dict[str, Any], done: Bool[np.ndarray, " env"]
    ) -> Bool[np.ndarray, "env dst src"] | None:
        graph: Bool[np.ndarray, "env dst src"] | None
        graph, says = _pick(info, last, "local_graph", done)
        if graph is None or not says.all():
            return None
        n = self.world.factors.num_variables
        if graph.shape[1:] != (n, n + 1):
            raise ValueError(f"local graphs of shape {graph.shape[1:]} given; expected is {(n, n + 1)}")
        return graph


class _TooLongError(Exception):
    """A process has not answered in time: that of the environment of this number, -1 if it is not known."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class _Processes(_AsyncVectorEnv):
    """Environments in processes of their own, which their owner can end even if not all of them come to life."""

    def __init__(self, owner: Hosts, makers: Sequence[EnvMaker]) -> None:
        owner.vector = self
        limit = owner.world.config.step_limit_s
        self.making_s = None if limit == 0 else limit
        with time_limit(limit):  # one of them is made here, to see what it is made of
            # A fork would take along JAX's threads and locks, in whatever state they are.
            super().__init__(makers, context="spawn", autoreset_mode=AutoresetMode.SAME_STEP)

    def _check_spaces(self) -> None:
        """Wait for all processes to come to life, but not for ever."""
        late = threading.Event()

        def end() -> None:
            late.set()
            for process in self.processes:
                process.kill()

        watch = threading.Timer(self.making_s or threading.TIMEOUT_MAX, end)
        watch.daemon = True
        watch.start()
        try:
            super()._check_spaces()  # type: ignore[no-untyped-call]
        except (EOFError, ConnectionError):
            if late.is_set():
                raise _TooLongError(-1) from None
            raise
        finally:
            watch.cancel()

    def waited(self, what: str, limit: float) -> Any:
        """What all environments answer, once the last of them has."""
        try:
            return getattr(self, f"{what}_wait")(timeout=None if limit == 0 else limit)
        except multiprocessing.TimeoutError:
            raise _TooLongError(next(i for i, pipe in enumerate(self.parent_pipes) if not pipe.poll(0))) from None

    def end(self) -> None:
        """Let environments close themselves, and end those that do not in time."""
        pipes = [pipe for pipe in getattr(self, "parent_pipes", ()) if pipe is not None]
        processes = list(getattr(self, "processes", ()))
        for pipe in pipes:
            with contextlib.suppress(OSError, ValueError):
                pipe.send(("close", None))
        for how in (None, "terminate", "kill"):
            for process in processes:
                if how is not None and process.is_alive():
                    getattr(process, how)()
            limit = time.monotonic() + _CLOSING_S
            for process in processes:
                process.join(max(0.0, limit - time.monotonic()))
        for pipe in pipes:
            pipe.close()
        self.closed = True  # what is left of it must not try again when it is collected


def _pick(
    info: dict[str, Any], last: dict[str, Any], name: str, done: Bool[np.ndarray, " env"]
) -> tuple[Any, Bool[np.ndarray, " env"]]:
    """What the info of the steps tells: of episodes that have ended, that of their last step; and who tells it."""
    parts = [(source.get(name), source.get(f"_{name}"), which) for source, which in ((info, ~done), (last, done))]
    known = [(value, says & which) for value, says, which in parts if value is not None and says is not None]
    if not known:
        return None, np.zeros(done.shape, np.bool_)
    chosen = np.zeros_like(known[0][0])
    heard = np.zeros(done.shape, np.bool_)
    for value, says in known:
        chosen[says], heard = value[says], heard | says
    return chosen, heard


def env_seeds(seed: int, start: int, number: int) -> list[int]:
    """A seed for each environment of an agent: different for all agents, starts and environments.

    Args:
        seed: The agent's seed.
        start: The iteration at which environments are begun.
        number: How many there are.
    """
    states = (np.random.SeedSequence((seed, start, i)).generate_state(1)[0] for i in range(number))
    return [int(state) >> 1 for state in states]
