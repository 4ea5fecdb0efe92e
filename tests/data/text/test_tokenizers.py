"""Tokenizers: our BPE against the library's, worked examples, and texts decoded again."""

import json
from unicodedata import category

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from didact.data.text import bpe, tokenizers
from didact.data.text.tokenizers import (
    BOS_ID,
    EOS_ID,
    PAD_ID,
    SPECIAL_TOKENS,
    UNK_ID,
    BPETokenizer,
    CharTokenizer,
    WordTokenizer,
    tokenizer_from_spec,
)
from didact.errors import UsageError

EXAMPLE_TEXT = "low low low low low lower lower newest newest newest newest newest newest widest widest widest"


def read_english_text(n=40_000):
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in sorted(topics))[:n]


def test_special_tokens_have_fixed_ids():
    assert (PAD_ID, UNK_ID, BOS_ID, EOS_ID) == (0, 1, 2, 3) and SPECIAL_TOKENS == ("<pad>", "<unk>", "<bos>", "<eos>")


def test_character_tokenizer_orders_by_code_point():
    tokenizer = CharTokenizer.fit(["banana", "é"])
    assert (
        tokenizer.vocab == ("a", "b", "n", "é")
        and tokenizer.encode("nab") == [2, 0, 1]
        and tokenizer.decode([2, 0, 1]) == "nab"
    )
    with pytest.raises(UsageError, match="the text holds characters unseen in training: 'xy'; leave them out"):
        tokenizer.encode("yax")
    tokenizer_with_specials = CharTokenizer.fit(["ab"], special_tokens=SPECIAL_TOKENS)
    assert (
        tokenizer_with_specials.encode("abc") == [4, 5, UNK_ID]
        and tokenizer_with_specials.decode([BOS_ID, 4, 5, EOS_ID, PAD_ID]) == "ab"
    )


def test_word_tokenizer_keeps_common_words_and_splits_punctuation():
    tokenizer = WordTokenizer.fit(["The cat, the dog.", "the cat sat!", "don't"], vocab_size=3, min_count=1)
    assert tokenizer.words == ("the", "cat", "!")
    assert tokenizer.encode("The CAT jumps") == [4, 5, UNK_ID]
    assert tokenizer.decode([BOS_ID, 4, 5, 6, EOS_ID]) == "the cat!"
    assert WordTokenizer.fit(["don't stop. don't"], min_count=1, lowercase=False).words == ("don't", ".", "stop")
    # none occurs twice: all are kept
    assert WordTokenizer.fit(["each word once"]).words == ("each", "once", "word")


def test_train_bpe_on_the_example_of_sennrich():
    """Sennrich et al. 2016: low, lower, newest, widest. e s, es t, then the ties whose symbols are known earliest."""
    merges = ["".join(pair) for pair in bpe.train_bpe(EXAMPLE_TEXT, 3)]
    assert merges[0] == "es" and "est" in merges[:3]


def test_bytes_to_unicode_is_one_to_one():
    table = bpe.bytes_to_unicode()
    assert (
        len(set(table.values())) == 256
        and table[ord("A")] == "A"
        and table[ord(" ")] == "Ġ"
        and table[ord("\n")] == "Ċ"
    )


def test_pretokenize_keeps_every_byte_and_leading_spaces():
    assert bpe.pretokenize("don't stop  12x!\n") == ["don", "'t", "Ġstop", "Ġ", "Ġ12", "x", "!", "Ċ"]


@pytest.mark.parametrize(
    "text", [EXAMPLE_TEXT, read_english_text(), "aaaa aaa aaaaaaa ---- ==== '''' naïve café 数字 1234 " * 3]
)
def test_train_bpe_equals_the_tokenizers_library(text):
    pytest.importorskip("tokenizers")
    merges, library_merges = bpe.train_bpe(text, 150), tokenizers.train_bpe_with_tokenizers([text], 150)
    assert merges == library_merges and len(merges) >= 15
    tokenizer = BPETokenizer(tuple(merges))
    fast_ids = tokenizer.encode(text)
    slow_tokenizer = BPETokenizer(tuple(merges))
    # as where the library is not installed
    slow_tokenizer.__dict__["fast"] = None
    assert slow_tokenizer.encode(text) == fast_ids and len(fast_ids) < 0.75 * len(text.encode())
    assert tokenizer.decode(fast_ids) == text


def test_pretokenize_equals_the_tokenizers_library_for_every_character():
    """Next to a letter, a digit, a punctuation mark and a space: ², ½ and Ⅷ are numbers, \x1c is no space."""
    pre_tokenizer = pytest.importorskip("tokenizers").pre_tokenizers.ByteLevel(add_prefix_space=False)
    for block in range(0, 0x20000, 512):
        characters = [c for c in map(chr, range(block, block + 512)) if category(c) not in ("Cn", "Co", "Cs")]
        # beyond, thousands are alike
        text = "|".join(f"a{c}1{c}!{c} {c}{c}  {c}" for c in characters[:: 1 if block < 0x3400 else 7])
        assert [piece for piece, _ in pre_tokenizer.pre_tokenize_str(text)] == bpe.pretokenize(text), hex(block)


CHARACTERS = st.sampled_from("abe '’_-.12²½Ⅷ٣一字éß\n\t\x1c\xa0\u0301\u200b😀")


@settings(max_examples=60, deadline=None)
@given(st.text(CHARACTERS | st.characters(max_codepoint=0x3000, exclude_categories=("Cn", "Cs")), max_size=60))
def test_train_bpe_equals_the_tokenizers_library_for_any_text(text):
    pytest.importorskip("tokenizers")
    assert bpe.train_bpe(text, 30) == tokenizers.train_bpe_with_tokenizers([text], 30)


def test_bpe_tokenizer_is_the_same_without_the_library(monkeypatch):
    fast_tokenizer = BPETokenizer.fit([EXAMPLE_TEXT], 275)
    monkeypatch.setattr(tokenizers, "has_tokenizers", lambda: False)
    slow_tokenizer = BPETokenizer.fit([EXAMPLE_TEXT], 275)
    assert slow_tokenizer == fast_tokenizer and slow_tokenizer.encode(EXAMPLE_TEXT) == fast_tokenizer.encode(
        EXAMPLE_TEXT
    )
    with pytest.raises(UsageError, match="256 bytes and 4 special tokens, got a vocabulary of 100"):
        BPETokenizer.fit([EXAMPLE_TEXT], 100)


@settings(max_examples=25, deadline=None)
@given(st.text())
def test_bpe_tokenizer_round_trips_any_text(text):
    text = text.encode("utf-8", "ignore").decode()                              # no lone surrogates
    tokenizer = BPETokenizer((("e", "s"), ("es", "t"), ("Ġ", "n")))
    tokenizer.__dict__["fast"] = None
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_incomplete_character_decodes_to_the_replacement_character():
    tokenizer = BPETokenizer(())
    assert tokenizer.decode(tokenizer.encode("é")[:1]) == "�"


@pytest.mark.parametrize(
    "tokenizer",
    [CharTokenizer.fit(["abc"]), WordTokenizer.fit(["a b b"], min_count=1), BPETokenizer.fit([EXAMPLE_TEXT], 270)],
)
def test_tokenizer_is_restored_from_json(tokenizer):
    restored_tokenizer = tokenizer_from_spec(json.loads(json.dumps(tokenizer.spec())))
    assert restored_tokenizer == tokenizer and restored_tokenizer.vocab == tokenizer.vocab
    with pytest.raises(UsageError, match="no tokenizer named 'byte'"):
        tokenizer_from_spec({"kind": "byte"})
