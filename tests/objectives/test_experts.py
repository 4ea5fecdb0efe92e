"""What layers want beside the task reaches the loss: experts are used more evenly where it counts."""

from functools import partial
from pydoc_data.topics import topics

import pytest
import torch
from test_no_host import Device
from torch import nn

import didact
from didact.cli.main import main
from didact.errors import UsageError
from didact.layers.moe import MixtureOfExperts, balance_loss, route
from didact.layers.penalty import penalty
from didact.models.gpt import GPT
from didact.models.llama import Llama
from didact.objectives.autoregressive import Autoregressive
from didact.objectives.writing import Manner
from didact.recipes.adapting import agree
from didact.registry import RECIPES
from didact.samplers.text import continued
from didact.train.eight_bits import eight_bits

SMALL = {"context": 16, "dim": 16, "layers": 2, "heads": 2}


@pytest.fixture(params=["gpt", "llama"])
def objective(request):
    torch.manual_seed(0)
    network = GPT(11, **SMALL, experts=4) if request.param == "gpt" else Llama(11, **SMALL, groups=1, hidden=24, experts=4)
    return Autoregressive(network, balance=0.5)


@pytest.fixture
def batch():
    torch.manual_seed(1)
    return {"x": torch.randint(11, (6, 16)), "y": torch.randint(11, (6, 16))}


def routed(objective, x):
    """The balance loss of each layer by the formula, from what its router is given."""
    given, found = {}, []
    layers = [m for m in objective.network.modules() if isinstance(m, MixtureOfExperts)]
    hooks = [m.register_forward_hook(lambda m, inputs, _: given.update({m: inputs[0].flatten(0, 1)})) for m in layers]
    objective.network(x)
    for hook in hooks:
        hook.remove()
    for m in layers:
        z = given[m] @ m.router.weight.mT
        found.append(balance_loss(z, route(z, m.top)[1]))
    return torch.stack(found).mean()


def test_the_loss_is_the_sum_of_its_parts(objective, batch):
    parts = objective.loss(batch)
    torch.testing.assert_close(parts["balance"], routed(objective, batch["x"]))
    torch.testing.assert_close(parts["loss"], parts["cross_entropy"] + 0.5 * parts["balance"])
    objective.network.zero_grad()
    parts["balance"].backward()
    routers = [p for name, p in objective.named_parameters() if "router" in name]
    assert len(routers) == 2 and all(p.grad.any() for p in routers)


def test_a_token_does_not_see_what_comes_after_it(objective, batch):
    x, y = batch["x"], batch["x"].clone()
    y[:, 10:] = torch.randint(11, (6, 6))
    torch.testing.assert_close(objective.network.train()(x)[:, :10], objective.network(y)[:, :10])


def test_the_gradient_of_two_halves_is_that_of_the_whole(objective, batch):
    """Up to the balance loss, which is a product of means and so of each half by itself."""
    objective.balance = 0.0

    def gradient(parts):
        objective.zero_grad()
        for rows in parts:
            (objective.loss({name: v[rows] for name, v in batch.items()})["loss"] / len(parts)).backward()
        return [p.grad.clone() for p in objective.parameters()]

    torch.testing.assert_close(gradient([slice(0, 3), slice(3, 6)]), gradient([slice(0, 6)]))


@pytest.mark.parametrize("family", [GPT, partial(Llama, groups=1, hidden=256)])
def test_experts_begin_as_small_as_one_perceptron(family):
    """What is added to the residual path; of GPT it does not grow with depth."""
    def residual(layers, experts):
        torch.manual_seed(0)
        network, found = family(11, context=16, dim=96, layers=layers, heads=2, experts=experts), []
        last = network.ln_f if isinstance(network, GPT) else network.model.norm
        last.register_forward_pre_hook(lambda _, inputs: found.append(inputs[0].std().item()))
        network(torch.randint(11, (4, 16)))
        return found[0]

    one, many = residual(12, None), residual(12, 4)
    assert 0.5 * one < many < 1.1 * one                                       # 0.29 and 0.19 of GPT, 0.12 and 0.11 of Llama
    assert many < 1.3 * residual(2, 4) or family is not GPT


