"""Writing: a model that says what comes next is asked again and again. Greedily, by chance within bounds, or along
several beams.

Nothing waits for the device between tokens: what was written lies there until the end, and on CUDA a step is one graph.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
from torch import Generator, Tensor

from didact.errors import UsageError

MIN_VISIBLE_LENGTH = 128   # places of a memory that a step looks at; doubled whenever they are filled
GRAPH_WARMUP_STEPS = 2         # steps taken as they stand before one is captured
# a temperature below which logits would overflow; the likeliest token has been certain long before
MIN_TEMPERATURE = 1e-30


class DecodingCache(Protocol):
    """What a model goes on from: tensors of fixed shape, which its steps change in place. `layers.cache.Cache` is
    one."""

    @property
    def capacity(self) -> int:
        """Tokens that it can hold."""

    def narrowed(self, visible: int) -> "DecodingCache":
        """The same for steps that look at its first `reach` places only."""

    def clear(self) -> None:
        """Nothing was read."""

    def reorder(self, indices: Tensor) -> None:
        """Row i becomes what row rows[i] was."""


M = TypeVar("M", bound=DecodingCache)
DecodeStep = Callable[[Tensor, M], Tensor]   # tokens (B, T), memory -> logits behind the last token, (B, V)
ProgressCallback = Callable[[int, int], object]    # tokens written so far, and of how many: for whoever waits


def ignore_progress(done: int, total: int) -> None:
    """Nobody waits."""


@dataclass(frozen=True)
class DecodingConfig:
    """How the next token is chosen."""

    temperature: float = 1.0      # 0: always the likeliest
    top_k: int | None = None      # only among the k likeliest
    top_p: float | None = None    # only among the likeliest that together have this probability
    beam: int = 1                 # texts that are kept in view to find the likeliest whole

    def check(self, vocab_size: int) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise UsageError(
                "the temperature must be a number of at least 0 (0: always the likeliest token), got "
                f"{self.temperature:g}"
            )
        if self.top_k is not None and not 1 <= self.top_k <= vocab_size:
            raise UsageError(
                f"top-k must be from 1 to {vocab_size}, the tokens that this model knows, got {self.top_k}"
            )
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UsageError(f"top-p is a probability above 0 and up to 1, got {self.top_p:g}")
        if not 1 <= self.beam <= vocab_size:
            raise UsageError(f"beams must be from 1 to {vocab_size}, the tokens that this model knows, got {self.beam}")
        if self.beam > 1 and (self.temperature != 1 or self.top_k or self.top_p):
            raise UsageError(
                f"{self.beam} beams look for the likeliest text, not a random one: leave out temperature, top-k and "
                "top-p"
            )


def filter_logits(logits: Tensor, decoding: DecodingConfig) -> Tensor:
    """logits / temperature, −∞ outside of top-k and top-p.  Fan et al. 2018 (k), Holtzman et al. 2020 (p); Gaba Ex
    6.4."""
    z = logits.float() / decoding.temperature
    if decoding.top_k is not None:
        z = z.masked_fill(z < z.topk(decoding.top_k).values[:, -1:], -torch.inf)
    if decoding.top_p is not None and decoding.top_p < 1:
        best = z.sort(descending=True).values
        p = best.softmax(-1)
        # those before already have it: the likeliest always stays
        outside = p.cumsum(-1) - p >= decoding.top_p
        z = z.masked_fill(z < best.masked_fill(outside, torch.inf).amin(-1, keepdim=True), -torch.inf)
    return z


def sample_token(logits: Tensor, decoding: DecodingConfig, generator: Generator | None) -> Tensor:
    """One token a row, (B, V) -> (B, 1): argmax p_i / E_i with E_i ~ Exp(1) is a draw from p, and asks nothing of
    the host."""
    if decoding.temperature < MIN_TEMPERATURE:
        return logits.argmax(-1, keepdim=True)
    p = filter_logits(logits, decoding).softmax(-1)
    return (p / torch.empty_like(p).exponential_(generator=generator)).argmax(-1, keepdim=True)


def _compile_step(decode_step: DecodeStep[M]) -> DecodeStep[M]:
    """Tuned so that a matrix times one vector becomes a kernel of its own, joined with what follows."""
    return torch.compile(decode_step, dynamic=False, options={"coordinate_descent_tuning": True})


class TextGenerator:
    """Writes with one memory, as often as asked; its captured steps are kept for the next time.

    Behind `end`, where there is one, nothing but `end` is written. `compile` is worth its minute for thousands of
    tokens.
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
        """The next n tokens, (B, T) -> (B, n). A full memory begins anew with the second half of what it held."""
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
        """n tokens behind those that are read anew."""
        self.cache.clear()
        self.num_generated.zero_()
        self.token.copy_(prompt[:, -1:])
        self.token.copy_(self._next_token(self.prefill(prompt, self.cache)))
        for length in range(prompt.shape[1] + 1, prompt.shape[1] + n):
            self._step_or_replay(visible_length(length))
            report(length - prompt.shape[1])
        self.generated.index_copy_(1, self.num_generated, self.token)
        return self.generated[:, :n].clone()

    def _next_token(self, logits: Tensor) -> Tensor:
        token = sample_token(logits, self.decoding, self.generator)
        return token if self.eos_id is None else torch.where(self.token == self.eos_id, self.token, token)

    def step(self, visible: int) -> None:
        """Note the latest token, read it, choose the next: all on the device."""
        self.generated.index_copy_(1, self.num_generated, self.token)
        self.num_generated.add_(1)
        self.token.copy_(self._next_token(self.decode_step(self.token, self.cache.narrowed(visible))))  # type: ignore[arg-type]

    def _step_or_replay(self, visible: int) -> None:
        """A step as it stands, or as a graph once it has been seen often enough."""
        if self.token.device.type != "cuda":
            self.step(visible)
        elif visible in self.graphs:
            self.graphs[visible].replay()
        elif self.warmup_counts.get(visible, 0) < GRAPH_WARMUP_STEPS:
            self.warmup_counts[visible] = self.warmup_counts.get(visible, 0) + 1
            self._run_on_side_stream(visible)
        else:
            self.graphs[visible] = self._capture_graph(visible)
            self.graphs[visible].replay()

    def _run_on_side_stream(self, visible: int) -> None:
        """On a stream of its own, as capture asks of what runs before it."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.step(visible)
        torch.cuda.current_stream().wait_stream(stream)

    def _capture_graph(self, visible: int) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        if self.generator is not None:
            graph.register_generator_state(self.generator)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            self.step(visible)
        return graph


def visible_length(length: int) -> int:
    """The places that a memory of so many tokens is looked at in: 128, 256, 512, …, a graph for each."""
    return max(MIN_VISIBLE_LENGTH, 1 << (length - 1).bit_length())


@torch.no_grad()
def greedy_decode(decode_step: DecodeStep[M], cache: M, prompt: Tensor, n: int, *, eos_id: int) -> Tensor:
    """The likeliest token each time, (B, T) -> (B, n), or fewer once all have ended; 0 behind `end`."""
    y, generated, has_ended = prompt, list[Tensor](), torch.zeros_like(prompt[:, :1], dtype=torch.bool)
    while len(generated) < n and not has_ended.all():
        y = decode_step(y, cache).argmax(-1, keepdim=True).masked_fill(has_ended, 0)
        has_ended = has_ended | (y == eos_id)
        generated.append(y)
    return torch.cat(generated, dim=1)


@torch.no_grad()
def beam_search(
    decode_step: DecodeStep[M],
    cache: M,
    prompt: Tensor,
    n: int,
    *,
    beam: int,
    eos_id: int | None = None,
    penalty: float = 0.6,
    progress: ProgressCallback = ignore_progress,
) -> Tensor:
    """The likeliest continuation found with `beam` of them in view, (B, T) -> (B, n).  Sutskever et al. 2014, sec. 3.2.

    `memory` has B · beam rows. Texts that have ended compare by log p / ((5 + length) / 6)^penalty (Wu et al. 2016,
    eq. 14).
    """
    B, T = prompt.shape
    if T + n - 1 > cache.capacity:
        excess = f"{T} tokens read and {n} to write are more than the {cache.capacity} it can hold"
        raise UsageError(f"beams keep the whole text in view: {excess}; write fewer")
    cache.clear()
    logp = decode_step(prompt.repeat_interleave(beam, dim=0), cache).float().log_softmax(-1)          # (B · beam, V)
    V = logp.shape[-1]
    # row of each text's first beam
    first_row = torch.arange(B, device=prompt.device)[:, None] * beam
    # they still read the same: of one alone
    scores, token = logp.view(B, beam, V)[:, 0].topk(beam)
    generated = token.view(-1, 1)
    for k in range(1, n):
        if eos_id is not None and bool((generated[:, -1] == eos_id).all()):
            generated = torch.cat([generated, torch.full_like(generated[:, :1], eos_id).expand(-1, n - k)], dim=1)
            break
        progress(k, n)
        logp = decode_step(generated[:, -1:], cache).float().log_softmax(-1)
        # what has ended can only stay so
        if eos_id is not None:
            end_only = torch.full_like(logp[:1], -torch.inf).index_fill(
                1, torch.tensor([eos_id], device=logp.device), 0.0
            )
            logp = torch.where(generated[:, -1:] == eos_id, end_only, logp)
        scores, best = (scores[..., None] + logp.view(B, beam, V)).flatten(1).topk(beam)             # (B, beam)
        row_index = (first_row + best // V).flatten()
        cache.reorder(row_index)
        generated = torch.cat([generated[row_index], (best % V).view(-1, 1)], dim=1)
    # with the end, where there is one
    length = n if eos_id is None else ((generated != eos_id).sum(1) + 1).clamp(max=n).view(B, beam)
    best = (scores / ((5 + length) / 6) ** penalty).argmax(1, keepdim=True)
    return generated[(first_row + best).flatten()]
