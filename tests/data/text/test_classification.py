import json

import pandas as pd
import pytest
import torch
from sklearn.feature_extraction.text import CountVectorizer

from didact.data.load import load as load_data
from didact.data.serialize import data_from_json, data_to_json
from didact.data.text.classification import (
    MAX_STORED_WORDS,
    WORD_PATTERN,
    BagEncoder,
    SequenceEncoder,
    as_sequences,
    load_text_table,
    split_words,
)
from didact.errors import UsageError

TEXTS = [
    "A fine film, a FINE cast; don't miss it!",
    "Dull film. Dull cast.<br />Miss it",
    "it is a film",
    "snake_case 42 film",
    "",
]


def test_split_words_by_hand():
    assert split_words("Don't <br />PANIC, it's 42_x!") == ["don't", "panic", "it's", "42", "x"]


def test_bag_encoder_equals_scikit_learn():
    encoder = BagEncoder.fit(TEXTS)
    reference = CountVectorizer(binary=True, token_pattern=WORD_PATTERN.pattern, min_df=2).fit(
        [t.replace("<br />", " ") for t in TEXTS]
    )
    assert set(encoder.vocab) == set(reference.vocabulary_)
    expected = torch.tensor(reference.transform(TEXTS).toarray())[
        :, [reference.vocabulary_[word] for word in encoder.vocab]
    ]
    x = encoder.encode(TEXTS)
    assert x.dtype == torch.int16
    assert torch.equal(encoder.decoders["x"](x), expected.float())
    assert encoder.vocab[0] == "film" and encoder.encode(["unknown words only"]).tolist() == [
        [len(encoder.vocab) + 1] * 3
    ]


def test_bag_encoder_keeps_common_words_and_caps_long_texts():
    assert BagEncoder.fit(TEXTS, vocab_size=3).vocab == ("film", "it", "a")
    # no word is in two texts: all are kept
    assert BagEncoder.fit(["one two", "three"]).vocab == ("one", "three", "two")
    long_texts = [" ".join(f"w{i}" for i in range(1000))] * 2
    assert BagEncoder.fit(long_texts).encode(long_texts).shape == (2, MAX_STORED_WORDS)
    with pytest.raises(UsageError, match="none of the 2 texts of column 'text' holds a word"):
        BagEncoder.fit(["", "!?"])


def test_to_bag_has_fixed_shapes_and_no_data_dependence():
    encoder = BagEncoder.fit(TEXTS)
    compiled = torch.export.export(Decoder(encoder), (encoder.encode(TEXTS),)).module()
    x = encoder.encode(["film it", "dull", "a", "", "it"])
    x = torch.nn.functional.pad(x, (0, encoder.encode(TEXTS).shape[1] - x.shape[1]), value=len(encoder.vocab))
    assert torch.equal(compiled(x), encoder.to_bag(x))


