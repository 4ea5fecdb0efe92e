"""Word vectors by negative sampling (word2vec): words that occur together against words sampled at random."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from didact.data.core import Batch
from didact.metrics.similarity import nearest
from didact.models.text.word2vec import Word2Vec
from didact.objectives.base import Objective

Word2VecArchitecture = Literal["skipgram", "cbow"]
_NUM_NEIGHBORS = 8             # nearest neighbors of a word in the report
_NUM_EVAL_NOISE_WORDS = 500    # noise words that a held-out pair is compared with


def negative_sampling(true: Tensor, noise: Tensor, k: float) -> Tensor:
    """−log σ(s) − k mean_j log σ(−s_j) for the score s of a pair, (…), and those of its noise pairs, (…, S).

    With all scores 0 it is (1 + k) ln 2.
    """
    return -logsigmoid(true) - k * logsigmoid(-noise).mean(-1)


class NegativeSamplingObjective(Objective):
    """min of −log σ(u_oᵀ h) − k E_{w ∼ P} log σ(−u_wᵀ h), P(w) ∝ count(w)^¾.  Mikolov et al. 2013, eq. 4; Lhotte 7.4.

    Skip-gram: h = v of the center word, o each word around it. CBOW: h = the mean v of the words around, o the center
    word. The mean over P is over `num_noise_words` words that a whole batch shares: the same in expectation, in one
    matrix product.
    """

    def __init__(
        self,
        network: Word2Vec,
        counts: Tensor,
        *,
        architecture: Word2VecArchitecture = "skipgram",
        num_negatives: int = 5,
        num_noise_words: int = 256,
        power: float = 0.75,
        keep: Tensor | None = None,
        expected_pairs: float = 1.0,
        probes: Sequence[int] = (),
    ):
        super().__init__()
        # subsampling of frequent words: the probability of keeping each
        self.keep: Tensor
        self.register_buffer("keep", torch.ones(len(counts)) if keep is None else keep)
        self.network, self.architecture, self.num_negatives, self.num_noise_words, self.expected_pairs, self.probes = (
            network,
            architecture,
            num_negatives,
            num_noise_words,
            expected_pairs,
            tuple(probes),
        )
        p = counts.double() ** power * (counts > 0)
        self.cumulated: Tensor
        self.register_buffer("cumulated", (p.cumsum(0) / p.sum().clamp(min=1e-9)).float())

    def sample_negatives(self, u: Tensor) -> Tensor:
        """Words for numbers u in [0, 1), by inverting the distribution function of P. <pad> and <unk> have none."""
        return torch.searchsorted(self.cumulated, u, right=True).clamp(max=len(self.cumulated) - 1)

    def hidden_and_targets(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """h, (B, D), and the target words o, (B, M), 0 where there is none."""
        x, y = batch["x"], batch["y"]
        if self.architecture == "skipgram":
            return self.network.v(y), x
        return self.network.mean(x), torch.where((x != 0).any(1), y, 0)[:, None]

    def scores(self, h: Tensor, o: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """u_oᵀ h, (B, M), and u_wᵀ h of the noise, (B, S)."""
        # one lookup for both: its gradient is as large as the table
        u = self.network.u(torch.cat([o.flatten(), noise]))
        near, far = u.split([o.numel(), len(noise)])
        return (near.view(*o.shape, -1) * h[:, None]).sum(-1).float(), (h @ far.mT).float()

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        h, o = self.hidden_and_targets(batch)
        true, noise = self.scores(h, o, self.sample_negatives(torch.rand(self.num_noise_words, device=o.device)))
        pair_loss = negative_sampling(true, noise[:, None], self.num_negatives) * (o != 0)
        # divided by the expected number of pairs, not the actual one: all micro-batches weigh the same
        return {"loss": pair_loss.sum() / (self.expected_pairs * len(o))}

    def evaluate_batch(self, batch: Batch) -> Batch:
        """Against fixed noise words, evenly spaced over P; pairs weigh as often as training would see them on average.

        `auroc` is the fraction of the noise words with a lower score than the true one.
        """
        h, o = self.hidden_and_targets(batch)
        quantiles = (torch.arange(_NUM_EVAL_NOISE_WORDS, device=o.device) + 0.5) / _NUM_EVAL_NOISE_WORDS
        true, noise = self.scores(h, o, self.sample_negatives(quantiles))
        auroc = (true[..., None] > noise[:, None]).sum(-1) / _NUM_EVAL_NOISE_WORDS
        weights = self.pair_weights(batch, o)
        n = weights.sum(1)
        columns = {"loss": negative_sampling(true, noise[:, None], self.num_negatives), "auroc": auroc}
        return {name: (column * weights).sum(1) / n.clamp(min=1e-9) for name, column in columns.items()} | {"pairs": n}

    def pair_weights(self, batch: Batch, o: Tensor) -> Tensor:
        """(B, M): the probability that both words are kept and that the sampled window contains the pair."""
        middle = self.keep[batch["y"]][:, None] * (o != 0)
        if self.architecture == "cbow":
            return middle
        window = o.shape[1] // 2
        # a window size is sampled uniformly: the nearest words are always in it
        near = torch.arange(1, window + 1, device=o.device) / window
        return middle * self.keep[o] * torch.cat([near, near.flip(0)])

    def compute_metrics(self, outputs: Batch) -> dict[str, float]:
        """Means over pairs. `auroc` is the area under the ROC curve of true against noise pairs: 0.5 by chance."""
        n = outputs["pairs"].double()
        return {name: float((outputs[name].double() * n).sum() / n.sum().clamp(min=1e-9)) for name in ("loss", "auroc")}

    def embed(self, batch: Batch) -> Tensor:
        """Texts as the mean of their words' vectors, (B, L) -> (B, D); a word is a text of one."""
        return self.network.mean(batch["x"])

    def gallery(self, batch: Batch) -> dict[str, Tensor]:
        """The probe words, each with its nearest neighbors: ids and cosines, (P, 1 + n, 2)."""
        if not self.probes:
            return {}
        table, probes = self.network.v.weight, torch.tensor(self.probes, device=batch["x"].device)[:, None]
        special_tokens = torch.arange(2, device=probes.device).expand(len(probes), 2)  # <pad> and <unk>
        similarity, index = nearest(
            table[probes[:, 0]],
            table,
            min(_NUM_NEIGHBORS, len(table) - 3),
            exclude=torch.cat([probes, special_tokens], dim=1),
        )
        first = torch.stack([probes, torch.ones_like(probes)], dim=-1)
        return {"neighbors": torch.cat([first, torch.stack([index, similarity], dim=-1)], dim=1)}
