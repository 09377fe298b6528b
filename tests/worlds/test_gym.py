"""The Gymnasium face: Gymnasium's own checks, named states, refusals that change nothing, and the vector form.

The vector environment is held against Gymnasium's `SyncVectorEnv` of single ones.
"""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from jaxtyping import Array, Bool, Num

from elden.registration import IDS
from elden.worlds import WORLDS, Empty, ImpossibleStateError
from elden.worlds.gym import WorldEnv, WorldVectorEnv

LENGTH = 8
"""Steps of an episode: the same nearly everywhere, for every other number would have to be compiled again."""

Named = dict[str, dict[str, Any]]
Layout = Mapping[str, Mapping[str, int | gymnasium.spaces.Box]]


@dataclass(frozen=True)
class Case:
    """A world with a profile: what it is made with, and what must come out."""

    env_id: str
    options: dict[str, Any]
    layout: Layout
    """Entity -> variable -> number of values, or the space of a continuous variable, in order."""
    actions: str
    hidden: Layout = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{entity}.{variable}" for entity, parts in self.layout.items() for variable in parts)


PLACE = {"x": 10, "y": 10}
AGENT = {"agent": {**PLACE, "dir": 4}}
TOOLS = ("stick", "wood_pickaxe", "stone_pickaxe", "rope", "bridge")
CRAFTS = " ".join(f"craft_{tool}" for tool in TOOLS)
INVENTORY = {"inventory": dict.fromkeys(("gem", "grass", "wood", "stone", *TOOLS), 6)}
KINDS = {"gem": [""], "water": "0123", "grass": "01", "wood": "01234", "stone": "0", "workshop": [""]}
THINGS = [f"{kind}{number}" for kind, numbers in KINDS.items() for number in numbers]
PLACES = dict.fromkeys(THINGS, PLACE)
FRIDGE, FISH = {"fridge": {**PLACE, "open": 2}}, {"fish": {**PLACE, "frozen": 6}}
RAG, SINK = {"rag": {**PLACE, "soak": 6, "clean": 6}}, {"sink": {**PLACE, "on": 2}}
CAR, SOAP, BUCKET = {"car": {**PLACE, "stained": 2}}, {"soap": PLACE}, {"bucket": PLACE}
CHAIN = {
    "agent": {"at": 8},
    **{f"link{k}": {"level": 2} for k in range(4)},
    "inert0": {"value": 10},
    "noisy0": {"value": 10},
    "intricate0": {"v0": 10, "v1": 10, "v2": 10},
}
CHAIN_ACTIONS = " ".join([*(f"goto_{entity}" for entity in CHAIN if entity != "agent"), "touch"])
POSITION, QUAT, LEVEL, GRIP = (
    gymnasium.spaces.Box(low, 1.0, (size,), np.float32) for low, size in ((-1.0, 3), (-1.0, 4), (-1.0, 1), (0.0, 1))
)
KITCHEN: Layout = {
    "robot": {"eef_pos": POSITION, "grip": GRIP},
    "butter": {"pos": POSITION, "quat": QUAT, "melt": LEVEL},
    "meatball": {"pos": POSITION, "cook": LEVEL, "overcooked": 2},
    "pot": {"pos": POSITION, "quat": QUAT},
    "stove": {"pos": POSITION},
    "switch": {"pos": POSITION, "on": 2},
}
KITCHEN_ACTIONS = "to_butter to_meatball to_pot to_handle to_stove to_switch grasp drop toggle"
CASES = {
    "thawing-skills": Case(
        "elden/Thawing-v0",
        {"profile": "skills"},
        AGENT | FISH | {"sink": PLACE} | FRIDGE,
        "goto_fish goto_fridge goto_sink open close pick_fish drop_fish",
    ),
    "thawing-primitives": Case(
        "elden/Thawing-v0",
        {"profile": "primitives"},
        AGENT | FRIDGE | SINK | FISH,
        "left right forward open close toggle pick drop_fish",
    ),
    "carwash-skills": Case(
        "elden/CarWash-v0",
        {"profile": "skills"},
        AGENT | RAG | SOAP | SINK | CAR | BUCKET,
        "goto_rag goto_soap goto_bucket pick_soap drop_soap pick_rag drop_rag toggle goto_car goto_sink",
        {"shelf": PLACE},
    ),
    "carwash-primitives": Case(
        "elden/CarWash-v0",
        {"profile": "primitives"},
        AGENT | CAR | {"bucket": {**PLACE, "soapy": 2}} | SOAP | SINK | RAG,
        "left right forward pick toggle drop_soap drop_rag",
        {"shelf": PLACE},
    ),
    "minecraft-skills": Case(
        "elden/Minecraft2D-v0",
        {"profile": "skills"},
        AGENT | INVENTORY | PLACES,
        f"use {' '.join(f'goto_{thing}' for thing in THINGS)} {CRAFTS}",
    ),
    "minecraft-primitives": Case(
        "elden/Minecraft2D-v0",
        {"profile": "primitives"},
        AGENT | PLACES | INVENTORY,
        f"down up left right use {CRAFTS}",
    ),
    "kitchen": Case("elden/Kitchen-v0", {}, KITCHEN, KITCHEN_ACTIONS),
    "empty-primitives": Case("elden/Empty-v0", {"profile": "primitives"}, AGENT, "left right forward"),
    "chain": Case("elden/Chain-v0", {}, CHAIN, CHAIN_ACTIONS),
    "chain-continuous": Case("elden/Chain-v0", {"continuous": True}, CHAIN, CHAIN_ACTIONS),
}
FEW = ["thawing-skills", "chain-continuous"]
VECTOR = ["thawing-skills", "carwash-primitives", "chain-continuous", "empty-primitives"]
"""Compiling the batch takes long: one world of each make."""
every_case = pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.slow) if name in ("thawing-primitives", "minecraft-primitives") else case
        for name, case in CASES.items()
    ],
    ids=CASES.keys(),
)
few_cases = pytest.mark.parametrize("case", [CASES[name] for name in FEW], ids=FEW)
vector_cases = pytest.mark.parametrize("case", [CASES[name] for name in VECTOR], ids=VECTOR)


def single(case: Case, **options: Any) -> WorldEnv:
    options = {"max_steps": LENGTH, **case.options, **options}
    env = gymnasium.make(case.env_id, disable_env_checker=True, **options).unwrapped
    assert isinstance(env, WorldEnv)
    return env


def vector(case: Case, num_envs: int = 3, **options: Any) -> WorldVectorEnv:
    options = {"max_steps": LENGTH, **case.options, **options}
    env = gymnasium.make_vec(case.env_id, num_envs=num_envs, **options)
    assert isinstance(env, WorldVectorEnv)
    return env


def in_sync(case: Case, num_envs: int = 3, **options: Any) -> VectorEnv[Any, Any, Any]:
    """Gymnasium's own vector form of the single environment."""
    makers = [lambda: single(case, **options)] * num_envs
    return SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP)


