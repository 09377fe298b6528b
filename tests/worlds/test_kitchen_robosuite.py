"""The kitchen with physics: its face, every skill by contact, heat, given states, pictures, and the twin beside it.

All but the first tests need robosuite and run by `make test-robosuite`.
"""

import subprocess
import sys
from collections.abc import Iterator
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from elden.registration import IDS, ROBOSUITE_ID
from elden.worlds import ImpossibleStateError
from elden.worlds.gym import WorldEnv
from elden.worlds.kitchen import bridge as kitchen_bridge
from elden.worlds.kitchen import robosuite as robosuite_kitchen
from elden.worlds.kitchen import table
from elden.worlds.kitchen.robosuite import KitchenRobosuiteEnv, RobosuiteMissingError, make_simulation

Named = dict[str, dict[str, Any]]

with_robosuite = [
    pytest.mark.robosuite,
    pytest.mark.skipif(find_spec("robosuite") is None, reason="robosuite is not installed: make robosuite"),
    # Of robosuite, numba and PyOpenGL, on import.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def marked(test: Any) -> Any:
    for mark in with_robosuite:
        test = mark(test)
    return test


# Without robosuite.


def test_nothing_imports_robosuite_before_it_is_asked_for() -> None:
    lines = "import sys, gymnasium, elden, elden.cli.arguments, elden.worlds.kitchen.bridge"
    lines += "\nassert not {'robosuite', 'mujoco'} & set(sys.modules), 'imported'"
    subprocess.run([sys.executable, "-c", lines], check=True)


def test_where_robosuite_is_missing_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mujoco", None)
    monkeypatch.delitem(sys.modules, "elden.worlds.kitchen.physics", raising=False)
    with pytest.raises(RobosuiteMissingError, match=r"'mujoco' is not there. `make robosuite`"):
        make_simulation()


def test_its_id_is_registered_beside_the_twins() -> None:
    assert ROBOSUITE_ID in gymnasium.registry
    assert ROBOSUITE_ID not in IDS


def test_chance_and_text_are_refused_before_anything_is_loaded() -> None:
    with pytest.raises(ValueError, match=r"skill_noise=1\.0 given; only the twin"):
        KitchenRobosuiteEnv(skill_noise=1.0)
    with pytest.raises(ValueError, match="render_mode='ansi' given; there are 'rgb_array'"):
        KitchenRobosuiteEnv(render_mode="ansi")


# With it. One environment for all tests: each resets it.


@lru_cache(maxsize=1)
def shared() -> KitchenRobosuiteEnv:
    return KitchenRobosuiteEnv(render_mode="rgb_array")


@pytest.fixture
def env() -> Iterator[KitchenRobosuiteEnv]:
    yield shared()
    shared()._simulation.close_pictures()


@lru_cache(maxsize=1)
def twin() -> WorldEnv:
    return WorldEnv("kitchen")


def do(env: WorldEnv, *skills: str) -> dict[str, Any]:
    info: dict[str, Any] = {}
    for skill in skills:
        *_, info = env.step(env.action_names.index(skill))
    return info


def edges(env: WorldEnv, info: dict[str, Any]) -> set[tuple[str, str]]:
    graph, names = info["local_graph"], (*env.variable_names, "action")
    return {(names[i], names[j]) for i, j in zip(*np.nonzero(graph), strict=True) if i != j}


def metres(env: WorldEnv, thing: str) -> np.ndarray:
    variable = "eef_pos" if thing == "robot" else "pos"
    return np.asarray(env.state()[thing][variable]) * table.SPAN + table.MIDDLE


def over(place: np.ndarray, height: float, across: float = 0.0) -> np.ndarray:
    return np.array(place + np.array([across, 0, height]))


def units(place: np.ndarray) -> list[float]:
    return [float(number) for number in (place - table.MIDDLE) / table.SPAN]


def start(env: WorldEnv, seed: int = 0) -> Named:
    env.reset(seed=seed)
    state: Named = env.state()
    for thing in ("butter", "pot"):
        state[thing]["quat"] = [1.0, 0.0, 0.0, 0.0]
    return state


@marked
def test_it_has_the_face_of_the_twin(env: KitchenRobosuiteEnv) -> None:
    assert env.observation_space == twin().observation_space
    assert env.action_space == twin().action_space
    assert (env.action_names, env.variable_names) == (twin().action_names, twin().variable_names)
    assert env.stage_names == twin().stage_names
    obs, info = env.reset(seed=3)
    _, own = twin().reset(seed=3)
    assert set(info) == {*own, "noop", "slip", "n_ticks"}
    assert obs in env.observation_space
    np.testing.assert_array_equal(info["local_graph"], own["local_graph"])
    for thing in ("robot", "butter", "meatball", "pot", "stove", "switch"):
        assert np.linalg.norm(metres(env, thing) - metres(twin(), thing)) < 1.5e-3


@marked
def test_gymnasium_finds_nothing_to_complain_about() -> None:
    fresh = gymnasium.make(ROBOSUITE_ID, render_mode="rgb_array", max_steps=5)
    check_env(fresh.unwrapped)
    fresh.close()


@marked
def test_the_same_seed_and_actions_give_the_same_bits(env: KitchenRobosuiteEnv) -> None:
    runs = []
    for _ in range(2):
        env.reset(seed=5)
        do(env, "to_butter", "grasp", "to_pot", "drop", "to_handle")
        runs.append(np.asarray(env.current.values))
    np.testing.assert_array_equal(runs[0], runs[1])


@marked
def test_the_script_solves_it_and_success_pays_to_the_end() -> None:
    env = KitchenRobosuiteEnv(max_steps=40)
    env.reset(seed=11)
    policy, rewards, stages = kitchen_bridge.scripted(11), [], []
    for time in range(40):
        _, reward, terminated, truncated, info = env.step(policy(env, time))
        assert not terminated
        rewards.append(reward)
        stages.append(info["stages"])
    assert truncated
    first = rewards.index(1.0)
    assert rewards == [0.0] * first + [1.0] * (40 - first)
    reached = np.argmax(np.array(stages), axis=0)
    assert list(reached) == sorted(reached)
    assert np.all(stages[-1])
    env.close()


@marked
@pytest.mark.parametrize(("epsilon", "seed"), [(0.0, 21), (0.3, 22), (1.0, 23)])
def test_the_same_actions_come_to_the_same_in_both(env: KitchenRobosuiteEnv, epsilon: float, seed: int) -> None:
    """A sample of `make bridge`."""
    policy = kitchen_bridge.uniform(seed) if epsilon == 1 else kitchen_bridge.scripted(seed, epsilon)
    found = kitchen_bridge.compare(env, policy, seed, until_solved=True)
    assert len(found.action) >= 28
    assert found.flags.all()
    assert found.stages.all()
    assert found.one_step_flags.all()
    assert found.graph.mean() > 0.95
    assert not found.slip.any()
    assert found.apart_mm[:, 0].max() < 15
    np.testing.assert_array_equal(found.stage_counts[:, 0], found.stage_counts[:, 1])
    if epsilon == 0:
        assert found.success == (True, True)
        assert found.apart_mm.max() < 15


@marked
def test_a_grasp_is_by_contact(env: KitchenRobosuiteEnv) -> None:
    env.reset(seed=1)
    do(env, "to_butter")
    env._simulation.put("butter", np.array([0.0, 0.3, 0.815]))
    info = do(env, "grasp")
    assert info["slip"]
    assert not info["noop"]
    assert not edges(env, info)
    assert env.state()["robot"]["grip"] == 1


@marked
def test_what_is_lost_on_the_way_is_not_held_any_more(env: KitchenRobosuiteEnv) -> None:
    env.reset(seed=1)
    assert not do(env, "to_meatball", "grasp")["slip"]
    assert env.state()["robot"]["grip"] == 0.5
    env._simulation.put("meatball", np.array([0.0, 0.3, 0.82]))
    info = do(env, "to_pot")
    assert info["slip"]
    assert env.state()["robot"]["grip"] == 1
    assert ("robot.grip", "action") in edges(env, info)


@marked
def test_skills_that_cannot_be_done_take_a_tick_and_have_no_edges(env: KitchenRobosuiteEnv) -> None:
    env.reset(seed=2)
    for skill in ("grasp", "drop", "toggle"):
        info = do(env, skill)
        assert info["noop"]
        assert info["n_ticks"] == 1
        assert not edges(env, info)


@marked
def test_the_button_is_pressed_and_pressed_again(env: KitchenRobosuiteEnv) -> None:
    env.reset(seed=4)
    do(env, "to_switch")
    for on in (1, 0, 1):
        info = do(env, "toggle")
        assert env.state()["switch"]["on"] == on
        assert ("switch.on", "switch.pos") in edges(env, info)
        above = over(metres(env, "switch"), table.SWITCH_HOVER)
        assert np.linalg.norm(metres(env, "robot") - above) < 5e-3


@marked
def test_a_grasp_and_a_drop_where_it_was_leave_it_there(env: KitchenRobosuiteEnv) -> None:
    env.reset(seed=6)
    for thing, skill in (("butter", "to_butter"), ("meatball", "to_meatball"), ("pot", "to_handle")):
        before = metres(env, thing)
        do(env, skill, "grasp")
        assert env.state()["robot"]["grip"] != 1
        info = do(env, "drop")
        assert edges(env, info) == {("robot.grip", "action")}
        assert np.linalg.norm(metres(env, thing) - before) < 0.012


@marked
@pytest.mark.parametrize(("melt", "spoils"), [(-0.9, True), (1.0, False)])
def test_a_meatball_in_raw_butter_is_overcooked(env: KitchenRobosuiteEnv, melt: float, spoils: bool) -> None:
    state = start(env)
    stove = metres(env, "stove")
    state["pot"]["pos"] = units(stove)
    state["switch"]["on"] = 1
    state["butter"] |= {"pos": units(over(stove, table.POT_FLOOR)), "melt": melt}
    if melt < 1:
        state["butter"]["pos"] = units(over(stove, table.POT_FLOOR + table.REST["butter"], -0.025))
    state["meatball"]["pos"] = units(over(stove, table.POT_FLOOR + table.REST["meatball"], 0.025))
    cook = state["meatball"]["cook"]
    env.reset(seed=0, options={"state": state})
    info = do(env, "to_pot")
    after = env.state()["meatball"]
    assert after["overcooked"] == spoils
    assert after["cook"] == pytest.approx(cook if spoils else cook + 0.2, abs=1e-5)
    parent = "meatball.overcooked" if spoils else "meatball.cook"
    assert (parent, "butter.melt") in edges(env, info)


@marked
def test_butter_that_melts_is_in_the_middle_of_the_pot_and_moves_with_it(env: KitchenRobosuiteEnv) -> None:
    state = start(env)
    stove = metres(env, "stove")
    state["pot"]["pos"] = units(stove)
    state["switch"]["on"] = 1
    state["butter"] |= {"pos": units(over(stove, table.POT_FLOOR + table.REST["butter"], 0.02)), "melt": 0.9}
    env.reset(seed=0, options={"state": state})
    info = do(env, "to_handle")
    assert info["stages"][2]
    assert ("butter.pos", "butter.melt") in edges(env, info)
    do(env, "grasp", "to_stove")
    assert env.state()["robot"]["grip"] == pytest.approx(0.15)
    assert metres(env, "pot")[2] > stove[2] + 0.008
    np.testing.assert_allclose(metres(env, "butter"), over(metres(env, "pot"), table.POT_FLOOR), atol=1e-3)


@marked
@pytest.mark.parametrize("thing", ["butter", "meatball", "pot"])
def test_an_episode_can_begin_with_something_in_the_hand(env: KitchenRobosuiteEnv, thing: str) -> None:
    state = start(env)
    number = ("butter", "meatball", "pot").index(thing) + 1
    if thing == "pot":
        place = over(metres(env, "stove"), table.POT_GAP)
        eef = place + table.HANDLE
    else:
        place = eef = over(metres(env, "pot"), table.POT_HOVER)
    state[thing]["pos"], state["robot"] = units(place), {"eef_pos": units(eef), "grip": float(table.GRIPS[number])}
    _, info = env.reset(seed=0, options={"state": state})
    assert env.state()["robot"]["grip"] == pytest.approx(float(table.GRIPS[number]))
    assert np.linalg.norm(metres(env, thing) - place) < 5e-3
    info = do(env, "drop")
    assert info["stages"][1 if thing == "pot" else 0] == (thing != "meatball")
    below = "stove.pos" if thing == "pot" else "pot.pos"
    assert (f"{thing}.pos", below) in edges(env, info)
    assert metres(env, thing)[2] < place[2] - 5e-3


@marked
def test_an_impossible_state_is_refused_and_changes_nothing(env: KitchenRobosuiteEnv) -> None:
    state = start(env)
    before = np.asarray(env.current.values)
    state["stove"]["pos"] = state["pot"]["pos"]
    with pytest.raises(ImpossibleStateError, match=r"overlap|stove"):
        env.reset(options={"state": state})
    np.testing.assert_array_equal(before, np.asarray(env.current.values))


@marked
def test_random_skills_stay_finite_and_in_range(env: KitchenRobosuiteEnv) -> None:
    env.reset(seed=8)
    draws = np.random.default_rng(0)
    for _ in range(60):
        obs, *_ = env.step(int(draws.integers(9)))
        assert obs in env.observation_space
        assert np.isfinite(np.asarray(env.current.values)).all()
        assert np.isfinite(env._simulation.sim.data.qpos).all()


@marked
def test_pictures_show_the_scene(env: KitchenRobosuiteEnv) -> None:
    env.reset(seed=4)
    first = env.render()
    assert first is not None
    assert first.shape == (480, 640, 3)
    assert first.std() > 20
    do(env, "to_switch")
    off = env.render()
    do(env, "toggle")
    on = env.render()
    assert off is not None
    assert on is not None
    # The plate of the stove and the button change their colours.
    assert (np.abs(on.astype(int) - off).sum(-1) > 100).sum() > 500


@marked
def test_where_nothing_can_draw_the_error_says_what_to_install(
    env: KitchenRobosuiteEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ImportError("no libEGL.so.1")

    env.reset(seed=0)
    monkeypatch.setattr(env._simulation, "picture", fail)
    with pytest.raises(RobosuiteMissingError, match=r"no libEGL.so.1.*libegl1 libegl-mesa0 libgl1-mesa-dri"):
        env.render()


@marked
def test_the_installation_is_checked_by_running_it() -> None:
    assert "ticks" in robosuite_kitchen.check()


@marked
def test_the_pot_is_as_the_table_says(env: KitchenRobosuiteEnv) -> None:
    """The twin knows the pot by its measures alone: the bodies must have them."""
    model = env._simulation.sim.model
    inner = [model.geom_pos[model.geom_name2id(f"pot_{side}")] for side in ("left", "right", "back", "front")]
    half = model.geom_size[model.geom_name2id("pot_left")][1]
    assert np.abs(np.array(inner)[:, :2]).max(1) - half == pytest.approx(table.POT_INSIDE)
    handle = model.geom_name2id("pot_handle")
    assert model.geom_pos[handle][:2] == pytest.approx(table.HANDLE[:2])
    assert model.geom_pos[handle][2] + model.geom_size[handle][2] > table.HANDLE[2]
    assert model.geom_size[model.geom_name2id("meatball_ball")][0] == pytest.approx(table.REST["meatball"])
    assert jax.numpy.float32(model.geom_size[model.geom_name2id("butter_block")][1]) / 0.04 == pytest.approx(
        table.GRIPS[1]
    )
