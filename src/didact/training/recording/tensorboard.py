"""TensorBoard events beside metrics.jsonl, where TensorBoard or tensorboardX is installed.

The file is written here, at once and in one piece. The writers' own class hands events to a thread that waits by the
clock: a clock that is set back ends the thread, and the next event would wait forever.
"""

import importlib.util
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from didact import files
from didact.run import Run

WRITER_PACKAGES = ("tensorboardX", "tensorboard")  # events are written where one of them is installed


def write_events(run: Run) -> Path | None:
    """All logged lines as scalars in the run's folder; None where neither tensorboard nor tensorboardX is installed."""
    if not any(importlib.util.find_spec(name) for name in WRITER_PACKAGES):
        return None
    folder, now = run.folder / "tensorboard", time.time()
    for old_file in folder.glob("events.*"):
        old_file.unlink()
    files.write_bytes(
        folder / f"events.out.tfevents.{int(now):010d}.didact",
        b"".join(map(_encode_record, _iterate_events(run.metrics, now))),
    )
    return folder


def _iterate_events(lines: list[dict[str, Any]], now: float) -> Iterator[bytes]:
    """Each number as TensorBoard's message `Event`: 1 the time, 2 the step, 3 the file version, 5 the summary."""
    yield _encode_field(1, now) + _encode_field(3, b"brain.Event:2")
    for line in lines:
        for name, value in to_scalars(line).items():
            if value is not None:
                yield (
                    _encode_field(1, now)
                    + _encode_field(2, line["step"])
                    + _encode_field(5, _encode_field(1, _encode_field(1, name.encode()) + _encode_float(2, value)))
                )


def to_scalars(line: dict[str, Any]) -> dict[str, float]:
    """A line's numbers as TensorBoard names them: group/name."""
    groups = {
        f"{group}/{name}": value
        for group in ("train", "validation", "gradients")
        for name, value in line.get(group, {}).items()
    }
    return groups | ({"lr": line["lr"]} if "lr" in line else {})


def _encode_field(number: int, value: float | int | bytes) -> bytes:
    """A protocol buffer field: a double, an integer, or bytes with their length."""
    if isinstance(value, float):
        return _encode_varint(number << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, int):
        return _encode_varint(number << 3) + _encode_varint(value)
    return _encode_varint(number << 3 | 2) + _encode_varint(len(value)) + value


def _encode_float(number: int, value: float) -> bytes:
    """A 32-bit float; larger numbers become infinite."""
    try:
        packed = struct.pack("<f", value)
    except OverflowError:
        packed = struct.pack("<f", float("inf") if value > 0 else float("-inf"))
    return _encode_varint(number << 3 | 5) + packed


def _encode_varint(n: int) -> bytes:
    """A varint: seven bits per byte, lowest first; the eighth bit says that more follow."""
    encoded = bytearray()
    while n > 127:
        encoded.append(n & 127 | 128)
        n >>= 7
    return bytes([*encoded, n])


def _encode_record(content: bytes) -> bytes:
    """A record of a TFRecord file: length, its checksum, content, its checksum."""
    length = struct.pack("<Q", len(content))
    return length + _masked_crc(length) + content + _masked_crc(content)


def _masked_crc(content: bytes) -> bytes:
    """The masked CRC32-C of TFRecord."""
    crc = _crc32c(content)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _crc32c(content: bytes) -> int:
    """RFC 3720, appendix B.4: the remainder by Castagnoli's polynomial, bits reflected."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc = CRC_TABLE[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _crc_table_entry(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


CRC_TABLE = [_crc_table_entry(byte) for byte in range(256)]