def assert_same(ours: Any, theirs: Any, where: str = "") -> None:
    """Equal in structure, types, shapes and values."""
    assert type(ours) is type(theirs), f"{where}: {ours!r} for {theirs!r}"
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys(), where
        for key in theirs:
            assert_same(ours[key], theirs[key], f"{where}/{key}")
    elif isinstance(theirs, tuple | list) or (isinstance(theirs, np.ndarray) and theirs.dtype == object):
        assert len(ours) == len(theirs), where
        for k, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            assert_same(a, b, f"{where}[{k}]")
    elif isinstance(theirs, np.ndarray):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), where
        np.testing.assert_array_equal(ours, theirs, err_msg=where)
    else:
        assert ours == theirs, where


def row(batch: Any, i: int) -> Any:
    """What environment i has of a batched observation or info; what is masked out is left out."""
    if not isinstance(batch, dict):
        return batch[i]
    shown = {key: value for key, value in batch.items() if not key.startswith("_")}
    return {key: row(value, i) for key, value in shown.items() if batch.get(f"_{key}", np.ones(i + 1))[i]}


def space_of(case: Case, entity: str) -> gymnasium.Space[Any]:
    """The observation space of an entity: one array, or where it has variables of both kinds one for each."""
    parts = case.layout[entity]
    boxes = [part for part in parts.values() if isinstance(part, gymnasium.spaces.Box)]
    if case.options.get("continuous"):
        return gymnasium.spaces.Box(0.0, 1.0, (len(parts),), np.float32)
    if not boxes:
        return gymnasium.spaces.MultiDiscrete([part for part in parts.values() if isinstance(part, int)])
    if len(boxes) == len(parts):
        low, high = (np.concatenate([getattr(box, end) for box in boxes]) for end in ("low", "high"))
        return gymnasium.spaces.Box(low, high, dtype=np.float32)
    each = [(name, gymnasium.spaces.Discrete(p) if isinstance(p, int) else p) for name, p in parts.items()]
    return gymnasium.spaces.Dict(each)


def observation(case: Case, state: Named) -> dict[str, Any]:
    """What is seen of a named state."""
    seen: dict[str, Any] = {}
    for entity in case.layout:
        values, space = state[entity], space_of(case, entity)
        if isinstance(space, gymnasium.spaces.Dict):
            seen[entity] = {
                name: np.asarray(values[name], part.dtype).reshape(part.shape)[()] for name, part in space.items()
            }
        else:
            seen[entity] = np.hstack(list(values.values())).astype(space.dtype)
    return seen


def changed(state: Named, **entities: dict[str, Any]) -> Named:
    """The state with some variables given other values."""
    return {name: {**parts, **entities.get(name, {})} for name, parts in state.items()}


# What an environment is.


def test_every_id_and_profile_is_looked_at_here() -> None:
    assert {case.env_id for case in CASES.values()} == set(IDS)
    assert set(IDS.values()) == set(WORLDS)
    for env_id, name in IDS.items():
        profiles = {case.options.get("profile") for case in CASES.values() if case.env_id == env_id}
        two = "profile" in WORLDS[name].option_names() and name != "empty"
        assert len(profiles) == (2 if two else 1)


@every_case
def test_gymnasium_finds_nothing_to_complain_about(case: Case) -> None:
    check_env(single(case))


def test_a_complaint_of_gymnasium_would_fail_a_test() -> None:
    env = gymnasium.make("elden/Empty-v0")
    with pytest.raises(UserWarning, match="different from the unwrapped version"):
        check_env(env)
    env.reset(seed=0)
    with pytest.raises(UserWarning, match="without a render_mode"):
        env.unwrapped.render()


@every_case
def test_names_and_spaces(case: Case) -> None:
    env = single(case)
    assert env.action_names == tuple(case.actions.split())
    assert env.action_space == gymnasium.spaces.Discrete(len(case.actions.split()))
    assert env.variable_names == case.names
    space: Any = env.observation_space
    assert isinstance(space, gymnasium.spaces.Dict)
    assert list(space.spaces) == list(case.layout)
    for entity in case.layout:
        assert space[entity] == space_of(case, entity)
    stages = {"Thawing": 3, "CarWash": 6, "Minecraft2D": 7, "Kitchen": 5, "Empty": 1, "Chain": 4}
    assert len(env.stage_names) == stages[case.env_id.removeprefix("elden/").removesuffix("-v0")]


def check_info(env: WorldEnv, info: dict[str, Any]) -> None:
    n = len(env.variable_names)
    assert list(info) == ["local_graph", "stages", "stage", "success"]
    assert (info["local_graph"].shape, info["local_graph"].dtype) == ((n, n + 1), bool)
    assert (info["stages"].shape, info["stages"].dtype) == ((len(env.stage_names),), bool)
    assert type(info["stage"]) is int
    assert info["stage"] == info["stages"].sum()
    assert type(info["success"]) is bool


@every_case
def test_info_and_observation_through_an_episode(case: Case) -> None:
    env = single(case)
    obs, info = env.reset(seed=4)
    env.action_space.seed(4)
    check_info(env, info)
    np.testing.assert_array_equal(info["local_graph"], np.eye(len(case.names), len(case.names) + 1, dtype=bool))
    assert not info["success"]
    stages = info["stages"]
    for step in range(1, LENGTH + 1):
        obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
        check_info(env, info)
        assert obs in env.observation_space
        assert_same(obs, observation(case, env.state()))
        assert (type(reward), reward) == (float, float(info["success"]))
        assert (terminated, truncated) == (False, step == LENGTH)
        assert np.all(info["stages"] >= stages)
        stages = info["stages"]


@few_cases
def test_what_comes_back_may_be_written_to(case: Case) -> None:
    """As with any Gymnasium environment: `np.fill_diagonal(info["local_graph"], False)` is no offence."""
    env = single(case)
    first, last = env.reset(seed=0), env.step(0)
    returned = {"reset": (first[0], first[1]), "step": (last[0], last[4])}
    locked = []
    for call, (obs, info) in returned.items():
        arrays = {**obs, "local_graph": info["local_graph"], "stages": info["stages"]}
        locked += [f"{name} of {call}" for name, array in arrays.items() if not array.flags.writeable]
    assert locked == []


@every_case
def test_seeds_decide_everything(case: Case) -> None:
    def run(seed: int) -> list[Any]:
        env = single(case)
        env.action_space.seed(1)
        seen: list[Any] = [env.reset(seed=seed)]
        seen += [env.step(env.action_space.sample()) for _ in range(LENGTH)]
        return [*seen, env.reset()]

    assert_same(run(5), run(5))
    if case.env_id != "elden/Empty-v0":
        assert str(run(5)) != str(run(6))


@every_case
def test_pictures(case: Case) -> None:
    env = single(case, render_mode="rgb_array")
    with pytest.raises(ResetNeeded, match="reset"):
        env.render()
    env.reset(seed=0)
    before = env.render()
    assert (before.dtype, before.ndim, before.shape[2]) == (np.uint8, 3, 3)
    assert before.min() < before.max()
    env.step(0)
    after = env.render()
    assert before.shape == after.shape
    assert not np.array_equal(before, after)

    words = single(case, render_mode="ansi")
    words.reset(seed=0)
    text = words.render()
    assert isinstance(text, str)
    assert "stage" in text
    assert f"0/{env.world.max_steps}" in text


def test_unknown_render_modes_are_refused() -> None:
    for maker in (WorldEnv, WorldVectorEnv):
        with pytest.raises(ValueError, match="render_mode='human' given; there are 'rgb_array', 'ansi' and None"):
            maker(world="empty", render_mode="human")


