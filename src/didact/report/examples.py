"""The test examples with the highest and lowest loss, shown as images, rows or words."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from didact.charts.html import Html, ellipsize, format_number, tag
from didact.data.images.render import encode_png
from didact.report.predictions import Predictions

NUM_FEATURES_SHOWN = 6   # of a row, the most unusual first
NUM_WORDS_SHOWN = 14     # of a text


def to_data_uri(content: bytes, media_type: str = "image/png") -> str:
    """A file as a data URI."""
    return f"data:{media_type};base64," + base64.b64encode(content).decode()


def image_to_data_uri(image: Tensor) -> str:
    """An image as a data URI."""
    return to_data_uri(encode_png(image))


def make_image_tag(x: Tensor, alt_text: str) -> Html:
    """An inline image; the browser enlarges small ones pixel by pixel."""
    return tag("img", src=image_to_data_uri(x), alt=alt_text, class_="pixels" if x.shape[-1] < 96 else None)


def show_unusual_features(x: Tensor, data: Mapping[str, Any]) -> Html:
    """The features of a row that are furthest from the training mean, in standard deviations."""
    feature_names = list(data.get("feature_names", ())) or [f"x{k}" for k in range(len(x))]
    z_scores = _standardize(x, data)
    columns = z_scores.abs().argsort(descending=True)[:NUM_FEATURES_SHOWN].tolist()
    cells = [
        (feature_names[k], format_number(float(x[k])), f"{float(z_scores[k]):+.1f} σ".replace("-", "−"))
        for k in columns
    ]
    rows = [
        tag("tr", tag("th", ellipsize(name, 26), scope="row"), tag("td", value), tag("td", z_text))
        for name, value, z_text in cells
    ]
    return tag("table", rows, class_="features")


def _standardize(x: Tensor, data: Mapping[str, Any]) -> Tensor:
    mean, std = (
        torch.tensor(data.get(key, default)).float().flatten() for key, default in (("mean", [0.0]), ("std", [1.0]))
    )
    return (x - mean) / std


def show_unusual_words(x: Tensor, data: Mapping[str, Any]) -> Html:
    """The words of a text that are rarest in training."""
    present = (x > 0).nonzero()[:, 0]
    z_scores = _standardize(x, data)[present]
    indices = present[z_scores.argsort(descending=True)][:NUM_WORDS_SHOWN].tolist()
    num_hidden = len(present) - len(indices)
    spans = [tag("span", data["feature_names"][k]) for k in indices]
    return tag("p", spans, tag("em", f"and {num_hidden:,} more words") if num_hidden > 0 else None, class_="words")


def is_token_sequence(x: Tensor) -> bool:
    """Whether the input is a sequence of token ids rather than a bag of words of zeros and ones."""
    return bool((x > 1).any())


def _show_sentence(x: Tensor, data: Mapping[str, Any], text: str | None) -> Html:
    """The text, or its words as the network read them: 0 is padding, 1 an unknown word."""
    if text is not None:
        return tag("p", text, class_="sentence")
    words = ["…" if i == 1 else data["feature_names"][i - 2] for i in x.long().tolist() if i]
    return tag("p", " ".join(words), class_="sentence")


def _show_input(x: Tensor, data: Mapping[str, Any], alt_text: str, text: str | None) -> Html:
    if x.ndim == 3:
        return make_image_tag(x, alt_text)
    if x.ndim == 1 and data.get("kind") == "text":
        return _show_sentence(x, data, text) if is_token_sequence(x) else show_unusual_words(x, data)
    return show_unusual_features(x, data) if x.ndim == 1 else Html("")


def make_example_cards(
    group: str, examples: Mapping[str, Tensor], names: Sequence[str], predictions: Predictions, data: Mapping[str, Any],
    texts: Sequence[str] = (),
) -> list[Html]:
    """`group` is "worst" or "best": each example with its true and predicted value, loss and name.

    `texts`: the examples as they were before they were tokenized.
    """
    cards = []
    shown_texts: Sequence[str | None] = texts or [None] * len(names)
    for name, row, x, text in zip(names, examples[group].tolist(), examples[f"{group}_x"], shown_texts, strict=True):
        true, predicted, is_correct = predictions.describe(row)
        css_class = "" if is_correct is None else "right" if is_correct else "wrong"
        details = tag(
            "dl",
            make_description_entry("true", true),
            make_description_entry("predicted", predicted, css_class),
            make_description_entry("loss", format_number(float(predictions.loss[row]), 3)),
        )
        cards.append(tag("li", _show_input(x, data, f"{name}: {true}", text), details, tag("small", name)))
    return cards


def make_description_entry(name: str, value: str, css_class: str = "") -> Html:
    return tag("div", tag("dt", name), tag("dd", value, class_=css_class or None))
