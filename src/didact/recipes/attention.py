"""Transformers that read: a text's kind, its hidden words, its translation."""

from functools import partial
from typing import Annotated

from torch.optim import AdamW

from didact.data.core import Data
from didact.data.hiding import hiding
from didact.data.pairs import LONGEST, PairEncoder
from didact.data.sequences import windows
from didact.data.text import in_order
from didact.data.text_augment import augmenting
from didact.errors import UsageError
from didact.layers.forms import SPAN, reach
from didact.models.bert import MaskedBERT
from didact.models.text_encoder import Placed, TextEncoder
from didact.models.transformer import Transformer
from didact.objectives.masked import MaskedLanguage
from didact.objectives.supervised import likelihood_of, supervised
from didact.objectives.translation import Translate
from didact.optim.named import make
from didact.optim.schedule import make_schedule
from didact.options import Range
from didact.recipes import arguments as a
from didact.recipes.adapting import Rank, Weights, beginning, thinned
from didact.recipes.common import balanced, budget
from didact.recipes.embeddings import Embeddings, embedding
from didact.recipes.gpt import Attention, Context, Heads, Layers, Span, Steps, Width, idle
from didact.registry import recipe
from didact.train.experiment import Experiment

Hidden = Annotated[int, Range(1), "units of each perceptron"]


class Fluent(Translate):
    """Chosen by its loss: of long sentences hardly one is exact."""

    watch, better = "loss", "lower"  # type: ignore[assignment]


@recipe(
    data="verdicts", accepts=("text",), tasks=("binary", "multiclass", "regression"), chapter="transformers",
    abilities=("classify", "regress", "draw"), sources=("Gaba 6.12", "Gaba 7.8", "Gaba 7.9", "Fleuret 5.3", "Lhotte 8.2"),
    grid={"norm": ("pre", "post"), "layers": (2, 4), "heads": (2, 4)},
)
def text_transformer(
    data: Data, *,
    layers: Layers = 4, heads: Heads = 4, width: Width = 128, hidden: Hidden = 512,
    norm: Annotated[Placed, "whether norms stand before the sublayers or behind the sums"] = "pre",
    attention: Attention = "full", span: Span = None,
    vocabulary: Annotated[int, Range(1), "most common words that are told apart"] = 10_000,
    length: Annotated[int, Range(1, 1000), "words that are read of each text"] = 256,
    dropout: a.Dropout = 0.1, smoothing: a.Smoothing = 0.0, balance: a.Balance = "none",
    augment: a.AugmentWords = (),
    lr: a.Rate = 5e-4, weight_decay: a.Decay = 0.01, schedule: a.ScheduleName = "warmup_cosine", clip_norm: a.Clip = 1.0,
    patience: a.Patience = None, epochs: a.OptionalEpochs = None, batch: a.OptionalBatch = None,
    weights: Weights = None, lora: Rank = None, embeddings: Embeddings = None, embedding_std: a.EmbeddingStd = None,
) -> Experiment:
    """A Transformer encoder that classifies texts: reviews (--data rt_polarity, imdb), or one's own CSV with --text and --target.

    x = √D E[words] + PE, layers × [x + attention(LN x), x + perceptron(LN x)], and softmax(W mean_t LN(x_t)).
    `didact sweep text_transformer attention=full,local,linear,differential` compares forms of attention.
    """
    data = in_order(data, vocabulary=vocabulary, length=length)
    data, weighed = balanced(data, balance)
    epochs, batch, notes = budget(data, epochs, batch)
    likelihood = likelihood_of(data, smoothing=smoothing, weights=weighed)
    network = TextEncoder(
        len(data.names), likelihood.outputs, dim=width, layers=layers, heads=heads, hidden=hidden, context=length, norm=norm,
        dropout=dropout, embedding_std=embedding_std, attention=attention, span=span or SPAN,
    )
    shape = {
        "layers": layers, "heads": heads, "width": width, "hidden": hidden, "length": length, "norm": norm, "attention": attention,
        "span": reach(attention, span),
    }
    if weights is not None and embeddings is not None:
        raise UsageError(f"--weights {weights} brings an embedding of its own; leave out --embeddings {embeddings}")
    begin = beginning(network, weights, lora, "text_transformer", shape, data.names) or embedding(network.embedding, data.names, embeddings)
    notes += idle(attention, span, dropout) + thinned(network, lora, thaw=("head",))
    return Experiment(
        data=data,
        objective=supervised(network, likelihood),
        optimizer=make("adamw", lr=lr, weight_decay=weight_decay),
        schedule=make_schedule(schedule),
        augment=augmenting(augment),
        clip_norm=clip_norm, patience=patience, epochs=epochs, batch=batch, begin=begin, notes=notes,
    )


