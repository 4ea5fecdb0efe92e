"""Writing: a model that says what comes next is asked again and again. Greedily, by chance within bounds, or along several beams.

Nothing waits for the device between tokens: what was written lies there until the end, and on CUDA a step is one graph.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
from torch import Generator, Tensor

from didact.errors import UsageError

SHORTEST = 128   # places of a memory that a step looks at; doubled whenever they are filled
WARM = 2         # steps taken as they stand before one is captured
COLD = 1e-30     # a temperature below which logits would overflow; the likeliest token has been certain long before


class Memory(Protocol):
    """What a model goes on from: tensors of fixed shape, which its steps change in place. `layers.cache.Cache` is one."""

    @property
    def room(self) -> int:
        """Tokens that it can hold."""

    def within(self, reach: int) -> "Memory":
        """The same for steps that look at its first `reach` places only."""

    def clear(self) -> None:
        """Nothing was read."""

    def pick(self, rows: Tensor) -> None:
        """Row i becomes what row rows[i] was."""


M = TypeVar("M", bound=Memory)
GoOn = Callable[[Tensor, M], Tensor]   # tokens (B, T), memory -> logits behind the last token, (B, V)
Pace = Callable[[int, int], object]    # tokens written so far, and of how many: for whoever waits


def unhurried(done: int, total: int) -> None:
    """Nobody waits."""


@dataclass(frozen=True)
class Manner:
    """How the next token is chosen."""

    temperature: float = 1.0      # 0: always the likeliest
    top_k: int | None = None      # only among the k likeliest
    top_p: float | None = None    # only among the likeliest that together have this probability
    beam: int = 1                 # texts that are kept in view to find the likeliest whole

    def check(self, vocabulary: int) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise UsageError(f"the temperature must be a number of at least 0 (0: always the likeliest token), got {self.temperature:g}")
        if self.top_k is not None and not 1 <= self.top_k <= vocabulary:
            raise UsageError(f"top-k must be from 1 to {vocabulary}, the tokens that this model knows, got {self.top_k}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UsageError(f"top-p is a probability above 0 and up to 1, got {self.top_p:g}")
        if not 1 <= self.beam <= vocabulary:
            raise UsageError(f"beams must be from 1 to {vocabulary}, the tokens that this model knows, got {self.beam}")
        if self.beam > 1 and (self.temperature != 1 or self.top_k or self.top_p):
            raise UsageError(f"{self.beam} beams look for the likeliest text, not a random one: leave out temperature, top-k and top-p")


def bounded(logits: Tensor, manner: Manner) -> Tensor:
    """logits / temperature, −∞ outside of top-k and top-p.  Fan et al. 2018 (k), Holtzman et al. 2020 (p); Gaba Ex 6.4."""
    z = logits.float() / manner.temperature
    if manner.top_k is not None:
        z = z.masked_fill(z < z.topk(manner.top_k).values[:, -1:], -torch.inf)
    if manner.top_p is not None and manner.top_p < 1:
        best = z.sort(descending=True).values
        p = best.softmax(-1)
        outside = p.cumsum(-1) - p >= manner.top_p               # those before already have it: the likeliest always stays
        z = z.masked_fill(z < best.masked_fill(outside, torch.inf).amin(-1, keepdim=True), -torch.inf)
    return z


def choose(logits: Tensor, manner: Manner, generator: Generator | None) -> Tensor:
    """One token a row, (B, V) -> (B, 1): argmax p_i / E_i with E_i ~ Exp(1) is a draw from p, and asks nothing of the host."""
    if manner.temperature < COLD:
        return logits.argmax(-1, keepdim=True)
    p = bounded(logits, manner).softmax(-1)
    return (p / torch.empty_like(p).exponential_(generator=generator)).argmax(-1, keepdim=True)


def compiled(go_on: GoOn[M]) -> GoOn[M]:
    """Tuned so that a matrix times one vector becomes a kernel of its own, joined with what follows."""
    return torch.compile(go_on, dynamic=False, options={"coordinate_descent_tuning": True})


class Pen:
    """Writes with one memory, as often as asked; its captured steps are kept for the next time.

    Behind `end`, where there is one, nothing but `end` is written. `compile` is worth its minute for thousands of tokens.
    """

    def __init__(
        self, go_on: GoOn[M], memory: M, rows: int, *, manner: Manner, generator: Generator | None = None, end: int | None = None,
        device: torch.device, compile: bool = False,
    ):
        self.memory, self.manner, self.generator, self.end = memory, manner, generator, end
        self.read: GoOn[M] = go_on
        self.go_on: GoOn[M] = compiled(go_on) if compile else go_on
        self.token = torch.zeros(rows, 1, dtype=torch.long, device=device)
        self.written = torch.zeros(rows, min(memory.room, 2**16) + 1, dtype=torch.long, device=device)
        self.count = torch.zeros(1, dtype=torch.long, device=device)
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self.taken: dict[int, int] = {}

    @torch.no_grad()
    def write(self, prompt: Tensor, n: int, *, pace: Pace = unhurried) -> Tensor:
        """The next n tokens, (B, T) -> (B, n). A full memory begins anew with the second half of what it held."""
        room = self.written.shape[1] - 1
        if prompt.shape[1] > room:
            raise UsageError(f"the prompt has {prompt.shape[1]} tokens, but this model reads {room} at most; shorten it")
        text = prompt

        def ahead(k: int) -> None:
            pace(text.shape[1] - prompt.shape[1] + k, n)

        while (left := prompt.shape[1] + n - text.shape[1]) > 0:
            seen = text if text.shape[1] <= room // 2 or text is prompt else text[:, -(room // 2) :]
            text = torch.cat([text, self.fill(seen, min(left, room - seen.shape[1] + 1), ahead)], dim=1)
        return text[:, prompt.shape[1] :]

    def fill(self, seen: Tensor, n: int, pace: Callable[[int], object]) -> Tensor:
        """n tokens behind those that are read anew."""
        self.memory.clear()
        self.count.zero_()
        self.token.copy_(seen[:, -1:])
        self.token.copy_(self.chosen(self.read(seen, self.memory)))
        for length in range(seen.shape[1] + 1, seen.shape[1] + n):
            self.advance(reach(length))
            pace(length - seen.shape[1])
        self.written.index_copy_(1, self.count, self.token)
        return self.written[:, :n].clone()

    def chosen(self, logits: Tensor) -> Tensor:
        token = choose(logits, self.manner, self.generator)
        return token if self.end is None else torch.where(self.token == self.end, self.token, token)

    def step(self, reach: int) -> None:
        """Note the latest token, read it, choose the next: all on the device."""
        self.written.index_copy_(1, self.count, self.token)
        self.count.add_(1)
        self.token.copy_(self.chosen(self.go_on(self.token, self.memory.within(reach))))  # type: ignore[arg-type]

    def advance(self, reach: int) -> None:
        """A step as it stands, or as a graph once it has been seen often enough."""
        if self.token.device.type != "cuda":
            self.step(reach)
        elif reach in self.graphs:
            self.graphs[reach].replay()
        elif self.taken.get(reach, 0) < WARM:
            self.taken[reach] = self.taken.get(reach, 0) + 1
            self.aside(reach)
        else:
            self.graphs[reach] = self.record(reach)
            self.graphs[reach].replay()

    def aside(self, reach: int) -> None:
        """On a stream of its own, as capture asks of what runs before it."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.step(reach)
        torch.cuda.current_stream().wait_stream(stream)

    def record(self, reach: int) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        if self.generator is not None:
            graph.register_generator_state(self.generator)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            self.step(reach)
        return graph


