"""Beam search: the likeliest continuation that can be found with a few candidates in view."""

import torch
from torch import Tensor

from didact.errors import UsageError
from didact.progress import ProgressCallback, ignore_progress
from didact.samplers.text_generation import DecodeStep, M


@torch.no_grad()
def beam_search(
    decode_step: DecodeStep[M],
    cache: M,
    prompt: Tensor,
    n: int,
    *,
    num_beams: int,
    eos_id: int | None = None,
    length_penalty: float = 0.6,
    progress: ProgressCallback = ignore_progress,
) -> Tensor:
    """The likeliest of `num_beams` continuations of n tokens, (B, T) -> (B, n).  Sutskever et al. 2014, sec. 3.2.

    `cache` has B · num_beams rows. Finished texts compare by log p / ((5 + length) / 6)^length_penalty (Wu et al. 2016,
    eq. 14).
    """
    B, T = prompt.shape
    if T + n - 1 > cache.capacity:
        raise UsageError(
            f"beam search needs the whole text in its KV cache: {T} tokens of the prompt and {n} new ones are more "
            f"than the {cache.capacity} it can hold; generate fewer"
        )
    cache.clear()
    logp = decode_step(prompt.repeat_interleave(num_beams, dim=0), cache).float().log_softmax(-1)     # (B · beams, V)
    V = logp.shape[-1]
    first_row = torch.arange(B, device=prompt.device)[:, None] * num_beams    # the first beam of each text
    # All beams of a text have read the same prompt so far: candidates come from one of them, or each would be found
    # `num_beams` times.
    scores, token = logp.view(B, num_beams, V)[:, 0].topk(num_beams)
    generated = token.view(-1, 1)
    for k in range(1, n):
        if eos_id is not None and bool((generated[:, -1] == eos_id).all()):
            generated = torch.cat([generated, torch.full_like(generated[:, :1], eos_id).expand(-1, n - k)], dim=1)
            break
        progress(k, n)
        logp = decode_step(generated[:, -1:], cache).float().log_softmax(-1)
        if eos_id is not None:    # a finished text stays in view at log p = 0 for one more <eos>, and −∞ for all else
            eos_only = torch.full_like(logp[:1], -torch.inf).index_fill(
                1, torch.tensor([eos_id], device=logp.device), 0.0
            )
            logp = torch.where(generated[:, -1:] == eos_id, eos_only, logp)
        scores, best = (scores[..., None] + logp.view(B, num_beams, V)).flatten(1).topk(num_beams)   # (B, beams)
        # The survivors may descend from any beam of their text: cache and tokens follow their ancestors.
        row_index = (first_row + best // V).flatten()
        cache.reorder(row_index)
        generated = torch.cat([generated[row_index], (best % V).view(-1, 1)], dim=1)
    # the length counts <eos>, where there is one
    length = n if eos_id is None else ((generated != eos_id).sum(1) + 1).clamp(max=n).view(B, num_beams)
    best = (scores / ((5 + length) / 6) ** length_penalty).argmax(1, keepdim=True)
    return generated[(first_row + best).flatten()]
