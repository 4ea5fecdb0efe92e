import json

import pandas as pd
import pytest
import torch
from sklearn.feature_extraction.text import CountVectorizer

from didact.data.load import load as load_data
from didact.data.spec import from_spec, spec
from didact.data.text import LONGEST, WORD, BagEncoder, SequenceEncoder, in_order, load, words
from didact.errors import UsageError

TEXTS = [
    "A fine film, a FINE cast; don't miss it!", "Dull film. Dull cast.<br />Miss it", "it is a film", "snake_case 42 film", "",
]


def test_words():
    assert words("Don't <br />PANIC, it's 42_x!") == ["don't", "panic", "it's", "42", "x"]


def test_presence_equals_scikit_learn():
    encoder = BagEncoder.fit(TEXTS)
    reference = CountVectorizer(binary=True, token_pattern=WORD.pattern, min_df=2).fit([t.replace("<br />", " ") for t in TEXTS])
    assert set(encoder.names) == set(reference.vocabulary_)
    expected = torch.tensor(reference.transform(TEXTS).toarray())[:, [reference.vocabulary_[word] for word in encoder.names]]
    x = encoder.encode(TEXTS)
    assert x.dtype == torch.int16
    assert torch.equal(encoder.decoders["x"](x), expected.float())
    assert encoder.names[0] == "film" and encoder.encode(["unknown words only"]).tolist() == [[len(encoder.names) + 1] * 3]


def test_vocabulary_is_the_most_common_and_long_texts_are_capped():
    assert BagEncoder.fit(TEXTS, vocabulary=3).names == ("film", "it", "a")
    assert BagEncoder.fit(["one two", "three"]).names == ("one", "three", "two")  # no word is in two texts: all are kept
    many = [" ".join(f"w{i}" for i in range(1000))] * 2
    assert BagEncoder.fit(many).encode(many).shape == (2, LONGEST)
    with pytest.raises(UsageError, match="none of the 2 texts of column 'text' holds a word"):
        BagEncoder.fit(["", "!?"])


def test_decoding_has_fixed_shapes_and_no_data_dependence():
    encoder = BagEncoder.fit(TEXTS)
    compiled = torch.export.export(Decoder(encoder), (encoder.encode(TEXTS),)).module()
    x = encoder.encode(["film it", "dull", "a", "", "it"])
    x = torch.nn.functional.pad(x, (0, encoder.encode(TEXTS).shape[1] - x.shape[1]), value=len(encoder.names))
    assert torch.equal(compiled(x), encoder.presence(x))


class Decoder(torch.nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder

    def forward(self, x):
        return self.encoder.presence(x)


def test_in_order_the_words_keep_their_places(tmp_path):
    encoder = SequenceEncoder(("film", "a", "dull"), vocabulary=2, length=4)
    x = encoder.encode(["a dull dull film", "a new film about a film", ""])
    assert encoder.order(x).tolist() == [[3, 1, 1, 2], [3, 1, 2, 1], [0, 0, 0, 0]]    # dull is beyond the vocabulary
    table(tmp_path / "films.csv")
    bag = load(tmp_path / "films.csv", text="review", target="mood")
    data = in_order(bag, vocabulary=3, length=8)
    assert data.shape == (8,) and data.names == ("<pad>", "<unk>", *bag.names[:3])
    for i, row in enumerate(data.test.batch(torch.arange(2))["x"].tolist()):
        there = bag.test.batch(torch.tensor([i]))["x"][0, :3].nonzero()[:, 0] + 2
        assert set(there.tolist()) == {t for t in row if t > 1}
    absent = from_spec(json.loads(json.dumps(spec(bag))))
    assert in_order(absent, vocabulary=3, length=8).encoder == data.encoder
    with pytest.raises(UsageError, match="does not hold texts with labels"):
        in_order(load_data("iris"))


def table(path, n=30):
    frame = pd.DataFrame({
        "review": [f"good film number {i}" if i % 2 else f'bad, "very" bad\nfilm {i}' for i in range(n)],
        "stars": range(n), "mood": ["sad", "glad"] * (n // 2),
    })
    frame.to_csv(path, index=False)
    return frame


def test_a_table_of_texts(tmp_path):
    frame = table(tmp_path / "films.csv")
    data = load(tmp_path / "films.csv", text="review", target="mood")
    assert (data.kind, data.task, data.labels, data.target) == ("text", "binary", ("glad", "sad"), "mood")
    assert set(data.names) == {"good", "film", "number", "bad", "very"} and data.shape == (5,)
    train = set(words(" ".join(frame.review[i] for i in data.indices["train"].tolist())))
    assert set(data.names) <= train
    batch = data.test.batch(torch.arange(len(data.test)))
    assert torch.equal(batch["x"][:, data.names.index("bad")] == 1, batch["y"] == 1)
    assert data.mean.tolist() == [0] and data.std.tolist() == [1]
    regression = load(tmp_path / "films.csv", text="review", target="stars")
    assert regression.task == "regression"
    assert load(tmp_path / "films.csv", text="review").target == "mood"


def test_wrong_columns(tmp_path):
    table(tmp_path / "films.csv")
    with pytest.raises(UsageError, match="no column 'reviews' of texts; did you mean 'review'"):
        load(tmp_path / "films.csv", text="reviews")
    with pytest.raises(UsageError, match="same column"):
        load(tmp_path / "films.csv", text="review", target="review")
    with pytest.raises(UsageError, match="did you mean 'mood'"):
        load(tmp_path / "films.csv", text="review", target="moood")


def test_reading_new_texts(tmp_path):
    encoder = BagEncoder.fit(TEXTS, column="review")
    assert BagEncoder.from_spec(json.loads(json.dumps(encoder.spec()))) == encoder
    table(tmp_path / "films.csv", n=2)
    (tmp_path / "one.txt").write_text("a dull film")
    names, batch = encoder.read(["a film.", tmp_path / "one.txt", tmp_path / "films.csv", "see a.txt or b.csv"])
    assert names[:2] == ["a film.", str(tmp_path / "one.txt")] and len(names) == 5
    film = encoder.presence(batch["x"])[:, encoder.names.index("film")]
    assert film.tolist() == [1, 1, 1, 1, 0]
    for missing in ("gone.txt", "gone.csv"):
        with pytest.raises(UsageError, match=f"cannot read .*{missing}"):
            encoder.read([tmp_path / missing])


def test_new_texts_may_be_the_only_column(tmp_path):
    (tmp_path / "own.csv").write_text("body,stars\n" + "a fine film,5\na dull film,1\n" * 20)
    (tmp_path / "new.csv").write_text('body\n"fine, a film; really"\ndull\n')
    encoder = load(tmp_path / "own.csv", text="body", target="stars").encoder
    names, batch = encoder.read([tmp_path / "new.csv"])
    assert names == [f"{tmp_path / 'new.csv'}:{line}" for line in (2, 3)]
    assert torch.equal(batch["x"], encoder.encode(["fine, a film; really", "dull"]))
    (tmp_path / "new.csv").write_text("bodies\ndull\n")
    with pytest.raises(UsageError, match="has no column 'body' of texts; did you mean 'bodies'"):
        encoder.read([tmp_path / "new.csv"])
    with pytest.raises(UsageError, match="got '-': standard input is not read; save it to a file"):
        encoder.read(["-"])
