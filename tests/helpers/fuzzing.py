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

ABSURD_SIZES = (0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1)
ODD_VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1, 10**9, 2**63, 10**30, 1.5, float("nan"), float("inf"), "", "x", "é\n\x1b[31m", "x" * 3000,
    "\x00", [], {}, [[]], [None], {"a": 1}, [1, 2, 3],
)
SEED = int(os.environ.get("DIDACT_ATTACK_SEED", "0"))
FUZZ_SECONDS = float(os.environ.get("DIDACT_ATTACK_SECONDS", "600"))      # what each of the slow ones may take


def damage_bytes(random: Random, content: bytes, max_changes: int = 3) -> bytes:
    """A few bytes changed, cut out, put in, doubled or overwritten by an absurd size; half of the time near the
    front."""
    result = bytearray(content)
    for _ in range(random.randint(1, max_changes)):
        position = random.randrange(1 + min(len(result), random.choice((128, len(result)))))
        length = random.randint(1, 40)
        random.choice(
            (
                lambda at=position: result.__setitem__(slice(at, at + 1), random.randbytes(1)),
                lambda at=position, length=length: result.__delitem__(slice(at, at + length)),
                lambda at=position, length=length: result.__setitem__(slice(at, at), random.randbytes(length)),
                lambda at=position, length=length: result.__setitem__(slice(at, at), result[:length]),
                lambda at=position: result.__setitem__(
                    slice(at, at + 8), struct.pack("<Q", random.choice(ABSURD_SIZES))
                ),
                lambda at=position: result.__setitem__(
                    slice(at, at + 4), struct.pack("<I", random.choice(ABSURD_SIZES) % 2**32)
                ),
                lambda at=position: result.__delitem__(slice(at, None)),
            )
        )()
    return bytes(result)


def damage_tree(random: Random, tree: Any, max_changes: int = 2) -> Any:
    """JSON with a few of its values replaced, dropped, renamed, wrapped or made longer."""
    root = [copy.deepcopy(tree)]
    for _ in range(random.randint(1, max_changes)):
        container, key = random.choice(list_entries(root))
        kind = random.randrange(6)
        if kind == 0 and container is not root:
            del container[key]
        elif kind == 1 and isinstance(container, dict):
            container[random.choice(("", "x" * 3000, "é\n\x1b[31m", f"{key}."))] = container.pop(key)
        elif kind == 2:
            container[key] = [container[key]]
        elif kind == 3 and isinstance(container[key], str | list):
            container[key] = container[key] * 2
        else:
            container[key] = copy.deepcopy(random.choice(ODD_VALUES))
    return root[0]


def list_entries(node: Any) -> list[tuple[Any, Any]]:
    """Every container and key below a node."""
    keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    return [entry for key in keys for entry in ((node, key), *list_entries(node[key]))]


@contextmanager
def reads_or_raises_usage_error(context: Any) -> Iterator[None]:
    """A file is read, or its reader says in one line what is wrong; whatever else is raised fails with the seed."""
    start = time.process_time()
    try:
        yield
    except UsageError as error:
        assert "\n" not in str(error) and len(str(error)) < 1000, f"{context}: {error}"
    except Exception as error:
        raise AssertionError(f"{context}: {type(error).__name__}: {error}") from error
    assert time.process_time() - start < 10, f"{context}: took {time.process_time() - start:.0f} s"
