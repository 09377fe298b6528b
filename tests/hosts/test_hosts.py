"""Environments of others: what they are made of, that rollouts are what they say, and that agents learn in them."""

import io
import json
import multiprocessing
import os
import runpy
import shlex
import signal
import subprocess
import sys
import time
import types
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from host_cases import CORRIDOR, ENDLESS, Corridor
from rich.console import Console

import elden
from elden.agents import PpoConfig
from elden.bonuses import BonusConfig, EnsembleConfig, GateConfig
from elden.bonuses.model_based import ModelState
from elden.cli import main
from elden.cli.errors import INTERRUPTED
from elden.cli.evaluate import report
from elden.dynamics.config import NetworkConfig, TrainConfig
from elden.factors import Continuous, Discrete
from elden.hosts.refusals import close_quietly
from elden.hosts.vector import Hosts, env_seeds
from elden.hosts.worker import EnvironmentFailedError
from elden.hosts.world import HostConfig, HostWorld, HostWorldError, UntrustedModuleError
from elden.storage.arrays import VERSIONS
from elden.storage.folder import RunFolderError
from elden.storage.plain import plain
from elden.storage.resumable import Deadline, OutOfTimeError
from elden.training.algorithm import Loop
from elden.training.config import LoopConfig, TrainingConfig
from elden.training.evaluation import _APART, EvaluationConfig
from elden.training.host import HostCollector, begun_anew
from elden.training.run import TrainingRun

TRUST = "gym:host_cases"
ENVS, ROLLOUT, ITERATIONS = 2, 20, 3
TINY = TrainingConfig(
    bonus=BonusConfig(
        ensemble=EnsembleConfig(
            network=NetworkConfig(children="entity", features=(8,), mlp=(8,), heads=1, head_size=4),
            train=TrainConfig(mixup=0.1, penalty=0.0, batch_size=8),
            members=2,
            capacity=ENVS * ROLLOUT * ITERATIONS,
            updates=1,
            chunk=16,
        ),
        gate=GateConfig("information", level=0.001),
        once=True,
        threshold=0.1,
    ),
    ppo=PpoConfig(minibatch_size=20, epochs=1, hidden=(8,)),
    loop=LoopConfig(num_envs=ENVS, rollout=ROLLOUT, steps=ENVS * ROLLOUT * ITERATIONS, warmup_steps=0),
    seeds=2,
)


# What an environment is made of.


def test_an_environment_is_read_off_its_spaces() -> None:
    world = HostWorld.look(HostConfig(CORRIDOR))
    assert world.name == f"gym:{CORRIDOR}"
    # In the order of its own names, not in that of a Dict, which is sorted.
    assert world.factors.variable_names == Corridor.variable_names
    assert [v.kind for v in world.factors.variables] == [Discrete(4), Discrete(2), *[Continuous(1, 0, 1)] * 2]
    assert (world.num_actions, world.first_action, world.max_steps) == (3, 1, 12)
    assert world.stage_names == ("success",)
    assert HostWorld.look(HostConfig(CORRIDOR, ("length=6", "tell=true"), max_steps=5)) == replace(
        world,
        config=HostConfig(CORRIDOR, ("length=6", "tell=true"), max_steps=5),
        factors=HostWorld.look(HostConfig(ENDLESS, ("length=6",), max_steps=9)).factors,
        stage_names=("stage 1", "stage 2"),
        max_steps=5,
    )


def test_our_own_environments_are_read_with_their_names() -> None:
    world, same = elden.make("kitchen"), HostWorld.look(HostConfig("elden/Kitchen-v0"))
    assert same.factors == world.factors
    assert (same.stage_names, same.max_steps, same.num_actions) == (world.stage_names, 100, world.num_actions)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (HostConfig(ENDLESS), "max_steps=N"),
        (HostConfig("CartPole-v1"), "Dict of entities"),
        (HostConfig("elden-tests/Nowhere-v0"), "cannot be made"),
        (HostConfig("no_such_module:Foo-v0"), "no_such_module"),
        (HostConfig(CORRIDOR, ("height=3",)), "height"),
    ],
)
def test_environments_that_cannot_be_trained_on_are_refused(config: HostConfig, words: str) -> None:
    with pytest.raises(HostWorldError, match=words) as refused:
        HostWorld.look(config)
    assert config.id in str(refused.value)


