"""A run that another one begins with, as its teacher or its coder: named by its folder, or trained first."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from didact.data.core import Data
from didact.data.spec import from_spec
from didact.errors import UsageError, counted, pick
from didact.objectives.core import Objective
from didact.options import NamesRun, written
from didact.registry import RECIPES, Recipe
from didact.run import Run
from didact.train.experiment import Experiment, Settings, Start
from didact.train.loop import Training
from didact.train.session import restored

From = Annotated[
    str | None, NamesRun(data=True),
    "run to begin with, and to take the data of: its folder, the end of its name, or latest (if not given, one is trained first)",
]


@dataclass(frozen=True)
class Origin:
    """A recipe with its arguments, and the run that trained it; None: still to be trained."""

    recipe: Recipe
    arguments: dict[str, Any]
    where: str | None

    @property
    def words(self) -> str:
        """As one types it: the recipe, and what differs from its defaults."""
        known = self.recipe.options
        chosen = [f"{name}={written(value)}" for name, value in self.arguments.items() if value != known[name].default]
        return " ".join([self.recipe.name, *chosen])

    def experiment(self, data: Data) -> Experiment:
        made: Experiment = self.recipe(data, **self.arguments)
        return made

    def bring(self, objective: Objective, data: Data, start: Start) -> str:
        """What it learned, in an objective of the same kind; a line on where from."""
        if self.where is not None:
            try:
                objective.load_state_dict(restored(Run.open(self.where))[0].state_dict())
            except RuntimeError as error:
                why = str(error).splitlines()[-1].strip()
                told = f"{self.where} is not {self.words} on {data.name!r} ({why})"
                raise UsageError(f"{told}; give --from alone: the run says what it is and brings its data") from error
            return f"begins with {self.where} ({self.words})"
        settings = Settings(precision=start.settings.precision, seed=start.settings.seed)
        first = {"what": f"{self.recipe.name} first"}
        training = Training(self.experiment(data), settings, device=start.device, tell=lambda _, facts: start.tell("begin", first | facts))
        training.train()
        objective.load_state_dict(training.best)
        watch, state = objective.watch, training.state
        return f"{self.words} was trained first, in {state.seconds:.0f} s: validation {watch} {state.validation[watch]:.3g}"


def origin(where: str | None, told: str | None, data: Data, *, known: Sequence[str]) -> Origin:
    """The run of that name; or the words of one, the first of the known recipes where there are none.

    A run that begins with another keeps these words, so that it can be rebuilt when the other is gone.
    """
    if where is None or told is not None:
        name, *chosen = (told or known[0]).split()
        recipe = pick("recipe", name, {name: RECIPES[name] for name in known})
        options = recipe.options
        pairs = [word.partition("=") for word in chosen]
        return Origin(recipe, {key: pick(f"option of {name}", key, options).parse(value) for key, _, value in pairs}, where)
    run = Run.open(where)
    facts, theirs = run.facts, from_spec(run.facts["data"])
    if facts["recipe"] not in known:
        raise UsageError(f"--from expects a run of {' or '.join(known)}, got {run.folder}, which trained {facts['recipe']}")
    if theirs.kind != data.kind:
        raise UsageError(f"{run.folder} learned from {theirs.kind}, but {data.name!r} is {data.kind}; begin with a run on {data.kind}")
    if theirs.shape != data.shape:
        there, here = (f"{shape[2]}×{shape[1]} pixels, {counted(shape[0], 'channel')}" for shape in (theirs.shape, data.shape))
        then = "leave out --data and --size: it brings its own"
        raise UsageError(f"{run.folder} learned images of {there}, but those of {data.name!r} have {here}; {then}")
    arguments = {name: tuple(v) if isinstance(v, list) else v for name, v in facts["arguments"].items()}
    return Origin(RECIPES[facts["recipe"]], arguments, str(run.folder))
