"""Many images, few labels: learn to encode from all of them, to classify codes from the few."""

import torch.nn.functional as F
from torch import Tensor, nn

from didact import metrics
from didact.data.core import Batch
from didact.models.autoencoder import Autoencoder
from didact.objectives.core import Objective, Player


class SemiSupervised(Objective):
    """min E ‖g(f(x)) − x‖² over all x; min E −log p(y | h(f(x))) over the labelled, f left alone.  Van Schependom 8.5.

    A third network of the same size, `alone`, sees the labelled examples only: what the encoder gains is measured in every run.
    """

    watch, better = "accuracy", "higher"

    def __init__(self, autoencoder: Autoencoder, head: nn.Module, alone: nn.Module, *, noise: float = 0.0):
        super().__init__()
        self.autoencoder, self.head, self.alone, self.noise = autoencoder, head, alone, noise

    def players(self) -> tuple[Player, ...]:
        networks = {"autoencoder": self.autoencoder, "classifier": self.head, "alone": self.alone}
        return tuple(Player(name, list(network.parameters())) for name, network in networks.items())

    def loss(self, batch: Batch, player: str = "autoencoder") -> dict[str, Tensor]:
        if player == "autoencoder":
            x = batch["x"]
            seen = x + self.noise * x.new_empty(x.shape).normal_() if self.noise else x
            return {"loss": F.mse_loss(self.autoencoder(seen).float(), x)}
        x, y = batch["few_x"], batch["few_y"]
        out = self.head(self.autoencoder.encode(x).detach()) if player == "classifier" else self.alone(x)
        return {"loss": F.cross_entropy(out, y)}

    def forward(self, batch: Batch) -> Tensor:
        return self.loss(batch, "autoencoder")["loss"]

    def logits(self, batch: Batch) -> Tensor:
        return self.head(self.autoencoder.encode(batch["x"])).float()  # type: ignore[no-any-return]

    def judge(self, batch: Batch) -> Batch:
        out, y = self.logits(batch), batch["y"]
        alone = self.alone(batch["x"]).argmax(1) == y
        back = self.autoencoder(batch["x"]).float().clamp(0, 1)
        return {
            "loss": F.cross_entropy(out, y, reduction="none"), "output": out, "y": y,
            "alone_right": alone, "psnr": metrics.psnr(back, batch["x"]),
        }

    def score(self, rows: Batch) -> dict[str, float]:
        accuracy = float(metrics.accuracy(rows["output"], rows["y"]))
        alone = float(rows["alone_right"].double().mean())
        return super().score(rows) | {
            "accuracy": accuracy, "accuracy_alone": alone, "gain": accuracy - alone, "psnr": float(rows["psnr"].mean())
        }

    def classify(self, batch: Batch) -> Tensor:
        return self.logits(batch).softmax(1)

    def embed(self, batch: Batch) -> Tensor:
        return self.autoencoder.encode(batch["x"]).float()
