"""torch.compile for losses: what cannot be compiled runs eagerly and is named."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor, nn

from didact.data.core import Batch

Loss = Callable[[Batch, str], dict[str, Tensor]]


class CompiledLoss:
    """A loss through torch.compile, or eagerly once compiling has failed; `failure` says why."""

    def __init__(self, loss: Loss):
        self.eager, self.compiled, self.failure = loss, torch.compile(loss), ""

    def __call__(self, batch: Batch, player: str) -> dict[str, Tensor]:
        if self.failure:
            return self.eager(batch, player)
        from torch._dynamo.exc import TorchDynamoException  # takes a second; torch.compile imports it anyway

        try:
            return self.compiled(batch, player)
        # a batch of another shape is recompiled, and may be the first to fail
        except TorchDynamoException as error:
            self.failure = describe_failure(error)
            return self.eager(batch, player)

    def try_compile(self, batch: Batch, player: str, autocast: AbstractContextManager[object]) -> None:
        """Compile forward and backward now and discard the result; any failure is recorded.

        The backward pass is compiled when it first runs, outside of __call__, where nothing could fall back to the
        eager loss.
        """
        try:
            with autocast:
                loss = self.compiled(batch, player)["loss"]
            loss.backward()
        # compilers raise anything; an error of the loss itself comes again at once, eagerly
        except Exception as error:
            self.failure = describe_failure(error)


def describe_failure(error: BaseException) -> str:
    """The line that names the cause among the many that a compiler prints."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and "TORCH" not in line]
    causes = [line for line in lines if "Error" in line.split(":")[0]]
    return (causes or lines or [type(error).__name__])[-1]


@contextmanager
def preserve_state(module: nn.Module) -> Iterator[None]:
    """Restore what a trial forward and backward pass changes in a module: buffers, gradients, requires_grad."""
    buffers = [(buffer, buffer.clone()) for buffer in module.buffers()]
    parameters = [(p, p.grad, p.requires_grad) for p in module.parameters()]
    for p, _, _ in parameters:
        p.grad = None  # the trial must not add to existing gradients
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, original in buffers:
                buffer.copy_(original)
        for p, gradient, requires_grad in parameters:
            p.grad = gradient
            p.requires_grad_(requires_grad)


def format_failures(failures: dict[str, str]) -> list[str]:
    """One note for each cause, with the players whose losses could not be compiled."""
    players: dict[str, list[str]] = {}
    for name, cause in failures.items():
        players.setdefault(cause, []).append(name)
    return [
        f"--compile: the loss{'' if names == ['model'] else ' of ' + ', '.join(names)} could not be compiled and runs "
        f"eagerly ({cause})"
        for cause, names in players.items()
    ]
