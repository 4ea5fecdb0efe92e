"""Weights are averaged by the number of examples; one step of each client is one step on all of them."""

import torch
from torch import nn

from didact.models.tabular.mlp import MLP
from didact.training.distributed.federated import federated_average, train_federated


def test_federated_average_weights_clients_by_examples():
    states = [{"w": torch.tensor([0.0, 4.0])}, {"w": torch.tensor([3.0, 1.0])}]
    assert federated_average(states, [1, 2])["w"].tolist() == [2.0, 2.0]


def test_federated_average_keeps_counters_whole():
    norms = [nn.BatchNorm1d(2).state_dict() | {"num_batches_tracked": torch.tensor(n)} for n in (7, 9)]
    counter = federated_average(norms, [1, 9])["num_batches_tracked"]
    assert counter.dtype == torch.int64 and int(counter) == 9, "8.8, rounded"


def test_train_federated_with_one_step_is_a_step_on_all_examples():
    """A closed form: the mean over clients of θ − η∇L_k, weighed by n_k, is θ − η∇L."""
    torch.manual_seed(0)
    x, y, net = (
        torch.randn(30, 4, dtype=torch.float64),
        torch.randn(30, 1, dtype=torch.float64),
        MLP(4, 1, hidden=(5,)).double(),
    )

    def make_client(rows: slice):
        def train_step(model: nn.Module) -> None:
            sgd = torch.optim.SGD(model.parameters(), lr=0.1)
            nn.functional.mse_loss(model(x[rows]), y[rows]).backward()
            sgd.step()
        return train_step

    centralized = MLP(4, 1, hidden=(5,)).double()
    centralized.load_state_dict(net.state_dict())
    make_client(slice(0, 30))(centralized)
    train_federated(
        net, [make_client(slice(0, 7)), make_client(slice(7, 12)), make_client(slice(12, 30))], [7, 5, 18], rounds=1
    )
    for a, b in zip(net.parameters(), centralized.parameters(), strict=True):
        torch.testing.assert_close(a, b)
