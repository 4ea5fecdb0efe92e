"""torch.compile for losses: what can be compiled is compiled, what cannot runs as it stands and is named."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor, nn

from didact.data.core import Batch

Loss = Callable[[Batch, str], dict[str, Tensor]]


class CompiledLoss:
    """`loss` through torch.compile, until compiling fails: from then on `loss` itself. `failure` says why."""

    def __init__(self, loss: Loss):
        self.eager, self.compiled, self.failure = loss, torch.compile(loss), ""

    def __call__(self, batch: Batch, player: str) -> dict[str, Tensor]:
        if self.failure:
            return self.eager(batch, player)
        from torch._dynamo.exc import TorchDynamoException  # a second of imports, which torch.compile needs anyway

        try:
            return self.compiled(batch, player)
        # a later batch of another shape is compiled anew, and may be the first to fail
        except TorchDynamoException as error:
            self.failure = describe_failure(error)
            return self.eager(batch, player)

    def try_compile(self, batch: Batch, player: str, autocast: AbstractContextManager[object]) -> None:
        """Compile now, forward and backward, and forget the result; a failure is noted, whatever it is.

        The backward pass is compiled when it first runs, outside of __call__, where nobody could turn back to the
        eager loss.
        """
        try:
            with autocast:
                loss = self.compiled(batch, player)["loss"]
            loss.backward()
        # compilers fail in every way there is; a fault of the loss itself is met again at once, eagerly
        except Exception as error:
            self.failure = describe_failure(error)


def describe_failure(error: BaseException) -> str:
    """The line that names the cause, of the many that a compiler prints."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and "TORCH" not in line]
    causes = [line for line in lines if "Error" in line.split(":")[0]]
    return (causes or lines or [type(error).__name__])[-1]


@contextmanager
def preserve_state(module: nn.Module) -> Iterator[None]:
    """What a trial forward and backward pass changes in a module is put back: buffers, gradients and who needs them."""
    buffers = [(buffer, buffer.clone()) for buffer in module.buffers()]
    parameters = [(p, p.grad, p.requires_grad) for p in module.parameters()]
    for p, _, _ in parameters:
        p.grad = None  # the trial must not add to what is there
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
    """One line for each cause, with the players whose losses could not be compiled for it."""
    players: dict[str, list[str]] = {}
    for name, cause in failures.items():
        players.setdefault(cause, []).append(name)
    return [
        f"--compile: the loss{'' if names == ['model'] else ' of ' + ', '.join(names)} could not be compiled and runs "
        f"eagerly ({cause})"
        for cause, names in players.items()
    ]
