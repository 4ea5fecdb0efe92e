"""GPT: a decoder that learns to continue a text, then writes one."""

from functools import partial
from typing import Annotated, Literal

from torch.optim import AdamW

from didact.data.core import Data
from didact.data.sequences import StreamEncoder, windows
from didact.errors import UsageError
from didact.layers.forms import SPAN, SPANNED, Form, reach
from didact.models.gpt import GPT
from didact.models.llama import Llama
from didact.objectives.autoregressive import Autoregressive
from didact.optim.schedule import make_schedule
from didact.options import OnlyWith, Range
from didact.recipes import arguments as a
from didact.recipes.adapting import Rank, Weights, beginning, thinned
from didact.registry import recipe
from didact.train.experiment import Experiment

Family = Annotated[Literal["gpt", "llama"], "GPT-2's blocks, or LLaMA's: RMS norms, rotary positions, SwiGLU, shared keys"]
Layers = Annotated[int, Range(1, 100), "blocks upon each other"]
Heads = Annotated[int, Range(1), "attention heads of each block"]
Width = Annotated[int, Range(1), "numbers that a token is embedded in"]
Context = Annotated[int, Range(2), "tokens that are read at once"]
Attention = Annotated[
    Form, "who looks at whom; strided alternates with local, linear is a kernel's, tiled gives the same as full, whose weights alone are"
    " dropped by --dropout",
]
Span = Annotated[
    int | None, Range(1), "tokens to each side (local), from one to the next (strided), or in all (topk); 8 if not given; others know none",
]
Experts = Annotated[int | None, Range(2, 256), "perceptrons of each block, of which every token is sent to two (one for all if not given)"]
Balance = Annotated[
    float | None, Range(0), "weight of the loss that keeps all experts busy, taken of each micro-batch by itself (0.01 if not given)",
]
Steps = Annotated[int, Range(1), "optimizer steps"]


@recipe(
    data="tinyshakespeare", accepts=("text",), tasks=("language",), chapter="transformers", kind="language",
    abilities=("classify", "write"),
    sources=("Gaba 7.7", "Gaba 7.10", "Groudiev 6.6", "Van Schependom 7.6.3", "Fleuret 5.3", "Lhotte 9.1"),
    grid={"layers": (2, 4), "heads": (1, 4)},
)
def gpt(
    data: Data, *,
    model: Family = "gpt", layers: Layers = 4, heads: Heads = 4, width: Width = 128, context: Context = 64, dropout: a.Dropout = 0.0,
    attention: Attention = "full", span: Span = None, experts: Experts = None, balance: Balance = None,
    lr: a.Rate = 3e-3, weight_decay: a.Decay = 0.1, schedule: a.ScheduleName = "warmup_cosine", clip_norm: a.Clip = 1.0,
    steps: Steps = 1000, batch: a.BatchSize = 16, ema: a.Average = None, patience: a.Patience = None,
    weights: Weights = None, lora: Rank = None,
    thaw: Annotated[bool, OnlyWith("lora"), "the embedding learns too: tokens that are new to the weights need it"] = True,
) -> Experiment:
    """A GPT that continues a text: Tiny Shakespeare, or one's own (--data book.txt); then `didact sample RUN --prompt "…"`.

    p(x_{t+1} | x_≤t) from blocks of causal attention. As it stands: validation loss 1.78 (one seed). On a GPU: --layers 6 --heads 6
    --width 384 --context 256 --dropout 0.2 --batch 64 --lr 1e-3 --steps 3000 --compile. Then to another text: --weights RUN, and --lora 8.
    --attention local, strided, topk, linear, differential: who looks at whom, of the tokens before; `didact sweep` compares them.
    --experts 8: a mixture of perceptrons, two for each token; `balance` in the loss is how uneven they are used, 1 at best.
    Published GPT-2: --weights model.safetensors --tokens gpt2 --layers 12 --heads 12 --width 768 --context 256.
    """
    data = windows(data, context, stride=max(1, context // 8))      # overlapping: each token is seen at many positions
    assert isinstance(data.encoder, StreamEncoder)
    if balance is not None and experts is None:
        raise UsageError(f"--balance {balance:g} spreads tokens over experts, and there are none; add --experts 8, or leave it out")
    network = decoder(model, data.classes, layers, heads, width, context, dropout, experts, attention, span or SPAN)
    shape = {
        "model": model, "layers": layers, "heads": heads, "width": width, "context": context, "experts": experts, "attention": attention,
        "span": reach(attention, span),
    }
    begin = beginning(network, weights, lora, "gpt", shape, data.labels)
    table = "wte" if model == "gpt" else "model.embed_tokens"
    notes = idle(attention, span, dropout) + thinned(network, lora, thaw=(table,) if thaw else ())
    return Experiment(
        data=data,
        objective=Autoregressive(network, rate=data.encoder.rate, balance=0.01 if balance is None else balance),
        optimizer=partial(AdamW, lr=lr, weight_decay=weight_decay, betas=(0.9, 0.99)),   # few tokens a batch: a longer memory of g²
        schedule=make_schedule(schedule),
        clip_norm=clip_norm, ema=ema, patience=patience, steps=steps, batch=batch, begin=begin, notes=notes,
    )


def idle(attention: str, span: int | None, dropout: float) -> tuple[str, ...]:
    """Of what is given, what does nothing to this form: in a sweep it may be meant for another."""
    notes = []
    if span is not None and attention not in SPANNED:
        notes.append(f"--span {span} is for --attention {', '.join(SPANNED)}: to {attention} attention it does nothing")
    if dropout and attention != "full":
        notes.append(f"--dropout {dropout:g} drops no weights of {attention} attention, as it would of full: hidden units alone")
    return tuple(notes)


def decoder(
    model: str, vocabulary: int, layers: int, heads: int, width: int, context: int, dropout: float, experts: int | None = None,
    attention: str = "full", span: int = SPAN,
) -> GPT | Llama:
    """The network of that family; LLaMA's heads share keys in pairs where their number allows."""
    if model == "gpt":
        return GPT(
            vocabulary, context=context, dim=width, layers=layers, heads=heads, dropout=dropout, experts=experts, attention=attention,
            span=span,
        )
    if attention != "full":
        raise UsageError(f"--model llama knows full attention alone, got --attention {attention}; leave it out, or use --model gpt")
    if dropout:
        raise UsageError(f"--model llama knows no dropout, got --dropout {dropout:g}; leave it out")
    groups = heads // 2 if heads % 2 == 0 else heads
    hidden = -(-8 * width // 24) * 8
    return Llama(
        vocabulary, context=context, dim=width, layers=layers, heads=heads, groups=groups, hidden=hidden, experts=experts
    )
