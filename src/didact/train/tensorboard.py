"""TensorBoard events beside metrics.jsonl, where a writer is installed.

The file is written here, at once and in one piece. The writers' own class hands events to a thread that waits by the clock: set back while
it waits, the clock ends the thread, and whoever hands it the next event waits for ever.
"""

import importlib.util
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from didact import files
from didact.run import Run

WRITERS = ("tensorboardX", "tensorboard")  # who has one of them wants to see events


def write_events(run: Run) -> Path | None:
    """All logged lines as scalars under the run's folder; None where neither tensorboard nor tensorboardX is installed."""
    if not any(importlib.util.find_spec(name) for name in WRITERS):
        return None
    folder, now = run.folder / "tensorboard", time.time()
    for old in folder.glob("events.*"):
        old.unlink()
    files.write_bytes(folder / f"events.out.tfevents.{int(now):010d}.didact", b"".join(map(record, events(run.metrics, now))))
    return folder


def events(lines: list[dict[str, Any]], now: float) -> Iterator[bytes]:
    """Each number as TensorBoard's message `Event`: 1 the time, 2 the step, 3 the file's version, 5 the summary."""
    yield field(1, now) + field(3, b"brain.Event:2")
    for line in lines:
        for name, value in scalars(line).items():
            if value is not None:
                yield field(1, now) + field(2, line["step"]) + field(5, field(1, field(1, name.encode()) + single(2, value)))


def scalars(line: dict[str, Any]) -> dict[str, float]:
    """A line's numbers as TensorBoard names them: group/name."""
    groups = {f"{group}/{name}": value for group in ("train", "validation", "gradients") for name, value in line.get(group, {}).items()}
    return groups | ({"lr": line["lr"]} if "lr" in line else {})


def field(number: int, value: float | int | bytes) -> bytes:
    """A field of a protocol buffer: a double, a whole number, or bytes behind their length."""
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def single(number: int, value: float) -> bytes:
    """A float of 32 bits; one beyond them is infinite."""
    try:
        packed = struct.pack("<f", value)
    except OverflowError:
        packed = struct.pack("<f", float("inf") if value > 0 else float("-inf"))
    return varint(number << 3 | 5) + packed


def varint(n: int) -> bytes:
    """Seven bits a byte, the lowest first; the eighth says that more follow."""
    found = bytearray()
    while n > 127:
        found.append(n & 127 | 128)
        n >>= 7
    return bytes([*found, n])


def record(content: bytes) -> bytes:
    """A record of a TFRecord file: length, its checksum, content, its checksum."""
    length = struct.pack("<Q", len(content))
    return length + masked(length) + content + masked(content)


def masked(content: bytes) -> bytes:
    """The CRC32-C, turned and shifted as TFRecord wants it."""
    crc = crc32c(content)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def crc32c(content: bytes) -> int:
    """RFC 3720, appendix B.4: the remainder by Castagnoli's polynomial, bits reflected."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc = TABLE[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def remainder(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


TABLE = [remainder(byte) for byte in range(256)]