@recipe(
    data="python_topics", accepts=("text",), tasks=("language",), chapter="transformers", abilities=("fill",), kind="language",
    sources=("Gaba 7.6", "Groudiev 6.6", "Van Schependom 7.6.2", "Fleuret 5.3"),
)
def bert(
    data: Data, *,
    layers: Layers = 4, heads: Heads = 4, width: Width = 128, hidden: Hidden = 512, context: Context = 64, dropout: a.Dropout = 0.0,
    share: Annotated[float, Range(0.01, 0.9), "share of the tokens that are hidden"] = 0.15,
    cut: Annotated[float, Range(0, 1), "share of the windows that are cut into pieces, so that short texts can be filled in too"] = 0.5,
    lr: a.Rate = 2e-3, weight_decay: a.Decay = 0.01, schedule: a.ScheduleName = "warmup_cosine", clip_norm: a.Clip = 1.0,
    steps: Steps = 2000, batch: a.BatchSize = 32,
) -> Experiment:
    """BERT's pretraining on a text of one's own (--data book.txt): hide 15 % of the tokens and guess them from both sides.

    min −Σ_{i ∈ M} log p(x_i | x without M); of M 80 % become the mask, 10 % another token, 10 % stay. Then
    `didact predict RUN "the cat <mask> on"` (best with --tokens words or bpe), and `didact explain RUN` for its attention.
    """
    data = hiding(windows(data, context, stride=max(1, context // 8)))
    network = MaskedBERT(data.classes + 2, context=context, dim=width, layers=layers, heads=heads, hidden=hidden, dropout=dropout)
    return Experiment(
        data=data,
        objective=MaskedLanguage(network, data.classes, share=share, cut=cut),
        optimizer=make("adamw", lr=lr, weight_decay=weight_decay),
        schedule=make_schedule(schedule),
        clip_norm=clip_norm, steps=steps, batch=batch,
    )


@recipe(
    data="number_words", accepts=("pairs",), tasks=("translation",), chapter="transformers", abilities=("translate",), kind="translation",
    sources=("Gaba 7.3", "Gaba 7.4", "Groudiev 6.6", "Van Schependom 7.6.4", "Fleuret 5.3", "Lhotte 8.2"),
    grid={"layers": (1, 2), "heads": (2, 4)},
)
def translate(
    data: Data, *,
    layers: Layers = 2, heads: Heads = 4, width: Width = 128, hidden: Hidden = 512, dropout: a.Dropout = 0.1,
    smoothing: a.Smoothing = 0.0,
    lr: a.Rate = 1e-3, weight_decay: a.Decay = 0.01, schedule: a.ScheduleName = "warmup_cosine", clip_norm: a.Clip = 1.0,
    epochs: a.Epochs = 8, batch: a.BatchSize = 128,
) -> Experiment:
    """The Transformer of 2017: number words to digits, or translations (--data multi30k_fr, multi30k_de, pairs.tsv).

    encoder: layers × [attention, perceptron]; decoder: layers × [causal attention, attention to what was read, perceptron].
    """
    pairs = data.encoder
    assert isinstance(pairs, PairEncoder)
    network = Transformer(
        len(pairs.source.names), len(pairs.target.names), dim=width, layers=layers, heads=heads, hidden=hidden, dropout=dropout,
        context=LONGEST,
    )
    return Experiment(
        data=data,
        objective=Fluent(network, length=pairs.mean, longest=pairs.longest, spell=pairs.spell, smoothing=smoothing),
        optimizer=partial(AdamW, lr=lr, weight_decay=weight_decay, betas=(0.9, 0.98)),   # as the paper has them
        schedule=make_schedule(schedule),
        clip_norm=clip_norm, epochs=epochs, batch=batch,
    )
