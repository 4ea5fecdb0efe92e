"""GPT: a decoder-only language model."""

from functools import partial
from typing import Annotated, Literal

from torch.optim import AdamW

from didact.data.core import Data
from didact.data.text.language_modeling import TextEncoder, with_context
from didact.errors import UsageError
from didact.layers.attention.variants import DEFAULT_WINDOW, WINDOW_VARIANTS, Variant, effective_window
from didact.models.text.gpt import GPT
from didact.models.text.llama import Llama
from didact.objectives.text.causal_lm import CausalLanguageModel
from didact.optim.schedule import make_schedule
from didact.options import Aliases, OnlyWith, Range
from didact.recipes import _hyperparameters as a
from didact.recipes._initial_weights import InitialWeights, LoRARank, apply_lora, make_weight_initializer
from didact.registry import recipe
from didact.training.experiment import Experiment

_Architecture = Annotated[
    Literal["gpt", "llama"],
    "architecture: GPT-2, or LLaMA (RMSNorm, rotary positions, SwiGLU, grouped-query attention)",
]
NumLayers = Annotated[int, Range(1, 100), "number of Transformer blocks", Aliases("layers")]
NumHeads = Annotated[int, Range(1), "number of attention heads", Aliases("heads")]
EmbedDim = Annotated[int, Range(1), "embedding dimension", Aliases("width", "d_model")]
ContextLength = Annotated[int, Range(2), "context length in tokens", Aliases("block_size")]
AttentionVariant = Annotated[
    Variant,
    "attention variant; strided alternates with local, linear uses a kernel feature map, tiled equals full (flash); "
    "--dropout drops attention weights of full alone",
]
Window = Annotated[
    int | None,
    Range(1),
    "window (local), stride (strided) or k (topk) of the attention variant; 8 if not given, unused by the others",
]
_NumExperts = Annotated[
    int | None,
    Range(2, 256),
    "mixture of experts: number of feed-forward experts per block, top-2 routing (one for all tokens if not given)",
]
_BalanceWeight = Annotated[
    float | None,
    Range(0),
    "weight of the load-balancing loss of the experts, of each micro-batch by itself (0.01 if not given)",
    Aliases("aux_loss_weight"),
]
TrainingSteps = Annotated[int, Range(1), "optimizer steps", Aliases("max_steps")]


