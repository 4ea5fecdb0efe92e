"""The test examples that surprised the model most and least, shown as what they are: images, rows or words."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from didact.data.pictures import png
from didact.report.answers import Answers
from didact.report.markup import Html, number, shorten, tag

FEATURES = 6   # of a row, the most unusual first
WORDS = 14     # of a text


def address(content: bytes, kind: str = "image/png") -> str:
    """A file as an address that holds it."""
    return f"data:{kind};base64," + base64.b64encode(content).decode()


def inline(image: Tensor) -> str:
    """An image as an address that holds it."""
    return address(png(image))


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


def in_order(x: Tensor) -> bool:
    """Whether a text was read word by word: numbers of words, where a bag holds zeros and ones."""
    return bool((x > 1).any())


def sentence(x: Tensor, data: Mapping[str, Any]) -> Html:
    """The text as the network read it: 0 is behind the end, 1 a word that it does not know."""
    read = ["…" if i == 1 else data["names"][i - 2] for i in x.long().tolist() if i]
    return tag("p", " ".join(read), class_="sentence")


def shown(x: Tensor, data: Mapping[str, Any], alternative: str) -> Html:
    if x.ndim == 3:
        return picture(x, alternative)
    if x.ndim == 1 and data.get("kind") == "text":
        return sentence(x, data) if in_order(x) else words(x, data)
    return features(x, data) if x.ndim == 1 else Html("")


def cards(which: str, kept: Mapping[str, Tensor], names: Sequence[str], said: Answers, data: Mapping[str, Any]) -> list[Html]:
    """`which` is "worst" or "best": each example with the truth, the answer, the loss and what it is called."""
    found = []
    for name, row, x in zip(names, kept[which].tolist(), kept[f"{which}_x"], strict=True):
        true, answer, right = said.told(row)
        mark = "" if right is None else "right" if right else "wrong"
        verdict = tag("dl", entry("true", true), entry("said", answer, mark), entry("loss", number(float(said.loss[row]), 3)))
        found.append(tag("li", shown(x, data, f"{name}: {true}"), verdict, tag("small", name)))
    return found


def entry(name: str, value: str, kind: str = "") -> Html:
    return tag("div", tag("dt", name), tag("dd", value, class_=kind or None))
