"""Running text as windows of characters: each one asks for the next. What a small language model reads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from didact.data.assemble import assemble
from didact.data.core import Batch, Data, Decode
from didact.data.fetch import File, read, source
from didact.errors import UsageError

WINDOW = 64  # characters that are read at once

SHAKESPEARE = File(
    "input.txt", "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
)


def numbers(x: Tensor) -> Tensor:
    return x.long()


@dataclass(frozen=True)
class CharacterEncoder:
    """Characters <-> numbers, in the order of their code points."""

    characters: str
    window: int = WINDOW

    @cached_property
    def number(self) -> dict[str, int]:
        return {c: i for i, c in enumerate(self.characters)}

    @property
    def decoders(self) -> Mapping[str, Decode]:
        return {"x": numbers, "y": numbers}

    def encode(self, text: str) -> Tensor:
        """The characters' numbers, as bytes where they fit."""
        unknown = sorted(set(text) - set(self.characters))
        if unknown:
            raise UsageError(f"the text holds characters that training did not: {''.join(unknown[:10])!r}")
        kind = torch.uint8 if len(self.characters) <= 256 else torch.int32
        return torch.tensor([self.number[c] for c in text], dtype=kind)

    def read(self, inputs: Sequence[str]) -> tuple[list[str], Batch]:
        """Each input's last window; shorter ones are refused, since windows are of one length."""
        short = [text for text in inputs if len(text) < self.window]
        if short:
            raise UsageError(f"a window is {self.window} characters, got {len(short[0])} in {short[0]!r}")
        return list(inputs), {"x": torch.stack([self.encode(text[-self.window :]) for text in inputs])}

    def spec(self) -> dict[str, Any]:
        return {"kind": "characters", "characters": self.characters, "window": self.window}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "CharacterEncoder":
        return cls(spec["characters"], spec["window"])


def running_text(name: str, text: str, *, seed: int = 0, window: int = WINDOW) -> Data:
    """Windows side by side; the last tenth of the text is the test split, so that no tested line was read before."""
    encoder = CharacterEncoder("".join(sorted(set(text))), window)
    ids = encoder.encode(text)
    n = (len(ids) - 1) // window
    if n < 10:
        raise UsageError(f"{name!r} holds {len(text)} characters; at least {10 * window + 1} make ten windows of {window}")
    x, y = ids[: n * window].reshape(n, window), ids[1 : n * window + 1].reshape(n, window)
    return assemble(
        name, "text", {"x": x, "y": y}, task="language", labels=tuple(encoder.characters), target="next character", encoder=encoder,
        test=torch.arange(n - max(1, n // 10), n), standardise=False, seed=seed,
        notes=[f"{len(text):,} characters, {len(encoder.characters)} different, in windows of {window}"],
    )


@source(kind="text", task="language", licence="public domain; collected by Karpathy 2015", files=(SHAKESPEARE,))
def tinyshakespeare(seed: int = 0) -> Data:
    """1.1 million characters of Shakespeare's plays, to be continued one by one."""
    (raw,) = read("tinyshakespeare", (SHAKESPEARE,))
    return running_text("tinyshakespeare", raw.decode(), seed=seed)


@source(kind="text", task="language", licence="PSF; the help topics that come with Python")
def python_topics(seed: int = 0) -> Data:
    """200,000 characters of English about Python, from its own help topics: no download."""
    from pydoc_data.topics import topics

    text = "\n".join(topics[name] for name in sorted(topics))
    plain = "".join(c for c in text if c.isascii() and (c.isprintable() or c == "\n"))
    return running_text("python_topics", plain[:200_000], seed=seed)


def is_text(path: str | Path) -> bool:
    return str(path).endswith((".txt", ".md"))


def load_text(path: Path, *, seed: int = 0) -> Data:
    """One's own book."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read as UTF-8 text ({error}); save it as UTF-8") from error
    return running_text(path.stem, text, seed=seed)
