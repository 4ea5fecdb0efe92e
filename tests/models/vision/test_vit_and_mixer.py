import pytest
import torch
from torch import nn

from didact.errors import UsageError
from didact.models import Mixer, ViT
from didact.registry import create_model


def count_parameters(model):
    return sum(p.numel() for p in model.parameters())


def test_vit_parameter_counts_and_names_match_torchvision():
    with torch.device("meta"):
        model = create_model("vit_b_16", num_classes=1000)
        assert count_parameters(create_model("vit_s_16", num_classes=1000)) == 22_050_664        # DeiT's table: 22 M
    assert count_parameters(model) == 86_567_656
    shapes = {name: tuple(p.shape) for name, p in model.state_dict().items()}
    assert len(shapes) == 152
    layer = "encoder.layers.encoder_layer_11"
    assert shapes.items() >= {
        "class_token": (1, 1, 768), "conv_proj.weight": (768, 3, 16, 16), "conv_proj.bias": (768,),
        "encoder.pos_embedding": (1, 197, 768), "encoder.layers.encoder_layer_0.ln_1.weight": (768,),
        f"{layer}.self_attention.in_proj_weight": (2304, 768), f"{layer}.self_attention.in_proj_bias": (2304,),
        f"{layer}.self_attention.out_proj.weight": (768, 768), f"{layer}.ln_2.bias": (768,),
        f"{layer}.mlp.0.weight": (3072, 768), f"{layer}.mlp.3.weight": (768, 3072), f"{layer}.mlp.3.bias": (768,),
        "encoder.ln.weight": (768,), "heads.head.weight": (1000, 768), "heads.head.bias": (1000,),
    }.items()


def test_vit_outputs_match_torchvision():
    torchvision = pytest.importorskip("torchvision")
    torch.manual_seed(0)
    model = ViT(size=(32, 32), patch_size=8, embed_dim=24, depth=3, num_heads=3, ffn_dim=40, num_classes=5).eval()
    reference = torchvision.models.VisionTransformer(32, 8, 3, 3, 24, 40, num_classes=5).eval()
    reference.load_state_dict(model.state_dict())
    x = torch.rand(2, 3, 32, 32)
    torch.testing.assert_close(model(x), reference(x))


def test_vit_block_matches_pytorch_encoder_layer():
    """The same weights in nn.TransformerEncoderLayer, norm first, GELU: written by others, with other names."""
    torch.manual_seed(0)
    model = ViT(size=(16, 16), patch_size=8, embed_dim=24, depth=1, num_heads=3, ffn_dim=40).eval()
    block = model.encoder.layers[0]
    reference = nn.TransformerEncoderLayer(
        24, 3, 40, 0.0, "gelu", layer_norm_eps=1e-6, batch_first=True, norm_first=True
    )
    names = {"self_attention.": "self_attn.", "ln_1": "norm1", "ln_2": "norm2", "mlp.0": "linear1", "mlp.3": "linear2"}
    state = {}
    for name, value in block.state_dict().items():
        for a, b in names.items():
            name = name.replace(a, b)
        state[name] = value
    reference.load_state_dict(state)
    x = torch.randn(2, 5, 24)
    torch.testing.assert_close(block(x), reference(x))


def test_vit_positions_distinguish_patches():
    torch.manual_seed(0)
    model, x = create_model("vit_tiny").eval(), torch.rand(1, 3, 32, 32)
    flipped = x.flip(-1)
    assert not torch.allclose(model(x), model(flipped), atol=1e-4)
    with torch.no_grad():
        model.encoder.pos_embedding.zero_()
        swapped = torch.cat([x[..., 16:], x[..., :16]], dim=-1)                   # permuted patches
    torch.testing.assert_close(model(x), model(swapped), rtol=1e-4, atol=1e-5)


def test_vit_attention_maps_are_those_of_the_forward_pass():
    torch.manual_seed(0)
    model, x = (
        ViT(size=(16, 16), patch_size=4, embed_dim=24, depth=2, num_heads=3, ffn_dim=40).eval(),
        torch.rand(2, 3, 16, 16),
    )
    maps = model.attention_maps(x)
    assert maps.shape == (2, 2, 3, 17, 17)
    torch.testing.assert_close(maps.sum(-1), torch.ones(2, 2, 3, 17))
    recorded_maps = []
    second_layer = model.encoder.layers[1].self_attention
    handle = second_layer.register_forward_hook(
        lambda module, inputs, output: recorded_maps.append(module.forward_with_weights(inputs[0])[1])
    )
    model(x)
    handle.remove()
    torch.testing.assert_close(maps[:, 1], recorded_maps[0])


@pytest.mark.parametrize("model", [create_model("vit_tiny"), Mixer(embed_dim=16, depth=1)])
def test_vit_and_mixer_refuse_images_not_divisible_into_patches(model):
    with pytest.raises(UsageError, match="images of 30×32 pixels cannot be cut into patches of 4"):
        type(model)(
            **({"num_heads": 2, "ffn_dim": 8} if isinstance(model, ViT) else {}),
            size=(30, 32), patch_size=4, embed_dim=8, depth=1,
        )


def test_mixer_matches_a_hand_written_block():
    """One block in NumPy-like steps: tokens are mixed down the columns, channels along the rows."""
    torch.manual_seed(0)
    model, x = Mixer(embed_dim=8, depth=1, num_classes=3, size=(8, 8), patch_size=4).eval(), torch.rand(2, 3, 8, 8)
    t, block = model.embed(x), model.blocks[0]
    u = t.clone()
    n = nn.functional.layer_norm(t, (8,))
    for channel in range(8):
        u[:, :, channel] += block.mix_tokens(n[:, :, channel])
    y = u.clone()
    n = nn.functional.layer_norm(u, (8,))
    for token in range(4):
        y[:, token] += block.mix_channels(n[:, token])
    torch.testing.assert_close(model(x), model.head(nn.functional.layer_norm(y, (8,)).mean(1)))
    # patches 4·4·3 -> 64, four blocks for 64 tokens, norm, head
    block_size = 4 * 64 + (64 * 32 + 32 + 32 * 64 + 64) + (64 * 256 + 256 + 256 * 64 + 64)
    assert count_parameters(create_model("mixer_tiny")) == (48 * 64 + 64) + 4 * block_size + 2 * 64 + 64 * 10 + 10


@pytest.mark.parametrize(("name", "count"), [("mixer_s_16", 18_528_264), ("mixer_b_16", 59_880_472)])
def test_mixers_have_the_papers_parameter_counts(name, count):
    """Tolstikhin et al. 2021, table 1: 18 and 59 million; to the unit those of timm's `mixer_s16_224` and
    `mixer_b16_224`."""
    with torch.device("meta"):
        assert count_parameters(create_model(name, num_classes=1000)) == count


@pytest.mark.parametrize("name", ["vit_tiny", "mixer_tiny"])
def test_vit_and_mixer_learn_where_a_patch_is(name):
    """Eight images that differ in which patch is white."""
    torch.manual_seed(0)
    options = {"embed_dim": 32, "depth": 2} | ({"ffn_dim": 64} if name == "vit_tiny" else {})
    model, x, y = create_model(name, num_classes=8, **options), torch.zeros(8, 3, 32, 32), torch.arange(8)
    for k in range(8):
        x[k, :, 4 * k : 4 * k + 4, 8:12] = 1
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(100):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    assert (model.eval()(x).argmax(1) == y).all()
