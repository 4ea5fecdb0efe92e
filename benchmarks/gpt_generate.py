"""Tokens a second that GPT-2 124M writes in bf16: didact's static cache as a CUDA graph beside Hugging Face's generate.

    python benchmarks/gpt_generate.py [--rows 1 8] [--tokens 512] [--prompt 32] [--rounds 3] [--only didact compiled
    graph hugging_face]

`didact` is what `didact sample` does: its own kernels for a single token. `graph` and `compiled` are the same
without them.

Greedy, random weights. One JSON line for each contender and number of texts; then one that says whether the text
with the cache is that
of the model without, token for token, in single precision.
"""

import argparse
import json
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor

from didact.models.text.gpt import GPT
from didact.registry import create_model
from didact.run import git_state
from didact.samplers.text_generation import TextGenerator
from didact.samplers.top_k_top_p import DecodingConfig

GREEDY = DecodingConfig(temperature=0)
GenerateFunction = Callable[[Tensor, int], Tensor]


def make_gpt2(dtype: torch.dtype, device: torch.device) -> GPT:
    torch.manual_seed(0)
    model: GPT = create_model("gpt2")
    torch.nn.init.normal_(model.wpe.weight, std=0.5)          # so that what is written does not repeat itself
    return model.to(device, dtype).eval()


def didact_generator(
    batch_size: int, capacity: int, device: torch.device, *, fast_decoder: bool = False, use_compile: bool = False
) -> GenerateFunction:
    model = make_gpt2(torch.bfloat16, device)
    cache = model.init_cache(batch_size, capacity)
    cache.fast_decoder = cache.fast_decoder if fast_decoder else None
    return TextGenerator(
        model.decode_step, cache, batch_size, decoding=GREEDY, device=device, compile=use_compile
    ).generate


def hugging_face_generator(batch_size: int, capacity: int, device: torch.device) -> GenerateFunction:
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(attn_implementation="sdpa")).to(device, torch.bfloat16).eval()

    def generate(prompt: Tensor, num_tokens: int) -> Tensor:
        text = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=num_tokens,
            min_new_tokens=num_tokens,
            do_sample=False,
            pad_token_id=50_256,
        )
        return text[:, prompt.shape[1] :]

    return generate


CONTENDERS: dict[str, Callable[[int, int, torch.device], GenerateFunction]] = {
    "didact": lambda rows, room, device: didact_generator(rows, room, device, fast_decoder=True),
    "compiled": lambda rows, room, device: didact_generator(rows, room, device, use_compile=True),
    "graph": didact_generator,
    "hugging_face": hugging_face_generator,
}


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def measure(generate: GenerateFunction, prompt: Tensor, num_tokens: int, rounds: int) -> float:
    """Seconds for n tokens: the median of several rounds; compilation and capture happen before."""
    for _ in range(2):
        generate(prompt, num_tokens)
    seconds = []
    for _ in range(rounds):
        synchronize(prompt.device)
        start = time.perf_counter()
        generate(prompt, num_tokens)
        synchronize(prompt.device)
        seconds.append(time.perf_counter() - start)
    return median(seconds)


@torch.no_grad()
def count_agreeing_tokens(prompt: Tensor, num_tokens: int) -> dict[str, object]:
    """How many tokens are the same with the cache and without."""
    model, batch_size, device = make_gpt2(torch.float32, prompt.device), len(prompt), prompt.device
    generated = TextGenerator(
        model.decode_step,
        model.init_cache(batch_size, prompt.shape[1] + num_tokens),
        batch_size,
        decoding=GREEDY,
        device=device,
    ).generate(prompt, num_tokens)
    text = prompt
    for _ in range(num_tokens):
        text = torch.cat([text, model(text)[:, -1:].argmax(-1)], dim=1)
    is_same = generated == text[:, prompt.shape[1] :]
    return {
        "check": "cache = no cache",
        "tokens": is_same.numel(),
        "same": int(is_same.sum()),
        "different_tokens": len(generated.unique()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="*", default=[1, 8])
    for name, default in {"tokens": 512, "prompt": 32, "rounds": 3, "check": 200}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--only", nargs="*", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    device = torch.device(args.device)
    for batch_size in args.rows:
        prompt = torch.randint(50_257, (batch_size, args.prompt), generator=torch.Generator().manual_seed(0)).to(device)
        for name in args.only:
            seconds = measure(
                CONTENDERS[name](batch_size, args.prompt + args.tokens, device), prompt, args.tokens, args.rounds
            )
            row = {
                "contender": name,
                "rows": batch_size,
                "tokens_per_second": batch_size * args.tokens / seconds,
                "us_per_step": 1e6 * seconds / args.tokens,
            }
            print(json.dumps(row | {"torch": torch.__version__, **(git_state() or {})}), flush=True)
            torch._dynamo.reset()
    print(json.dumps(count_agreeing_tokens(prompt, args.check)), flush=True)


if __name__ == "__main__":
    main()
