"""The load-balancing loss of experts reaches the training loss, and makes their use more even."""

from functools import partial
from pydoc_data.topics import topics

import pytest
import torch
from torch import nn

import didact
from didact.cli.main import main
from didact.errors import UsageError
from didact.inference.evaluate_int8 import evaluate_int8
from didact.inference.generate_text import generate_continuations
from didact.layers.auxiliary_loss import pop_auxiliary_loss
from didact.layers.moe import MixtureOfExperts, load_balancing_loss, top_k_routing
from didact.models.text.gpt import GPT
from didact.models.text.llama import Llama
from didact.objectives.text.causal_lm import CausalLanguageModel
from didact.recipes._initial_weights import check_arguments_match
from didact.registry import RECIPES
from didact.samplers.top_k_top_p import DecodingConfig
from helpers.device_only_mode import DeviceOnlyMode

SMALL_OPTIONS = {"context_length": 16, "embed_dim": 16, "num_layers": 2, "num_heads": 2}


@pytest.fixture(params=["gpt", "llama"])
def objective(request):
    torch.manual_seed(0)
    network = (
        GPT(11, **SMALL_OPTIONS, num_experts=4)
        if request.param == "gpt"
        else Llama(11, **SMALL_OPTIONS, num_kv_heads=1, ffn_dim=24, num_experts=4)
    )
    return CausalLanguageModel(network, balance_weight=0.5)


@pytest.fixture
def batch():
    torch.manual_seed(1)
    return {"x": torch.randint(11, (6, 16)), "y": torch.randint(11, (6, 16))}


def expected_balance_loss(objective, x):
    """The load-balancing loss of each layer by the formula, from its router's inputs."""
    router_inputs, balance_losses = {}, []
    layers = [m for m in objective.network.modules() if isinstance(m, MixtureOfExperts)]
    hooks = [
        m.register_forward_hook(lambda m, inputs, _: router_inputs.update({m: inputs[0].flatten(0, 1)})) for m in layers
    ]
    objective.network(x)
    for hook in hooks:
        hook.remove()
    for m in layers:
        z = router_inputs[m] @ m.router.weight.mT
        balance_losses.append(load_balancing_loss(z, top_k_routing(z, m.top_k)[1]))
    return torch.stack(balance_losses).mean()


def test_causal_lm_loss_is_the_sum_of_its_parts(objective, batch):
    parts = objective.loss(batch)
    torch.testing.assert_close(parts["balance"], expected_balance_loss(objective, batch["x"]))
    torch.testing.assert_close(parts["loss"], parts["cross_entropy"] + 0.5 * parts["balance"])
    objective.network.zero_grad()
    parts["balance"].backward()
    routers = [p for name, p in objective.named_parameters() if "router" in name]
    assert len(routers) == 2 and all(p.grad.any() for p in routers)


def test_moe_language_model_is_causal(objective, batch):
    x, y = batch["x"], batch["x"].clone()
    y[:, 10:] = torch.randint(11, (6, 6))
    torch.testing.assert_close(objective.network.train()(x)[:, :10], objective.network(y)[:, :10])


def test_moe_gradient_is_the_mean_over_half_batches(objective, batch):
    """Up to the load-balancing loss, a product of means and so different for each half."""
    objective.balance_weight = 0.0

    def compute_gradients(parts):
        objective.zero_grad()
        for rows in parts:
            (objective.loss({name: v[rows] for name, v in batch.items()})["loss"] / len(parts)).backward()
        return [p.grad.clone() for p in objective.parameters()]

    torch.testing.assert_close(compute_gradients([slice(0, 3), slice(3, 6)]), compute_gradients([slice(0, 6)]))


@pytest.mark.parametrize("family", [GPT, partial(Llama, num_kv_heads=1, ffn_dim=256)])
def test_experts_are_initialized_as_small_as_one_mlp(family):
    """What is added to the residual stream; in GPT it does not grow with depth."""
    def compute_residual_std(layers, experts):
        torch.manual_seed(0)
        options = {"context_length": 16, "embed_dim": 96, "num_layers": layers, "num_heads": 2, "num_experts": experts}
        network, stds = family(11, **options), []
        last = network.ln_f if isinstance(network, GPT) else network.model.norm
        last.register_forward_pre_hook(lambda _, inputs: stds.append(inputs[0].std().item()))
        network(torch.randint(11, (4, 16)))
        return stds[0]

    dense_std, moe_std = compute_residual_std(12, None), compute_residual_std(12, 4)
    # 0.29 and 0.19 of GPT, 0.12 and 0.11 of Llama
    assert 0.5 * dense_std < moe_std < 1.1 * dense_std
    assert moe_std < 1.3 * compute_residual_std(2, 4) or family is not GPT


