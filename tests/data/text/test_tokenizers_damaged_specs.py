"""Tokenizers from damaged specs: rebuilt, or refused in one line."""

import json
from random import Random

import pytest

from didact.data.text.gpt2_bpe import PretrainedBPE
from didact.data.text.tokenizers import SPECIAL_TOKENS, BPETokenizer, CharTokenizer, WordTokenizer, tokenizer_from_spec
from helpers.fuzzing import SEED, damage_tree, reads_or_raises_usage_error

TEXT = "the cat sat on the mat; the cats sat"
TOKENIZERS = {
    "characters": CharTokenizer.fit([TEXT]),
    "characters with specials": CharTokenizer.fit([TEXT], special_tokens=SPECIAL_TOKENS),
    "words": WordTokenizer.fit([TEXT]),
    "byte pairs": BPETokenizer.fit([TEXT], vocab_size=270),
    "published": PretrainedBPE(("<end>", *"<end>abĠ", "ab"), (("a", "b"),), ("<end>",)),
    "published, digits alone": PretrainedBPE(
        ("<end>", *"<end>abĠ", "ab"), (("a", "b"),), ("<end>",), split_digits=True
    ),
}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_damaged_tokenizer_spec_is_read_or_refused(name):
    spec = json.loads(json.dumps(TOKENIZERS[name].spec()))
    assert tokenizer_from_spec(spec).encode("a t") == TOKENIZERS[name].encode("a t")
    for case in range(300):
        damaged_spec = damage_tree(Random(f"{SEED}/{name}/{case}"), spec)
        with reads_or_raises_usage_error(f"seed {SEED}/{name}/{case}: {str(damaged_spec)[:200]}"):
            tokenizer = tokenizer_from_spec(damaged_spec)
            tokenizer.decode(tokenizer.encode("a cat sat"))
            assert all(isinstance(n, str) for n in tokenizer.vocab)
