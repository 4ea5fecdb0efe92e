"""Sequence to sequence: the next token of the target, given the source and what is written so far."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from didact.data.core import Batch
from didact.data.tokens import BEGIN, END, UNKNOWN
from didact.metrics.text import bleu
from didact.objectives.core import Objective
from didact.objectives.language import IGNORED, next_token, perplexity
from didact.objectives.writing import Manner, beam_search, until_end

ROWS = 1024  # examples of a split, the first, that are written out to be judged by BLEU


class Reads(Protocol):
    """A network that reads sentences and then goes on from a memory, token by token: `models.seq2seq`, `models.transformer`."""

    target: nn.Embedding

    def read(self, x: Tensor, room: int, *, copies: int = 1) -> Any:
        """A memory of the sentences, each so many times, for at most `room` tokens of one's own."""

    def go_on(self, tokens: Tensor, memory: Any) -> Tensor:
        """Logits behind the last token, (B, V)."""


class Translate(Objective):
    """min of −mean_t log p(y_t | y_<t, x), teacher forced.  Gaba 6.1, Fleuret 5.3.

    The network is called with (x, y) and gives logits; it writes with `read` and `go_on`. Sums over a row are divided by one
    `length`, the mean of the training targets, so that the gradient of a batch is that of its parts, however they are padded.
    `smoothing` spreads a share of each target over all tokens, in training alone (Vaswani et al. 2017, sec. 5.4: 0.1).
    Where `spell` makes text of tokens, a split is judged by BLEU too, which alone needs sentences to be written.
    """

    watch, better = "exact", "higher"

    def __init__(
        self, network: nn.Module, *, length: float, longest: int, spell: Callable[[Sequence[int]], str] | None = None,
        smoothing: float = 0.0,
    ):
        super().__init__()
        self.network, self.length, self.longest, self.spell, self.smoothing = network, length, longest, spell, smoothing

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        nll, _ = self.surprise(batch, self.smoothing)
        return {"loss": nll.sum(1).mean() / self.length}

    def surprise(self, batch: Batch, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """−log p of each target token, (B, T − 1), 0 at padding, and the logits in its place."""
        y = batch["y"]
        logits, asked = self.network(batch["x"], y[:, :-1]), y[:, 1:]
        return next_token(logits, asked.masked_fill(asked == 0, IGNORED), smoothing=smoothing), logits

    def judge(self, batch: Batch) -> Batch:
        """Who takes the likeliest token each time writes y exactly if each y_t is the likeliest behind y_<t: known without writing."""
        nll, logits = self.surprise(batch)
        y = batch["y"][:, 1:]
        n, right = (y != 0).sum(1), ((logits.argmax(-1) == y) & (y != 0)).sum(1)
        rows = {"loss": nll.sum(1) / n.clamp(min=1), "tokens": n, "right": right, "exact": (right == n).float()}
        return rows if self.spell is None else {**rows, "written": self.written(batch).int(), "reference": y.int()}

    def written(self, batch: Batch) -> Tensor:
        """What it writes of the first examples of a split, as wide as the targets; −1 for the others."""
        y, some = batch["y"][:, 1:], (batch["row"] < ROWS).nonzero()[:, 0]
        own = torch.full_like(y, -1)
        if len(some):
            tokens = self.translate({"x": batch["x"][some]})
            own[some] = pad(tokens, (0, max(0, y.shape[1] - tokens.shape[1])))[:, : y.shape[1]]
        return own

    def score(self, rows: Batch) -> dict[str, float]:
        """`accuracy`: tokens that are the likeliest behind the true ones; `exact`: sentences written without a mistake; `bleu` of texts."""
        n = rows["tokens"].double()
        nll = float((rows["loss"].double() * n).sum() / n.sum())
        right = float(rows["right"].sum() / n.sum())
        found = {"loss": nll, "perplexity": perplexity(nll), "accuracy": right, "exact": float(rows["exact"].mean())}
        if self.spell is None:
            return found
        there = rows["written"][:, 0] >= 0
        return {**found, "bleu": self.bleu(rows["written"][there].tolist(), rows["reference"][there].tolist())}

    def bleu(self, written: list[list[int]], reference: list[list[int]]) -> float:
        """Of texts, not of tokens. An unknown word is never right: it is left out of the translation, a strange sign in the reference."""
        assert self.spell is not None
        ours = [self.spell([token for token in row if token != UNKNOWN]) for row in written]
        return bleu(ours, [self.spell(row).replace("<unk>", "\ufffd") for row in reference])

    @torch.no_grad()
    def translate(self, batch: Batch, *, beam: int = 1) -> Tensor:
        """What it writes, (B, at most longest): tokens up to <eos>, 0 behind; with several beams the likeliest whole that they find."""
        x, n, network = batch["x"], self.longest, cast(Reads, self.network)
        Manner(beam=beam).check(network.target.num_embeddings)
        first = torch.full_like(x[:, :1], BEGIN)
        memory = network.read(x, n, copies=beam)
        if beam == 1:
            return until_end(network.go_on, memory, first, n, end=END)
        written = beam_search(network.go_on, memory, first, n, beam=beam, end=END)
        return written.masked_fill((written == END).cumsum(1) > 1, 0)      # behind the first <eos> there are but more of them
