"""New text out of a run's model."""

import torch

from didact.data.sequences import StreamEncoder
from didact.data.tokens import SPECIALS, Tokenizer
from didact.errors import UsageError
from didact.layers.lora import merge
from didact.objectives.abilities import Writes
from didact.objectives.writing import Manner, Pace, unhurried
from didact.run import Run
from didact.train.machine import pick_device
from didact.train.session import restored

OPENINGS = ("\n", "Ċ", ".", " ")   # what a text may begin behind; Ċ is how byte pairs write the end of a line


def continued(
    run: Run, prompt: str | None = None, *, tokens: int = 500, n: int = 1, manner: Manner | None = None, seed: int = 0,
    device: str = "cpu", pace: Pace = unhurried,
) -> list[str]:
    """n texts that go on from the prompt, which is not repeated; beams give the one likeliest. Without a prompt they begin anew."""
    objective, data = restored(run)
    if not isinstance(objective, Writes) or not isinstance(data.encoder, StreamEncoder):
        raise UsageError(f"recipe {run.facts['recipe']!r} writes nothing; `didact list` shows which recipes can write")
    place, tokenizer, manner = pick_device(device), data.encoder.tokenizer, manner or Manner()
    manner.check(len(tokenizer.names))
    if manner.beam > 1 and n > 1:
        raise UsageError(f"beams find one text, the likeliest, got --n {n}; leave out --n or --beam")
    read = tokenizer.encode(prompt) if prompt else [opening(tokenizer)]
    if not read:
        raise UsageError(f"a text to be continued needs at least one token, got {prompt!r}")
    start = torch.tensor(read, device=place).expand(n, -1)
    merge(objective)                         # LoRA's matrices become part of those beside them: nothing more to multiply with
    objective.to(place)
    generator = torch.Generator(place).manual_seed(seed)
    written = objective.write(start, tokens, manner=manner, generator=generator, pace=pace).tolist()
    said = read if prompt else []            # words are spelled behind what was said, so that the space between is not lost
    return [tokenizer.decode([*said, *row])[len(tokenizer.decode(said)) :] for row in written]


def opening(tokenizer: Tokenizer) -> int:
    """A token behind which a text may begin: the end of a line or sentence where the training text had one, else its first."""
    number = {name: i for i, name in enumerate(tokenizer.names) if name not in SPECIALS}
    return next((number[sign] for sign in OPENINGS if sign in number), next(iter(number.values())))
