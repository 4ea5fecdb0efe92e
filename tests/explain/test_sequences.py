"""`didact explain` on networks that read sequences."""

import json
from xml.etree import ElementTree

import pytest
import torch

import didact
from didact.cli.main import main
from didact.errors import UsageError
from didact.explain import compare_memory
from didact.explain.attention_maps import draw_attention_maps
from didact.explain.explain_run import explain_run
from didact.explain.head_ablation import record_attention
from didact.explain.sequences import SequenceExplanation
from didact.inference.evaluate import evaluate
from didact.models.text.bert import BERT
from didact.models.text.encoder_decoder import Transformer
from didact.models.text.gpt import GPT
from didact.models.text.llama import Llama
from didact.models.text.seq2seq import Seq2Seq
from didact.models.text.transformer_classifier import TransformerClassifier
from didact.registry import RECIPES
from didact.training.evaluation import evaluate_split
from didact.training.precision import Precision
from didact.training.restore import load_model, rebuild


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of each kind, trained for seconds."""
    folder = str(tmp_path_factory.mktemp("runs"))
    small_options = {"num_layers": 2, "num_heads": 2, "embed_dim": 16}
    return {
        "gpt": didact.train(
            RECIPES["gpt"], data="python_topics", context_length=16, steps=5, runs=folder, **small_options
        ),
        "text_transformer": didact.train(
            RECIPES["text_transformer"], steps=5, ffn_dim=16, runs=folder, **small_options
        ),
        "char_rnn": didact.train(
            RECIPES["char_rnn"], steps=5, hidden_size=8, num_layers=2, embed_dim=8, context_length=16, runs=folder
        ),
        "text_rnn": didact.train(RECIPES["text_rnn"], cell="gru", steps=5, hidden_size=8, embed_dim=8, runs=folder),
        "llama": didact.train(
            RECIPES["gpt"],
            model="llama",
            data="python_topics",
            context_length=16,
            steps=5,
            runs=folder,
            **small_options,
        ),
        "seq2seq": didact.train(
            RECIPES["seq2seq"], steps=120, batch_size=64, hidden_size=48, embed_dim=32, lr=8e-3, runs=folder
        ),
        "translate": didact.train(RECIPES["translate"], steps=5, ffn_dim=16, runs=folder, **small_options),
    }


@torch.no_grad()
def test_record_attention_equals_the_networks_attention_maps():
    torch.manual_seed(0)
    x = torch.randint(1, 23, (2, 7))
    small_options = {"embed_dim": 12, "num_layers": 2, "num_heads": 3}
    for network in (
        GPT(23, context_length=9, **small_options),
        TransformerClassifier(23, 2, ffn_dim=16, **small_options),
        TransformerClassifier(23, 2, ffn_dim=16, norm="post", **small_options),
        BERT(23, context_length=9, ffn_dim=16, **small_options),
    ):
        network.eval()
        with record_attention(network) as recorded_weights:
            out = network(x)
        torch.testing.assert_close(torch.stack(list(recorded_weights.values()), dim=1), network.attention_maps(x))
        assert torch.equal(network(x), out) and len(recorded_weights) == 2                    # no hook remains


@torch.no_grad()
def test_record_attention_of_grouped_queries_and_of_translators():
    torch.manual_seed(0)
    x, y = torch.randint(1, 23, (2, 7)), torch.randint(1, 23, (2, 5))
    llama = Llama(23, context_length=9, embed_dim=24, num_layers=2, num_heads=4, num_kv_heads=2, ffn_dim=16).eval()
    network = Transformer(23, 23, embed_dim=12, num_layers=2, num_heads=3, ffn_dim=16).eval()
    with record_attention(llama) as recorded_weights:
        llama(x)
    for a in recorded_weights.values():
        assert a.shape == (2, 4, 7, 7) and not a.triu(1).any()
        torch.testing.assert_close(a.sum(-1), torch.ones(2, 4, 7))
    with record_attention(network) as recorded_weights:
        network(x, y)
    sizes = {"encoder.0.self_attn": (7, 7), "decoder.1.self_attn": (5, 5), "decoder.1.multihead_attn": (5, 7)}
    assert len(recorded_weights) == 6 and all(
        recorded_weights[name].shape == (2, 3, *size) for name, size in sizes.items()
    )
    assert not recorded_weights["decoder.0.self_attn"].triu(1).any()
    for attention in ("bahdanau", "general", "dot", "concat"):
        rnn_translator = Seq2Seq(23, 23, attention=attention, embed_dim=6, hidden_size=8).eval()
        with record_attention(rnn_translator) as recorded_weights:
            rnn_translator(x, y)
        torch.testing.assert_close(recorded_weights["align"][:, 0], rnn_translator.forward_with_weights(x, y)[1])


METHODS = {
    "gpt": {"attention"},
    "llama": {"attention"},
    "text_transformer": {"attention"},
    "char_rnn": {"gates", "memory"},
    "text_rnn": {"gates", "memory"},
    "seq2seq": {"alignment", "gates", "memory"},
    "translate": {"attention", "alignment"},
}


@pytest.mark.parametrize(("name", "text", "tokens"), [
    ("gpt", "The class", list("The class")),
    ("text_transformer", "the story was good", ["the", "story", "was", "good"]),
    ("char_rnn", "The class", list("The class")),
    ("text_rnn", "the story was good", ["the", "story", "was", "good"]),
    ("llama", "The class", list("The class")),
    ("seq2seq", "twenty one", ["twenty", "one", "<eos>"]),
    ("translate", "twenty one", ["twenty", "one", "<eos>"]),
])
def test_explain_run_writes_page_and_figures_of_a_text(runs, name, text, tokens, tmp_path):
    result = explain_run(runs[name], [text], out_dir=tmp_path)
    (explanation,) = result["explained"]
    assert explanation["tokens"] == tokens and 0 < explanation["probability"] <= 1
    assert set(explanation["methods"]) == METHODS[name]
    assert all((tmp_path / figure.rpartition("/")[2]).is_file() for figure in explanation["figures"])
    page = (tmp_path / "index.html").read_text()
    assert text in page and page.count("<figure") >= 1
    if name == "translate":
        assert all(
            page.count(f">{part} {layer} head") == 2 for part in ("encoder", "decoder", "cross") for layer in (1, 2)
        )
        assert len(explanation["figures"]) == 7 and len(explanation["methods"]["attention"]) == 6
    if name in ("gpt", "llama"):
        assert page.count(">layer ") == 4 and len(explanation["methods"]["attention"]) == 2
        assert explanation["methods"]["attention"][0][0] in text
    if name == "char_rnn":
        assert set(explanation["methods"]["gates"]) == {"input", "forget", "candidate", "output"}
        assert explanation["methods"]["memory"][0] == 1 and len(explanation["methods"]["memory"]) == 9


def test_attention_maps_label_both_axes_with_tokens(runs, tmp_path):
    (explanation,) = explain_run(
        runs["text_transformer"], ["the story was good"], out_dir=tmp_path, methods=("attention",)
    )["explained"]
    first = ElementTree.parse(tmp_path / explanation["figures"][0].rpartition("/")[2])
    names = [t.text for t in first.iter("{http://www.w3.org/2000/svg}text") if t.get("class") == "tick"]
    heads = sum(t.text.startswith("layer 1 head") for t in first.iter("{http://www.w3.org/2000/svg}text"))
    assert heads == 2 and names == ["the", "story", "was", "good"] * 2 * heads
    (explanation,) = explain_run(runs["translate"], ["twenty one"], out_dir=tmp_path, methods=("attention",))[
        "explained"
    ]
    kinds = {}
    for figure in explanation["figures"]:
        text_elements = list(
            ElementTree.parse(tmp_path / figure.rpartition("/")[2]).iter("{http://www.w3.org/2000/svg}text")
        )
        ticks = [(t.get("transform") is not None, t.text) for t in text_elements if t.get("class") == "tick"]
        first = ticks[: len(ticks) // 2]  # of two heads
        kinds[text_elements[0].text.partition(" ")[0]] = tuple(
            [name for is_rotated, name in first if is_rotated == side] for side in (False, True)
        )
    source_tokens = ["twenty", "one", "<eos>"]
    assert (
        kinds["encoder"] == (source_tokens, source_tokens)
        and kinds["cross"][1] == source_tokens
        and kinds["cross"][0][-1] == "<eos>"
    )
    assert kinds["decoder"][0] == kinds["decoder"][1] == ["<bos>", *kinds["cross"][0][:-1]]


def test_long_attention_map_labels_some_tokens():
    svg_text = draw_attention_maps(
        "layer 1", torch.rand(5, 45, 30), [f"r{i}" for i in range(45)], [f"c{i}" for i in range(30)]
    )
    assert (
        svg_text.count(">r0<") == svg_text.count(">r42<") == 5
        and ">r1<" not in svg_text
        and svg_text.count(">c28<") == 5
        and ">c1<" not in svg_text
    )
    assert svg_text.count("<image") == 5 and "data:image/png" in svg_text


def test_attention_maps_color_negative_weights_apart(monkeypatch):
    pictures = []
    monkeypatch.setattr(
        "didact.explain.attention_maps.image_to_data_uri", lambda picture: pictures.append(picture) or ""
    )
    weights = torch.tensor([[[0.5, -0.5], [0.0, 0.25]], [[0.0, 0.0], [0.0, 0.0]]])
    draw_attention_maps("layer 1", weights, ["a", "b"], ["c", "d"])
    (red, _, blue), zero_color = pictures[0], torch.tensor([0xF4, 0xF3, 0xF4]) / 255
    assert red[0, 0] > 2 * blue[0, 0] and blue[0, 1] > 2 * red[0, 1]           # positive, negative
    torch.testing.assert_close(pictures[0][:, 1, 0], zero_color)
    torch.testing.assert_close(pictures[1], zero_color[:, None, None].expand(3, 2, 2))  # a head with zero weights
    draw_attention_maps("layer 1", weights.abs(), ["a", "b"], ["c", "d"])
    torch.testing.assert_close(pictures[2][:, 0, 0], pictures[2][:, 0, 1])
    assert pictures[2].sum(0)[0, 0] > pictures[2].sum(0)[1, 1] > pictures[2].sum(0)[1, 0]   # bright is large


def test_explanation_carries_the_prediction_of_the_model(runs, tmp_path):
    objective, data = load_model(runs["char_rnn"])
    _, columns = data.encoder.read(["The class"])
    with torch.no_grad():
        p = objective.classify({"x": columns["x"].long(), "length": columns["length"]})[0]
    explanation = explain_run(runs["char_rnn"], ["The class"], out_dir=tmp_path)["explained"][0]
    assert explanation["predicted"] == data.class_names[int(p.argmax())] and explanation[
        "probability"
    ] == pytest.approx(float(p.max()), rel=1e-4)


def test_seq2seq_explanation_decodes_number_words(runs, tmp_path):
    explanation = explain_run(runs["seq2seq"], ["seven hundred forty two"], out_dir=tmp_path)["explained"][0]
    objective, data = load_model(runs["seq2seq"])
    y = objective.translate({"x": data.encoder.encode(["seven hundred forty two"]).long()})[0].tolist()
    assert explanation["predicted"] == data.encoder.target.decode(y) and 0 < explanation["probability"] <= 1
    assert (
        explanation["methods"]["alignment"][0][1] == "seven"
        and len(explanation["methods"]["alignment"]) == y.index(3) + 1
    )


def test_head_ablation_equals_zeroed_output_weights(runs, tmp_path, capsys):
    result = explain_run(runs["gpt"], methods=("heads",), out_dir=tmp_path)
    objective, prepared = load_model(runs["gpt"])[0], rebuild(runs["gpt"], with_data=True)
    assert result["all_heads"]["loss"] == pytest.approx(evaluate(runs["gpt"])["validation"]["loss"], rel=1e-4)
    rows = {(row["attention"], row["head"]): row["loss"] for row in result["explained"]}
    assert set(rows) == {(f"layer {i}", j) for i in (1, 2) for j in (1, 2)}
    # head 2 of layer 1, by hand: its part of the output matrix is zero
    with torch.no_grad():
        objective.network.h[0].attn.c_proj.weight[8:] = 0
        split = prepared.experiment.data.validation
        expected_scores = objective.compute_metrics(
            evaluate_split(objective, split, batch_size=64, precision=Precision("fp32", torch.device("cpu"), objective))
        )
    assert (
        rows["layer 1", 2] == pytest.approx(expected_scores["loss"], rel=1e-5)
        and rows["layer 1", 2] != result["all_heads"]["loss"]
    )
    assert (tmp_path / "heads-loss.svg").is_file() and "layer 2 head 1 off" in (tmp_path / "index.html").read_text()
    assert main(["explain", str(runs["text_transformer"].folder), "--method", "heads", "--output", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "all heads:" in out and "layer 2 head 2 off:  loss" in out and "accuracy" in out


@pytest.mark.parametrize("name", ["gpt", "text_rnn", "seq2seq"])
def test_explain_without_inputs_takes_the_worst_test_examples(runs, name, capsys):
    assert main(["explain", str(runs[name].folder), "--json"]) == 0
    explanations = json.loads(capsys.readouterr().out)["explained"]
    assert len(explanations) == 6 and explanations[0]["input"].startswith("test example")
    assert "<pad>" not in explanations[0]["tokens"]
    assert main(["explain", str(runs[name].folder)]) == 0
    assert "figures" not in capsys.readouterr().out


@pytest.mark.parametrize(("options", "complaint"), [
    ({"methods": ("gates",)}, "no method for this network named 'gates'"),
    ({"label": "a"}, "--class does not apply: .* got --class a"),
    ({"inputs": [""]}, "needs at least one token, got"),
    ({"inputs": ["a"], "methods": ("heads",)}, "--method heads evaluates the validation split"),
    ({"methods": ("heads", "attention")}, "--method heads evaluates the validation split"),
])
def test_explain_run_refuses_bad_options(runs, options, complaint):
    with pytest.raises(UsageError, match=complaint):
        explain_run(runs["gpt"], **options)


def test_memory_of_a_translator_is_compared_with_other_runs(runs, tmp_path):
    result = explain_run(
        runs["seq2seq"], ["twenty one"], methods=("memory",), other_runs=[runs["char_rnn"]], out_dir=tmp_path
    )
    own_norms = explain_run(runs["seq2seq"], ["twenty one"], methods=("memory",), out_dir=tmp_path)["explained"][0][
        "methods"
    ]["memory"]
    assert result["explained"][0]["norms"] == pytest.approx(own_norms) and len(result["explained"]) == 2
    with pytest.raises(UsageError, match="has no recurrent layers: recipe 'gpt' builds none"):
        explain_run(runs["seq2seq"], ["twenty one"], methods=("memory",), other_runs=[runs["gpt"]], out_dir=tmp_path)


def test_memory_chart_and_json_have_the_norms_that_were_measured(tmp_path):
    norms = torch.tensor([1.0, 6e-21, 1e-299, 0.0], dtype=torch.float64)
    explanation = SequenceExplanation("a text", list("abcd"), ("e", 0.5), {"memory": norms}, "text")
    assert explanation.to_json(tmp_path)["methods"]["memory"] == [1.0, 6e-21, 1e-299, 0.0]
    chart = explanation.draw_chart("memory")
    hints = [t.text for t in ElementTree.fromstring(chart).iter("{http://www.w3.org/2000/svg}title") if t.text]
    assert [hint.split("\n")[1] for hint in hints if "\n" in hint] == [
        "norm 1", "norm 6.00 × 10⁻²¹", "norm 1.00 × 10⁻²⁹⁹", "norm –"
    ]
    (path,) = [p.get("d") for p in ElementTree.fromstring(chart).iter("{http://www.w3.org/2000/svg}path")]
    heights = [float(point.split()[1]) for point in path.lstrip("M").split("L")]
    # three of the four points, at heights in proportion to their logarithms
    assert len(heights) == 3 and (heights[1] - heights[0]) / (heights[2] - heights[0]) == pytest.approx(
        20.22 / 299, abs=0.002
    )


def test_compared_memory_has_the_norms_that_were_measured(runs, tmp_path, monkeypatch, capsys):
    """Geometric means over two texts, far below what float32 holds; a mean with a 0 is 0."""
    norms = {"char_rnn": [[1.0, 1e-20, 1e-100], [1.0, 1e-30, 0.0]], "text_rnn": [[1.0, 1e-3, 1e-6]] * 2}
    calls = iter(norms["char_rnn"] + norms["text_rnn"])
    monkeypatch.setattr(
        compare_memory, "compute_gradient_decay", lambda *_: torch.tensor(next(calls), dtype=torch.float64)
    )
    folders = [str(runs[name].folder) for name in norms]
    words = ["explain", folders[0], "the", "class", "--method", "memory", "--compare", folders[1]]
    assert main([*words, "--output", str(tmp_path), "--json"]) == 0
    explained = json.loads(capsys.readouterr().out)["explained"]
    assert explained[0]["norms"] == pytest.approx([1, 1e-25, 0], rel=1e-9, abs=0)
    assert explained[1]["norms"] == pytest.approx([1, 1e-3, 1e-6], rel=1e-9, abs=0)
    calls = iter(norms["char_rnn"] + norms["text_rnn"])
    assert main([*words, "--output", str(tmp_path)]) == 0
    first, second = capsys.readouterr().out.splitlines()[:2]
    assert first.endswith("below 1e-300 after 2 steps") and second.endswith("1e-06 after 2 steps")


def test_head_ablation_refuses_networks_without_heads(runs):
    with pytest.raises(UsageError, match="has no attention heads to ablate: recipe 'char_rnn' builds none"):
        explain_run(runs["char_rnn"], methods=("heads",))


def test_forecast_is_explained_by_gates_and_memory(tmp_path, capsys):
    """Values instead of tokens: standardized, as the network was trained on them."""
    options = {"steps": 5, "hidden_size": 6, "window": 9, "horizon": 2, "model": "lstm"}
    run = didact.train(RECIPES["forecast"], **options, runs=str(tmp_path), device="cpu")
    window = [0.0, 1.5, -2.0, 0.0, 3.0, 1.0, 0.0, -1.0, 0.0]
    explanation = explain_run(run, [",".join(map(str, window))], out_dir=tmp_path / "page")["explained"][0]
    assert (
        explanation["tokens"][:3] == ["0", "1.5", "-2"]
        and explanation["probability"] is None
        and set(explanation["methods"]) == {"gates", "memory"}
    )
    objective, _ = load_model(run)
    with torch.no_grad():
        x = torch.tensor(window)[None, :, None]
        gate_values = objective.network.reader.forward_with_gates(objective.scaler.standardize_window({"x": x}))[1][-1]
        forecast = objective.forecast({"x": x})[0]
    assert explanation["methods"]["gates"]["forget"] == pytest.approx(gate_values["forget"].mean().item(), rel=1e-5)
    assert (
        explanation["predicted"] == " ".join(f"{value:.4g}" for value in forecast.tolist())
        and len(explanation["methods"]["memory"]) == 9
    )
    assert main(["explain", str(run.folder)]) == 0
    assert "%" not in capsys.readouterr().out and "9 values" in (run.folder / "explanations" / "index.html").read_text(
        encoding="utf-8"
    )
