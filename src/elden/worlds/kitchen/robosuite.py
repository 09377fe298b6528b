"""The kitchen with physics as a Gymnasium environment: `elden/KitchenRobosuite-v0`.

The same factors, actions, stages, reward and rules of the local graph as the twin, `elden/Kitchen-v0`, whose own
functions judge every step. What a step leads to comes from robosuite: poses from the simulation, what is held from the
fingers' contacts, the switch from its button.

robosuite is optional (`make robosuite`). It is imported when an environment is made, never before.
"""

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Num, UInt8

from elden.worlds.base import Transition, WorldState
from elden.worlds.gym import Action, Info, Option, WorldEnv
from elden.worlds.kitchen import table
from elden.worlds.kitchen.table import NOTHING, TARGETS
from elden.worlds.kitchen.twin import Kitchen

if TYPE_CHECKING:
    from elden.worlds.kitchen.physics import KitchenSimulation
    from elden.worlds.kitchen.skills import Outcome

_PICTURE = (480, 640)
_SETTLING = 15
"""Ticks in which things come to rest at the start of an episode."""


class RobosuiteMissingError(ImportError):
    """robosuite, or a library that it draws with, cannot be imported."""


def make_simulation() -> "KitchenSimulation":
    """The scene in robosuite.

    Raises:
        RobosuiteMissingError: It cannot be imported. The message says what to do.
    """
    os.environ.setdefault("MUJOCO_GL", "egl")
    try:
        from elden.worlds.kitchen.physics import KitchenSimulation
    except ModuleNotFoundError as error:
        raise RobosuiteMissingError(
            f"elden/KitchenRobosuite-v0 needs robosuite 1.5.2, and {error.name!r} is not there. `make robosuite` makes"
            " .venv-robosuite with everything it needs. The twin, elden/Kitchen-v0, needs none of it."
        ) from error
    except (ImportError, OSError, AttributeError) as error:
        raise RobosuiteMissingError(_no_pictures(error)) from error
    return KitchenSimulation()


def _no_pictures(error: Exception) -> str:
    return (
        f"MuJoCo could not load a library to draw with (MUJOCO_GL={os.environ.get('MUJOCO_GL', '')}): {error}."
        " `apt-get install libegl1 libegl-mesa0 libgl1-mesa-dri` brings one for MUJOCO_GL=egl, which needs no GPU;"
        " `apt-get install libosmesa6` one for MUJOCO_GL=osmesa. MUJOCO_GL=disabled goes without pictures."
    )


@lru_cache(maxsize=8)
def _compiled_plan(world: Kitchen) -> Any:
    """From state and action: the view after heat, its events, whether the skill can be done, and what it aims at."""

    def plan(values: Float[Array, " value"], action: Int[Array, ""]) -> dict[str, Any]:
        warm, events = world.heat(world.unpack(values))
        goals = world.goals(warm)
        every = jnp.stack([goals[target] for target in TARGETS])
        return {
            "warm": warm,
            "events": events,
            "can": world.applicable(warm)[action],
            "goals": jax.vmap(table.to_metres)(every),
            "taken": table.within_reach(warm),
        }

    return jax.jit(plan)


@lru_cache(maxsize=8)
def _compiled_conclude(world: Kitchen) -> Any:
    """From what the simulation did: the new state and the transition, by the rules of the twin."""

    def conclude(
        state: WorldState,
        action: Int[Array, ""],
        plan: dict[str, Any],
        values: Num[Array, " value"],
        done: dict[str, Any],
    ) -> tuple[WorldState, Transition]:
        skills = done["skills"]
        events = table.skill_events(plan["warm"], skills, done["moving"], done["taken"], done["turned"], done["fallen"])
        return world.conclude(state, action, world.unpack(values), plan["events"] | events)

    return jax.jit(conclude)


