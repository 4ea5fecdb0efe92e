"""Sequence models explained: attention, alignment, gates over time, and how far back a gradient reaches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from didact import files
from didact.adaptation.head_pruning import find_attention_layers
from didact.charts import svg
from didact.charts.html import Html, tag
from didact.charts.svg import Cell, Series
from didact.data.core import Batch, Data, Given, TensorSplit
from didact.data.text.masked_lm import MASK_TOKEN
from didact.data.text.parallel_texts import PairEncoder
from didact.data.text.tokenizers import BOS_ID, Tokenizer
from didact.errors import UsageError, suggest_nearest
from didact.explain.attention_maps import draw_attention_maps
from didact.explain.gradient_memory import (
    RecurrentReader,
    compute_gates,
    compute_gradient_decay,
    find_reader,
    record_inputs,
)
from didact.explain.head_ablation import make_layer_titles, record_attention
from didact.explain.page import make_standalone_svg
from didact.layers.attention.additive import BahdanauAttention, LuongAttention
from didact.layers.attention.multihead import CrossAttention
from didact.layers.recurrent.cells import Gates
from didact.objectives.abilities import CanClassify, CanFillMask, CanForecast, CanTagTokens, CanTranslate
from didact.objectives.base import Objective
from didact.report.page import make_document, make_note_list, make_section
from didact.run import Run

MIN_CHARTED_NORM = 1e-300    # float64 ends at 2e-308: smaller norms are 0 or have lost their digits
NUM_WORST = 6     # test examples that are explained when no input is given

METHOD_NOTES = {
    "attention": "attention: queries as rows, keys as columns, the first token above and to the left; bright is large, "
    "or where weights can be negative (differential attention) red is positive and blue negative. Cross: the target "
    "attends to the source",
    "alignment": "alignment: the source tokens that each target token attends to; of several heads the mean (Gaba 6.2, "
    "7.4)",
    "gates": "gates: the mean over a layer's units at each step, 0 closed, 1 open; candidates are from −1 to 1 (Gaba "
    "5.5, 5.6)",
    "memory": "memory: ‖∂s_T/∂s_{T−d}‖, how much the last state changes with the state d steps before (Gaba 5.4); "
    "norms below 1e-300 are left out",
}


def _make_visible(tokens: Sequence[str]) -> list[str]:
    """Spaces and line ends as visible signs."""
    return [token.replace(" ", "␣").replace("\n", "↵") for token in tokens]


@dataclass(frozen=True)
class _AttentionLayer:
    """The weights of one attention layer, (heads, T, S), and its tokens."""

    title: str
    weights: Tensor
    query_tokens: list[str]    # T
    key_tokens: list[str]      # S

    @property
    def chart(self) -> Html:
        return draw_attention_maps(
            self.title, self.weights, _make_visible(self.query_tokens), _make_visible(self.key_tokens)
        )

    @property
    def top_tokens(self) -> list[str]:
        """For each head the key with the largest mean weight."""
        return [self.key_tokens[k] for k in self.weights.mean(-2).argmax(-1).tolist()]


@dataclass(frozen=True)
class SequenceExplanation:
    """The explanation of one text or window: its tokens, the prediction, and the result of each method."""

    name: str
    tokens: list[str]
    prediction: tuple[str, float | None]      # and its probability, which forecasts do not have
    results: dict[str, Any]
    file_stem: str
    output_tokens: list[str] = field(default_factory=list)

    @property
    def summary(self) -> str:
        predicted, p = self.prediction
        # a text without a mask has no prediction
        text = (
            f" · predicted {predicted!r} ({100 * p:.1f} %)"
            if predicted and p is not None
            else f" · predicted {predicted}"
            if predicted
            else ""
        )
        return f"{len(self.tokens)} {'values' if p is None else 'tokens'}{text}"

    def to_json(self, folder: Path) -> dict[str, Any]:
        common = {
            "input": self.name,
            "tokens": self.tokens,
            "predicted": self.prediction[0],
            "probability": self.prediction[1],
        }
        return common | {
            "methods": {name: self.summarize(name) for name in self.results},
            "figures": [str(folder / f) for f in self.figure_names],
        }

    def summarize(self, name: str) -> Any:
        """As JSON: each head's top key; each output token's source token; mean gates; the gradient norms."""
        if name == "attention":
            return [layer.top_tokens for layer in self.results[name]]
        if name == "alignment":
            return [
                [token, self.tokens[k]]
                for token, k in zip(self.output_tokens, self.results[name].argmax(-1).tolist(), strict=True)
            ]
        if name == "gates":
            return {gate: float(values.mean()) for gate, values in self.results[name].items()}
        return self.results[name].tolist()

    @property
    def figure_names(self) -> list[str]:
        """An SVG for each attention layer, and for each chart."""
        layers = len(self.results.get("attention", ()))
        charts = [f"{self.file_stem}-{name}.svg" for name in self.results if name != "attention"]
        return [f"{self.file_stem}-attention-{i + 1}.svg" for i in range(layers)] + charts

    def draw_chart(self, name: str) -> Html:
        if name == "alignment":
            row_labels, column_labels = _make_visible(self.output_tokens), _make_visible(self.tokens)
            cells = [
                [
                    Cell(a, "", f"{row} from {column}: {100 * a:.1f} %")
                    for a, column in zip(weights, column_labels, strict=True)
                ]
                for weights, row in zip(self.results[name].tolist(), row_labels, strict=True)
            ]
            return svg.draw_heatmap("Alignment", cells, row_labels, column_labels, x="source", y="target")
        if name == "gates":
            series = [
                Series(gate, list(range(len(self.tokens))), values.mean(1).tolist(), color=k)
                for k, (gate, values) in enumerate(self.results[name].items())
            ]
            return svg.draw_chart(
                "Gates over time, mean over units", series, x="token", tick_names=_make_visible(self.tokens)
            )
        norms = get_charted_norms(self.results[name])
        norm_series = Series("norm", list(range(len(norms))), norms)
        return svg.draw_chart("Gradient norm over distance", [norm_series], x="tokens before the last", log_y=True)


def get_charted_norms(norms: Tensor) -> list[float]:
    """Norms for a logarithmic chart, which leaves out those below MIN_CHARTED_NORM: NaN in their place."""
    return torch.where(norms < MIN_CHARTED_NORM, torch.nan, norms).tolist()


def list_methods(network: nn.Module) -> tuple[str, ...]:
    """The methods that a network supports: none for most networks."""
    methods = ["attention"] if find_attention_layers(network) else []
    methods += ["alignment"] if _find_cross_attention(network) else []
    return (*methods, "gates", "memory") if find_reader(network) is not None else tuple(methods)


def resolve_methods(requested: Sequence[str], available: Sequence[str]) -> list[str]:
    if "all" in requested:
        return list(available)
    for name in requested:
        if name not in available:
            raise UsageError(f"no method for this network named {name!r}; {suggest_nearest(name, [*available, 'all'])}")
    return list(dict.fromkeys(requested))


@torch.no_grad()
def explain_sequence(
    objective: Objective, data: Data, batch: Batch, name: str, methods: Sequence[str], file_stem: str
) -> SequenceExplanation:
    """Explain one text or window of a series, a batch of one example without padding."""
    network, x = objective.get_submodule("network"), batch["x"]
    reader = find_reader(network)
    if isinstance(objective, CanForecast):
        assert reader is not None
        with record_inputs(reader) as inputs:
            forecast = objective.forecast(batch)[0]
        return SequenceExplanation(
            name,
            _format_values(x[0, :, 0]),
            (" ".join(_format_values(forecast)), None),
            _explain_recurrent(reader, inputs[0][0], methods),
            file_stem,
        )
    vocab = (*data.class_names, MASK_TOKEN) if data.task == "language" else data.feature_names
    tokens, output_tokens = [vocab[k] for k in x[0].tolist()], list[str]()
    if isinstance(objective, CanTranslate) and isinstance(data.encoder, PairEncoder):
        y = objective.translate(batch)
        y = y[:, : int((y != 0).sum())]
        tokens, output_tokens = (
            _get_token_strings(data.encoder.source, x[0]),
            _get_token_strings(data.encoder.target, y[0]),
        )
        with record_attention(network) as attention:
            prediction = data.encoder.target.decode(y[0].tolist()), _compute_sequence_probability(network, x, y)
    elif isinstance(objective, CanTagTokens | CanFillMask):
        with record_attention(network) as attention:
            p = (objective.tag if isinstance(objective, CanTagTokens) else objective.fill)(batch)[0]
        best, label = p[p.sum(-1) > 0].max(-1)
        prediction = " ".join(data.class_names[k] for k in label.tolist()), float(best.prod())
    else:
        assert isinstance(objective, CanClassify)
        with record_attention(network) as attention:
            p = objective.classify(batch)[0]
        prediction = data.class_names[int(p.argmax())], float(p.max())
    weights_by_layer = {layer_name: a[0].float().cpu() for layer_name, a in attention.items()}
    results: dict[str, Any] = {}
    if "attention" in methods:
        results["attention"] = _make_attention_layers(network, weights_by_layer, tokens, output_tokens)
    if "alignment" in methods:
        # (T, S)
        results["alignment"] = torch.stack(
            [weights_by_layer[layer_name].mean(0) for layer_name in _find_cross_attention(network)]
        ).mean(0)
    if reader is not None:
        embedding = network.get_submodule("source" if output_tokens else "embedding")
        results |= _explain_recurrent(reader, cast(Tensor, embedding(x))[0], methods)
    return SequenceExplanation(name, tokens, prediction, results, file_stem, output_tokens)


def _explain_recurrent(reader: RecurrentReader, x: Tensor, methods: Sequence[str]) -> dict[str, Any]:
    """The requested ones of gates and memory, while the network reads x, (T, D)."""
    functions: dict[str, Callable[[RecurrentReader, Tensor], Any]] = {
        "gates": _compute_shown_gates,
        "memory": compute_gradient_decay,
    }
    return {method: functions[method](reader, x) for method in methods if method in functions}


def _format_values(values: Tensor) -> list[str]:
    return [f"{value:.4g}" for value in values.tolist()]


def _get_token_strings(tokenizer: Tokenizer, ids: Tensor) -> list[str]:
    """Each token as text; special tokens, such as <eos>, by their names."""
    return [tokenizer.decode([k]) or tokenizer.vocab[k] for k in ids.tolist()]


def _compute_sequence_probability(network: nn.Module, x: Tensor, y: Tensor) -> float:
    """Π_t p(y_t | y_<t, x) of one sentence, (1, S) and (1, T), with teacher forcing on its own output."""
    decoder_input = torch.cat([torch.full_like(y[:, :1], BOS_ID), y[:, :-1]], dim=1)
    return float(network(x, decoder_input).log_softmax(-1).gather(-1, y[..., None]).sum().exp())


def _make_attention_layers(
    network: nn.Module, weights_by_layer: dict[str, Tensor], input_tokens: list[str], output_tokens: list[str]
) -> list[_AttentionLayer]:
    """Every attention layer with its tokens: a decoder attends to its own inputs, and across to the source."""
    attention_layers, decoder_tokens = find_attention_layers(network), ["<bos>", *output_tokens[:-1]]

    def get_both_tokens(name: str) -> tuple[list[str], list[str]]:
        if isinstance(attention_layers[name], CrossAttention):
            return output_tokens, input_tokens
        return (decoder_tokens, decoder_tokens) if name.startswith("decoder.") else (input_tokens, input_tokens)

    return [
        _AttentionLayer(title, weights_by_layer[name], *get_both_tokens(name))
        for name, title in make_layer_titles(network).items()
    ]


def _find_cross_attention(network: nn.Module) -> list[str]:
    """The names of the layers that attend from the target to the source."""
    return [
        name
        for name, m in network.named_modules()
        if isinstance(m, CrossAttention | BahdanauAttention | LuongAttention)
    ]


def _compute_shown_gates(reader: RecurrentReader, x: Tensor) -> Gates:
    """The gates without the states; for a plain RNN, which has no gates, the absolute value of its state."""
    gate_values = {name: values.cpu() for name, values in compute_gates(reader, x).items()}
    return {name: values for name, values in gate_values.items() if name not in ("cell", "h")} or {
        "|h|": gate_values["h"].abs()
    }


def read_texts(data: Data, inputs: Sequence[Given]) -> list[tuple[str, Batch]]:
    """Each text as a batch of its own, without padding."""
    assert data.encoder is not None
    names, columns = data.encoder.read(inputs)
    split, named_batches = TensorSplit(columns, data.encoder.decoders), []
    for k, name in enumerate(names):
        batch = split.batch(torch.tensor([k]))
        length = int(batch["length"]) if "length" in batch else max(1, int((batch["x"] != 0).sum()))
        named_batches.append((name, batch if data.kind == "series" else {**batch, "x": batch["x"][:, :length]}))
    return named_batches


def load_worst_sequences(run: Run) -> list[tuple[str, Batch]]:
    """The tokens, or the values, of the test examples with the largest losses."""
    examples = run.load("examples") if run.has("examples.safetensors") else {}
    if not {"worst", "worst_x"} <= examples.keys():
        raise UsageError(
            f"{run.folder} keeps no test examples to explain: finish it with didact resume, or give inputs"
        )
    is_series, is_running_text = run.metadata["data"]["kind"] == "series", run.metadata["data"]["task"] == "language"
    named_batches = []
    for name, row, x in zip(
        run.example_names("worst")[:NUM_WORST],
        examples["worst"][:NUM_WORST, None],
        examples["worst_x"][:NUM_WORST],
        strict=True,
    ):
        x = x if is_series else x.long()
        # 0 is padding for classifiers, but a token in running text
        length = len(x) if is_series or is_running_text else max(1, int((x != 0).sum()))
        named_batches.append((name, {"x": x[None, :length], "row": row}))
    return named_batches


def write_sequence_page(folder: Path, metadata: Any, readings: Sequence[SequenceExplanation]) -> Path:
    """Write index.html with all charts, and each chart as a file."""
    sections = []
    for reading in readings:
        parts: list[Html] = []
        for layer, file in zip(reading.results.get("attention", ()), reading.figure_names, strict=False):
            files.write_text(folder / file, make_standalone_svg(layer.chart))
            parts.append(tag("figure", layer.chart, class_="wide"))
        for name in (name for name in reading.results if name != "attention"):
            files.write_text(folder / f"{reading.file_stem}-{name}.svg", make_standalone_svg(reading.draw_chart(name)))
            parts.append(tag("figure", reading.draw_chart(name), class_="wide"))
        sections.append(
            make_section(reading.name, *parts, lead=f"{reading.summary}: {' '.join(_make_visible(reading.tokens))}")
        )
    data_suffix = f" on {metadata['data']['name']}"
    files.write_text(
        folder / "index.html",
        make_document(
            f"Explanations: {metadata['recipe']}{data_suffix}",
            tag(
                "header",
                tag("p", "didact · explanations", class_="overline"),
                tag("h1", metadata["recipe"], tag("span", data_suffix)),
            ),
            make_section("How to read this page", make_note_list([METHOD_NOTES[name] for name in readings[0].results])),
            *sections,
        ),
    )
    return folder / "index.html"
