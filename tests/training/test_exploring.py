"""The loop: what an iteration does, that seeds side by side are those one by one, and that stopping changes nothing."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, Key

import elden
from elden.agents import Ppo, PpoConfig
from elden.bonuses import BONUSES, BonusConfig, EnsembleConfig, GateConfig
from elden.bonuses.model_based import ModelBonus
from elden.bonuses.nothing import Nothing
from elden.cli import main
from elden.cli.arguments import parse
from elden.cli.console import make_console
from elden.cli.options import options_of
from elden.cli.running import stopping
from elden.cli.train import Train, _forecast, _tell_that_it_takes_long
from elden.dynamics.config import NetworkConfig, TrainConfig
from elden.graphs.input_mask import LearntMask
from elden.storage.arrays import VERSIONS
from elden.storage.checkpoints import Checkpoints
from elden.storage.folder import OtherRunError, RunFolderError
from elden.storage.plain import leaves
from elden.storage.resumable import ASKED_TO_STOP, Deadline, OutOfTimeError, Reached, Resumable
from elden.training.algorithm import Loop, LoopState
from elden.training.config import LoopConfig, TrainingConfig
from elden.training.memory import MemoryNeed, memory_need
from elden.training.presets import training_preset
from elden.training.run import Call, NotFiniteError, TrainingRun, _init, _Program, _program
from elden.training.scale import Scale
from elden.transitions import Steps

WORLD = elden.make("thawing", max_steps=5)
STEPS = 4 * 6 * 40
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
        gate=GateConfig("information", level=0.001),
        once=True,
        threshold=0.1,
    ),
    ppo=PpoConfig(minibatch_size=8, epochs=2, hidden=(8,)),
    loop=LoopConfig(num_envs=4, rollout=6, steps=STEPS, warmup_steps=24),
    seeds=2,
)
LOOP: Loop[Any] = Loop.of(WORLD, TINY)
WORDS = (
    *("train", "thawing", "--max-steps", "5", "--seeds", "2", "--loop.num-envs", "4", "--loop.rollout", "6"),
    *("--steps", str(STEPS), "--loop.warmup-steps", "24", "--ppo.minibatch-size", "8", "--ppo.epochs", "2"),
    *("--ppo.hidden", "8", "--ppo.learning-rate", "3e-4", "--ppo.entropy-target", "0", "--ppo.anneal-from", "1"),
    *("--ppo.no-clip-apart", "--bonus", "elden"),
    *("--bonus.gate.kind", "information", "--bonus.gate.level", "0.001"),
    *("--bonus.once", "--bonus.no-automatic-threshold", "--bonus.threshold", "0.1"),
    *("--bonus.ensemble.members", "2", "--bonus.ensemble.capacity", "64", "--bonus.ensemble.updates", "2"),
    *("--bonus.ensemble.chunk", "16", "--bonus.ensemble.train.batch-size", "8"),
    *("--bonus.ensemble.train.learning-rate", "3e-4", "--bonus.ensemble.network.features", "8"),
    *("--bonus.ensemble.network.mlp", "8", "--bonus.ensemble.network.heads", "1"),
    *("--bonus.ensemble.network.head-size", "4"),
)
"""The command line of the same training."""


def assert_equal(one: object, other: object) -> None:
    """All leaves have the same bits."""
    for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(np.asarray(left), np.asarray(right))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[LoopState[Any], Path]:
    """A training run that was never stopped: its last state and its folder."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    return TrainingRun(WORLD, TINY, folder, iterations_per_call=2, command="test").run(), folder


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_training_leaves_what_a_run_folder_holds(whole: tuple[LoopState[Any], Path]) -> None:
    _, folder = whole
    lines = lines_of(folder)
    assert [line["step"] for line in lines] == list(range(24, STEPS + 1, 24))
    assert all(len(line["episode/success"]) == 2 for line in lines)
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["env_steps"] == STEPS
    assert summary["command"] == "test"
    assert [seed["seed"] for seed in summary["seeds"]] == [0, 1]
    assert all(0 <= seed["normalized_stage"] <= 1 for seed in summary["seeds"])
    assert summary["steps_per_s"] == pytest.approx(2 * STEPS / summary["wall_s"])
    assert (folder / "tb").is_dir()
    assert json.loads((folder / "config.json").read_text())["training"]["loop"]["rollout"] == 6


@pytest.mark.slow
def test_an_interruption_while_metrics_are_told_keeps_states_under_their_own_numbers(
    whole: tuple[LoopState[Any], Path], tmp_path: Path
) -> None:
    def interrupt(done: int, total: int, told: object) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        TrainingRun(WORLD, TINY, tmp_path / "run", progress=interrupt).run()
    state = TrainingRun(WORLD, TINY, tmp_path / "run").run()
    assert_equal(state, whole[0])
    assert lines_of(tmp_path / "run") == lines_of(whole[1])


