"""The loop: what an iteration does, that seeds side by side are those one by one, and that stopping changes nothing."""

import errno
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, Key

import elden
from elden.agents import PpoConfig
from elden.bonuses import BonusConfig, EnsembleConfig, GateConfig, Steps
from elden.bonuses.nothing import Nothing
from elden.cli import main
from elden.data import DamagedDataError, slots
from elden.data.folder import OtherRunError, RunFolderError
from elden.data.slots import Slots
from elden.dynamics.config import NetworkConfig, TrainConfig
from elden.dynamics.runs import Deadline, OutOfTimeError
from elden.training.config import LoopConfig, TrainingConfig
from elden.training.loop import Loop, LoopState
from elden.training.presets import training_preset
from elden.training.run import NotFiniteError, Training
from elden.training.scale import Scale

WORLD = elden.make("thawing", max_steps=5)
TINY = TrainingConfig(
    bonus=BonusConfig(
        ensemble=EnsembleConfig(
            network=NetworkConfig(children="entity", features=(8,), mlp=(8,), heads=1, head_size=4),
            train=TrainConfig(mixup=0.1, penalty=0.0, batch_size=8),
            members=2,
            capacity=64,
            updates=2,
            chunk=16,
        ),
        gate=GateConfig("information"),
        once=True,
        threshold=0.1,
    ),
    ppo=PpoConfig(minibatch_size=8, epochs=2, hidden=(8,)),
    loop=LoopConfig(num_envs=4, rollout=6, steps=4 * 6 * 4, warmup_steps=24),
    seeds=2,
)


