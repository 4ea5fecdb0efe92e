"""Synthetic sequences of numbers as texts: is their mean large?"""

import numpy as np
import torch

from didact.data.build import Examples, build_data
from didact.data.core import Data
from didact.data.datasets.download import register_dataset
from didact.data.split import train_val_test_split
from didact.data.text.classification import BagEncoder

_NUM_SEQUENCES, _NUM_TEST = 5000, 1000


@register_dataset(kind="text", task="binary", license="made by didact")
def token_means(seed: int = 0) -> Data:
    """6,000 sequences of 5 to 49 numbers from 1 to 999: is their mean above 500? (Gaba 5.8)

    5,000 are split four to one into training and validation, as there; the rest, sampled alike, is for test.
    """
    rng = np.random.default_rng(42)
    sequences = [rng.integers(1, 1000, rng.integers(5, 50)) for _ in range(_NUM_SEQUENCES + _NUM_TEST)]
    y = torch.tensor([int(tokens.mean() > 500) for tokens in sequences])
    test_indices = torch.arange(_NUM_SEQUENCES, _NUM_SEQUENCES + _NUM_TEST)
    indices = train_val_test_split(len(y), y, test_indices=test_indices, fractions=(0.2, 0.0), seed=seed)
    encoder = BagEncoder(tuple(str(token) for token in range(1, 1000)))
    texts = [" ".join(map(str, tokens)) for tokens in sequences]
    return build_data(
        Examples(
            "token_means",
            "text",
            {"x": encoder.encode(texts), "y": y},
            task="binary",
            class_names=("small", "large"),
            feature_names=encoder.vocab,
            target="mean",
            encoder=encoder,
            text_reader=lambda: texts,
            standardize=False,
        ),
        indices=indices,
        seed=seed,
    )
