"""One seed, four independent random streams: initialization, order, augmentation, sampling."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


def derive_seed(seed: int, *purpose: object) -> int:
    """A seed for each purpose, so that more draws for one change nothing for another."""
    digest = hashlib.blake2b(repr((seed, *purpose)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1  # 63 bits: what a generator takes


@contextmanager
def init_rng(seed: int) -> Iterator[None]:
    """Inside, weights are initialized from the seed; the global generator is restored afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "initialisation"))
        yield


def epoch_permutation(n: int, *, seed: int, epoch: int) -> Tensor:
    """The order of an epoch. It depends on seed and epoch alone, so resuming needs no state for it."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(derive_seed(seed, "order", epoch)))


class RandomStreams:
    """The two streams with a state: augmentation, and sampling (dropout, noise), which is torch's global generator."""

    def __init__(self, seed: int, device: torch.device, rank: int = 0):
        self.device, self.seed, self.rank = device, seed, rank
        self.augmentation = torch.Generator(device)

    def reset(self, step: int = 0) -> None:
        """Seed both; called when training starts, since torch's generator may have been used before."""
        position = (self.rank, step) if step else (self.rank,)
        self.augmentation.manual_seed(derive_seed(self.seed, "augmentation", *position))
        torch.manual_seed(derive_seed(self.seed, "sampling", *position))

    def get_state(self) -> dict[str, Tensor]:
        state = {"augmentation": self.augmentation.get_state(), "sampling": torch.get_rng_state()}
        if self.device.type == "cuda":
            state["sampling_cuda"] = torch.cuda.get_rng_state(self.device)
        return state

    def load_states(self, states: list[dict[str, Tensor]], step: int) -> None:
        """Restore the states of all processes; with another number of processes or device, reseed from the step."""
        state = states[self.rank] if self.rank < len(states) else None
        if state is None or state["augmentation"].shape != self.augmentation.get_state().shape:
            self.reset(step)
            return
        self.set_state(state)

    def set_state(self, state: dict[str, Tensor]) -> None:
        """Restore both streams."""
        self.augmentation.set_state(state["augmentation"])
        torch.set_rng_state(state["sampling"])
        if "sampling_cuda" in state and self.device.type == "cuda":
            torch.cuda.set_rng_state(state["sampling_cuda"], self.device)
