"""A made text whose words have a known place: kings are to queens as men are to women, France to Paris as Japan to Tokyo."""

import numpy as np

from didact.data.core import Data
from didact.data.fetch import source
from didact.data.sequences import running_text

# what a word is told by: its row's own words, and those of its column
PEOPLE = {
    ("king", "queen"): ("throne", "crown", "realm"), ("prince", "princess"): ("castle", "heir", "ball"),
    ("man", "woman"): ("work", "market", "house"), ("boy", "girl"): ("school", "toy", "lesson"),
    ("uncle", "aunt"): ("visit", "cousin", "gift"), ("actor", "actress"): ("stage", "play", "mask"),
}
GENDER = (("he", "his", "him", "beard", "sword"), ("she", "her", "hers", "gown", "necklace"))
LANDS = {
    ("france", "paris"): ("french", "cheese", "seine"), ("italy", "rome"): ("italian", "pasta", "tiber"),
    ("spain", "madrid"): ("spanish", "olives", "flamenco"), ("greece", "athens"): ("greek", "temples", "feta"),
    ("egypt", "cairo"): ("egyptian", "pyramids", "nile"), ("japan", "tokyo"): ("japanese", "rice", "samurai"),
}
PLACE = (("country", "border", "province", "army", "nation"), ("city", "street", "mayor", "station", "suburb"))
ANIMALS = {
    ("cat", "cats"): ("purr", "milk", "mouse"), ("dog", "dogs"): ("bark", "bone", "leash"),
    ("horse", "horses"): ("gallop", "saddle", "stable"), ("bird", "birds"): ("sing", "nest", "feather"),
    ("cow", "cows"): ("moo", "meadow", "barn"), ("wolf", "wolves"): ("howl", "pack", "forest"),
}
NUMBER = (("one", "this", "is", "single", "alone"), ("many", "these", "are", "several", "together"))
FAMILIES = ((PEOPLE, GENDER), (LANDS, PLACE), (ANIMALS, NUMBER))
ANALOGIES = tuple(tuple(family) for family, _ in FAMILIES)      # any two pairs of a family: a is to b as c is to d


@source(kind="text", task="language", licence="made by didact")
def tales(seed: int = 0) -> Data:
    """6,000 made sentences of people, lands and animals: words whose neighbours and analogies are known."""
    rng, n = np.random.default_rng(0), 6000
    places = [(family, columns, pair, k) for family, columns in FAMILIES for pair in family for k in (0, 1)]
    own, shared, order = (rng.random((n, k)).argsort(1) for k in (3, 5, 7))          # a random order of so many things, for each sentence
    told = []
    for i, place in enumerate(rng.integers(len(places), size=n).tolist()):
        family, columns, pair, k = places[place]
        said = [pair[k], *(family[pair][j] for j in own[i, :2]), *(columns[k][j] for j in shared[i, :2]), "the", "and"]
        told.append(" ".join(said[j] for j in order[i]) + ".")
    return running_text("tales", "\n\n".join(told))
