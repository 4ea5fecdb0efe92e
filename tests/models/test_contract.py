"""What every registered model keeps to; the model's own `example` supplies the input, so there are no exceptions."""

import pytest
import torch
from safetensors.torch import load_model, save_model

import didact.models  # noqa: F401  fills the registry
from didact.errors import UsageError
from didact.registry import MODELS, create


def example(name, *, batch=2, seed=0):
    torch.manual_seed(seed)
    keywords, x = MODELS[name].make.example(batch)
    return create(name, **keywords), x


def test_the_registry_is_filled():
    assert {"mlp", "mlp_tiny", "wide_deep"} <= set(MODELS)
    with pytest.raises(UsageError, match="no model named 'mlpp'; did you mean 'mlp'"):
        create("mlpp")


@pytest.mark.parametrize("name", sorted(MODELS))
def test_one_output_for_each_input_and_none_looks_at_another(name):
    model, x = example(name, batch=3)
    y = model.eval()(x)
    assert len(y) == 3
    assert y.dtype == torch.float32
    torch.testing.assert_close(model(x[1:2]), y[1:2])


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_finite_gradient_reaches_every_parameter(name):
    model, x = example(name, batch=5)
    model(x).square().mean().backward()
    dead = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.isfinite().all() or not p.grad.any()]
    assert not dead, f"no finite gradient reaches {dead}"


@pytest.mark.parametrize("name", sorted(MODELS))
def test_saved_and_loaded_it_gives_the_same(name, tmp_path):
    model, x = example(name)
    other, _ = example(name, seed=1)
    y = model.eval()(x)
    assert not torch.equal(other.eval()(x), y)
    save_model(model, str(tmp_path / "model.safetensors"))
    load_model(other, str(tmp_path / "model.safetensors"))
    torch.testing.assert_close(other(x), y, rtol=0, atol=0)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_same_seed_gives_the_same_weights(name):
    (one, _), (two, _) = example(name), example(name)
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(a, b)