def test_options_are_names_and_plain_values() -> None:
    config = HostConfig("A-v0", ("size=3", "goto=path", "rate=0.5", "on=true", "none=null", 'word="3"'))
    assert dict(config.options) == {"size": 3, "goto": "path", "rate": 0.5, "on": True, "none": None, "word": "3"}
    assert HostConfig.from_card(**config.card()) == config  # type: ignore[arg-type]
    for wrong in ("size", "=3", "size=[1]"):
        with pytest.raises(HostWorldError, match="env_options"):
            HostConfig("A-v0", (wrong,))


# Rollouts are what the environments say.


def replay(config: HostConfig, seed: int, actions: np.ndarray, first_action: int = 0) -> dict[str, np.ndarray]:
    """The same actions in one environment alone, which is reset by hand."""
    env = gymnasium.make(config.id, **dict(config.options))  # type: ignore[arg-type]
    factors = HostWorld.look(config).factors
    taken: dict[str, list[Any]] = {name: [] for name in ("obs", "next_obs", "done", "reward", "elapsed", "info")}
    obs, _ = env.reset(seed=seed)
    elapsed = 0
    for action in actions:
        after, reward, terminated, truncated, info = env.step(int(action) + first_action)
        row = (factors.from_space_sample(obs), factors.from_space_sample(after), terminated or truncated, reward)
        for name, part in zip(taken, (*row, elapsed, info), strict=True):
            taken[name].append(part)
        obs, elapsed = after, elapsed + 1
        if terminated or truncated:
            obs, elapsed = env.reset()[0], 0
    env.close()
    return {name: np.array(parts) for name, parts in taken.items()}


def test_rollouts_of_our_own_environments_agree_with_an_independent_replay() -> None:
    config = HostConfig("elden/Thawing-v0", ("max_steps=4",), processes=False)
    world = HostWorld.look(config)
    loop: Loop[Any] = Loop.of(world, replace(TINY, bonus_name="none"))
    chosen = np.random.default_rng(0).integers(world.num_actions, size=(2 * ROLLOUT, 2, ENVS)).astype(np.int32)
    calls = iter(chosen)

    def act(*_: object) -> tuple[Any, Any]:
        action = next(calls)
        return jnp.asarray(action), jnp.zeros(action.shape, jnp.float32)

    collector = HostCollector(loop, (3, 8), 0, act)
    keys = jax.vmap(jax.random.key)(jnp.arange(2, dtype=jnp.uint32))
    policy = jax.vmap(loop.agent.init)(keys)
    rollouts = [collector.collect(None, policy, keys, jnp.asarray(True))[1] for _ in range(2)]
    collector.close()
    whole: Any = jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *rollouts)
    for agent, seed in enumerate((3, 8)):
        for env, env_seed in enumerate(env_seeds(seed, 0, ENVS)):
            said = replay(config, env_seed, chosen[:, agent, env])
            ours = jax.tree.map(lambda leaf, agent=agent, env=env: leaf[agent, :, env], whole)
            np.testing.assert_array_equal(ours.steps.obs, said["obs"])
            np.testing.assert_array_equal(ours.steps.next_obs, said["next_obs"])
            np.testing.assert_array_equal(ours.steps.done, said["done"])
            np.testing.assert_array_equal(ours.reward, said["reward"])
            np.testing.assert_allclose(ours.elapsed[:, 0], said["elapsed"] / 4)
            np.testing.assert_array_equal(ours.success, [info["success"] for info in said["info"]])
            np.testing.assert_array_equal(ours.stages, [info["stages"] for info in said["info"]])
            assert not ours.terminated.any(), "time limits do not end the task"
            assert said["done"].sum() == 2 * ROLLOUT // 4
    # The case must show what it is about: an episode's last state is not the next one's first.
    assert (whole.steps.next_obs[:, :-1] != whole.steps.obs[:, 1:]).any()


def test_success_is_told_or_else_what_was_paid() -> None:
    untold = HostWorld.look(HostConfig(CORRIDOR, processes=False))
    told = HostWorld.look(HostConfig(CORRIDOR, ("tell=true",), processes=False))
    right, press = np.full(8, 1, np.int32), np.full(8, 2, np.int32)
    found = {}
    for world in (untold, told):
        with Hosts(world, 8) as hosts:
            start = hosts.reset(range(8))
            steps = [hosts.step(action) for action in (right, right, right, press)]
            found[world] = steps[-1]
            assert not any(step.success.any() for step in steps[:-1])
            assert (start[:, 0] < 3).all()
    for step in found.values():
        assert step.terminated.all()
        assert not step.truncated.any()
        np.testing.assert_array_equal(step.next_obs[:, :2], [[3, 1]] * 8)
        assert (step.following[:, 1] == 0).all()
    assert found[untold].success.all()
    np.testing.assert_array_equal(found[told].success, found[told].next_obs[:, 2] > 0.5)
    assert 0 < found[told].success.sum() < 8
    np.testing.assert_array_equal(found[told].stages, np.ones((8, 2), bool))


