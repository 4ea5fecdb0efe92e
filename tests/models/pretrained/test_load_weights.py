import copy
import pickle

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from didact.errors import UsageError
from didact.models import CNN, VGG, EfficientNet, LeNetLike, ResNet, ViT
from didact.models.pretrained.weights import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    LITE_MEAN,
    LITE_STD,
    load_weights,
    set_standardization,
)

SMALL_OPTIONS = {"depths": (1, 1), "width": 4, "size": (16, 16)}


def make_small_resnet(seed=0, **keywords):
    torch.manual_seed(seed)
    return ResNet(**{**SMALL_OPTIONS, "num_classes": 5, **keywords})


def save_state(path, state):
    save_file(state, path) if path.suffix == ".safetensors" else torch.save(state, path)
    return path


@pytest.mark.parametrize("name", ["w.safetensors", "w.pth", "w.pt"])
@pytest.mark.parametrize("prefix", ["", "module.", "network."])
def test_load_weights_loads_every_tensor(tmp_path, name, prefix):
    source, target, x = make_small_resnet(0).eval(), make_small_resnet(1).eval(), torch.rand(2, 3, 16, 16)
    report = load_weights(target, save_state(tmp_path / name, {prefix + k: v for k, v in source.state_dict().items()}))
    assert torch.equal(source(x), target(x))
    assert set(report.matched) == set(source.state_dict())
    assert str(report) == f"{name}: {len(source.state_dict())} tensors loaded"


def test_load_weights_finds_the_state_dict_in_a_checkpoint(tmp_path):
    source, target = make_small_resnet(0), make_small_resnet(1)
    path = save_state(tmp_path / "w.pth", {"epoch": 3, "optimizer": {"lr": 0.1}, "state_dict": source.state_dict()})
    assert len(load_weights(target, path).matched) == len(source.state_dict())
    assert torch.equal(source.fc.weight, target.fc.weight)


def test_load_weights_widens_half_precision(tmp_path):
    source, target = make_small_resnet(0), make_small_resnet(1)
    load_weights(target, save_state(tmp_path / "w.safetensors", copy.deepcopy(source).half().state_dict()))
    assert target.fc.weight.dtype == torch.float32
    assert torch.equal(target.fc.weight, source.fc.weight.half().float())


def test_load_weights_leaves_a_head_of_other_classes_unchanged(tmp_path):
    source, target = make_small_resnet(0, num_classes=9), make_small_resnet(1)
    head = target.fc.weight.clone()
    report = load_weights(target, save_state(tmp_path / "w.safetensors", source.state_dict()))
    assert report.reshaped == (("fc.weight", (5, 8), (9, 8)), ("fc.bias", (5,), (9,)))
    assert not report.missing and not report.unused
    assert torch.equal(target.fc.weight, head) and torch.equal(target.conv1.weight, source.conv1.weight)
    assert str(report).endswith(
        "of another shape and not loaded: fc.weight (5×8, in the file 9×8), fc.bias (5, in the file 9)"
    )


def test_load_weights_adapts_channels_and_reports_a_missing_head(tmp_path):
    source, target = make_small_resnet(0, channels=1), make_small_resnet(1)
    state = {
        k: v
        for k, v in source.state_dict().items()
        if not k.startswith("fc.") and not k.endswith("num_batches_tracked")
    }
    report = load_weights(target, save_state(tmp_path / "w.pth", state))
    assert report.missing == ("fc.weight", "fc.bias") and not report.reshaped
    assert "conv1.weight: kernels for 1 channel adapted to 3; not in the file: fc.weight, fc.bias" in str(report)


@pytest.mark.parametrize(("source_channels", "target_channels"), [(3, 1), (1, 3)])
def test_load_weights_with_other_channels_gives_the_same_on_gray_images(tmp_path, source_channels, target_channels):
    """A gray image in three equal channels gives the original kernels what the gray image gives the adapted ones, and
    vice versa.
    """
    source, target = (
        make_small_resnet(0, channels=source_channels).eval(),
        make_small_resnet(1, channels=target_channels).eval(),
    )
    load_weights(target, save_state(tmp_path / "w.safetensors", source.state_dict()))
    gray = torch.rand(2, 1, 16, 16)
    torch.testing.assert_close(
        target(gray.expand(-1, target_channels, -1, -1)), source(gray.expand(-1, source_channels, -1, -1))
    )


@pytest.mark.parametrize("channels", [1, 3])
def test_set_standardization_changes_the_input_statistics(channels):
    model = make_small_resnet(
        channels=channels, mean=torch.full((channels, 1, 1), 0.2), std=torch.ones(channels, 1, 1)
    ).eval()
    plain = make_small_resnet(channels=channels).eval()
    set_standardization(model, IMAGENET_MEAN, IMAGENET_STD)
    x = torch.rand(2, channels, 16, 16)
    mean, std = (IMAGENET_MEAN, IMAGENET_STD) if channels == 3 else (IMAGENET_MEAN.mean(), IMAGENET_STD.mean())
    torch.testing.assert_close(model(x), plain((x - mean) / std))


def test_load_weights_reports_the_unused_head_of_a_backbone(tmp_path):
    source, target = make_small_resnet(0), make_small_resnet(1)
    target.fc = nn.Identity()
    report = load_weights(target, save_state(tmp_path / "w.pth", source.state_dict()))
    assert report.unused == ("fc.weight", "fc.bias") and not report.missing


