import copy
import pickle

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from didact.errors import UsageError
from didact.models import CNN, VGG, EfficientNet, LeNetLike, ResNet, ViT
from didact.models.weights import IMAGENET_MEAN, IMAGENET_STD, LITE_MEAN, LITE_STD, load_weights, restandardise

SMALL = {"depths": (1, 1), "width": 4, "size": (16, 16)}


def small(seed=0, **keywords):
    torch.manual_seed(seed)
    return ResNet(**{**SMALL, "classes": 5, **keywords})


def written(path, state):
    save_file(state, path) if path.suffix == ".safetensors" else torch.save(state, path)
    return path


@pytest.mark.parametrize("name", ["w.safetensors", "w.pth", "w.pt"])
@pytest.mark.parametrize("prefix", ["", "module.", "network."])
def test_all_of_it_loads(tmp_path, name, prefix):
    one, two, x = small(0).eval(), small(1).eval(), torch.rand(2, 3, 16, 16)
    report = load_weights(two, written(tmp_path / name, {prefix + k: v for k, v in one.state_dict().items()}))
    assert torch.equal(one(x), two(x))
    assert set(report.matched) == set(one.state_dict())
    assert str(report) == f"{name}: {len(one.state_dict())} tensors loaded"


def test_inside_a_checkpoint_beside_other_things(tmp_path):
    one, two = small(0), small(1)
    path = written(tmp_path / "w.pth", {"epoch": 3, "optimizer": {"lr": 0.1}, "state_dict": one.state_dict()})
    assert len(load_weights(two, path).matched) == len(one.state_dict())
    assert torch.equal(one.fc.weight, two.fc.weight)


def test_half_precision_widens(tmp_path):
    one, two = small(0), small(1)
    load_weights(two, written(tmp_path / "w.safetensors", copy.deepcopy(one).half().state_dict()))
    assert two.fc.weight.dtype == torch.float32
    assert torch.equal(two.fc.weight, one.fc.weight.half().float())


def test_a_head_for_other_classes_stays_as_it_was(tmp_path):
    one, two = small(0, classes=9), small(1)
    head = two.fc.weight.clone()
    report = load_weights(two, written(tmp_path / "w.safetensors", one.state_dict()))
    assert report.reshaped == (("fc.weight", (5, 8), (9, 8)), ("fc.bias", (5,), (9,)))
    assert not report.missing and not report.unused
    assert torch.equal(two.fc.weight, head) and torch.equal(two.conv1.weight, one.conv1.weight)
    assert str(report).endswith(
        "of another shape and left as they were: fc.weight (5×8, in the file 9×8), fc.bias (5, in the file 9)"
    )


def test_other_channels_no_head_and_no_counters(tmp_path):
    one, two = small(0, channels=1), small(1)
    state = {k: v for k, v in one.state_dict().items() if not k.startswith("fc.") and not k.endswith("num_batches_tracked")}
    report = load_weights(two, written(tmp_path / "w.pth", state))
    assert report.missing == ("fc.weight", "fc.bias") and not report.reshaped
    assert "conv1.weight: kernels for 1 channel made to fit 3; not in the file: fc.weight, fc.bias" in str(report)


@pytest.mark.parametrize(("theirs", "ours"), [(3, 1), (1, 3)])
def test_kernels_for_other_channels_read_grey_as_before(tmp_path, theirs, ours):
    """Grey in three equal channels is the same to three-channel kernels as grey is to what was made of them; and the other way."""
    one, two = small(0, channels=theirs).eval(), small(1, channels=ours).eval()
    load_weights(two, written(tmp_path / "w.safetensors", one.state_dict()))
    grey = torch.rand(2, 1, 16, 16)
    torch.testing.assert_close(two(grey.expand(-1, ours, -1, -1)), one(grey.expand(-1, theirs, -1, -1)))


@pytest.mark.parametrize("channels", [1, 3])
def test_another_standardisation_goes_in_front(channels):
    model = small(channels=channels, mean=torch.full((channels, 1, 1), 0.2), std=torch.ones(channels, 1, 1)).eval()
    plain = small(channels=channels).eval()
    restandardise(model, IMAGENET_MEAN, IMAGENET_STD)
    x = torch.rand(2, channels, 16, 16)
    mean, std = (IMAGENET_MEAN, IMAGENET_STD) if channels == 3 else (IMAGENET_MEAN.mean(), IMAGENET_STD.mean())
    torch.testing.assert_close(model(x), plain((x - mean) / std))


def test_a_backbone_takes_the_file_without_its_head(tmp_path):
    one, two = small(0), small(1)
    two.fc = nn.Identity()
    report = load_weights(two, written(tmp_path / "w.pth", one.state_dict()))
    assert report.unused == ("fc.weight", "fc.bias") and not report.missing


