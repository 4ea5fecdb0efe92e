"""Questions to a published decoder that was taught to answer, from its GGUF file."""

from pathlib import Path
from typing import Any

import torch

from didact.data.published import Vocabulary
from didact.models.gguf import load_llama
from didact.objectives.autoregressive import Autoregressive
from didact.objectives.writing import Manner

CONTROL = 3                         # the file's number for tokens that are marks
BEGIN, END = "<|im_start|>", "<|im_end|>"


def vocabulary(facts: dict[str, Any]) -> Vocabulary:
    """The tokenizer that a GGUF file carries."""
    names, kinds = facts["tokenizer.ggml.tokens"], facts["tokenizer.ggml.token_type"]
    merges = tuple((left, right) for left, _, right in (merge.partition(" ") for merge in facts["tokenizer.ggml.merges"]))
    marks = tuple(name for name, kind in zip(names, kinds, strict=True) if kind == CONTROL)
    return Vocabulary(tuple(names), merges, marks, digits=facts.get("tokenizer.ggml.pre") == "smollm")


class Chat:
    """A LLaMA-style decoder and its vocabulary; the likeliest answer, unless told otherwise."""

    def __init__(self, path: str | Path, *, device: str = "cpu"):
        model, facts = load_llama(path)
        self.writer, self.words, self.device = Autoregressive(model.to(device)), vocabulary(facts), device

    def ask(self, question: str, *, tokens: int = 60, manner: Manner | None = None, system: str = "You are a helpful assistant.") -> str:
        told = f"{BEGIN}system\n{system}{END}\n{BEGIN}user\n{question}{END}\n{BEGIN}assistant\n"
        prompt = torch.tensor([self.words.encode(told)], device=self.device)
        written = self.writer.write(prompt, tokens, manner=manner or Manner(temperature=0))[0].tolist()
        end = self.words.number[END]
        return self.words.decode(written[: written.index(end)] if end in written else written).strip()
