"""Causal language models: decoders that learn the next token and generate text."""

from typing import Any, Protocol, cast

import torch
from torch import Generator, Tensor, nn

from didact.data.core import Batch
from didact.layers.auxiliary_loss import pop_auxiliary_loss
from didact.objectives.base import Player
from didact.objectives.text.chunked_cross_entropy import chunked_cross_entropy
from didact.objectives.text.language_model import IGNORE_INDEX, LanguageModel, next_token_loss
from didact.progress import ProgressCallback, ignore_progress
from didact.samplers.beam_search import beam_search
from didact.samplers.text_generation import TextGenerator
from didact.samplers.top_k_top_p import DecodingConfig

CHUNKED_LOSS_VOCABULARY = 4096    # vocabulary size from which the cross-entropy is computed in chunks
MAX_EVAL_LOGITS = 2**27           # logits that are held at once in evaluation


class IncrementalDecoder(Protocol):
    """A network that decodes step by step: recurrent ones carry a hidden state, Transformers a KV cache."""

    vocab_size: int

    def init_cache(self, batch_size: int, capacity: int) -> Any:
        """An empty cache for `batch_size` texts of up to `capacity` tokens."""

    def decode_step(self, tokens: Tensor, cache: Any) -> Tensor:
        """Logits of the token after the last, (B, V)."""


class Decoder(IncrementalDecoder, Protocol):
    """A decoder whose output matrix can be used in chunks: `models.text.gpt.GPT`, `models.text.llama.Llama`."""

    @property
    def head(self) -> Tensor:
        """The output matrix, (V, D)."""

    def forward_features(self, tokens: Tensor) -> Tensor:
        """The input of the output matrix, (B, T, D)."""


class GenerativeLanguageModel(LanguageModel):
    """A language model that generates text with a cache, token by token."""

    def write(
        self,
        prompt: Tensor,
        n: int,
        *,
        decoding: DecodingConfig | None = None,
        generator: Generator | None = None,
        compile: bool = False,
        eos_id: int | None = None,
        progress: ProgressCallback = ignore_progress,
    ) -> Tensor:
        """The next n tokens after each prompt, (B, T) -> (B, n); after `eos_id`, where there is one, only `eos_id`."""
        network, decoding = cast(IncrementalDecoder, self.network), decoding or DecodingConfig()
        decoding.check(network.vocab_size)
        capacity = prompt.shape[1] + n
        if decoding.num_beams > 1:
            cache = network.init_cache(len(prompt) * decoding.num_beams, capacity)
            return beam_search(
                network.decode_step, cache, prompt, n, num_beams=decoding.num_beams, eos_id=eos_id, progress=progress
            )
        cache, device = network.init_cache(len(prompt), capacity), prompt.device
        text_generator = TextGenerator(
            network.decode_step,
            cache,
            len(prompt),
            decoding=decoding,
            generator=generator,
            eos_id=eos_id,
            device=device,
            compile=compile,
        )
        return text_generator.generate(prompt, n, progress=progress)


class CausalLanguageModel(GenerativeLanguageModel):
    """min of −mean_t log p(x_{t+1} | x_≤t) for a network with `forward_features`, `head` and a cache.  Gaba eq. 7.14.

    Where layers leave an auxiliary loss (experts: the load-balancing loss, 1 at best), its mean is added with the
    weight `balance_weight`.
    """

    def __init__(self, network: nn.Module, *, chars_per_token: float = 1.0, balance_weight: float = 0.01):
        super().__init__(network, chars_per_token=chars_per_token)
        self.balance_weight = balance_weight

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        nll, imbalance = self.cross_entropy(batch), pop_auxiliary_loss(self.network)
        return (
            {"loss": nll}
            if imbalance is None
            else {"loss": nll + self.balance_weight * imbalance, "cross_entropy": nll, "balance": imbalance}
        )

    def cross_entropy(self, batch: Batch) -> Tensor:
        """−mean_t log p(x_{t+1} | x_≤t)."""
        if self.vocab_size < CHUNKED_LOSS_VOCABULARY:
            return super().loss(batch)["loss"]
        h = self.decoder.forward_features(batch["x"])
        return chunked_cross_entropy(h.flatten(0, 1), self.decoder.head, batch["y"].flatten())

    def evaluate_batch(self, batch: Batch) -> Batch:
        h, head = self.decoder.forward_features(batch["x"]), self.decoder.head
        chunk_size = max(1, MAX_EVAL_LOGITS // (h.shape[1] * self.vocab_size))
        chunks = [
            self._evaluate_logits(h_ @ head.mT, y)
            for h_, y in zip(h.split(chunk_size), batch["y"].split(chunk_size), strict=True)
        ]
        return {name: torch.cat([chunk[name] for chunk in chunks]) for name in chunks[0]}

    def _evaluate_logits(self, logits: Tensor, y: Tensor) -> Batch:
        is_target = y != IGNORE_INDEX
        n = is_target.sum(1)
        return {
            "loss": next_token_loss(logits, y).sum(1) / n.clamp(min=1),
            "tokens": n,
            "correct": ((logits.argmax(-1) == y) & is_target).sum(1),
        }

    def players(self) -> tuple[Player, ...]:
        """Weight decay for matrices; none for biases and the parameters of norms."""
        trainable = [p for p in self.parameters() if p.requires_grad]
        matrices, vectors = [p for p in trainable if p.ndim > 1], [p for p in trainable if p.ndim < 2]
        return (Player(parameters=[{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]),)

    @property
    def decoder(self) -> Decoder:
        return cast(Decoder, self.network)

    @property
    def vocab_size(self) -> int:
        return self.decoder.vocab_size