def test_it_is_taken_once_and_only_where_it_is_learned(objective, batch):
    objective.network(batch["x"])
    assert penalty(objective.network) is not None and penalty(objective.network) is None
    objective.network(batch["x"])
    assert set(objective.eval().loss(batch)) == {"loss"}                    # a stray pass while training is not this one's
    assert penalty(objective.network) is None
    assert set(objective.judge(batch)) == {"loss", "tokens", "right"}
    assert penalty(nn.Linear(2, 2)) is None
    assert set(Autoregressive(GPT(11, **SMALL)).loss(batch)) == {"loss"}


def test_a_compiled_loss_is_the_same(batch):
    """In one graph: nothing of it falls back to Python."""
    objective = Autoregressive(GPT(11, **SMALL | {"layers": 1}, experts=4))
    parts, compiled = objective.loss(batch), torch.compile(objective.loss, backend="aot_eager", fullgraph=True)
    for _ in range(2):
        again = compiled(batch)
        torch.testing.assert_close(again, parts)
    again["loss"].backward()
    gradient = [p.grad.clone() for p in objective.parameters()]
    objective.zero_grad()
    parts["loss"].backward()
    torch.testing.assert_close([p.grad for p in objective.parameters()], gradient)


def test_experts_in_blocks_stay_on_the_device(monkeypatch):
    monkeypatch.setattr("didact.layers.moe.one_hot", lambda y, k: (y[..., None] == torch.arange(k)).long())    # PyTorch's looks at y
    layer, x, expert = MixtureOfExperts(6, 10, experts=4), torch.randn(30, 6), torch.randint(4, (30,))
    with Device():
        layer.in_blocks(x, expert).sum().backward()


def test_a_cache_writes_what_the_whole_network_would(objective):
    objective.eval()
    text = torch.randint(11, (2, 4))
    written = objective.write(text, 8, manner=Manner(temperature=0))
    with torch.no_grad():
        for _ in range(8):
            text = torch.cat([text, objective.network(text)[:, -1:].argmax(-1)], dim=1)
    assert torch.equal(written, text[:, 4:])


def test_routing_is_more_even_with_the_balance_loss(here):
    (here / "book.txt").write_text("\n".join(topics.values())[:40_000], encoding="utf-8")
    small = {"layers": 1, "heads": 2, "width": 32, "context": 32, "steps": 150, "lr": 2e-2, "device": "cpu"}
    uneven, even = (didact.train(RECIPES["gpt"], data="book.txt", experts=8, balance=weight, **small) for weight in (0.0, 0.1))
    last = [[row["train"] for row in run.metrics if "train" in row][-1]["balance"] for run in (uneven, even)]
    assert last[1] < 1.1 < 1.6 < last[0]                                # 1 is even, 8 one expert for all; 1.0 and 2.9 here
    assert even.facts["test"]["loss"] < uneven.facts["test"]["loss"] < 3.2      # by the characters' frequencies alone: 3.2
    assert len(continued(even, "The ", tokens=40)[0]) == 40
    few = eight_bits(even, device="cpu")
    assert few["int8"]["test"]["loss"] == pytest.approx(few["test"]["loss"], rel=0.05)


def test_a_balance_of_nothing_is_refused(here, capsys):
    assert main(["train", "gpt", "--data", "python_topics", "--balance", "0.1"]) == 2
    assert "--balance 0.1 spreads tokens over experts, and there are none; add --experts 8" in capsys.readouterr().err


def test_weights_with_experts_fit_no_network_without():
    for theirs, ours, why in ((4, None, "with --experts 4, got no --experts;"), (None, 4, "with no --experts, got --experts 4;")):
        with pytest.raises(UsageError, match=why):
            agree("there", {"experts": theirs}, {"experts": ours})
    agree("there", {}, {"experts": None})                                   # a run from before there were any
