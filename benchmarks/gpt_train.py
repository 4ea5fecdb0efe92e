"""Training steps of GPT-2 124M in bf16: didact's loop beside a plain model and Hugging Face's, all compiled, in one
run.

    python benchmarks/gpt_train.py [--batch 64] [--context 1024] [--steps 20] [--rounds 3] [--only didact] [--cudnn]
    [--no-compile]

Random tokens; AdamW, gradients clipped. One JSON line for each contender to stdout: tokens a second and the share
of the chip's peak,
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
from didact.data.text.language_modeling import TokenWindows
from didact.models.text.gpt import GPT
from didact.objectives.text.causal_lm import CausalLanguageModel
from didact.run import git_state
from didact.training.experiment import Experiment, Settings
from didact.training.loop import Trainer

PEAK_FLOPS = 989e12   # dense bf16 of an H100 or H200
VOCAB_SIZE = 50_257


def didact_loop(args: argparse.Namespace, device: torch.device) -> Callable[[], None]:
    """The recipe's own path: objective, loop, compiled loss, CUDA graph."""
    token_ids = torch.randint(VOCAB_SIZE, (args.batch * args.context * 64 + 1,), dtype=torch.int32)
    split = TokenWindows(token_ids, 0, len(token_ids), args.context, args.context)
    data = Data("random", "text", "language", (args.context,), split, split, split)
    network = GPT(
        VOCAB_SIZE,
        context_length=args.context,
        embed_dim=args.width,
        num_layers=args.layers,
        num_heads=args.heads,
    )
    experiment = Experiment(
        data=data,
        objective=CausalLanguageModel(network),
        optimizer=partial(AdamW, lr=6e-4, weight_decay=0.1, betas=(0.9, 0.95)),
        clip_norm=1.0,
        batch_size=args.batch,
        steps=10**6,
        evaluate_every=10**6,
    )
    settings = Settings(precision="bf16", compile=args.compile, graph=args.graph)
    trainer = Trainer(experiment, settings, device=device)
    trainer.objective.train()

    def endless_rounds() -> Any:
        while True:
            yield from trainer.iterate_epoch()

    rounds = endless_rounds()

    def step() -> None:
        trainer.train_round(*next(rounds))

    return step


class PlainBlock(nn.Module):
    def __init__(self, embed_dim: int, num_heads: int):
        super().__init__()
        self.num_heads = num_heads
        self.ln1, self.ln2 = nn.LayerNorm(embed_dim), nn.LayerNorm(embed_dim)
        self.qkv, self.out = nn.Linear(embed_dim, 3 * embed_dim), nn.Linear(embed_dim, embed_dim)
        self.up, self.down = nn.Linear(embed_dim, 4 * embed_dim), nn.Linear(4 * embed_dim, embed_dim)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for t in self.qkv(self.ln1(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class PlainGPT(nn.Module):
    """What a tutorial writes: all logits at once, the vocabulary rounded up to 50,304."""

    def __init__(self, args: argparse.Namespace):
        super().__init__()
        self.token_embedding, self.position_embedding = (
            nn.Embedding(-(-VOCAB_SIZE // 64) * 64, args.width),
            nn.Embedding(args.context, args.width),
        )
        self.blocks = nn.Sequential(*[PlainBlock(args.width, args.heads) for _ in range(args.layers)])
        self.norm = nn.LayerNorm(args.width)
        for p in self.parameters():
            if p.ndim > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        h = self.norm(self.blocks(self.token_embedding(x) + self.position_embedding.weight[: x.shape[1]]))
        return F.cross_entropy(F.linear(h, self.token_embedding.weight).flatten(0, 1), y.flatten())


def hand_written_loop(
    model: nn.Module, loss: Callable[[Tensor, Tensor], Tensor], args: argparse.Namespace, device: torch.device
) -> Callable[[], None]:
    """A hand-written loop around a model, compiled."""
    optimizer = AdamW(model.parameters(), lr=6e-4, weight_decay=0.1, betas=(0.9, 0.95), fused=True)
    token_ids = torch.randint(VOCAB_SIZE, (64, args.batch, args.context + 1), device=device)
    loss = torch.compile(loss) if args.compile else loss
    batch_indices = iter(range(10**9))

    def step() -> None:
        windows = token_ids[next(batch_indices) % len(token_ids)]
        with torch.autocast(device.type, torch.bfloat16):
            value = loss(windows[:, :-1], windows[:, 1:])
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def plain_loop(args: argparse.Namespace, device: torch.device) -> Callable[[], None]:
    model = PlainGPT(args).to(device)
    return hand_written_loop(model, model, args, device)


def hugging_face_loop(args: argparse.Namespace, device: torch.device) -> Callable[[], None]:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        n_positions=args.context,
        n_embd=args.width,
        n_layer=args.layers,
        n_head=args.heads,
        attn_implementation="sdpa",
        use_cache=False,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    model = GPT2LMHeadModel(config).to(device).train()
    return hand_written_loop(
        model, lambda x, y: F.cross_entropy(model(x).logits.flatten(0, 1), y.flatten()), args, device
    )


CONTENDERS = {"didact": didact_loop, "plain": plain_loop, "hugging_face": hugging_face_loop}


def measure(step: Callable[[], None], args: argparse.Namespace, device: torch.device) -> float:
    """Seconds of a step: the median of several rounds, each synchronised."""
    def synchronize() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    for _ in range(args.warm):               # compilation, autotuning and capture settle here, untimed
        step()
    synchronize()
    seconds = []
    for _ in range(args.rounds):
        start = time.perf_counter()
        for _ in range(args.steps):
            step()
        synchronize()
        seconds.append((time.perf_counter() - start) / args.steps)
    return median(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = {
        "batch": 64,
        "context": 1024,
        "layers": 12,
        "width": 768,
        "heads": 12,
        "steps": 20,
        "rounds": 3,
        "warm": 10,
    }
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--only", nargs="*", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--graph", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--cudnn", action="store_true", help="attention by cuDNN's kernel, for every contender")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    device = torch.device(args.device)
    torch.set_float32_matmul_precision("high")
    if args.cudnn:
        torch.backends.cuda.enable_flash_sdp(False)
    num_matrix_parameters = VOCAB_SIZE * args.width + args.layers * 12 * args.width**2
    flops_per_token = 6 * num_matrix_parameters + 12 * args.layers * args.width * args.context
    machine = torch.cuda.get_device_name() if device.type == "cuda" else platform.machine()
    for name in args.only:
        torch.manual_seed(0)
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        seconds = measure(CONTENDERS[name](args, device), args, device)
        tokens_per_second = args.batch * args.context / seconds
        row = {
            "contender": name,
            "tokens_per_second": round(tokens_per_second),
            "step_ms": 1e3 * seconds,
            "of_peak": tokens_per_second * flops_per_token / PEAK_FLOPS,
        }
        row |= {
            "memory_gb": torch.cuda.max_memory_allocated() / 1e9 if device.type == "cuda" else None,
            "cudnn": args.cudnn,
            "batch": args.batch,
        }
        print(json.dumps(row | {"torch": torch.__version__, "machine": machine, **(git_state() or {})}), flush=True)
        torch._dynamo.reset()


if __name__ == "__main__":
    main()