# A training run: one that was stopped and resumed, in processes.


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> TrainingRun:
    """A training run of two sittings: one iteration, then two."""
    folder = tmp_path_factory.mktemp("hosts") / "run"
    world = HostWorld.look(HostConfig(CORRIDOR, ("length=3",)))
    with pytest.raises(OutOfTimeError):
        TrainingRun(world, TINY, folder, deadline=Deadline.after(0)).run()
    assert not multiprocessing.active_children()
    again = TrainingRun.open(folder, trust=TRUST)
    assert again.begins_episodes_anew
    assert again.world == world
    again.run()
    assert not multiprocessing.active_children()
    return again


def test_the_models_learn_from_what_environments_say_also_after_resuming(resumed: TrainingRun) -> None:
    kept = resumed.kept()
    assert kept is not None
    assert isinstance(kept.tree.bonus, ModelState)
    assert kept.number == ITERATIONS
    assert kept.tree.worlds is None
    config, ended = HostConfig(CORRIDOR, ("length=3",)), 0
    for agent, seed in enumerate(TINY.all_seeds):
        items: Any = jax.tree.map(lambda leaf, agent=agent: leaf[agent], kept.tree.bonus.ensemble.ring.items)
        obs, action, after = (
            np.asarray(part).reshape(ITERATIONS, ROLLOUT, ENVS, *part.shape[1:])
            for part in (items.obs, items.action, items.next_obs)
        )
        # Episodes begin again in iteration 1, with randomness of their own.
        for start, sitting in ((0, slice(0, 1)), (1, slice(1, 3))):
            for env, env_seed in enumerate(env_seeds(seed, start, ENVS)):
                said = replay(config, env_seed, action[sitting, :, env].reshape(-1), first_action=1)
                np.testing.assert_array_equal(obs[sitting, :, env].reshape(-1, 4), said["obs"])
                np.testing.assert_array_equal(after[sitting, :, env].reshape(-1, 4), said["next_obs"])
                ended += said["done"].sum()
    assert ended > 4


def test_new_episodes_owe_nothing_to_those_before(resumed: TrainingRun) -> None:
    kept = resumed.kept()
    assert kept is not None
    episodes = kept.tree.bonus.memory.episodes
    full = replace(kept.tree.bonus.memory, episodes=replace(episodes, seen=jnp.ones_like(episodes.seen)))
    state = replace(kept.tree, bonus=replace(kept.tree.bonus, memory=full))
    state = replace(state, scale=replace(state.scale, running=jnp.ones_like(state.scale.running)))
    again = begun_anew(state)
    assert not again.bonus.memory.episodes.seen.any()
    assert not again.scale.running.any()
    np.testing.assert_array_equal(again.bonus.memory.threshold, state.bonus.memory.threshold)
    np.testing.assert_array_equal(again.scale.squares, state.scale.squares)


def test_a_run_folder_has_what_that_of_our_own_worlds_has(resumed: TrainingRun) -> None:
    lines = list(resumed.folder.metrics())
    assert [line["step"] for line in lines] == [40, 80, 120]
    assert all(len(line["episode/success"]) == 2 for line in lines)
    assert "episode/solvable" not in lines[0]
    assert [seed["seed"] for seed in resumed.folder.read_summary()["seeds"]] == [0, 1]


def one_by_one(training: TrainingRun, agent: int, number: int) -> tuple[bool, int]:
    """Success and length of one episode, played slowly."""
    kept = training.kept()
    assert kept is not None
    assert isinstance(training.world, HostWorld)
    network = jax.tree.map(lambda leaf: leaf[agent], kept.tree.policy.network)
    key = jax.random.fold_in(jax.random.key(0), _APART)
    word, factors = int(np.asarray(jax.random.key_data(key))[-1]), training.world.factors
    env = gymnasium.make(training.world.config.id, length=3)
    obs, _ = env.reset(seed=int(np.random.SeedSequence((word, number)).generate_state(1)[0]) >> 1)
    for taken in range(12):
        now = jax.random.fold_in(jax.random.fold_in(key, number), taken)
        inputs = training.loop.actor.inputs(jnp.asarray(factors.from_space_sample(obs)), jnp.float32(taken / 12))
        action = int(training.loop.agent.actions.sample(now, network.numbers(inputs)))
        obs, _, terminated, _, _ = env.step(action + 1)
        if terminated:
            break
    return terminated, taken + 1


