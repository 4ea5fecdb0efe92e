"""Tokenizers: our byte pairs against the library's, worked examples, and every text read back."""

import json
from unicodedata import category

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from didact.data import bpe, tokens
from didact.data.tokens import BEGIN, END, PAD, SPECIALS, UNKNOWN, BytePairs, Characters, Words, from_spec
from didact.errors import UsageError

ENGLISH = "low low low low low lower lower newest newest newest newest newest newest widest widest widest"


def some_text(n=40_000):
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in sorted(topics))[:n]


def test_special_tokens_have_their_places():
    assert (PAD, UNKNOWN, BEGIN, END) == (0, 1, 2, 3) and SPECIALS == ("<pad>", "<unk>", "<bos>", "<eos>")


def test_characters_in_the_order_of_their_code_points():
    plain = Characters.fit(["banana", "é"])
    assert plain.names == ("a", "b", "n", "é") and plain.encode("nab") == [2, 0, 1] and plain.decode([2, 0, 1]) == "nab"
    with pytest.raises(UsageError, match="the text holds characters that training did not: 'xy'; leave them out"):
        plain.encode("yax")
    special = Characters.fit(["ab"], specials=SPECIALS)
    assert special.encode("abc") == [4, 5, UNKNOWN] and special.decode([BEGIN, 4, 5, END, PAD]) == "ab"


def test_words_are_the_most_common_and_signs_stand_alone():
    words = Words.fit(["The cat, the dog.", "the cat sat!", "don't"], vocabulary=3, least=1)
    assert words.words == ("the", "cat", "!")
    assert words.encode("The CAT jumps") == [4, 5, UNKNOWN]
    assert words.decode([BEGIN, 4, 5, 6, END]) == "the cat!"
    assert Words.fit(["don't stop. don't"], least=1, lower=False).words == ("don't", ".", "stop")
    assert Words.fit(["each word once"]).words == ("each", "once", "word")      # none occurs twice: all are kept


def test_the_worked_example_of_the_paper():
    """Sennrich et al. 2016: low, lower, newest, widest. e s, es t, then the ties that are known earliest."""
    first = ["".join(pair) for pair in bpe.learn(ENGLISH, 3)]
    assert first[0] == "es" and "est" in first[:3]


def test_bytes_become_visible_characters_one_to_one():
    table = bpe.alphabet()
    assert len(set(table.values())) == 256 and table[ord("A")] == "A" and table[ord(" ")] == "Ġ" and table[ord("\n")] == "Ċ"


def test_pieces_keep_every_byte_and_the_space_before_a_word():
    assert bpe.pieces("don't stop  12x!\n") == ["don", "'t", "Ġstop", "Ġ", "Ġ12", "x", "!", "Ċ"]


@pytest.mark.parametrize("text", [ENGLISH, some_text(), "aaaa aaa aaaaaaa ---- ==== '''' naïve café 数字 1234 " * 3])
def test_our_merges_are_the_librarys(text):
    pytest.importorskip("tokenizers")
    ours, theirs = bpe.learn(text, 150), tokens.learn_fast([text], 150)
    assert ours == theirs and len(ours) >= 15
    tokenizer = BytePairs(tuple(ours))
    fast = tokenizer.encode(text)
    slow = BytePairs(tuple(ours))
    slow.__dict__["fast"] = None                                                # as where the library is not installed
    assert slow.encode(text) == fast and len(fast) < 0.75 * len(text.encode())
    assert tokenizer.decode(fast) == text


def test_every_assigned_character_is_cut_as_the_library_cuts_it():
    """Beside a letter, a digit, a sign and a space: ², ½ and Ⅷ are numbers, \x1c is no space."""
    pre = pytest.importorskip("tokenizers").pre_tokenizers.ByteLevel(add_prefix_space=False)
    for block in range(0, 0x20000, 512):
        known = [c for c in map(chr, range(block, block + 512)) if category(c) not in ("Cn", "Co", "Cs")]
        text = "|".join(f"a{c}1{c}!{c} {c}{c}  {c}" for c in known[:: 1 if block < 0x3400 else 7])     # beyond, thousands are alike
        assert [piece for piece, _ in pre.pre_tokenize_str(text)] == bpe.pieces(text), hex(block)


SIGNS = st.sampled_from("abe '’_-.12²½Ⅷ٣一字éß\n\t\x1c\xa0\u0301\u200b😀")


@settings(max_examples=60, deadline=None)
@given(st.text(SIGNS | st.characters(max_codepoint=0x3000, exclude_categories=("Cn", "Cs")), max_size=60))
def test_any_text_gives_the_librarys_merges(text):
    pytest.importorskip("tokenizers")
    assert bpe.learn(text, 30) == tokens.learn_fast([text], 30)


def test_without_the_library_the_same_is_learned(monkeypatch):
    with_it = BytePairs.fit([ENGLISH], 275)
    monkeypatch.setattr(tokens, "library", lambda: False)
    without = BytePairs.fit([ENGLISH], 275)
    assert without == with_it and without.encode(ENGLISH) == with_it.encode(ENGLISH)
    with pytest.raises(UsageError, match="256 bytes and 4 special tokens, got a vocabulary of 100"):
        BytePairs.fit([ENGLISH], 100)


@settings(max_examples=25, deadline=None)
@given(st.text())
def test_byte_pairs_know_every_text(text):
    text = text.encode("utf-8", "ignore").decode()                              # no lone surrogates
    tokenizer = BytePairs((("e", "s"), ("es", "t"), ("Ġ", "n")))
    tokenizer.__dict__["fast"] = None
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_half_a_character_is_shown_as_such():
    tokenizer = BytePairs(())
    assert tokenizer.decode(tokenizer.encode("é")[:1]) == "�"


@pytest.mark.parametrize("made", [Characters.fit(["abc"]), Words.fit(["a b b"], least=1), BytePairs.fit([ENGLISH], 270)])
def test_a_tokenizer_comes_back_from_json(made):
    again = from_spec(json.loads(json.dumps(made.spec())))
    assert again == made and again.names == made.names
    with pytest.raises(UsageError, match="no tokenizer named 'byte'"):
        from_spec({"kind": "byte"})
