"""The contract of Transformers beyond that of every model; their logits are compared in tests/reference."""

import pytest
import torch

from didact.errors import UsageError
from didact.files import write_tensors
from didact.layers.positional import LearnedPositions, rotary_angles
from didact.models.pretrained.weights import load_weights
from didact.models.text.bert import BERT, SentenceEncoder
from didact.models.text.encoder_decoder import Transformer
from didact.models.text.gpt import GPT
from didact.models.text.llama import Llama
from didact.models.text.transformer_classifier import TransformerClassifier

SMALL_OPTIONS = {"context_length": 12, "embed_dim": 16, "num_layers": 2, "num_heads": 4}


@pytest.mark.parametrize("network", [GPT(23, **SMALL_OPTIONS), Llama(23, **SMALL_OPTIONS, num_kv_heads=2, ffn_dim=24)])
@torch.no_grad()
def test_gpt_and_llama_are_causal(network):
    x = torch.randint(23, (2, 9))
    y = network.eval()(x)
    changed = x.clone()
    changed[:, 5] = (x[:, 5] + 1) % 23
    torch.testing.assert_close(network(changed)[:, :5], y[:, :5])
    assert not torch.allclose(network(changed)[:, 5:], y[:, 5:])


@torch.no_grad()
def test_gpt_attention_maps_are_distributions_over_the_past():
    maps = GPT(23, **SMALL_OPTIONS).eval().attention_maps(torch.randint(23, (2, 9)))
    assert maps.shape == (2, 2, 4, 9, 9)
    torch.testing.assert_close(maps.sum(-1), torch.ones(2, 2, 4, 9))
    assert not maps.triu(1).any()


def test_gpt_init_has_the_standard_deviations_of_its_paper():
    """0.02 everywhere, and smaller by 1/√(2 · 3 layers) in matrices that write to the residual path."""
    torch.manual_seed(0)
    model = GPT(50, context_length=50, embed_dim=768, num_layers=3, num_heads=12)
    for name, p in model.named_parameters():
        if p.ndim == 2:
            assert p.std().item() == pytest.approx(0.02 / 6**0.5 if "c_proj" in name else 0.02, rel=0.03), name


@pytest.mark.parametrize("norm", ["pre", "post"])
@torch.no_grad()
def test_transformer_classifier_ignores_padding(norm):
    model = TransformerClassifier(30, 3, embed_dim=16, num_layers=2, num_heads=4, ffn_dim=24, norm=norm).eval()
    x = torch.randint(1, 30, (2, 6))
    padded = torch.cat([x, torch.zeros(2, 5, dtype=torch.long)], dim=1)
    torch.testing.assert_close(model(padded), model(x))
    assert model(torch.zeros(1, 4, dtype=torch.long)).isfinite().all()        # an empty text
    assert model.attention_maps(padded)[..., 6:].sum() == 0


def test_transformer_classifier_has_the_parameter_count_of_the_notes():
    model = TransformerClassifier(10_000, 2, embed_dim=128, num_layers=4, num_heads=4, ffn_dim=512)
    assert sum(p.numel() for p in model.parameters()) == 2_073_602            # Gaba 7.8
    with torch.no_grad():                                                     # tokens as large as positions (M38)
        tokens = model.scale * model.embedding(torch.randint(1, 10_000, (64, 64)))
    assert 0.5 < tokens.std() / model.positions.table[:64].std() < 2


@torch.no_grad()
def test_sentence_encoder_averages_its_tokens():
    torch.manual_seed(0)
    model = SentenceEncoder(30, **SMALL_OPTIONS, ffn_dim=24).eval()
    x = torch.tensor([[4, 5, 6, 0, 0], [7, 8, 9, 10, 11]])
    h = BERT.forward(model, x)
    torch.testing.assert_close(model(x), torch.stack([h[0, :3].mean(0), h[1].mean(0)]))
    torch.testing.assert_close(model.embed_normalized(x).norm(dim=1), torch.ones(2))


def test_encoder_decoder_gets_finite_gradients_everywhere():
    model = Transformer(30, 20, embed_dim=16, num_layers=2, num_heads=4, ffn_dim=24, dropout=0.0)
    model(torch.randint(1, 30, (3, 7)), torch.randint(1, 20, (3, 5))).square().mean().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() and p.grad.any() for p in model.parameters())


