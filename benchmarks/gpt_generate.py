"""Tokens a second that GPT-2 124M writes in bf16: didact's static cache as a CUDA graph beside Hugging Face's generate.

    python benchmarks/gpt_generate.py [--rows 1 8] [--tokens 512] [--prompt 32] [--rounds 3] [--only didact compiled graph hugging_face]

`didact` is what `didact sample` does: its own kernels for a single token. `graph` and `compiled` are the same without them.

Greedy, random weights. One JSON line for each contender and number of texts; then one that says whether the text with the cache is that
of the model without, token for token, in single precision.
"""

import argparse
import json
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor

from didact.models.gpt import GPT
from didact.objectives.writing import Manner, Pen
from didact.registry import create
from didact.run import git_state

GREEDY = Manner(temperature=0)
Write = Callable[[Tensor, int], Tensor]


def gpt2(kind: torch.dtype, device: torch.device) -> GPT:
    torch.manual_seed(0)
    model: GPT = create("gpt2")
    torch.nn.init.normal_(model.wpe.weight, std=0.5)          # so that what is written does not repeat itself
    return model.to(device, kind).eval()


def pen(rows: int, room: int, device: torch.device, *, swift: bool = False, compile: bool = False) -> Write:
    model = gpt2(torch.bfloat16, device)
    memory = model.remember(rows, room)
    memory.swift = memory.swift if swift else None
    return Pen(model.go_on, memory, rows, manner=GREEDY, device=device, compile=compile).write


def hugging_face(rows: int, room: int, device: torch.device) -> Write:
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(attn_implementation="sdpa")).to(device, torch.bfloat16).eval()

    def write(prompt: Tensor, n: int) -> Tensor:
        text = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=n, min_new_tokens=n, do_sample=False,
                              pad_token_id=50_256)
        return text[:, prompt.shape[1] :]

    return write


CONTENDERS: dict[str, Callable[[int, int, torch.device], Write]] = {
    "didact": lambda rows, room, device: pen(rows, room, device, swift=True),
    "compiled": lambda rows, room, device: pen(rows, room, device, compile=True),
    "graph": pen,
    "hugging_face": hugging_face,
}


def finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def measure(write: Write, prompt: Tensor, n: int, rounds: int) -> float:
    """Seconds for n tokens: the median of several rounds; compilation and capture happen before."""
    for _ in range(2):
        write(prompt, n)
    seconds = []
    for _ in range(rounds):
        finish(prompt.device)
        start = time.perf_counter()
        write(prompt, n)
        finish(prompt.device)
        seconds.append(time.perf_counter() - start)
    return median(seconds)


@torch.no_grad()
def agreement(prompt: Tensor, n: int) -> dict[str, object]:
    """How many tokens are the same with the cache and without."""
    model, rows, device = gpt2(torch.float32, prompt.device), len(prompt), prompt.device
    written = Pen(model.go_on, model.remember(rows, prompt.shape[1] + n), rows, manner=GREEDY, device=device).write(prompt, n)
    text = prompt
    for _ in range(n):
        text = torch.cat([text, model(text)[:, -1:].argmax(-1)], dim=1)
    same = written == text[:, prompt.shape[1] :]
    return {"check": "cache = no cache", "tokens": same.numel(), "same": int(same.sum()), "different_tokens": len(written.unique())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="*", default=[1, 8])
    for name, default in {"tokens": 512, "prompt": 32, "rounds": 3, "check": 200}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--only", nargs="*", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    o = parser.parse_args()
    device = torch.device(o.device)
    for rows in o.rows:
        prompt = torch.randint(50_257, (rows, o.prompt), generator=torch.Generator().manual_seed(0)).to(device)
        for name in o.only:
            seconds = measure(CONTENDERS[name](rows, o.prompt + o.tokens, device), prompt, o.tokens, o.rounds)
            row = {"contender": name, "rows": rows, "tokens_per_second": rows * o.tokens / seconds, "us_per_step": 1e6 * seconds / o.tokens}
            print(json.dumps(row | {"torch": torch.__version__, **(git_state() or {})}), flush=True)
            torch._dynamo.reset()
    print(json.dumps(agreement(prompt, o.check)), flush=True)


if __name__ == "__main__":
    main()
