"""Gates and fading gradients beside PyTorch's fused cells and a closed form."""

import pytest
import torch
from torch.autograd.functional import jacobian

from didact.explain.memory import fading, gates, reader_of
from didact.layers.mixing import Mixing
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


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("cell", ["mamba", "mlstm"])
def test_what_fades_number_by_number_is_the_slope_of_the_state(cell, layers):
    torch.manual_seed(0)
    reader, x = Mixing(cell, 5, 4, layers=layers).double(), torch.randn(7, 5, dtype=torch.float64)
    mixer, given = reader.mixers[-1], reader.heard(x[None])[-1].detach()
    state = mixer.after(given[:, :3], mixer.start(1))[1]                  # after three of seven: a distance of four

    def end(s):
        if cell == "mamba":
            return mixer.after(given[:, 3:], (state[0], s))[1][1]
        unit = state[2].exp()[..., None, None]                            # it is kept as C / e^m
        c, _, m = mixer.after(given[:, 3:], (s / unit, *state[1:]))[1]
        return c * m.exp()[..., None, None]

    at = (state[1] if cell == "mamba" else state[0]).detach()
    slope = jacobian(end, at).reshape(at.numel(), at.numel())
    found = fading(reader, x)
    torch.testing.assert_close(found[4], torch.linalg.matrix_norm(slope, 2))
    assert found[0] == 1 and len(found) == 7


def test_an_slstms_memory_is_the_slope_of_its_equations_without_a_stabiliser():
    torch.manual_seed(0)
    reader, x = Mixing("slstm", 5, 4).double(), torch.randn(6, 5, dtype=torch.float64)
    mixer, given = reader.mixers[0], reader.heard(x[None])[0].detach()
    state = mixer.after(given[:, :2], mixer.start(1))[1]
    end = mixer.after(given, mixer.start(1))[1]
    before, after = state[3].exp().detach(), end[3].exp().detach()          # units of c and n

    def read(s):
        c, n, h = s[0] * before, s[1] * before, s[2]
        for wx in mixer.gates(given[:, 2:]).unbind(1):
            i, f, z, o = (wx + torch.einsum("bhd,hde->bhe", h, mixer.r)).chunk(4, dim=-1)
            c, n = f.sigmoid() * c + i.exp() * z.tanh(), f.sigmoid() * n + i.exp()
            h = o.sigmoid() * c / n
        return torch.stack([c / after, n / after, h])

    slope = jacobian(read, torch.stack(state[:3]).detach()).reshape(12, 12)
    torch.testing.assert_close(fading(reader, x)[4], torch.linalg.matrix_norm(slope, 2))


@pytest.mark.parametrize(("cell", "names"), [
    ("mamba", {"keep", "output"}), ("slstm", {"forget", "new", "candidate", "output"}), ("mlstm", {"forget", "output"}),
])
def test_gates_of_blocks_are_gates(cell, names):
    found = gates(reader_of(RecurrentClassifier(30, 2, cell=cell, width=11, hidden=4)), torch.randn(6, 11))
    assert set(found) == names and all(values.shape[0] == 6 for values in found.values())
    assert all(values.min() >= 0 and values.max() <= 1 for name, values in found.items() if name != "candidate")
