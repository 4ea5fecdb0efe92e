"""Decoders that learn to say what comes next, and then write."""

from typing import Any, Protocol, cast

import torch
from torch import Generator, Tensor, nn

from didact.data.core import Batch
from didact.layers.penalty import penalty
from didact.objectives.core import Player
from didact.objectives.language import IGNORED, LanguageModel, next_token
from didact.objectives.projected import projected_cross_entropy
from didact.objectives.writing import Manner, Pace, Pen, beam_search, unhurried

LARGE = 4096         # tokens from which a vocabulary's logits are taken piece by piece
JUDGED = 2**27       # logits that are held at once while judging


class GoesOn(Protocol):
    """What a network that writes can do; recurrent ones carry a state, Transformers a cache."""

    vocabulary: int

    def remember(self, rows: int, room: int) -> Any:
        """An empty memory for so many texts of so many tokens."""

    def go_on(self, tokens: Tensor, memory: Any) -> Tensor:
        """Logits behind the last token, (B, V)."""


class Decoder(GoesOn, Protocol):
    """One whose output matrix can be taken piece by piece; `models.gpt.GPT` and `models.llama.Llama` are such."""

    @property
    def head(self) -> Tensor:
        """The output matrix, (V, D)."""

    def hidden(self, tokens: Tensor) -> Tensor:
        """What the output matrix reads, (B, T, D)."""


class Writer(LanguageModel):
    """A language model whose network goes on from a memory, token by token."""

    def write(
        self, prompt: Tensor, n: int, *, manner: Manner | None = None, generator: Generator | None = None, compile: bool = False,
        end: int | None = None, pace: Pace = unhurried,
    ) -> Tensor:
        """The next n tokens behind each prompt, (B, T) -> (B, n); behind `end`, where there is one, nothing but `end`."""
        network, manner = cast(GoesOn, self.network), manner or Manner()
        manner.check(network.vocabulary)
        room = prompt.shape[1] + n
        if manner.beam > 1:
            memory = network.remember(len(prompt) * manner.beam, room)
            return beam_search(network.go_on, memory, prompt, n, beam=manner.beam, end=end, pace=pace)
        memory, device = network.remember(len(prompt), room), prompt.device
        pen = Pen(network.go_on, memory, len(prompt), manner=manner, generator=generator, end=end, device=device, compile=compile)
        return pen.write(prompt, n, pace=pace)


class Autoregressive(Writer):
    """min of −mean_t log p(x_{t+1} | x_≤t) for a network with `hidden` and `head`, which can also go on from a memory.  Gaba eq. 7.14.

    Where layers leave a penalty (experts: how uneven they are used, 1 at best), `balance` times their mean is added.
    """

    def __init__(self, network: nn.Module, *, rate: float = 1.0, balance: float = 0.01):
        super().__init__(network, rate=rate)
        self.balance = balance

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        nll, uneven = self.surprise(batch), penalty(self.network)
        return {"loss": nll} if uneven is None else {"loss": nll + self.balance * uneven, "cross_entropy": nll, "balance": uneven}

    def surprise(self, batch: Batch) -> Tensor:
        """−mean_t log p(x_{t+1} | x_≤t)."""
        if self.vocabulary < LARGE:
            return super().loss(batch)["loss"]
        h = self.decoder.hidden(batch["x"])
        return projected_cross_entropy(h.flatten(0, 1), self.decoder.head, batch["y"].flatten())

    def judge(self, batch: Batch) -> Batch:
        h, head = self.decoder.hidden(batch["x"]), self.decoder.head
        rows = max(1, JUDGED // (h.shape[1] * self.vocabulary))
        found = [self.judged(h_ @ head.mT, y) for h_, y in zip(h.split(rows), batch["y"].split(rows), strict=True)]
        return {name: torch.cat([f[name] for f in found]) for name in found[0]}

    def judged(self, logits: Tensor, y: Tensor) -> Batch:
        asked = y != IGNORED
        n = asked.sum(1)
        return {"loss": next_token(logits, y).sum(1) / n.clamp(min=1), "tokens": n, "right": ((logits.argmax(-1) == y) & asked).sum(1)}

    def players(self) -> tuple[Player, ...]:
        """Matrices decay; norms and biases, which have no larger neighbours to be balanced with, do not."""
        learned = [p for p in self.parameters() if p.requires_grad]
        matrices, vectors = [p for p in learned if p.ndim > 1], [p for p in learned if p.ndim < 2]
        return (Player(parameters=[{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]),)

    @property
    def decoder(self) -> Decoder:
        return cast(Decoder, self.network)

    @property
    def vocabulary(self) -> int:
        return self.decoder.vocabulary