def test_importing_elden_is_enough_and_light() -> None:
    script = """
import sys
import elden, gymnasium
assert "jax" not in sys.modules, "import elden imports jax"
from elden.registration import ROBOSUITE_ID  # needs what is optional: tests/worlds/test_kitchen_robosuite.py
for env_id in [name for name in gymnasium.registry if name.startswith("elden/") and name != ROBOSUITE_ID]:
    print(env_id, gymnasium.make(env_id).unwrapped.world.name)
print(gymnasium.make_vec("elden:elden/Empty-v0", num_envs=2).num_envs)
"""
    result = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [*(f"{env_id} {name}" for env_id, name in IDS.items()), "2"]


# Steps out of turn.


def test_steps_before_reset_are_refused() -> None:
    env, envs = single(CASES["thawing-skills"]), vector(CASES["thawing-skills"], 2)
    for call in (lambda: env.step(0), env.state, lambda: envs.step(np.zeros(2, int)), envs.state):
        with pytest.raises(ResetNeeded, match=r"reset\(\)"):
            call()


@pytest.mark.parametrize("stop", [False, True], ids=["truncated", "terminated"])
def test_steps_after_the_end_are_refused(stop: bool) -> None:
    env = single(CASES["empty-primitives"], size=4, max_steps=3, terminate_on_success=stop)
    env.reset(seed=0)
    results = [env.step(action) for action in (2, 1, 2)]
    assert [result[2:4] for result in results] == [(False, False), (False, False), (stop, not stop)]
    state = env.state()
    for _ in range(2):
        with pytest.raises(ResetNeeded, match="the episode is over"):
            env.step(0)
    assert env.state() == state
    env.reset()
    env.step(0)


def test_the_end_of_an_episode() -> None:
    """Two steps and a turn lead to the goal of the smallest room."""
    way = (2, 1, 2, 0, 0)

    def run(**options: bool) -> list[tuple[float, bool, bool, bool]]:
        env = single(CASES["empty-primitives"], size=4, max_steps=5, **options)
        env.reset(seed=0)
        steps = []
        for action in way:
            _, reward, terminated, truncated, info = env.step(action)
            steps.append((reward, terminated, truncated, info["success"]))
            if terminated or truncated:
                break
        return steps

    before, over = (0.0, False, False, False), (1.0, True, False, True)
    paid, unpaid = (1.0, False, False, True), (0.0, False, False, True)
    assert run() == [before, before, paid, paid, (1.0, False, True, True)]
    assert run(pay_once=True) == [before, before, paid, unpaid, (0.0, False, True, True)]
    assert run(terminate_on_success=True) == [before, before, over]


# Named states.


@every_case
def test_states_from_play_go_in_as_they_come_out(case: Case) -> None:
    env, other = single(case), single(case)
    env.action_space.seed(2)
    layout = {entity: list(parts) for entity, parts in {**case.layout, **case.hidden}.items()}
    for seed in range(4):
        env.reset(seed=seed)
        for _ in range(LENGTH):
            env.step(env.action_space.sample())
        state: Any = env.state()
        assert state == json.loads(json.dumps(state))
        assert {entity: list(parts) for entity, parts in state.items()} == layout
        obs, info = other.reset(options={"state": state})
        assert other.state() == state
        assert_same(obs, observation(case, state))
        assert not info["success"]
        _, info = other.reset(options={"state": state, "succeeded": True})
        assert info["success"]
        assert info["stages"].all()


@pytest.mark.parametrize(
    "name",
    [
        "carwash-primitives",
        *(pytest.param(f"{name}-primitives", marks=pytest.mark.slow) for name in ("thawing", "minecraft")),
    ],
)
def test_a_given_state_goes_on_like_the_one_it_was_taken_from(name: str) -> None:
    """Primitives have no chance in them: all the state there is, is in the named form."""
    env, other = single(CASES[name]), single(CASES[name])
    for seed in range(8):
        env.reset(seed=seed)
        for step, action in enumerate(np.random.default_rng(seed).integers(len(env.action_names), size=LENGTH)):
            if step == 2:
                other.reset(options={"state": env.state()})
            ours = env.step(action)
            if step >= 2:
                theirs = other.step(action)
                assert_same(ours[0], theirs[0])
                assert_same(ours[4]["local_graph"], theirs[4]["local_graph"])
                assert env.state() == other.state()


def test_the_hidden_shelf_is_part_of_the_state() -> None:
    """What is not observed still stands in the way."""
    env = single(CASES["carwash-primitives"])
    state: Named = {
        "agent": {"x": 3, "y": 4, "dir": 0},
        "car": {"x": 1, "y": 1, "stained": 1},
        "bucket": {"x": 7, "y": 1, "soapy": 0},
        "soap": {"x": 8, "y": 8},
        "sink": {"x": 2, "y": 6, "on": 0},
        "rag": {"x": 7, "y": 8, "soak": 0, "clean": 5},
        "shelf": {"x": 4, "y": 4},
    }
    away = changed(state, shelf={"x": 6, "y": 4})
    forward = env.action_names.index("forward")
    here_obs, _ = env.reset(options={"state": state})
    assert env.state()["shelf"] == {"x": 4, "y": 4}
    blocked: Any = env.step(forward)[0]
    there_obs, _ = env.reset(options={"state": away})
    moved: Any = env.step(forward)[0]
    assert_same(here_obs, there_obs)
    assert "shelf" not in here_obs
    assert (blocked["agent"].tolist(), moved["agent"].tolist()) == ([3, 4, 0], [4, 4, 0])
    with pytest.raises(ImpossibleStateError, match="missing entity: 'shelf'"):
        env.reset(options={"state": {name: parts for name, parts in state.items() if name != "shelf"}})


def test_whole_floats_and_numpy_numbers_are_good_values() -> None:
    env = single(CASES["empty-primitives"])
    env.reset(options={"state": {"agent": {"x": 3.0, "y": np.int64(4), "dir": np.float32(2)}}})
    assert env.state() == {"agent": {"x": 3, "y": 4, "dir": 2}}


def test_the_latch_of_a_given_state() -> None:
    env = single(CASES["empty-primitives"], pay_once=True)
    state = {"agent": {"x": 2, "y": 2, "dir": 0}}
    _, info = env.reset(options={"state": state, "succeeded": True})
    assert info["success"]
    _, reward, terminated, _, info = env.step(0)
    assert (reward, terminated, info["success"]) == (0.0, False, True)
    _, info = env.reset(options={"state": state})
    assert not info["success"]


@pytest.mark.parametrize(
    ("name", "entity", "variables", "action"),
    [
        ("empty-primitives", "agent", {"x": 8, "y": 8, "dir": 2}, "forward"),
        ("thawing-skills", "fish", {"frozen": 0}, "open"),
    ],
)
def test_the_last_stage_is_success_also_where_the_goal_is_given(
    name: str, entity: str, variables: dict[str, int], action: str
) -> None:
    """From a given state in which the goal holds, which the very next step undoes (in the fridge fish freezes)."""
    env = single(CASES[name])
    env.reset(seed=0)
    _, info = env.reset(options={"state": changed(env.state(), **{entity: variables})})
    assert info["stages"][-1] == info["success"]
    *_, info = env.step(env.action_names.index(action))
    assert info["stages"][-1] == info["success"]


