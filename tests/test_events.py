"""TensorBoard's event files, read back by a decoder that was written from the format."""

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from elden.studies.events import EventWriter, crc32c
from elden.studies.folder import RunFolder


def varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        value, shift, place = value | (byte & 0x7F) << shift, shift + 7, place + 1
        if byte < 0x80:
            return value, place


def fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Number and content of each field of a message."""
    place = 0
    while place < len(data):
        tag, place = varint(data, place)
        kind = tag & 7
        if kind == 0:
            value, place = varint(data, place)
            yield tag >> 3, value
            continue
        size, place = (8, place) if kind == 1 else (4, place) if kind == 5 else varint(data, place)
        yield tag >> 3, data[place : place + size]
        place += size


def messages(file: Path) -> Iterator[bytes]:
    data, place = file.read_bytes(), 0
    while place < len(data):
        (length,) = struct.unpack_from("<Q", data, place)
        message = data[place + 12 : place + 12 + length]
        for content, start in ((data[place : place + 8], place + 8), (message, place + 12 + length)):
            (masked,) = struct.unpack_from("<I", data, start)
            turned = (masked - 0xA282EAD8) & 0xFFFFFFFF
            assert (turned << 15 | turned >> 17) & 0xFFFFFFFF == crc32c(content)
        yield message
        place += 16 + length


def scalars(file: Path) -> list[tuple[int, str, float]]:
    found = []
    for message in list(messages(file))[1:]:
        parts = dict(fields(message))
        step, summary = parts[2], parts[5]
        assert isinstance(step, int)
        assert isinstance(summary, bytes)
        for _, value in fields(summary):
            assert isinstance(value, bytes)
            content = dict(fields(value))
            name, number = content[1], content[2]
            assert isinstance(name, bytes)
            assert isinstance(number, bytes)
            found.append((step, name.decode(), struct.unpack("<f", number)[0]))
    return found


def test_the_checksum_is_castagnoli() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"") == 0


def test_what_is_written_can_be_read(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path)
    writer.scalars(0, {"a/b": 1.5, "λ": -2.0})
    writer.scalars(1_000_000, {"a/b": float("inf")})
    (file,) = tmp_path.iterdir()
    assert scalars(file) == [(0, "a/b", 1.5), (0, "λ", -2.0), (1_000_000, "a/b", float("inf"))]
    assert dict(fields(next(messages(file))))[3] == b"brain.Event:2"


def test_two_writers_have_two_files(tmp_path: Path) -> None:
    for number in range(2):
        EventWriter(tmp_path).scalars(0, {"a": float(number)})
    assert len(list(tmp_path.iterdir())) == 2


def test_a_run_folder_logs_every_run_of_a_metric(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run", {})
    assert not (tmp_path / "run" / "tb").exists()
    folder.log(5, {"loss/nll": [0.5, 0.25], "speed": 3, "words": "no number"})
    (file,) = (tmp_path / "run" / "tb").iterdir()
    assert scalars(file) == [(5, "loss/nll/0", 0.5), (5, "loss/nll/1", 0.25), (5, "speed", 3.0)]


@pytest.mark.parametrize("value", [0, 127, 128, 300, 2**40])
def test_steps_of_any_size(tmp_path: Path, value: int) -> None:
    EventWriter(tmp_path).scalars(value, {"a": 0.0})
    (file,) = tmp_path.iterdir()
    assert scalars(file)[0][0] == value
