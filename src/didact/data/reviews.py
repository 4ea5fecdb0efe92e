"""Short texts with an opinion: sentences of film reviews, and made ones in which the order of the words is everything."""

import numpy as np
import torch

from didact.data.assemble import assemble
from didact.data.core import Data
from didact.data.fetch import File, read, source
from didact.data.splitting import three_way
from didact.data.text import BagEncoder

HOME = "https://raw.githubusercontent.com/dennybritz/cnn-text-classification-tf/master/data/rt-polaritydata"
POLARITY = (
    File("rt-polarity.neg", "2d11cfbc790f1cd96d78339f41ce53ced1efa83cd22d37d6788fa3fe3d17e2fd", f"{HOME}/rt-polarity.neg"),
    File("rt-polarity.pos", "4134882974a28d0c7b5151256f0e33a6169984ee7372c279e673f1114f475d58", f"{HOME}/rt-polarity.pos"),
)
SENTIMENT = ("negative", "positive")

PARTS = ("acting", "story", "music", "ending", "cast", "script", "camera", "pace", "humour", "dialogue")
PRAISE = ("good", "fine", "great", "lovely", "clever", "moving", "fresh", "rich")
BLAME = ("bad", "dull", "weak", "awful", "clumsy", "flat", "stale", "poor")


@source(kind="text", task="binary", licence="no licence stated; Pang and Lee 2005", files=POLARITY)
def rt_polarity(seed: int = 0) -> Data:
    """10,662 sentences of film reviews, half of them in praise."""
    negative, positive = ([line.strip() for line in raw.decode().split("\n")[:-1]] for raw in read("rt_polarity", POLARITY))
    return opinions("rt_polarity", negative + positive, [0] * len(negative) + [1] * len(positive), seed)


@source(kind="text", task="binary", licence="made by didact")
def verdicts(seed: int = 0) -> Data:
    """3,000 made sentences of praise and blame: what stands after "but" counts, which no bag of words can see."""
    rng = np.random.default_rng(0)
    texts, labels = [], []
    for _ in range(3000):
        one, two = rng.choice(PARTS, 2, replace=False)
        good, bad, praise_last = rng.choice(PRAISE), rng.choice(BLAME), bool(rng.integers(2))
        first, second = (bad, good) if praise_last else (good, bad)
        texts.append(f"the {one} was {first} but the {two} was {second}")
        labels.append(int(praise_last))
    return opinions("verdicts", texts, labels, seed)


def opinions(name: str, texts: list[str], labels: list[int], seed: int) -> Data:
    """Texts of two classes; the vocabulary is that of the training texts."""
    y = torch.tensor(labels)
    indices = three_way(len(y), y, seed=seed)
    encoder = BagEncoder.fit([texts[i] for i in indices["train"].tolist()], vocabulary=20_000)
    return assemble(
        name, "text", {"x": encoder.encode(texts), "y": y}, task="binary", labels=SENTIMENT, names=encoder.names, target="sentiment",
        encoder=encoder, indices=indices, seed=seed, standardise=False,
    )
