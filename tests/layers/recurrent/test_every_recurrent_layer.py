"""Cells against PyTorch's fused ones, both directions against packed sequences, scans against the loop."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from didact.errors import UsageError
from didact.layers.recurrent.cells import gru_step, gru_step_2014, unroll_cell
from didact.layers.recurrent.mamba import Mamba, scan, selective_scan, sequential_scan
from didact.layers.recurrent.recurrent import Bidirectional, Recurrent, cell_weights, final_states, last_valid
from didact.layers.recurrent.xlstm import MLSTM, SLSTM

CELLS = ["rnn", "lstm", "gru"]
NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
PYTORCH_LAYERS = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}


@pytest.fixture(autouse=True)
def seed_torch():
    torch.manual_seed(0)


@pytest.mark.parametrize("cell", CELLS)
def test_recurrent_cells_match_pytorch_layers(cell):
    x = torch.randn(3, 11, 5)
    reference = PYTORCH_LAYERS[cell](5, 7, 2, batch_first=True)
    layer = Recurrent(cell, 5, 7, num_layers=2)
    layer.rnn.load_state_dict(reference.state_dict())
    y, gates = layer.forward_with_gates(x)
    torch.testing.assert_close(y, reference(x)[0])
    torch.testing.assert_close(layer(x)[0], reference(x)[0])
    assert len(gates) == 2 and gates[0]["h"].shape == (3, 11, 7)
    dy = torch.randn_like(y)
    gradients = torch.autograd.grad(y, list(layer.parameters()), dy)
    expected_gradients = torch.autograd.grad(reference(x)[0], list(reference.parameters()), dy)
    for a, b in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("cell", CELLS)
def test_recurrent_in_two_chunks_matches_one_pass(cell):
    layer, x = Recurrent(cell, 5, 7, num_layers=2), torch.randn(3, 10, 5)
    full_output, _ = layer(x)
    first_output, state = layer(x[:, :4])
    second_output, _ = layer(x[:, 4:], state)
    torch.testing.assert_close(torch.cat([first_output, second_output], 1), full_output)


@pytest.mark.parametrize("cell", CELLS)
def test_bidirectional_matches_a_packed_sequence(cell):
    x, lengths = torch.randn(4, 9, 5), torch.tensor([9, 4, 1, 6])
    bidirectional = Bidirectional(cell, 5, 7, num_layers=2)
    reference = PYTORCH_LAYERS[cell](5, 7, 2, batch_first=True, bidirectional=True)
    for layer in range(2):
        for suffix, side in (("", bidirectional.right), ("_reverse", bidirectional.left)):
            for name, p in side[layer].rnn.named_parameters():
                getattr(reference, name.replace("_l0", f"_l{layer}") + suffix).data.copy_(p)
    packed, state = reference(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
    expected, _ = pad_packed_sequence(packed, batch_first=True, total_length=9)
    y = bidirectional(x, lengths)
    torch.testing.assert_close(y, expected)
    h = state[0] if cell == "lstm" else state
    torch.testing.assert_close(final_states(y, lengths), torch.cat([h[2], h[3]], -1))
    torch.testing.assert_close(last_valid(y, lengths), expected[torch.arange(4), lengths - 1])


def test_lstm_gates_lie_in_the_unit_interval_and_update_the_cell():
    gates = Recurrent("lstm", 5, 7).forward_with_gates(torch.randn(2, 6, 5))[1][0]
    assert set(gates) == {"input", "forget", "candidate", "output", "cell", "h"}
    assert all(gates[g].min() > 0 and gates[g].max() < 1 for g in ("input", "forget", "output"))
    previous_cell = torch.cat([torch.zeros(2, 1, 7), gates["cell"][:, :-1]], 1)
    torch.testing.assert_close(gates["cell"], gates["forget"] * previous_cell + gates["input"] * gates["candidate"])


def test_gru_and_gru_2014_differ():
    reference = nn.GRU(5, 7, batch_first=True)
    x, h = torch.randn(3, 5), torch.randn(3, 7)
    w = cell_weights(reference, 0)
    gru_output, gru_2014_output = gru_step(x, (h,), w)[0][0], gru_step_2014(x, (h,), w)[0][0]
    torch.testing.assert_close(gru_output, reference(x[:, None], h[None])[0][:, 0])
    assert (gru_output - gru_2014_output).abs().max() > 0.1
    w_ih, w_hh, b_ih, b_hh = (p.detach().double().numpy() for p in w)
    s = lambda a: 1 / (1 + np.exp(-a))  # noqa: E731
    x, h = x.double().numpy(), h.double().numpy()
    def gate(k, h):
        return (
            x @ w_ih[7 * k : 7 * k + 7].T
        + h @ w_hh[7 * k : 7 * k + 7].T
        + b_ih[7 * k : 7 * k + 7]
        + b_hh[7 * k : 7 * k + 7]
        )

    r, z = s(gate(0, h)), s(gate(1, h))
    np.testing.assert_allclose(gru_2014_output.detach().numpy(), (1 - z) * h + z * np.tanh(gate(2, r * h)), atol=1e-6)


def test_recurrent_init_is_orthogonal_with_forget_bias_one():
    rnn = Recurrent("lstm", 5, 16, num_layers=2).rnn
    for gate in rnn.weight_hh_l1.split(16):
        torch.testing.assert_close(gate @ gate.T, torch.eye(16), atol=1e-5, rtol=0)
    assert rnn.bias_ih_l1[16:32].eq(1).all() and rnn.bias_ih_l1[:16].eq(0).all() and rnn.bias_hh_l1.eq(0).all()
    random_weight = Recurrent("rnn", 5, 16, init="random").rnn.weight_hh_l0
    assert random_weight.abs().max() <= 0.25 and not torch.allclose(
        random_weight @ random_weight.T, torch.eye(16), atol=0.1
    )


def test_recurrent_parameter_count_is_the_courses_plus_a_second_bias():
    for cell, gates in (("rnn", 1), ("gru", 3), ("lstm", 4)):
        total = sum(p.numel() for p in Recurrent(cell, 10, 20).parameters())
        assert total == gates * 20 * (20 + 10 + 1) + gates * 20      # Gaba Rem. 5.6, and b_hh


def test_unknown_cell_suggests_the_nearest():
    with pytest.raises(UsageError, match="no cell named 'lstn'; did you mean 'lstm'"):
        Recurrent("lstn", 3, 4)


@pytest.mark.parametrize("t", [1, 2, 7, 32, 33])
def test_scan_matches_the_sequential_scan(t):
    a, b = (
        torch.rand(3, t, 4, 2, dtype=torch.float64).requires_grad_(),
        torch.randn(3, t, 4, 2, dtype=torch.float64).requires_grad_(),
    )
    torch.testing.assert_close(scan(a, b), sequential_scan(a, b))
    dy = torch.randn(3, t, 4, 2, dtype=torch.float64)
    gradients, expected_gradients = (
        torch.autograd.grad(f(a, b), (a, b), dy, materialize_grads=True) for f in (scan, sequential_scan)
    )
    torch.testing.assert_close(gradients, expected_gradients)


def test_selective_scan_with_fixed_parameters_is_a_convolution():
    """Δ, B, C fixed: y = K * x with K_t = Σ_n C_n exp(Δ A_n)^t Δ B_n (Gaba 5.10)."""
    x, a = torch.randn(1, 12, 3, dtype=torch.float64), -torch.rand(3, 4, dtype=torch.float64)
    b, c, delta, d = (
        torch.randn(4, dtype=torch.float64),
        torch.randn(4, dtype=torch.float64),
        0.3,
        torch.zeros(3, dtype=torch.float64),
    )
    y, _ = selective_scan(x, torch.full_like(x, delta), a, b.expand(1, 12, 4), c.expand(1, 12, 4), d)
    t = torch.arange(12)[:, None, None]
    kernel = (c * (delta * a * t).exp() * delta * b).sum(-1)                     # (T, D)
    f = torch.fft.rfft(x[0], 24, dim=0) * torch.fft.rfft(kernel, 24, dim=0)      # O(T log T)
    torch.testing.assert_close(y[0], torch.fft.irfft(f, 24, dim=0)[:12])


def test_mamba_parallel_matches_sequential_and_is_causal():
    block, x = Mamba(12, state_dim=5), torch.randn(2, 19, 12)
    y = block(x)
    torch.testing.assert_close(y, block(x, parallel=False), atol=1e-5, rtol=1e-4)
    other = x.clone()
    other[:, 11:] += 1
    torch.testing.assert_close(block(other)[:, :11], y[:, :11], atol=1e-5, rtol=1e-4)
    assert (block(other)[:, 11:] - y[:, 11:]).abs().max() > 1e-3
    assert {name: tuple(p.shape) for name, p in Mamba(32).named_parameters()} == {   # as published for dim 32
        "A_log": (64, 16), "D": (64,), "in_proj.weight": (128, 32), "conv1d.weight": (64, 1, 4), "conv1d.bias": (64,),
        "x_proj.weight": (34, 64), "dt_proj.weight": (64, 2), "dt_proj.bias": (64,), "out_proj.weight": (32, 64),
    }


def test_mamba_step_sizes_are_initialized_log_uniformly():
    """Uniform in their logarithm: a quarter of them up to 0.001 · 100^¼, half up to 0.01, …"""
    delta = nn.functional.softplus(Mamba(16, expand=256).dt_proj.bias).detach()
    assert delta.min() > 0.00099 and delta.max() < 0.101
    quarters = delta.log10().quantile(torch.tensor([0, 0.25, 0.5, 0.75, 1]))
    torch.testing.assert_close(quarters, torch.tensor([-3, -2.5, -2, -1.5, -1]), atol=0.05, rtol=0)


def test_mlstm_parallel_matches_sequential_and_its_equations():
    block, x = MLSTM(12, num_heads=3).double(), torch.randn(2, 9, 12, dtype=torch.float64)
    y = block(x)
    torch.testing.assert_close(y, block(x, parallel=False))
    q, k, v = (t.view(2, 9, 3, 4) for t in block.qkv(x).chunk(3, -1))
    i, f = block.gates(x).chunk(2, -1)
    c, n = torch.zeros(2, 3, 4, 4, dtype=torch.float64), torch.zeros(2, 3, 4, dtype=torch.float64)
    # no stabilizer: the numbers are small here
    for t in range(9):
        c = (
            f[:, t, :, None, None].sigmoid() * c
            + i[:, t, :, None, None].exp() * v[:, t, :, :, None] * k[:, t, :, None] / 2
        )
        n = f[:, t, :, None].sigmoid() * n + i[:, t, :, None].exp() * k[:, t] / 2
        h = (c @ q[:, t, :, :, None])[..., 0] / (n * q[:, t]).sum(-1, keepdim=True).abs().clamp(min=1)
        torch.testing.assert_close(y[:, t], block.o(x[:, t]).sigmoid() * h.flatten(1))


def test_slstm_follows_its_equations_with_overflowing_gates():
    block, x = SLSTM(6, num_heads=2).double(), torch.randn(2, 8, 6, dtype=torch.float64)
    y = block(x)
    w, r = block.w(x).view(2, 8, 2, 12), block.r
    c = n = h = torch.zeros(2, 2, 3, dtype=torch.float64)
    for t in range(8):
        i, f, z, o = (w[:, t] + torch.stack([h[:, k] @ r[k] for k in range(2)], 1)).split(3, -1)
        c, n = f.sigmoid() * c + i.exp() * z.tanh(), f.sigmoid() * n + i.exp()
        h = o.sigmoid() * c / n
        torch.testing.assert_close(y[:, t], h.flatten(1))
    with torch.no_grad():
        block.w.bias.fill_(2000.0)                                               # e^2000 overflows float64
    out = block(x)
    assert out.isfinite().all()
    out.sum().backward()
    assert all(p.grad.isfinite().all() for p in block.parameters())


def test_unroll_cell_returns_every_step():
    h, (state,), gates = unroll_cell(
        "rnn", torch.randn(2, 5, 3), (torch.zeros(2, 4),), cell_weights(nn.RNN(3, 4, batch_first=True), 0)
    )
    torch.testing.assert_close(h[:, -1], state)
    assert gates["h"] is h


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, NEEDS_GPU])])
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_forward_layer_by_layer_matches_the_fused_stack(cell, device, monkeypatch):
    """The path of CUDA with dropout between the layers; with probability 0 it is PyTorch's own stack."""
    torch.manual_seed(0)
    layer, x = Recurrent(cell, 5, 7, num_layers=3, dropout=0.5).to(device), torch.randn(4, 6, 5, device=device)
    state = tuple(torch.randn(3, 4, 7, device=device) for _ in layer.initial_state(4))
    monkeypatch.setattr(torch.nn.functional, "dropout", lambda x, p: x)
    y, new_state = layer._forward_layer_by_layer(x, state)
    gradients = torch.autograd.grad(y.square().sum() + new_state[0].sum(), list(layer.parameters()))
    layer.rnn.dropout = 0.0
    expected, expected_state = layer(x, state)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(new_state, tuple(expected_state))
    expected_gradients = torch.autograd.grad(
        expected.square().sum() + expected_state[0].sum(), list(layer.parameters())
    )
    torch.testing.assert_close(gradients, expected_gradients, rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
@NEEDS_GPU
def test_dropout_between_layers_uses_the_torch_generator():
    """cuDNN's own random state could not be saved in a checkpoint."""
    layer, x = Recurrent("lstm", 5, 7, num_layers=2, dropout=0.5).cuda().train(), torch.randn(4, 6, 5, device="cuda")
    rng_state = torch.cuda.get_rng_state()
    first_output, second_output = layer(x)[0], layer(x)[0]
    torch.cuda.set_rng_state(rng_state)
    assert torch.equal(layer(x)[0], first_output) and not torch.equal(first_output, second_output)


@pytest.mark.gpu
@NEEDS_GPU
def test_recurrent_under_bf16_autocast_returns_float32():
    layer, x = Recurrent("lstm", 5, 7).cuda(), torch.randn(4, 6, 5, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        y, state = layer(x.bfloat16())
        assert y.dtype == torch.float32
        # a state that a Linear has made
        assert layer(x, tuple(part.bfloat16() for part in state))[0].dtype == torch.float32
