"""Running text: windows of one stream, split in order, the same after a reload."""

import json

import pytest
import torch

from didact.data.core import SPLITS
from didact.data.load import load, reload_data
from didact.data.serialize import data_from_json, data_to_json
from didact.data.text import language_modeling
from didact.data.text.language_modeling import (
    TextEncoder,
    TokenWindows,
    build_language_modeling_data,
    encode_ids,
    is_text_path,
    retokenize,
    with_context,
)
from didact.data.text.tokenizers import CharTokenizer
from didact.errors import UsageError

TEXT = "".join(chr(97 + (i * i + i // 7) % 26) for i in range(5000))


def get_all_rows(split):
    return split.batch(torch.arange(len(split)))


def test_window_targets_are_shifted_by_one_token():
    data = build_language_modeling_data("made", TEXT, context_length=16)
    ids = torch.tensor(data.encoder.tokenizer.encode(TEXT))
    batch = data.train.batch(torch.tensor([0, 3]))
    assert (
        torch.equal(batch["x"][1], ids[48:64])
        and torch.equal(batch["y"][1], ids[49:65])
        and batch["x"].dtype == torch.int64
    )
    split_tokens = [get_all_rows(data.split(part))["x"].flatten() for part in SPLITS]
    # side by side, in order, nothing twice
    assert torch.equal(torch.cat(split_tokens), ids[: sum(map(len, split_tokens))])
    assert [len(p) for p in split_tokens] == [282 * 16, 15 * 16, 15 * 16]
    assert (data.kind, data.task, data.num_classes, data.shape) == ("text", "language", len(set(TEXT)), (16,))


def test_long_splits_are_evaluated_on_evenly_spaced_windows(monkeypatch):
    """Every k-th window from the first on, the same ones each time; training windows are all there."""
    monkeypatch.setattr(language_modeling, "MAX_EVALUATED_TOKENS", {"validation": 64, "test": 128})
    data = build_language_modeling_data("made", TEXT, context_length=16)
    whole = {part: get_all_rows(data.split(part))["x"] for part in SPLITS}
    bounded = with_context(data, 16)
    assert len(bounded.train) == len(data.train)
    for part, limit in (("validation", 64), ("test", 128)):
        split, n = bounded.split(part), len(data.split(part))
        assert n * 16 > limit >= 16 * len(split) > limit // 3
        k = -(-n // (limit // 16))
        assert torch.equal(get_all_rows(split)["x"], whole[part][::k])
        assert f"{part}: {len(split)} of {n} windows are evaluated, evenly spaced" in bounded.notes
    empty = with_context(data_from_json(json.loads(json.dumps(data_to_json(data)))), 16)    # of a run's folder
    assert [len(empty.split(part)) for part in SPLITS] == [len(bounded.split(part)) for part in SPLITS]


def test_with_context_keeps_windows_in_their_split():
    data = with_context(build_language_modeling_data("made", TEXT, context_length=16), 40, stride=10)
    train, test = data.train, data.test
    assert len(get_all_rows(train)["x"]) == (train.stop - 1 - 40) // 10 + 1
    last = train.start + (len(train) - 1) * 10 + 40
    assert last < data.validation.stop and last <= train.stop - 1
    assert test.stride == 40 and test.start + len(test) * 40 < len(train.stream)
    with pytest.raises(UsageError, match="the validation split of 'made' is shorter than a context of 300 tokens"):
        with_context(build_language_modeling_data("made", TEXT, context_length=16), 300)
    with pytest.raises(UsageError, match="a language model needs running text, but 'iris' is not"):
        with_context(load("iris"), 8)


def test_token_windows_batches_follow_the_rows_on_any_device():
    data = build_language_modeling_data("made", TEXT, context_length=16)
    row_chunks = [torch.tensor([5, 2]), torch.tensor([7])]
    moved_split = data.train.to(torch.device("cpu"))
    for split in (data.train, moved_split):
        first, second = split.batches(row_chunks)
        assert first["row"].tolist() == [5, 2] and second["x"].shape == (1, 16)
        assert torch.equal(split.decode(second)["x"], data.train.batch(torch.tensor([7]))["x"])
    assert moved_split.start == 0 and len(moved_split.stream) == data.train.stop


def test_long_token_stream_is_memory_mapped(tmp_path, monkeypatch):
    monkeypatch.setenv("DIDACT_CACHE", str(tmp_path))
    plain_data = build_language_modeling_data("made", TEXT)
    monkeypatch.setattr(language_modeling, "MIN_MAPPED_CHARS", 100)
    mapped_data = build_language_modeling_data("made", TEXT)
    (file,) = (tmp_path / "streams").glob("*.bin")
    assert file.stat().st_size == len(TEXT) and mapped_data.train.stream.dtype == torch.uint8
    assert (
        torch.equal(mapped_data.train.stream, plain_data.train.stream)
        and mapped_data.fingerprint == plain_data.fingerprint
    )
    file.write_bytes(b"short")
    # a damaged one is written anew
    assert torch.equal(build_language_modeling_data("made", TEXT).train.stream, plain_data.train.stream)


def test_encode_ids_uses_the_smallest_integer_dtype():
    many_characters = "".join(map(chr, range(0x4E00, 0x4E00 + 300)))
    assert encode_ids(CharTokenizer.fit([many_characters]), many_characters).dtype == torch.int16
    assert encode_ids(CharTokenizer.fit(["ab"]), "ba").tolist() == [1, 0]


@pytest.mark.parametrize("kind", ["words", "bpe"])
def test_text_is_reloaded_with_its_tokenizer(kind, tmp_path):
    path = tmp_path / "book.txt"
    path.write_text("the cat sat on the mat and looked at the dog. " * 200, encoding="utf-8")
    data = load(str(path), tokens=kind)
    assert data.encoder.tokenizer.spec()["kind"] == kind and data.encoder.chars_per_token > 3
    reloaded_data = reload_data(data, data.indices)
    assert reloaded_data.encoder == data.encoder and torch.equal(
        get_all_rows(reloaded_data.test)["y"], get_all_rows(data.test)["y"]
    )
    with pytest.raises(UsageError, match="--tokens is for running text, but 'iris' is table"):
        retokenize(load("iris"), kind)


def test_load_text_files_reads_a_folder_of_texts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "texts"
    (folder / "deep").mkdir(parents=True)
    (folder / "b.txt").write_text("\ufeffb" + "b" * 999, encoding="utf-8")
    (folder / "a.md").write_text("a\r\n" * 500, encoding="utf-8", newline="")
    (folder / "deep" / "c.txt").write_text("c" * 1000, encoding="utf-8")
    (folder / ".hidden.txt").write_text("h")
    assert (
        is_text_path("x.TXT")
        and is_text_path(folder)
        and not is_text_path(tmp_path / "nowhere")
        and not is_text_path("x.csv")
    )
    data = load("texts")
    assert data.class_names == ("\n", "a", "b", "c") and data.name == "texts" and "3 texts" in data.notes[1]
    reloaded_data = reload_data(data, data.indices)
    assert reloaded_data.fingerprint == data.fingerprint and reloaded_data.source == data.source
    (folder / "a.md").write_text("a")
    with pytest.raises(UsageError, match="has changed since the run split it"):
        reload_data(data, data.indices)


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", "holds 0 characters"),
        (b"too short", "at least 1281"),
        (b"caf\xe9" * 900, r"not UTF-8 text \(byte 3\): save it as UTF-8"),
    ],
)
def test_load_text_files_refuses_short_and_non_utf8_texts(content, message, tmp_path):
    (tmp_path / "own.txt").write_bytes(content)
    with pytest.raises(UsageError, match=message):
        load(str(tmp_path / "own.txt"))


def test_target_option_does_not_apply_to_running_text(tmp_path):
    (tmp_path / "own.txt").write_text(TEXT)
    with pytest.raises(UsageError, match=r"--target does not apply: .* is running text, got --target y"):
        load(str(tmp_path / "own.txt"), target="y")


def test_text_encoder_reads_prompts(tmp_path):
    encoder = TextEncoder(CharTokenizer.fit(["abcdef"]), 4)
    names, batch = encoder.read(["ab", "abcdef"])
    assert (
        batch["x"].tolist() == [[0, 1, 0, 0], [2, 3, 4, 5]]
        and batch["length"].tolist() == [2, 4]
        and names == ["ab", "abcdef"]
    )
    (tmp_path / "more.txt").write_text("fed")
    assert encoder.read([tmp_path / "more.txt"])[1]["x"].tolist() == [[5, 4, 3]]
    with pytest.raises(UsageError, match="needs at least one token, got ''"):
        encoder.read(["ab", ""])
    with pytest.raises(UsageError, match=r"cannot read the text .*no\.txt: No such file"):
        encoder.read([tmp_path / "no.txt"])
    with pytest.raises(UsageError, match="unseen in training: 'x'"):
        encoder.read(["x"])


def test_text_encoder_is_restored_without_the_text():
    data = build_language_modeling_data("made", TEXT, context_length=16)
    restored_data = with_context(data_from_json(json.loads(json.dumps(data_to_json(data)))), 32)
    assert restored_data.encoder == TextEncoder(data.encoder.tokenizer, 32, 1.0) and not isinstance(
        restored_data.train, TokenWindows
    )


@pytest.mark.parametrize("kind", ["characters", "words", "bpe"])
def test_long_text_encoded_in_pieces_equals_the_full_text(kind, tmp_path, monkeypatch):
    monkeypatch.setenv("DIDACT_CACHE", str(tmp_path))
    text = "It's  one\n\n two, 3 four… naïve 漢字\n" * 200
    full_data = build_language_modeling_data("made", text, kind=kind, context_length=16, vocab_size=300)
    monkeypatch.setattr(language_modeling, "MIN_MAPPED_CHARS", 1000)
    monkeypatch.setattr(language_modeling, "PIECE_CHARS", 97)                # borders fall anywhere
    progress_calls = []
    pieces_data = build_language_modeling_data(
        "made", text, kind=kind, context_length=16, vocab_size=300, progress=lambda *facts: progress_calls.append(facts)
    )
    assert (
        torch.equal(pieces_data.train.stream, full_data.train.stream)
        and pieces_data.fingerprint == full_data.fingerprint
    )
    assert (
        pieces_data.encoder == full_data.encoder
        and len(progress_calls) > 10
        and progress_calls[-1] == (f"made in {kind}", len(text), len(text))
    )
    monkeypatch.setattr(language_modeling, "fit_tokenizer", None)             # no tokenizer is learned again
    cached_data = build_language_modeling_data("made", text, kind=kind, context_length=16, vocab_size=300)
    assert torch.equal(cached_data.train.stream, full_data.train.stream) and cached_data.encoder == full_data.encoder


def test_split_pieces_join_to_the_text():
    text = "a b\n\n c  d" * 50
    assert "".join(language_modeling.split_pieces(text)) == text and list(language_modeling.split_pieces("")) == []


def test_token_stream_stays_in_memory_without_a_writable_cache(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DIDACT_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(language_modeling, "MIN_MAPPED_CHARS", 100)
    assert len(build_language_modeling_data("made", TEXT, context_length=16).train.stream) == len(TEXT)
