"""Restore from a run's folder: the experiment, and the trained model."""

from collections.abc import Iterator
from contextlib import contextmanager

from didact.data.core import Data
from didact.data.load import reload_data
from didact.data.serialize import data_from_json
from didact.errors import UsageError, look_up
from didact.objectives.base import Objective
from didact.options import bind_arguments, read_options
from didact.registry import RECIPES
from didact.run import Run
from didact.training.checkpoint import TrainingState
from didact.training.divergence import weights_are_finite
from didact.training.experiment import Settings
from didact.training.prepare import PreparedExperiment, build_experiment


def rebuild(run: Run, *, with_data: bool) -> PreparedExperiment:
    """The experiment of a run from its folder alone; with its data loaded again if `with_data`."""
    metadata = run.metadata
    recipe, setting_options = look_up("recipe", metadata["recipe"], RECIPES), read_options(Settings)
    try:
        settings_given = {name: value for name, value in metadata["settings"].items() if name in setting_options}
        arguments = {name: tuple(v) if isinstance(v, list) else v for name, v in metadata["arguments"].items()}
        data = data_from_json(metadata["data"])
    except UsageError:
        raise
    except (AttributeError, IndexError, KeyError, OverflowError, RuntimeError, TypeError, ValueError) as error:
        raise UsageError(
            f"{run.folder / 'run.json'} does not describe a run ({error!r}); it is damaged: train anew"
        ) from error
    settings = Settings(**bind_arguments(setting_options, settings_given, owner="the run"))
    if with_data:
        data = reload_data(data, run.load_indices())
    return PreparedExperiment(recipe, arguments, settings, data, build_experiment(recipe, data, arguments, settings))


def load_model(run: Run) -> tuple[Objective, Data]:
    """The trained objective of a run, on the CPU in evaluation mode, and a description of its data."""
    prepared = rebuild(run, with_data=False)
    objective = prepared.experiment.objective
    if not run.has("model.safetensors") and run.metadata.get("status") != "finished":
        raise UsageError(
            f"{run.folder} has no model yet: it was stopped too early; continue with: didact resume {run.folder}"
        )
    load_best_weights(objective, run)
    return objective.eval(), prepared.experiment.data


def load_best_weights(objective: Objective, run: Run) -> None:
    """Load the weights of the best validation state."""
    weights = run.load("model")
    with translate_load_errors(run, "model"):
        objective.load_state_dict(weights)
    if not weights_are_finite(objective):
        raise UsageError(
            f"{run.folder / 'model.safetensors'} holds weights that are not finite numbers; it is damaged: train anew"
        )


def check_best_weights(run: Run, state: TrainingState) -> None:
    """The best weights must be of the step that the state names, or of a later one, which is reached again."""
    if state.best_score is None:
        return
    path = run.folder / "model.safetensors"
    if not run.has("model.safetensors"):
        raise UsageError(f"{path} is missing: the best weights so far are lost; train anew")
    step = run.read_header("model").get("step", "")
    if not step.isdecimal() or int(step) < state.best_step:
        raise UsageError(
            f"{path} holds the weights of step {step or '?'}, but the best so far were of step {state.best_step}; "
            "train anew"
        )


@contextmanager
def translate_load_errors(run: Run, name: str) -> Iterator[None]:
    """Turn the many errors that torch raises for a file that does not fit into one UsageError."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, OverflowError, RuntimeError, TypeError, ValueError) as error:
        reason = (str(error).splitlines() or [repr(error)])[-1].strip()
        raise UsageError(
            f"{run.folder / name}.safetensors does not fit recipe {run.metadata['recipe']!r} ({reason}); it is damaged "
            "or of another run"
        ) from error
