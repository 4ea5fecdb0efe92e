"""Gates and fading gradients beside PyTorch's fused cells and a closed form."""

import pytest
import torch
from torch.autograd.functional import jacobian

from didact.explain.memory import fading, gates, reader_of
from didact.layers.recurrent import Recurrent
from didact.models.recurrent import RecurrentClassifier


@pytest.mark.parametrize("scale", [0.8, 1.2])
def test_an_orthogonal_matrix_at_rest_fades_by_its_scale(scale):
    reader = Recurrent("rnn", 3, 6)
    with torch.no_grad():
        reader.rnn.weight_hh_l0.mul_(scale)            # orthogonal at first
    # without input h stays 0, where the slope of tanh is 1: the product is (scale Q)^d
    torch.testing.assert_close(fading(reader, torch.zeros(9, 3)), scale ** torch.arange(9.0))


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_it_is_the_slope_of_the_fused_cell(cell, layers):
    torch.manual_seed(0)
    reader = Recurrent(cell, 4, 5, layers=layers, init="random").double()
    x = torch.randn(7, 4, dtype=torch.float64)
    below = x[None] if layers == 1 else reader.look(x[None])[1][0]["h"]
    kind = type(reader.rnn)
    top = kind(below.shape[-1], 5, batch_first=True).double()
    top.load_state_dict({f"{name}_l0": getattr(reader.rnn, f"{name}_l{layers - 1}") for name in
                         ("weight_ih", "weight_hh", "bias_ih", "bias_hh")})
    state = top(below[:, :3])[1]                                          # after three of seven: a distance of four

    def end(s):
        parts = s.view(-1, 1, 1, 5).unbind(0)
        after = top(below[:, 3:], tuple(parts) if cell == "lstm" else parts[0])[1]
        return torch.cat([part.flatten() for part in (after if cell == "lstm" else (after,))])

    at = torch.cat([part.flatten() for part in (state if cell == "lstm" else (state,))]).detach()
    expected = torch.linalg.matrix_norm(jacobian(end, at), 2)
    torch.testing.assert_close(fading(reader, x)[4], expected)
    assert fading(reader, x)[0] == 1 and len(fading(reader, x)) == 7


def test_gates_of_both_kinds_of_readers():
    x = torch.randn(6, 11)
    reader = reader_of(RecurrentClassifier(30, 2, width=11, hidden=4))
    found = gates(reader, x)
    assert set(found) == {"input", "forget", "candidate", "output", "cell", "h"} and found["forget"].shape == (6, 4)
    torch.testing.assert_close(found["h"], reader(x[None])[0][0].detach())
    assert reader_of(torch.nn.Linear(2, 2)) is None
