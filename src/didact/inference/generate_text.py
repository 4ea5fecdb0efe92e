"""Text generation with a run's language model."""

import torch

from didact.adaptation.lora import merge_lora
from didact.data.text.language_modeling import TextEncoder
from didact.data.text.tokenizers import SPECIAL_TOKENS, Tokenizer
from didact.errors import UsageError
from didact.objectives.abilities import CanGenerateText
from didact.progress import ProgressCallback, ignore_progress
from didact.run import Run
from didact.samplers.top_k_top_p import DecodingConfig
from didact.training.device import resolve_device
from didact.training.restore import load_model

_START_TOKENS = ("\n", "Ċ", ".", " ")   # tokens after which a text may start; Ċ is byte-level BPE's end of a line


def generate_continuations(
    run: Run,
    prompt: str | None = None,
    *,
    tokens: int = 500,
    n: int = 1,
    decoding: DecodingConfig | None = None,
    seed: int = 0,
    device: str = "cpu",
    progress: ProgressCallback = ignore_progress,
) -> list[str]:
    """n continuations of the prompt, without the prompt itself; with beam search the likeliest one.

    Without a prompt, n new texts.
    """
    objective, data = load_model(run)
    if not isinstance(objective, CanGenerateText) or not isinstance(data.encoder, TextEncoder):
        raise UsageError(
            f"recipe {run.metadata['recipe']!r} generates no text; `didact list` shows which recipes can write"
        )
    torch_device, tokenizer, decoding = resolve_device(device), data.encoder.tokenizer, decoding or DecodingConfig()
    decoding.check(len(tokenizer.vocab))
    if decoding.num_beams > 1 and n > 1:
        raise UsageError(f"beam search finds one text, got --num-samples {n}; leave out --num-samples or --num-beams")
    input_ids = tokenizer.encode(prompt) if prompt else [_start_token(tokenizer)]
    if not input_ids:
        raise UsageError(f"a prompt needs at least one token, got {prompt!r}")
    prompts = torch.tensor(input_ids, device=torch_device).expand(n, -1)
    # merged, LoRA costs no extra multiplications
    merge_lora(objective)
    objective.to(torch_device)
    generator = torch.Generator(torch_device).manual_seed(seed)
    generated = objective.write(prompts, tokens, decoding=decoding, generator=generator, progress=progress).tolist()
    # decoded together with the prompt, whose end decides about the space before the first word
    prefix = input_ids if prompt else []
    return [tokenizer.decode([*prefix, *row])[len(tokenizer.decode(prefix)) :] for row in generated]


def _start_token(tokenizer: Tokenizer) -> int:
    """A token after which a text may start: the end of a line or sentence, or else the first of the vocabulary."""
    token_ids = {name: i for i, name in enumerate(tokenizer.vocab) if name not in SPECIAL_TOKENS}
    return next(
        (token_ids[start_token] for start_token in _START_TOKENS if start_token in token_ids),
        next(iter(token_ids.values())),
    )
