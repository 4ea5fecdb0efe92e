"""Running text: windows of one stream, split in order, the same after a reload."""

import json

import pytest
import torch

from didact.data import sequences
from didact.data.core import SPLITS
from didact.data.load import load, reload
from didact.data.sequences import StreamEncoder, Windows, is_text, numbered, retold, running_text, windows
from didact.data.spec import from_spec, spec
from didact.data.tokens import Characters
from didact.errors import UsageError

TEXT = "".join(chr(97 + (i * i + i // 7) % 26) for i in range(5000))


def whole(split):
    return split.batch(torch.arange(len(split)))


def test_a_window_asks_for_the_same_one_further_on():
    data = running_text("made", TEXT, window=16)
    ids = torch.tensor(data.encoder.tokenizer.encode(TEXT))
    batch = data.train.batch(torch.tensor([0, 3]))
    assert torch.equal(batch["x"][1], ids[48:64]) and torch.equal(batch["y"][1], ids[49:65]) and batch["x"].dtype == torch.int64
    parts = [whole(data.split(part))["x"].flatten() for part in SPLITS]
    assert torch.equal(torch.cat(parts), ids[: sum(map(len, parts))])          # side by side, in order, nothing twice
    assert [len(p) for p in parts] == [282 * 16, 15 * 16, 15 * 16]
    assert (data.kind, data.task, data.classes, data.shape) == ("text", "language", len(set(TEXT)), (16,))


def test_windows_of_another_length_stay_in_their_split():
    data = windows(running_text("made", TEXT, window=16), 40, stride=10)
    train, test = data.train, data.test
    assert len(whole(train)["x"]) == (train.stop - 1 - 40) // 10 + 1
    last = train.first + (len(train) - 1) * 10 + 40
    assert last < data.validation.stop and last <= train.stop - 1
    assert test.stride == 40 and test.first + len(test) * 40 < len(train.stream)
    with pytest.raises(UsageError, match="the validation part of 'made' is shorter than a context of 300 tokens"):
        windows(running_text("made", TEXT, window=16), 300)
    with pytest.raises(UsageError, match="windows are cut from running text, but 'iris' is not"):
        windows(load("iris"), 8)


def test_batches_are_the_rows_asked_for_and_move_with_the_split():
    data = running_text("made", TEXT, window=16)
    chunks = [torch.tensor([5, 2]), torch.tensor([7])]
    moved = data.train.to(torch.device("cpu"))
    for split in (data.train, moved):
        first, second = split.batches(chunks)
        assert first["row"].tolist() == [5, 2] and second["x"].shape == (1, 16)
        assert torch.equal(split.decode(second)["x"], data.train.batch(torch.tensor([7]))["x"])
    assert moved.first == 0 and len(moved.stream) == data.train.stop


def test_a_long_stream_is_mapped_from_a_file(tmp_path, monkeypatch):
    monkeypatch.setenv("DIDACT_CACHE", str(tmp_path))
    plain = running_text("made", TEXT)
    monkeypatch.setattr(sequences, "LONG", 100)
    mapped = running_text("made", TEXT)
    (file,) = (tmp_path / "streams").glob("*.bin")
    assert file.stat().st_size == len(TEXT) and mapped.train.stream.dtype == torch.uint8
    assert torch.equal(mapped.train.stream, plain.train.stream) and mapped.fingerprint == plain.fingerprint
    file.write_bytes(b"short")
    assert torch.equal(running_text("made", TEXT).train.stream, plain.train.stream)   # a damaged one is made anew


def test_numbers_take_the_smallest_integers():
    many = "".join(map(chr, range(0x4E00, 0x4E00 + 300)))
    assert numbered(Characters.fit([many]), many).dtype == torch.int16
    assert numbered(Characters.fit(["ab"]), "ba").tolist() == [1, 0]


@pytest.mark.parametrize("kind", ["words", "bpe"])
def test_the_same_text_in_other_tokens(kind, tmp_path):
    path = tmp_path / "book.txt"
    path.write_text("the cat sat on the mat and looked at the dog. " * 200, encoding="utf-8")
    data = load(str(path), tokens=kind)
    assert data.encoder.tokenizer.spec()["kind"] == kind and data.encoder.rate > 3
    again = reload(data, data.indices)
    assert again.encoder == data.encoder and torch.equal(whole(again.test)["y"], whole(data.test)["y"])
    with pytest.raises(UsageError, match="--tokens is for running text, but 'iris' is table"):
        retold(load("iris"), kind)


def test_a_book_and_a_folder_of_texts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "texts"
    (folder / "deep").mkdir(parents=True)
    (folder / "b.txt").write_text("\ufeffb" + "b" * 999, encoding="utf-8")
    (folder / "a.md").write_text("a\r\n" * 500, encoding="utf-8", newline="")
    (folder / "deep" / "c.txt").write_text("c" * 1000, encoding="utf-8")
    (folder / ".hidden.txt").write_text("h")
    assert is_text("x.TXT") and is_text(folder) and not is_text(tmp_path / "nowhere") and not is_text("x.csv")
    data = load("texts")
    assert data.labels == ("\n", "a", "b", "c") and data.name == "texts" and "3 texts" in data.notes[1]
    same = reload(data, data.indices)
    assert same.fingerprint == data.fingerprint and same.source == data.source
    (folder / "a.md").write_text("a")
    with pytest.raises(UsageError, match="has changed since the run split it"):
        reload(data, data.indices)


@pytest.mark.parametrize(
    "content, words",
    [(b"", "holds 0 characters"), (b"too short", "at least 1281"), (b"caf\xe9" * 900, r"not UTF-8 text \(byte 3\): save it as UTF-8")],
)
def test_what_is_no_running_text(content, words, tmp_path):
    (tmp_path / "own.txt").write_bytes(content)
    with pytest.raises(UsageError, match=words):
        load(str(tmp_path / "own.txt"))


def test_options_of_tables_do_not_apply(tmp_path):
    (tmp_path / "own.txt").write_text(TEXT)
    with pytest.raises(UsageError, match=r"--target does not apply: .* is running text, got --target y"):
        load(str(tmp_path / "own.txt"), target="y")


def test_what_is_to_be_continued(tmp_path):
    encoder = StreamEncoder(Characters.fit(["abcdef"]), 4)
    names, batch = encoder.read(["ab", "abcdef"])
    assert batch["x"].tolist() == [[0, 1, 0, 0], [2, 3, 4, 5]] and batch["length"].tolist() == [2, 4] and names == ["ab", "abcdef"]
    (tmp_path / "more.txt").write_text("fed")
    assert encoder.read([tmp_path / "more.txt"])[1]["x"].tolist() == [[5, 4, 3]]
    with pytest.raises(UsageError, match="needs at least one token, got ''"):
        encoder.read(["ab", ""])
    with pytest.raises(UsageError, match=r"cannot read the text .*no\.txt: No such file"):
        encoder.read([tmp_path / "no.txt"])
    with pytest.raises(UsageError, match="training did not: 'x'"):
        encoder.read(["x"])


def test_the_run_knows_its_text_without_it():
    data = running_text("made", TEXT, window=16)
    absent = windows(from_spec(json.loads(json.dumps(spec(data)))), 32)
    assert absent.encoder == StreamEncoder(data.encoder.tokenizer, 32, 1.0) and not isinstance(absent.train, Windows)


@pytest.mark.parametrize("kind", ["characters", "words", "bpe"])
def test_a_long_text_in_pieces_is_the_whole_one(kind, tmp_path, monkeypatch):
    monkeypatch.setenv("DIDACT_CACHE", str(tmp_path))
    text = "It's  one\n\n two, 3 four… naïve 漢字\n" * 200
    whole = running_text("made", text, kind=kind, window=16, vocabulary=300)
    monkeypatch.setattr(sequences, "LONG", 1000)
    monkeypatch.setattr(sequences, "PIECE", 97)                # borders fall anywhere
    seen = []
    pieces = running_text("made", text, kind=kind, window=16, vocabulary=300, progress=lambda *facts: seen.append(facts))
    assert torch.equal(pieces.train.stream, whole.train.stream) and pieces.fingerprint == whole.fingerprint
    assert pieces.encoder == whole.encoder and len(seen) > 10 and seen[-1] == (f"made in {kind}", len(text), len(text))
    monkeypatch.setattr(sequences, "fitted", None)             # nothing is learned again
    again = running_text("made", text, kind=kind, window=16, vocabulary=300)
    assert torch.equal(again.train.stream, whole.train.stream) and again.encoder == whole.encoder


def test_pieces_are_the_text():
    text = "a b\n\n c  d" * 50
    assert "".join(sequences.cut(text)) == text and list(sequences.cut("")) == []


def test_where_nothing_can_be_written_numbers_are_in_memory(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DIDACT_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(sequences, "LONG", 100)
    assert len(running_text("made", TEXT, window=16).train.stream) == len(TEXT)
