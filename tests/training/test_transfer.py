"""Agents elsewhere: in the Gymnasium face of their own world they do as they do in it; with physics they are tried."""

import json
from importlib.util import find_spec
from pathlib import Path

import jax
import numpy as np
import pytest
from jaxtyping import Array, Key, Num
from PIL import Image

import elden
from elden.agents import PpoConfig
from elden.cli import main
from elden.storage.folder import RunFolderError
from elden.storage.resumable import Deadline, OutOfTimeError
from elden.training.config import LoopConfig, TrainingConfig
from elden.training.evaluation import EvaluationConfig, evaluate
from elden.training.run import TrainingRun
from elden.training.transfer import evaluate_elsewhere, evaluate_policy, outcomes_of, play_episode, policies_of
from elden.worlds.gym import WorldEnv

WORLD = elden.make("kitchen", max_steps=12)
TINY = TrainingConfig(
    bonus_name="none",
    ppo=PpoConfig(minibatch_size=8, epochs=1, hidden=(8,)),
    loop=LoopConfig(num_envs=4, rollout=6, steps=4 * 6 * 2, warmup_steps=0),
    seeds=2,
)


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> TrainingRun:
    """A training run that was stopped halfway."""
    folder = tmp_path_factory.mktemp("transfer") / "run"
    with pytest.raises(OutOfTimeError):
        TrainingRun(WORLD, TINY, folder, deadline=Deadline.after(0)).run()
    return TrainingRun.open(folder)


@pytest.mark.slow
@pytest.mark.parametrize("greedy", [False, True])
def test_in_its_own_world_an_agent_does_what_it_does_there(training: TrainingRun, greedy: bool) -> None:
    """Layouts, encoding of observations, elapsed time and draws must all be the same for this."""
    config = EvaluationConfig(episodes=3, greedy=greedy, seed=4)
    expected = evaluate(training, config).outcomes
    policies, taken = policies_of(training, 2, greedy)
    assert taken == 24
    found = outcomes_of(evaluate_elsewhere(policies, WorldEnv("kitchen", max_steps=12), config))
    for part in ("success", "stages", "length"):
        np.testing.assert_array_equal(getattr(found, part), getattr(expected, part), err_msg=part)


@pytest.mark.slow
def test_actions_are_those_of_the_compiled_evaluation(training: TrainingRun) -> None:
    config = EvaluationConfig(episodes=1, seed=4)
    example = evaluate(training, config).example
    assert example is not None
    env, done = WorldEnv("kitchen", max_steps=12), []
    policy = policies_of(training, 2)[0][example.agent]

    def noted(obs: Num[np.ndarray, " width"], elapsed: int, key: Key[Array, ""]) -> int:
        done.append(policy(obs, elapsed, key))
        return done[-1]

    play_episode(env, noted, config.seed, 0)
    assert done == list(np.asarray(example.steps.action))
    assert len(set(done)) > 1


@pytest.mark.slow
def test_an_episode_ends_with_success_and_counts_its_steps() -> None:
    env = WorldEnv("kitchen")
    scripted = jax.jit(env.world.scripted)
    seen: list[int] = []

    def policy(obs: Num[np.ndarray, " width"], elapsed: int, key: Key[Array, ""]) -> int:
        return int(scripted(key, env._current()))

    (one,) = evaluate_policy(env, policy, 1, progress=seen.append)
    assert one.success
    assert all(one.stages)
    assert 25 <= one.length <= 35
    assert seen == [1]
    looks: list[int] = []
    longer = play_episode(env, policy, 0, 0, lambda: looks.append(1), longer=3)
    assert (longer.success, longer.length) == (True, one.length)
    assert len(looks) == 1 + one.length + 3


def test_a_training_that_has_kept_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="has kept no state yet"):
        policies_of(TrainingRun(WORLD, TINY, tmp_path / "run"), 1)


def test_physics_is_only_for_kitchen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["video", "thawing", "--physics", "--out", str(tmp_path)]) == 2
    assert "--physics is for kitchen" in capsys.readouterr().err


@pytest.mark.skipif(find_spec("robosuite") is not None, reason="robosuite is there")
@pytest.mark.slow
def test_without_robosuite_the_command_says_how_to_get_it(
    training: TrainingRun, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(training.folder.path), "--physics", "--episodes", "1"]) == 2
    assert "`make robosuite`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--agents 1", "--agents 1 given, but it is read with --physics alone"),
        pytest.param("--physics --agents 3", "--agents 3 given, but the training has 2", marks=pytest.mark.slow),
        ("--physics --automatic-threshold", "--physics reads no graphs of models"),
    ],
)
def test_options_that_would_be_ignored_are_refused(
    request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str], words: str, told: str
) -> None:
    folder = str(request.getfixturevalue("training").folder.path) if "3" in words else "runs/some"
    assert main(["evaluate", folder, *words.split()]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.robosuite
@pytest.mark.skipif(find_spec("robosuite") is None, reason="robosuite is not installed: make robosuite")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_agents_are_tried_with_physics_and_filmed(training: TrainingRun) -> None:
    folder = training.folder.path
    assert main(["evaluate", str(folder), "--physics", "--episodes", "2", "--agents", "1", "--seed", "4"]) == 0
    card = json.loads((folder / "evaluation_physics.json").read_text())
    expected = evaluate(training, EvaluationConfig(episodes=2, seed=4)).outcomes
    assert card["environment"] == "elden/KitchenRobosuite-v0"
    assert len(card["seeds"]) == 1
    assert card["together"]["episodes"] == 2
    assert card["together"]["normalized_stage"] == pytest.approx(expected.stages[0].mean())
    with Image.open(folder / "media" / "episode_physics.gif") as video:
        assert getattr(video, "n_frames", 1) > 1
        assert video.width > 640


@pytest.mark.robosuite
@pytest.mark.skipif(find_spec("robosuite") is None, reason="robosuite is not installed: make robosuite")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_scripted_episode_is_filmed_with_physics(tmp_path: Path) -> None:
    words = ["video", "kitchen", "--physics", "--episodes", "1", "--epsilon", "0", "--out", str(tmp_path)]
    assert main(words) == 0
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["totals"]["success_rate"] == 1
    assert 28 <= summary["episodes"][0]["first_success_step"] <= 35
    with Image.open(tmp_path / "episode.gif") as video:
        assert getattr(video, "n_frames", 1) > summary["episodes"][0]["first_success_step"]