def test_auxiliary_loss_is_popped_once_and_only_in_training(objective, batch):
    objective.network(batch["x"])
    assert pop_auxiliary_loss(objective.network) is not None and pop_auxiliary_loss(objective.network) is None
    objective.network(batch["x"])
    # another pass in training mode does not add to this one
    assert set(objective.eval().loss(batch)) == {"loss"}
    assert pop_auxiliary_loss(objective.network) is None
    assert set(objective.evaluate_batch(batch)) == {"loss", "tokens", "correct"}
    assert pop_auxiliary_loss(nn.Linear(2, 2)) is None
    assert set(CausalLanguageModel(GPT(11, **SMALL_OPTIONS)).loss(batch)) == {"loss"}


def test_compiled_moe_loss_matches_eager(batch):
    """In one graph, without a graph break."""
    objective = CausalLanguageModel(GPT(11, **SMALL_OPTIONS | {"num_layers": 1}, num_experts=4))
    parts, compiled_loss = objective.loss(batch), torch.compile(objective.loss, backend="aot_eager", fullgraph=True)
    for _ in range(2):
        compiled_parts = compiled_loss(batch)
        torch.testing.assert_close(compiled_parts, parts)
    compiled_parts["loss"].backward()
    gradient = [p.grad.clone() for p in objective.parameters()]
    objective.zero_grad()
    parts["loss"].backward()
    torch.testing.assert_close([p.grad for p in objective.parameters()], gradient)


def test_grouped_matmul_of_experts_stays_on_the_device(monkeypatch):
    # PyTorch's looks at y
    monkeypatch.setattr("didact.layers.moe.one_hot", lambda y, k: (y[..., None] == torch.arange(k)).long())
    layer, x, expert = MixtureOfExperts(6, 10, num_experts=4), torch.randn(30, 6), torch.randint(4, (30,))
    with DeviceOnlyMode():
        layer._grouped_matmul(x, expert).sum().backward()


def test_moe_generation_with_a_cache_matches_the_full_network(objective):
    objective.eval()
    text = torch.randint(11, (2, 4))
    generated = objective.write(text, 8, decoding=DecodingConfig(temperature=0))
    with torch.no_grad():
        for _ in range(8):
            text = torch.cat([text, objective.network(text)[:, -1:].argmax(-1)], dim=1)
    assert torch.equal(generated, text[:, 4:])


def test_balance_loss_makes_routing_more_even(workdir):
    (workdir / "book.txt").write_text("\n".join(topics.values())[:40_000], encoding="utf-8")
    network_options = {"num_layers": 1, "num_heads": 2, "embed_dim": 32, "context_length": 32}
    options = {**network_options, "steps": 150, "lr": 2e-2, "device": "cpu"}
    uneven_run, even_run = (
        didact.train(RECIPES["gpt"], data="book.txt", num_experts=8, balance_weight=weight, **options)
        for weight in (0.0, 0.1)
    )
    balance_losses = [
        [row["train"] for row in run.metrics if "train" in row][-1]["balance"] for run in (uneven_run, even_run)
    ]
    # 1 is even, 8 is one expert for all tokens; 1.0 and 2.9 here
    assert balance_losses[1] < 1.1 < 1.6 < balance_losses[0]
    # character frequencies alone give 3.2
    assert even_run.metadata["test"]["loss"] < uneven_run.metadata["test"]["loss"] < 3.2
    assert len(generate_continuations(even_run, "The ", tokens=40)[0]) == 40
    int8_metrics = evaluate_int8(even_run, device="cpu")
    assert int8_metrics["int8"]["test"]["loss"] == pytest.approx(int8_metrics["test"]["loss"], rel=0.05)


def test_balance_without_experts_is_refused(workdir, capsys):
    assert main(["train", "gpt", "--data", "python_topics", "--balance-weight", "0.1"]) == 2
    message = "--balance-weight 0.1 is for a mixture of experts, and there is none; add --num-experts 8"
    assert message in capsys.readouterr().err


def test_weights_with_experts_do_not_fit_a_network_without():
    for source_experts, own_experts, message in (
        (4, None, "with --num-experts 4, got no --num-experts;"),
        (None, 4, "with no --num-experts, got --num-experts 4;"),
    ):
        with pytest.raises(UsageError, match=message):
            check_arguments_match("there", {"num_experts": source_experts}, {"num_experts": own_experts})
    # a run from before there were experts
    check_arguments_match("there", {}, {"num_experts": None})
