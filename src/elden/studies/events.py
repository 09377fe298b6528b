"""TensorBoard's event files: numbers by name and step, written without TensorBoard.

A file is a sequence of records (length, checksum of the length, an `Event` message, checksum of the message); the
messages hold only what scalars need: `Event {1: wall_time, 2: step, 3: file_version, 5: summary}`, `Summary {1: value}`
and `Value {1: tag, 2: simple_value}`.
"""

import itertools
import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path

_POLYNOMIAL = 0x82F63B78  # CRC-32C, reflected
_VARINT, _DOUBLE, _BYTES, _FLOAT = 0, 1, 2, 5  # kinds of protocol buffer fields

_numbers = itertools.count()


class EventWriter:
    """Appends scalars to one event file, which is made when the first is written."""

    def __init__(self, folder: Path) -> None:
        """A new file in this folder, beside those of earlier sittings, which TensorBoard reads together."""
        stamp = f"{time.time():.6f}.{socket.gethostname()}.{os.getpid()}.{next(_numbers)}"
        self.file = folder / f"events.out.tfevents.{stamp}"

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Write numbers of one step by their names."""
        records = b""
        if not self.file.exists():
            self.file.parent.mkdir(parents=True, exist_ok=True)
            records = _record(_event(_field(3, _BYTES, b"brain.Event:2")))
        summary = b"".join(
            _field(1, _BYTES, _field(1, _BYTES, name.encode()) + _field(2, _FLOAT, struct.pack("<f", value)))
            for name, value in values.items()
        )
        records += _record(_event(_field(2, _VARINT, _varint(step)) + _field(5, _BYTES, summary)))
        with self.file.open("ab") as stream:
            stream.write(records)


def _event(fields: bytes) -> bytes:
    return _field(1, _DOUBLE, struct.pack("<d", time.time())) + fields


def _record(message: bytes) -> bytes:
    length = struct.pack("<Q", len(message))
    return length + _checksum(length) + message + _checksum(message)


def _checksum(data: bytes) -> bytes:
    """The CRC-32C of some bytes, turned and shifted as the format wants it."""
    crc = crc32c(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def _field(number: int, kind: int, content: bytes) -> bytes:
    size = _varint(len(content)) if kind == _BYTES else b""
    return _varint(number << 3 | kind) + size + content


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first, each but the last marked."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def _table_entry(value: int) -> int:
    for _ in range(8):
        value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
    return value


_TABLE = tuple(map(_table_entry, range(256)))


def crc32c(data: bytes) -> int:
    """The CRC-32C (Castagnoli) of some bytes."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF
