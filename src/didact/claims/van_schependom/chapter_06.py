"""Van Schependom, chapter 6: recurrent networks."""


import torch
from torch import Tensor, nn

from didact.claims.forms import CorrectedClaim, Display, Equal, Exactly, InInterval
from didact.claims.groudiev.chapter_05 import lstm_step
from didact.claims.helpers import Pair
from didact.claims.registry import claim
from didact.explain.gradient_memory import compute_gradient_decay
from didact.layers.recurrent import cells
from didact.layers.recurrent.recurrent import Recurrent, cell_weights
from didact.objectives.distributions.classification import Categorical


@claim("CV32", Exactly((("B", "T", "h"), ("L", "B", "h"), ("B", "T", "h"), ("L", "B", "h"), ("L", "B", "h"))))
def shapes_of_recurrent_layers() -> tuple[tuple[str, ...], ...]:
    """z and h of didact's RNN, then z, h and c of its LSTM, two layers, batch first; they wrap nn.RNN and nn.LSTM"""
    names, x = {5: "B", 7: "T", 11: "h", 2: "L"}, torch.zeros(5, 7, 3)
    z, (h,) = Recurrent("rnn", 3, 11, num_layers=2)(x)
    y, (k, c) = Recurrent("lstm", 3, 11, num_layers=2)(x)
    return tuple(tuple(names[n] for n in t.shape) for t in (z, h, y, k, c))


@claim("CV33", Equal())
def gates_of_the_lstm() -> Pair:
    """f, i, C̃, C, o, h of the table, against didact's LSTM, by its equations and by the fused layer"""
    layer, x, zero = Recurrent("lstm", 3, 4, init="random"), torch.randn(3), torch.zeros(4)
    w, h, c = cell_weights(layer.rnn, 0), torch.randn(4), torch.randn(4)
    ours, _ = cells.lstm_step(x, (h, c), w)
    _, fused = layer(x[None, None])
    return [*lstm_step(x, h, c, w), *lstm_step(x, zero, zero, w)], [*ours, *(s[0, 0] for s in fused)]


@claim("CV49", Equal(), correction="only the second line is right: y_t depends on all inputs up to t through the state")
def likelihood_of_a_sequence() -> CorrectedClaim:
    """Σ_t log p(y_t | …) of didact's RNN given x_t alone, against the same given the sequence; corrected: given x_t and
    the state of x_<t"""
    rnn, head, x, y = Recurrent("rnn", 4, 8), nn.Linear(8, 3), torch.randn(1, 6, 4), torch.randint(3, (6,))

    def likelihood(h: Tensor) -> Tensor:
        return -Categorical(3).loss(head(h), y).sum()

    step_outputs = torch.cat([rnn(x[:, t : t + 1])[0][0] for t in range(6)])
    state, steps = None, []
    for t in range(6):
        h, state = rnn(x[:, t : t + 1], state)
        steps.append(h[0])
    sequence_likelihood = likelihood(rnn(x)[0][0])
    return CorrectedClaim(
        (likelihood(step_outputs), sequence_likelihood), (likelihood(torch.cat(steps)), sequence_likelihood)
    )


@claim(
    "CV50",
    InInterval(-3, 3),
    correction="the gradient vanishes more slowly where forget gates stay near 1; with PyTorch's initialization it is "
    "gone after 100 steps, and with large weights it still explodes",
)
def gradient_through_an_lstm() -> CorrectedClaim:
    """log₁₀ ‖∂s_T/∂s_{T−100}‖, s = (h, c), of didact's LSTM with PyTorch's initialization, by didact's gradient memory,
    and at s = 0 without biases and inputs with W_h eight times as large; corrected: forget gates at σ(10)"""
    default_lstm, open_gate_lstm, large_weight_lstm = (Recurrent("lstm", 5, 8, init="random") for _ in range(3))
    with torch.no_grad():
        open_gate_lstm.rnn.get_parameter("bias_ih_l0")[8:16] += 10
        for name, p in large_weight_lstm.rnn.named_parameters():
            p.mul_(8 if name == "weight_hh_l0" else 0)
    x = torch.randn(101, 5)
    vanished, preserved, exploded = (
        compute_gradient_decay(reader, x)[100] for reader in (default_lstm, open_gate_lstm, large_weight_lstm)
    )
    return CorrectedClaim(
        Display(
            [vanished.log10(), exploded.log10()],
            {"‖∂s_T/∂s_{T−100}‖ as initialized": vanished, "with large weights": exploded},
        ),
        Display(preserved.log10(), {"with forget gates near 1": preserved}),
    )
