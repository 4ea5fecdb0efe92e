"""The source run of a recipe, its teacher or its autoencoder: an earlier run, or one that is trained first."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from didact.data.core import Data
from didact.data.serialize import data_from_json
from didact.errors import UsageError, format_count, look_up
from didact.objectives.base import Objective
from didact.options import RunReference, format_value, resolve_alias
from didact.registry import RECIPES, Recipe
from didact.run import Run
from didact.training.experiment import Experiment, InitContext, Settings, forward_steps
from didact.training.loop import Trainer
from didact.training.restore import load_model

SourceRunOption = Annotated[
    str | None,
    RunReference(reuse_data=True),
    "source run, whose data are used too: its folder, the end of its name, or latest (if not given, one is trained "
    "first)",
]


@dataclass(frozen=True)
class SourceRun:
    """A recipe with its arguments, and the folder of its run; None if it is still to be trained."""

    recipe: Recipe
    arguments: dict[str, Any]
    location: str | None

    @property
    def description(self) -> str:
        """The recipe and the arguments that differ from its defaults, as they are typed."""
        options = self.recipe.options
        changed = [
            f"{name}={format_value(value)}" for name, value in self.arguments.items() if value != options[name].default
        ]
        return " ".join([self.recipe.name, *changed])

    def build_experiment(self, data: Data) -> Experiment:
        experiment: Experiment = self.recipe(data, **self.arguments)
        return experiment

    def train_or_load(self, objective: Objective, data: Data, context: InitContext) -> str:
        """Load the run's weights into an objective of the same kind, or train them; a note says which."""
        if self.location is not None:
            try:
                objective.load_state_dict(load_model(Run.open(self.location))[0].state_dict())
            except RuntimeError as error:
                reason = str(error).splitlines()[-1].strip()
                problem = f"{self.location} is not {self.description} on {data.name!r} ({reason})"
                raise UsageError(
                    f"{problem}; give --from alone: recipe and data are read from the run"
                ) from error
            return f"starts from {self.location} ({self.description})"
        settings = Settings(precision=context.settings.precision, seed=context.settings.seed)
        trainer = Trainer(
            self.build_experiment(data),
            settings,
            device=context.device,
            on_event=forward_steps(context.on_event, f"{self.recipe.name} first"),
        )
        trainer.train()
        objective.load_state_dict(trainer.best_weights)
        monitor, state = objective.monitor, trainer.state
        return (
            f"{self.description} was trained first, in {state.seconds:.0f} s: validation {monitor} "
            f"{state.validation[monitor]:.3g}"
        )


def resolve_source_run(
    location: str | None, description: str | None, data: Data, *, allowed_recipes: Sequence[str]
) -> SourceRun:
    """The source run at a location; or of a description, "vae latent_dim=8", by default the first allowed recipe.

    The description is saved with the run, so that it can be rebuilt after its source run is deleted.
    """
    if location is None or description is not None:
        name, *words = (description or allowed_recipes[0]).split()
        recipe = look_up("recipe", name, {name: RECIPES[name] for name in allowed_recipes})
        arguments: dict[str, Any] = {}
        for word in words:
            key, _, value = word.partition("=")
            option = resolve_alias(key.replace("-", "_"), recipe.options, owner=name)
            arguments[option] = recipe.options[option].parse(value)
        return SourceRun(recipe, arguments, location)
    run = Run.open(location)
    metadata, source_data = run.metadata, data_from_json(run.metadata["data"])
    if metadata["recipe"] not in allowed_recipes:
        raise UsageError(
            f"--from expects a run of {' or '.join(allowed_recipes)}, got {run.folder}, which trained "
            f"{metadata['recipe']}"
        )
    if source_data.kind != data.kind:
        raise UsageError(
            f"{run.folder} learned from {source_data.kind}, but {data.name!r} is {data.kind}; start from a run on "
            f"{data.kind}"
        )
    if source_data.shape != data.shape:
        source_size, size = (
            f"{shape[2]}×{shape[1]} pixels, {format_count(shape[0], 'channel')}"
            for shape in (source_data.shape, data.shape)
        )
        advice = "leave out --data and --size: the data of the run are used"
        raise UsageError(
            f"{run.folder} learned images of {source_size}, but those of {data.name!r} have {size}; {advice}"
        )
    arguments = {name: tuple(v) if isinstance(v, list) else v for name, v in metadata["arguments"].items()}
    return SourceRun(RECIPES[metadata["recipe"]], arguments, str(run.folder))