def test_published_weights_go_behind_a_standardisation(tmp_path):
    keywords = {"lite": True, **EfficientNet.example()[0], "channels": 3}
    one, two = EfficientNet(**keywords).eval(), EfficientNet(**keywords, mean=LITE_MEAN, std=LITE_STD).eval()
    report = load_weights(two, written(tmp_path / "lite0.pth", one.state_dict()))
    assert not report.missing
    v = torch.randint(256, (2, 3, 20, 30))
    torch.testing.assert_close(two(v / 255), one((v - 127) / 128))
    # and what a run saved brings its standardisation along
    three = EfficientNet(**keywords, mean=torch.zeros(3, 1, 1), std=torch.ones(3, 1, 1)).eval()
    load_weights(three, written(tmp_path / "run.safetensors", two.state_dict()))
    assert torch.equal(three(v / 255), two(v / 255))


@pytest.mark.parametrize("other", [
    small(depths=(2, 2)), small(depths=(1, 1, 1)), small(block="bottleneck"), small(width=8), CNN(), LeNetLike(),
    VGG(**{**VGG.example()[0], "channels": 3}),
])
def test_another_architecture_is_refused_and_changes_nothing(tmp_path, other):
    model = small()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with pytest.raises(UsageError, match=r"another architecture than this ResNet: of \d+ tensors in the file and 38") as error:
        load_weights(model, written(tmp_path / "w.pth", other.state_dict()))
    assert "\n" not in str(error.value)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    with pytest.raises(UsageError, match="another architecture"):
        load_weights(other, written(tmp_path / "w.pth", before))


class Evil:
    def __reduce__(self):
        return print, ("executed",)


def test_nothing_is_executed(tmp_path, capsys):
    path = tmp_path / "w.pth"
    torch.save({"fc.weight": Evil()}, path)
    with pytest.raises(UsageError, match=r"holds more than tensors, which is not run here; save its state_dict as \.safetensors"):
        load_weights(small(), path)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("name", "content", "complaint"), [
    ("w.pth", b"", "damaged or not a PyTorch file"),
    ("w.pth", b"PK\x03\x04 cut off", "damaged or not a PyTorch file"),
    ("w.pth", b"<html>not found</html>", "damaged or not a PyTorch file"),
    ("w.pth", pickle.dumps([1, 2]), "damaged or not a PyTorch file"),
    ("w.safetensors", b"\x08\x00\x00\x00", "damaged or not a safetensors file"),
    ("w.h5", b"x", r"come as \.safetensors or \.pth, got 'w\.h5'"),
    ("", b"", "no weights file"),
])
def test_files_that_are_none(tmp_path, name, content, complaint):
    path = tmp_path / (name or "absent.pth")
    if name:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=complaint) as error:
        load_weights(small(), path)
    assert "\n" not in str(error.value)


def test_tensors_without_names(tmp_path):
    torch.save([torch.zeros(2)], tmp_path / "w.pth")
    with pytest.raises(UsageError, match="no named tensors; save the network's state_dict"):
        load_weights(small(), tmp_path / "w.pth")


def cubic(t):
    """The kernel of Keys 1981 with a = -3/4, at a distance t."""
    t = abs(t)
    return 1.25 * t**3 - 2.25 * t**2 + 1 if t <= 1 else -0.75 * (t**3 - 5 * t**2 + 8 * t - 4) if t < 2 else 0.0


def read_off(table, n):
    """n places of a row of values, corner on corner; beyond the ends stands the last value. By hand, one place at a time."""
    m, found = len(table), []
    for i in range(n):
        at = i * (m - 1) / (n - 1)
        near = range(int(at) - 1, int(at) + 3)
        found.append(sum(cubic(at - j) * table[min(max(j, 0), m - 1)] for j in near))
    return torch.stack(found)


@pytest.mark.parametrize("grid", [(5, 3), (2, 4), (4, 4)])
def test_positions_of_another_grid_are_read_off_between_the_old_ones(tmp_path, grid):
    keywords = {"patch": 4, "dim": 6, "depth": 1, "heads": 2, "hidden": 8}
    torch.manual_seed(0)
    one, two = ViT(size=(16, 16), **keywords), ViT(size=(4 * grid[0], 4 * grid[1]), **keywords)
    report = load_weights(two, written(tmp_path / "w.safetensors", one.state_dict()))
    old = one.encoder.pos_embedding.detach()[0]
    rows = read_off(old[1:].view(4, 4, 6), grid[0])                                        # down, then across: (h, 4, D) -> (h, w, D)
    by_hand = read_off(rows.transpose(0, 1), grid[1]).transpose(0, 1).reshape(-1, 6)
    new = two.encoder.pos_embedding.detach()[0]
    assert torch.equal(new[0], old[0])                                                     # the class token's
    torch.testing.assert_close(new[1:], by_hand, atol=1e-6, rtol=1e-5)
    told = f"encoder.pos_embedding: a grid of 4×4 read off at {grid[0]}×{grid[1]} places"
    assert (told in str(report)) == (grid != (4, 4)) and "encoder.pos_embedding" in report.matched and not report.reshaped
