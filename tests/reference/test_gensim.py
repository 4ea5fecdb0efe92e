"""Word vectors beside gensim's: the same sums have the same neighbours, and the same text the same analogies."""

from itertools import permutations

import pytest
import torch

import didact
from didact.data.tales import ANALOGIES
from didact.data.text import words
from didact.models.word_vectors import WordVectors
from didact.registry import RECIPES
from didact.samplers.search import learned

gensim = pytest.importorskip("gensim.models", reason="gensim is not installed", exc_type=ImportError)


def test_sums_have_the_neighbours_that_gensim_finds():
    torch.manual_seed(0)
    names, table = [f"w{i}" for i in range(200)], torch.randn(200, 16)
    theirs = gensim.KeyedVectors(16)
    theirs.add_vectors(names, table.numpy())
    ours = WordVectors(tuple(names), table)
    for plus, minus in ((["w3"], []), (["w5", "w9"], ["w77"]), (["w1", "w2", "w4"], ["w8", "w16"])):
        expected = theirs.most_similar(positive=plus, negative=minus, topn=7)
        found = ours.near(plus, minus, n=7)
        assert [word for word, _ in found] == [word for word, _ in expected]
        assert [like for _, like in found] == pytest.approx([like for _, like in expected], abs=1e-5)


def solved(vectors):
    asked = [(a, b, c, d) for family in ANALOGIES for (a, b), (c, d) in permutations(family, 2)]
    return sum(vectors.analogy(a, b, c)[0][0] == d for a, b, c, d in asked) / len(asked)


@pytest.mark.parametrize("model", ["skipgram", "cbow"])
def test_the_same_text_teaches_gensim_and_us_the_same(model, here):
    run = didact.train(RECIPES["word2vec"], model=model, epochs=3, lr=2e-2, width=32)
    from didact.data.tales import tales

    data = tales()
    text = data.encoder.tokenizer.decode(data.train.stream.tolist())
    theirs = gensim.Word2Vec(
        [words(line) for line in text.split("\n\n")], vector_size=32, window=5, sg=int(model == "skipgram"), negative=5, epochs=20,
        min_count=3, seed=0, workers=1, alpha=0.05,
    ).wv
    reference = WordVectors(tuple(theirs.index_to_key), torch.from_numpy(theirs.vectors.copy()))
    assert solved(reference) > 0.9 and solved(learned(run)) > 0.9                       # by chance 0.01
    assert set(reference.words) == set(learned(run).words)
