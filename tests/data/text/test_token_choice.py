import json

import pandas as pd
import pytest
import torch

from didact.data.core import SPLITS
from didact.data.load import load, reload_data
from didact.data.serialize import data_from_json, data_to_json
from didact.data.text.characters import CharacterEncoder, as_characters, encode_characters
from didact.data.text.classification import BagEncoder, as_sequences
from didact.data.text.token_choice import TEXT_TOKENS, TextStatistics
from didact.errors import UsageError

NAMES = ["Anna", "Björn", "Mary Ann", "Zoë", "Li"]
MOLECULES = ["CC(=O)Oc1ccccc1C(=O)O", "CN1C=NC2=C1C(=O)N(C(=O)N2C)C", "CCO"]
FUNCTIONS = ["is_scalar_nan", "row_del", "__init__", "forward"]
CHINESE = ["这部电影非常好看,我很喜欢", "太无聊了,不推荐"]
TWEETS = ["Yay. Another good phone interview.", "so TIRED of this weather :(", "@you thanks for all the fish"]
REVIEWS = ["The acting is astonishing, the film itself is clear. " * 30] * 3
# the tokens of typical texts, and whether n-grams of characters are made of them
TYPICAL = [
    (NAMES, "characters", True),
    (MOLECULES, "characters", True),
    (FUNCTIONS, "characters", True),
    (CHINESE, "characters", True),
    (TWEETS, "words", True),
    (REVIEWS, "words", False),
]


@pytest.mark.parametrize(("texts", "tokens", "is_short"), TYPICAL, ids=lambda value: str(value)[:20])
def test_tokens_suit_the_look_of_texts(texts, tokens, is_short):
    statistics = TextStatistics.measure(texts)
    chosen, note = statistics.choose_tokens()
    assert (chosen, statistics.is_short) == (tokens, is_short)
    assert note.startswith(f"read as {tokens}: a text has")


def write_names(path, n=60):
    texts = [f"{'An' if i % 2 else 'Bo'}{'xyz'[i % 3]}{'ela'[: i % 4]}" for i in range(n)]
    pd.DataFrame({"name": texts, "sex": ["M", "F"] * (n // 2)}).to_csv(path, index=False)
    return texts


def test_texts_of_a_table_come_back_as_they_were(tmp_path):
    texts = write_names(tmp_path / "names.csv")
    data = load(str(tmp_path / "names.csv"), text="name", target="sex")
    for part in SPLITS:
        assert data.read_texts(part) == [texts[i] for i in data.indices[part].tolist()]
    assert any("read as characters: a text has 1 word" in note for note in data.notes)
    assert data_from_json(data_to_json(data)).read_texts("test") == []


@pytest.mark.parametrize("tokens", [None, *TEXT_TOKENS])
def test_every_kind_of_token_is_read_again_as_in_training(tmp_path, tokens):
    texts = write_names(tmp_path / "names.csv")
    data = load(str(tmp_path / "names.csv"), text="name", target="sex", tokens=tokens)
    assert data.encoder.tokens == (tokens or "characters") and data.source.get("tokens") == tokens
    restored = data_from_json(json.loads(json.dumps(data_to_json(data))))
    assert restored.encoder == data.encoder
    for make in (as_sequences, as_characters):
        assert make(restored).encoder == make(data).encoder and make(restored).shape == make(data).shape
        rows = torch.arange(len(data.test))
        stored = make(restored).encoder.encode([texts[i] for i in data.indices["test"].tolist()])
        width = min(stored.shape[1], make(data).test.columns["x"].shape[1])
        assert torch.equal(stored[:, :width], make(data).test.columns["x"][rows, :width])
    again = reload_data(data, data.indices)
    assert again.fingerprint == data.fingerprint and torch.equal(again.train.columns["x"], data.train.columns["x"])


def test_tokens_of_a_known_dataset(tmp_path):
    words, characters = load("verdicts"), load("verdicts", tokens="characters")
    assert words.encoder.tokens == "words" and set(characters.encoder.vocab) < set(" abcdefghijklmnopqrstuvwxyz")
    text = words.read_texts("test")[0]
    decoded = as_sequences(characters).test.batch(torch.tensor([0]))["x"][0].tolist()
    assert "".join(characters.encoder.vocab[i - 2] for i in decoded if i) == text
    again = reload_data(characters, characters.indices)
    assert torch.equal(again.test.columns["x"], characters.test.columns["x"])


def test_byte_pairs_know_every_character():
    encoder = BagEncoder.fit(["low lower lowest", "newer new"] * 3, tokens="bpe")
    sequences = encoder.split("lowest 日本")
    assert encoder.bpe_tokenizer.decode([encoder.bpe_tokenizer.token_to_id[t] for t in sequences]) == "lowest 日本"
    assert BagEncoder.from_spec(json.loads(json.dumps(encoder.spec()))) == encoder


def test_unknown_characters_are_one_token_and_code_points_know_all():
    encoder = BagEncoder.fit(["abc", "cab"], tokens="characters")
    assert encoder.encode(["ab日"]).tolist() == [[encoder.vocab.index("a"), encoder.vocab.index("b"), 4]]
    code_points = CharacterEncoder((), tokens="characters", lowercase=False, ngram_length=3)
    assert code_points.encode(["a日🙂"]).tolist() == [[2 * ord("a") + 1, 2 * ord("日") + 1, 2 * ord("🙂")]]
    assert code_points.encode(["ab"]).dtype == torch.int16 and code_points.encode(["🙂"]).dtype == torch.int32
    # half of a pair of surrogates, as some files hold, is a character too
    assert encode_characters(["\ud800"], 1).tolist() == [[2 * 0xD800]]


def test_capitals_are_kept_in_names_and_formulas_but_not_in_prose():
    assert BagEncoder.fit(MOLECULES, tokens="characters").split("Cc") == ["C", "c"]
    assert BagEncoder.fit(TWEETS, tokens="characters").split("Cc") == ["c", "c"]


def test_tokens_for_running_text_alone_are_refused(tmp_path):
    write_names(tmp_path / "names.csv")
    with pytest.raises(UsageError, match="read as characters, words or bpe, got --tokens gpt2"):
        load(str(tmp_path / "names.csv"), text="name", target="sex", tokens="gpt2")


def test_word_vectors_are_of_words_however_short_the_texts(tmp_path):
    texts = ["good cat", "bad dog", "good dog", "bad cat"] * 300
    pd.DataFrame({"text": texts, "y": [0, 1] * 600}).to_csv(tmp_path / "short.csv", index=False)
    data = load(str(tmp_path / "short.csv"), text="text", accepts=("words",))
    assert set(data.encoder.vocab) == {"good", "bad", "cat", "dog"}
    again = reload_data(data, data.indices)
    assert again.encoder.vocab == data.encoder.vocab
