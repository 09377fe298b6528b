"""The folder that a run leaves behind: what is in it, what is refused in it, and that reading changes nothing."""

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from tensorboardX.proto.event_pb2 import Event

from elden.storage.files import StorageError, write_json, write_text
from elden.storage.folder import OtherRunError, RunFolder, RunFolderError, check_same, read_config


def scalars(file: Path) -> list[tuple[int, str, float]]:
    """Step, name and value of all numbers in an event file: records of length, checksum, message, checksum."""
    data, place, found = file.read_bytes(), 0, []
    while place < len(data):
        (length,) = struct.unpack_from("<Q", data, place)
        event = Event.FromString(data[place + 12 : place + 12 + length])
        found += [(event.step, value.tag, value.simple_value) for value in event.summary.value]
        place += 16 + length
    return found


def test_every_seed_of_a_metric_is_a_run_of_tensorboard(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run", {})
    assert not (tmp_path / "run" / "tb").exists()
    folder.log(5, {"loss/nll": [0.5, 0.25], "speed": 3, "words": "no number"})
    folder.close()
    found = {}
    for file in (tmp_path / "run" / "tb").rglob("events*"):
        found[file.parent.name] = scalars(file)
    assert found == {"0": [(5, "loss/nll", 0.5)], "1": [(5, "loss/nll", 0.25)], "tb": [(5, "speed", 3.0)]}


def test_very_many_seeds_do_not_take_a_file_each(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run", {})
    folder.log(5, {"loss/nll": [float(i) for i in range(70)]})
    folder.close()
    files = list((tmp_path / "run" / "tb").rglob("events*"))
    assert len(files) == 65
    (rest,) = (scalars(file) for file in files if file.parent.name == "tb")
    assert rest == [(5, f"loss/nll/{i}", float(i)) for i in range(64, 70)]


def test_every_sitting_has_a_file_of_its_own(tmp_path: Path) -> None:
    for sitting in range(2):
        folder = RunFolder(tmp_path / "run", {})
        folder.log(sitting, {"a": float(sitting)})
        folder.close()
        folder.close()  # does nothing more
    files = list((tmp_path / "run" / "tb").iterdir())
    assert sorted(scalars(file) for file in files) == [[(0, "a", 0.0)], [(1, "a", 1.0)]]


def test_a_run_of_another_kind_is_called_that(tmp_path: Path) -> None:
    RunFolder(tmp_path, {"world": "thawing", "loop": 3}).close()
    check_same(tmp_path, {"world": "thawing"})
    with pytest.raises(OtherRunError, match=r"holds another run \(world was 'thawing', now 'carwash'\)"):
        check_same(tmp_path, {"world": "carwash"})
    with pytest.raises(OtherRunError, match="holds a run of another kind"):
        check_same(tmp_path, {"world": "thawing", "detect": 1})


def run_of(folder: Path, lines: int = 3) -> RunFolder:
    """A run folder with some lines of metrics of two seeds."""
    run = RunFolder(folder / "run", {"world": "thawing"})
    for step in range(10, 10 * lines + 1, 10):
        run.log(step, {"episode/success": [0.5, 0.25]})
    run.close()
    return run


def content(folder: Path) -> dict[Path, tuple[int, bytes]]:
    """Every file with its time of change."""
    return {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in folder.rglob("*") if file.is_file()}


def test_opening_a_run_changes_nothing(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    before = content(run.path)
    again = RunFolder(run.path, {"world": "thawing"})
    assert len(again.metrics(seeds=2)) == 3
    again.close()
    assert content(run.path) == before


def test_a_run_that_was_killed_before_its_settings_were_written_begins(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").touch()
    (tmp_path / "run" / "config.json.part").write_text("{")
    RunFolder(tmp_path / "run", {"world": "thawing"})
    assert read_config(tmp_path / "run") == {"world": "thawing"}


# Nothing inside is followed elsewhere.

PLACES = ("config.json", "metrics.jsonl", ".lock", "summary.json.part", "checkpoints", "tb", "media/curves.png")


@pytest.mark.parametrize("place", PLACES)
def test_links_are_refused(tmp_path: Path, place: str) -> None:
    run = run_of(tmp_path)
    (tmp_path / "mine").write_text('{"world": "thawing"}')
    (run.path / place).parent.mkdir(exist_ok=True)
    if (run.path / place).is_dir():
        (run.path / place).rename(tmp_path / "moved")
    (run.path / place).unlink(missing_ok=True)
    (run.path / place).symlink_to(tmp_path / "mine")
    for use in (read_config, lambda path: RunFolder(path, {"world": "thawing"})):
        with pytest.raises(StorageError, match=f"{place} is a symbolic link"):
            use(run.path)
    with pytest.raises(StorageError, match="is a symbolic link"), run.locked():
        raise AssertionError("nothing is written")
    assert (tmp_path / "mine").read_text() == '{"world": "thawing"}'


def test_the_folder_itself_may_be_a_link_and_others_may_link_in_theirs(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    (run.path / "wandb").mkdir()
    (run.path / "wandb" / "latest-run").symlink_to(tmp_path)
    (tmp_path / "link").symlink_to(run.path)
    assert read_config(tmp_path / "link") == {"world": "thawing"}


@pytest.mark.parametrize("place", ["config.json", "metrics.jsonl"])
def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path, place: str) -> None:
    run = run_of(tmp_path)
    (run.path / place).unlink()
    os.mkfifo(run.path / place)
    with pytest.raises(StorageError, match=f"{place} is neither a file nor a folder"):
        read_config(run.path)


def test_a_link_in_the_place_of_a_part_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    (tmp_path / "notes.json.part").symlink_to(tmp_path / "mine")
    write_json(tmp_path / "notes.json", {"a": 1})
    assert (tmp_path / "mine").read_text() == "precious"
    assert json.loads((tmp_path / "notes.json").read_text()) == {"a": 1}
    assert not (tmp_path / "notes.json").is_symlink()


def test_a_file_that_cannot_be_written_leaves_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_text(tmp_path / "notes", "before")

    def full(_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="the disk is full; what was kept before is whole"):
        write_text(tmp_path / "notes", "after")
    assert (tmp_path / "notes").read_text() == "before"
    assert [file.name for file in tmp_path.iterdir()] == ["notes"]


# Damage is named.


def replaced(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    return lambda content: content.replace(old, new, 1)


DAMAGED: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "no JSON": (replaced(b'{"step": 20', b'{"step: 20'), "line 2 is not an object of JSON with a step"),
    "no text": (replaced(b'"step": 20', b'"step": \xff'), "line 2 is not an object"),
    "not an object": (lambda content: b"[]\n" + content, "line 1 is not an object"),
    "nested": (lambda content: content + b"[" * 100_000 + b"\n", "line 4 is not an object"),
    "falls": (replaced(b'"step": 20', b'"step": 40'), "line 3 is of step 30, after one of step 40"),
    "twice": (lambda content: content + content, "line 4 is of step 10, after one of step 30"),
    "one seed": (replaced(b"[0.5, 0.25]", b"[0.5]"), "line 1 does not have 2 numbers of 'episode/success'"),
    "a word": (replaced(b"[0.5, 0.25]", b'[0.5, "x"]'), "line 1 does not have 2 numbers of 'episode/success'"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_metrics_are_refused_with_their_line(tmp_path: Path, case: str) -> None:
    damage, message = DAMAGED[case]
    run = run_of(tmp_path)
    file = run.path / "metrics.jsonl"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(RunFolderError, match=rf"metrics.jsonl is damaged: {message}.*; put it back from a copy"):
        run.metrics(seeds=2)


def test_a_line_that_was_cut_off_is_left_out_and_removed_before_more_is_added(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    with (run.path / "metrics.jsonl").open("a") as stream:
        stream.write('{"step": 40, "epis')
    assert [line["step"] for line in run.metrics(seeds=2)] == [10, 20, 30]
    with run.locked():
        run.log(40, {"episode/success": [1.0, 1.0]})
    assert [line["step"] for line in run.metrics(seeds=2)] == [10, 20, 30, 40]
    (run.path / "metrics.jsonl").write_text('{"step": 1')
    assert run.metrics() == []


@pytest.mark.parametrize("change", [replaced(b"0.25", b"0.26"), lambda content: content[:50], lambda content: b""])
def test_changed_numbers_are_noticed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, change: Callable[[bytes], bytes]
) -> None:
    run = run_of(tmp_path)
    seal = run.seal()
    run.log(40, {"episode/success": [1.0, 1.0]})
    run.check_seal(seal)
    assert not caplog.text
    file = run.path / "metrics.jsonl"
    file.write_bytes(change(file.read_bytes()))
    run.check_seal(seal)
    assert "metrics.jsonl has been changed or cut off" in caplog.text


UNREADABLE = {
    "no JSON": (b'{"world": ', "cannot be read: Expecting value"),
    "no text": (b'{"world": "\xff"}', "cannot be read: 'utf-8' codec"),
    "nested": (b"[" * 100_000, "cannot be read: it is nested too deeply"),
    "no object": (b"[]", "does not hold an object"),
}


@pytest.mark.parametrize("case", UNREADABLE)
@pytest.mark.parametrize("name", ["config.json", "summary.json"])
def test_unreadable_files_are_refused_with_a_line(tmp_path: Path, case: str, name: str) -> None:
    data, message = UNREADABLE[case]
    run = run_of(tmp_path)
    (run.path / name).write_bytes(data)
    with pytest.raises(RunFolderError, match=rf"{name} {message}") as raised:
        read_config(run.path) if name == "config.json" else run.read_summary()
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize("name", ["config.json", "summary.json"])
def test_changed_settings_and_results_are_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str) -> None:
    run = run_of(tmp_path)
    run.write_summary({"world": "thawing", "rate": float("nan")})
    assert read_config(run.path) == {"world": "thawing"}
    assert run.read_summary() == {"world": "thawing", "rate": None}
    assert not caplog.text
    file = run.path / name
    file.write_text(file.read_text().replace("thawing", "carwash"))
    assert read_config(run.path) if name == "config.json" else run.read_summary()
    assert f"{name} has been changed since it was written" in caplog.text


def test_a_number_that_no_float_holds_is_damage(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run", {"a": 1})
    (folder.path / "metrics.jsonl").write_text('{"step": 1, "x": [' + "9" * 401 + "]}\n")
    with pytest.raises(RunFolderError, match="line 1 does not have 1 numbers of 'x'"):
        folder.metrics(1)