def test_load_weights_keeps_the_standardization_of_the_model(tmp_path):
    keywords = {"lite": True, **EfficientNet.example()[0], "channels": 3}
    source, target = EfficientNet(**keywords).eval(), EfficientNet(**keywords, mean=LITE_MEAN, std=LITE_STD).eval()
    report = load_weights(target, save_state(tmp_path / "lite0.pth", source.state_dict()))
    assert not report.missing
    v = torch.randint(256, (2, 3, 20, 30))
    torch.testing.assert_close(target(v / 255), source((v - 127) / 128))
    # weights saved by a run include its standardization
    third = EfficientNet(**keywords, mean=torch.zeros(3, 1, 1), std=torch.ones(3, 1, 1)).eval()
    load_weights(third, save_state(tmp_path / "run.safetensors", target.state_dict()))
    assert torch.equal(third(v / 255), target(v / 255))


@pytest.mark.parametrize(
    "other",
    [
        make_small_resnet(depths=(2, 2)),
        make_small_resnet(depths=(1, 1, 1)),
        make_small_resnet(block="bottleneck"),
        make_small_resnet(width=8),
        CNN(),
        LeNetLike(),
        VGG(**{**VGG.example()[0], "channels": 3}),
    ],
)
def test_load_weights_refuses_another_architecture(tmp_path, other):
    model = make_small_resnet()
    state_before = {k: v.clone() for k, v in model.state_dict().items()}
    with pytest.raises(
        UsageError, match=r"another architecture than this ResNet: of \d+ tensors in the file and 38"
    ) as error:
        load_weights(model, save_state(tmp_path / "w.pth", other.state_dict()))
    assert "\n" not in str(error.value)
    assert all(torch.equal(v, state_before[k]) for k, v in model.state_dict().items())
    with pytest.raises(UsageError, match="another architecture"):
        load_weights(other, save_state(tmp_path / "w.pth", state_before))


class UnsafePickle:
    def __reduce__(self):
        return print, ("executed",)


def test_load_weights_executes_no_pickled_code(tmp_path, capsys):
    path = tmp_path / "w.pth"
    torch.save({"fc.weight": UnsafePickle()}, path)
    with pytest.raises(
        UsageError, match=r"holds more than tensors, which is not run here; save its state_dict as \.safetensors"
    ):
        load_weights(make_small_resnet(), path)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("name", "content", "message"), [
    ("w.pth", b"", "damaged or not a PyTorch file"),
    ("w.pth", b"PK\x03\x04 cut off", "damaged or not a PyTorch file"),
    ("w.pth", b"<html>not found</html>", "damaged or not a PyTorch file"),
    ("w.pth", pickle.dumps([1, 2]), "damaged or not a PyTorch file"),
    ("w.safetensors", b"\x08\x00\x00\x00", "damaged or not a safetensors file"),
    ("w.h5", b"x", r"come as \.safetensors or \.pth, got 'w\.h5'"),
    ("", b"", "no weights file"),
])
def test_load_weights_refuses_damaged_or_missing_files(tmp_path, name, content, message):
    path = tmp_path / (name or "absent.pth")
    if name:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=message) as error:
        load_weights(make_small_resnet(), path)
    assert "\n" not in str(error.value)


def test_load_weights_refuses_unnamed_tensors(tmp_path):
    torch.save([torch.zeros(2)], tmp_path / "w.pth")
    with pytest.raises(UsageError, match="no named tensors; save the network's state_dict"):
        load_weights(make_small_resnet(), tmp_path / "w.pth")


def cubic_kernel(t):
    """The kernel of Keys 1981 with a = -3/4, at a distance t."""
    t = abs(t)
    return 1.25 * t**3 - 2.25 * t**2 + 1 if t <= 1 else -0.75 * (t**3 - 5 * t**2 + 8 * t - 4) if t < 2 else 0.0


def interpolate_row(table, n):
    """n values interpolated from a row, corners aligned; beyond the ends the last value repeats. By hand, one at a
    time.
    """
    m, values = len(table), []
    for i in range(n):
        position = i * (m - 1) / (n - 1)
        neighbors = range(int(position) - 1, int(position) + 3)
        values.append(sum(cubic_kernel(position - j) * table[min(max(j, 0), m - 1)] for j in neighbors))
    return torch.stack(values)


@pytest.mark.parametrize("grid", [(5, 3), (2, 4), (4, 4)])
def test_load_weights_interpolates_position_embeddings(tmp_path, grid):
    keywords = {"patch_size": 4, "embed_dim": 6, "depth": 1, "num_heads": 2, "ffn_dim": 8}
    torch.manual_seed(0)
    source, target = ViT(size=(16, 16), **keywords), ViT(size=(4 * grid[0], 4 * grid[1]), **keywords)
    report = load_weights(target, save_state(tmp_path / "w.safetensors", source.state_dict()))
    old_positions = source.encoder.pos_embedding.detach()[0]
    # down, then across: (h, 4, D) -> (h, w, D)
    rows = interpolate_row(old_positions[1:].view(4, 4, 6), grid[0])
    expected = interpolate_row(rows.transpose(0, 1), grid[1]).transpose(0, 1).reshape(-1, 6)
    new_positions = target.encoder.pos_embedding.detach()[0]
    # the class token's
    assert torch.equal(new_positions[0], old_positions[0])
    torch.testing.assert_close(new_positions[1:], expected, atol=1e-6, rtol=1e-5)
    expected_note = f"encoder.pos_embedding: interpolated from 4×4 to {grid[0]}×{grid[1]} patches"
    assert (
        (expected_note in str(report)) == (grid != (4, 4))
        and "encoder.pos_embedding" in report.matched
        and not report.reshaped
    )
