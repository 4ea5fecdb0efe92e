"""A column of texts out of a Parquet file, as published vocabularies come: no library, nothing executed.

    "PAR1", pages of one column after the other, a footer that says where they lie, its length, "PAR1"

Pages are packed with Snappy. A first one may hold different values (a dictionary), which later ones name by number.
Only what a plain column of texts needs is read; anything else is refused.
"""

import struct
from pathlib import Path
from typing import Any

from didact.data.datasets.archives import refuse_large
from didact.errors import UsageError

MARK = b"PAR1"
TEXTS, PLAIN, BY_NUMBER = 6, 0, (2, 8)         # the format's numbers for a type and for encodings
DATA_PAGE, DICTIONARY_PAGE = 0, 2
NOT_PACKED, SNAPPY = 0, 1


def read_texts(path: Path) -> list[str]:
    """The texts of the file's first column, in order."""
    try:
        content = path.read_bytes()
        if content[:4] != MARK or content[-4:] != MARK:
            raise UsageError(f"{path} is no Parquet file")
        (size,) = struct.unpack("<I", content[-8:-4])
        footer = Compact(content, len(content) - 8 - size).fields()
        optional = footer[2][1].get(3, 0) == 1          # the schema's second element is the first column
        return [text for group in footer[4] for text in column(path, content, group[1][0][3], optional)]
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except (IndexError, KeyError, TypeError, struct.error, UnicodeDecodeError):
        raise UsageError(f"{path} is damaged, or not a plain column of texts; install it anew") from None


def column(path: Path, content: bytes, about: dict[int, Any], optional: bool) -> list[str]:
    """One column of one group of rows, page by page."""
    if about[1] != TEXTS or about[4] not in (NOT_PACKED, SNAPPY):
        raise KeyError("another type or packing")
    at, found, known, size = about.get(11, about[9]), list[str](), list[str](), 0
    while len(found) < about[5]:
        reader = Compact(content, at)
        head = reader.fields()
        at = reader.at + head[3]
        raw = content[reader.at : at]
        page = unsnap(raw) if about[4] == SNAPPY else raw
        rows = head[5][1] if head[1] == DATA_PAGE else 0
        size += len(page) + 8 * rows                    # one number can stand for a run of any length
        refuse_large(path, size)
        if head[1] == DICTIONARY_PAGE:
            known = plain(page, head[7][1])
        elif head[1] == DATA_PAGE:
            found += values(page, head[5], known, optional)
        else:
            raise KeyError("another kind of page")
    return found


def values(page: bytes, head: dict[int, Any], known: list[str], optional: bool) -> list[str]:
    """The texts of a page, as they are or by their numbers."""
    if optional:                                        # which rows are there: all of them in a vocabulary
        page = page[4 + int.from_bytes(page[:4], "little") :]
    if head[2] == PLAIN:
        return plain(page, head[1])
    if head[2] not in BY_NUMBER:
        raise KeyError("another encoding")
    return [known[i] for i in runs(page[1:], page[0], head[1])]


def plain(page: bytes, count: int) -> list[str]:
    """Each text behind its length in four bytes."""
    found, at = [], 0
    for _ in range(count):
        end = at + 4 + int.from_bytes(page[at : at + 4], "little")
        if end > len(page):
            raise IndexError("the page ends too early")
        found.append(page[at + 4 : end].decode())
        at = end
    return found


def runs(page: bytes, bits: int, count: int) -> list[int]:
    """Numbers of so many bits: a repeated one, or groups of eight packed from the lowest bit on."""
    reader, found = Compact(page), list[int]()
    while len(found) < count:
        head = reader.varint()
        if head & 1:
            for _ in range(min(head >> 1, -(-(count - len(found)) // 8))):
                eight = int.from_bytes(reader.take(bits), "little")
                found += [eight >> (i * bits) & ((1 << bits) - 1) for i in range(8)]
        else:
            found += [int.from_bytes(reader.take(-(-bits // 8)), "little")] * min(head >> 1, count - len(found))
    return found[:count]


def unsnap(raw: bytes) -> bytes:
    """Snappy: the length, then pieces, each bytes as they are or a copy of what was written before."""
    reader, out = Compact(raw), bytearray()
    size = reader.varint()
    at = reader.at
    while len(out) < size:                              # half a million times for a large vocabulary: no calls in here
        tag = raw[at]
        at += 1
        if not tag & 3:
            length, more = tag >> 2, max(0, (tag >> 2) - 59)
            length = int.from_bytes(raw[at : at + more], "little") if more else length
            at += more
            out += raw[at : at + length + 1]
            at += length + 1
            continue
        if tag & 3 == 1:
            length, back, more = 4 + (tag >> 2 & 7), (tag >> 5) << 8 | raw[at], 1
        else:
            more = 2 if tag & 3 == 2 else 4
            length, back = 1 + (tag >> 2), int.from_bytes(raw[at : at + more], "little")
        at += more
        piece = out[-back : len(out) - back + length]
        out += (piece * (length // len(piece) + 1))[:length]    # a copy may reach into itself
    return bytes(out)


class Compact:
    """Thrift's compact protocol, in which Parquet writes what its bytes mean."""

    def __init__(self, content: bytes, at: int = 0):
        self.content, self.at = content, at

    def take(self, n: int) -> bytes:
        found = self.content[self.at : self.at + n]
        if len(found) < n:
            raise IndexError("the file ends too early")
        self.at += n
        return found

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.content[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    def fields(self) -> dict[int, Any]:
        """A struct by its field numbers."""
        found: dict[int, Any] = {}
        number = 0
        while head := self.take(1)[0]:
            number = number + (head >> 4) if head >> 4 else self.signed()
            found[number] = self.value(head & 15)
        return found

    def signed(self) -> int:
        n = self.varint()
        return n >> 1 ^ -(n & 1)

    def value(self, kind: int) -> Any:
        if kind in (1, 2):
            return kind == 1
        if kind in (4, 5, 6):
            return self.signed()
        if kind == 8:
            return self.take(self.varint())
        if kind in (9, 10):
            head = self.take(1)[0]
            count = head >> 4 if head >> 4 < 15 else self.varint()
            return [self.take(1)[0] == 1 if head & 15 in (1, 2) else self.value(head & 15) for _ in range(count)]
        if kind == 12:
            return self.fields()
        return self.take({3: 1, 7: 8}[kind])
