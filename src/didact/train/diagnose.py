"""Where a number stopped being finite: the last good state is replayed round by round, looking at every layer."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from didact.train.interrupt import DivergedError
from didact.train.step import NonFiniteError

if TYPE_CHECKING:
    from didact.train.loop import Training


def gradient_norms(module: nn.Module) -> tuple[list[str], Tensor]:
    """‖∂L/∂θ_l‖ of each layer that has a gradient, still on the device."""
    layers: dict[str, list[Tensor]] = {}
    for name, p in module.named_parameters():
        if p.grad is not None:
            layers.setdefault(name.rpartition(".")[0], []).append(p.grad)
    if not layers:
        return [], torch.zeros(0)
    norms = torch._foreach_norm([g for gradients in layers.values() for g in gradients])
    parts = torch.stack(list(norms)).split([len(gradients) for gradients in layers.values()])
    return list(layers), torch.stack([part.norm() for part in parts])


def weights_are_finite(module: nn.Module) -> bool:
    """One answer for all weights, in one wait for the device."""
    finite = [p.detach().isfinite().all() for p in module.parameters() if p.is_floating_point()]
    return not finite or bool(torch.stack(finite).all())


def name_culprit(training: "Training") -> DivergedError:
    """Replay from the last checkpoint to the first round with a bad number; the state before it is saved.

    Training is deterministic, so the replay meets what training met. It costs nothing while all goes well: the loop only
    looks at the losses when it shows or logs them.
    """
    reached = training.state.step
    if training.run is not None and training.group.leads and training.best:
        training.run.save("model", training.best, step=str(training.state.best_step))  # what was judged good stays good
    training.restore(training.last_checkpoint())
    training.objective.zero_grad(set_to_none=True)  # of a player that has not had its turn yet, what the bad round left would be found
    training.step.careful, training.step.capture, training.step.graph = True, False, None
    while training.state.step < reached + training.plan.log_every and training.state.step < training.plan.total:
        for stored, rows in training.epoch():
            before, step = training.group.everyone(training.streams.state()), training.state.step + 1
            training.set_rate()
            with first_bad_output(training.objective) as layers:
                try:
                    training.step.round(stored, rows)
                except NonFiniteError as error:
                    training.streams.load(before, step)
                    if training.run is not None and training.group.leads:
                        training.run.cut_log_after(training.state.step)
                    training.save()
                    where = f"in the output of {layers[0]}" if layers else f"in the {error}"
                    return DivergedError(f"not a finite number at step {step}, first {where}; {remedy(training, step)}", training.run)
            if training.average is not None:
                training.average.update()
            training.step.seen += rows[0]
            training.state.step = step
    met = f"the loss was not finite by step {reached} and a replay did not meet it again"
    return DivergedError(f"{met}; {remedy(training, reached)}", training.run)


def remedy(training: "Training", step: int) -> str:
    kept = f"the state after step {step - 1} is kept in {training.run.folder}; " if training.run is not None else ""
    return f"{kept}lower the learning rate or clip the gradient"


@contextmanager
def first_bad_output(module: nn.Module) -> Iterator[list[str]]:
    """Collects the names of layers whose output is not finite, in the order in which they ran."""
    found: list[str] = []

    def look(name: str) -> Any:
        def hook(_: nn.Module, inputs: object, output: object) -> None:
            if isinstance(output, Tensor) and output.is_floating_point() and not output.isfinite().all():
                found.append(name)
        return hook

    leaves = [(name, m) for name, m in module.named_modules() if not any(m.children())]
    hooks = [m.register_forward_hook(look(name)) for name, m in leaves]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()
