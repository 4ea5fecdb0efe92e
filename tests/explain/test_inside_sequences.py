"""`didact explain` on networks that read tokens in their order."""

import json
from xml.etree import ElementTree

import pytest
import torch

import didact
from didact.cli.main import main
from didact.errors import UsageError
from didact.explain.heads import watched
from didact.explain.maps import attention_maps
from didact.explain.runs import explain
from didact.models.bert import BERT
from didact.models.gpt import GPT
from didact.models.llama import Llama
from didact.models.seq2seq import Seq2Seq
from didact.models.text_encoder import TextEncoder
from didact.models.transformer import Transformer
from didact.registry import RECIPES
from didact.train.evaluation import judge
from didact.train.precision import Precision
from didact.train.session import evaluate, rebuild, restored


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of each kind, seconds of training each."""
    to = str(tmp_path_factory.mktemp("runs"))
    small = {"layers": 2, "heads": 2, "width": 16}
    return {
        "gpt": didact.train(RECIPES["gpt"], data="python_topics", context=16, steps=5, runs=to, **small),
        "text_transformer": didact.train(RECIPES["text_transformer"], steps=5, hidden=16, runs=to, **small),
        "char_rnn": didact.train(RECIPES["char_rnn"], steps=5, hidden=8, layers=2, width=8, context=16, runs=to),
        "text_rnn": didact.train(RECIPES["text_rnn"], cell="gru", steps=5, hidden=8, width=8, runs=to),
        "llama": didact.train(RECIPES["gpt"], model="llama", data="python_topics", context=16, steps=5, runs=to, **small),
        "seq2seq": didact.train(RECIPES["seq2seq"], steps=120, batch=64, hidden=48, width=32, lr=8e-3, runs=to),
        "translate": didact.train(RECIPES["translate"], steps=5, hidden=16, runs=to, **small),
    }


@torch.no_grad()
def test_what_is_watched_is_what_the_networks_say_themselves():
    torch.manual_seed(0)
    x = torch.randint(1, 23, (2, 7))
    small = {"dim": 12, "layers": 2, "heads": 3}
    for network in (
        GPT(23, context=9, **small), TextEncoder(23, 2, hidden=16, **small), TextEncoder(23, 2, hidden=16, norm="post", **small),
        BERT(23, context=9, hidden=16, **small),
    ):
        network.eval()
        with watched(network) as seen:
            out = network(x)
        torch.testing.assert_close(torch.stack(list(seen.values()), dim=1), network.attention_maps(x))
        assert torch.equal(network(x), out) and len(seen) == 2                    # nothing is left behind


@torch.no_grad()
def test_shared_keys_and_a_translator_are_watched_too():
    torch.manual_seed(0)
    x, y = torch.randint(1, 23, (2, 7)), torch.randint(1, 23, (2, 5))
    llama = Llama(23, context=9, dim=24, layers=2, heads=4, groups=2, hidden=16).eval()
    network = Transformer(23, 23, dim=12, layers=2, heads=3, hidden=16).eval()
    with watched(llama) as seen:
        llama(x)
    for a in seen.values():
        assert a.shape == (2, 4, 7, 7) and not a.triu(1).any()
        torch.testing.assert_close(a.sum(-1), torch.ones(2, 4, 7))
    with watched(network) as seen:
        network(x, y)
    sizes = {"encoder.0.self_attn": (7, 7), "decoder.1.self_attn": (5, 5), "decoder.1.multihead_attn": (5, 7)}
    assert len(seen) == 6 and all(seen[name].shape == (2, 3, *size) for name, size in sizes.items())
    assert not seen["decoder.0.self_attn"].triu(1).any()
    for attention in ("bahdanau", "general", "dot", "concat"):
        old = Seq2Seq(23, 23, attention=attention, width=6, hidden=8).eval()
        with watched(old) as seen:
            old(x, y)
        torch.testing.assert_close(seen["align"][:, 0], old.look(x, y)[1])


METHODS = {
    "gpt": {"attention"}, "llama": {"attention"}, "text_transformer": {"attention"}, "char_rnn": {"gates", "memory"},
    "text_rnn": {"gates", "memory"}, "seq2seq": {"alignment", "gates", "memory"}, "translate": {"attention", "alignment"},
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
def test_a_page_and_figures_of_ones_own_text(runs, name, text, tokens, tmp_path):
    found = explain(runs[name], [text], to=tmp_path)
    (one,) = found["explained"]
    assert one["tokens"] == tokens and 0 < one["probability"] <= 1
    assert set(one["methods"]) == METHODS[name]
    assert all((tmp_path / figure.rpartition("/")[2]).is_file() for figure in one["figures"])
    page = (tmp_path / "index.html").read_text()
    assert text in page and page.count("<figure") >= 1
    if name == "translate":
        assert all(page.count(f">{part} {layer} head") == 2 for part in ("encoder", "decoder", "across") for layer in (1, 2))
        assert len(one["figures"]) == 7 and len(one["methods"]["attention"]) == 6
    if name in ("gpt", "llama"):
        assert page.count(">layer ") == 4 and len(one["methods"]["attention"]) == 2
        assert one["methods"]["attention"][0][0] in text
    if name == "char_rnn":
        assert set(one["methods"]["gates"]) == {"input", "forget", "candidate", "output"}
        assert one["methods"]["memory"][0] == 1 and len(one["methods"]["memory"]) == 9


def test_attention_maps_name_the_tokens_at_both_axes(runs, tmp_path):
    (one,) = explain(runs["text_transformer"], ["the story was good"], to=tmp_path, methods=("attention",))["explained"]
    first = ElementTree.parse(tmp_path / one["figures"][0].rpartition("/")[2])
    names = [t.text for t in first.iter("{http://www.w3.org/2000/svg}text") if t.get("class") == "tick"]
    heads = sum(t.text.startswith("layer 1 head") for t in first.iter("{http://www.w3.org/2000/svg}text"))
    assert heads == 2 and names == ["the", "story", "was", "good"] * 2 * heads
    (one,) = explain(runs["translate"], ["twenty one"], to=tmp_path, methods=("attention",))["explained"]
    kinds = {}
    for figure in one["figures"]:
        drawn = list(ElementTree.parse(tmp_path / figure.rpartition("/")[2]).iter("{http://www.w3.org/2000/svg}text"))
        ticks = [(t.get("transform") is not None, t.text) for t in drawn if t.get("class") == "tick"]
        first = ticks[: len(ticks) // 2]                                                    # of two heads
        kinds[drawn[0].text.partition(" ")[0]] = tuple([name for turned, name in first if turned == side] for side in (False, True))
    read = ["twenty", "one", "<eos>"]
    assert kinds["encoder"] == (read, read) and kinds["across"][1] == read and kinds["across"][0][-1] == "<eos>"
    assert kinds["decoder"][0] == kinds["decoder"][1] == ["<bos>", *kinds["across"][0][:-1]]


def test_a_long_map_names_some_of_its_tokens():
    drawn = attention_maps("layer 1", torch.rand(5, 45, 30), [f"r{i}" for i in range(45)], [f"c{i}" for i in range(30)])
    assert drawn.count(">r0<") == drawn.count(">r42<") == 5 and ">r1<" not in drawn and drawn.count(">c28<") == 5 and ">c1<" not in drawn
    assert drawn.count("<image") == 5 and "data:image/png" in drawn


def test_weights_below_zero_are_drawn_apart_from_those_above(monkeypatch):
    drawn = []
    monkeypatch.setattr("didact.explain.maps.inline", lambda picture: drawn.append(picture) or "")
    weights = torch.tensor([[[0.5, -0.5], [0.0, 0.25]], [[0.0, 0.0], [0.0, 0.0]]])
    attention_maps("layer 1", weights, ["a", "b"], ["c", "d"])
    (red, _, blue), none = drawn[0], torch.tensor([0xF4, 0xF3, 0xF4]) / 255
    assert red[0, 0] > 2 * blue[0, 0] and blue[0, 1] > 2 * red[0, 1]           # what adds, what takes away
    torch.testing.assert_close(drawn[0][:, 1, 0], none)
    torch.testing.assert_close(drawn[1], none[:, None, None].expand(3, 2, 2))  # a head that looks nowhere
    attention_maps("layer 1", weights.abs(), ["a", "b"], ["c", "d"])
    torch.testing.assert_close(drawn[2][:, 0, 0], drawn[2][:, 0, 1])
    assert drawn[2].sum(0)[0, 0] > drawn[2].sum(0)[1, 1] > drawn[2].sum(0)[1, 0]   # bright is much


def test_what_is_said_is_what_the_model_says(runs, tmp_path):
    objective, data = restored(runs["char_rnn"])
    _, columns = data.encoder.read(["The class"])
    with torch.no_grad():
        p = objective.classify({"x": columns["x"].long(), "length": columns["length"]})[0]
    one = explain(runs["char_rnn"], ["The class"], to=tmp_path)["explained"][0]
    assert one["predicted"] == data.labels[int(p.argmax())] and one["probability"] == pytest.approx(float(p.max()), rel=1e-4)


def test_digits_come_from_their_words(runs, tmp_path):
    one = explain(runs["seq2seq"], ["seven hundred forty two"], to=tmp_path)["explained"][0]
    objective, data = restored(runs["seq2seq"])
    y = objective.translate({"x": data.encoder.encode(["seven hundred forty two"]).long()})[0].tolist()
    assert one["predicted"] == data.encoder.target.decode(y) and 0 < one["probability"] <= 1
    assert one["methods"]["alignment"][0][1] == "seven" and len(one["methods"]["alignment"]) == y.index(3) + 1


def test_heads_are_judged_one_by_one(runs, tmp_path, capsys):
    found = explain(runs["gpt"], methods=("heads",), to=tmp_path)
    objective, prepared = restored(runs["gpt"])[0], rebuild(runs["gpt"], with_data=True)
    assert found["whole"]["loss"] == pytest.approx(evaluate(runs["gpt"])["validation"]["loss"], rel=1e-4)
    rows = {(row["attention"], row["head"]): row["loss"] for row in found["explained"]}
    assert set(rows) == {(f"layer {i}", j) for i in (1, 2) for j in (1, 2)}
    with torch.no_grad():                        # head 2 of layer 1, by hand: what the output matrix reads of it is nothing
        objective.network.h[0].attn.c_proj.weight[8:] = 0
        split = prepared.experiment.data.validation
        by_hand = objective.score(judge(objective, split, batch=64, precision=Precision("fp32", torch.device("cpu"), objective)))
    assert rows["layer 1", 2] == pytest.approx(by_hand["loss"], rel=1e-5) and rows["layer 1", 2] != found["whole"]["loss"]
    assert (tmp_path / "heads-loss.svg").is_file() and "layer 2 head 1 off" in (tmp_path / "index.html").read_text()
    assert main(["explain", str(runs["text_transformer"].folder), "--method", "heads", "--to", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "as it is:" in out and "layer 2 head 2 off:  loss" in out and "accuracy" in out


@pytest.mark.parametrize("name", ["gpt", "text_rnn", "seq2seq"])
def test_without_inputs_the_worst_test_examples(runs, name, capsys):
    assert main(["explain", str(runs[name].folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["explained"]
    assert len(found) == 6 and found[0]["input"].startswith("test example")
    assert "<pad>" not in found[0]["tokens"]
    assert main(["explain", str(runs[name].folder)]) == 0
    assert "figures" not in capsys.readouterr().out


@pytest.mark.parametrize(("given", "complaint"), [
    ({"methods": ("gates",)}, "no method for this network named 'gates'"),
    ({"label": "a"}, "--class does not apply: .* got --class a"),
    ({"inputs": [""]}, "a text to be continued needs at least one token"),
    ({"inputs": ["a"], "methods": ("heads",)}, "--method heads judges the validation split"),
    ({"methods": ("heads", "attention")}, "--method heads judges the validation split"),
])
def test_bad_input(runs, given, complaint):
    with pytest.raises(UsageError, match=complaint):
        explain(runs["gpt"], **given)


def test_the_memory_of_a_translator_stands_beside_others(runs, tmp_path):
    found = explain(runs["seq2seq"], ["twenty one"], methods=("memory",), against=[runs["char_rnn"]], to=tmp_path)
    alone = explain(runs["seq2seq"], ["twenty one"], methods=("memory",), to=tmp_path)["explained"][0]["methods"]["memory"]
    assert found["explained"][0]["norms"] == pytest.approx(alone) and len(found["explained"]) == 2
    with pytest.raises(UsageError, match="has no recurrent layers: recipe 'gpt' builds none"):
        explain(runs["seq2seq"], ["twenty one"], methods=("memory",), against=[runs["gpt"]], to=tmp_path)


def test_a_network_without_heads_has_none_to_switch_off(runs):
    with pytest.raises(UsageError, match="has no attention heads to switch off: recipe 'char_rnn' builds none"):
        explain(runs["char_rnn"], methods=("heads",))


def test_a_forecast_shows_gates_and_memory(tmp_path, capsys):
    """Of values, not of tokens: they are read as the network learned them, in deviations from the mean."""
    run = didact.train(RECIPES["forecast"], steps=5, hidden=6, window=9, horizon=2, runs=str(tmp_path), device="cpu")
    given = [0.0, 1.5, -2.0, 0.0, 3.0, 1.0, 0.0, -1.0, 0.0]
    one = explain(run, [",".join(map(str, given))], to=tmp_path / "page")["explained"][0]
    assert one["tokens"][:3] == ["0", "1.5", "-2"] and one["probability"] is None and set(one["methods"]) == {"gates", "memory"}
    objective, _ = restored(run)
    with torch.no_grad():
        x = torch.tensor(given)[None, :, None]
        inside = objective.network.reader.look(objective.scaled(x))[1][-1]
        said = objective.forecast({"x": x})[0]
    assert one["methods"]["gates"]["forget"] == pytest.approx(inside["forget"].mean().item(), rel=1e-5)
    assert one["predicted"] == " ".join(f"{value:.4g}" for value in said.tolist()) and len(one["methods"]["memory"]) == 9
    assert main(["explain", str(run.folder)]) == 0
    assert "%" not in capsys.readouterr().out and "9 values" in (run.folder / "explanations" / "index.html").read_text(encoding="utf-8")
