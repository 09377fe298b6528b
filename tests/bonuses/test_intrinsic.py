"""A bonus in somebody else's loop."""

import json
import os
import re
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from host_cases import CORRIDOR

import elden
from elden.bonuses import BONUSES, BonusConfig, EnsembleConfig, FitConfig, IntrinsicReward, Space, intrinsic, make_bonus
from elden.cli import main
from elden.dynamics.config import NetworkConfig, TrainConfig
from elden.factors import Continuous, Discrete, Entity, Factors, Variable
from elden.hosts.vector import Hosts
from elden.hosts.world import HostConfig, HostWorld
from elden.storage.arrays import DamagedDataError, read_arrays
from elden.transitions import Steps

FACTORS = Factors(
    (
        Entity("lamp", (Variable("on", Discrete(2)),)),
        Entity("walker", (Variable("x", Discrete(4)),)),
    )
)
SMALL = BonusConfig(
    ensemble=EnsembleConfig(
        network=NetworkConfig(children="entity", features=(4,), mlp=(4,), heads=1, head_size=4),
        train=TrainConfig(mixup=0.1, penalty=0.0, batch_size=4),
        members=2,
        capacity=32,
        updates=1,
        chunk=8,
    ),
    fit=FitConfig(hidden=(4,), features=4, batch_size=4, updates=1),
    threshold=0.01,
)


