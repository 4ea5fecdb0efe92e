"""Federated averaging: clients train on data they keep, and a server sees weights only."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy

from torch import Tensor, nn

StateDict = Mapping[str, Tensor]


def federated_average(states: Sequence[StateDict], sizes: Sequence[int]) -> dict[str, Tensor]:
    """θ = Σ_k n_k/n θ^(k), n_k the examples of client k.  McMahan et al. 2017; Gaba 12.7.2."""
    n = sum(sizes)
    averaged = {name: sum((size / n * state[name] for state, size in zip(states, sizes, strict=True)), start=0.0 * v)
             for name, v in states[0].items()}
    return {
        name: (v if states[0][name].is_floating_point() else v.round()).to(states[0][name])
        for name, v in averaged.items()
    }


def train_federated(
    model: nn.Module, clients: Sequence[Callable[[nn.Module], None]], sizes: Sequence[int], *, rounds: int
) -> None:
    """In each round every client trains a copy of the model, and the model becomes their weighted average."""
    for _ in range(rounds):
        copies = [deepcopy(model) for _ in clients]
        for train_client, copy in zip(clients, copies, strict=True):
            train_client(copy)
        model.load_state_dict(federated_average([copy.state_dict() for copy in copies], sizes))
