"""New text out of a run's model."""

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

START_TOKENS = ("\n", "Ċ", ".", " ")   # what a text may begin behind; Ċ is how byte pairs write the end of a line


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
    """n texts that go on from the prompt, which is not repeated; beams give the one likeliest. Without a prompt
    they begin anew."""
    objective, data = load_model(run)
    if not isinstance(objective, CanGenerateText) or not isinstance(data.encoder, TextEncoder):
        raise UsageError(
            f"recipe {run.metadata['recipe']!r} writes nothing; `didact list` shows which recipes can write"
        )
    torch_device, tokenizer, decoding = resolve_device(device), data.encoder.tokenizer, decoding or DecodingConfig()
    decoding.check(len(tokenizer.vocab))
    if decoding.num_beams > 1 and n > 1:
        raise UsageError(f"beam search finds one text, got --num-samples {n}; leave out it or --num-beams")
    input_ids = tokenizer.encode(prompt) if prompt else [_start_token(tokenizer)]
    if not input_ids:
        raise UsageError(f"a text to be continued needs at least one token, got {prompt!r}")
    prompts = torch.tensor(input_ids, device=torch_device).expand(n, -1)
    # LoRA's matrices become part of those beside them: nothing more to multiply with
    merge_lora(objective)
    objective.to(torch_device)
    generator = torch.Generator(torch_device).manual_seed(seed)
    generated = objective.write(prompts, tokens, decoding=decoding, generator=generator, progress=progress).tolist()
    # words are spelled behind what was said, so that the space between is not lost
    prefix = input_ids if prompt else []
    return [tokenizer.decode([*prefix, *row])[len(tokenizer.decode(prefix)) :] for row in generated]


def _start_token(tokenizer: Tokenizer) -> int:
    """A token behind which a text may begin: the end of a line or sentence where the training text had one, else
    its first."""
    token_ids = {name: i for i, name in enumerate(tokenizer.vocab) if name not in SPECIAL_TOKENS}
    return next(
        (token_ids[start_token] for start_token in START_TOKENS if start_token in token_ids),
        next(iter(token_ids.values())),
    )
