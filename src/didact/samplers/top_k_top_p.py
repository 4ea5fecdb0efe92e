"""Top-k and top-p (nucleus) sampling: the next token from a model's logits, with a temperature."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from didact.errors import UsageError

# Below this temperature the logits would overflow; the likeliest token has been certain long before.
MIN_TEMPERATURE = 1e-30


@dataclass(frozen=True)
class DecodingConfig:
    """How the next token is chosen: sampling with temperature, top-k and top-p, or beam search."""

    temperature: float = 1.0      # 0: greedy, always the likeliest token
    top_k: int | None = None      # only the k likeliest tokens
    top_p: float | None = None    # only the likeliest tokens that together have this probability
    num_beams: int = 1            # beam width; above 1, beam search instead of sampling

    def check(self, vocab_size: int) -> None:
        """Refuse settings that no vocabulary of this size allows."""
        if not 0 <= self.temperature < float("inf"):
            raise UsageError(
                "the temperature must be a number of at least 0 (0: always the likeliest token), got "
                f"{self.temperature:g}"
            )
        if self.top_k is not None and not 1 <= self.top_k <= vocab_size:
            raise UsageError(f"top-k must be from 1 to {vocab_size}, the size of the vocabulary, got {self.top_k}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UsageError(f"top-p is a probability above 0 and up to 1, got {self.top_p:g}")
        if not 1 <= self.num_beams <= vocab_size:
            raise UsageError(
                f"the number of beams must be from 1 to {vocab_size}, the size of the vocabulary, got {self.num_beams}"
            )
        if self.num_beams > 1 and (self.temperature != 1 or self.top_k or self.top_p):
            raise UsageError(
                f"beam search with {self.num_beams} beams finds the likeliest text and samples nothing: leave out "
                "temperature, top-k and top-p"
            )


def filter_logits(logits: Tensor, decoding: DecodingConfig) -> Tensor:
    """logits / temperature, −∞ outside of top-k and top-p.  Fan et al. 2018 (k), Holtzman et al. 2020 (p); Gaba Ex 6.4.

    Top-k comes first; top-p counts the probabilities of what is left.
    """
    z = logits.float() / decoding.temperature
    if decoding.top_k is not None:
        z = z.masked_fill(z < z.topk(decoding.top_k).values[:, -1:], -torch.inf)
    if decoding.top_p is not None and decoding.top_p < 1:
        best = z.sort(descending=True).values
        p = best.softmax(-1)
        # A token is outside if the tokens before it already reach top-p; the likeliest token has none before it, so
        # it always stays.
        is_outside = p.cumsum(-1) - p >= decoding.top_p
        z = z.masked_fill(z < best.masked_fill(is_outside, torch.inf).amin(-1, keepdim=True), -torch.inf)
    return z


def sample_token(logits: Tensor, decoding: DecodingConfig, generator: Generator | None) -> Tensor:
    """One token for each row of logits, (B, V) -> (B, 1).

    argmax p_i / E_i with E_i ~ Exp(1) is a sample of p. Unlike torch.multinomial it needs no synchronization with the
    host, so a CUDA graph can hold it.
    """
    if decoding.temperature < MIN_TEMPERATURE:
        return logits.argmax(-1, keepdim=True)
    p = filter_logits(logits, decoding).softmax(-1)
    return (p / torch.empty_like(p).exponential_(generator=generator)).argmax(-1, keepdim=True)
