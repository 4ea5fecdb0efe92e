"""Groudiev, chapter 5: recurrent networks."""

import torch
from torch import Tensor, nn
from torch.autograd.functional import jacobian
from torch.nn import functional as F

from didact.claims.forms import Conditional, CorrectedClaim, Display, Equal, Increasing, InInterval
from didact.claims.groudiev.chapter_03 import to_scratch
from didact.claims.registry import claim
from didact.explain.gradient_memory import compute_gradient_decay
from didact.layers.recurrent import cells
from didact.layers.recurrent.cells import CellWeights
from didact.layers.recurrent.recurrent import Recurrent, cell_weights
from didact.scratch.optim import clip_norm


@claim("CE49", Equal(1e-6))
def clipped_gradient() -> Display:
    """g θ/‖g‖ where ‖g‖ = 100 and 2 is above θ = 1, and g where it is 0.5, against g after didact's clipping and
    torch's"""
    stated, clipped, sizes = [], [], (100.0, 2.0, 0.5)
    for size in sizes:
        g = F.normalize(torch.randn(8), dim=0) * size
        ours, theirs = to_scratch(g, grad=True), torch.zeros(8, requires_grad=True)
        ours.grad, theirs.grad = g.numpy().copy(), g.clone()
        clip_norm([ours], 1.0)
        nn.utils.clip_grad_norm_([theirs], max_norm=1.0)
        stated += [g / g.norm() if g.norm() > 1 else g] * 2
        clipped += [torch.from_numpy(ours.grad), theirs.grad]
    return Display((stated, clipped), {"norms of g": sizes, "clipped": [g.norm() for g in clipped[::2]]})


@claim(
    "CE50",
    Increasing(),
    condition="a linear recurrence, and the largest |λ| of the recurrent W alone; with a saturated tanh the gradient "
    "falls all the same",
)
def eigenvalue_criterion() -> Conditional:
    """‖∂h_T/∂h_{T−d}‖ of didact's RNN of four random units, by didact's gradient memory, with the largest eigenvalue
    0.8 for d = 40, 30, 20, 10, 0, then 1.2 for d = 10, 20, 30, 40: at h = 0, where tanh is linear, and with a bias
    of 3"""
    W = torch.randn(4, 4)

    def norms(size: float, bias: float) -> Tensor:
        reader = Recurrent("rnn", 1, 4)
        with torch.no_grad():
            reader.rnn.get_parameter("weight_hh_l0").copy_(size * W / torch.linalg.eigvals(W).abs().max())
            reader.rnn.get_parameter("bias_ih_l0").fill_(bias)
        return compute_gradient_decay(reader, torch.zeros(41, 1))[::10]

    return Conditional(*(torch.cat([norms(0.8, bias).flip(0), norms(1.2, bias)[1:]]) for bias in (0.0, 3.0)))


@claim(
    "CE51",
    InInterval(-1, 1),
    correction="|c_t| can grow by up to 1 at each step: |c_t| ≤ t; it is h_t that lies in (−1, 1)",
)
def range_of_the_cell() -> CorrectedClaim:
    """c_1 … c_10 of didact's LSTM whose gates and candidate are all driven to 1; corrected: h_1 … h_10"""
    reader = Recurrent("lstm", 1, 1)
    with torch.no_grad():
        for p in reader.parameters():
            p.zero_()
        reader.rnn.get_parameter("bias_ih_l0").fill_(20.0)
        gates = reader.forward_with_gates(torch.zeros(1, 10, 1))[1][0]
    return CorrectedClaim(gates["cell"], gates["h"])


def lstm_step(x: Tensor, h: Tensor, c: Tensor, w: CellWeights) -> tuple[Tensor, Tensor]:
    """h_t and c_t from f, i, C̃, o as the courses write them."""
    w_ih, w_hh, b_ih, b_hh = w
    i, f, new, o = (w_ih @ x + b_ih + w_hh @ h + b_hh).chunk(4)
    c = f.sigmoid() * c + i.sigmoid() * new.tanh()
    return o.sigmoid() * c.tanh(), c


@claim(
    "CE52",
    Equal(),
    condition="along the cell alone, with the gates held fixed; they depend on h_{t−1}, and so on c_{t−1}",
)
def step_of_the_cell() -> Conditional:
    """∂c_t/∂c_{t−1} of the course's equations = diag(f_t), f the forget gate of didact's LSTM: at fixed h_{t−1}, and
    with h_{t−1} = o ⊙ tanh c_{t−1}"""
    w, x, o, c = cell_weights(Recurrent("lstm", 3, 4).rnn, 0), torch.randn(3), torch.rand(4), torch.randn(4)
    h = o * c.tanh()
    f = torch.diag(cells.lstm_step(x, (h, c), w)[1]["forget"])
    jacobian_at_fixed_h, full_jacobian = (
        jacobian(lambda c: lstm_step(x, h, c, w)[1], c),
        jacobian(lambda c: lstm_step(x, o * c.tanh(), c, w)[1], c),
    )
    return Conditional((jacobian_at_fixed_h, f), (full_jacobian, f))
