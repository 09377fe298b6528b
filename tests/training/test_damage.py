"""Run folders that were damaged, edited or made by others: one clear line, and nothing lost. Nothing compiles."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import elden
from elden.agents import PpoConfig
from elden.cli import main
from elden.cli.running import refusal
from elden.storage.folder import RunFolderError
from elden.storage.resumable import Deadline, OutOfTimeError, Reached, Resumable
from elden.studies.exploration import Agents
from elden.training.algorithm import LoopState
from elden.training.config import LoopConfig, TrainingConfig
from elden.training.run import TrainingRun
from elden.training.scale import Scale

WORLD = elden.make("chain", depth=2, inert=0, noisy=0, intricate=0, max_steps=10)
TINY = TrainingConfig(
    bonus_name="none",
    ppo=PpoConfig(minibatch_size=8, epochs=1, hidden=(8,)),
    loop=LoopConfig(num_envs=4, rollout=6, steps=4 * 24, warmup_steps=0),
    seeds=2,
)
METRICS = ("episode/success", "episode/success_solvable", "episode/normalized_stage", "stage/link0 on")


@pytest.fixture
def run(tmp_path: Path) -> TrainingRun:
    """A run that was stopped after three of four rollouts; its states hold no agents."""
    training = TrainingRun(WORLD, TINY, tmp_path / "run")
    for iteration in (1, 2, 3):
        training.folder.log(24 * iteration, {name: [0.5, 0.25] for name in METRICS})
        training._save(Reached(iteration, {"a": np.int32(iteration)}))  # type: ignore[arg-type]
    training.folder.close()
    return training


def refused(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    """The one line with which the command line refuses something."""
    assert main(list(map(str, words))) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return str(line)


def damage_states(run: TrainingRun) -> None:
    for file in run.states.folder.glob("*/*.npy"):
        file.write_bytes(b"nothing")


# States.


@pytest.mark.parametrize("command", ["resume", "evaluate"])
def test_where_all_states_are_damaged_the_option_that_starts_over_is_named(
    run: TrainingRun, capsys: pytest.CaptureFixture[str], command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage_states(run)
    monkeypatch.setattr("elden.training.run._init", lambda loop: pytest.fail("it compiles before it looks"))
    before = (run.folder.path / "metrics.jsonl").read_bytes()
    line = refused(capsys, command, run.folder.path)
    assert f"elden resume {run.folder.path} --start-over begins again at step 0" in line
    assert "000000003" in line
    assert (run.folder.path / "metrics.jsonl").read_bytes() == before
    assert run.states.numbers == [2, 3]


def test_starting_over_removes_what_was_kept_and_nothing_else(
    run: TrainingRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    damage_states(run)
    (run.folder.path / "notes.txt").write_text("mine")
    begun: list[tuple[list[int], list[Any]]] = []

    def train(training: TrainingRun) -> None:
        begun.append((training.states.numbers, training.metrics()))
        raise OutOfTimeError("the time limit is over")

    monkeypatch.setattr(TrainingRun, "run", train)
    assert main(["resume", str(run.folder.path), "--start-over"]) == 75
    assert begun == [([], [])]
    assert (run.folder.path / "notes.txt").read_text() == "mine"
    assert (run.folder.path / "config.json").exists()


def test_nothing_of_others_is_removed_where_a_run_starts_over(run: TrainingRun) -> None:
    (run.states.folder / "000000003" / "thesis.txt").write_text("mine")
    with pytest.raises(RunFolderError, match=r"thesis\.txt is not elden"):
        run.start_over()
    assert (run.states.folder / "000000003" / "thesis.txt").read_text() == "mine"
    assert len(run.metrics()) == 3


def test_a_run_folder_from_somebody_else_destroys_nothing(
    run: TrainingRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    precious = tmp_path / "precious"
    run.states.folder.rename(precious)
    run.states.folder.symlink_to(precious)
    before = {file: file.read_bytes() for file in precious.rglob("*") if file.is_file()}
    for words in (["resume"], ["resume", "--start-over"], ["evaluate"]):
        assert "checkpoints is a symbolic link" in refused(capsys, words[0], run.folder.path, *words[1:])
    assert {file: file.read_bytes() for file in precious.rglob("*") if file.is_file()} == before


# Metrics and results.


@pytest.mark.parametrize("command", ["resume", "evaluate"])
def test_damaged_metrics_are_refused_before_anything_compiles(
    run: TrainingRun, capsys: pytest.CaptureFixture[str], command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elden.training.run._init", lambda loop: pytest.fail("it compiles before it looks"))
    file = run.folder.path / "metrics.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(lines[0] + b"\x00garbage\n" + lines[2])
    assert "metrics.jsonl is damaged: line 2 is not an object of JSON" in refused(capsys, command, run.folder.path)
    assert file.read_bytes() == lines[0] + b"\x00garbage\n" + lines[2]


def test_metrics_that_are_not_those_that_were_logged_are_noticed(
    run: TrainingRun, caplog: pytest.LogCaptureFixture
) -> None:
    run.metrics()
    assert not caplog.text
    file = run.folder.path / "metrics.jsonl"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:2]))
    run.metrics()
    assert "metrics.jsonl has been changed or cut off" in caplog.text


def test_a_cut_first_line_of_metrics_is_no_line(run: TrainingRun) -> None:
    (run.folder.path / "metrics.jsonl").write_text('{"step": 24, "epi')
    with pytest.raises(RunFolderError, match="has no metrics of a whole rollout yet"):
        Agents.read(run.folder.path, "none")


@pytest.mark.parametrize("content", [b"{}", b"[]", b'{"seeds": [{"seed": 0}]}', b"\xff", b"[" * 99_999])
def test_damaged_results_are_refused(run: TrainingRun, capsys: pytest.CaptureFixture[str], content: bytes) -> None:
    (run.folder.path / "summary.json").write_bytes(content)
    assert "summary.json" in refused(capsys, "resume", run.folder.path)


def test_a_state_is_never_ahead_of_its_metrics(run: TrainingRun, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(run.folder, "seal", lambda: done.append("metrics"))
    monkeypatch.setattr(run.states, "save", lambda *_: done.append("state"))
    run._save(Reached(4, {}))  # type: ignore[arg-type]
    assert done == ["metrics", "state"]


# Settings.

EDITS: dict[str, Callable[[dict[str, Any]], object]] = {
    "a word for a number": lambda config: config["training"]["loop"].update(num_envs="many"),
    "a number for settings": lambda config: config["training"].update(ppo=3),
    "no world": lambda config: config.pop("world"),
    "a world without a name": lambda config: config.update(world={"options": {}}),
    "a world of another type": lambda config: config.update(world=[1]),
    "a name that is a number": lambda config: config["world"].update(name=3),
    "an option that is none": lambda config: config["world"]["options"].update(colour="red"),
    "options that are none": lambda config: config["world"].update(options=None),
    "too many links": lambda config: config["world"]["options"].update(depth=10**30),
    "too many steps": lambda config: config["training"]["loop"].update(steps=10**30),
    "another version": lambda config: config.update(version=[]),
}


@pytest.mark.parametrize("edit", EDITS)
def test_settings_that_were_edited_by_hand_are_refused_with_a_line(
    run: TrainingRun, capsys: pytest.CaptureFixture[str], edit: str
) -> None:
    file = run.folder.path / "config.json"
    config = json.loads(file.read_text())
    EDITS[edit](config)
    file.write_text(json.dumps(config))
    assert str(run.folder.path) in refused(capsys, "evaluate", run.folder.path)


def test_more_steps_than_can_be_counted_are_refused(run: TrainingRun, capsys: pytest.CaptureFixture[str]) -> None:
    before = (run.folder.path / "config.json").read_bytes()
    for steps in (10**13, 10**40):
        assert f"steps {steps} given" in refused(capsys, "resume", run.folder.path, "--steps", str(steps))
    assert (run.folder.path / "config.json").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("info", "empty", "--size", "1000000000"), "size=1000000000 given; empty takes at most 256"),
        (("info", "minecraft", f"--grass={10**22}"), f"grass={10**22} given; minecraft takes at most 100"),
        (("train", "chain", "--steps", str(10**13)), "given; it takes 1 to 1000000000000"),
    ],
)
def test_numbers_beyond_reason_are_refused(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    assert said.split(" given")[-1] in refused(capsys, *words)


# Folders.


@pytest.mark.parametrize("words", ["train chain --out", "resume", "evaluate", "compare --worlds chain --out"])
def test_a_name_of_300_letters_is_refused_with_a_line(capsys: pytest.CaptureFixture[str], words: str) -> None:
    assert "File name too long" in refused(capsys, *words.split(), "a" * 300)


@pytest.mark.parametrize("command", ["resume", "evaluate"])
def test_a_folder_that_cannot_be_written_to_is_refused_with_what_helps(
    run: TrainingRun, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    line = refused(capsys, command, run.folder.path)
    assert "cannot be written to; make it writable" in line
    assert "--out" not in line


def test_errors_of_the_disk_say_what_helps() -> None:
    assert str(refusal(OSError(13, "Permission denied", "/runs/x"))).startswith("/runs/x: Permission denied; make it")
    assert str(refusal(OSError(28, "No space left on device", "/runs/x"))) == "/runs/x: the disk is full"


# The runner.


def test_work_is_kept_at_the_end_however_that_comes() -> None:
    kept: list[int] = []

    def advance(at: Reached[int]) -> tuple[Reached[int], Callable[[], None]]:
        def log() -> None:
            if at.number == 2:
                raise KeyboardInterrupt

        return Reached(at.number + 1, at.state + 10, at.clock.plus(0.0, 1.0)), log

    work = Resumable(5, "pieces", advance, lambda at: kept.append(at.number))
    with pytest.raises(KeyboardInterrupt):
        work.run(Reached(0, 0))
    assert kept == [2]  # what was not logged to its end is made again
    assert work.run(Reached(3, 30)).clock.train_s == 2.0
    assert kept == [2, 5]
    with pytest.raises(OutOfTimeError, match="after 4 of 5 pieces"):
        replace(work, deadline=Deadline.after(0)).run(Reached(3, 30))
    assert kept == [2, 5, 4]
    assert work.run(Reached(5, 50)).number == 5
    replace(work, save_every_s=-1.0).run(Reached(3, 30))
    assert kept == [2, 5, 4, 4, 5]


# A policy that has run away.


def test_a_policy_that_has_run_away_is_warned_of(run: TrainingRun) -> None:
    network = run.loop.agent.init(jax.random.key(0)).network
    both = jax.tree.map(lambda leaf: jnp.stack([leaf, 1e4 * leaf]), network)
    state = LoopState(None, SimpleNamespace(network=both), None, Scale.init(4))
    (warning,) = run._warnings(state, [{"policy/entropy": [0.0, 0.0]}])
    assert "the policy of seed 1 has run away" in warning
    for entropy in ([0.5, 0.5], [None, None]):
        assert run._warnings(state, [{"policy/entropy": entropy}]) == []