def test_load_weights_refuses_another_size(tmp_path):
    write_tensors(tmp_path / "model.safetensors", GPT(23, **SMALL_OPTIONS | {"embed_dim": 32}).state_dict())
    with pytest.raises(UsageError, match="holds another architecture than this GPT"):
        load_weights(GPT(23, **SMALL_OPTIONS), tmp_path / "model.safetensors")


@pytest.mark.parametrize(("other", "message"), [
    ({"vocab_size": 29}, "wte.weight of 29×16, here it is 23×16: make the network for as many tokens"),
    ({"context_length": 20}, "wpe.weight of 20×16, here it is 12×16: make the network for as many tokens"),
])
def test_load_weights_refuses_another_vocabulary_or_context(tmp_path, other, message):
    model = GPT(23, **SMALL_OPTIONS)
    state_before = {n: t.clone() for n, t in model.state_dict().items()}
    write_tensors(tmp_path / "model.safetensors", GPT(**{"vocab_size": 23, **SMALL_OPTIONS, **other}).state_dict())
    with pytest.raises(UsageError, match=message):
        load_weights(model, tmp_path / "model.safetensors")
    assert all(torch.equal(t, state_before[n]) for n, t in model.state_dict().items())


@pytest.mark.parametrize("prefix", ["", "transformer."])
def test_load_weights_accepts_prefixes_and_mask_buffers(tmp_path, prefix):
    torch.manual_seed(0)
    source, model = GPT(23, **SMALL_OPTIONS), GPT(23, **SMALL_OPTIONS)
    state = {prefix + n: t for n, t in source.state_dict().items()}
    # a causal mask and a constant, which old files contain
    for layer in range(2):
        state |= {
            f"{prefix}h.{layer}.attn.bias": torch.ones(1, 1, 12, 12),
            f"{prefix}h.{layer}.attn.masked_bias": torch.tensor(-1e4),
        }
    write_tensors(tmp_path / "model.safetensors", state)
    report = load_weights(model, tmp_path / "model.safetensors")
    assert not report.missing and not report.unused
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), source.parameters(), strict=True))


@pytest.mark.parametrize(
    "make",
    [
        lambda: GPT(23, context_length=4, embed_dim=16, num_layers=1, num_heads=4)(torch.zeros(1, 5, dtype=torch.long)),
        lambda: Llama(23, context_length=4, embed_dim=16, num_layers=1, num_heads=4, num_kv_heads=2, ffn_dim=24)(
            torch.zeros(1, 5, dtype=torch.long)
        ),
        lambda: BERT(23, context_length=4, embed_dim=16, num_layers=1, num_heads=4, ffn_dim=24)(
            torch.zeros(1, 5, dtype=torch.long)
        ),
        lambda: TransformerClassifier(23, 2, context_length=4, embed_dim=16, num_layers=1, num_heads=4, ffn_dim=24)(
            torch.zeros(1, 5, dtype=torch.long)
        ),
        lambda: LearnedPositions(4, 16)(torch.zeros(1, 5, 16)),
    ],
)
def test_transformers_refuse_more_tokens_than_the_context(make):
    with pytest.raises(UsageError, match="reads 4 tokens at most, got 5"):
        make()


@pytest.mark.parametrize(("heads", "width"), [(2, 10), (4, 12), (4, 18)])
def test_rotary_heads_must_have_even_width(heads, width):
    message = f"embed_dim must be a multiple of {2 * heads}, an even number for each of {heads} heads, got {width}"
    with pytest.raises(UsageError, match=message):
        Llama(23, context_length=4, embed_dim=width, num_layers=1, num_heads=heads, num_kv_heads=2, ffn_dim=24)
    with pytest.raises(UsageError, match="the width of a head must be even, got 3"):
        rotary_angles(torch.arange(4), 3)


def test_gpt_refuses_a_width_not_divisible_by_heads():
    with pytest.raises(UsageError, match="embed_dim must be a multiple of num_heads=4, got 18"):
        GPT(23, context_length=4, embed_dim=18, num_layers=1, num_heads=4)