def assert_equal(one: object, other: object) -> None:
    """All leaves have the same bits."""
    for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(np.asarray(left), np.asarray(right))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[LoopState[Any], Path]:
    """A training that was never stopped: its last state and its folder."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    return Training(WORLD, TINY, folder, chunk=2, command="test").run(), folder


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_training_leaves_what_a_run_folder_holds(whole: tuple[LoopState[Any], Path]) -> None:
    _, folder = whole
    lines = lines_of(folder)
    assert [line["step"] for line in lines] == [24, 48, 72, 96]
    assert all(len(line["episode/success"]) == 2 for line in lines)
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["env_steps"] == 96
    assert summary["command"] == "test"
    assert [seed["seed"] for seed in summary["seeds"]] == [0, 1]
    assert all(0 <= seed["normalized_stage"] <= 1 for seed in summary["seeds"])
    assert summary["steps_per_s"] == pytest.approx(2 * 96 / summary["wall_s"])
    assert (folder / "tb").is_dir()
    assert json.loads((folder / "config.json").read_text())["training"]["loop"]["rollout"] == 6


def test_a_training_that_is_stopped_goes_on_as_if_it_had_not_been(
    whole: tuple[LoopState[Any], Path], tmp_path: Path
) -> None:
    folder, sittings = tmp_path / "run", 0
    while True:
        training = Training(WORLD, TINY, folder, chunk=1 + sittings, deadline=Deadline.after(0))
        try:
            state = training.run()
            break
        except OutOfTimeError:
            sittings += 1
            # As a killed process leaves it: lines of steps whose state was never kept, the last one cut off.
            with (folder / "metrics.jsonl").open("a") as stream:
                stream.write('{"step": 1000, "episode/success": [1.0, 1.0]}\n{"step": 10')
    assert sittings == 2
    assert_equal(state, whole[0])
    assert lines_of(folder) == lines_of(whole[1])


def test_a_damaged_state_is_named_and_the_one_before_it_used(
    whole: tuple[LoopState[Any], Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "run"
    for _ in range(2):
        with pytest.raises(OutOfTimeError):
            Training(WORLD, TINY, folder, deadline=Deadline.after(0)).run()
    kept = sorted((folder / "checkpoints").iterdir())
    assert [slot.name for slot in kept] == ["000000001", "000000002"]
    next(kept[-1].glob("*.npy")).write_bytes(b"nothing")
    state = Training(WORLD, TINY, folder).run()
    assert "000000002" in caplog.text
    assert_equal(state, whole[0])


def test_another_training_is_refused(whole: tuple[LoopState[Any], Path]) -> None:
    with pytest.raises(OtherRunError, match="seed was 0, now 7"):
        Training(WORLD, replace(TINY, seed=7), whole[1])


def test_seeds_side_by_side_are_those_one_by_one(whole: tuple[LoopState[Any], Path], tmp_path: Path) -> None:
    envs = TINY.loop.num_envs
    alone = Training(WORLD, replace(TINY, seeds=1, seed=1), tmp_path / "run").run()
    together, _ = whole
    assert_equal(alone.worlds.values, together.worlds.values[envs:])
    ours, theirs = (jax.tree.leaves((state.policy.network, state.bonus)) for state in (alone, together))
    for left, right in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(np.asarray(left[0], np.float64), np.asarray(right[1], np.float64), atol=1e-5)


class Broken(Nothing):
    """Pays something that is not a number from the third rollout on."""

    def init(self, key: Key[Array, ""], num_envs: int) -> Any:
        return jnp.int32(0)

    def reward(self, state: Any, steps: Steps) -> tuple[Any, Float[Array, "time env"], Any]:
        rewards = jnp.where(state >= 2, jnp.nan, 0.0) * jnp.ones(steps.done.shape)
        return state + 1, rewards, {"bonus/mean": jnp.mean(rewards)}

    def update(self, state: Any, key: Key[Array, ""], steps: Steps) -> tuple[Any, Any]:
        return state, {}


def test_what_is_not_finite_is_told_and_never_kept(tmp_path: Path) -> None:
    training = Training(WORLD, replace(TINY, bonus_name="none", seeds=1), tmp_path / "run")
    training.loop = replace(training.loop, bonus=Broken())
    with pytest.raises(NotFiniteError, match=r"bonus/mean is .* in the rollout from step 48 on"):
        training.run()
    assert [slot.name for slot in (tmp_path / "run" / "checkpoints").iterdir()] == ["000000002"]
    kept = training.slots.restore(jax.jit(training.loop.init)(training.keys))
    assert kept is not None
    assert all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(kept.tree))


def test_a_full_disk_leaves_earlier_states_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Slots(tmp_path, {"what": "test"})
    place.save(1, {"a": jnp.ones(3)})

    def full(folder: Path, *_: object) -> None:
        folder.mkdir()
        (folder / "half.npy").write_bytes(b"1")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(slots, "write_arrays", full)
        with pytest.raises(OSError, match="No space left"):
            place.save(2, {"a": jnp.zeros(3)})
    assert [slot.name for slot in tmp_path.iterdir()] == ["000000001"]
    kept = place.restore({"a": jnp.zeros(3)})
    assert kept is not None
    assert kept.number == 1
    np.testing.assert_array_equal(kept.tree["a"], np.ones(3))


def test_only_the_newest_states_are_kept(tmp_path: Path) -> None:
    place = Slots(tmp_path, {}, keep=2)
    for number in range(5):
        place.save(number, jnp.int32(number))
    assert sorted(slot.name for slot in tmp_path.iterdir()) == ["000000003", "000000004"]
    with pytest.raises(ValueError, match="of another training"):
        Slots(tmp_path, {"seed": 1}).restore(jnp.int32(0))
    assert issubclass(DamagedDataError, Exception)


# The command line.


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let both presets be small."""
    monkeypatch.setattr("elden.cli.train.training_preset", lambda preset, world, bonus: replace(TINY, bonus_name=bonus))