@pytest.mark.slow
def test_solvable_layouts_can_be_asked_for() -> None:
    """About a fifth of CarWash's layouts have something needed shut in."""
    env, only = single(CASES["carwash-skills"]), single(CASES["carwash-skills"], solvable_only=True)
    ways: list[tuple[WorldEnv, dict[str, bool]]] = [(env, {}), (env, {"solvable": True}), (only, {})]
    states = []
    for maker, options in ways:
        for seed in range(40):
            maker.reset(seed=seed, options=options)
            states.append(env.world.all_factors.from_named(maker.state()))

    def judge(values: Num[Array, " value"]) -> Bool[Array, ""]:
        return env.world.solvable(env.world.begin(values))

    any_layout, asked, always = np.asarray(jax.jit(jax.vmap(judge))(np.stack(states))).reshape(3, 40)
    assert 0.5 < any_layout.mean() < 1.0
    assert asked.all()
    assert always.all()
    np.testing.assert_array_equal(states[40:80], states[80:])


# Refusals. Whatever is refused changes nothing: neither the state nor what chance brings next.


@cache
def model(name: str) -> tuple[WorldEnv, WorldEnv]:
    return single(CASES[name]), single(CASES[name])


def twins(name: str) -> tuple[WorldEnv, WorldEnv]:
    """Two environments in the same state, with the same chances ahead."""
    one, other = model(name)
    for env in (one, other):
        env.reset(seed=7)
        for action in (0, 1, 0):
            env.step(action)
    return one, other


def assert_nothing_changed(one: WorldEnv, other: WorldEnv) -> None:
    assert one.state() == other.state()
    for action in (0, 1, 2, 0):
        assert_same(one.step(action), other.step(action))
    assert_same(one.reset(), other.reset())
    assert_same(one.step(0), other.step(0))


Spoil = Callable[[Named], Any]


def put(**entities: dict[str, Any]) -> Spoil:
    return lambda state: changed(state, **entities)


def onto(entity: str, target: str) -> Spoil:
    """Put a thing into the cell of another."""

    def spoil(state: Named) -> Named:
        place = {axis: state[target][axis] for axis in ("x", "y")}
        return changed(state, **{entity: place})

    return spoil


def without(entity: str, variable: str | None = None) -> Spoil:
    def spoil(state: Named) -> Named:
        if variable is None:
            return {name: parts for name, parts in state.items() if name != entity}
        return {**state, entity: {name: value for name, value in state[entity].items() if name != variable}}

    return spoil


IMPOSSIBLE: list[tuple[str, Spoil, str]] = [
    ("thawing-skills", onto("sink", "fridge"), "impossible state: .*the fridge and the sink share a cell"),
    ("thawing-skills", onto("agent", "sink"), "impossible state: the agent stands in the sink"),
    ("thawing-skills", put(agent={"x": 0}), "the agent stands outside the walls"),
    ("thawing-skills", put(agent={"y": 9}), "the agent stands outside the walls"),
    ("thawing-skills", put(fish={"x": 9, "y": 3}), "the fish lies outside the walls"),
    ("thawing-skills", put(fish={"x": 0, "y": 3}), "the fish lies outside the walls"),
    ("thawing-skills", put(sink={"x": 8}), "the sink reaches outside the walls"),
    ("thawing-skills", put(fridge={"x": 0}), "the fridge reaches outside the walls"),
    ("thawing-skills", put(fish={"frozen": 6}), "fish.frozen: 6 is out of range; .*0..5"),
    ("thawing-skills", put(fish={"frozen": -1}), "fish.frozen: -1 is out of range; .*0..5"),
    ("thawing-skills", put(agent={"dir": 4}), "agent.dir: 4 is out of range; .*0..3"),
    ("thawing-skills", put(fish={"frozen": 1.5}), "fish.frozen: 1.5 is not an integer; allowed are 0..5"),
    ("thawing-skills", put(fish={"frozen": float("nan")}), "fish.frozen: nan is not an integer"),
    ("thawing-skills", put(fish={"frosen": 1}), "unknown variable of 'fish' 'frosen'; did you mean 'frozen'?"),
    ("thawing-skills", lambda state: {**state, "fidge": state["fridge"]}, "'fidge'; did you mean 'fridge'?"),
    ("thawing-skills", without("fridge"), "missing entity: 'fridge'"),
    ("thawing-skills", without("fish", "frozen"), "missing variable of 'fish': 'frozen'"),
    ("thawing-skills", lambda _: {}, "missing entity: 'agent', 'fish', 'sink', 'fridge'"),
    ("thawing-primitives", put(fish={"x": 0, "y": 0}), "the fish lies outside the walls"),
    ("thawing-primitives", onto("agent", "fridge"), "the agent stands in the fridge"),
    ("carwash-skills", onto("shelf", "car"), "the shelf and the car share a cell"),
    ("carwash-skills", onto("agent", "shelf"), "the agent stands in the shelf"),
    ("carwash-skills", put(shelf={"x": 1, "y": 7}), "the shelf reaches outside the walls"),
    ("carwash-skills", without("shelf"), "missing entity: 'shelf'"),
    ("carwash-skills", put(rag={"soak": 6}), "rag.soak: 6 is out of range"),
    ("carwash-skills", put(car={"stained": 2}), "car.stained: 2 is out of range"),
    ("minecraft-skills", onto("grass0", "wood3"), "grass0 and wood3 share a cell"),
    ("minecraft-skills", onto("water3", "workshop"), "water3 and workshop share a cell"),
    ("minecraft-skills", onto("agent", "stone0"), "the agent stands in stone0"),
    ("minecraft-skills", put(wood0={"x": 9, "y": 4}), "wood0 is outside the boundary"),
    ("minecraft-skills", put(wood0={"x": 0, "y": 4}), "wood0 is outside the boundary"),
    ("minecraft-skills", put(workshop={"x": 0, "y": 0}), "workshop is outside the boundary"),
    ("minecraft-skills", put(agent={"x": 0, "y": 0}), "the agent stands outside the boundary"),
    ("minecraft-skills", put(inventory={"bridge": 6}), "inventory.bridge: 6 is out of range; .*0..5"),
    ("minecraft-skills", put(inventory={"brigde": 1}), "'brigde'; did you mean 'bridge'?"),
    ("empty-primitives", put(agent={"x": 9}), "the agent stands outside the walls"),
    ("empty-primitives", put(agent={"x": 10}), "agent.x: 10 is out of range; .*0..9"),
    ("chain", put(agent={"at": 8}), "agent.at: 8 is out of range; .*0..7"),
    ("chain", put(link1={"level": 0.5}), "link1.level: 0.5 is not an integer"),
    ("chain-continuous", put(agent={"at": 0.3}), "agent.at is not a multiple of 1/7"),
    ("chain-continuous", put(noisy0={"value": 1.01}), "noisy0.value: 1.01 is out of range"),
    ("kitchen", put(robot={"grip": 0.7}), "impossible state: robot.grip is none of 1, 0.375, 0.5 and 0.15"),
    ("kitchen", put(pot={"pos": [0.0, 0.0]}), "pot.pos: expected 3 numbers"),
    ("kitchen", put(switch={"on": 0.5}), "switch.on: 0.5 is not an integer"),
]


