"""An epoch of the 784-256-128-10 MLP on MNIST, batch 128: didact's loop beside four others, in one run.

    python benchmarks/mlp_epoch.py [--device cuda] [--epochs 3] [--rounds 3]

Every contender trains the same network with AdamW on the same 54,000 examples. One JSON line for each to stdout; ratios are
to didact, of the shortest epochs: the contenders take turns, and what a noisy neighbour does can only lengthen an epoch.
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
from didact.train.experiment import Settings
from didact.train.loop import Training
from didact.train.session import build

BATCH = 128


def network() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))


class Items(Dataset):
    """The textbook's data set: one item at a time, made a float image when asked for."""

    def __init__(self, x: Tensor, y: Tensor):
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return (self.x[i].float() / 255 - 0.1307) / 0.3081, int(self.y[i])


def textbook(x: Tensor, y: Tensor, device: torch.device) -> Callable[[], None]:
    """A Dataset that yields one item, DataLoader, `loss.item()` every step."""
    model = network().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(Items(x, y), batch_size=BATCH, shuffle=True)

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


def lightning(x: Tensor, y: Tensor, device: torch.device) -> Callable[[], None]:
    """PyTorch Lightning with the textbook's loader."""
    import logging
    import warnings

    import lightning as L

    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Module(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = network()

        def training_step(self, batch, _):
            return F.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    model, loader = Module(), DataLoader(Items(x, y), batch_size=BATCH, shuffle=True)
    trainer = partial(
        L.Trainer, max_epochs=1, accelerator="gpu" if device.type == "cuda" else "cpu", devices=1, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, barebones=False,
    )
    return lambda: trainer().fit(model, loader)


def resident(x: Tensor, y: Tensor, device: torch.device, **keywords: bool) -> Callable[[], None]:
    """A hand-written loop over tensors that live on the device, ready normalised, and nothing besides."""
    model = network().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **keywords)
    x, y = ((x.float() / 255 - 0.1307) / 0.3081).to(device), y.to(device)

    def epoch() -> None:
        for index in torch.randperm(len(x), device=device).split(BATCH):
            optimizer.zero_grad()
            F.cross_entropy(model(x[index]), y[index]).backward()
            optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize()

    return epoch


def ours(data, device: torch.device) -> Callable[[], None]:
    """didact's own loop, as `didact train mlp --dropout 0 --schedule constant` runs it; validation is not in the time."""
    settings = Settings(seed=0, device=str(device))
    arguments = recipes.mlp.bind({"dropout": 0.0, "schedule": "constant", "epochs": 10**6, "batch": BATCH})
    training = Training(build(recipes.mlp, data, arguments, settings), settings, device=device)
    training.objective.train()
    training.streams.begin()
    training.save()
    training.evaluate = lambda: training.flush()  # judged apart: the others only train

    def epoch() -> None:
        for stored, rows in training.epoch():
            training.advance(stored, rows)

    return epoch


def timed(epoch: Callable[[], None]) -> float:
    start = time.perf_counter()
    epoch()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--without", nargs="*", default=[], help="contenders to leave out")
    words = parser.parse_args()
    device = torch.device(words.device)
    data = load("mnist")
    x, y = data.train.columns["x"], data.train.columns["y"]
    contenders: dict[str, Callable[[], Callable[[], None]]] = {
        "didact": lambda: ours(data, device),
        "resident, fused AdamW": lambda: resident(x, y, device, fused=True),
        "resident": lambda: resident(x, y, device),
        "textbook DataLoader": lambda: textbook(x, y, device),
        "Lightning on that loader": lambda: lightning(x, y, device),
    }
    epochs = {name: make() for name, make in contenders.items() if name not in words.without}
    fast = [name for name in epochs if name.startswith(("didact", "resident"))]
    for name in fast:
        epochs[name]()  # warm-up: allocator, caches, clocks, graph capture
    seconds: dict[str, list[float]] = {name: [] for name in epochs}
    for _ in range(words.rounds):
        for name in [*fast * 5, *(n for n in epochs if n not in fast)]:  # the quick ones more often, epoch by epoch in turn
            seconds[name].append(timed(epochs[name]))
            print(f"{name}: {seconds[name][-1]:.3f} s", file=sys.stderr)
    facts = {"torch": torch.__version__, "device": words.device, "hardware": hardware(device), "git": git_state()}
    for name, values in seconds.items():
        row = {"name": name, "median_s": median(values), "min_s": min(values), "n": len(values)}
        print(json.dumps(row | {"ratio_to_didact": min(values) / min(seconds["didact"])} | facts))


def hardware(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{platform.machine()}, {torch.get_num_threads()} threads"


if __name__ == "__main__":
    main()
