"""Sequences of numbers as texts, made on the spot: is their mean large?"""

import numpy as np
import torch

from didact.data.assemble import assemble
from didact.data.core import Data
from didact.data.fetch import source
from didact.data.splitting import three_way
from didact.data.text import BagEncoder

SEQUENCES, TESTS = 5000, 1000


@source(kind="text", task="binary", licence="made by didact")
def token_means(seed: int = 0) -> Data:
    """6,000 sequences of 5 to 49 numbers from 1 to 999: is their mean above 500? (Gaba 5.8)

    5,000 are split four to one into training and validation, as there; the rest, drawn alike, is for test.
    """
    rng = np.random.default_rng(42)
    drawn = [rng.integers(1, 1000, rng.integers(5, 50)) for _ in range(SEQUENCES + TESTS)]
    y = torch.tensor([int(tokens.mean() > 500) for tokens in drawn])
    tests = torch.arange(SEQUENCES, SEQUENCES + TESTS)
    indices = three_way(len(y), y, test=tests, fractions=(0.2, 0.0), seed=seed)
    encoder = BagEncoder(tuple(str(token) for token in range(1, 1000)))
    texts = [" ".join(map(str, tokens)) for tokens in drawn]
    return assemble(
        "token_means", "text", {"x": encoder.encode(texts), "y": y}, task="binary", labels=("small", "large"), names=encoder.names,
        target="mean", encoder=encoder, indices=indices, seed=seed, standardise=False,
    )