@pytest.mark.parametrize(("name", "spoil", "message"), IMPOSSIBLE, ids=[f"{n}: {m}" for n, _, m in IMPOSSIBLE])
def test_impossible_states_are_refused_and_change_nothing(name: str, spoil: Spoil, message: str) -> None:
    one, other = twins(name)
    state: Any = one.state()
    bad = spoil(state)
    world = CASES[name].env_id.removeprefix("elden/").removesuffix("2D-v0").removesuffix("-v0").lower()
    for seed in (None, 99):
        with pytest.raises(ImpossibleStateError, match=f"^{world}: .*{message}"):
            one.reset(seed=seed, options={"state": bad})
    assert_nothing_changed(one, other)


def test_all_that_is_wrong_is_said_at_once() -> None:
    one, _ = twins("thawing-skills")
    state: Any = one.state()
    bad = changed(state, agent={"x": 0}, fish={"x": 9, "y": 9})
    with pytest.raises(ImpossibleStateError, match="the agent stands outside the walls; the fish lies outside"):
        one.reset(options={"state": bad})


def test_a_refused_first_reset_is_no_reset() -> None:
    env = single(CASES["empty-primitives"])
    with pytest.raises(ImpossibleStateError):
        env.reset(seed=3, options={"state": {"agent": {"x": 0, "y": 0, "dir": 0}}})
    with pytest.raises(ResetNeeded):
        env.step(0)


def test_a_refused_reset_does_not_reopen_an_episode() -> None:
    env = single(CASES["empty-primitives"], max_steps=1)
    env.reset(seed=3)
    env.step(0)
    with pytest.raises(ValueError, match="no option"):
        env.reset(options={"seed": 1})
    with pytest.raises(ResetNeeded, match="over"):
        env.step(0)


def reset_mistakes(state: Any) -> Iterator[tuple[dict[str, Any], str]]:
    yield {"stat": state}, "reset has no option 'stat'; did you mean 'state'?"
    yield {"solveable": True}, "'solveable'; did you mean 'solvable'?"
    yield {"xyz": 1}, "reset has no option 'xyz'; there are 'state', 'succeeded', 'solvable'"
    yield {"succeeded": True}, "'succeeded' only goes with 'state'"
    yield {"state": state, "solvable": True}, "'solvable' and 'state' exclude each other"
    yield {"state": state, "solvable": False}, "'solvable' and 'state' exclude each other"


def test_mistaken_reset_options_are_refused_and_change_nothing() -> None:
    one, other = twins("thawing-skills")
    for options, message in reset_mistakes(one.state()):
        for seed in (None, 99):
            with pytest.raises(ValueError, match=re.escape(message)):
                one.reset(seed=seed, options=options)
    for seed in (-1, -5):
        with pytest.raises(gymnasium.error.Error, match="Seed"):
            one.reset(seed=seed, options={"state": one.state()})
    assert_nothing_changed(one, other)


def test_bad_actions_are_refused_and_change_nothing() -> None:
    one, other = twins("thawing-skills")
    for action in (-1, 7, 2**70, np.int64(-3), np.uint8(200)):
        with pytest.raises(ValueError, match=f"action {action} given; thawing takes an integer of these: 0 goto_"):
            one.step(action)
    assert_nothing_changed(one, other)


