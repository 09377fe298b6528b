"""The empty room against MiniGrid's own, step by step."""

from collections import Counter
from typing import Any

import gymnasium
import numpy as np
import pytest
from minigrid.envs.empty import EmptyEnv

from elden.worlds.gym import WorldEnv

LEFT, RIGHT, FORWARD = 0, 1, 2
SIZES = [5, 10]


def ours(size: int, max_steps: int, **options: Any) -> WorldEnv:
    env = gymnasium.make("elden/Empty-v0", disable_env_checker=True, size=size, max_steps=max_steps, **options)
    assert isinstance(env.unwrapped, WorldEnv)
    return env.unwrapped


def stopping(size: int, max_steps: int) -> WorldEnv:
    """Ours with the ends and the single payment of MiniGrid."""
    return ours(size, max_steps, terminate_on_success=True, pay_once=True)


def our_pose(env: WorldEnv) -> tuple[Any, ...]:
    return tuple(env.state()["agent"].values())


def seen_pose(obs: Any) -> tuple[Any, ...]:
    return tuple(obs["agent"].tolist())


def their_pose(env: Any) -> tuple[Any, ...]:
    return (*map(int, env.agent_pos), int(env.agent_dir))


def homing(pose: tuple[Any, ...], size: int) -> int:
    """The next action on the way to the goal."""
    x, _, facing = pose
    wanted = 0 if x < size - 2 else 1
    return FORWARD if facing == wanted else (RIGHT if (wanted - facing) % 4 == 1 else LEFT)


def choose(rng: np.random.Generator, pose: tuple[Any, ...], size: int, noise: float) -> int:
    return int(rng.integers(3)) if rng.random() < noise else homing(pose, size)


def start(a: WorldEnv, b: Any) -> None:
    obs, _ = a.reset()
    b.reset()
    assert seen_pose(obs) == our_pose(a) == their_pose(b) == (1, 1, 0)


def test_the_actions_have_the_same_numbers() -> None:
    env = ours(10, 40)
    assert env.action_names == ("left", "right", "forward")
    assert [int(EmptyEnv(size=10).actions[name]) for name in env.action_names] == [LEFT, RIGHT, FORWARD]


@pytest.mark.parametrize("size", SIZES)
def test_episodes_go_and_end_as_in_minigrid(size: int) -> None:
    max_steps = 4 * size
    a, b = stopping(size, max_steps), EmptyEnv(size=size, max_steps=max_steps)
    rng = np.random.default_rng(size)
    ends: Counter[str] = Counter()
    steps = 0
    for episode in range(45):
        start(a, b)
        noise = (0.2, 0.5, 1.0)[episode % 3]
        over = False
        while not over:
            action = choose(rng, our_pose(a), size, noise)
            obs, reward, terminated, truncated, info = a.step(action)
            _, their_reward, their_end, their_timeout, _ = b.step(action)
            steps += 1
            assert seen_pose(obs) == our_pose(a) == their_pose(b)
            assert terminated == their_end == info["success"]
            assert (reward > 0) == (float(their_reward) > 0)
            # MiniGrid calls an arrival on the very last step both; for us it is a success and no time-out.
            assert truncated == (their_timeout and not their_end)
            over = terminated or truncated
        ends["goal" if terminated else "time"] += 1
    assert ends["goal"] >= 10
    assert ends["time"] >= 5
    assert steps > 45 * size


@pytest.mark.parametrize("size", SIZES)
def test_without_an_early_end_the_walk_goes_on_and_every_step_is_paid(size: int) -> None:
    """MiniGrid's raw environment can be stepped past its end: the poses must agree there too."""
    max_steps = 5 * size
    a, b = ours(size, max_steps), EmptyEnv(size=size, max_steps=max_steps)
    rng = np.random.default_rng(size)
    solved = 0
    for _ in range(15):
        start(a, b)
        reached = False
        for step in range(1, max_steps + 1):
            action = choose(rng, our_pose(a), size, 1.0 if reached else 0.2)
            _, reward, terminated, truncated, info = a.step(action)
            _, _, their_end, _, _ = b.step(action)
            reached = reached or their_end
            assert our_pose(a) == their_pose(b)
            assert info["success"] == reached == (reward == 1.0)
            assert not terminated
            assert truncated == (step == max_steps)
        solved += reached
    assert solved >= 10


@pytest.mark.parametrize(("spare", "success"), [(1, True), (0, True), (-1, False)])
def test_arriving_on_the_last_step_is_a_success(spare: int, success: bool) -> None:
    """The shortest way takes 15 steps: with one to spare, with none, and with one too few."""
    a, b = stopping(10, 15 + spare), EmptyEnv(size=10, max_steps=15 + spare)
    start(a, b)
    way = [FORWARD] * 7 + [RIGHT] + [FORWARD] * 7
    for action in way[: 15 + spare]:
        _, reward, terminated, truncated, info = a.step(action)
        _, their_reward, their_end, their_timeout, _ = b.step(action)
    assert (terminated, truncated, info["success"], reward) == (success, not success, success, float(success))
    assert (their_end, their_timeout, float(their_reward) > 0) == (success, spare < 1, success)
    assert our_pose(a) == their_pose(b) == ((8, 8, 1) if success else (8, 7, 1))


def test_every_pose_and_action_leads_where_it_does_in_minigrid() -> None:
    """All 8 x 8 cells x 4 directions x 3 actions, each set up by hand in both."""
    a, b = stopping(10, 40), EmptyEnv(size=10, max_steps=40)
    start(a, b)
    entered = 0
    for x, y, facing in np.ndindex(8, 8, 4):
        for action in (LEFT, RIGHT, FORWARD):
            if (x + 1, y + 1) == (8, 8):
                continue  # an episode does not start in the goal
            a.reset(options={"state": {"agent": {"x": x + 1, "y": y + 1, "dir": facing}}})
            b.reset()
            b.agent_pos, b.agent_dir = (x + 1, y + 1), facing
            _, reward, terminated, _, _ = a.step(action)
            _, their_reward, their_end, _, _ = b.step(action)
            assert our_pose(a) == their_pose(b)
            assert (terminated, reward > 0) == (their_end, float(their_reward) > 0)
            entered += terminated
    assert entered == 2
