"""An epoch of the 784-256-128-10 MLP on MNIST, batch 128: didact's loop beside four others, in one run.

    python benchmarks/mlp_epoch.py [--device cuda] [--epochs 3] [--rounds 3]

Every contender trains the same network with AdamW on the same 54,000 examples. One JSON line for each to stdout;
ratios are
to didact, of the shortest epochs: the contenders take turns, and what a noisy neighbour does can only lengthen an
epoch.
"""

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from functools import partial
from statistics import median

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import didact.recipes as recipes
from didact.data.load import load
from didact.run import git_state
from didact.training.experiment import Settings
from didact.training.loop import Trainer
from didact.training.prepare import build_experiment

BATCH = 128


def make_network() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)
    )


class ItemDataset(Dataset):
    """The textbook's data set: one item at a time, made a float image when asked for."""

    def __init__(self, x: Tensor, y: Tensor):
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return (self.x[i].float() / 255 - 0.1307) / 0.3081, int(self.y[i])


def textbook_epoch(x: Tensor, y: Tensor, device: torch.device) -> Callable[[], None]:
    """A Dataset that yields one item, DataLoader, `loss.item()` every step."""
    model = make_network().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(ItemDataset(x, y), batch_size=BATCH, shuffle=True)

    def epoch() -> None:
        total = 0.0
        for xb, yb in loader:
            xb, yb = xb.to(device), yb.to(device)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(xb), yb)
            loss.backward()
            optimizer.step()
            total += loss.item()

    return epoch


def lightning_epoch(x: Tensor, y: Tensor, device: torch.device) -> Callable[[], None]:
    """PyTorch Lightning with the textbook's loader."""
    import logging
    import warnings

    import lightning as L

    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Module(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = make_network()

        def training_step(self, batch, _):
            return F.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    model, loader = Module(), DataLoader(ItemDataset(x, y), batch_size=BATCH, shuffle=True)
    trainer = partial(
        L.Trainer, max_epochs=1, accelerator="gpu" if device.type == "cuda" else "cpu", devices=1, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, barebones=False,
    )
    return lambda: trainer().fit(model, loader)


def resident_epoch(x: Tensor, y: Tensor, device: torch.device, **options: bool) -> Callable[[], None]:
    """A hand-written loop over tensors that live on the device, ready normalised, and nothing besides."""
    model = make_network().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **options)
    x, y = ((x.float() / 255 - 0.1307) / 0.3081).to(device), y.to(device)

    def epoch() -> None:
        for index in torch.randperm(len(x), device=device).split(BATCH):
            optimizer.zero_grad()
            F.cross_entropy(model(x[index]), y[index]).backward()
            optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize()

    return epoch


def didact_epoch(data, device: torch.device) -> Callable[[], None]:
    """didact's own loop, as `didact train mlp --dropout 0 --schedule constant` runs it; validation is not in the
    time."""
    settings = Settings(seed=0, device=str(device))
    arguments = recipes.mlp.bind({"dropout": 0.0, "schedule": "constant", "epochs": 10**6, "batch_size": BATCH})
    trainer = Trainer(build_experiment(recipes.mlp, data, arguments, settings), settings, device=device)
    trainer.objective.train()
    trainer.streams.reset()
    trainer.save()
    trainer.evaluate = lambda: trainer.flush()  # judged apart: the others only train

    def epoch() -> None:
        for batches, batch_sizes in trainer.iterate_epoch():
            trainer.train_round(batches, batch_sizes)

    return epoch


def measure_seconds(epoch: Callable[[], None]) -> float:
    start = time.perf_counter()
    epoch()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--without", nargs="*", default=[], help="contenders to leave out")
    args = parser.parse_args()
    device = torch.device(args.device)
    data = load("mnist")
    x, y = data.train.columns["x"], data.train.columns["y"]
    contenders: dict[str, Callable[[], Callable[[], None]]] = {
        "didact": lambda: didact_epoch(data, device),
        "resident, fused AdamW": lambda: resident_epoch(x, y, device, fused=True),
        "resident": lambda: resident_epoch(x, y, device),
        "textbook DataLoader": lambda: textbook_epoch(x, y, device),
        "Lightning on that loader": lambda: lightning_epoch(x, y, device),
    }
    epochs = {name: make_epoch() for name, make_epoch in contenders.items() if name not in args.without}
    fast_contenders = [name for name in epochs if name.startswith(("didact", "resident"))]
    for name in fast_contenders:
        epochs[name]()  # warm-up: allocator, caches, clocks, graph capture
    seconds: dict[str, list[float]] = {name: [] for name in epochs}
    for _ in range(args.rounds):
        # the quick ones more often, epoch by epoch in turn
        for name in [*fast_contenders * 5, *(n for n in epochs if n not in fast_contenders)]:
            seconds[name].append(measure_seconds(epochs[name]))
            print(f"{name}: {seconds[name][-1]:.3f} s", file=sys.stderr)
    metadata = {
        "torch": torch.__version__,
        "device": args.device,
        "hardware": describe_hardware(device),
        "git": git_state(),
    }
    for name, values in seconds.items():
        row = {"name": name, "median_s": median(values), "min_s": min(values), "n": len(values)}
        print(json.dumps(row | {"ratio_to_didact": min(values) / min(seconds["didact"])} | metadata))


def describe_hardware(device: torch.device) -> str:
    return (
        torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else f"{platform.machine()}, {torch.get_num_threads()} threads"
    )


if __name__ == "__main__":
    main()