PLAIN = """
# Without the type checks of the test harness: what a user meets who gives values of a wrong type.
import json, sys
import gymnasium, numpy as np
import elden
from elden.worlds.gym import WorldEnv, WorldVectorEnv

def attempt(call):
    try:
        call()
    except Exception as error:
        return type(error).__name__, str(error)
    return "nothing raised", ""

def make():
    env = gymnasium.make("elden/Chain-v0", disable_env_checker=True).unwrapped
    env.reset(seed=3)
    return env

def make_vec():
    envs = gymnasium.make_vec("elden/Chain-v0", num_envs=3)
    envs.reset(seed=3)
    return envs

def follow(env, action):
    steps = [env.step(action) for _ in range(3)]
    return repr((env.state(), steps, env.reset(), env.step(action)))

state, states = make().state(), make_vec().state()
single = {
    "action None": lambda env: env.step(None),
    "action 1.0": lambda env: env.step(1.0),
    "action '1'": lambda env: env.step("1"),
    "action [1]": lambda env: env.step([1]),
    "action array([1])": lambda env: env.step(np.array([1])),
    "action float32": lambda env: env.step(np.float32(1)),
    "state None": lambda env: env.reset(options={"state": None}),
    "state 3": lambda env: env.reset(options={"state": 3}),
    "state 'abc'": lambda env: env.reset(options={"state": "abc"}),
    "state list": lambda env: env.reset(options={"state": states}),
    "entity 3": lambda env: env.reset(options={"state": {**state, "agent": 3}}),
    "entity None": lambda env: env.reset(options={"state": {**state, "agent": None}}),
    "entity key 1": lambda env: env.reset(options={"state": {**state, 1: {}}}),
    "value '1'": lambda env: env.reset(options={"state": {**state, "agent": {"at": "1"}}}),
    "value None": lambda env: env.reset(options={"state": {**state, "agent": {"at": None}}}),
    "value [1, 2]": lambda env: env.reset(options={"state": {**state, "agent": {"at": [1, 2]}}}),
    "value 10**30": lambda env: env.reset(options={"state": {**state, "agent": {"at": 10**30}}}),
    "succeeded 'no'": lambda env: env.reset(options={"state": state, "succeeded": "no"}),
    "succeeded None": lambda env: env.reset(options={"state": state, "succeeded": None}),
    "solvable 'no'": lambda env: env.reset(options={"solvable": "no"}),
    "option key 1": lambda env: env.reset(options={1: 2}),
    "seed 1.5": lambda env: env.reset(seed=1.5),
}
vector = {
    "actions None": lambda envs: envs.step(None),
    "actions 3": lambda envs: envs.step(3),
    "actions of 2": lambda envs: envs.step(np.zeros(2, int)),
    "actions of 3 x 1": lambda envs: envs.step(np.zeros((3, 1), int)),
    "actions float": lambda envs: envs.step(np.zeros(3)),
    "actions bool": lambda envs: envs.step(np.zeros(3, bool)),
    "actions with None": lambda envs: envs.step([0, None, 0]),
    "states None": lambda envs: envs.reset(options={"state": None}),
    "states 3": lambda envs: envs.reset(options={"state": 3}),
    "states with None": lambda envs: envs.reset(options={"state": [*states[:2], None]}),
    "each succeeded 'no'": lambda envs: envs.reset(options={"state": states, "succeeded": "no"}),
    "each succeeded 2": lambda envs: envs.reset(options={"state": states, "succeeded": 2}),
    "each succeeded None": lambda envs: envs.reset(options={"state": states, "succeeded": None}),
    "each seed 1.5": lambda envs: envs.reset(seed=[1, 2, 1.5]),
}
found = {}
for calls, maker, action in ((single, make, 0), (vector, make_vec, np.zeros(3, int))):
    for name, call in calls.items():
        env = maker()
        found[name] = *attempt(lambda: call(env)), follow(env, action) == follow(maker(), action)

envs = make_vec()
found["actions as a list"] = "", "", repr(envs.step([0, 1, 2])) == repr(make_vec().step(np.array([0, 1, 2])))
envs = make_vec()
kind, message = attempt(lambda: envs.reset(seed=np.int64(5)))
expected = make_vec()
if kind == "nothing raised":
    expected.reset(seed=5)
found["numpy seed"] = kind, message, follow(envs, np.zeros(3, int)) == follow(expected, np.zeros(3, int))

ids, mistakes = json.loads(sys.argv[1])
for world, options in mistakes:
    makers = [WorldEnv, WorldVectorEnv, lambda world, **options: elden.make(world, **options)]
    if world in ids:
        makers.append(lambda world, **options: gymnasium.make(ids[world], **options))
        makers.append(lambda world, **options: gymnasium.make_vec(ids[world], num_envs=2, **options))
    found[f"{world} {options}"] = [attempt(lambda: maker(world=world, **options)) for maker in makers]
print(json.dumps(found))
"""
IMPOSSIBLE_STATE, VALUE = "ImpossibleStateError", "ValueError"
REFUSED: list[tuple[str, str, str]] = [
    ("action ", VALUE, "takes an integer of these: 0 goto_link0"),
    ("actions ", VALUE, "3 environments take integers of shape (3,)"),
    ("state", IMPOSSIBLE_STATE, "chain: "),
    ("entity ", IMPOSSIBLE_STATE, "chain: "),
    ("value ", IMPOSSIBLE_STATE, "chain: agent.at: expected one number"),
    ("succeeded ", VALUE, "succeeded"),
    ("each succeeded ", VALUE, "succeeded"),
    ("solvable ", VALUE, "solvable"),
    ("option ", VALUE, "reset has no option 1"),
    ("each seed", "Error", "seeds are integers"),
    ("seed ", "Error", "Seed must be a python integer"),
]
"""How a call's name begins -> the error, and a part of its message."""
WRONG_TYPES = re.findall(r'^    "(.*)": lambda env', PLAIN, re.MULTILINE)
MISTAKES: list[tuple[str, dict[str, Any], str]] = [
    ("thawin", {}, "no world 'thawin'; did you mean 'thawing'"),
    ("Thawing", {}, "no world 'Thawing'; did you mean 'thawing'"),
    ("zzz", {}, "no world 'zzz'; there are 'thawing', 'carwash', 'minecraft', 'kitchen', 'empty', 'chain'"),
    ("thawing", {"sise": 12}, "thawing has no option 'sise'; did you mean 'size'?"),
    ("chain", {"size": 12}, "chain has no option 'size'; there are 'max_steps'"),
    ("thawing", {"size": "10"}, "option size='10' given; it takes a"),
    ("thawing", {"size": 10.0}, "option size=10.0 given; it takes a"),
    ("thawing", {"size": None}, "option size=None given; it takes a"),
    ("thawing", {"max_steps": True}, "option max_steps=True given; it takes a"),
    ("thawing", {"terminate_on_success": 1}, "option terminate_on_success=1 given; it takes True or False"),
    ("thawing", {"profile": 1}, "option profile=1 given; it takes a word"),
    ("thawing", {"profile": "skill"}, "profile='skill' given; thawing knows 'skills', 'primitives'"),
    ("empty", {"profile": "skills"}, "profile='skills' given; empty knows 'primitives'"),
    ("thawing", {"labels": "theirs"}, "labels='theirs' given; thawing knows 'fix', 'authors'"),
    ("carwash", {"goto": "walk"}, "goto='walk' given; carwash knows 'teleport', 'path'"),
    ("carwash", {"goto": "path", "profile": "primitives"}, "profile='primitives' has no goTo actions"),
    ("carwash", {"car_clean_lag": 2}, "car_clean_lag=2 given; it is 0 or 1"),
    ("carwash", {"reserved_actions": True, "profile": "primitives"}, "only profile='skills' has reserved actions"),
    ("minecraft", {"wood": 3}, "wood=3, grass=2 given; the gem takes 4 wood and 1 grass"),
    ("minecraft", {"wood": 50}, "size=10 is too small for minecraft with 50 wood and 2 grass"),
    ("chain", {"labels": "authors"}, "labels='authors' given, but chain is our own world"),
    ("chain", {"depth": 0}, "depth=0 given; chain needs at least 1"),
    ("kitchen", {"labels": "authors"}, "labels='authors' given, but the authors' kitchen is not public"),
    ("kitchen", {"layout": "huge"}, "layout='huge' given; kitchen knows 'narrow', 'wide'"),
    ("kitchen", {"skill_noise": 3.0}, "skill_noise=3.0 given; it is between 0 and 2"),
    ("kitchen", {"skill_failure": 1.0}, "skill_failure=1.0 given; it is at least 0 and below 1"),
    ("thawing", {"max_steps": 0}, "max_steps=0 given; an episode needs at least 1 step"),
    ("thawing", {"size": 7}, "size=7 is too small for thawing: its entities need at least 8"),
    ("carwash", {"size": 6}, "size=6 is too small for carwash: its entities need at least 7"),
    ("minecraft", {"size": 8}, "size=8 is too small for minecraft with 5 wood and 2 grass"),
    ("empty", {"size": 3}, "size=3 is too small for empty: its entities need at least 4"),
    ("empty", {"size": -3}, "size=-3 is too small for empty"),
]


