"""The folder that a run leaves behind: what TensorBoard finds in it."""

import struct
from pathlib import Path

import pytest
from tensorboardX.proto.event_pb2 import Event

from elden.storage.folder import OtherRunError, RunFolder, check_same


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
