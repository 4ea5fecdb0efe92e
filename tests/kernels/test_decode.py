"""The decoding kernels against plain PyTorch. They need a GPU and Triton."""

from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from didact.registry import create_model
from didact.samplers.text_generation import TextGenerator
from didact.samplers.top_k_top_p import DecodingConfig

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 2e-2}


@pytest.mark.parametrize(("batch_size", "dtype"), [*product([1, 3, 16], TOLERANCES)])
@pytest.mark.parametrize(("width", "outputs"), [(96, 70), (768, 2304), (3072, 768), (768, 9001)])
def test_fused_norm_linear_matches_its_separate_layers(batch_size, dtype, width, outputs):
    from didact.kernels.decode import fused_norm_linear

    torch.manual_seed(0)
    x, w, b = torch.randn(batch_size, width), torch.randn(outputs, width) / width**0.5, torch.randn(outputs)
    residual, norm = torch.randn(batch_size, outputs), nn.LayerNorm(width)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    x, w, b, residual = (t.to("cuda", dtype) for t in (x, w, b, residual))
    norm = norm.to("cuda", dtype)
    with torch.no_grad():
        expected = F.linear(x.double(), w.double())
        torch.testing.assert_close(
            fused_norm_linear(x, w).double(), expected, rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype]
        )
        h = F.linear(norm(x).double(), w.double(), b.double())
        torch.testing.assert_close(
            fused_norm_linear(x, w, b, norm=norm).double(), h, rtol=TOLERANCES[dtype], atol=4 * TOLERANCES[dtype]
        )
        expected_output = F.gelu(h, approximate="tanh") + residual
        torch.testing.assert_close(
            fused_norm_linear(x, w, b, norm=norm, gelu=True, residual=residual).double(),
            expected_output,
            rtol=TOLERANCES[dtype],
            atol=4 * TOLERANCES[dtype],
        )


@pytest.mark.parametrize("dtype", list(TOLERANCES))
@pytest.mark.parametrize("position", [0, 1, 127, 128, 300])
def test_decode_attention_attends_to_the_cache_and_the_new_token(dtype, position):
    from didact.kernels.decode import decode_attention

    torch.manual_seed(0)
    keys, values = (torch.randn(2, 3, 301, 32).to("cuda", dtype) for _ in range(2))
    qkv = torch.randn(2, 3 * 3 * 32).to("cuda", dtype)
    y = decode_attention(qkv, keys, values, torch.tensor([position], device="cuda"))
    q, k, v = qkv.view(2, 3, 3, 32).unbind(1)
    assert torch.equal(keys[:, :, position], k) and torch.equal(values[:, :, position], v)
    expected = F.scaled_dot_product_attention(
        q[:, :, None].double(), keys[:, :, : position + 1].double(), values[:, :, : position + 1].double()
    )
    torch.testing.assert_close(y.double(), expected[:, :, 0].flatten(1), rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype])


@torch.no_grad()
def test_fast_decoder_matches_the_plain_decoder():
    torch.manual_seed(0)
    model = create_model("gpt2", vocab_size=500, num_layers=3).cuda().eval()
    text = torch.randint(500, (3, 40), device="cuda")
    fast_cache, plain_cache = model.init_cache(3, 64), model.init_cache(3, 64)
    assert fast_cache.fast_decoder is not None
    plain_cache.fast_decoder = None
    for start, stop in ((0, 30), *((i, i + 1) for i in range(30, 40))):
        a, b = (model.decode_step(text[:, start:stop], cache) for cache in (fast_cache, plain_cache))
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(a, model(text)[:, -1], rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_greedy_text_matches_decoding_without_a_cache():
    torch.manual_seed(0)
    model = create_model("gpt2", vocab_size=500, num_layers=3).cuda().eval()
    nn.init.normal_(model.wpe.weight, std=0.5)
    text = prompt = torch.randint(500, (2, 7), device="cuda")
    generated = TextGenerator(
        model.decode_step, model.init_cache(2, 160), 2, decoding=DecodingConfig(temperature=0), device=prompt.device
    ).generate(prompt, 150)
    for _ in range(150):
        text = torch.cat([text, model(text)[:, -1:].argmax(-1)], dim=1)
    assert torch.equal(generated, text[:, 7:])
