"""The contract of every registered model; the model's own `example` supplies the input, so there are no exceptions."""

import pytest
import torch
from safetensors.torch import load_model, save_model

import didact.models  # noqa: F401  fills the registry
from didact.errors import UsageError
from didact.registry import MODELS, create_model


def make_example(name, *, batch_size=2, seed=0):
    torch.manual_seed(seed)
    keywords, x = MODELS[name].model_class.example(batch_size)
    return create_model(name, **keywords), x


def test_model_registry_is_filled():
    assert {"mlp", "mlp_tiny", "wide_deep"} <= set(MODELS)
    with pytest.raises(UsageError, match="no model named 'mlpp'; did you mean 'mlp'"):
        create_model("mlpp")


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_model_treats_examples_independently(name):
    model, x = make_example(name, batch_size=3)
    y = model.eval()(x)
    assert len(y) == 3
    assert y.dtype == torch.float32
    torch.testing.assert_close(model(x[1:2]), y[1:2])


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_model_gets_finite_gradients_everywhere(name):
    model, x = make_example(name, batch_size=5)
    model(x).square().mean().backward()
    dead = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.isfinite().all() or not p.grad.any()]
    assert not dead, f"no finite gradient reaches {dead}"


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_model_gives_the_same_after_saving_and_loading(name, tmp_path):
    model, x = make_example(name)
    other, _ = make_example(name, seed=1)
    y = model.eval()(x)
    assert not torch.equal(other.eval()(x), y)
    save_model(model, str(tmp_path / "model.safetensors"))
    load_model(other, str(tmp_path / "model.safetensors"))
    torch.testing.assert_close(other(x), y, rtol=0, atol=0)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_model_has_the_same_weights_for_the_same_seed(name):
    (first, _), (second, _) = make_example(name), make_example(name)
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)
