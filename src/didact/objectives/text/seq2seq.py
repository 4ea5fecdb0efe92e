"""Sequence to sequence: the next token of the target, given the source and the target so far."""

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

NUM_BLEU_EXAMPLES = 1024  # the first examples of a split are translated for BLEU


class EncoderDecoder(Protocol):
    """A network that encodes sentences, then decodes step by step: `Seq2Seq` and `Transformer` in `models.text`."""

    target: nn.Embedding

    def encode_for_decoding(self, x: Tensor, capacity: int, *, num_copies: int = 1) -> Any:
        """A cache with the encoded sentences, `num_copies` of each, for at most `capacity` target tokens."""

    def decode_step(self, tokens: Tensor, cache: Any) -> Tensor:
        """Logits of the token after the last, (B, V)."""


class Seq2SeqObjective(Objective):
    """min of −mean_t log p(y_t | y_<t, x), with teacher forcing.  Gaba 6.1, Fleuret 5.3.

    The network is called with (x, y) and gives logits; it translates by `encode_for_decoding` and `decode_step`. Sums
    over a sentence are divided by `mean_length`, that of the training targets, so that the gradient of a batch is the
    mean of its micro-batches' gradients, however they are padded. `label_smoothing` spreads that fraction of each
    target over all tokens, in training only (Vaswani et al. 2017, sec. 5.4: 0.1). With `detokenize`, evaluation
    includes BLEU, for which sentences have to be translated.
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
        """−log p of each target token, (B, T − 1), 0 at padding; and the logits."""
        y = batch["y"]
        logits, targets = self.network(batch["x"], y[:, :-1]), y[:, 1:]
        return next_token_loss(
            logits, targets.masked_fill(targets == 0, IGNORE_INDEX), label_smoothing=label_smoothing
        ), logits

    def evaluate_batch(self, batch: Batch) -> Batch:
        """`exact` needs no decoding: greedy decoding gives y exactly if each y_t is the likeliest token after y_<t."""
        nll, logits = self.cross_entropy(batch)
        y = batch["y"][:, 1:]
        n, num_correct = (y != 0).sum(1), ((logits.argmax(-1) == y) & (y != 0)).sum(1)
        outputs = {
            "loss": nll.sum(1) / n.clamp(min=1),
            "tokens": n,
            "correct": num_correct,
            "exact": (num_correct == n).float(),
        }
        return (
            outputs
            if self.detokenize is None
            else {**outputs, "translation": self.greedy_translations(batch).int(), "reference": y.int()}
        )

    def greedy_translations(self, batch: Batch) -> Tensor:
        """Translations of the first examples of a split, cut to the width of the targets; −1 for the other examples."""
        y, index = batch["y"][:, 1:], (batch["row"] < NUM_BLEU_EXAMPLES).nonzero()[:, 0]
        translations = torch.full_like(y, -1)
        if len(index):
            tokens = self.translate({"x": batch["x"][index]})
            translations[index] = pad(tokens, (0, max(0, y.shape[1] - tokens.shape[1])))[:, : y.shape[1]]
        return translations

    def compute_metrics(self, outputs: Batch) -> dict[str, float]:
        """`accuracy`: tokens that are the likeliest after the true ones; `exact`: sentences without a mistake."""
        n = outputs["tokens"].double()
        nll = float((outputs["loss"].double() * n).sum() / n.sum())
        accuracy = float(outputs["correct"].sum() / n.sum())
        scores = {
            "loss": nll,
            "perplexity": perplexity(nll),
            "accuracy": accuracy,
            "exact": float(outputs["exact"].mean()),
        }
        if self.detokenize is None:
            return scores
        has_translation = outputs["translation"][:, 0] >= 0
        return {
            **scores,
            "bleu": self.compute_bleu(
                outputs["translation"][has_translation].tolist(), outputs["reference"][has_translation].tolist()
            ),
        }

    def compute_bleu(self, candidate_ids: list[list[int]], reference_ids: list[list[int]]) -> float:
        """BLEU of texts, not of tokens.

        An unknown word never matches: it is left out of translations, and is no word of its own in references.
        """
        assert self.detokenize is not None
        candidates = [self.detokenize([token for token in row if token != UNK_ID]) for row in candidate_ids]
        return bleu(candidates, [self.detokenize(row).replace("<unk>", "\ufffd") for row in reference_ids])

    @torch.no_grad()
    def translate(self, batch: Batch, *, num_beams: int = 1) -> Tensor:
        """Translations (B, at most max_length): tokens up to <eos>, then 0; greedy, or by beam search."""
        x, n, network = batch["x"], self.max_length, cast(EncoderDecoder, self.network)
        DecodingConfig(num_beams=num_beams).check(network.target.num_embeddings)
        start_tokens = torch.full_like(x[:, :1], BOS_ID)
        cache = network.encode_for_decoding(x, n, num_copies=num_beams)
        if num_beams == 1:
            return greedy_decode(network.decode_step, cache, start_tokens, n, eos_id=EOS_ID)
        generated = beam_search(network.decode_step, cache, start_tokens, n, num_beams=num_beams, eos_id=EOS_ID)
        # after the first <eos> beam search gives only more of them: padding
        return generated.masked_fill((generated == EOS_ID).cumsum(1) > 1, 0)
