"""New text out of a run's model."""

import torch

from didact.data.sequences import StreamEncoder
from didact.errors import UsageError
from didact.layers.lora import merge
from didact.objectives.abilities import Writes
from didact.objectives.writing import Manner
from didact.run import Run
from didact.train.machine import pick_device
from didact.train.session import restored


def continued(
    run: Run, prompt: str, *, tokens: int = 500, n: int = 1, manner: Manner | None = None, seed: int = 0, device: str = "cpu"
) -> list[str]:
    """n texts that go on from the prompt, which is not repeated; beams give the one likeliest."""
    objective, data = restored(run)
    if not isinstance(objective, Writes) or not isinstance(data.encoder, StreamEncoder):
        raise UsageError(f"recipe {run.facts['recipe']!r} writes nothing; `didact list` shows which recipes can write")
    manner = manner or Manner()
    if manner.beam > 1 and n > 1:
        raise UsageError(f"beams find one text, the likeliest, got --n {n}; leave out --n or --beam")
    place, tokenizer = pick_device(device), data.encoder.tokenizer
    read = tokenizer.encode(prompt)
    if not read:
        raise UsageError("a text to be continued needs at least one token, got an empty prompt")
    start = torch.tensor(read, device=place).expand(n, -1)
    merge(objective)                         # LoRA's matrices become part of those beside them: nothing more to multiply with
    objective.to(place)
    generator = torch.Generator(place).manual_seed(seed)
    return [tokenizer.decode(row) for row in objective.write(start, tokens, manner=manner, generator=generator).tolist()]
