"""The kernels for one token, beside plain PyTorch. They need a GPU and Triton."""

from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from didact.objectives.writing import Manner, Pen
from didact.registry import create

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
CLOSE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}


@pytest.mark.parametrize(("rows", "kind"), [*product([1, 3, 16], CLOSE)])
@pytest.mark.parametrize(("width", "outputs"), [(96, 70), (768, 2304), (3072, 768), (768, 9001)])
def test_a_line_is_all_its_parts(rows, kind, width, outputs):
    from didact.layers.kernels import line

    torch.manual_seed(0)
    x, w, b = torch.randn(rows, width), torch.randn(outputs, width) / width**0.5, torch.randn(outputs)
    plus, norm = torch.randn(rows, outputs), nn.LayerNorm(width)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    x, w, b, plus = (t.to("cuda", kind) for t in (x, w, b, plus))
    norm = norm.to("cuda", kind)
    with torch.no_grad():
        want = F.linear(x.double(), w.double())
        torch.testing.assert_close(line(x, w).double(), want, rtol=CLOSE[kind], atol=CLOSE[kind])
        h = F.linear(norm(x).double(), w.double(), b.double())
        torch.testing.assert_close(line(x, w, b, norm=norm).double(), h, rtol=CLOSE[kind], atol=4 * CLOSE[kind])
        whole = F.gelu(h, approximate="tanh") + plus
        torch.testing.assert_close(line(x, w, b, norm=norm, gelu=True, plus=plus).double(), whole, rtol=CLOSE[kind], atol=4 * CLOSE[kind])


@pytest.mark.parametrize("kind", list(CLOSE))
@pytest.mark.parametrize("at", [0, 1, 127, 128, 300])
def test_a_look_is_attention_to_what_was_kept_and_to_itself(kind, at):
    from didact.layers.kernels import look

    torch.manual_seed(0)
    keys, values = (torch.randn(2, 3, 301, 32).to("cuda", kind) for _ in range(2))
    qkv = torch.randn(2, 3 * 3 * 32).to("cuda", kind)
    y = look(qkv, keys, values, torch.tensor([at], device="cuda"))
    q, k, v = qkv.view(2, 3, 3, 32).unbind(1)
    assert torch.equal(keys[:, :, at], k) and torch.equal(values[:, :, at], v)
    want = F.scaled_dot_product_attention(q[:, :, None].double(), keys[:, :, : at + 1].double(), values[:, :, : at + 1].double())
    torch.testing.assert_close(y.double(), want[:, :, 0].flatten(1), rtol=CLOSE[kind], atol=CLOSE[kind])


@torch.no_grad()
def test_the_swift_model_says_what_the_slow_one_says():
    torch.manual_seed(0)
    model = create("gpt2", vocabulary=500, layers=3).cuda().eval()
    text = torch.randint(500, (3, 40), device="cuda")
    quick, slow = model.remember(3, 64), model.remember(3, 64)
    assert quick.swift is not None
    slow.swift = None
    for start, stop in ((0, 30), *((i, i + 1) for i in range(30, 40))):
        a, b = (model.go_on(text[:, start:stop], memory) for memory in (quick, slow))
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(a, model(text)[:, -1], rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_greedy_text_is_that_of_the_model_without_memory():
    torch.manual_seed(0)
    model = create("gpt2", vocabulary=500, layers=3).cuda().eval()
    nn.init.normal_(model.wpe.weight, std=0.5)
    text = prompt = torch.randint(500, (2, 7), device="cuda")
    written = Pen(model.go_on, model.remember(2, 160), 2, manner=Manner(temperature=0), device=prompt.device).write(prompt, 150)
    for _ in range(150):
        text = torch.cat([text, model(text)[:, -1:].argmax(-1)], dim=1)
    assert torch.equal(written, text[:, 7:])
