"""Many images, few labels: learn to encode from all of them, to classify codes from the few."""

import torch.nn.functional as F
from torch import Tensor, nn

from didact import metrics
from didact.data.core import Batch
from didact.models.generative.autoencoder import Autoencoder
from didact.objectives.base import Objective, Player


class SemiSupervisedObjective(Objective):
    """min E ‖g(f(x)) − x‖² over all x; min E −log p(y | h(f(x))) over the labelled, f left alone.  Van Schependom 8.5.

    A third network of the same size, `alone`, sees the labelled examples only: what the encoder gains is measured
    in every run.
    """

    monitor, mode = "accuracy", "max"

    def __init__(self, autoencoder: Autoencoder, head: nn.Module, alone: nn.Module, *, input_noise: float = 0.0):
        super().__init__()
        self.autoencoder, self.head, self.alone, self.input_noise = autoencoder, head, alone, input_noise

    def players(self) -> tuple[Player, ...]:
        networks = {"autoencoder": self.autoencoder, "classifier": self.head, "alone": self.alone}
        return tuple(Player(name, list(network.parameters())) for name, network in networks.items())

    def loss(self, batch: Batch, player: str = "autoencoder") -> dict[str, Tensor]:
        if player == "autoencoder":
            x = batch["x"]
            noisy = x + self.input_noise * x.new_empty(x.shape).normal_() if self.input_noise else x
            return {"loss": F.mse_loss(self.autoencoder(noisy).float(), x)}
        x, y = batch["few_x"], batch["few_y"]
        out = self.head(self.autoencoder.encode(x).detach()) if player == "classifier" else self.alone(x)
        return {"loss": F.cross_entropy(out, y)}

    def forward(self, batch: Batch) -> Tensor:
        return self.loss(batch, "autoencoder")["loss"]

    def logits(self, batch: Batch) -> Tensor:
        return self.head(self.autoencoder.encode(batch["x"])).float()  # type: ignore[no-any-return]

    def evaluate_batch(self, batch: Batch) -> Batch:
        out, y = self.logits(batch), batch["y"]
        alone_correct = self.alone(batch["x"]).argmax(1) == y
        reconstruction = self.autoencoder(batch["x"]).float().clamp(0, 1)
        return {
            "loss": F.cross_entropy(out, y, reduction="none"), "output": out, "y": y,
            "alone_right": alone_correct, "psnr": metrics.psnr(reconstruction, batch["x"]),
        }

    def compute_metrics(self, outputs: Batch) -> dict[str, float]:
        accuracy = float(metrics.accuracy(outputs["output"], outputs["y"]))
        alone_accuracy = float(outputs["alone_right"].double().mean())
        return super().compute_metrics(outputs) | {
            "accuracy": accuracy,
            "accuracy_alone": alone_accuracy,
            "gain": accuracy - alone_accuracy,
            "psnr": float(outputs["psnr"].mean()),
        }

    def classify(self, batch: Batch) -> Tensor:
        return self.logits(batch).softmax(1)

    def embed(self, batch: Batch) -> Tensor:
        return self.autoencoder.encode(batch["x"]).float()