class Decoder(torch.nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder

    def forward(self, x):
        return self.encoder.to_bag(x)


def test_as_sequences_keeps_the_order_of_words(tmp_path):
    encoder = SequenceEncoder(("film", "a", "dull"), vocab_size=2, max_length=4)
    x = encoder.encode(["a dull dull film", "a new film about a film", ""])
    # dull is beyond the vocabulary
    assert encoder.to_tokens(x).tolist() == [[3, 1, 1, 2], [3, 1, 2, 1], [0, 0, 0, 0]]
    write_films(tmp_path / "films.csv")
    bag_data = load_text_table(tmp_path / "films.csv", text="review", target="mood")
    data = as_sequences(bag_data, vocab_size=3, max_length=8)
    assert data.shape == (8,) and data.feature_names == ("<pad>", "<unk>", *bag_data.feature_names[:3])
    for i, row in enumerate(data.test.batch(torch.arange(2))["x"].tolist()):
        word_ids = bag_data.test.batch(torch.tensor([i]))["x"][0, :3].nonzero()[:, 0] + 2
        assert set(word_ids.tolist()) == {t for t in row if t > 1}
    restored_data = data_from_json(json.loads(json.dumps(data_to_json(bag_data))))
    assert as_sequences(restored_data, vocab_size=3, max_length=8).encoder == data.encoder
    with pytest.raises(UsageError, match="does not hold texts with labels"):
        as_sequences(load_data("iris"))


def write_films(path, n=30):
    frame = pd.DataFrame({
        "review": [f"good film number {i}" if i % 2 else f'bad, "very" bad\nfilm {i}' for i in range(n)],
        "stars": range(n), "mood": ["sad", "glad"] * (n // 2),
    })
    frame.to_csv(path, index=False)
    return frame


def test_load_text_table_reads_texts_with_labels(tmp_path):
    frame = write_films(tmp_path / "films.csv")
    data = load_text_table(tmp_path / "films.csv", text="review", target="mood")
    assert (data.kind, data.task, data.class_names, data.target) == ("text", "binary", ("glad", "sad"), "mood")
    assert set(data.feature_names) == {"good", "film", "number", "bad", "very"} and data.shape == (5,)
    train = set(split_words(" ".join(frame.review[i] for i in data.indices["train"].tolist())))
    assert set(data.feature_names) <= train
    batch = data.test.batch(torch.arange(len(data.test)))
    assert torch.equal(batch["x"][:, data.feature_names.index("bad")] == 1, batch["y"] == 1)
    assert data.mean.tolist() == [0] and data.std.tolist() == [1]
    regression = load_text_table(tmp_path / "films.csv", text="review", target="stars")
    assert regression.task == "regression"
    assert load_text_table(tmp_path / "films.csv", text="review").target == "mood"


def test_load_text_table_suggests_columns(tmp_path):
    write_films(tmp_path / "films.csv")
    with pytest.raises(UsageError, match="no column 'reviews' of texts; did you mean 'review'"):
        load_text_table(tmp_path / "films.csv", text="reviews")
    with pytest.raises(UsageError, match="same column"):
        load_text_table(tmp_path / "films.csv", text="review", target="review")
    with pytest.raises(UsageError, match="did you mean 'mood'"):
        load_text_table(tmp_path / "films.csv", text="review", target="moood")


def test_bag_encoder_reads_new_texts(tmp_path):
    encoder = BagEncoder.fit(TEXTS, column="review")
    assert BagEncoder.from_spec(json.loads(json.dumps(encoder.spec()))) == encoder
    write_films(tmp_path / "films.csv", n=2)
    (tmp_path / "one.txt").write_text("a dull film")
    names, batch = encoder.read(["a film.", tmp_path / "one.txt", tmp_path / "films.csv", "see a.txt or b.csv"])
    assert names[:2] == ["a film.", str(tmp_path / "one.txt")] and len(names) == 5
    has_film = encoder.to_bag(batch["x"])[:, encoder.vocab.index("film")]
    assert has_film.tolist() == [1, 1, 1, 1, 0]
    for missing_name in ("gone.txt", "gone.csv"):
        with pytest.raises(UsageError, match=f"cannot read .*{missing_name}"):
            encoder.read([tmp_path / missing_name])


def test_bag_encoder_reads_a_single_column_file(tmp_path):
    (tmp_path / "own.csv").write_text("body,stars\n" + "a fine film,5\na dull film,1\n" * 20)
    (tmp_path / "new.csv").write_text('body\n"fine, a film; really"\ndull\n')
    encoder = load_text_table(tmp_path / "own.csv", text="body", target="stars").encoder
    names, batch = encoder.read([tmp_path / "new.csv"])
    assert names == [f"{tmp_path / 'new.csv'}:{line}" for line in (2, 3)]
    assert torch.equal(batch["x"], encoder.encode(["fine, a film; really", "dull"]))
    (tmp_path / "new.csv").write_text("bodies\ndull\n")
    with pytest.raises(UsageError, match="has no column 'body' of texts; did you mean 'bodies'"):
        encoder.read([tmp_path / "new.csv"])
    with pytest.raises(UsageError, match="got '-': standard input is not read; save it to a file"):
        encoder.read(["-"])
