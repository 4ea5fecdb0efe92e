"""Samplers: what turns a trained model's outputs into texts, images and points of a latent space.

    top_k_top_p      temperature, top-k and top-p (nucleus) sampling of the next token; DecodingConfig
    text_generation  the autoregressive decoding loop with a KV cache and CUDA graphs; greedy decoding
    beam_search      beam search with a length penalty
    ddim             diffusion samplers DDPM, DDIM, DPM-Solver++(2M), RePaint; classifier-free guidance
    latent           latent spaces: linear and spherical interpolation, traversals, grids of samples

A sampler knows a model by a function that it calls, never by its class. What a person asks of a trained run
(`didact sample`, `didact predict`) is in `didact.inference`.
"""

from didact.samplers.beam_search import beam_search
from didact.samplers.ddim import (
    SamplingConfig,
    classifier_free_guidance,
    ddim_sample,
    repaint_timesteps,
    sampling_timesteps,
)
from didact.samplers.latent import latent_grid, latent_traversal, lerp, slerp
from didact.samplers.text_generation import DecodingCache, TextGenerator, greedy_decode
from didact.samplers.top_k_top_p import DecodingConfig, filter_logits, sample_token

__all__ = [
    "DecodingCache",
    "DecodingConfig",
    "SamplingConfig",
    "TextGenerator",
    "beam_search",
    "classifier_free_guidance",
    "ddim_sample",
    "filter_logits",
    "greedy_decode",
    "latent_grid",
    "latent_traversal",
    "lerp",
    "repaint_timesteps",
    "sample_token",
    "sampling_timesteps",
    "slerp",
]
