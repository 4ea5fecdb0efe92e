"""Word vectors by negative sampling: tell the words that stand together from words drawn at random."""

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
NUM_NEIGHBORS = 8          # neighbours of a word in the report
NUM_EVAL_NOISE_WORDS = 500         # noise words that a held-out pair is compared with


def negative_sampling(true: Tensor, noise: Tensor, k: float) -> Tensor:
    """−log σ(s) − k mean_j log σ(−s_j): a pair's score s, (…), and those of its noise pairs, (…, S). All scores 0:
    (1 + k) ln 2."""
    return -logsigmoid(true) - k * logsigmoid(-noise).mean(-1)


class NegativeSamplingObjective(Objective):
    """min of −log σ(u_oᵀ h) − k E_{w ∼ P} log σ(−u_wᵀ h), P(w) ∝ count(w)^¾.  Mikolov et al. 2013, eq. 4; Lhotte 7.4.

    Skip-gram: h = v of the word in the middle, o each word around it. CBOW: h = the mean v of those around, o the
    one in the middle.
    The mean over P is taken over `draws` words that a whole batch shares: the same in expectation, and one matrix
    product.
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
        # with what probability a word is not passed over
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
        """Words by numbers u in [0, 1): P(w) is the length of w's part of the line. <pad> and <unk> have none."""
        return torch.searchsorted(self.cumulated, u, right=True).clamp(max=len(self.cumulated) - 1)

    def hidden_and_targets(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """h, (B, D), and the words o that it should lie near, (B, M), 0 where there is none."""
        x, y = batch["x"], batch["y"]
        if self.architecture == "skipgram":
            return self.network.v(y), x
        return self.network.mean(x), torch.where((x != 0).any(1), y, 0)[:, None]

    def scores(self, h: Tensor, o: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """u_oᵀ h, (B, M), and u_wᵀ h of the noise, (B, S)."""
        # looked up once: its gradient is as large as the table
        u = self.network.u(torch.cat([o.flatten(), noise]))
        near, far = u.split([o.numel(), len(noise)])
        return (near.view(*o.shape, -1) * h[:, None]).sum(-1).float(), (h @ far.mT).float()

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        h, o = self.hidden_and_targets(batch)
        true, noise = self.scores(h, o, self.sample_negatives(torch.rand(self.num_noise_words, device=o.device)))
        pair_loss = negative_sampling(true, noise[:, None], self.num_negatives) * (o != 0)
        # by the expected number: micro-batches weigh alike
        return {"loss": pair_loss.sum() / (self.expected_pairs * len(o))}

    def evaluate_batch(self, batch: Batch) -> Batch:
        """Against noise words evenly spread over P, always the same, each pair as often as learning would see it on
        average.

        `ahead` is the share of the noise words that a true one outscores.
        """
        h, o = self.hidden_and_targets(batch)
        quantiles = (torch.arange(NUM_EVAL_NOISE_WORDS, device=o.device) + 0.5) / NUM_EVAL_NOISE_WORDS
        true, noise = self.scores(h, o, self.sample_negatives(quantiles))
        outscored = (true[..., None] > noise[:, None]).sum(-1) / NUM_EVAL_NOISE_WORDS
        weights = self.pair_weights(batch, o)
        n = weights.sum(1)
        columns = {"loss": negative_sampling(true, noise[:, None], self.num_negatives), "ahead": outscored}
        return {name: (column * weights).sum(1) / n.clamp(min=1e-9) for name, column in columns.items()} | {"pairs": n}

    def pair_weights(self, batch: Batch, o: Tensor) -> Tensor:
        """(B, M): a pair counts by how probably both words are kept and the window reaches from one to the other."""
        middle = self.keep[batch["y"]][:, None] * (o != 0)
        if self.architecture == "cbow":
            return middle
        window = o.shape[1] // 2
        # from the farthest to the nearest
        near = torch.arange(1, window + 1, device=o.device) / window
        return middle * self.keep[o] * torch.cat([near, near.flip(0)])

    def compute_metrics(self, outputs: Batch) -> dict[str, float]:
        """Means over pairs. `ahead` is 0.5 by chance: the area under the ROC curve of true against noise pairs."""
        n = outputs["pairs"].double()
        return {name: float((outputs[name].double() * n).sum() / n.sum().clamp(min=1e-9)) for name in ("loss", "ahead")}

    def embed(self, batch: Batch) -> Tensor:
        """Texts as the mean of their words' vectors, (B, L) -> (B, D); a word is a text of one."""
        return self.network.mean(batch["x"])

    def gallery(self, batch: Batch) -> dict[str, Tensor]:
        """The probed words, each with those nearest to it: word numbers and cosines, (P, 1 + n, 2)."""
        if not self.probes:
            return {}
        table, probes = self.network.v.weight, torch.tensor(self.probes, device=batch["x"].device)[:, None]
        special_tokens = torch.arange(2, device=probes.device).expand(len(probes), 2)  # <pad> and <unk>
        similarity, index = nearest(
            table[probes[:, 0]],
            table,
            min(NUM_NEIGHBORS, len(table) - 3),
            exclude=torch.cat([probes, special_tokens], dim=1),
        )
        first = torch.stack([probes, torch.ones_like(probes)], dim=-1)
        return {"neighbours": torch.cat([first, torch.stack([index, similarity], dim=-1)], dim=1)}
