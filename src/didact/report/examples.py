"""The test examples that surprised the model most and least, shown as what they are: images, rows or words."""

import base64
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from didact.report.answers import Answers
from didact.report.markup import Html, number, shorten, tag

FEATURES = 6   # of a row, the most unusual first
WORDS = 14     # of a text
COLOURS = {1: 0, 3: 2, 4: 6}  # channels -> colour type of a PNG


def png(image: Tensor) -> bytes:
    """(C, H, W) in [0, 1] as a PNG: grey for one channel, colour for three, with opacity for four; others are averaged."""
    if image.shape[0] not in COLOURS:
        image = image.mean(0, keepdim=True)
    pixels = (image.nan_to_num().clamp(0, 1) * 255).round().byte().permute(1, 2, 0).contiguous()  # (H, W, C)
    height, width, channels = pixels.shape
    lines = b"".join(b"\0" + row.numpy().tobytes() for row in pixels)  # filter 0 before each line

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", width, height, 8, COLOURS[channels], 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines, 9)) + chunk(b"IEND", b"")


def inline(image: Tensor) -> str:
    """An image as an address that holds it."""
    return "data:image/png;base64," + base64.b64encode(png(image)).decode()


def picture(x: Tensor, alternative: str) -> Html:
    """An image inline; small ones are enlarged pixel by pixel, by the browser."""
    return tag("img", src=inline(x), alt=alternative, class_="pixels" if x.shape[-1] < 96 else None)


def features(x: Tensor, data: Mapping[str, Any]) -> Html:
    """The features of a row that lie furthest from the training mean, in its deviations."""
    names = list(data.get("names", ())) or [f"x{k}" for k in range(len(x))]
    away = deviations(x, data)
    chosen = away.abs().argsort(descending=True)[:FEATURES].tolist()
    told = [(names[k], number(float(x[k])), f"{float(away[k]):+.1f} σ".replace("-", "−")) for k in chosen]
    rows = [tag("tr", tag("th", shorten(name, 26), scope="row"), tag("td", value), tag("td", far)) for name, value, far in told]
    return tag("table", rows, class_="features")


def deviations(x: Tensor, data: Mapping[str, Any]) -> Tensor:
    mean, std = (torch.tensor(data.get(key, default)).float().flatten() for key, default in (("mean", [0.0]), ("std", [1.0])))
    return (x - mean) / std


def words(x: Tensor, data: Mapping[str, Any]) -> Html:
    """The words of a text that are least usual in training."""
    there = (x > 0).nonzero()[:, 0]
    away = deviations(x, data)[there]
    chosen = there[away.argsort(descending=True)][:WORDS].tolist()
    rest = len(there) - len(chosen)
    shown = [tag("span", data["names"][k]) for k in chosen]
    return tag("p", shown, tag("em", f"and {rest:,} more words") if rest > 0 else None, class_="words")


def shown(x: Tensor, data: Mapping[str, Any], alternative: str) -> Html:
    if x.ndim == 3:
        return picture(x, alternative)
    if x.ndim == 1 and data.get("kind") == "text" and len(data.get("names", ())) == len(x):
        return words(x, data)
    return features(x, data) if x.ndim == 1 else Html("")


def cards(which: str, kept: Mapping[str, Tensor], said: Answers, data: Mapping[str, Any]) -> list[Html]:
    """`which` is "worst" or "best": each example with the truth, the answer and the loss."""
    found = []
    for row, x in zip(kept[which].tolist(), kept[f"{which}_x"], strict=True):
        true, answer, right = said.told(row)
        mark = "" if right is None else "right" if right else "wrong"
        verdict = tag("dl", entry("true", true), entry("said", answer, mark), entry("loss", number(float(said.loss[row]), 3)))
        found.append(tag("li", shown(x, data, f"test example {row}: {true}"), verdict, tag("small", f"test example {row:,}")))
    return found


def entry(name: str, value: str, kind: str = "") -> Html:
    return tag("div", tag("dt", name), tag("dd", value, class_=kind or None))
