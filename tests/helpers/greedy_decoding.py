"""The likeliest token, again and again, by reading the whole text anew each time: what a cache must agree with."""

import torch


def greedy_decode_without_cache(model, prompt, n):
    text = prompt
    for _ in range(n):
        text = torch.cat([text, model(text)[:, -1:].argmax(-1)], dim=1)
    return text[:, prompt.shape[1] :]
