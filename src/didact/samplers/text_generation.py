"""Text generation: an autoregressive decoding loop with a KV cache, by sampling or greedily.

Nothing waits for the device between tokens: the text stays there until the end, and on CUDA a step is one graph.
Sampling is in `top_k_top_p.py`, beam search in `beam_search.py`.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

import torch
from torch import Generator, Tensor

from didact.errors import UsageError
from didact.progress import ProgressCallback, ignore_progress
from didact.samplers.top_k_top_p import DecodingConfig, sample_token

_MIN_VISIBLE_LENGTH = 128   # positions of the cache that a step attends to; doubled whenever they are full
_GRAPH_WARMUP_STEPS = 2     # eager steps before one is captured


class DecodingCache(Protocol):
    """The state that a model decodes from: tensors of fixed shape that its steps change in place.

    `layers.attention.kv_cache.KVCache` is one; a recurrent network carries its hidden state instead.
    """

    @property
    def capacity(self) -> int:
        """The number of tokens it can hold."""

    def narrow(self, visible: int) -> "DecodingCache":
        """A view of its first `visible` positions, for steps that attend to no others."""

    def clear(self) -> None:
        """Forget every token."""

    def reorder(self, indices: Tensor) -> None:
        """Row i becomes what row indices[i] was."""


M = TypeVar("M", bound=DecodingCache)
DecodeStep = Callable[[Tensor, M], Tensor]   # tokens (B, T), cache -> logits of the token after the last, (B, V)


def _compile_step(decode_step: DecodeStep[M]) -> DecodeStep[M]:
    """Tuned, so that a matrix times one vector becomes a kernel of its own, fused with what follows."""
    return torch.compile(decode_step, dynamic=False, options={"coordinate_descent_tuning": True})


class TextGenerator:
    """A decoding loop around one cache; its captured CUDA graphs are reused by later calls.

    After `eos_id`, where there is one, only `eos_id` follows. `compile` is worth its minute of compilation for
    thousands of tokens.
    """

    def __init__(
        self,
        decode_step: DecodeStep[M],
        cache: M,
        batch_size: int,
        *,
        decoding: DecodingConfig,
        generator: Generator | None = None,
        eos_id: int | None = None,
        device: torch.device,
        compile: bool = False,
    ):
        self.cache, self.decoding, self.generator, self.eos_id = cache, decoding, generator, eos_id
        self.prefill: DecodeStep[M] = decode_step
        self.decode_step: DecodeStep[M] = _compile_step(decode_step) if compile else decode_step
        self.token = torch.zeros(batch_size, 1, dtype=torch.long, device=device)
        self.generated = torch.zeros(batch_size, min(cache.capacity, 2**16) + 1, dtype=torch.long, device=device)
        self.num_generated = torch.zeros(1, dtype=torch.long, device=device)
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self.warmup_counts: dict[int, int] = {}

    @torch.no_grad()
    def generate(self, prompt: Tensor, n: int, *, progress: ProgressCallback = ignore_progress) -> Tensor:
        """The next n tokens, (B, T) -> (B, n). A full cache starts anew from the second half of the tokens it held."""
        capacity = self.generated.shape[1] - 1
        if prompt.shape[1] > capacity:
            raise UsageError(
                f"the prompt has {prompt.shape[1]} tokens, but this model reads {capacity} at most; shorten it"
            )
        text = prompt

        def report(k: int) -> None:
            progress(text.shape[1] - prompt.shape[1] + k, n)

        while (num_left := prompt.shape[1] + n - text.shape[1]) > 0:
            prompt_part = text if text.shape[1] <= capacity // 2 or text is prompt else text[:, -(capacity // 2) :]
            text = torch.cat(
                [text, self._generate_window(prompt_part, min(num_left, capacity - prompt_part.shape[1] + 1), report)],
                dim=1,
            )
        return text[:, prompt.shape[1] :]

    def _generate_window(self, prompt: Tensor, n: int, report: Callable[[int], object]) -> Tensor:
        """n tokens after a prompt, which is read into an empty cache (prefill)."""
        self.cache.clear()
        self.num_generated.zero_()
        self.token.copy_(prompt[:, -1:])
        self.token.copy_(self._next_token(self.prefill(prompt, self.cache)))
        for length in range(prompt.shape[1] + 1, prompt.shape[1] + n):
            self._step_or_replay(visible_length(length))
            report(length - prompt.shape[1])    # steps launched; the host never waits for the device
        self.generated.index_copy_(1, self.num_generated, self.token)
        return self.generated[:, :n].clone()

    def _next_token(self, logits: Tensor) -> Tensor:
        token = sample_token(logits, self.decoding, self.generator)
        return token if self.eos_id is None else torch.where(self.token == self.eos_id, self.token, token)

    def step(self, visible: int) -> None:
        """Store the latest token, decode it, choose the next: on the device, in tensors that are written in place."""
        self.generated.index_copy_(1, self.num_generated, self.token)
        self.num_generated.add_(1)
        self.token.copy_(self._next_token(self.decode_step(self.token, self.cache.narrow(visible))))  # type: ignore[arg-type]

    def _step_or_replay(self, visible: int) -> None:
        """A step: eager at first, later a replay of its CUDA graph.

        At batch size 1 a step is some hundred tiny kernels, and launching them from the host takes longer than running
        them. A graph launches all of them at once. It replays fixed addresses and shapes, hence: token, position and
        output live in tensors that are written in place, `num_generated` counts on the device, and there is one graph
        for each visible length.
        """
        if self.token.device.type != "cuda":
            self.step(visible)
        elif visible in self.graphs:
            self.graphs[visible].replay()
        elif self.warmup_counts.get(visible, 0) < _GRAPH_WARMUP_STEPS:
            self.warmup_counts[visible] = self.warmup_counts.get(visible, 0) + 1
            self._run_on_side_stream(visible)
        else:
            self.graphs[visible] = self._capture_graph(visible)
            self.graphs[visible].replay()

    def _run_on_side_stream(self, visible: int) -> None:
        """A warm-up step on a side stream, which capture demands: lazy initialization must be over by then."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.step(visible)
        torch.cuda.current_stream().wait_stream(stream)

    def _capture_graph(self, visible: int) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        if self.generator is not None:    # else each replay would repeat the random numbers of the capture
            graph.register_generator_state(self.generator)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            self.step(visible)
        return graph


def visible_length(length: int) -> int:
    """Positions that a step attends to with `length` tokens in the cache: 128, 256, 512, …, a CUDA graph for each."""
    return max(_MIN_VISIBLE_LENGTH, 1 << (length - 1).bit_length())


@torch.no_grad()
def greedy_decode(decode_step: DecodeStep[M], cache: M, prompt: Tensor, n: int, *, eos_id: int) -> Tensor:
    """Greedy decoding, (B, T) -> (B, n), or fewer once all texts have ended; 0 after `eos_id`."""
    y, generated, has_ended = prompt, list[Tensor](), torch.zeros_like(prompt[:, :1], dtype=torch.bool)
    while len(generated) < n and not has_ended.all():
        y = decode_step(y, cache).argmax(-1, keepdim=True).masked_fill(has_ended, 0)
        has_ended = has_ended | (y == eos_id)
        generated.append(y)
    return torch.cat(generated, dim=1)
