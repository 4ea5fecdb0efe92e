"""Sentiment: sentences of film reviews, and synthetic ones in which word order decides."""

import numpy as np
import torch

from didact.data.build import Examples, build_data
from didact.data.core import Data
from didact.data.datasets.download import RemoteFile, read_files, register_dataset
from didact.data.split import train_val_test_split
from didact.data.text.classification import BagEncoder

_HOME_URL = "https://raw.githubusercontent.com/dennybritz/cnn-text-classification-tf/master/data/rt-polaritydata"
_POLARITY_FILES = (
    RemoteFile(
        "rt-polarity.neg",
        "2d11cfbc790f1cd96d78339f41ce53ced1efa83cd22d37d6788fa3fe3d17e2fd",
        f"{_HOME_URL}/rt-polarity.neg",
    ),
    RemoteFile(
        "rt-polarity.pos",
        "4134882974a28d0c7b5151256f0e33a6169984ee7372c279e673f1114f475d58",
        f"{_HOME_URL}/rt-polarity.pos",
    ),
)
_SENTIMENT_CLASSES = ("negative", "positive")

_ASPECTS = ("acting", "story", "music", "ending", "cast", "script", "camera", "pace", "humour", "dialogue")
_POSITIVE_WORDS = ("good", "fine", "great", "lovely", "clever", "moving", "fresh", "rich")
_NEGATIVE_WORDS = ("bad", "dull", "weak", "awful", "clumsy", "flat", "stale", "poor")


@register_dataset(kind="text", task="binary", license="no license stated; Pang and Lee 2005", files=_POLARITY_FILES)
def rt_polarity(seed: int = 0) -> Data:
    """10,662 sentences of film reviews, half of them positive."""
    negative, positive = (
        [line.strip() for line in raw.decode().split("\n")[:-1]] for raw in read_files("rt_polarity", _POLARITY_FILES)
    )
    return _build_binary_texts("rt_polarity", negative + positive, [0] * len(negative) + [1] * len(positive), seed)


@register_dataset(kind="text", task="binary", license="made by didact")
def verdicts(seed: int = 0) -> Data:
    """3,000 synthetic sentences of praise and blame: what comes after "but" counts, which no bag of words can see."""
    rng = np.random.default_rng(0)
    texts, labels = [], []
    for _ in range(3000):
        one, two = rng.choice(_ASPECTS, 2, replace=False)
        good, bad, praise_last = rng.choice(_POSITIVE_WORDS), rng.choice(_NEGATIVE_WORDS), bool(rng.integers(2))
        first, second = (bad, good) if praise_last else (good, bad)
        texts.append(f"the {one} was {first} but the {two} was {second}")
        labels.append(int(praise_last))
    return _build_binary_texts("verdicts", texts, labels, seed)


def _build_binary_texts(name: str, texts: list[str], labels: list[int], seed: int) -> Data:
    """Texts of two classes; the vocabulary is that of the training texts."""
    y = torch.tensor(labels)
    indices = train_val_test_split(len(y), y, seed=seed)
    encoder = BagEncoder.fit([texts[i] for i in indices["train"].tolist()], vocab_size=20_000)
    return build_data(
        Examples(
            name,
            "text",
            {"x": encoder.encode(texts), "y": y},
            task="binary",
            class_names=_SENTIMENT_CLASSES,
            feature_names=encoder.vocab,
            target="sentiment",
            encoder=encoder,
            text_reader=lambda: texts,
            standardize=False,
        ),
        indices=indices,
        seed=seed,
    )
