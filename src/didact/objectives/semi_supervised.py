"""Semi-supervised learning: an autoencoder from all images, a classifier of its codes from the few labeled ones."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from didact import metrics
from didact.data.core import Batch
from didact.models.generative.autoencoder import Autoencoder
from didact.objectives.base import Objective, Player


class SemiSupervisedObjective(Objective):
    """min E ‖g(f(x)) − x‖² over all x; min E −log p(y | h(f(x))) over the labeled ones, by h.  Van Schependom 8.5.

    With `fine_tune` the encoder f is pretrained for `pretrain_steps` steps; from then on it minimizes the classifier's
    loss, together with h (Groudiev 10.1.2). A third network of the size of f and h, `alone`, sees the labeled examples
    only: what the unlabeled ones gain is measured in every run.
    """

    monitor, mode = "accuracy", "max"
    steps_taken: Tensor
    pretrain_steps: Tensor

    def __init__(
        self,
        autoencoder: Autoencoder,
        head: nn.Module,
        alone: nn.Module,
        *,
        input_noise: float = 0.0,
        fine_tune: bool = False,
    ):
        super().__init__()
        self.autoencoder, self.head, self.alone = autoencoder, head, alone
        self.input_noise, self.fine_tune = input_noise, fine_tune
        if fine_tune:  # saved with the weights, so that a resumed run knows its phase
            self.register_buffer("steps_taken", torch.zeros(()))
            self.register_buffer("pretrain_steps", torch.zeros(()))

    def players(self) -> tuple[Player, ...]:
        networks = {"autoencoder": self.autoencoder, "classifier": self.head, "alone": self.alone}
        return tuple(Player(name, list(network.parameters())) for name, network in networks.items())

    def loss(self, batch: Batch, player: str = "autoencoder") -> dict[str, Tensor]:
        if player == "autoencoder":
            return self.autoencoder_loss(batch)
        x, y = batch["few_x"], batch["few_y"]
        out = self.head(self.autoencoder.encode(x).detach()) if player == "classifier" else self.alone(x)
        return {"loss": F.cross_entropy(out, y)}

    def autoencoder_loss(self, batch: Batch) -> dict[str, Tensor]:
        """The reconstruction error; after pretraining the classifier's loss, whose gradient reaches the encoder."""
        x = batch["x"]
        noisy = x + self.input_noise * x.new_empty(x.shape).normal_() if self.input_noise else x
        reconstruction = F.mse_loss(self.autoencoder(noisy).float(), x)
        if not self.fine_tune:
            return {"loss": reconstruction}
        classification = F.cross_entropy(self.head(self.autoencoder.encode(batch["few_x"])), batch["few_y"])
        # chosen on the device: a captured CUDA graph, too, passes from one phase to the other
        is_pretraining = self.steps_taken < self.pretrain_steps
        return {
            "loss": torch.where(is_pretraining, reconstruction, classification),
            "reconstruction": reconstruction,
            "classification": classification,
        }

    def after_step(self, player: str = "model") -> None:
        if self.fine_tune and player == "autoencoder":
            self.steps_taken.add_(1)

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
            "alone_correct": alone_correct, "psnr": metrics.psnr(reconstruction, batch["x"]),
        }

    def compute_metrics(self, outputs: Batch) -> dict[str, float]:
        """`accuracy_alone` is that of the network without unlabeled examples, `gain` the difference to it."""
        accuracy = float(metrics.accuracy(outputs["output"], outputs["y"]))
        alone_accuracy = float(outputs["alone_correct"].double().mean())
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
