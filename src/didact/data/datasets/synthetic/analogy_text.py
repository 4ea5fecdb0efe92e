"""Synthetic text with known analogies, for word vectors: king is to queen as man to woman, France to Paris as Japan to
Tokyo."""

import numpy as np

from didact.data.core import Data
from didact.data.datasets.download import register_dataset
from didact.data.text.language_modeling import build_language_modeling_data

# the context of a word: its row's own words, and those of its column
_PEOPLE = {
    ("king", "queen"): ("throne", "crown", "realm"), ("prince", "princess"): ("castle", "heir", "ball"),
    ("man", "woman"): ("work", "market", "house"), ("boy", "girl"): ("school", "toy", "lesson"),
    ("uncle", "aunt"): ("visit", "cousin", "gift"), ("actor", "actress"): ("stage", "play", "mask"),
}
_GENDER_WORDS = (("he", "his", "him", "beard", "sword"), ("she", "her", "hers", "gown", "necklace"))
_LANDS = {
    ("france", "paris"): ("french", "cheese", "seine"), ("italy", "rome"): ("italian", "pasta", "tiber"),
    ("spain", "madrid"): ("spanish", "olives", "flamenco"), ("greece", "athens"): ("greek", "temples", "feta"),
    ("egypt", "cairo"): ("egyptian", "pyramids", "nile"), ("japan", "tokyo"): ("japanese", "rice", "samurai"),
}
_PLACE_WORDS = (("country", "border", "province", "army", "nation"), ("city", "street", "mayor", "station", "suburb"))
_ANIMALS = {
    ("cat", "cats"): ("purr", "milk", "mouse"), ("dog", "dogs"): ("bark", "bone", "leash"),
    ("horse", "horses"): ("gallop", "saddle", "stable"), ("bird", "birds"): ("sing", "nest", "feather"),
    ("cow", "cows"): ("moo", "meadow", "barn"), ("wolf", "wolves"): ("howl", "pack", "forest"),
}
_NUMBER_WORDS = (("one", "this", "is", "single", "alone"), ("many", "these", "are", "several", "together"))
_FAMILIES = ((_PEOPLE, _GENDER_WORDS), (_LANDS, _PLACE_WORDS), (_ANIMALS, _NUMBER_WORDS))
ANALOGIES = tuple(tuple(family) for family, _ in _FAMILIES)      # any two pairs of a family: a is to b as c is to d


@register_dataset(kind="text", task="language", license="made by didact")
def tales(seed: int = 0) -> Data:
    """6,000 synthetic sentences of people, lands and animals: words whose neighbors and analogies are known."""
    rng, n = np.random.default_rng(0), 6000
    word_slots = [(family, columns, pair, k) for family, columns in _FAMILIES for pair in family for k in (0, 1)]
    # random permutations of 3, 5 and 7 words for each sentence
    own_order, shared_order, word_order = (rng.random((n, k)).argsort(1) for k in (3, 5, 7))
    sentences = []
    for i, slot in enumerate(rng.integers(len(word_slots), size=n).tolist()):
        family, columns, pair, k = word_slots[slot]
        sentence_words = [
            pair[k],
            *(family[pair][j] for j in own_order[i, :2]),
            *(columns[k][j] for j in shared_order[i, :2]),
            "the",
            "and",
        ]
        sentences.append(" ".join(sentence_words[j] for j in word_order[i]) + ".")
    return build_language_modeling_data("tales", "\n\n".join(sentences))
