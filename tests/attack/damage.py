"""Damage for the attack tests: bytes and trees of JSON, a few of their parts changed. Same seed, same damage."""

import copy
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from didact.errors import UsageError

SIZES = (0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1)
VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1, 10**9, 2**63, 10**30, 1.5, float("nan"), float("inf"), "", "x", "é\n\x1b[31m", "x" * 3000,
    "\x00", [], {}, [[]], [None], {"a": 1}, [1, 2, 3],
)
SEED = int(os.environ.get("DIDACT_ATTACK_SEED", "0"))
SECONDS = float(os.environ.get("DIDACT_ATTACK_SECONDS", "600"))      # what each of the slow ones may take


def damage_bytes(random: Random, raw: bytes, most: int = 3) -> bytes:
    """A few bytes changed, cut out, put in, doubled or overwritten by an absurd size; half of the time near the front."""
    found = bytearray(raw)
    for _ in range(random.randint(1, most)):
        at = random.randrange(1 + min(len(found), random.choice((128, len(found)))))
        length = random.randint(1, 40)
        random.choice((
            lambda at=at: found.__setitem__(slice(at, at + 1), random.randbytes(1)),
            lambda at=at, length=length: found.__delitem__(slice(at, at + length)),
            lambda at=at, length=length: found.__setitem__(slice(at, at), random.randbytes(length)),
            lambda at=at, length=length: found.__setitem__(slice(at, at), found[:length]),
            lambda at=at: found.__setitem__(slice(at, at + 8), struct.pack("<Q", random.choice(SIZES))),
            lambda at=at: found.__setitem__(slice(at, at + 4), struct.pack("<I", random.choice(SIZES) % 2**32)),
            lambda at=at: found.__delitem__(slice(at, None)),
        ))()
    return bytes(found)


def damage_tree(random: Random, tree: Any, most: int = 2) -> Any:
    """JSON with a few of its values replaced, dropped, renamed, wrapped or made longer."""
    root = [copy.deepcopy(tree)]
    for _ in range(random.randint(1, most)):
        holder, key = random.choice(places(root))
        kind = random.randrange(6)
        if kind == 0 and holder is not root:
            del holder[key]
        elif kind == 1 and isinstance(holder, dict):
            holder[random.choice(("", "x" * 3000, "é\n\x1b[31m", f"{key}."))] = holder.pop(key)
        elif kind == 2:
            holder[key] = [holder[key]]
        elif kind == 3 and isinstance(holder[key], str | list):
            holder[key] = holder[key] * 2
        else:
            holder[key] = random.choice(VALUES)
    return root[0]


def places(node: Any) -> list[tuple[Any, Any]]:
    """Every container and key below a node."""
    keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    return [place for key in keys for place in ((node, key), *places(node[key]))]


@contextmanager
def read_or_refused(where: Any) -> Iterator[None]:
    """A file is read, or its reader says in one line what is wrong; whatever else is raised fails with the seed."""
    start = time.process_time()
    try:
        yield
    except UsageError as error:
        assert "\n" not in str(error) and len(str(error)) < 1000, f"{where}: {error}"
    except Exception as error:
        raise AssertionError(f"{where}: {type(error).__name__}: {error}") from error
    assert time.process_time() - start < 10, f"{where}: took {time.process_time() - start:.0f} s"
