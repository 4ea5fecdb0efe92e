"""Training steps of GPT-2 124M in bf16: didact's loop beside a plain model and Hugging Face's, all compiled, in one run.

    python benchmarks/gpt_train.py [--batch 64] [--context 1024] [--steps 20] [--rounds 3] [--only didact] [--cudnn] [--no-compile]

Random tokens; AdamW, gradients clipped. One JSON line for each contender to stdout: tokens a second and the share of the chip's peak,
counted as 6 N + 12 L D T operations a token (N without positions).
"""

import argparse
import json
import platform
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import AdamW

from didact.data.core import Data
from didact.data.sequences import Windows
from didact.models.gpt import GPT
from didact.objectives.autoregressive import Autoregressive
from didact.run import git_state
from didact.train.experiment import Experiment, Settings
from didact.train.loop import Training

PEAK = 989e12   # dense bf16 of an H100 or H200
VOCABULARY = 50_257


def didact_loop(o: argparse.Namespace, device: torch.device) -> Callable[[], None]:
    """The recipe's own path: objective, loop, compiled loss, CUDA graph."""
    ids = torch.randint(VOCABULARY, (o.batch * o.context * 64 + 1,), dtype=torch.int32)
    part = Windows(ids, 0, len(ids), o.context, o.context)
    data = Data("random", "text", "language", (o.context,), part, part, part)
    network = GPT(VOCABULARY, context=o.context, dim=o.width, layers=o.layers, heads=o.heads)
    experiment = Experiment(
        data=data, objective=Autoregressive(network), optimizer=partial(AdamW, lr=6e-4, weight_decay=0.1, betas=(0.9, 0.95)),
        clip_norm=1.0, batch=o.batch, steps=10**6, evaluate_every=10**6,
    )
    settings = Settings(precision="bf16", compile=o.compile, graph=o.graph)
    training = Training(experiment, settings, device=device)
    training.objective.train()

    def forever() -> Any:
        while True:
            yield from training.epoch()

    rounds = forever()

    def step() -> None:
        training.advance(*next(rounds))

    return step


class PlainBlock(nn.Module):
    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.ln1(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class Plain(nn.Module):
    """What a tutorial writes: all logits at once, the vocabulary rounded up to 50,304."""

    def __init__(self, o: argparse.Namespace):
        super().__init__()
        self.tokens, self.places = nn.Embedding(-(-VOCABULARY // 64) * 64, o.width), nn.Embedding(o.context, o.width)
        self.blocks = nn.Sequential(*[PlainBlock(o.width, o.heads) for _ in range(o.layers)])
        self.norm = nn.LayerNorm(o.width)
        for p in self.parameters():
            if p.ndim > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        h = self.norm(self.blocks(self.tokens(x) + self.places.weight[: x.shape[1]]))
        return F.cross_entropy(F.linear(h, self.tokens.weight).flatten(0, 1), y.flatten())


def by_hand(model: nn.Module, loss: Callable[[Tensor, Tensor], Tensor], o: argparse.Namespace, device: torch.device) -> Callable[[], None]:
    """A hand-written loop around a model, compiled."""
    optimizer = AdamW(model.parameters(), lr=6e-4, weight_decay=0.1, betas=(0.9, 0.95), fused=True)
    ids = torch.randint(VOCABULARY, (64, o.batch, o.context + 1), device=device)
    loss = torch.compile(loss) if o.compile else loss
    turn = iter(range(10**9))

    def step() -> None:
        chunk = ids[next(turn) % len(ids)]
        with torch.autocast(device.type, torch.bfloat16):
            value = loss(chunk[:, :-1], chunk[:, 1:])
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def plain(o: argparse.Namespace, device: torch.device) -> Callable[[], None]:
    model = Plain(o).to(device)
    return by_hand(model, model, o, device)


def hugging_face(o: argparse.Namespace, device: torch.device) -> Callable[[], None]:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        n_positions=o.context, n_embd=o.width, n_layer=o.layers, n_head=o.heads, attn_implementation="sdpa", use_cache=False,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )
    model = GPT2LMHeadModel(config).to(device).train()
    return by_hand(model, lambda x, y: F.cross_entropy(model(x).logits.flatten(0, 1), y.flatten()), o, device)


CONTENDERS = {"didact": didact_loop, "plain": plain, "hugging_face": hugging_face}


def measure(step: Callable[[], None], o: argparse.Namespace, device: torch.device) -> float:
    """Seconds of a step: the median of several rounds, each synchronised."""
    def finish() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    for _ in range(o.warm):               # compilation, autotuning and capture settle here, untimed
        step()
    finish()
    seconds = []
    for _ in range(o.rounds):
        start = time.perf_counter()
        for _ in range(o.steps):
            step()
        finish()
        seconds.append((time.perf_counter() - start) / o.steps)
    return median(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = {"batch": 64, "context": 1024, "layers": 12, "width": 768, "heads": 12, "steps": 20, "rounds": 3, "warm": 10}
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--only", nargs="*", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--graph", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--cudnn", action="store_true", help="attention by cuDNN's kernel, for every contender")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    o = parser.parse_args()
    device = torch.device(o.device)
    torch.set_float32_matmul_precision("high")
    if o.cudnn:
        torch.backends.cuda.enable_flash_sdp(False)
    matrices = VOCABULARY * o.width + o.layers * 12 * o.width**2
    work = 6 * matrices + 12 * o.layers * o.width * o.context
    machine = torch.cuda.get_device_name() if device.type == "cuda" else platform.machine()
    for name in o.only:
        torch.manual_seed(0)
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        seconds = measure(CONTENDERS[name](o, device), o, device)
        rate = o.batch * o.context / seconds
        row = {"contender": name, "tokens_per_second": round(rate), "step_ms": 1e3 * seconds, "of_peak": rate * work / PEAK}
        row |= {"memory_gb": torch.cuda.max_memory_allocated() / 1e9 if device.type == "cuda" else None, "cudnn": o.cudnn, "batch": o.batch}
        print(json.dumps(row | {"torch": torch.__version__, "machine": machine, **(git_state() or {})}), flush=True)
        torch._dynamo.reset()


if __name__ == "__main__":
    main()
