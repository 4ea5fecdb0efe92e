"""Word vectors by negative sampling: tell the words that stand together from words drawn at random."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from didact.data.core import Batch
from didact.metrics.similarity import nearest
from didact.models.word2vec import Word2Vec
from didact.objectives.core import Objective

Way = Literal["skipgram", "cbow"]
SHOWN = 8          # neighbours of a word in the report
EVEN = 500         # noise words that a held-out pair is compared with


def negative_sampling(true: Tensor, noise: Tensor, k: float) -> Tensor:
    """−log σ(s) − k mean_j log σ(−s_j): a pair's score s, (…), and those of its noise pairs, (…, S). All scores 0: (1 + k) ln 2."""
    return -logsigmoid(true) - k * logsigmoid(-noise).mean(-1)


class NegativeSampling(Objective):
    """min of −log σ(u_oᵀ h) − k E_{w ∼ P} log σ(−u_wᵀ h), P(w) ∝ count(w)^¾.  Mikolov et al. 2013, eq. 4; Lhotte 7.4.

    Skip-gram: h = v of the word in the middle, o each word around it. CBOW: h = the mean v of those around, o the one in the middle.
    The mean over P is taken over `draws` words that a whole batch shares: the same in expectation, and one matrix product.
    """

    def __init__(
        self, network: Word2Vec, counts: Tensor, *, way: Way = "skipgram", k: int = 5, draws: int = 256, power: float = 0.75,
        keep: Tensor | None = None, pairs: float = 1.0, probes: Sequence[int] = (),
    ):
        super().__init__()
        self.keep: Tensor                                                # with what probability a word is not passed over
        self.register_buffer("keep", torch.ones(len(counts)) if keep is None else keep)
        self.network, self.way, self.k, self.draws, self.pairs, self.probes = network, way, k, draws, pairs, tuple(probes)
        p = counts.double() ** power * (counts > 0)
        self.cumulated: Tensor
        self.register_buffer("cumulated", (p.cumsum(0) / p.sum().clamp(min=1e-9)).float())

    def drawn(self, u: Tensor) -> Tensor:
        """Words by numbers u in [0, 1): P(w) is the length of w's part of the line. <pad> and <unk> have none."""
        return torch.searchsorted(self.cumulated, u, right=True).clamp(max=len(self.cumulated) - 1)

    def read(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """h, (B, D), and the words o that it should lie near, (B, M), 0 where there is none."""
        x, y = batch["x"], batch["y"]
        if self.way == "skipgram":
            return self.network.v(y), x
        return self.network.mean(x), torch.where((x != 0).any(1), y, 0)[:, None]

    def scores(self, h: Tensor, o: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """u_oᵀ h, (B, M), and u_wᵀ h of the noise, (B, S)."""
        u = self.network.u(torch.cat([o.flatten(), noise]))              # looked up once: its gradient is as large as the table
        near, far = u.split([o.numel(), len(noise)])
        return (near.view(*o.shape, -1) * h[:, None]).sum(-1).float(), (h @ far.mT).float()

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        h, o = self.read(batch)
        true, noise = self.scores(h, o, self.drawn(torch.rand(self.draws, device=o.device)))
        each = negative_sampling(true, noise[:, None], self.k) * (o != 0)
        return {"loss": each.sum() / (self.pairs * len(o))}              # by the expected number: micro-batches weigh alike

    def judge(self, batch: Batch) -> Batch:
        """Against noise words evenly spread over P, always the same, each pair as often as learning would see it on average.

        `ahead` is the share of the noise words that a true one outscores.
        """
        h, o = self.read(batch)
        even = (torch.arange(EVEN, device=o.device) + 0.5) / EVEN
        true, noise = self.scores(h, o, self.drawn(even))
        ahead = (true[..., None] > noise[:, None]).sum(-1) / EVEN
        weight = self.weight(batch, o)
        n = weight.sum(1)
        mean = {"loss": negative_sampling(true, noise[:, None], self.k), "ahead": ahead}
        return {name: (each * weight).sum(1) / n.clamp(min=1e-9) for name, each in mean.items()} | {"pairs": n}

    def weight(self, batch: Batch, o: Tensor) -> Tensor:
        """(B, M): a pair counts by how probably both words are kept and the window reaches from one to the other."""
        middle = self.keep[batch["y"]][:, None] * (o != 0)
        if self.way == "cbow":
            return middle
        window = o.shape[1] // 2
        near = torch.arange(1, window + 1, device=o.device) / window                         # from the farthest to the nearest
        return middle * self.keep[o] * torch.cat([near, near.flip(0)])

    def score(self, rows: Batch) -> dict[str, float]:
        """Means over pairs. `ahead` is 0.5 by chance: the area under the ROC curve of true against noise pairs."""
        n = rows["pairs"].double()
        return {name: float((rows[name].double() * n).sum() / n.sum().clamp(min=1e-9)) for name in ("loss", "ahead")}

    def embed(self, batch: Batch) -> Tensor:
        """Texts as the mean of their words' vectors, (B, L) -> (B, D); a word is a text of one."""
        return self.network.mean(batch["x"])

    def gallery(self, batch: Batch) -> dict[str, Tensor]:
        """The probed words, each with those nearest to it: word numbers and cosines, (P, 1 + n, 2)."""
        if not self.probes:
            return {}
        table, probes = self.network.v.weight, torch.tensor(self.probes, device=batch["x"].device)[:, None]
        none = torch.arange(2, device=probes.device).expand(len(probes), 2)                  # <pad> and <unk>
        like, who = nearest(table[probes[:, 0]], table, min(SHOWN, len(table) - 3), but=torch.cat([probes, none], dim=1))
        first = torch.stack([probes, torch.ones_like(probes)], dim=-1)
        return {"neighbours": torch.cat([first, torch.stack([who, like], dim=-1)], dim=1)}