def reach(length: int) -> int:
    """The places that a memory of so many tokens is looked at in: 128, 256, 512, …, a graph for each."""
    return max(SHORTEST, 1 << (length - 1).bit_length())


@torch.no_grad()
def until_end(go_on: GoOn[M], memory: M, prompt: Tensor, n: int, *, end: int) -> Tensor:
    """The likeliest token each time, (B, T) -> (B, n), or fewer once all have ended; 0 behind `end`."""
    y, written, done = prompt, list[Tensor](), torch.zeros_like(prompt[:, :1], dtype=torch.bool)
    while len(written) < n and not done.all():
        y = go_on(y, memory).argmax(-1, keepdim=True).masked_fill(done, 0)
        done = done | (y == end)
        written.append(y)
    return torch.cat(written, dim=1)


@torch.no_grad()
def beam_search(
    go_on: GoOn[M], memory: M, prompt: Tensor, n: int, *, beam: int, end: int | None = None, penalty: float = 0.6, pace: Pace = unhurried
) -> Tensor:
    """The likeliest continuation found with `beam` of them in view, (B, T) -> (B, n).  Sutskever et al. 2014, sec. 3.2.

    `memory` has B · beam rows. Texts that have ended compare by log p / ((5 + length) / 6)^penalty (Wu et al. 2016, eq. 14).
    """
    B, T = prompt.shape
    if T + n - 1 > memory.room:
        much = f"{T} tokens read and {n} to write are more than the {memory.room} it can hold"
        raise UsageError(f"beams keep the whole text in view: {much}; write fewer")
    memory.clear()
    logp = go_on(prompt.repeat_interleave(beam, dim=0), memory).float().log_softmax(-1)          # (B · beam, V)
    V = logp.shape[-1]
    first = torch.arange(B, device=prompt.device)[:, None] * beam                                  # row of each text's first beam
    total, token = logp.view(B, beam, V)[:, 0].topk(beam)                                         # they still read the same: of one alone
    written = token.view(-1, 1)
    for k in range(1, n):
        if end is not None and bool((written[:, -1] == end).all()):
            written = torch.cat([written, torch.full_like(written[:, :1], end).expand(-1, n - k)], dim=1)
            break
        pace(k, n)
        logp = go_on(written[:, -1:], memory).float().log_softmax(-1)
        if end is not None:                                                                         # what has ended can only stay so
            stay = torch.full_like(logp[:1], -torch.inf).index_fill(1, torch.tensor([end], device=logp.device), 0.0)
            logp = torch.where(written[:, -1:] == end, stay, logp)
        total, best = (total[..., None] + logp.view(B, beam, V)).flatten(1).topk(beam)             # (B, beam)
        rows = (first + best // V).flatten()
        memory.pick(rows)
        written = torch.cat([written[rows], (best % V).view(-1, 1)], dim=1)
    length = n if end is None else ((written != end).sum(1) + 1).clamp(max=n).view(B, beam)     # with the end, where there is one
    best = (total / ((5 + length) / 6) ** penalty).argmax(1, keepdim=True)
    return written[(first + best).flatten()]
