import pytest
import torch
from torch import nn

from didact.layers.attention import SelfAttention
from didact.layers.dropout import keep_dropout


def net():
    return nn.Sequential(nn.Linear(6, 200), nn.BatchNorm1d(200), nn.Dropout(0.4), nn.Sequential(nn.AlphaDropout(0.2)))


@pytest.mark.parametrize("training", [True, False])
def test_only_dropout_is_on_and_modes_come_back(training):
    model = net().train(training)
    model[0].eval()  # a frozen part stays as its owner set it
    before = [m.training for m in model.modules()]
    with keep_dropout(model):
        on = {type(m).__name__ for m in model.modules() if m.training}
        assert on == {"Dropout", "AlphaDropout"}
    assert [m.training for m in model.modules()] == before


@pytest.mark.parametrize("layer", [nn.LSTM(4, 4, num_layers=2, dropout=0.5), SelfAttention(4, heads=2, dropout=0.5)])
def test_dropout_inside_a_layer_is_on_too(layer):
    x = torch.randn(2, 5, 4)
    run = (lambda: layer(x)[0]) if isinstance(layer, nn.LSTM) else (lambda: layer(x))
    layer.eval()
    assert torch.equal(run(), run())
    with torch.no_grad(), keep_dropout(layer):
        assert not torch.equal(run(), run())
    assert not layer.training


def test_modes_come_back_after_an_error():
    model = net().train()
    with pytest.raises(RuntimeError), keep_dropout(model):
        raise RuntimeError
    assert all(m.training for m in model.modules())


def test_passes_differ_and_their_mean_is_the_plain_pass():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Dropout(0.5), nn.Linear(50, 1)).eval(), torch.rand(3, 50)
    with torch.no_grad(), keep_dropout(model):
        passes = torch.stack([model(x) for _ in range(4000)])
    error = passes.std(0) / 4000**0.5
    assert (error > 0).all()
    assert ((passes.mean(0) - model(x)).abs() < 4 * error).all()