class KitchenRobosuiteEnv(WorldEnv):
    """One episode at a time of the kitchen in robosuite.

    Initial states are drawn as the twin draws them: with the same seed both start alike. With
    `reset(options={"state": ...})` they start from a given state, also with something in the hand. Beside the twin's,
    `info` holds `noop` (the skill could not be done; a tick passed), `slip` (something was not taken, not pressed, or
    lost on the way) and `n_ticks` (twentieths of a second that the step took).
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012 - as Gymnasium declares it
    world: Kitchen

    def __init__(self, render_mode: str | None = None, **options: Option) -> None:
        """Make the environment; options are those of the twin, but for randomness, which is the simulation's own."""
        for name in ("skill_noise", "skill_failure"):
            if options.get(name):
                raise ValueError(f"{name}={options[name]!r} given; only the twin has made-up randomness")
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode={render_mode!r} given; there are 'rgb_array' and None")
        super().__init__("kitchen", render_mode, **options)
        self._simulation = make_simulation()
        from elden.worlds.kitchen.skills import Hand

        self._hand = Hand(self._simulation)
        self._told: Info = {}
        self._initial_state: WorldState | None = None
        self._last: Transition | None = None

    @property
    def current(self) -> WorldState:
        """The state as the simulation has it, in the form of the twin's."""
        return self._current()

    @property
    def initial_state(self) -> WorldState:
        """The state that this episode was asked to begin with: where the twin would begin."""
        if self._initial_state is None:
            raise gymnasium.error.ResetNeeded("there is no initial state yet: call reset()")
        return self._initial_state

    @property
    def transition(self) -> Transition:
        """The last step, in the form of the twin's."""
        if self._last is None:
            raise gymnasium.error.ResetNeeded("no step has been taken yet")
        return self._last

    def render(self) -> UInt8[np.ndarray, "height width 3"] | None:
        """A picture of the scene, if `render_mode` asks for one."""
        if self.render_mode is None:
            return super().render()  # type: ignore[no-any-return]
        return self.picture(*_PICTURE)

    def picture(self, height: int, width: int) -> UInt8[np.ndarray, "height width 3"]:
        """A picture of the scene.

        Raises:
            RobosuiteMissingError: There is nothing to draw with.
        """
        meatball = self.state()["meatball"]
        try:
            return self._simulation.picture(
                height, width, float(np.asarray(meatball["cook"])), bool(meatball["overcooked"])
            )
        except (ImportError, AttributeError, RuntimeError) as error:
            raise RobosuiteMissingError(_no_pictures(error)) from error

    def close(self) -> None:
        """Let go of the simulation."""
        self._simulation.close_pictures()
        super().close()

    # What differs from the twin.

    def _begun(self, state: WorldState) -> WorldState:
        """Set the scene, let it come to rest, and look at it."""
        self._initial_state = state
        view = self.world.unpack(state.values)
        named = {name: np.asarray(value, np.float64) for name, value in view.items()}
        held = int(table.held(view))
        with self._simulation.one_core():
            self._set_scene(named, held)
        self._told = self._notes(noop=False, slip=False, ticks=0)
        values = self._look(named, held)
        begun: WorldState = self.world.begin(jnp.asarray(values), state.succeeded)
        return begun

    def _taken(self, action: Action) -> Transition:
        """Heat, then the skill, then a look at what has come of it."""
        before, number = self._current(), jnp.int32(action)
        plan = _compiled_plan(self.world)(before.values, number)
        skill, taken = self.action_names[int(action)], int(plan["taken"])
        if bool(plan["events"]["melted"]):
            self._simulation.melt()
        outcome: Outcome | None = None
        with self._simulation.one_core():
            if bool(plan["can"]):
                outcome = self._hand.perform(skill, self._goal(skill, plan), taken)
            else:
                self._hand.wait()
        slipped = outcome is not None and outcome.slipped
        self._told = self._notes(noop=outcome is None, slip=slipped, ticks=self._hand.ticks)
        warm = {name: np.asarray(value) for name, value in plan["warm"].items()}
        values = jnp.asarray(self._look(warm, self._hand.held))
        done = self._done(skill, outcome, taken)
        self._state, self._last = _compiled_conclude(self.world)(before, number, plan, values, done)
        return self.transition

    @staticmethod
    def _goal(skill: str, plan: dict[str, Any]) -> Float[np.ndarray, "3"] | None:
        """Where a move ends; None for other skills."""
        target = skill.removeprefix("to_")
        return np.asarray(plan["goals"][TARGETS.index(target)], np.float64) if target in TARGETS else None

    def _extra(self) -> Info:
        return self._told

    def _notes(self, noop: bool, slip: bool, ticks: int) -> Info:
        return {"noop": noop, "slip": slip, "n_ticks": ticks}

    def _done(self, skill: str, outcome: "Outcome | None", taken: int) -> dict[str, Any]:
        """What has happened, as `table.skill_events` asks for it."""
        skills = dict.fromkeys(self.action_names, False)
        if outcome is None:
            nothing = {"butter": False, "pot": False}
            return _arrays(skills, False, NOTHING, nothing, (False,) * 4)
        moves = skill.startswith("to_")
        skills[skill] = outcome.done or moves
        if not outcome.done:
            # Lost on the way: it was let go. A press that missed was a way to the switch.
            skills["drop"] |= moves
            skills["to_switch"] |= skill == "toggle"
        moving = outcome.moving and (moves or not outcome.done)
        return _arrays(skills, moving, taken, outcome.turned, outcome.fallen)

    def _look(self, named: Mapping[str, np.ndarray], held: int) -> Float[np.ndarray, " value"]:
        """The observation: poses from the simulation, levels as given, the grip by what is held."""
        simulation = self._simulation
        seen: dict[str, Any] = {
            "robot.eef_pos": simulation.eef,
            **{f"{name}.pos": simulation.place(name) for name in ("butter", "meatball", "pot", "stove", "switch")},
        }
        seen = {name: np.clip(table.to_units(place.astype(np.float32)), -1, 1) for name, place in seen.items()}
        seen |= {f"{name}.quat": simulation.turn(name) for name in ("butter", "pot")}
        seen |= {"robot.grip": table.GRIPS[held], "switch.on": simulation.switch_on}
        parts = [np.atleast_1d(seen.get(name, named[name])) for name in self.world.factors.variable_names]
        return np.concatenate(parts).astype(np.float32)

    def _set_scene(self, named: Mapping[str, np.ndarray], held: int) -> None:
        """Arm, things and switch as given. What is held is kept where it is while the fingers close on it."""
        from elden.worlds.kitchen.skills import THINGS

        simulation, hand = self._simulation, self._hand
        simulation.clear()
        eef = np.asarray(table.to_metres(jnp.asarray(named["robot.eef_pos"], jnp.float32)), np.float64)
        places = {
            name: np.asarray(table.to_metres(jnp.asarray(named[f"{name}.pos"], jnp.float32)), np.float64)
            for name in ("butter", "meatball", "pot", "stove", "switch")
        }
        hand.begin(eef)
        for name, place in places.items():
            simulation.put(name, place, named.get(f"{name}.quat"))
        simulation.switch_on = bool(named["switch.on"])
        if float(named["butter.melt"]) >= 1:
            simulation.melt()
        thing = THINGS[held]
        if held:
            hand.hold(held, places[thing], named.get(f"{thing}.quat"))
        for _ in range(_SETTLING):
            hand.wait()


