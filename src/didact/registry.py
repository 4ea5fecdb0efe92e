"""Names for models and recipes. A name is given once: giving it again raises."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from didact.errors import UsageError, look_up
from didact.options import Option, bind_arguments, read_options

C = TypeVar("C", bound=Callable[..., Any])

CHAPTERS = (  # in the order in which the courses come to them
    "foundations",
    "automatic differentiation",
    "optimisation",
    "regularisation",
    "uncertainty",
    "convolutions",
    "recurrent networks",
    "attention",
    "transformers",
    "generative",
    "theory",
)
MODELS: dict[str, "Preset"] = {}
RECIPES: dict[str, "Recipe"] = {}


@dataclass(frozen=True)
class Preset:
    """A model class with the keywords that make it this preset."""

    model_class: Callable[..., Any]
    keywords: Mapping[str, Any]

    def __call__(self, **keywords: Any) -> Any:
        return self.model_class(**{**self.keywords, **keywords})


def register_model(name: str, **keywords: Any) -> Callable[[C], C]:
    """Give a model class, with these keywords, a name that tests walk and people type."""

    def decorate(model_class: C) -> C:
        if name in MODELS:
            raise ValueError(f"two models are named {name!r}")
        MODELS[name] = Preset(model_class, keywords)
        return model_class

    return decorate


def create_model(name: str, **keywords: Any) -> Any:
    """A registered model, its preset overlaid with the given keywords."""
    return look_up("model", name, MODELS)(**keywords)


@dataclass(frozen=True)
class Recipe:
    """One experiment of the syllabus: called with loaded data and keywords, it returns an Experiment."""

    name: str
    function: Callable[..., Any]
    data: str                         # the set it uses when none is named
    accepts: tuple[str, ...]          # kinds of data
    tasks: tuple[str, ...]            # what the targets may be; empty: any
    kind: str                         # supervised, generative, …
    chapter: str
    sources: tuple[str, ...]          # as "Gaba 2.8"
    abilities: tuple[str, ...]
    grid: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)  # what `didact sweep` tries when told nothing
    # metrics of its table, the first ranks; empty: what is watched. A loss that an axis enters cannot
    comparison_metrics: tuple[str, ...] = ()

    @property
    def options(self) -> dict[str, Option]:
        """The recipe's hyperparameters; the first parameter is the data."""
        return read_options(self.function, skip=1)

    @property
    def needs_labels(self) -> bool:
        """Whether it learns what each example is, whatever its options."""
        return bool(self.tasks) or self.kind == "supervised"

    @property
    def summary(self) -> str:
        return inspect.cleandoc(self.function.__doc__ or "").split("\n\n")[0].replace("\n", " ")

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """All arguments, defaults filled in, each checked."""
        return bind_arguments(self.options, arguments, owner=f"recipe {self.name!r}")

    def __call__(self, data: Any, **arguments: Any) -> Any:
        self.check_data(data)
        return self.function(data, **self.bind(arguments))

    def check_data(self, data: Any) -> None:
        """Refuse data of a kind or task that the recipe cannot learn, by name, before anything runs."""
        if data.kind not in self.accepts:
            raise UsageError(
                f"recipe {self.name!r} learns from {' or '.join(self.accepts)}, but {data.name!r} is {data.kind}; "
                f"{self.advice}"
            )
        if data.task == "none" and self.needs_labels:
            raise UsageError(
                f"recipe {self.name!r} learns what each example is, which {data.name!r} does not say; {data.notes[0]}"
            )
        if self.tasks and data.task not in self.tasks:
            raise UsageError(
                f"recipe {self.name!r} is for {' or '.join(self.tasks)} targets, but those of {data.name!r} are "
                f"{data.task}; {self.advice}"
            )

    @property
    def advice(self) -> str:
        """What to give instead: of texts there are two kinds, one to go on with and one with labels."""
        if "language" in self.tasks:
            return "give a text file (.txt, .md) or a folder of them"
        return (
            "give a CSV file with --text COLUMN" if self.accepts == ("text",) else "choose other data or another recipe"
        )


def recipe(
    *,
    data: str,
    accepts: tuple[str, ...],
    chapter: str,
    sources: tuple[str, ...],
    abilities: tuple[str, ...],
    tasks: tuple[str, ...] = (),
    kind: str = "supervised",
    grid: Mapping[str, tuple[Any, ...]] | None = None,
    comparison_metrics: tuple[str, ...] = (),
) -> Callable[[Callable[..., Any]], Recipe]:
    """Put a function into the catalogue."""

    def decorate(function: Callable[..., Any]) -> Recipe:
        name = function.__name__
        if name in RECIPES:
            raise ValueError(f"two recipes are named {name!r}")
        RECIPES[name] = Recipe(
            name, function, data, accepts, tasks, kind, chapter, sources, abilities, grid or {}, comparison_metrics
        )
        return RECIPES[name]

    return decorate