@pytest.mark.slow
def test_agents_are_evaluated_as_far_as_the_environment_allows(resumed: TrainingRun) -> None:
    console = Console(file=io.StringIO(), width=200)
    found = report(console, resumed, EvaluationConfig(3), "test")
    assert not multiprocessing.active_children()
    said = " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]
    assert "tells no true local graphs" in said
    assert "effect <- cause predicted" in said
    assert "in episodes" not in said
    assert "episode.gif" not in said
    slowly = np.array([[one_by_one(resumed, agent, number) for number in range(3)] for agent in range(2)])
    np.testing.assert_array_equal(found.outcomes.success, slowly[..., 0])
    np.testing.assert_array_equal(found.outcomes.length, slowly[..., 1])
    assert found.rates()["success_rate_solvable"] is None
    edge = found.entities.rows()[0]
    assert (edge.true, edge.true_rate, edge.recall, edge.agreement) == (None, None, None, None)
    assert edge.predicted is not None


def test_a_rollout_that_is_one_chunk_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="iterations_per_call=2"):
        TrainingRun(HostWorld.look(HostConfig(CORRIDOR)), TINY, tmp_path / "run", iterations_per_call=2)


def test_a_training_whose_module_is_gone_is_named(resumed: TrainingRun, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    text = (resumed.folder.path / "config.json").read_text()
    (folder / "config.json").write_text(text.replace("host_cases:", "gone_cases:"))
    with pytest.raises(RunFolderError, match="gone_cases"):
        TrainingRun.open(folder, trust="gym:gone_cases")


# Run folders of others.


@pytest.fixture
def sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run folder that somebody else has sent; the module of its environment lies in the current folder."""
    (tmp_path / "sly_envs.py").write_text("from pathlib import Path\nPath('imported').touch()\n")
    card = {"name": "gym:sly_envs:Sly-v0", "options": HostConfig("A-v0").card()["options"]}
    folder = tmp_path / "sent"
    folder.mkdir()
    identity = {"world": card, "training": TINY, "version": VERSIONS["agents"]}
    (folder / "config.json").write_text(json.dumps(plain(identity)))
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.mark.parametrize("command", ["resume", "evaluate"])
@pytest.mark.parametrize("trust", [(), ("--trust", "gym:other")])
def test_a_module_in_a_run_folder_is_imported_only_if_it_is_named(
    command: str, trust: tuple[str, ...], sent: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "sent", *trust]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "its environment gym:sly_envs:Sly-v0 is in the module sly_envs" in line
    allows = line.rpartition("if you trust it: ")[2]
    assert allows == f"elden {command} sent --trust gym:sly_envs"
    assert not Path("imported").exists()
    assert main(shlex.split(allows)[1:]) == 2
    assert "Sly" in capsys.readouterr().err  # the module has no such environment
    assert Path("imported").exists()
    del sys.modules["sly_envs"]


def test_the_functions_ask_too(sent: Path) -> None:
    for call in (elden.resume, elden.evaluate):
        with pytest.raises(UntrustedModuleError, match="sly_envs"):
            call("sent")
    with pytest.raises(UntrustedModuleError, match="sly_envs"):
        elden.resume("sent", steps=10_000)
    assert not Path("imported").exists()


def test_environments_that_are_installed_need_no_trust(sent: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = sent / "config.json"
    config.write_text(config.read_text().replace("gym:sly_envs:Sly-v0", "gym:CartPole-v1"))
    assert main(["evaluate", "sent"]) == 2
    assert "Dict of entities" in capsys.readouterr().err  # it has been made, and looked at


def test_what_is_no_module_is_not_put_on_a_command_line(sent: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = sent / "config.json"
    config.write_text(config.read_text().replace("sly_envs:", "$(touch x):"))
    assert main(["evaluate", "sent"]) == 2
    assert "is no name of a module" in capsys.readouterr().err


# Environments that fail.


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("fail_at=3", r"(?s)environment [01] of host_cases:.* failed in step\(1\):\n.*caved in"),
        ("die_at=3", r"the process of environment [01] of gym:host_cases:.* is gone"),
        ("wrong_at=3", r"gym:host_cases:.*lamp\.on is observed as 7"),
        ("nan_at=3", r"environment [01] of host_cases:.*the reward is nan; it must be finite"),
    ],
)
def test_a_failure_names_the_environment_and_leaves_no_process(option: str, words: str) -> None:
    world = HostWorld.look(HostConfig(CORRIDOR, (option,)))
    with Hosts(world, 2) as hosts:
        hosts.reset(range(2))
        for _ in range(2):
            hosts.step(np.zeros(2, np.int32))
        with pytest.raises(EnvironmentFailedError, match=words):
            hosts.step(np.zeros(2, np.int32))
    assert not multiprocessing.active_children()


def test_an_environment_that_hangs_is_ended_and_named() -> None:
    world = HostWorld.look(HostConfig(CORRIDOR, ("hang_at=2",), step_limit_s=10.0))
    hasty = replace(world, config=replace(world.config, step_limit_s=1.0))
    with Hosts(world, 2) as hosts:
        hosts.reset(range(2))
        hosts.step(np.zeros(2, np.int32))
        hosts.world = hasty
        with pytest.raises(
            EnvironmentFailedError, match=r"environment 0 of gym:host_cases:.* hangs in step: .*than 1 s"
        ):
            hosts.step(np.zeros(2, np.int32))
        began = time.monotonic()
    assert time.monotonic() - began < 30
    assert not multiprocessing.active_children()


BAD = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "bad_environments.py"), run_name="bad_environments")
"""The tool that tries environments that break the rules."""


@pytest.mark.parametrize("name", [name for name, fault in BAD["FAULTS"].items() if not fault.ends])
@pytest.mark.filterwarnings("ignore::UserWarning")  # Gymnasium warns of some of them too
def test_environments_that_break_the_rules_are_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bad_environments", types.SimpleNamespace(**BAD))
    row = BAD["attempt"](BAD["FAULTS"][name], processes=False, limit_s=0.3)
    assert row.refused, row.said
    assert (row.left, row.traceback) == (0, False)


def test_an_environment_that_keeps_the_rules_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bad_environments", types.SimpleNamespace(**BAD))
    row = BAD["attempt"](BAD["Fault"]("none"), processes=False)
    assert row.said == "taken without a word"


def test_control_characters_of_environments_are_shown_as_they_are_written() -> None:
    assert str(EnvironmentFailedError("\x1b[2J\tgone\n\x07")) == "\\x1b[2J\tgone\n\\x07"
    with pytest.raises(HostWorldError, match=r"id='A\\x1b\[0m-v0' given"):
        HostConfig("A\x1b[0m-v0")


def test_how_long_a_step_may_take_is_no_part_of_what_a_run_is() -> None:
    config = HostConfig(CORRIDOR, step_limit_s=3.0)
    assert config == HostConfig(CORRIDOR)
    assert config.card() == HostConfig(CORRIDOR).card()
    with pytest.raises(HostWorldError, match="step_limit_s=-1"):
        HostConfig(CORRIDOR, step_limit_s=-1.0)


def test_environments_that_cannot_come_to_life_leave_no_process() -> None:
    world = HostWorld.look(HostConfig(CORRIDOR))
    broken = replace(world, config=replace(world.config, env_options=("height=3",)))
    with pytest.raises(EnvironmentFailedError, match="height"):
        Hosts(broken, 2)
    assert not multiprocessing.active_children()


TRAINER = """
import numpy as np
from elden.hosts.vector import Hosts
from elden.hosts.world import HostConfig, HostWorld
if __name__ == "__main__":
    hosts = Hosts(HostWorld.look(HostConfig("host_cases:elden-tests/Corridor-v0", ("hang_at=1",))), 2)
    hosts.reset(range(2))
    print(*(process.pid for process in hosts.vector.processes), flush=True)
    hosts.step(np.zeros(2, np.int32))
"""


def test_environments_end_with_a_trainer_that_is_killed_also_in_the_middle_of_a_step(tmp_path: Path) -> None:
    file = tmp_path / "trainer.py"
    file.write_text(TRAINER)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(place for place in sys.path if place)}
    with subprocess.Popen([sys.executable, str(file)], stdout=subprocess.PIPE, text=True, env=env) as trainer:
        assert trainer.stdout is not None
        pids = list(map(int, trainer.stdout.readline().split()))
        time.sleep(0.5)
        trainer.kill()
        began = time.monotonic()
        trainer.stdout.read()  # until the last of those that could write there is gone
    assert len(pids) == 2
    assert time.monotonic() - began < 30


WORDS = ("--bonus", "none", "--seeds", "1", "--envs", "2", "--loop.rollout", "20", "--loop.warmup-steps", "0")


@pytest.mark.slow
def test_a_failure_on_the_command_line_is_told_and_what_was_done_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", f"gym:{CORRIDOR}", "--no-processes", "--steps", "120", "--out", str(tmp_path / "run"), *WORDS]
    assert main([*words, "--env-options", "fail_at=50"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "environment 0 of host_cases:elden-tests/Corridor-v0 failed in step" in said
    assert "caved in" in said
    assert main(["resume", str(tmp_path / "run"), "--trust", TRUST]) == 0  # its fault comes after 50 steps of a sitting
    assert "new episodes begin" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("train", "gym"), "gym:ID"),
        (("train", "gym:"), "gym:ID"),
        (("play", "gym:elden/Chain-v0"), "worlds of elden"),
        (("train", "gym:CartPole-v1"), "Dict of entities"),
        (("train", f"gym:{ENDLESS}"), "--max-steps N"),
        (("train", f"gym:{CORRIDOR}", "--size", "3"), "--size"),
        (("train", f"gym:{CORRIDOR}", "--env-options", "size"), "--env-options 'size'"),
        (("train", f"gym:{CORRIDOR}", "--iterations-per-call", "2"), "--iterations-per-call 2"),
    ],
)
def test_mistakes_are_told_in_one_line(words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


# Agents learn.


def learnt(bonus: str, folder: Path, steps: int) -> float:
    """Success in the last tenth of a training run in a corridor, whose length makes random success rare."""
    loop = LoopConfig(num_envs=8, rollout=24, steps=steps, warmup_steps=192)
    config = replace(TINY, bonus_name=bonus, loop=loop, ppo=PpoConfig(1e-2, minibatch_size=64, hidden=(32,)), seeds=1)
    config = replace(config, bonus=replace(config.bonus, ensemble=replace(config.bonus.ensemble, capacity=2000)))
    training = TrainingRun(HostWorld.look(HostConfig(CORRIDOR, ("length=6",), processes=False)), config, folder)
    training.run()
    first = training.metrics()[0]
    assert first["episode/success"][0] < 0.35
    rate: float = training.folder.read_summary()["seeds"][0]["success_rate"]
    return rate


@pytest.mark.slow
def test_an_agent_learns(tmp_path: Path) -> None:
    assert learnt("none", tmp_path / "run", 7_680) > 0.9


@pytest.mark.slow
def test_an_agent_learns_with_a_bonus(tmp_path: Path) -> None:
    assert learnt("elden", tmp_path / "run", 7_680) > 0.9


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_done_and_leaves_no_process(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = ("train", f"gym:{CORRIDOR}", *WORDS, "--steps", "1000000", "--out", str(folder))
    places = os.pathsep.join(place for place in sys.path if place)
    # In the background of a shell script Ctrl-C is ignored, and so it would be in all that this starts.
    heed = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); import elden.cli; elden.cli.run()"
    process = subprocess.Popen(
        [sys.executable, "-c", heed, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        process_group=0,  # so that the signal goes to all of them, as a terminal sends it
        env={**os.environ, "PYTHONPATH": places},
    )
    try:
        limit = time.monotonic() + 120
        while not (folder / "metrics.jsonl").exists() and time.monotonic() < limit:
            time.sleep(0.2)
        os.killpg(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=60)  # which waits for all that could still write there
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert process.returncode == INTERRUPTED
    assert "continues from what was kept" in " ".join(said.split())
    assert "Traceback" not in said
    assert any((folder / "checkpoints").iterdir())


@pytest.mark.parametrize("fault", ["raises", "exits", "hangs"])
def test_environments_that_do_not_close_are_left_behind(fault: str) -> None:
    class Bad:
        def close(self) -> None:
            if fault == "hangs":
                time.sleep(60)
            raise SystemExit(3) if fault == "exits" else OSError("no")

    began = time.monotonic()
    close_quietly(Bad(), 0.2)
    assert time.monotonic() - began < 30


def test_environments_that_import_a_module_by_their_options_are_not_trusted() -> None:
    config = HostConfig("GymV26Environment-v0", ("env_id=sly:Env-v0",))
    with pytest.raises(UntrustedModuleError, match="GymV26Environment-v0"):
        config.check_trusted(None)
    config.check_trusted("gym:GymV26Environment-v0")
