"""Gates and gradient norms over time against PyTorch's fused cells and closed forms."""

import pytest
import torch
from torch.autograd.functional import jacobian

from didact.explain.gradient_memory import compute_gates, compute_gradient_decay, find_reader
from didact.layers.recurrent.mixer_stack import SequenceMixerStack
from didact.layers.recurrent.recurrent import Recurrent
from didact.models.text.rnn import RecurrentClassifier


@pytest.mark.parametrize("scale", [0.8, 1.2])
def test_gradient_decay_of_an_orthogonal_rnn_is_its_scale(scale):
    reader = Recurrent("rnn", 3, 6)
    with torch.no_grad():
        reader.rnn.weight_hh_l0.mul_(scale)            # orthogonal at first
    # without input h stays 0, where the slope of tanh is 1: the product is (scale Q)^d
    expected = scale ** torch.arange(9, dtype=torch.float64)
    torch.testing.assert_close(compute_gradient_decay(reader, torch.zeros(9, 3)), expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_gradient_decay_beyond_float32_is_measured_and_beyond_float64_is_0_or_infinite(scale):
    reader = Recurrent("rnn", 3, 6)
    with torch.no_grad():
        reader.rnn.weight_hh_l0.mul_(scale)
    norms = compute_gradient_decay(reader, torch.zeros(121, 3))
    expected = scale ** torch.arange(101, dtype=torch.float64)                    # to 1e-300, or 1e300
    torch.testing.assert_close(norms[:101], expected, rtol=1e-4, atol=0)
    assert norms[-1] == (0 if scale < 1 else torch.inf)


def test_gradient_decay_of_mamba_beyond_float32_is_measured():
    reader = SequenceMixerStack("mamba", 5, 4)
    with torch.no_grad():
        reader.mixers[-1].A_log.fill_(8.5)              # every number of the state decays quickly
    norms, decay = compute_gradient_decay(reader, torch.zeros(40, 5)), reader.mixers[-1].compute_decay
    expected = decay(reader.mixer_inputs(torch.zeros(1, 40, 5))[-1])[0].flatten(1).detach().double()
    assert 0 < norms[-1] < 1e-60
    torch.testing.assert_close(norms[-1], expected[1:].prod(0).amax(), rtol=1e-4, atol=0)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_gradient_decay_is_the_slope_of_the_fused_cell(cell, layers):
    torch.manual_seed(0)
    reader = Recurrent(cell, 4, 5, num_layers=layers, init="random").double()
    x = torch.randn(7, 4, dtype=torch.float64)
    layer_input = x[None] if layers == 1 else reader.forward_with_gates(x[None])[1][0]["h"]
    cell_class = type(reader.rnn)
    fused_cell = cell_class(layer_input.shape[-1], 5, batch_first=True).double()
    fused_cell.load_state_dict({f"{name}_l0": getattr(reader.rnn, f"{name}_l{layers - 1}") for name in
                         ("weight_ih", "weight_hh", "bias_ih", "bias_hh")})
    # after three of seven: a distance of four
    state = fused_cell(layer_input[:, :3])[1]

    def compute_final_state(s):
        parts = s.view(-1, 1, 1, 5).unbind(0)
        final = fused_cell(layer_input[:, 3:], tuple(parts) if cell == "lstm" else parts[0])[1]
        return torch.cat([part.flatten() for part in (final if cell == "lstm" else (final,))])

    flat_state = torch.cat([part.flatten() for part in (state if cell == "lstm" else (state,))]).detach()
    expected = torch.linalg.matrix_norm(jacobian(compute_final_state, flat_state), 2)
    torch.testing.assert_close(compute_gradient_decay(reader, x)[4], expected)
    assert compute_gradient_decay(reader, x)[0] == 1 and len(compute_gradient_decay(reader, x)) == 7


def test_compute_gates_of_recurrent_readers():
    x = torch.randn(6, 11)
    reader = find_reader(RecurrentClassifier(30, 2, embed_dim=11, hidden_size=4))
    gate_values = compute_gates(reader, x)
    assert set(gate_values) == {"input", "forget", "candidate", "output", "cell", "h"} and gate_values[
        "forget"
    ].shape == (6, 4)
    torch.testing.assert_close(gate_values["h"], reader(x[None])[0][0].detach())
    assert find_reader(torch.nn.Linear(2, 2)) is None


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("cell", ["mamba", "mlstm"])
def test_gradient_decay_of_mamba_and_mlstm_is_the_slope_of_the_state(cell, layers):
    torch.manual_seed(0)
    reader, x = SequenceMixerStack(cell, 5, 4, num_layers=layers).double(), torch.randn(7, 5, dtype=torch.float64)
    mixer, inputs = reader.mixers[-1], reader.mixer_inputs(x[None])[-1].detach()
    # after three of seven: a distance of four
    state = mixer.forward_from_state(inputs[:, :3], mixer.initial_state(1))[1]

    def compute_final_state(s):
        if cell == "mamba":
            return mixer.forward_from_state(inputs[:, 3:], (state[0], s))[1][1]
        unit = state[2].exp()[..., None, None]                            # it is stored as C / e^m
        c, _, m = mixer.forward_from_state(inputs[:, 3:], (s / unit, *state[1:]))[1]
        return c * m.exp()[..., None, None]

    initial_state = (state[1] if cell == "mamba" else state[0]).detach()
    slope = jacobian(compute_final_state, initial_state).reshape(initial_state.numel(), initial_state.numel())
    decay = compute_gradient_decay(reader, x)
    torch.testing.assert_close(decay[4], torch.linalg.matrix_norm(slope, 2))
    assert decay[0] == 1 and len(decay) == 7


def test_gradient_decay_of_slstm_is_the_slope_of_its_unstabilized_equations():
    torch.manual_seed(0)
    reader, x = SequenceMixerStack("slstm", 5, 4).double(), torch.randn(6, 5, dtype=torch.float64)
    mixer, inputs = reader.mixers[0], reader.mixer_inputs(x[None])[0].detach()
    state = mixer.forward_from_state(inputs[:, :2], mixer.initial_state(1))[1]
    final = mixer.forward_from_state(inputs, mixer.initial_state(1))[1]
    initial_unit, final_unit = state[3].exp().detach(), final[3].exp().detach()          # units of c and n

    def run_equations(s):
        c, n, h = s[0] * initial_unit, s[1] * initial_unit, s[2]
        for wx in mixer.project_gates(inputs[:, 2:]).unbind(1):
            i, f, z, o = (wx + torch.einsum("bhd,hde->bhe", h, mixer.r)).chunk(4, dim=-1)
            c, n = f.sigmoid() * c + i.exp() * z.tanh(), f.sigmoid() * n + i.exp()
            h = o.sigmoid() * c / n
        return torch.stack([c / final_unit, n / final_unit, h])

    slope = jacobian(run_equations, torch.stack(state[:3]).detach()).reshape(12, 12)
    torch.testing.assert_close(compute_gradient_decay(reader, x)[4], torch.linalg.matrix_norm(slope, 2))


@pytest.mark.parametrize(("cell", "names"), [
    ("mamba", {"keep", "output"}), ("slstm", {"forget", "new", "candidate", "output"}), ("mlstm", {"forget", "output"}),
])
def test_gates_of_blocks_lie_between_0_and_1(cell, names):
    gate_values = compute_gates(
        find_reader(RecurrentClassifier(30, 2, cell=cell, embed_dim=11, hidden_size=4)), torch.randn(6, 11)
    )
    assert set(gate_values) == names and all(values.shape[0] == 6 for values in gate_values.values())
    assert all(values.min() >= 0 and values.max() <= 1 for name, values in gate_values.items() if name != "candidate")
