import pytest
import torch
from torch import nn

from didact.layers.attention.multihead import MultiHeadAttention
from didact.layers.dropout import dropout_enabled


def make_network():
    return nn.Sequential(nn.Linear(6, 200), nn.BatchNorm1d(200), nn.Dropout(0.4), nn.Sequential(nn.AlphaDropout(0.2)))


@pytest.mark.parametrize("training", [True, False])
def test_dropout_enabled_switches_only_dropout_on_and_restores_modes(training):
    model = make_network().train(training)
    model[0].eval()  # a frozen part stays as its owner set it
    modes_before = [m.training for m in model.modules()]
    with dropout_enabled(model):
        active_layers = {type(m).__name__ for m in model.modules() if m.training}
        assert active_layers == {"Dropout", "AlphaDropout"}
    assert [m.training for m in model.modules()] == modes_before


@pytest.mark.parametrize(
    "layer", [nn.LSTM(4, 4, num_layers=2, dropout=0.5), MultiHeadAttention(4, num_heads=2, dropout=0.5)]
)
def test_dropout_enabled_reaches_dropout_inside_a_layer(layer):
    x = torch.randn(2, 5, 4)
    run = (lambda: layer(x)[0]) if isinstance(layer, nn.LSTM) else (lambda: layer(x))
    layer.eval()
    assert torch.equal(run(), run())
    with torch.no_grad(), dropout_enabled(layer):
        assert not torch.equal(run(), run())
    assert not layer.training


def test_dropout_enabled_restores_modes_after_an_error():
    model = make_network().train()
    with pytest.raises(RuntimeError), dropout_enabled(model):
        raise RuntimeError
    assert all(m.training for m in model.modules())


def test_dropout_passes_differ_and_average_to_the_plain_pass():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Dropout(0.5), nn.Linear(50, 1)).eval(), torch.rand(3, 50)
    with torch.no_grad(), dropout_enabled(model):
        passes = torch.stack([model(x) for _ in range(4000)])
    error = passes.std(0) / 4000**0.5
    assert (error > 0).all()
    assert ((passes.mean(0) - model(x)).abs() < 4 * error).all()
