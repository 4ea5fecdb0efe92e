"""Top-k and top-p sampling: what the filters leave, and that samples follow it."""

import pytest
import torch

from didact.errors import UsageError
from didact.models.text.gpt import GPT
from didact.objectives.text.causal_lm import CausalLanguageModel
from didact.samplers.top_k_top_p import DecodingConfig, filter_logits, sample_token


@pytest.mark.parametrize("temperature", [1e-46, 1e-40, 1e-36, 1e-20])
@pytest.mark.parametrize("bounds", [{}, {"top_k": 2}, {"top_p": 0.9}])
def test_sample_token_with_a_tiny_temperature_is_greedy(temperature, bounds):
    """1e-40: logits / temperature would be infinite, and ∞ − ∞ is NaN."""
    logits = torch.tensor([[2.0, 90.0, 1.0, -1.0], [-50.0, -90.0, -40.0, -41.0]])
    assert sample_token(logits, DecodingConfig(temperature, **bounds), torch.Generator().manual_seed(0))[
        :, 0
    ].tolist() == [1, 2]


def test_sample_token_follows_the_softmax():
    logits = torch.tensor([2.0, 0.0, 1.0, -1.0])
    samples = sample_token(logits.expand(40_000, 4), DecodingConfig(temperature=0.5), torch.Generator().manual_seed(0))[
        :, 0
    ]
    p = (logits / 0.5).softmax(0)
    deviation = (p * (1 - p) / 40_000).sqrt()
    assert ((samples.bincount(minlength=4) / 40_000 - p).abs() < 4 * deviation).all()


def test_filter_logits_keeps_top_k_and_top_p():
    p = torch.tensor([[0.1, 0.4, 0.05, 0.3, 0.15]])
    is_kept = {
        name: (filter_logits(p.log(), decoding) > -torch.inf)[0].tolist()
        for name, decoding in {
            "k=2": DecodingConfig(top_k=2),
            "p=0.7": DecodingConfig(top_p=0.69),
            "p=0.71": DecodingConfig(top_p=0.71),
            "p tiny": DecodingConfig(top_p=1e-6),
            "both": DecodingConfig(top_k=3, top_p=0.9),
            "all": DecodingConfig(top_k=5, top_p=1.0),
        }.items()
    }
    assert is_kept == {
        "k=2": [False, True, False, True, False],
        "p=0.7": [False, True, False, True, False],
        "p=0.71": [False, True, False, True, True],
        "p tiny": [False, True, False, False, False],
        # of the three 0.4, 0.3, 0.15 of 0.85, the first two have 0.82
        "both": [False, True, False, True, True],
        "all": [True] * 5,
    }


@pytest.mark.parametrize(("decoding", "message"), [
    (DecodingConfig(temperature=-1.0), "temperature must be a number of at least 0 .* got -1"),
    (DecodingConfig(temperature=float("nan")), "temperature must be a number of at least 0"),
    (DecodingConfig(top_k=24), "top-k must be from 1 to 23, .* got 24"),
    (DecodingConfig(top_k=0), "top-k must be from 1 to 23"),
    (DecodingConfig(top_p=0.0), "top-p is a probability above 0"),
    (DecodingConfig(top_p=1.5), "top-p is a probability above 0 and up to 1, got 1.5"),
    (DecodingConfig(num_beams=0), "number of beams must be from 1"),
    (DecodingConfig(num_beams=3, top_k=2), "leave out temperature, top-k and top-p"),
])
def test_invalid_decoding_configs_are_refused(decoding, message):
    language_model = CausalLanguageModel(GPT(23, context_length=12, embed_dim=16, num_layers=1, num_heads=4))
    with pytest.raises(UsageError, match=message):
        language_model.write(torch.zeros(1, 3, dtype=torch.long), 2, decoding=decoding)
