"""A prior over the codes of a VQ-VAE that is done learning: maps of words one after the other, and the decoder paints them."""

import torch
from torch import Generator, Tensor

from didact.data.core import Batch
from didact.models.pixelcnn import PixelCNN
from didact.objectives.pixel_by_pixel import PixelByPixel
from didact.objectives.vector_quantised import VectorQuantised
from didact.objectives.walks import SHOWN, asked


class CodePrior(PixelByPixel):
    """min −Σ_i log p(k_i | k_<i) / (D log 2), k the codes of x, in bits per code.  Van den Oord et al. 2017, section 3.3; Gaba 9.10.

    The network reads the vectors that the codes stand for, and says which comes next.
    """

    watch = "bits_per_code"

    def __init__(self, network: PixelCNN, learned: VectorQuantised, *, classes: int = 0):
        super().__init__(network, (1, *learned.network.grid), levels=learned.network.codes, classes=classes)
        self.learned = learned.requires_grad_(False)

    def train(self, mode: bool = True) -> "CodePrior":
        super().train(mode)
        self.learned.eval()                                        # batch norms keep what they know
        return self

    @torch.no_grad()
    def leveled(self, x: Tensor) -> Tensor:
        return self.learned.network.encode(x)[2][:, None]          # (B, 1, h, w)

    def read(self, k: Tensor) -> Tensor:
        return self.learned.network.quantizer.look_up(k[:, 0])

    def shown(self, k: Tensor) -> Tensor:
        return self.learned.network.decode_codes(k[:, 0]).float().clamp(0, 1)

    def complete(self, x: Tensor, known: int, generator: Generator, y: Tensor | None = None, *, temperature: float = 1.0) -> Tensor:
        """Images whose first `known` rows stay: their codes, as far as they tell of those rows alone, and new ones below."""
        y = asked(len(x), None, self.classes, x.device) if y is None else y
        given = x.clone()
        given[:, :, known:] = 0
        rows = known * self.shape[1] // x.shape[2]
        whole = self.shown(self.continued(self.leveled(given), rows, generator, y, temperature))
        return torch.cat([x[:, :, :known], whole[:, :, known:]], dim=2)

    def gallery(self, batch: Batch) -> dict[str, Tensor]:
        x = batch["x"][:SHOWN]
        return super().gallery(batch) | {"reconstructions": torch.stack([x, self.shown(self.leveled(x))])}
