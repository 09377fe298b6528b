"""`elden collect`, from the words of the command line to a folder of data and a table."""

import os
import re
import signal
from pathlib import Path

import numpy as np
import pytest

import elden
from elden.cli import main
from elden.cli.arguments import parse
from elden.cli.collect import Collect, event_counts
from elden.studies.dataset import CollectConfig, collect, load_dataset

SMALL = ("--transitions", "120", "--chunk-episodes", "4", "--max-steps", "12", "--depth", "2")


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command line."""
    code = main(words)
    said = capsys.readouterr()
    return code, said.out, said.err


def test_options_are_the_config_and_those_of_the_world() -> None:
    words = ["collect", "chain", *SMALL, "--epsilon", "0.3", "--held-out", "0.25", "--seed", "7", "--out", "x"]
    command = parse(words)
    assert isinstance(command, Collect)
    assert command.config == CollectConfig(120, epsilon=0.3, held_out=0.25, seed=7, chunk_episodes=4)
    assert command.world == elden.make("chain", max_steps=12, depth=2)
    assert command.out == Path("x")
    default = parse(["collect", "carwash"])
    assert isinstance(default, Collect)
    assert default.config == CollectConfig()
    assert default.world == elden.make("carwash")


def test_help_is_that_of_the_config(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "collect", "chain", "--help")
    assert code == 0
    assert "Share of the episodes that are kept apart" in " ".join(re.sub("[│\n]", " ", out).split())


def test_end_to_end(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "chain"
    code, said, error = run(capsys, "collect", "chain", *SMALL, "--out", str(out))
    assert (code, error) == (0, "")
    data = load_dataset(out)
    expected = collect(elden.make("chain", max_steps=12, depth=2), CollectConfig(120, chunk_episodes=4))
    np.testing.assert_array_equal(data.train.obs, expected.train.obs)
    provenance = data.card["provenance"]
    assert isinstance(provenance, dict)
    assert provenance["command"].startswith("elden collect chain --transitions 120")
    assert re.search(rf"train\s+│\s+{len(data.train)} │\s+9 │\s+{data.solved('train'):.1%}", said)
    assert re.search(rf"held out\s+│\s+12 │\s+1 │\s+{data.solved('held_out'):.1%}", said)
    for kind, steps in event_counts(data).items():
        assert re.search(rf"│ {kind}\s+│\s+{steps} │\s+{steps / 12:.2%} │", said)
    assert re.search(r"\([\d.]+ kB\)", said)
    assert said.startswith("collecting transitions, compiling first\n")
    again = run(capsys, "collect", "chain", *SMALL, "--out", str(out))
    assert again[:2] == (0, said.replace(", compiling first", ""))


def test_an_interruption_says_how_to_go_on(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a request to terminate, as clusters send it."""

    def interrupted(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("elden.cli.collect.collect", interrupted)
    code, said, _ = run(capsys, "collect", "chain", *SMALL, "--out", str(tmp_path / "chain"))
    assert code == 130
    assert "interrupted; the same command continues from what was kept" in said


def test_events_are_counted_by_type_and_step(tmp_path: Path) -> None:
    data = collect(elden.make("chain", max_steps=12, depth=2), CollectConfig(120, chunk_episodes=4))
    assert data.held_out.events is not None
    expected: dict[str, int] = {}
    for name in data.event_names:
        expected.setdefault(name.split(":")[0], 0)
    for row in data.held_out.events:
        names = [name for name, happened in zip(data.event_names, row, strict=True) if happened]
        for kind in {name.split(":")[0] for name in names}:
            expected[kind] += 1
    assert event_counts(data) == expected
    assert max(expected.values()) > 0


def test_default_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(capsys, "collect", "chain", *SMALL)[0] == 0
    assert len(load_dataset(tmp_path / "runs" / "data" / "chain").train) == 108


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("collect", "elden collect needs a world: "),
        ("collect chain --transition 5", "no option '--transition'; did you mean '--transitions'"),
        ("collect chain --transitions 0", "--transitions 0 given; it takes 1 to"),
        ("collect chain --transitions many", "'many' is not a whole number"),
        ("collect chain --epsilon 2", "--epsilon 2.0 given; it takes 0 to 1"),
        ("collect chain --held-out 1", "--held-out 1.0 given"),
        ("collect chain --transitions 50 --out new", "ask for more transitions or hold out less"),
        ("collect chain --transitions 500 --out file", "file is not a folder"),
        ("collect chain --transitions 500 --out file/below", "file/below: Not a directory"),
        ("collect chain --transitions 500 --out full", "full holds other files (mine.txt)"),
    ],
)
def test_mistakes_are_answered_in_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, answer: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    Path("full").mkdir()
    Path("full/mine.txt").write_text("")
    code, out, error = run(capsys, *line.split())
    assert (code, out) == (2, "")
    assert error.startswith("elden: ")
    assert error.count("\n") == 1
    assert answer in error


def test_other_and_damaged_data_are_refused_in_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ("collect", "chain", *SMALL, "--out", str(tmp_path / "data"))
    assert run(capsys, *words)[0] == 0
    code, _, error = run(capsys, *words, "--seed", "1")
    assert code == 2
    assert error.startswith("elden: ")
    assert "config.seed was 0, now 1" in error
    os.truncate(next((tmp_path / "data").glob("train_obs.*.npy")), 200)
    code, _, error = run(capsys, *words)
    assert code == 2
    assert "npy has been changed or cut off" in error
    assert error.count("\n") == 1
