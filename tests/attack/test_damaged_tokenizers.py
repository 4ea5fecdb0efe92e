"""Tokenizers whose description is damaged: made again, or refused in one line."""

import json
from random import Random

import pytest
from damage import SEED, damage_tree, read_or_refused

from didact.data.published import Vocabulary
from didact.data.tokens import SPECIALS, BytePairs, Characters, Words, from_spec

TEXT = "the cat sat on the mat; the cats sat"
SOUND = {
    "characters": Characters.fit([TEXT]),
    "characters with specials": Characters.fit([TEXT], specials=SPECIALS),
    "words": Words.fit([TEXT]),
    "byte pairs": BytePairs.fit([TEXT], vocabulary=270),
    "published": Vocabulary(("<end>", *"<end>abĠ", "ab"), (("a", "b"),), ("<end>",)),
    "published, digits alone": Vocabulary(("<end>", *"<end>abĠ", "ab"), (("a", "b"),), ("<end>",), digits=True),
}


@pytest.mark.parametrize("name", SOUND)
def test_a_damaged_description_is_read_or_refused(name):
    spec = json.loads(json.dumps(SOUND[name].spec()))
    assert from_spec(spec).encode("a t") == SOUND[name].encode("a t")
    for case in range(300):
        damaged = damage_tree(Random(f"{SEED}/{name}/{case}"), spec)
        with read_or_refused(f"seed {SEED}/{name}/{case}: {str(damaged)[:200]}"):
            tokenizer = from_spec(damaged)
            tokenizer.decode(tokenizer.encode("a cat sat"))
            assert all(isinstance(n, str) for n in tokenizer.names)
