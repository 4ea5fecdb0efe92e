"""Sequence to sequence: the next token of the target, given the source and what is written so far."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from didact.data.core import Batch
from didact.data.text.tokenizers import BOS_ID, EOS_ID, UNK_ID
from didact.metrics.text import bleu
from didact.objectives.base import Objective
from didact.objectives.text.language_model import IGNORE_INDEX, next_token_loss, perplexity
from didact.samplers.beam_search import beam_search
from didact.samplers.text_generation import greedy_decode
from didact.samplers.top_k_top_p import DecodingConfig

NUM_BLEU_EXAMPLES = 1024  # examples of a split, the first, that are written out to be judged by BLEU


class EncoderDecoder(Protocol):
    """A network that reads sentences and then goes on from a memory, token by token: `models.seq2seq`,
    `models.transformer`."""

    target: nn.Embedding

    def encode_for_decoding(self, x: Tensor, capacity: int, *, num_copies: int = 1) -> Any:
        """A memory of the sentences, each so many times, for at most `room` tokens of one's own."""

    def decode_step(self, tokens: Tensor, cache: Any) -> Tensor:
        """Logits behind the last token, (B, V)."""


class Seq2SeqObjective(Objective):
    """min of −mean_t log p(y_t | y_<t, x), teacher forced.  Gaba 6.1, Fleuret 5.3.

    The network is called with (x, y) and gives logits; it writes with `read` and `go_on`. Sums over a row are
    divided by one
    `length`, the mean of the training targets, so that the gradient of a batch is that of its parts, however they
    are padded.
    `smoothing` spreads a share of each target over all tokens, in training alone (Vaswani et al. 2017, sec. 5.4: 0.1).
    Where `spell` makes text of tokens, a split is judged by BLEU too, which alone needs sentences to be written.
    """

    monitor, mode = "exact", "max"

    def __init__(
        self,
        network: nn.Module,
        *,
        mean_length: float,
        max_length: int,
        detokenize: Callable[[Sequence[int]], str] | None = None,
        label_smoothing: float = 0.0,
    ):
        super().__init__()
        self.network, self.mean_length, self.max_length, self.detokenize, self.label_smoothing = (
            network,
            mean_length,
            max_length,
            detokenize,
            label_smoothing,
        )

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        nll, _ = self.cross_entropy(batch, self.label_smoothing)
        return {"loss": nll.sum(1).mean() / self.mean_length}

    def cross_entropy(self, batch: Batch, label_smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """−log p of each target token, (B, T − 1), 0 at padding, and the logits in its place."""
        y = batch["y"]
        logits, targets = self.network(batch["x"], y[:, :-1]), y[:, 1:]
        return next_token_loss(
            logits, targets.masked_fill(targets == 0, IGNORE_INDEX), label_smoothing=label_smoothing
        ), logits

    def evaluate_batch(self, batch: Batch) -> Batch:
        """Who takes the likeliest token each time writes y exactly if each y_t is the likeliest behind y_<t: known
        without writing."""
        nll, logits = self.cross_entropy(batch)
        y = batch["y"][:, 1:]
        n, num_correct = (y != 0).sum(1), ((logits.argmax(-1) == y) & (y != 0)).sum(1)
        outputs = {
            "loss": nll.sum(1) / n.clamp(min=1),
            "tokens": n,
            "right": num_correct,
            "exact": (num_correct == n).float(),
        }
        return (
            outputs
            if self.detokenize is None
            else {**outputs, "written": self.greedy_translations(batch).int(), "reference": y.int()}
        )

    def greedy_translations(self, batch: Batch) -> Tensor:
        """What it writes of the first examples of a split, as wide as the targets; −1 for the others."""
        y, index = batch["y"][:, 1:], (batch["row"] < NUM_BLEU_EXAMPLES).nonzero()[:, 0]
        translations = torch.full_like(y, -1)
        if len(index):
            tokens = self.translate({"x": batch["x"][index]})
            translations[index] = pad(tokens, (0, max(0, y.shape[1] - tokens.shape[1])))[:, : y.shape[1]]
        return translations

    def compute_metrics(self, outputs: Batch) -> dict[str, float]:
        """`accuracy`: tokens that are the likeliest behind the true ones; `exact`: sentences written without a
        mistake; `bleu` of texts."""
        n = outputs["tokens"].double()
        nll = float((outputs["loss"].double() * n).sum() / n.sum())
        accuracy = float(outputs["right"].sum() / n.sum())
        scores = {
            "loss": nll,
            "perplexity": perplexity(nll),
            "accuracy": accuracy,
            "exact": float(outputs["exact"].mean()),
        }
        if self.detokenize is None:
            return scores
        has_translation = outputs["written"][:, 0] >= 0
        return {
            **scores,
            "bleu": self.compute_bleu(
                outputs["written"][has_translation].tolist(), outputs["reference"][has_translation].tolist()
            ),
        }

    def compute_bleu(self, candidate_ids: list[list[int]], reference_ids: list[list[int]]) -> float:
        """Of texts, not of tokens. An unknown word is never right: it is left out of the translation, a strange
        sign in the reference."""
        assert self.detokenize is not None
        candidates = [self.detokenize([token for token in row if token != UNK_ID]) for row in candidate_ids]
        return bleu(candidates, [self.detokenize(row).replace("<unk>", "\ufffd") for row in reference_ids])

    @torch.no_grad()
    def translate(self, batch: Batch, *, num_beams: int = 1) -> Tensor:
        """What it writes, (B, at most longest): tokens up to <eos>, 0 behind; with several beams the likeliest
        whole that they find."""
        x, n, network = batch["x"], self.max_length, cast(EncoderDecoder, self.network)
        DecodingConfig(num_beams=num_beams).check(network.target.num_embeddings)
        start_tokens = torch.full_like(x[:, :1], BOS_ID)
        cache = network.encode_for_decoding(x, n, num_copies=num_beams)
        if num_beams == 1:
            return greedy_decode(network.decode_step, cache, start_tokens, n, eos_id=EOS_ID)
        generated = beam_search(network.decode_step, cache, start_tokens, n, num_beams=num_beams, eos_id=EOS_ID)
        # behind the first <eos> there are but more of them
        return generated.masked_fill((generated == EOS_ID).cumsum(1) > 1, 0)