def steps(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Four steps of two environments."""
    random = np.random.default_rng(seed)
    obs, after = (np.stack([random.integers(2, size=(4, 2)), random.integers(4, size=(4, 2))], -1) for _ in range(2))
    return obs, random.integers(3, size=(4, 2)), after


def test_the_count_of_states_is_known() -> None:
    bonus = IntrinsicReward(FACTORS, 3, "state-count")
    here, there = np.array([0, 1]), np.array([1, 3])
    assert bonus.reward(here, 0, here) == 1.0
    assert bonus.update(here, 0, here)["bonus/places"] == 1.0
    bonus.update(here, 2, here)
    assert bonus.reward(here, 1, here) == pytest.approx(3**-0.5)
    assert bonus.reward(here, 1, there) == 1.0
    assert IntrinsicReward(FACTORS, 3, "none").reward(here, 1, there) == 0.0


def test_rewards_are_those_of_the_bonus_itself() -> None:
    face = IntrinsicReward(FACTORS, 3, "curiosity", SMALL, num_envs=2, seed=5)
    bonus = make_bonus("curiosity", Space(FACTORS, Discrete(3)), SMALL)
    first, later = (jax.random.fold_in(jax.random.fold_in(jax.random.key(5), use), 0) for use in (0, 1))
    state = intrinsic._init(bonus)(first, 2)
    obs, action, after = (jnp.asarray(part, jnp.int32) for part in steps())
    same = Steps(obs, action, after, jnp.zeros((4, 2), jnp.bool_))
    state, _ = intrinsic._update(bonus)(state, later, same)
    face.update(*steps())
    wanted = intrinsic._reward(bonus)(state, same)[1]
    found = face.reward(*steps())
    assert found.shape == (4, 2)
    assert found.std() > 0
    np.testing.assert_array_equal(found, wanted)
    # One step of all environments, as a Gymnasium sample or flat, is the first row of the rollout.
    row = [part[0] for part in steps()]
    np.testing.assert_allclose(face.reward(*row), found[0], rtol=1e-4, atol=1e-7)
    named: list[Any] = [FACTORS.to_space_sample(row[0]), row[1], FACTORS.to_space_sample(row[2])]
    np.testing.assert_array_equal(face.reward(*named), face.reward(*row))
    with pytest.raises(ValueError, match="no models whose graphs"):
        IntrinsicReward(FACTORS, 3, "rnd", SMALL, num_envs=2).local_graph(*steps())


def test_models_beside_a_bonus_are_read_at_an_automatic_threshold() -> None:
    face = IntrinsicReward(FACTORS, 3, "influence-count", replace(SMALL, models=True), num_envs=2)
    done = np.zeros((4, 2), bool)
    face.update(*steps(), done)
    reader, state = face._reader()
    assert float(state.memory.threshold) == pytest.approx(3e-4)  # the setting, at which nearly all edges are there
    seen = Steps(*map(jnp.asarray, (*steps(), done))).transitions()
    wanted = jax.jit(reader.graphs)(jax.jit(reader.automatic)(state), seen)
    found = face.local_graph(*steps())
    np.testing.assert_array_equal(found.reshape(8, *found.shape[2:]), wanted)
    fixed = np.asarray(jax.jit(reader.graphs)(state, seen))
    assert found.sum() < fixed.sum()


@pytest.mark.parametrize("name", ["rnd", pytest.param("composite", marks=pytest.mark.slow)])
def test_what_was_saved_goes_on_as_if_nothing_had_happened(name: str, tmp_path: Path) -> None:
    bonus = IntrinsicReward(FACTORS, gymnasium.spaces.Discrete(3, start=2), name, SMALL, num_envs=2, seed=7)
    obs, action, after = steps()
    bonus.update(obs, action + 2, after)
    bonus.save(tmp_path / "bonus")
    other = IntrinsicReward.load(tmp_path / "bonus")
    for turn in range(2):
        obs, action, after = steps(turn)
        one, two = (each.reward(obs, action + 2, after) for each in (bonus, other))
        np.testing.assert_array_equal(one, two)
        assert bonus.update(obs, action + 2, after) == other.update(obs, action + 2, after)
    assert one.any()
    bonus.save(tmp_path / "bonus")
    file = next((tmp_path / "bonus").glob("*.npy"))
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    with pytest.raises(DamagedDataError, match="changed or cut off"):
        IntrinsicReward.load(tmp_path / "bonus")


class KilledError(Exception):
    pass


@pytest.mark.parametrize("moves", [0, 1, 4])
def test_a_save_that_is_killed_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    bonus, replace = IntrinsicReward(FACTORS, 3, "none", SMALL, num_envs=2), os.replace

    def save(number: int) -> None:
        bonus.state = {name: np.full(3, number) for name in "abcd"}
        bonus.updates = number
        bonus.save(tmp_path / "bonus")

    left = iter(range(moves))

    def move(*names: Path) -> None:
        if next(left, None) is None:
            raise KilledError
        replace(*names)

    save(1)
    with monkeypatch.context() as patch:
        patch.setattr("os.replace", move)
        patch.setattr("elden.storage.arrays._tidy", lambda folder: None)  # as a killed process does not
        with pytest.raises(KilledError):
            save(2)
    arrays, card = read_arrays(tmp_path / "bonus", "bonus")
    assert card["updates"] == 1
    assert arrays["a"].tolist() == [1, 1, 1]
    save(2)
    assert read_arrays(tmp_path / "bonus", "bonus")[1]["updates"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", BONUSES)
def test_every_bonus_can_be_used(name: str) -> None:
    bonus = IntrinsicReward(FACTORS, 3, name, SMALL, num_envs=2)
    done = np.arange(8).reshape(4, 2) % 3 == 0
    for turn in range(2):
        assert np.isfinite(bonus.reward(*steps(turn), done)).all()
        assert all(map(np.isfinite, bonus.update(*steps(turn), done).values()))


def test_paying_once_needs_to_know_where_episodes_end() -> None:
    space = Factors((Entity("lamp", (Variable("on", Discrete(2)),)),))
    config = BonusConfig(ensemble=SMALL.ensemble, once=True)
    bonus = IntrinsicReward(space, 2, "curiosity", config)
    step = (np.array([0]), 1, np.array([1]))
    with pytest.raises(ValueError, match="give done"):
        bonus.reward(*step)
    assert bonus.reward(*step, done=False) > 0
    assert bonus.reward(*step, done=True) == 0
    assert bonus.reward(*step, done=False) > 0
    bonus.begin_episodes()
    assert bonus.reward(*step, done=False) > 0


def test_actions_may_be_vectors_and_spaces_be_given_as_they_are() -> None:
    space = gymnasium.spaces.Dict({"arm": gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)})
    bonus = IntrinsicReward(space, gymnasium.spaces.Box(-1.0, 1.0, (3,), np.float32), "icm", SMALL)
    assert bonus.space.action == Continuous(3)
    sample = {"arm": np.array([0.5, -0.5], np.float32)}
    assert bonus.reward(sample, np.ones(3), {"arm": np.array([-0.5, 0.3], np.float32)}) > 0
    with pytest.raises(ValueError, match=r"expected are 3 numbers"):
        bonus.reward(sample, np.zeros(2), sample)
    with pytest.raises(ValueError, match=r"next_obs: arm\.0 is observed as nan; it must be a finite number"):
        bonus.reward(sample, np.zeros(3), {"arm": np.array([np.nan, 0], np.float32)})


def test_names_are_those_of_the_environment() -> None:
    env = gymnasium.make(CORRIDOR)
    bonus = IntrinsicReward.for_env(env, "state-count")
    assert bonus.factors.variable_names == env.unwrapped.variable_names  # type: ignore[attr-defined]
    vector = gymnasium.vector.SyncVectorEnv([partial(gymnasium.make, CORRIDOR)] * 2)
    assert IntrinsicReward.for_env(vector, "state-count").factors == bonus.factors
    obs, _ = env.reset(seed=0)
    after = env.step(3)[0]
    assert bonus.reward(obs, 3, after) == 1.0
    with pytest.raises(ValueError, match="action 0 given; it takes 1 to 3"):
        bonus.reward(obs, 0, after)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"obs": np.zeros((4, 2, 3), int)}, r"obs: expected numbers of shape \(4, 2, 2\), got int64 \(4, 2, 3\)"),
        ({"next_obs": np.zeros((4, 3, 2), int)}, r"next_obs: expected numbers of shape \(4, 2, 2\)"),
        ({"obs": {"lamp": np.zeros((4, 2), int)}}, "obs: missing entity: 'walker'"),
        ({"obs": np.full((4, 2, 2), 2)}, r"obs: lamp\.on is observed as 2; it must be one of 0\.\.1"),
        ({"obs": np.full((4, 2, 2), 0.7)}, r"obs: lamp\.on is observed as 0\.7; it must be one of 0\.\.1"),
        ({"obs": np.full((4, 2, 2), 2**32)}, r"obs: lamp\.on is observed as 4294967296; it must be one of 0\.\.1"),
        ({"obs": {"lamp": np.full((4, 2), 2**32), "walker": np.zeros((4, 2), int)}}, "4294967296 is too large"),
        ({"action": np.zeros((4, 3), int)}, r"action of shape \(4, 3\) given; 2 environments"),
        ({"action": 0}, r"action of shape \(\) given; 2 environments"),
        ({"action": np.zeros((4, 2))}, "action is float64 of shape"),
        ({"action": np.full((4, 2), 3)}, "action 3 given; it takes 0 to 2"),
        ({"done": np.zeros((4,), bool)}, r"done is bool of shape \(4,\); expected is bool of shape \(4, 2\)"),
    ],
)
def test_wrong_steps_are_refused(change: dict[str, Any], words: str) -> None:
    bonus = IntrinsicReward(FACTORS, 3, "none", num_envs=2)
    with pytest.raises(ValueError, match=words):
        bonus.reward(**dict(zip(("obs", "action", "next_obs"), steps(), strict=True)) | change)


def test_wrong_spaces_and_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="did you mean 'elden'"):
        IntrinsicReward(FACTORS, 3, "eldn")
    with pytest.raises(ValueError, match="Discrete space"):
        IntrinsicReward(FACTORS, gymnasium.spaces.MultiBinary(3))
    with pytest.raises(ValueError, match="Dict of entities"):
        IntrinsicReward(gymnasium.spaces.Discrete(3), 3)
    with pytest.raises(ValueError, match="num_envs=0"):
        IntrinsicReward(FACTORS, 3, num_envs=0)


# The page says what is so.

PAGE = Path(__file__).parents[2] / "docs" / "your_own.md"
MODULE, LOOP = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture
def page_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's module in the working directory, as a user has it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_envs.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    monkeypatch.delitem(sys.modules, "my_envs", raising=False)
    monkeypatch.delitem(gymnasium.registry, "Lamp-v0", raising=False)


@pytest.mark.usefixtures("page_module")
def test_the_environment_of_the_page_is_one_that_can_be_trained_on() -> None:
    world = HostWorld.look(HostConfig("my_envs:Lamp-v0", ("size=3",)))
    assert world.factors.variable_names == ("walker.x", "switch.x", "lamp.on", "door.open", "battery.charge")
    with Hosts(world, 2) as hosts:  # in processes, which must find the module too
        hosts.reset(range(2))
        taken = [hosts.step(np.full(2, i % 3, np.int32)) for i in range(25)]
    assert any(step.truncated.any() or step.terminated.any() for step in taken)


@pytest.mark.slow
@pytest.mark.usefixtures("page_module")
def test_the_environment_of_the_page_is_solved(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--bonus", "none", "--envs", "4", "--loop.rollout", "40", "--steps", "16000", "--loop.warmup-steps", "0")
    assert main(["train", "gym:my_envs:Lamp-v0", "--no-processes", *words]) == 0
    folder = Path("runs/train/gym-my_envs-Lamp-v0-none-plus")
    assert str(folder) in capsys.readouterr().out
    assert json.loads((folder / "summary.json").read_text())["seeds"][0]["success_rate"] > 0.9


@pytest.mark.slow
def test_the_loop_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    known: dict[str, Any] = {}
    exec(compile(LOOP, str(PAGE), "exec"), known)
    assert known["intrinsic"].shape == (16, 4)
    assert np.isfinite(known["metrics"]["dynamics/nll"])
    assert known["graph"].shape == (4, len(known["dst_names"]), len(known["src_names"]))
    assert isinstance(known["bonus"], elden.IntrinsicReward)
    done = known["steps"][3]
    obs, after = known["steps"][0], known["steps"][2]
    assert (after[:-1][~done[:-1]] == obs[1:][~done[:-1]]).all()
    assert done.any()
