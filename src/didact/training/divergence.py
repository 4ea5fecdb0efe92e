"""Divergence: replay from the last checkpoint to find the step and the layer where a number stopped being finite."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from didact.training.checkpoint import load_last_checkpoint, restore_checkpoint
from didact.training.interrupts import DivergedError
from didact.training.step import NonFiniteError

if TYPE_CHECKING:
    from didact.training.loop import Trainer


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
    """Whether all weights are finite, with one synchronization."""
    finite = [p.detach().isfinite().all() for p in module.parameters() if p.is_floating_point()]
    return not finite or bool(torch.stack(finite).all())


def locate_divergence(trainer: "Trainer") -> DivergedError:
    """Replay from the last checkpoint to the first round with a number that is not finite; save the state before it.

    Training is deterministic, so the replay meets the same numbers. It costs nothing while all goes well: the loop only
    looks at losses that it reads anyway, to show or log them.
    """
    step_reached = trainer.state.step
    if trainer.run is not None and trainer.group.is_main and trainer.best_weights:
        # the best validation state so far is kept
        trainer.run.save("model", trainer.best_weights, step=str(trainer.state.best_step))
    restore_checkpoint(trainer, load_last_checkpoint(trainer))
    # else gradients left by the bad round would be found before their player's turn
    trainer.objective.zero_grad(set_to_none=True)
    trainer.train_step.check_every_step, trainer.train_step.capture, trainer.train_step.graph = True, False, None
    while trainer.state.step < step_reached + trainer.plan.log_every and trainer.state.step < trainer.plan.total_rounds:
        for stored, batch_sizes in trainer.iterate_epoch():
            rng_states, step = trainer.group.all_gather_object(trainer.streams.get_state()), trainer.state.step + 1
            trainer.apply_schedule()
            with _first_nonfinite_output(trainer.objective) as bad_layers:
                try:
                    trainer.train_step.run_round(stored, batch_sizes)
                except NonFiniteError as error:
                    trainer.streams.load_states(rng_states, step)
                    if trainer.run is not None and trainer.group.is_main:
                        trainer.run.cut_log_after(trainer.state.step)
                    trainer.save()
                    location = f"in the output of {bad_layers[0]}" if bad_layers else f"in the {error}"
                    return DivergedError(
                        f"not a finite number at step {step}, first {location}; {_suggest_fix(trainer, step)}",
                        trainer.run,
                    )
            if trainer.ema is not None:
                trainer.ema.update()
            trainer.train_step.examples_seen += batch_sizes[0]
            trainer.state.step = step
    problem = f"the loss was not finite by step {step_reached} and a replay did not meet it again"
    return DivergedError(f"{problem}; {_suggest_fix(trainer, step_reached)}", trainer.run)


def _suggest_fix(trainer: "Trainer", step: int) -> str:
    saved_note = f"the state after step {step - 1} is kept in {trainer.run.folder}; " if trainer.run is not None else ""
    return f"{saved_note}lower the learning rate or clip the gradient"


@contextmanager
def _first_nonfinite_output(module: nn.Module) -> Iterator[list[str]]:
    """Collects the names of layers whose output is not finite, in the order in which they ran."""
    names: list[str] = []

    def make_hook(name: str) -> Any:
        def hook(_: nn.Module, inputs: object, output: object) -> None:
            if isinstance(output, Tensor) and output.is_floating_point() and not output.isfinite().all():
                names.append(name)
        return hook

    leaves = [(name, m) for name, m in module.named_modules() if not any(m.children())]
    hooks = [m.register_forward_hook(make_hook(name)) for name, m in leaves]
    try:
        yield names
    finally:
        for hook in hooks:
            hook.remove()