@pytest.fixture(scope="module")
def met_by_a_user() -> dict[str, Any]:
    """What the calls of PLAIN lead to, each with whether the environment went on as if nothing had been."""
    ids = {name: env_id for env_id, name in IDS.items()}
    given = json.dumps([ids, [(world, options) for world, options, _ in MISTAKES]])
    result = subprocess.run([sys.executable, "-c", PLAIN, given], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.mark.parametrize("name", WRONG_TYPES)
def test_values_of_a_wrong_type_are_refused_and_change_nothing(met_by_a_user: dict[str, Any], name: str) -> None:
    kind, message, unchanged = met_by_a_user[name]
    [(_, expected_kind, part)] = [expected for expected in REFUSED if name.startswith(expected[0])]
    assert kind == expected_kind, message
    assert part in message
    assert unchanged


def test_a_list_of_actions_will_do(met_by_a_user: dict[str, Any]) -> None:
    assert met_by_a_user["actions as a list"][2]


def test_a_numpy_seed_works_or_changes_nothing(met_by_a_user: dict[str, Any]) -> None:
    """Gymnasium takes Python integers only; the vector form must not be left half seeded."""
    assert met_by_a_user["numpy seed"][2], met_by_a_user["numpy seed"][:2]


@pytest.mark.parametrize(("world", "options", "message"), MISTAKES, ids=[f"{w} {o}" for w, o, _ in MISTAKES])
def test_mistaken_options_are_refused(
    met_by_a_user: dict[str, Any], world: str, options: dict[str, Any], message: str
) -> None:
    results = met_by_a_user[f"{world} {options}"]
    assert len(results) == (5 if options else 3)
    for kind, said in results:
        assert kind == ("WorldOptionError" if options else "ValueError")
        assert message in said


# Many at once.


@vector_cases
def test_vector_spaces_and_infos(case: Case) -> None:
    envs, one = vector(case), single(case)
    assert envs.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    assert envs.single_observation_space == one.observation_space
    assert envs.single_action_space == one.action_space
    assert envs.action_space == gymnasium.spaces.MultiDiscrete([len(one.action_names)] * 3)
    assert (envs.action_names, envs.variable_names) == (one.action_names, one.variable_names)
    obs, info = envs.reset(seed=0)
    assert obs in envs.observation_space
    n, stages = len(one.variable_names), len(one.stage_names)
    shapes = {"local_graph": (3, n, n + 1), "stages": (3, stages), "stage": (3,), "success": (3,)}
    for _ in range(LENGTH + 2):
        assert {key: info[key].shape for key in shapes} == shapes
        assert [info[key].dtype for key in shapes] == [bool, bool, np.int64, bool]
        assert all(info[f"_{key}"].tolist() == [True] * 3 for key in shapes)
        assert {key.removeprefix("_") for key in info} - shapes.keys() <= {"final_obs", "final_info"}
        obs, reward, terminated, truncated, info = envs.step(envs.action_space.sample())
        assert obs in envs.observation_space
        assert [part.dtype for part in (reward, terminated, truncated)] == [np.float64, bool, bool]


def test_make_vec_in_every_mode() -> None:
    batched = gymnasium.make_vec("elden/Empty-v0", num_envs=2, vectorization_mode="vector_entry_point")
    assert isinstance(batched, WorldVectorEnv)
    assert isinstance(gymnasium.make_vec("elden/Empty-v0", num_envs=2), WorldVectorEnv)
    loop = gymnasium.make_vec("elden/Empty-v0", num_envs=2, vectorization_mode="sync", size=6)
    assert isinstance(loop, SyncVectorEnv)
    obs, _ = loop.reset(seed=0)
    assert obs["agent"].tolist() == [[1, 1, 0], [1, 1, 0]]
    obs, *_ = loop.step(np.array([2, 0]))
    assert obs["agent"].tolist() == [[2, 1, 0], [1, 1, 3]]
    with pytest.raises(ValueError, match="num_envs=0 given; at least 1"):
        gymnasium.make_vec("elden/Empty-v0", num_envs=0)


def test_many_episodes_are_those_of_gymnasiums_loop() -> None:
    """The empty room has no chance in it, so everything must be the same for as long as we look."""
    case = CASES["empty-primitives"]
    options = {"size": 4, "max_steps": 9, "terminate_on_success": True}
    ours, theirs = vector(case, 4, **options), in_sync(case, 4, **options)
    assert_same(ours.reset(seed=0), theirs.reset(seed=0))
    ends: Counter[str] = Counter()
    for actions in np.random.default_rng(0).integers(3, size=(120, 4)):
        result = ours.step(actions)
        assert_same(result, theirs.step(actions))
        ends["goal"] += int(result[2].sum())
        ends["time"] += int(result[3].sum())
    assert ends["goal"] >= 5
    assert ends["time"] >= 10


FIRST_EPISODES: dict[str, dict[str, Any]] = {
    "thawing-skills": {},
    "carwash-primitives": {},
    "chain-continuous": {},
    "kitchen": {},
    "chain": {"depth": 1, "terminate_on_success": True},
}


@pytest.mark.parametrize("name", FIRST_EPISODES)
def test_first_episodes_are_those_of_gymnasiums_loop(name: str) -> None:
    """From equal seeds come equal episodes, up to the layout drawn after the end."""
    case, options = CASES[name], FIRST_EPISODES[name]
    ours, theirs = vector(case, **options), in_sync(case, **options)
    assert_same(ours.reset(seed=11), theirs.reset(seed=11))
    lengths: dict[int, int] = {}
    for step, actions in enumerate(np.random.default_rng(1).integers(ours.world.num_actions, size=(LENGTH, 3)), 1):
        mine, other = ours.step(actions), theirs.step(actions)
        for i in {0, 1, 2} - lengths.keys():
            assert [part[i] for part in mine[1:4]] == [part[i] for part in other[1:4]]
            if mine[2][i] or mine[3][i]:
                lengths[i] = step
                check_last_step(row(mine[4], i), row(other[4], i))
            else:
                assert "final_obs" not in row(mine[4], i)
                assert_same(row(mine[0], i), row(other[0], i))
                assert_same(row(mine[4], i), row(other[4], i))
    assert len(lengths) == 3
    if options.get("terminate_on_success"):
        assert len(set(lengths.values())) > 1


def check_last_step(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """What belongs to the old episode is the same; of the new one, all but the layout."""
    for key in ("final_obs", "final_info"):
        assert_same(ours[key], theirs[key])
    assert ours.keys() == theirs.keys()
    assert_same(ours["local_graph"], theirs["local_graph"])
    assert (ours["stage"], ours["success"]) == (0, False)


@few_cases
def test_the_last_observation_is_not_lost(case: Case) -> None:
    envs, ones = vector(case), [single(case) for _ in range(3)]
    envs.reset(seed=[5, 6, 9])
    for env, seed in zip(ones, (5, 6, 9), strict=True):
        env.reset(seed=seed)
    for k in range(LENGTH):
        obs, _, _, truncated, info = envs.step(np.array([k % 3, 1, 2]))
        last = [env.step(action)[0] for env, action in zip(ones, (k % 3, 1, 2), strict=True)]
    assert truncated.all()
    assert_same(list(info["final_obs"]), last)
    assert info["_final_obs"].tolist() == [True] * 3
    firsts = [row(obs, i) for i in range(3)]
    assert_same(firsts, [observation(case, state) for state in envs.state()])
    assert len({str(first) for first in firsts}) == 3, "each draws a layout of its own"


def test_a_list_of_seeds() -> None:
    case = CASES["thawing-skills"]
    envs, one = vector(case), single(case)
    by_number, _ = envs.reset(seed=20)
    by_list, _ = envs.reset(seed=[20, 21, 22])
    assert_same(by_number, by_list)
    for i, seed in enumerate((20, 21, 22)):
        assert_same(row(by_list, i), one.reset(seed=seed)[0])
    mixed, _ = envs.reset(seed=[20, None, 22])
    assert_same(row(mixed, 0), row(by_list, 0))
    assert_same(row(mixed, 2), row(by_list, 2))


@pytest.mark.parametrize("seed", [20, [20, 21, 22]], ids=["number", "list"])
def test_seeds_also_decide_the_resets_that_follow(seed: Any) -> None:
    def run() -> list[Any]:
        envs = vector(CASES["thawing-skills"])
        return [envs.reset(seed=seed), envs.reset(), envs.step(np.zeros(3, int)), envs.reset()]

    assert_same(run(), run())


def test_states_for_all_and_for_each() -> None:
    case = CASES["carwash-primitives"]
    envs = vector(case)
    envs.reset(seed=0)
    states: list[Any] = envs.state()
    assert len({str(state) for state in states}) == 3
    obs, info = envs.reset(options={"state": states[::-1], "succeeded": [True, False, True]})
    assert envs.state() == states[::-1]
    assert_same([row(obs, i) for i in range(3)], [observation(case, state) for state in states[::-1]])
    assert info["success"].tolist() == [True, False, True]
    assert info["stage"][[0, 2]].tolist() == [6, 6]
    assert envs.step(np.zeros(3, int))[1].tolist() == [1.0, 0.0, 1.0]
    _, info = envs.reset(options={"state": states[1], "succeeded": True})
    assert envs.state() == [states[1]] * 3
    assert info["success"].all()


def vector_twins() -> tuple[WorldVectorEnv, WorldVectorEnv]:
    pair = vector(CASES["thawing-skills"]), vector(CASES["thawing-skills"])
    for envs in pair:
        envs.reset(seed=7)
        envs.step(np.array([0, 1, 2]))
    return pair


def assert_no_vector_changed(one: WorldVectorEnv, other: WorldVectorEnv) -> None:
    assert one.state() == other.state()
    for actions in ([0, 1, 2], [2, 1, 0]):
        assert_same(one.step(np.array(actions)), other.step(np.array(actions)))
    assert_same(one.reset(), other.reset())


def test_refusals_of_the_vector_form_change_nothing() -> None:
    one, other = vector_twins()
    states: list[Any] = one.state()
    bad = changed(states[1], agent={"x": 0})
    mistakes: list[tuple[dict[str, Any], str]] = [
        *reset_mistakes(states),
        ({"state": states[:2]}, "2 values of 'state' given for 3 environments"),
        ({"state": states, "succeeded": [True]}, "1 values of 'succeeded' given for 3 environments"),
        ({"state": [states[0], bad, states[2]]}, "the agent stands outside the walls"),
        ({"state": bad}, "the agent stands outside the walls"),
    ]
    for options, message in mistakes:
        for seed in (None, 99, [1, 2, 3]):
            with pytest.raises(ValueError, match=re.escape(message)):
                one.reset(seed=seed, options=options)
    for seeds in ([1, 2], [1, 2, 3, 4], []):
        with pytest.raises(ValueError, match=f"{len(seeds)} seeds given for 3 environments"):
            one.reset(seed=seeds)
    for seed in (-1, [1, 2, -3]):
        with pytest.raises(gymnasium.error.Error, match="Seed"):
            one.reset(seed=seed)
    assert_no_vector_changed(one, other)


def test_bad_actions_of_the_vector_form_change_nothing() -> None:
    one, other = vector_twins()
    for actions, message in (
        ([0, -1, 0], "action -1 given for environment 1; thawing takes 0..6"),
        ([0, 0, 7], "action 7 given for environment 2; thawing takes 0..6"),
        ([0, 0], "actions of shape (2,) and type int64 given; 3 environments take integers of shape (3,)"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            one.step(np.array(actions))
    assert_no_vector_changed(one, other)


def test_vector_results_may_be_written_to() -> None:
    envs = vector(CASES["thawing-skills"])
    envs.reset(seed=0)
    for _ in range(LENGTH):
        obs, reward, terminated, truncated, info = envs.step(np.zeros(3, int))
        arrays = {**obs, "reward": reward, "terminated": terminated, "truncated": truncated, **info}
        arrays |= arrays.pop("final_info", {})
        assert sorted(name for name, array in arrays.items() if not array.flags.writeable) == []


@pytest.mark.parametrize("mode", ["rgb_array", "ansi"])
def test_pictures_of_many(mode: str) -> None:
    case = CASES["carwash-primitives"]
    envs, env = vector(case, render_mode=mode), single(case, render_mode=mode)
    with pytest.raises(ResetNeeded):
        envs.render()
    envs.reset(seed=4)
    frames = envs.render()
    assert isinstance(frames, tuple)
    for i, frame in enumerate(frames):
        env.reset(seed=4 + i)
        assert_same(frame, env.render())
    mute = vector(case)
    mute.reset(seed=4)
    with pytest.raises(UserWarning, match="without a render_mode"):
        mute.render()


# Compiled once.


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts how often the functions of Empty are traced (or run without being compiled)."""
    counts: Counter[str] = Counter()

    def count(name: str) -> None:
        original = getattr(Empty, name)

        def counted(self: Empty, *args: Any) -> Any:
            counts[name] += 1
            return original(self, *args)

        monkeypatch.setattr(Empty, name, counted)

    for name in ("_draw", "_advance", "_violations", "_stages"):
        count(name)
    return counts


def test_a_second_environment_traces_nothing(traced: Counter[str]) -> None:
    def use() -> None:
        env = single(CASES["empty-primitives"], max_steps=21)
        env.reset(seed=0)
        for action in (0, 1, 2, np.int64(0), 2):
            env.step(action)
        env.reset()

    use()
    assert traced["_advance"] == 1
    once = Counter(traced)
    use()
    assert traced == once


def test_a_second_vector_environment_traces_nothing(traced: Counter[str]) -> None:
    def use() -> None:
        envs = vector(CASES["empty-primitives"], max_steps=3)
        envs.reset(seed=0)
        for action in (0, 1, 2, 2, 1, 0):
            envs.step(np.array([action, 0, 1]))
        envs.reset()

    use()
    assert traced["_advance"] == 1
    once = Counter(traced)
    use()
    assert traced == once


def test_a_second_given_state_traces_nothing(traced: Counter[str]) -> None:
    def use(x: int) -> None:
        case = CASES["empty-primitives"]
        env, envs = single(case, max_steps=23), vector(case, max_steps=23)
        state = {"agent": {"x": x, "y": 2, "dir": 0}}
        for _ in range(2):
            env.reset(options={"state": state, "succeeded": x == 3})
            env.step(0)
            envs.reset(options={"state": state})
            envs.step(np.zeros(3, int))

    use(2)
    once = Counter(traced)
    use(3)
    assert traced == once


# Gymnasium's wrappers.


@few_cases
def test_flattened_observations(case: Case) -> None:
    env = gymnasium.wrappers.FlattenObservation(single(case))
    obs, _ = env.reset(seed=0)
    sizes = [n for parts in case.layout.values() for n in parts.values() if isinstance(n, int)]
    raw, _ = single(case).reset(seed=0)
    flat = np.concatenate([raw[entity] for entity in case.layout])
    if case.options.get("continuous"):
        np.testing.assert_array_equal(obs, flat)
    else:
        np.testing.assert_array_equal(obs, np.concatenate([np.eye(n)[v] for n, v in zip(sizes, flat, strict=True)]))
    obs, *_ = env.step(0)
    assert obs in env.observation_space


def test_episode_statistics() -> None:
    """The goal is reached on step 3 of 5 and paid three times."""
    way = (2, 1, 2, 0, 0)
    made = gymnasium.make("elden/Empty-v0", size=4, max_steps=5)
    env = gymnasium.wrappers.RecordEpisodeStatistics(made)
    env.reset(seed=0)
    for action in way:
        *_, truncated, info = env.step(action)
    assert truncated
    assert (info["episode"]["r"], info["episode"]["l"]) == (3.0, 5)

    many = gymnasium.make_vec("elden/Empty-v0", num_envs=2, size=4, max_steps=5)
    envs = gymnasium.wrappers.vector.RecordEpisodeStatistics(many)
    envs.reset(seed=0)
    for action in way:
        *_, infos = envs.step(np.array([action, 0]))
    assert infos["final_info"]["success"].tolist() == [True, False]
    assert infos["episode"]["r"].tolist() == [3.0, 0.0]
    assert infos["episode"]["l"].tolist() == [5, 5]