def _arrays(
    skills: dict[str, bool], moving: bool, taken: int, turned: dict[str, bool], fallen: tuple[bool, ...]
) -> dict[str, Any]:
    """Plain values as arrays, for compiled functions."""
    return {
        "skills": {name: jnp.asarray(flag) for name, flag in skills.items()},
        "moving": jnp.asarray(moving),
        "taken": jnp.int32(taken),
        "turned": {name: jnp.asarray(flag) for name, flag in turned.items()},
        "fallen": jnp.asarray(fallen),
    }


def check() -> str:
    """Make the environment, take a step, draw a picture: what an installation must be able to do.

    Raises:
        RobosuiteMissingError: It is not whole.
    """
    env = KitchenRobosuiteEnv(render_mode="rgb_array")
    env.reset(seed=0)
    _, _, _, _, info = env.step(env.action_names.index("to_butter"))
    picture = env.render()
    env.close()
    if info["noop"] or picture is None or len(np.unique(picture)) < 2:
        raise RobosuiteMissingError("the kitchen runs, but its arm does not move or its pictures are empty")
    return f"robosuite works: to_butter took {info['n_ticks']} ticks"


if __name__ == "__main__":
    try:
        print(check())
    except RobosuiteMissingError as error:
        raise SystemExit(str(error)) from None