@recipe(
    data="tinyshakespeare",
    accepts=("text",),
    tasks=("language",),
    chapter="transformers",
    kind="language",
    abilities=("classify", "write"),
    sources=("Gaba 7.7", "Gaba 7.10", "Groudiev 6.6", "Van Schependom 7.6.3", "Fleuret 5.3", "Lhotte 9.1"),
    grid={"num_layers": (2, 4), "num_heads": (1, 4)},
)
def gpt(
    data: Data,
    *,
    model: _Architecture = "gpt",
    num_layers: NumLayers = 4,
    num_heads: NumHeads = 4,
    embed_dim: EmbedDim = 128,
    context_length: ContextLength = 64,
    dropout: a.Dropout = 0.0,
    attention: AttentionVariant = "full",
    window: Window = None,
    num_experts: _NumExperts = None,
    balance_weight: _BalanceWeight = None,
    lr: a.LearningRate = 3e-3,
    weight_decay: a.WeightDecay = 0.1,
    schedule: a.Schedule = "warmup_cosine",
    clip_norm: a.ClipNorm = 1.0,
    steps: TrainingSteps = 1000,
    batch_size: a.BatchSize = 16,
    ema: a.EMADecay = None,
    patience: a.Patience = None,
    weights: InitialWeights = None,
    lora_rank: LoRARank = None,
    train_embedding: Annotated[
        bool,
        OnlyWith("lora_rank"),
        "with --lora-rank, train the embedding too: tokens that are new to the weights need it",
    ] = True,
) -> Experiment:
    """GPT or LLaMA: a decoder-only language model.

    p(x_{t+1} | x_≤t) from blocks of causal attention, on Tiny Shakespeare or your own text (--data book.txt); then
    `didact sample RUN --prompt "…"`. With its defaults: validation loss 1.78 (one seed). On a GPU: --num-layers 6
    --num-heads 6 --embed-dim 384 --context-length 256 --dropout 0.2 --batch-size 64 --lr 1e-3 --steps 3000 --compile.
    Fine-tune on another text: --weights RUN, with --lora-rank 8 by LoRA. Published GPT-2: --weights model.safetensors
    --tokens gpt2 --num-layers 12 --num-heads 12 --embed-dim 768 --context-length 256. --attention local, strided, topk,
    linear, differential: other kinds of attention; `didact sweep` compares them. --num-experts 8: a mixture of experts,
    two for each token; `balance` in the loss is how unevenly they are used, 1 at best.
    """
    # overlapping windows: each token is seen at many positions
    data = with_context(data, context_length, stride=max(1, context_length // 8))
    assert isinstance(data.encoder, TextEncoder)
    if balance_weight is not None and num_experts is None:
        raise UsageError(
            f"--balance-weight {balance_weight:g} is for a mixture of experts, and there is none; "
            "add --num-experts 8, or leave it out"
        )
    network = _build_decoder(
        model,
        data.num_classes,
        num_layers,
        num_heads,
        embed_dim,
        context_length,
        dropout,
        num_experts,
        attention,
        window or DEFAULT_WINDOW,
    )
    shape = {
        "model": model,
        "num_layers": num_layers,
        "num_heads": num_heads,
        "embed_dim": embed_dim,
        "context_length": context_length,
        "num_experts": num_experts,
        "attention": attention,
        "window": effective_window(attention, window),
    }
    initialize_weights = make_weight_initializer(network, weights, lora_rank, "gpt", shape, data.class_names)
    embedding_name = "wte" if model == "gpt" else "model.embed_tokens"
    notes = note_ignored_options(attention, window, dropout) + apply_lora(
        network, lora_rank, trainable_modules=(embedding_name,) if train_embedding else ()
    )
    return Experiment(
        data=data,
        objective=CausalLanguageModel(
            network,
            chars_per_token=data.encoder.chars_per_token,
            balance_weight=0.01 if balance_weight is None else balance_weight,
        ),
        # a longer average of g² than AdamW's 0.999: there are few tokens in a batch
        optimizer=partial(AdamW, lr=lr, weight_decay=weight_decay, betas=(0.9, 0.99)),
        schedule=make_schedule(schedule),
        clip_norm=clip_norm,
        ema=ema,
        patience=patience,
        steps=steps,
        batch_size=batch_size,
        initialize_weights=initialize_weights,
        notes=notes,
    )


def note_ignored_options(attention: str, window: int | None, dropout: float) -> tuple[str, ...]:
    """A note for each given option that this attention ignores: in a sweep it may be meant for another."""
    notes = []
    if window is not None and attention not in WINDOW_VARIANTS:
        notes.append(
            f"--window {window} is for --attention {', '.join(WINDOW_VARIANTS)}: to {attention} attention it does "
            "nothing"
        )
    if dropout and attention != "full":
        notes.append(
            f"--dropout {dropout:g} drops hidden units only: {attention} attention has no dropout of its weights"
        )
    return tuple(notes)


def _build_decoder(
    model: str,
    vocab_size: int,
    num_layers: int,
    num_heads: int,
    embed_dim: int,
    context_length: int,
    dropout: float,
    num_experts: int | None = None,
    attention: str = "full",
    window: int = DEFAULT_WINDOW,
) -> GPT | Llama:
    """The network of the model family; LLaMA's heads share keys and values in pairs if their number is even."""
    if model == "gpt":
        return GPT(
            vocab_size,
            context_length=context_length,
            embed_dim=embed_dim,
            num_layers=num_layers,
            num_heads=num_heads,
            dropout=dropout,
            num_experts=num_experts,
            attention=attention,
            window=window,
        )
    if attention != "full":
        raise UsageError(
            f"--model llama has only full attention, got --attention {attention}; leave it out, or use --model gpt"
        )
    if dropout:
        raise UsageError(f"--model llama has no dropout, got --dropout {dropout:g}; leave it out")
    num_kv_heads = num_heads // 2 if num_heads % 2 == 0 else num_heads
    ffn_dim = -(-8 * embed_dim // 24) * 8
    return Llama(
        vocab_size,
        context_length=context_length,
        embed_dim=embed_dim,
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        ffn_dim=ffn_dim,
        num_experts=num_experts,
    )