@pytest.mark.usefixtures("tiny")
def test_a_training_from_the_command_line_stops_and_goes_on(
    whole: tuple[LoopState[Any], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "run")
    words = ["train", "thawing", "--max-steps", "5", "--seeds", "2", "--out", out]
    assert main([*words, "--time-limit-s", "0"]) == 75
    assert "after 1 of 4 iterations; what was done is kept" in " ".join(capsys.readouterr().out.split())
    assert main(["resume", out]) == 0
    said = capsys.readouterr().out
    assert "step 96 of 96" in said
    assert "first success at step" in said
    assert lines_of(tmp_path / "run") == lines_of(whole[1])
    assert main(words) == 0
    assert "nothing is left to train" in " ".join(capsys.readouterr().out.split())
    assert main([*words, "--seed", "3"]) == 2
    assert "holds another run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("train", "thawing", "--bonus", "eldn"), "no bonus 'eldn'; did you mean 'elden'"),
        (("train",), "elden train needs a world"),
        (("train", "thawing", "--seeds", "0"), "--seeds 0 given; it takes 1 to 1000"),
        (("train", "thawing", "--steps", "0"), "--steps 0 given"),
        (("resume",), "elden resume needs the folder of a run"),
        (("resume", "nowhere"), "nowhere holds no run: it has no config.json"),
    ],
)
def test_mistakes_on_the_command_line_are_answered_with_a_line(
    words: tuple[str, ...], answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(list(words)) == 2
    said = capsys.readouterr().err
    assert answer in said
    assert said.count("\n") == 1


def test_a_folder_of_something_else_cannot_go_on(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"detect": {}}')
    with pytest.raises(RunFolderError, match="holds no training that can go on"):
        Training.open(tmp_path)


# What an iteration does.


def test_nothing_is_learnt_or_paid_before_the_warm_up_is_over() -> None:
    loop: Loop[Any] = Loop.of(WORLD, replace(TINY, bonus_name="state-count"))
    keys = jax.vmap(jax.random.key)(jnp.arange(2))
    start = jax.jit(loop.init)(keys)
    iterate = jax.jit(loop.iterate)
    cold, said = iterate(start, keys, jnp.int32(0))
    assert_equal(cold.policy, start.policy)
    assert float(jnp.abs(said["bonus/scaled"]).max()) == 0.0
    warm, said = iterate(cold, keys, jnp.int32(1))
    assert float(said["bonus/scaled"].min()) > 0.0
    last = [state.policy.network.policy.layers[-1].weight for state in (cold, warm)]
    assert float(jnp.abs(last[1] - last[0]).min(axis=(1, 2)).max()) > 0.0


@pytest.mark.parametrize("mode", ["reward", "return"])
def test_bonuses_are_divided_by_their_deviation(mode: str) -> None:
    rng = np.random.default_rng(0)
    rewards = rng.random((3, 7, 2)).astype(np.float32)
    done = rng.random((3, 7, 2)) < 0.2
    scale, seen, running = Scale.init(2), [], np.zeros(2)
    for reward, ended in zip(rewards, done, strict=True):
        scale, sums = scale.sums(jnp.asarray(reward), jnp.asarray(ended), 0.9)
        scale = scale.see(jnp.asarray(reward) if mode == "reward" else sums)
        for step, over in zip(reward, ended, strict=True):
            running = 0.9 * running + step
            seen.append(step if mode == "reward" else running)
            running = np.where(over, 0.0, running)
    assert float(scale.deviation) == pytest.approx(np.std(np.stack(seen)), rel=1e-4)
    assert float(Scale.init(2).see(jnp.ones(5)).deviation) == 1.0


def test_presets_are_those_of_the_paper_and_ours() -> None:
    paper = training_preset("paper", "carwash")
    assert (paper.loop.num_envs, paper.loop.rollout, paper.loop.steps) == (20, 600, 30_000_000)
    assert (paper.ppo.learning_rate, paper.ppo.clip, paper.ppo.gae, paper.ppo.minibatch_size) == (1e-4, 0.1, 0.98, 32)
    assert paper.bonus.ensemble.train.learning_rate == 1e-5
    assert (paper.bonus.ensemble.members, paper.bonus.threshold, paper.bonus.gate.kind) == (5, 3e-4, "votes")
    assert training_preset("paper", "kitchen").bonus.ensemble.train.priority == 0.5
    plus = training_preset("plus", "carwash", "curiosity")
    assert plus.bonus_name == "curiosity"
    assert plus.bonus.gate.kind == "information"
    with pytest.raises(ValueError, match="plus"):
        training_preset("pluss", "carwash")
    with pytest.raises(ValueError, match="no bonus"):
        training_preset("plus", "carwash", "boredom")


@pytest.mark.slow
def test_the_preset_plus_solves_thawing(tmp_path: Path) -> None:
    config = replace(training_preset("plus", "thawing"), seeds=3)
    Training(elden.make("thawing"), config, tmp_path / "run").run()
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert min(seed["success_rate_solvable"] for seed in summary["seeds"]) >= 0.9
