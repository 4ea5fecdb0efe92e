"""Mamba and xLSTM as recurrent layers: state passed between two halves, padding ignored, states computed in other ways.
"""

import pytest
import torch

from didact.errors import UsageError
from didact.layers.recurrent.mamba import scan
from didact.layers.recurrent.mixer_stack import MIXERS, SequenceMixerStack
from didact.layers.recurrent.recurrent import Bidirectional, RecurrentState, make_recurrent
from didact.layers.recurrent.xlstm import MLSTM
from didact.models.text.rnn import RecurrentClassifier, RecurrentLanguageModel


@pytest.fixture(autouse=True)
def seed_torch():
    torch.manual_seed(0)


@pytest.mark.parametrize("cell", MIXERS)
def test_mixer_stack_in_chunks_matches_one_pass(cell):
    stack, x = SequenceMixerStack(cell, 5, 8, num_layers=2).double(), torch.randn(3, 11, 5, dtype=torch.float64)
    full_output, final_state = stack(x)
    first_output, state = stack(x[:, :4])
    second_output, second_state = stack(x[:, 4:], state)
    torch.testing.assert_close(torch.cat([first_output, second_output], 1), full_output)
    torch.testing.assert_close(second_state, final_state)
    state, outputs = stack.initial_state(3), []
    for x_t in x.split(1, dim=1):
        y, state = stack(x_t, state)
        outputs.append(y)
    torch.testing.assert_close(torch.cat(outputs, 1), full_output)
    torch.testing.assert_close(state, final_state)
    assert all(part.shape[:2] == (2, 3) for part in final_state)


@pytest.mark.parametrize("cell", MIXERS)
def test_gradient_through_the_carried_state_matches_one_pass(cell):
    stack, x = SequenceMixerStack(cell, 5, 8).double(), torch.randn(2, 7, 5, dtype=torch.float64)
    p = list(stack.parameters())
    full_gradients = torch.autograd.grad(stack(x)[0][:, 3:].square().sum(), p)
    _, state = stack(x[:, :3])
    torch.testing.assert_close(torch.autograd.grad(stack(x[:, 3:], state)[0].square().sum(), p), full_gradients)


@torch.no_grad()
@pytest.mark.parametrize("cell", MIXERS)
def test_mixer_stack_drops_out_only_between_layers(cell):
    """With dropout 1 two layers are the second one applied to the first's input; a single layer has no dropout."""
    stack, x = SequenceMixerStack(cell, 5, 8, num_layers=2, dropout=1.0), torch.randn(3, 6, 5)
    u = stack.widen(x)
    torch.testing.assert_close(stack(x)[0], stack.norm(u + stack.mixers[1](stack.norms[1](u))))
    single_layer = SequenceMixerStack(cell, 5, 8, dropout=1.0)
    torch.testing.assert_close(single_layer(x)[0], single_layer.eval()(x)[0])


@pytest.mark.parametrize("cell", MIXERS)
def test_bidirectional_mixer_ignores_padding(cell):
    bidirectional, x, lengths = Bidirectional(cell, 5, 8, num_layers=2), torch.randn(3, 9, 5), torch.tensor([9, 4, 1])
    y = bidirectional(x, lengths)
    for row, n in enumerate(lengths.tolist()):
        torch.testing.assert_close(y[row : row + 1, :n], bidirectional(x[row : row + 1, :n], torch.tensor([n])))
        assert not y[row, n:].any()


@pytest.mark.parametrize("cell", MIXERS)
@pytest.mark.parametrize("bidirectional", [True, False])
def test_rnn_classifier_with_mixers_ignores_padding(cell, bidirectional):
    model = RecurrentClassifier(
        20, 3, cell=cell, embed_dim=8, hidden_size=6, pool="last", bidirectional=bidirectional
    ).eval()
    tokens = torch.randint(1, 20, (4, 7))
    torch.testing.assert_close(model(torch.cat([tokens, torch.zeros(4, 5, dtype=torch.long)], 1)), model(tokens))


@pytest.mark.parametrize("cell", MIXERS)
def test_mixer_language_model_depends_on_the_past_alone(cell):
    model, tokens = (
        RecurrentLanguageModel(20, cell=cell, embed_dim=8, hidden_size=6, num_layers=2).eval(),
        torch.randint(20, (3, 9)),
    )
    changed_tokens = tokens.clone()
    changed_tokens[:, 5:] = 0
    torch.testing.assert_close(model(tokens)[:, :5], model(changed_tokens)[:, :5])
    assert not torch.allclose(model(tokens)[:, 5:], model(changed_tokens)[:, 5:])


@torch.no_grad()
@pytest.mark.parametrize("cell", MIXERS)
def test_recurrent_state_can_be_cleared_and_reordered(cell):
    stack, x = make_recurrent(cell, 5, 8, num_layers=2), torch.randn(3, 6, 5)
    state_cache = RecurrentState(stack, 3, 99)
    state_cache.update(stack(x)[1])
    state_cache.reorder(torch.tensor([2, 0, 0]))
    torch.testing.assert_close(state_cache.state, stack(x[[2, 0, 0]])[1])
    state_cache.clear()
    assert all(torch.equal(a, b) for a, b in zip(state_cache.state, stack.initial_state(3), strict=True))


def test_mlstm_state_is_the_sum_of_its_equation():
    block, x = MLSTM(8, num_heads=2).double(), torch.randn(1, 6, 8, dtype=torch.float64)
    c, n, m = block.forward_from_state(x, block.initial_state(1))[1]
    step_by_step = block.forward_from_state(x, block.initial_state(1), parallel=False)[1]
    torch.testing.assert_close((c, n, m), step_by_step)
    _, k, v = (t.view(6, 2, 4) for t in block.qkv(x)[0].chunk(3, -1))
    i, f = block.gates(x)[0].chunk(2, -1)
    decayed_weights = [i[s].exp() * f[s + 1 :].sigmoid().prod(0) for s in range(6)]  # (heads,) each
    torch.testing.assert_close(
        c[0] * m[0].exp()[:, None, None],
        sum(w[:, None, None] * v[s, :, :, None] * k[s, :, None] / 2 for s, w in enumerate(decayed_weights)),
    )
    torch.testing.assert_close(
        n[0] * m[0].exp()[:, None], sum(w[:, None] * k[s] / 2 for s, w in enumerate(decayed_weights))
    )


def test_scan_saves_two_tensors_for_backward():
    a, b, saved_sizes = torch.rand(1, 64, 3, requires_grad=True), torch.randn(1, 64, 3, requires_grad=True), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved_sizes.append(t.numel()) or t, lambda t: t):
        scan(a, b)
    # no intermediate results of the six rounds
    assert saved_sizes == [64 * 3] * 2


def test_make_recurrent_refuses_unknown_cells_and_inits():
    with pytest.raises(UsageError, match="no cell named 'mamb'; did you mean 'mamba'"):
        make_recurrent("mamb", 3, 4)
    with pytest.raises(
        UsageError,
        match="--recurrent-init random is for rnn, lstm and gru; mamba is initialized as in its paper: leave it out",
    ):
        make_recurrent("mamba", 3, 4, init="random")
    # 4 do not divide 6
    stacks = {cell: make_recurrent(cell, 3, 6) for cell in ("slstm", "mlstm")}
    assert {cell: stack.mixers[0].num_heads for cell, stack in stacks.items()} == {"slstm": 2, "mlstm": 2}
