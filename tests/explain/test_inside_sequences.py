"""`didact explain` on networks that read tokens in their order."""

import json

import pytest
import torch

import didact
from didact.cli.main import main
from didact.errors import UsageError
from didact.explain.runs import explain
from didact.registry import RECIPES
from didact.train.session import restored


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
    }


@pytest.mark.parametrize(("name", "text", "tokens"), [
    ("gpt", "The class", list("The class")),
    ("text_transformer", "the story was good", ["the", "story", "was", "good"]),
    ("char_rnn", "The class", list("The class")),
    ("text_rnn", "the story was good", ["the", "story", "was", "good"]),
])
def test_a_page_and_figures_of_ones_own_text(runs, name, text, tokens, tmp_path):
    found = explain(runs[name], [text], to=tmp_path)
    (one,) = found["explained"]
    assert one["tokens"] == tokens and 0 < one["probability"] <= 1
    assert set(one["methods"]) == ({"attention"} if name in ("gpt", "text_transformer") else {"gates", "memory"})
    assert all((tmp_path / figure.rpartition("/")[2]).is_file() for figure in one["figures"])
    page = (tmp_path / "index.html").read_text()
    assert text in page and page.count("<figure") + page.count("<small>layer") >= 2
    if name == "gpt":
        assert page.count("<small>layer") == 4 and len(one["methods"]["attention"]) == 2
        assert one["methods"]["attention"][0][0] in text
    if name == "char_rnn":
        assert set(one["methods"]["gates"]) == {"input", "forget", "candidate", "output"}
        assert one["methods"]["memory"][0] == 1 and len(one["methods"]["memory"]) == 9


def test_what_is_said_is_what_the_model_says(runs, tmp_path):
    objective, data = restored(runs["char_rnn"])
    _, columns = data.encoder.read(["The class"])
    with torch.no_grad():
        p = objective.classify({"x": columns["x"].long(), "length": columns["length"]})[0]
    one = explain(runs["char_rnn"], ["The class"], to=tmp_path)["explained"][0]
    assert one["predicted"] == data.labels[int(p.argmax())] and one["probability"] == pytest.approx(float(p.max()), rel=1e-4)


@pytest.mark.parametrize("name", ["gpt", "text_rnn"])
def test_without_inputs_the_worst_test_examples(runs, name, capsys):
    assert main(["explain", str(runs[name].folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["explained"]
    assert len(found) == 6 and found[0]["input"].startswith("test example")
    assert "<pad>" not in found[0]["tokens"]
    assert main(["explain", str(runs[name].folder)]) == 0
    assert "figures" not in capsys.readouterr().out


@pytest.mark.parametrize(("given", "complaint"), [
    ({"methods": ("gates",)}, "no method for this network named 'gates'"),
    ({"label": "a"}, "--label does not apply"),
    ({"inputs": [""]}, "a text to be continued needs at least one token"),
])
def test_bad_input(runs, given, complaint):
    with pytest.raises(UsageError, match=complaint):
        explain(runs["gpt"], **given)
