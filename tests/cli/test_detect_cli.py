"""`elden detect` and `elden reproduce`, from the words of the command line to tables and folders."""

import errno
import json
import os
import re
from dataclasses import fields
from pathlib import Path

import pytest

import elden
from elden.cli import main
from elden.cli.arguments import parse
from elden.cli.console import make_console
from elden.cli.detect import Detect
from elden.cli.options import taken
from elden.cli.reproduce import Reproduce
from elden.cli.running import study_progress
from elden.dynamics.config import TrainConfig
from elden.graphs.registry import DETECTORS
from elden.storage.arrays import DamagedDataError
from elden.storage.folder import OtherRunError
from elden.studies.config import SETTINGS
from elden.studies.dataset import CollectConfig, collect
from elden.studies.errors import StudyError
from elden.studies.presets import detection_preset

NETWORK = ("--features", "8", "--mlp", "8", "--heads", "1", "--head-size", "4")
SMALL = (*NETWORK, "--updates", "20", "--segment", "10", "--seeds", "1", "--eval-episodes", "3", "--no-figures")


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command line."""
    code = main(words)
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "thawing"
    collect(elden.make("thawing"), CollectConfig(transitions=800, held_out=0.2, chunk_episodes=16), folder)
    return folder


def test_options_change_the_preset() -> None:
    changes = ("--methods", "gradient", "pcmi", "--seeds", "5", "--updates", "1000", "--batch-size", "8")
    words = ["detect", "carwash", *changes, "--size", "9"]
    command = parse([*words, "--preset", "paper", "--granularity", "variable-from-entity", "--features", "16", "64"])
    assert isinstance(command, Detect)
    assert command.world == elden.make("carwash", size=9)
    config = command.resolved(command.world)
    assert (config.methods, config.seeds, config.updates) == (("gradient", "pcmi"), 5, 1000)
    assert (config.train.batch_size, config.train.penalty_start) == (8, 100)
    assert config.network.features == (16, 64)
    assert config.granularities == ("variable-from-entity",)
    default = parse(["detect", "thawing"])
    assert isinstance(default, Detect)
    assert default.resolved(default.world) == detection_preset("quick", "thawing")
    assert default.resolved(default.world).methods == tuple(DETECTORS)


def test_options_of_tables() -> None:
    three = ("thawing", "carwash", "minecraft")
    command = parse(["reproduce", "table1", "--preset", "paper", "--worlds", *three, "--seeds", "2"])
    assert isinstance(command, Reproduce)
    assert (command.table, command.preset, command.worlds) == ("table1", "paper", three)
    assert command.changes == {"seeds": 2}
    default = parse(["reproduce", "--seeds", "2", "table2"])
    assert isinstance(default, Reproduce)
    assert (default.table, default.worlds) == ("table2", ("thawing", "carwash"))


def test_every_setting_is_an_option() -> None:
    flags = taken(Detect)
    assert all(f"--{name.replace('_', '-')}" in flags for name in SETTINGS)
    assert {setting.name for setting in fields(TrainConfig)} | {"children", "seeds"} <= SETTINGS.keys()
    words = ["--clip", "5", "--penalty-start", "3", "--penalty-stop", "4", "--penalty-of", "log-probability"]
    words += ["--priority", "0.5", "--weight", "0.4", "--activation", "tanh", "--reference", "7"]
    command = parse(["detect", "thawing", *words, "--threshold-transitions", "8"])
    assert isinstance(command, Detect)
    config = command.resolved(command.world)
    train = config.train
    assert (train.clip, train.penalty_start, train.penalty_stop) == (5, 3, 4)
    assert (train.penalty_of, train.priority, train.weight) == ("log-probability", 0.5, 0.4)
    assert (config.network.activation, config.reference, config.threshold_transitions) == ("tanh", 7, 8)


@pytest.mark.parametrize(
    ("line", "folder"),
    [
        ("detect thawing", "runs/detect/thawing-quick"),
        ("detect thawing --preset paper", "runs/detect/thawing-paper"),
        ("detect thawing --out here", "here"),
        ("reproduce table1", "runs/table1-quick"),
        ("reproduce table2 --preset paper", "runs/table2-paper"),
        ("reproduce table2 --out there", "there"),
    ],
)
def test_presets_have_their_own_folders(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, line: str, folder: str
) -> None:
    seen = []

    def study(*places: object, folder: Path | None = None, **_: object) -> None:
        seen.append(places[3] if folder is None else folder)
        raise StudyError("stop")

    monkeypatch.setattr("elden.cli.detect.detect", study)
    monkeypatch.setattr("elden.cli.reproduce.reproduce", study)
    assert run(capsys, *line.split())[0] == 2
    assert seen == [Path(folder)]


@pytest.mark.parametrize("line", ["detect thawing", "reproduce table1"])
def test_only_mistakes_of_the_user_are_answered_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    raised: list[Exception] = []

    def study(*_: object, **__: object) -> None:
        raise raised[-1]

    monkeypatch.setattr("elden.cli.detect.detect", study)
    monkeypatch.setattr("elden.cli.reproduce.reproduce", study)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/models/some/file.npy")
    answers = {
        "/models/some/file.npy: the disk is full": full,
        "Too many open files": OSError(errno.EMFILE, os.strerror(errno.EMFILE)),
        "the data do not fit": StudyError("the data do not fit"),
        "another run": OtherRunError("another run"),
        "cut off": DamagedDataError("cut off"),
    }
    for answer, error in answers.items():
        raised.append(error)
        assert run(capsys, *line.split()) == (2, "", f"elden: {answer}\n")
    raised.append(ValueError("shapes do not fit"))
    with pytest.raises(ValueError, match="shapes do not fit"):
        main(line.split())


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("detect", "elden detect needs a world: thawing, "),
        ("detect thawin", "no world 'thawin'; did you mean 'thawing'"),
        ("detect thawing --methods gradien pcmi", "elden: no detector 'gradien'; did you mean 'gradient'"),
        ("detect thawing --sed 3", "elden detect thawing has no option '--sed'; did you mean '--seed'"),
        ("detect thawing --seeds 0", "--seeds 0 given; it must be 1 or more"),
        ("detect thawing --seeds many", "elden: --seeds: 'many' is not a whole number"),
        ("detect thawing --time-limit-s -1", "--time-limit-s -1.0 given; it takes 0 to"),
        ("detect thawing --granularity variable", "can only be measured at the granularity entity"),
        ("detect thawing --data /nowhere/at/all", "/nowhere/at/all: there is no such folder"),
        ("detect thawing --features 8", "elden: --mlp (32, 32) ends with 32 but --features (8,) with 8; the residual"),
        ("detect thawing --penalty-stop 1 --penalty-start 2", "--penalty-start 2, --penalty-stop 1 given"),
        ("detect thawing --activation sine", "invalid choice 'sine'"),
        ("detect thawing --data x --transitions 9", "--transitions 9 given, but with --data nothing is collected"),
        ("detect thawing --data x --epsilon 0.5", "--epsilon 0.5 given, but with --data nothing is collected"),
        ("detect thawing --penalty 1 --methods pcmi", "--penalty 1.0 given, but none of --methods pcmi has λ"),
        ("detect thawing --penalty-of probability --methods pcmi", "none of --methods pcmi has λ"),
        ("detect thawing --weight 0.5", "--weight 0.5 given, but without --priority all weights are 1"),
        ("detect thawing --penalty inf", "--penalty inf given; it must be 0 or more, and finite"),
        ("detect thawing --epsilon 2", "--epsilon 2.0 given; it must be a share, from 0 to 1"),
        ("reproduce", "elden reproduce needs a table: table1, table2"),
        ("reproduce tabel1", "no table 'tabel1'; did you mean 'table1'"),
        ("reproduce table1 table2", "'table2' is one word too many"),
        ("reproduce table1 --worlds thawin", "no world 'thawin'; did you mean 'thawing'"),
        ("reproduce table1 --worlds carwash carwash", "name at least one, and each once"),
        ("reproduce table1 --size 3", "elden reproduce has no option '--size'"),
        ("reproduce table2 --methods pcmi", "table2 is about gradient alone"),
        ("reproduce table2 --penalty 0.1", "--penalty 0.1 given, but table2 compares values of λ of its own"),
    ],
)
def test_mistakes_are_answered_in_one_line(capsys: pytest.CaptureFixture[str], line: str, answer: str) -> None:
    code, out, error = run(capsys, *line.split())
    assert (code, out) == (2, "")
    assert answer in error
    assert error.count("\n") == 1


def test_progress_without_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("elden.cli.running.time.monotonic", lambda: now[0])
    with study_progress(make_console()) as tell:
        for second, what, done in (
            (0, "training", 0),
            (20, "training", 400),
            (40, "training", 800),
            (41, "it ends", 1),
        ):
            now[0] = float(second)
            tell(what, done, 1000)
    assert capsys.readouterr().out == "training, compiling first\ntraining: 800 of 1,000\nit ends\n"


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "reproduce", "--help")
    assert code == 0
    said = " ".join(re.sub("[│\n]", " ", out).split())
    assert "{table1,table2}" in said
    assert "--seeds INT Independent models of each kind. (default: 2)" in said
    assert "None" not in said
    for words, penalty in (("carwash", "0.001"), ("thawing", "0.01"), ("--preset=paper thawing", "0.01")):
        _, out, _ = run(capsys, "detect", *words.split(), "--help")
        said = " ".join(re.sub("[│\n]", " ", out).split())
        assert f"0 switches it off. (default: {penalty})" in said
        assert f"within the training. (default: {500_000 if 'paper' in words else 5000})" in said


def test_what_is_given_counts_even_if_it_is_the_default() -> None:
    command = parse(["detect", "thawing", "--penalty", "0.001", "--updates", "50", "--penalty-stop=1000"])
    assert isinstance(command, Detect)
    assert command.changes == {"penalty": 0.001, "updates": 50, "penalty_stop": 1000}
    train = command.resolved(command.world).train
    assert (train.penalty, train.penalty_start, train.penalty_stop) == (0.001, 5, 1000)
    both = parse(["reproduce", "table1", "--penalty", "0.001"])
    assert isinstance(both, Reproduce)
    assert both.resolved(elden.make("thawing")).train.penalty == 0.001
    entities = parse(["detect", "thawing", "--preset", "paper", "--children", "entity", "--mlp", "32", "64"])
    assert isinstance(entities, Detect)
    assert entities.resolved(entities.world).granularities == ("entity",)


@pytest.mark.slow
def test_detect_end_to_end(capsys: pytest.CaptureFixture[str], tmp_path: Path, data: Path) -> None:
    out = tmp_path / "run"
    words = ("detect", "thawing", *SMALL, "--methods", "attention", "--data", str(data), "--out", str(out))
    code, said, error = run(capsys, *words, "--time-limit-s", "0")
    assert (code, error) == (75, "")
    assert "the same command continues" in " ".join(said.split())
    assert not (out / "summary.json").exists()
    code, said, error = run(capsys, *words)
    assert (code, error) == (0, "")
    summary = json.loads((out / "summary.json").read_text())
    (seed,) = summary["methods"]["attention"]["seeds"]
    assert re.search(rf"│ attention +│ +{seed['roc_auc']:.3f} │ +{seed['f1']:.3f} │", said)
    assert summary["provenance"]["command"].startswith("elden detect thawing --features 8")
    assert "plain networks" in said
    code, _, error = run(capsys, *words, "--seeds", "2")
    assert code == 2
    assert "holds another run (detect.seeds was 1, now 2)" in error
    assert f"--models {out / 'checkpoints'}" in error


def test_data_of_another_world_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path, data: Path) -> None:
    code, _, error = run(capsys, "detect", "carwash", *SMALL, "--data", str(data), "--out", str(tmp_path / "run"))
    assert code == 2
    assert "the data are of another world (name was 'thawing', now 'carwash'" in error


def test_a_folder_that_is_none_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path, data: Path) -> None:
    out = tmp_path / "file"
    out.write_text("a letter")
    code, _, error = run(capsys, "detect", "thawing", *SMALL, "--data", str(data), "--out", str(out))
    assert code == 2
    assert "holds something else than a run" in error


@pytest.mark.slow
def test_reproduce_end_to_end(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    small = (*SMALL, "--methods", "attention", "--transitions", "1500")
    code, said, error = run(capsys, "reproduce", "table1", *small, "--worlds", "thawing", "--out", str(tmp_path))
    assert (code, error) == (0, "")
    assert "0.65 ± 0.04" in said
    assert "| attention |" in (tmp_path / "table.md").read_text()
    assert json.loads((tmp_path / "table.json").read_text())["worlds"]["thawing"]["methods"].keys() == {"attention"}
    assert (tmp_path / "thawing" / "summary.json").exists()
