"""Word vectors against gensim: the same sums have the same neighbors, and the same text gives the same analogies."""

from itertools import permutations

import pytest
import torch

import didact
from didact.data.datasets.synthetic.analogy_text import ANALOGIES
from didact.data.text.classification import split_words
from didact.inference.search import load_run_vectors
from didact.models.pretrained.word_vectors import WordVectors
from didact.registry import RECIPES

gensim = pytest.importorskip("gensim.models", reason="gensim is not installed", exc_type=ImportError)


def test_most_similar_matches_gensim():
    torch.manual_seed(0)
    names, table = [f"w{i}" for i in range(200)], torch.randn(200, 16)
    reference = gensim.KeyedVectors(16)
    reference.add_vectors(names, table.numpy())
    vectors = WordVectors(tuple(names), table)
    for positive, negative in ((["w3"], []), (["w5", "w9"], ["w77"]), (["w1", "w2", "w4"], ["w8", "w16"])):
        expected = reference.most_similar(positive=positive, negative=negative, topn=7)
        neighbors = vectors.most_similar(positive, negative, n=7)
        assert [word for word, _ in neighbors] == [word for word, _ in expected]
        assert [similarity for _, similarity in neighbors] == pytest.approx(
            [similarity for _, similarity in expected], abs=1e-5
        )


def compute_analogy_accuracy(vectors):
    questions = [(a, b, c, d) for family in ANALOGIES for (a, b), (c, d) in permutations(family, 2)]
    return sum(vectors.analogy(a, b, c)[0][0] == d for a, b, c, d in questions) / len(questions)


@pytest.mark.parametrize("model", ["skipgram", "cbow"])
def test_word2vec_learns_the_same_analogies_as_gensim(model, workdir):
    run = didact.train(RECIPES["word2vec"], model=model, epochs=3, lr=2e-2, embed_dim=32)
    from didact.data.datasets.synthetic.analogy_text import tales

    data = tales()
    text = data.encoder.tokenizer.decode(data.train.stream.tolist())
    gensim_vectors = gensim.Word2Vec(
        [split_words(line) for line in text.split("\n\n")],
        vector_size=32,
        window=5,
        sg=int(model == "skipgram"),
        negative=5,
        epochs=20,
        min_count=3,
        seed=0,
        workers=1,
        alpha=0.05,
    ).wv
    reference = WordVectors(tuple(gensim_vectors.index_to_key), torch.from_numpy(gensim_vectors.vectors.copy()))
    # by chance 0.01
    assert compute_analogy_accuracy(reference) > 0.9 and compute_analogy_accuracy(load_run_vectors(run)) > 0.9
    assert set(reference.words) == set(load_run_vectors(run).words)