def test_two_processes_do_not_train_in_one_folder(tmp_path: Path) -> None:
    training = TrainingRun(WORLD, TINY, tmp_path / "run")
    with training.folder.locked(), pytest.raises(RunFolderError, match="another process"):
        TrainingRun(WORLD, TINY, tmp_path / "run").run()


def test_a_training_of_another_version_is_named_as_such(tmp_path: Path) -> None:
    TrainingRun(WORLD, TINY, tmp_path / "run")
    file = tmp_path / "run" / "config.json"
    file.write_text(file.read_text().replace(f'"version": {VERSIONS["agents"]}', '"version": 1'))
    with pytest.raises(RunFolderError, match="another version of elden"):
        TrainingRun.open(tmp_path / "run")


def test_a_training_that_is_stopped_goes_on_as_if_it_had_not_been(
    whole: tuple[LoopState[Any], Path], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    for _ in range(2):
        with pytest.raises(OutOfTimeError):
            TrainingRun(WORLD, TINY, folder, deadline=Deadline.after(0)).run()
        # As a killed process leaves it: lines of steps whose state was never kept, the last one cut off.
        with (folder / "metrics.jsonl").open("a") as stream:
            stream.write('{"step": 1000, "episode/success": [1.0, 1.0]}\n{"step": 10')
    state = TrainingRun(WORLD, TINY, folder).run()
    assert_equal(state, whole[0])
    assert lines_of(folder) == lines_of(whole[1])


@pytest.mark.slow
def test_a_finished_training_can_have_more_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The result is as if it had had them from the start."""
    config = replace(TINY, bonus_name="none", bonus=BonusConfig(), seeds=1)
    short = replace(config, loop=replace(config.loop, steps=STEPS // 4))
    TrainingRun(WORLD, short, tmp_path / "short").run()
    expected = TrainingRun(WORLD, config, tmp_path / "long").run()
    assert main(["resume", str(tmp_path / "short"), "--steps", str(STEPS)]) == 0
    kept = TrainingRun.open(tmp_path / "short").kept()
    assert kept is not None
    assert_equal(kept.tree, expected)
    assert lines_of(tmp_path / "short") == lines_of(tmp_path / "long")
    assert TrainingRun.open(tmp_path / "short").finished
    assert main(["resume", str(tmp_path / "short"), "--steps", str(STEPS)]) == 2
    assert f"has {STEPS} steps already" in capsys.readouterr().err


def test_a_training_with_a_falling_learning_rate_learns_on_when_it_is_given_more_steps(tmp_path: Path) -> None:
    """It ends with a rate near 0; with more steps the rate is that of the new length, and the policy moves again."""
    config = replace(TINY, bonus_name="none", bonus=BonusConfig(), seeds=1, ppo=replace(TINY.ppo, anneal_from=0.5))
    short = replace(config, loop=replace(config.loop, steps=STEPS // 2))
    TrainingRun(WORLD, short, tmp_path).run()
    before = TrainingRun.open(tmp_path).kept()
    TrainingRun.extend(tmp_path, STEPS)
    after = TrainingRun.open(tmp_path).run()
    assert before is not None
    old, new = (state.policy.network.policy for state in (before.tree, after))
    moved = jax.tree.map(lambda one, other: float(jnp.abs(one - other).max()), old, new)
    assert min(jax.tree.leaves(moved)) > 0
    assert TrainingRun.open(tmp_path).finished
    assert lines_of(tmp_path)[-1]["step"] == STEPS


def test_a_damaged_state_is_named_and_the_one_before_it_used(
    whole: tuple[LoopState[Any], Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "run"
    for _ in range(2):
        with pytest.raises(OutOfTimeError):
            TrainingRun(WORLD, TINY, folder, deadline=Deadline.after(0)).run()
    kept = sorted((folder / "checkpoints").iterdir())
    assert [slot.name for slot in kept] == ["000000001", "000000002"]
    next(kept[-1].glob("*.npy")).write_bytes(b"nothing")
    state = TrainingRun(WORLD, TINY, folder).run()
    assert "000000002" in caplog.text
    assert_equal(state, whole[0])


def test_another_training_is_refused(whole: tuple[LoopState[Any], Path]) -> None:
    with pytest.raises(OtherRunError, match="seed was 0, now 7"):
        TrainingRun(WORLD, replace(TINY, seed=7), whole[1])


@lru_cache
def after(iterations: int, seeds: int = 2, seed: int = 0) -> tuple[LoopState[Any], dict[str, Any]]:
    """The state of the same training after some iterations, and what the last one told."""
    keys = jax.vmap(jax.random.key)(jnp.arange(seed, seed + seeds, dtype=jnp.uint32))
    if not iterations:
        return _init(LOOP)(keys), {}
    state, _ = after(iterations - 1, seeds, seed)
    program, _ = _program(LOOP, 1, seeds).ready(state, keys)
    state, told = program(state, keys, jnp.int32(iterations - 1), jnp.int32(1))
    return state, {name: np.asarray(values[0]) for name, values in told.items()}


@pytest.mark.slow
def test_seeds_side_by_side_are_those_one_by_one() -> None:
    envs = TINY.loop.num_envs
    (alone, _), (together, _) = after(4, seeds=1, seed=1), after(4)
    assert alone.worlds is not None
    assert together.worlds is not None
    assert_equal(alone.worlds.states.values, together.worlds.states.values[envs:])
    ours, theirs = (jax.tree.leaves((state.policy.network, state.bonus)) for state in (alone, together))
    for left, right in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(np.asarray(left[0], np.float64), np.asarray(right[1], np.float64), atol=1e-5)


class Broken(Nothing):
    """Pays something that is not a number from the second rollout on that is paid for."""

    def init(self, key: Key[Array, ""], num_envs: int) -> Any:
        return jnp.int32(0)

    def reward(self, state: Any, steps: Steps) -> tuple[Any, Float[Array, "time env"], Any]:
        rewards = jnp.where(state >= 1, jnp.nan, 0.0) * jnp.ones(steps.done.shape)
        return state + 1, rewards, {"bonus/mean": jnp.mean(rewards)}

    def update(self, state: Any, key: Key[Array, ""], steps: Steps) -> tuple[Any, Any]:
        return state, {}


def test_what_is_not_finite_is_told_and_never_kept(tmp_path: Path) -> None:
    training = TrainingRun(WORLD, replace(TINY, bonus_name="none", seeds=1), tmp_path / "run")
    training.loop = replace(training.loop, bonus=Broken())
    with pytest.raises(NotFiniteError, match=r"bonus/mean is .* in the rollout from step 48 on"):
        training.run()
    assert [slot.name for slot in (tmp_path / "run" / "checkpoints").iterdir()] == ["000000002"]
    kept = training.kept()
    assert kept is not None
    assert all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(kept.tree))


# The command line.


def test_a_training_from_the_command_line_stops_and_goes_on(
    whole: tuple[LoopState[Any], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "run")
    words = [*WORDS, "--out", out]
    assert main([*words, "--time-limit-s", "0"]) == 75
    assert "after 1 of 40 iterations; what was done is kept" in " ".join(capsys.readouterr().out.split())
    assert main(["resume", out]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "step 960 of 960" in said
    for shown in ("steps/s", "s left", "success", "stages reached", "intrinsic reward", "dynamics loss"):
        assert shown in said
    assert "dynamics accuracy" in said
    assert "graph density" in said
    assert "first success at step" in said
    assert lines_of(tmp_path / "run") == lines_of(whole[1])
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config == json.loads((whole[1] / "config.json").read_text())
    assert main(words) == 0
    assert "nothing is left to train" in " ".join(capsys.readouterr().out.split())
    assert main([*words, "--seed", "3"]) == 2
    assert "holds another run" in capsys.readouterr().err


@pytest.mark.slow
def test_a_training_that_is_killed_goes_on_as_if_it_had_not_been(
    whole: tuple[LoopState[Any], Path], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    quick = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "2", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    command = [sys.executable, "-m", "elden.cli", *WORDS, "--save-every-s", "0", "--out", str(out)]
    with (tmp_path / "said").open("wb") as said:
        process = subprocess.Popen(command, env=os.environ | quick, stdout=said, stderr=said)
    try:
        while not (out / "checkpoints" / "000000003").exists():
            assert process.poll() is None, (tmp_path / "said").read_text()
            time.sleep(0.005)
    finally:
        process.kill()
    assert process.wait() == -signal.SIGKILL
    assert not (out / "summary.json").exists()
    assert 3 <= len(lines_of(out)) < 40
    assert main(["resume", str(out)]) == 0
    assert lines_of(out) == lines_of(whole[1])
    kept = Checkpoints(out / "checkpoints", "agents", {}).restore(lambda: whole[0])
    assert kept is not None
    assert kept.number == 40
    assert_equal(kept.tree, whole[0])


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("train", "thawing", "--bonus", "eldn"), "no bonus 'eldn'; did you mean 'elden'"),
        (("train",), "elden train needs a world: thawing, carwash, minecraft, kitchen, empty, chain, or gym:ID"),
        (("train", "thawing", "--seeds", "0"), "--seeds 0 given; at least 1 agent is trained"),
        (("train", "thawing", "--steps", "0"), "--steps 0 given"),
        (("train", "thawing", "--loop.num-envs", "0"), "--envs 0 given; it must be 1 or more"),
        (("train", "thawing", "--ppo.hidden", "8", "0"), "--ppo.hidden (8, 0) given"),
        (("train", "thawing", "--bonus.gate.kind", "vote"), "invalid choice 'vote' for argument '--bonus.gate.kind'"),
        (
            ("train", "thawing", "--bonus", "elden", "--bonus.ensemble.members", "1"),
            "--bonus.ensemble.members 1 given; one member alone",
        ),
        (("train", "thawing", "--bonus.ensemble.network.mlp", "8"), "--bonus.ensemble.network.mlp (8,) ends with 8"),
        (("train", "thawing", "--bonus.detector", "gradien"), "--bonus.detector 'gradien' given; did you mean"),
        (
            ("train", "thawing", "--bonus.fit.updates", "3"),
            "--bonus.fit.updates given, but the bonus 'influence-count' does not",
        ),
        (("train", "thawing", "--bonus", "rnd", "--no-bonus.once"), "--bonus.once given, but the bonus 'rnd' does not"),
        (("train", "thawing", "--preset", "paper", "--bonus.gate.level", "1"), "--bonus.gate.kind votes does not"),
        (("train", "thawing", "--preset", "paper", "--loop.intrinsic-discount", "0.9"), "no-separate-values does not"),
        (("train", "thawing", "--bonus.ensemble.train.penalty-of", "probability"), "train.penalty 0 does not"),
        (("train", "thawing", "--bonus", "elden", "--bonus.ensemble.schedule", "9"), "detector gradient does not"),
        (
            ("train", "thawing", "--bonus", "elden", "--bonus.ensemble.train.weight", "1"),
            "train.priority 0 does not",
        ),
        (("train", "thawing", "--bonus", "none", "--loop.intrinsic-weight", "1"), "--bonus none does not"),
        (
            ("train", "thawing", "--bonus", "elden", "--bonus.threshold", "0.1"),
            "--bonus.automatic-threshold does not",
        ),
        (("train", "thawing", "--ppo.entrop", "1"), "has no option '--ppo.entrop'; did you mean '--ppo.entropy'"),
        (("resume",), "elden resume needs the folder of a run"),
        (("resume", "nowhere"), "there is no folder nowhere"),
    ],
)
def test_mistakes_on_the_command_line_are_answered_with_a_line(
    words: tuple[str, ...], answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(list(words)) == 2
    said = capsys.readouterr().err
    assert answer in said
    assert said.count("\n") == 1


def config_of(*words: str) -> TrainingConfig:
    command = parse(["train", *words])
    assert isinstance(command, Train)
    return command.config


def test_every_setting_of_a_training_is_an_option_over_the_preset_of_the_world() -> None:
    command = parse(WORDS)
    assert isinstance(command, Train)
    assert (command.config, command.world) == (TINY, WORLD)
    settings = {f"config.{name}" for name in leaves(asdict(TINY))}
    assert settings <= {option.setting for option in options_of(Train)}
    for world, preset in (("thawing", "plus"), ("carwash", "plus"), ("carwash", "paper")):
        assert config_of(world, "--preset", preset) == training_preset(preset, world)
    paid = ("carwash", "--bonus", "elden")
    changed = config_of(
        *(*paid, "--no-bonus.automatic-threshold", "--bonus.gate.kind=none", "--loop.steps", "5", "--ppo.entropy", "0")
    )
    plus = training_preset("plus", "carwash", "elden")
    assert changed == replace(
        plus,
        bonus=replace(plus.bonus, automatic_threshold=False, gate=GateConfig("none")),
        loop=replace(plus.loop, steps=5),
        ppo=replace(plus.ppo, entropy=0.0),
    )
    once, fixed = replace(plus.bonus, once=True), replace(plus.bonus, automatic_threshold=False)
    assert config_of(*paid, "--bonus.once") == replace(plus, bonus=once)
    assert config_of(*paid, "--bonus.no-automatic-threshold") == replace(plus, bonus=fixed)
    parts = config_of("thawing", "--bonus", "composite", "--bonus.parts", "rnd", "icm", "--bonus.fit.updates", "3")
    assert (parts.bonus.parts, parts.bonus.fit.updates) == (("rnd", "icm"), 3)


def test_the_help_shows_the_settings_of_the_preset(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "carwash", "--preset", "paper", "--help"]) == 0
    said = " ".join(re.sub("[│\n]", " ", capsys.readouterr().out).split())
    assert "--loop.rollout INT Steps of each environment between two updates of the policy. (default: 600)" in said
    assert "--bonus.ensemble.updates INT Updates of every model for one rollout. (default: 600)" in said
    assert "ppo options" in said
    assert "--steps INT, --loop.steps INT" in said


class FakeWandb(ModuleType):
    """Writes down what it is asked for."""

    Error = RuntimeError

    def __init__(self) -> None:
        super().__init__("wandb")
        self.begun: list[dict[str, Any]] = []
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.finished = 0

    def init(self, **options: Any) -> "FakeWandb":
        self.begun.append(options)
        return self

    def log(self, numbers: dict[str, float], step: int) -> None:
        self.logged.append((step, numbers))

    def finish(self) -> None:
        self.finished += 1


def test_what_is_logged_to_wandb_goes_on_with_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wandb = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    out = tmp_path / "run"
    assert main([*WORDS, "--wandb", "thaw", "--time-limit-s", "0", "--out", str(out)]) == 75
    assert main(["resume", str(out)]) == 0
    first, second = wandb.begun
    assert (first["project"], first["resume"]) == ("thaw", "allow")
    assert first["config"]["training"]["loop"]["num_envs"] == 4
    assert second == first
    assert wandb.finished == 2
    assert [step for step, _ in wandb.logged] == list(range(24, STEPS + 1, 24))
    for (_, numbers), line in zip(wandb.logged, lines_of(out), strict=True):
        for seed in range(2):
            assert numbers.get(f"dynamics/accuracy/{seed}") == line["dynamics/accuracy"][seed]
    capsys.readouterr()
    assert main([*WORDS, "--wandb", "other", "--out", str(out)]) == 0  # finished: there is nothing to log
    monkeypatch.setattr(wandb, "init", lambda **_: (_ for _ in ()).throw(RuntimeError("no key")))
    capsys.readouterr()
    assert main([*WORDS, "--wandb", "thaw", "--out", str(tmp_path / "new")]) == 2
    assert "W&B does not begin a run: no key" in capsys.readouterr().err
    assert not (tmp_path / "new" / "wandb.json").exists()


def test_wandb_that_is_not_there_is_told_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert main([*WORDS, "--wandb", "thaw", "--out", str(tmp_path / "run")]) == 2
    assert "not installed: pip install '.[wandb]'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_folder_of_something_else_cannot_go_on(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"detect": {}}')
    with pytest.raises(RunFolderError, match="holds no training run that can continue"):
        TrainingRun.open(tmp_path)


# What an iteration does.


def test_nothing_is_learnt_or_rewarded_before_the_warm_up_is_over() -> None:
    (start, _), (cold, said), (warm, later) = after(0), after(1), after(2)
    assert said["bonus/rewarded_steps"].min() > 0  # there is something that could have been rewarded
    assert_equal((cold.policy, cold.scale, cold.bonus.memory), (start.policy, start.scale, start.bonus.memory))
    assert np.abs(said["bonus/scaled"]).max() == 0
    assert np.isnan(said["policy/loss"]).all()
    assert int(cold.bonus.ensemble.ring.size[0]) == 24  # but the models learn
    assert later["bonus/scaled"].min() > 0
    assert warm.scale.count.tolist() == [24, 24]
    assert bool(warm.bonus.memory.episodes.seen.any())
    last = [state.policy.network.policy.layers[-1].weight for state in (cold, warm)]
    assert float(jnp.abs(last[1] - last[0]).min(axis=(1, 2)).max()) > 0.0


def test_the_step_size_falls_over_the_iterations_in_which_the_policy_learns() -> None:
    for warmup, updates in ((24, 39 * 2 * 3), (STEPS, 2 * 3)):
        agent = replace(LOOP, config=replace(TINY.loop, warmup_steps=warmup)).agent
        assert isinstance(agent, Ppo)
        assert agent.total_updates == updates


def test_schedules_of_masks_are_fitted_to_the_length_of_the_training() -> None:
    bonus = replace(TINY.bonus, detector="input-mask")
    loop = Loop.of(WORLD, replace(TINY, bonus_name="elden", bonus=bonus))
    assert isinstance(loop.bonus, ModelBonus)
    mask = loop.bonus.ensemble.variant
    assert isinstance(mask, LearntMask)
    assert mask.cooling == 4 * loop.config.iterations * bonus.ensemble.updates
    assert 0 < mask.start < mask.stop <= loop.config.iterations * bonus.ensemble.updates / 5


def test_the_density_of_graphs_is_told_where_graphs_are_read(whole: tuple[LoopState[Any], Path]) -> None:
    told = [density for line in lines_of(whole[1]) for density in line["graph/density"] if density is not None]
    assert len(told) > 40
    assert all(0 <= density <= 1 for density in told)
    assert len(set(told)) > 10


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
    priority = {world: training_preset("paper", world).bonus.ensemble.train.priority for world in elden.WORLDS}
    assert {world for world, level in priority.items() if level > 0} == {"minecraft", "kitchen"}  # as in its text
    ours = training_preset("plus", "carwash")
    assert (ours.bonus_name, ours.bonus.models, ours.bonus.detector) == ("influence-count", True, "intervention")
    plus = training_preset("plus", "carwash", "elden")
    assert (plus.bonus.models, plus.bonus.gate.kind, plus.bonus.once) == (False, "surprise", False)
    assert (ours.ppo, ours.loop) == (plus.ppo, plus.loop)
    # The bonuses of others have no gate, and all else in common.
    other = training_preset("plus", "carwash", "curiosity")
    assert (other.bonus_name, other.bonus.gate.kind, other.bonus.once) == ("curiosity", "none", False)
    assert (other.ppo, other.loop, other.bonus.ensemble) == (plus.ppo, plus.loop, plus.bonus.ensemble)
    gated = [name for name, entry in BONUSES.items() if "gate" in entry.reads]
    assert [name for name in gated if training_preset("plus", "", name).bonus.gate.kind != "none"] == ["elden"]
    command = parse(["train", "carwash", "--bonus", "curiosity"])
    assert isinstance(command, Train)
    assert command.config == other
    with pytest.raises(ValueError, match="plus"):
        training_preset("pluss", "carwash")
    with pytest.raises(ValueError, match="no world 'thwing'; did you mean 'thawing'"):
        training_preset("plus", "thwing")
    assert training_preset("plus", "gym:some_envs:Lamp-v0") == training_preset("plus", "")
    with pytest.raises(ValueError, match="no bonus"):
        training_preset("plus", "carwash", "boredom")


@pytest.mark.slow
def test_the_agents_of_the_preset_plus_solve_thawing(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    # An optimised program, since it runs more than it compiles. The models beside the bonus change no agent.
    optimised = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    words = [sys.executable, "-m", "elden", "train", "thawing", "--bonus.no-models", "--out", str(folder)]
    subprocess.run(words, env=optimised, check=True, capture_output=True)
    summary = json.loads((folder / "summary.json").read_text())
    assert min(seed["success_rate_solvable"] for seed in summary["seeds"]) >= 0.9


def test_a_request_to_terminate_is_an_interruption(capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended, stopping(make_console(), "elden resume runs/some"):
        signal.raise_signal(signal.SIGTERM)
    assert ended.value.code == 130
    assert "or `elden resume runs/some`, continues" in " ".join(capsys.readouterr().out.split())
    assert signal.getsignal(signal.SIGTERM) is before


BUSY = """
import hashlib
from elden.cli import running
from elden.cli.console import make_console
from elden.storage.resumable import Deadline
running._AGAIN_S, running._PATIENCE_S = 0.3, 2.5
import time
began = time.monotonic() if {breakable} else None
with running.stopping(make_console(), None, lambda: began, Deadline.after({limit})):
    print("here", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)  # like a compiled call: Python handles no signal in it
"""


def test_a_second_signal_ends_a_compiled_call_at_once() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", BUSY.format(breakable=False, limit=0.0)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        time.sleep(0.5)
        process.terminate()
        process.terminate()  # the same request, as a scheduler and a parent both pass it on
        time.sleep(4.0)  # longer than a call that could be broken off would have
        assert process.poll() is None
        process.terminate()
        _, said = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 130
    assert [line[:26] for line in said.splitlines()] == ["elden: asked to end; waiti", "elden: asked twice, so it "]


@pytest.mark.parametrize(
    ("asked", "limit", "code", "said"),
    [(True, None, 130, "takes too long and is broken off"), (False, 0.0, 75, "the time limit is over, and the call")],
)
def test_a_call_that_takes_too_long_is_broken_off_where_nothing_else_is_lost(
    asked: bool, limit: float | None, code: int, said: str
) -> None:
    words = [sys.executable, "-c", BUSY.format(breakable=True, limit=limit)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        if asked:
            time.sleep(0.5)
            process.terminate()
        _, printed = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == code
    assert said in printed.splitlines()[-1]


def test_a_call_can_be_broken_off_where_little_else_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, bool]] = []
    training = TrainingRun(WORLD, TINY, tmp_path)
    ready = _Program.ready

    def watched(program: _Program, state: Any, keys: Any) -> Any:
        compiled, seconds = ready(program, state, keys)

        def call(*arguments: Any) -> Any:
            seen.append((int(arguments[2]), training.breakable_since is not None))
            return compiled(*arguments)

        return call, seconds

    monkeypatch.setattr(_Program, "ready", watched)
    training.run()
    assert training.breakable_since is None
    warmup = TINY.loop.warmup_iterations
    assert [first for first, _ in seen][: warmup + 2] == list(range(warmup + 2))
    assert all(breakable for _, breakable in seen)  # half a minute of training may be lost


@pytest.mark.parametrize(("save_every_s", "breakable"), [(0.0, True), (1e9, False)])
def test_a_call_with_more_to_lose_is_not_broken_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, save_every_s: float, breakable: bool
) -> None:
    monkeypatch.setattr("elden.training.run.LONG_S", 0.0)  # any training that is not kept is too much to lose
    seen: list[bool] = []
    training = TrainingRun(WORLD, TINY, tmp_path, save_every_s=save_every_s)
    ready = _Program.ready

    def watched(program: _Program, state: Any, keys: Any) -> Any:
        compiled, seconds = ready(program, state, keys)

        def call(*arguments: Any) -> Any:
            seen.append(training.breakable_since is not None)
            if len(seen) == 4:
                raise KeyboardInterrupt
            return compiled(*arguments)

        return call, seconds

    monkeypatch.setattr(_Program, "ready", watched)
    with pytest.raises(KeyboardInterrupt):
        training.run()
    assert seen == [True, *[breakable] * 3]
    assert training.breakable_since is None  # keeping the state is never broken off


def test_calls_begin_with_one_iteration_again_when_agents_begin_to_learn(tmp_path: Path) -> None:
    loop = replace(TINY.loop, steps=TINY.loop.steps_per_iteration * 40, warmup_steps=TINY.loop.steps_per_iteration * 7)
    training = TrainingRun(WORLD, replace(TINY, loop=loop), tmp_path, iterations_per_call=5)
    lengths, done = [], 0
    while done < 20:
        lengths.append(training._next(done))
        done += lengths[-1]
        training.last_call = Call(done, lengths[-1], 1e-3)
        assert (_forecast(training) is None) == (done <= 7)
    assert lengths[:5] == [1, 5, 1, 1, 5]


def test_metrics_without_a_state_are_not_dropped_without_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    training = TrainingRun(WORLD, TINY, tmp_path)
    training.folder.log(TINY.loop.steps_per_iteration, {"bonus/mean": [0.0] * TINY.seeds})
    training._begin()
    assert "holds no state, so training begins at step 0; its 1 lines of metrics are dropped" in caplog.text


@pytest.mark.parametrize(
    "change",
    [
        {"warnings": 5},
        {"warnings": [5]},
        {"seeds": [{"success_rate": "x"}]},
        {"seeds": [{"first_success_step": "x"}]},
        {"seeds": [{"success_rate": True}]},
    ],
)
def test_results_of_other_types_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    training = TrainingRun(WORLD, replace(TINY, seeds=1), tmp_path)
    names = ("success_rate", "success_rate_solvable", "normalized_stage", "first_success_step")
    seed: dict[str, object] = {"seed": 0, **dict.fromkeys(names)}
    training.folder.write_summary({"seeds": [seed], "warnings": []})
    assert training.summary()["warnings"] == []
    seeds = [{**seed, **each} for each in change.get("seeds", [{}])]
    training.folder.write_summary({"warnings": [], **change, "seeds": seeds})
    with pytest.raises(RunFolderError, match="holds no results of a training run"):
        training.summary()


def test_a_refused_start_over_removes_nothing(tmp_path: Path) -> None:
    training = TrainingRun(WORLD, TINY, tmp_path)
    for number in (1, 2):
        training.states.save(number, {"a": jnp.zeros(2)})
    (training.states.folder / "000000001" / "notes.txt").write_text("mine")
    before = sorted(training.states.folder.rglob("*"))
    with pytest.raises(RunFolderError, match=r"notes\.txt is not elden"):
        training.start_over()
    assert sorted(training.states.folder.rglob("*")) == before


def test_an_interruption_that_is_lost_on_the_way_stops_after_the_step() -> None:
    kept = []

    def advance(at: Reached[None]) -> tuple[Reached[None], Callable[[], None]]:
        with suppress(KeyboardInterrupt):  # as where Python ignores it, at the end of an object
            signal.raise_signal(signal.SIGTERM)
        return Reached(at.number + 1, None), lambda: None

    with pytest.raises(SystemExit) as ended, stopping(make_console()):
        Resumable(5, "steps", advance, lambda at: kept.append(at.number)).run(Reached(0, None))
    assert (ended.value.code, kept) == (130, [1])
    assert not ASKED_TO_STOP.is_set()


def test_steps_that_take_long_are_kept_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    now, kept = [0.0], []
    monkeypatch.setattr("elden.storage.resumable.time.monotonic", lambda: now[0])

    def advance(at: Reached[None]) -> tuple[Reached[None], Callable[[], None]]:
        now[0] += lengths[at.number]
        return Reached(at.number + 1, None, at.clock.plus(0.0, lengths[at.number])), lambda: None

    lengths = (20.0, 40.0, 20.0, 45.0, 1.0)
    Resumable(5, "steps", advance, lambda at: kept.append(at.number)).run(Reached(0, None))
    assert kept == [2, 4, 5]


def test_a_repeated_signal_does_not_break_off_what_keeps_the_state() -> None:
    kept = []
    signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background of a shell it is ignored

    def work() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGTERM)
            kept.append("state")

    with pytest.raises(SystemExit), stopping(make_console()):
        work()
    assert kept == ["state"]


def test_the_first_call_forecasts_the_rest(tmp_path: Path) -> None:
    training = TrainingRun(WORLD, TINY, tmp_path)
    assert _forecast(training) is None
    warmup = TINY.loop.warmup_iterations
    training.last_call = Call(warmup, 1, 1e-3)
    assert _forecast(training) is None  # it says nothing of what follows
    training.last_call = Call(warmup + 1, 1, 0.5)
    left = 0.5 * (39 - warmup)
    words = f"a rollout of all seeds, with what is learnt from it, took 0.5 s; about {left:,.0f} s are left"
    assert _forecast(training) == words
    training.last_call = Call(38, 2, 180.0)
    assert "about 180 s are left. Ctrl-C and --time-limit-s wait" in str(_forecast(training))
    training.last_call = Call(40, 10, 90.0)
    assert _forecast(training) is None


def test_calls_are_bounded_in_time(tmp_path: Path) -> None:
    training = TrainingRun(WORLD, TINY, tmp_path, iterations_per_call=20)
    assert training._next(5) == 1
    for each_s, number in ((0.5, 20), (12.0, 5), (70.0, 1), (0.0, 20)):
        training.last_call = Call(5, 2, 2 * each_s)
        assert training._next(5) == number
    assert training._next(37) == 3
    training.deadline, training.last_call = Deadline.after(9.5), Call(5, 1, 2.0)
    assert training._next(5) == 4
    training.deadline = Deadline.after(0)
    assert training._next(5) == 1


def test_what_was_logged_in_part_is_made_again() -> None:
    kept: list[int] = []
    logged: list[int] = []

    def advance(at: Reached[None]) -> tuple[Reached[None], Callable[[], None]]:
        def log() -> None:
            for number in range(at.number + 1, at.number + 4):
                if number == 5 and not kept:
                    raise KeyboardInterrupt
                logged.append(number)

        return Reached(at.number + 3, None), log

    work = Resumable(6, "calls", advance, lambda at: kept.append(at.number))
    with pytest.raises(KeyboardInterrupt):
        work.run(Reached(0, None))
    assert (kept, logged) == ([3], [1, 2, 3, 4])  # the line of 4 is dropped when it continues from 3
    assert work.run(Reached(3, None)).number == 6
    assert logged[4:] == [4, 5, 6]


def test_no_call_is_begun_that_the_time_limit_would_break_off() -> None:
    kept: list[int] = []

    def advance(at: Reached[None]) -> tuple[Reached[None], Callable[[], None]]:
        return Reached(at.number + 2, None, at.clock.plus(train_s=100.0)), lambda: None

    def work(limit_s: float | None) -> Resumable[None]:
        return Resumable(6, "calls", advance, lambda at: kept.append(at.number), Deadline.after(limit_s))

    with pytest.raises(OutOfTimeError, match="leaves no time for another 50 s, after 2 of 6 calls"):
        work(30.0).run(Reached(0, None))
    assert kept == [2]
    assert work(70.0).run(Reached(2, None)).number == 6
    assert work(None).run(Reached(2, None)).number == 6


def test_more_steps_than_a_year_takes_are_refused(tmp_path: Path) -> None:
    training = TrainingRun(WORLD, TINY, tmp_path)
    training.folder.write_summary({"steps_per_s": 1000.0})
    with pytest.raises(RunFolderError, match=r"--steps 1000000000000 given, which takes 63 years at the 1,000 steps/s"):
        TrainingRun.extend(tmp_path, 10**12)
    assert training.finished
    assert TrainingRun.open(tmp_path).config.loop.steps == STEPS


def test_what_takes_long_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("elden.cli.train._LONG_S", 0.05)
    training, begun = TrainingRun(WORLD, TINY, tmp_path, deadline=Deadline.after(0)), threading.Event()
    watch = threading.Thread(target=_tell_that_it_takes_long, args=(make_console(), training, begun))
    watch.start()
    time.sleep(0.2)
    training.call_began = time.monotonic()
    time.sleep(0.2)
    begun.set()
    watch.join()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "compiling for 0 s; the time limit is over"
    assert lines[-1] == "in the first call for 0 s; the time limit is over"


# Memory.


def test_memory_is_forecast_from_the_shapes_of_the_state() -> None:
    few, many = (memory_need(LOOP, jax.vmap(jax.random.key)(jnp.arange(number, dtype=jnp.uint32))) for number in (1, 3))
    assert (few.seeds, many.seeds) == (1, 3)
    assert (many.state, many.replay, many.rollout) == (3 * few.state, 3 * few.replay, 3 * few.rollout)
    assert 0 < few.replay < few.state
    longer = Loop.of(
        WORLD, replace(TINY, bonus=replace(TINY.bonus, ensemble=replace(TINY.bonus.ensemble, capacity=10**6)))
    )
    assert memory_need(longer, jax.vmap(jax.random.key)(jnp.arange(1, dtype=jnp.uint32))).replay > 10**6


def test_what_would_fit_is_said() -> None:
    gib = 2**30
    need = MemoryNeed(state=8 * gib, replay=6 * gib, rollout=gib, seeds=10)
    assert need.whole == 20 * gib
    assert "12 GiB for replay" in need.advice(None)
    assert need.advice(11 * gib).endswith("and 11 GiB are there: --seeds 5 would fit")
    assert need.advice(gib).endswith("not even one seed would fit, so make that smaller")
    assert "40 GiB are there: so other programs use the memory, or" in need.advice(40 * gib)
    assert "4 GiB for rollouts" in replace(need, replay=0, state=gib).advice(None)
    assert "16 GiB for networks and environments (--ppo.hidden" in replace(need, replay=0).advice(None)


def test_too_little_memory_is_answered_with_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "chain", "--bonus", "none", "--seeds", "2", "--steps", "400", "--out", str(tmp_path / "run")]
    monkeypatch.setattr("elden.cli.train.memory_there", lambda: 1000)
    assert main(words) == 2
    assert "the device has not enough memory: about " in capsys.readouterr().err
    monkeypatch.setattr("elden.cli.train.memory_there", lambda: 10**12)

    def run(_: TrainingRun) -> None:
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8 bytes.\nmany\nlines")

    monkeypatch.setattr(TrainingRun, "run", run)
    assert main(words) == 1
    assert "stopped: the device has not enough memory; about " in capsys.readouterr().out
