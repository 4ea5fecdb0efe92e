import re
from collections import Counter
from itertools import pairwise

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer

from didact.data.text.characters import encode_characters
from didact.layers.hashed_ngrams import HashedNgrams, count_texts, hash_ngrams

BUCKETS = 2**20
TEXTS = ["the cat sat", "on the mat the", "a", "", "été 42-b", "cat"]


def encode(texts):
    return torch.from_numpy(encode_characters(texts, max(1, *map(len, texts)))).long()


def make_counts(ngrams, texts):
    """How often each bucket occurs in each text."""
    return [Counter(b for b in row if b) for row in ngrams(encode(texts)).tolist()]


def list_features(analyzer, texts):
    return [Counter(analyzer(text)) for text in texts]


def assert_same_features(counts, features):
    """Each feature has a bucket of its own: the counts are equal, and so is what two texts have in common."""
    for found, expected in zip(counts, features, strict=True):
        assert sorted(found.values()) == sorted(expected.values())
    for i in range(len(counts)):
        for j in range(i):
            assert len(counts[i] & counts[j]) == len(features[i] & features[j])


def test_character_ngrams_are_those_of_scikit_learn():
    ngrams = HashedNgrams(BUCKETS, character_sizes=(1, 2, 3, 4))
    analyzer = CountVectorizer(analyzer="char", ngram_range=(1, 4), lowercase=False).build_analyzer()
    marked = [f"<{text}>" for text in TEXTS]
    assert_same_features(make_counts(ngrams, TEXTS), list_features(analyzer, marked))


def test_word_ngrams_are_those_of_scikit_learn():
    ngrams = HashedNgrams(BUCKETS, word_sizes=(1, 2))
    analyzer = CountVectorizer(ngram_range=(1, 2), lowercase=False, token_pattern=r"[^\W_]+").build_analyzer()
    assert_same_features(make_counts(ngrams, TEXTS), list_features(analyzer, TEXTS))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(alphabet="ab c-é日", max_size=12), min_size=2, max_size=4))
def test_word_ngrams_of_any_text(texts):
    ngrams = HashedNgrams(BUCKETS, word_sizes=(1, 2))
    words = [re.findall(r"[^\W_]+", text) for text in texts]
    features = [Counter([*each, *(f"{a} {b}" for a, b in pairwise(each))]) for each in words]
    assert_same_features(make_counts(ngrams, [*texts, "a"]), [*features, Counter("a")])


def test_ngrams_do_not_depend_on_padding_or_batch():
    ngrams = HashedNgrams(BUCKETS, character_sizes=(1, 2, 3), word_sizes=(1, 2))
    alone, together = make_counts(ngrams, ["cat"]), make_counts(ngrams, ["cat", "a much longer text"])
    assert alone[0] == together[0]


def test_hash_ngrams_by_hand():
    tokens = torch.tensor([[5, 7, 5, 7, 0]])
    pairs = hash_ngrams(tokens, 2, BUCKETS)
    assert pairs.shape == (1, 4) and pairs[0, 0] == pairs[0, 2] != pairs[0, 1] and pairs[0, 3] == 0
    assert not set(hash_ngrams(tokens, 1, BUCKETS).tolist()[0]) & set(pairs.tolist()[0]) - {0}
    assert int(pairs[:, :3].min()) > 0 and int(hash_ngrams(torch.arange(1, 10_000)[None], 2, 64).max()) == 63


def test_buckets_are_used_evenly():
    buckets = hash_ngrams(torch.arange(1, 100_001)[None], 1, 1001)[0]
    counts = torch.bincount(buckets, minlength=1001)[1:]
    # 100 in each bucket, with a standard deviation of 10 where they are drawn at random
    assert 8 < counts.double().std() < 12


def test_count_texts_counts_a_text_once():
    assert count_texts(torch.tensor([[3, 3, 1, 0], [3, 2, 2, 2]]), 5).tolist() == [0, 1, 1, 2, 0]


def test_encode_characters_by_hand():
    x = encode_characters(["a-", "\0é", "too long"], 2)
    assert x.dtype == np.int32
    assert x.tolist() == [[2 * 97 + 1, 2 * 45], [2 * 0xFFFD, 2 * 233 + 1], [2 * 116 + 1, 2 * 111 + 1]]
