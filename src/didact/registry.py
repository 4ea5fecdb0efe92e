"""Registries of models and recipes by name; a name that is registered twice raises."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from didact.errors import UsageError, look_up
from didact.options import Option, bind_arguments, read_options

C = TypeVar("C", bound=Callable[..., Any])

CHAPTERS = (  # in the order of the courses
    "foundations",
    "automatic differentiation",
    "optimization",
    "regularization",
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
    """A model class with the keywords of one preset: resnet18 is ResNet with these depths."""

    model_class: Callable[..., Any]
    keywords: Mapping[str, Any]

    def __call__(self, **keywords: Any) -> Any:
        return self.model_class(**{**self.keywords, **keywords})


def register_model(name: str, **keywords: Any) -> Callable[[C], C]:
    """Register a model class with these keywords under a name."""

    def decorate(model_class: C) -> C:
        if name in MODELS:
            raise ValueError(f"two models are named {name!r}")
        MODELS[name] = Preset(model_class, keywords)
        return model_class

    return decorate


def create_model(name: str, **keywords: Any) -> Any:
    """Create a registered model; the given keywords override those of its preset."""
    return look_up("model", name, MODELS)(**keywords)


@dataclass(frozen=True)
class Recipe:
    """A registered recipe: called with loaded data and keywords, it returns an Experiment."""

    name: str
    function: Callable[..., Any]
    data: str                         # its default dataset
    accepts: tuple[str, ...]          # kinds of data
    tasks: tuple[str, ...]            # kinds of targets; empty: any
    kind: str                         # supervised, generative, …
    chapter: str
    sources: tuple[str, ...]          # as "Gaba 2.8"
    abilities: tuple[str, ...]
    grid: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)  # default axes of `didact sweep`
    # metrics of a sweep's table, ranked by the first; empty: the monitored one. A loss whose definition depends on an
    # axis, as that of a β-VAE on β, cannot rank
    comparison_metrics: tuple[str, ...] = ()

    @property
    def options(self) -> dict[str, Option]:
        """The recipe's hyperparameters; the first parameter is the data."""
        return read_options(self.function, skip=1)

    @property
    def needs_labels(self) -> bool:
        """Whether it needs a target for each example, whatever its options."""
        return bool(self.tasks) or self.kind == "supervised"

    @property
    def summary(self) -> str:
        return inspect.cleandoc(self.function.__doc__ or "").split("\n\n")[0].replace("\n", " ")

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """All arguments, checked, with defaults filled in."""
        return bind_arguments(self.options, arguments, owner=f"recipe {self.name!r}")

    def __call__(self, data: Any, **arguments: Any) -> Any:
        self.check_data(data)
        return self.function(data, **self.bind(arguments))

    def check_data(self, data: Any) -> None:
        """Refuse data of a kind or task that the recipe cannot use."""
        if data.kind not in self.accepts:
            raise UsageError(
                f"recipe {self.name!r} learns from {' or '.join(self.accepts)}, but {data.name!r} is {data.kind}; "
                f"{self.advice}"
            )
        if data.task == "none" and self.needs_labels:
            raise UsageError(
                f"recipe {self.name!r} needs a target for each example, but {data.name!r} has none; {data.notes[0]}"
            )
        if self.tasks and data.task not in self.tasks:
            raise UsageError(
                f"recipe {self.name!r} is for {' or '.join(self.tasks)} targets, but those of {data.name!r} are "
                f"{data.task}; {self.advice}"
            )

    @property
    def advice(self) -> str:
        """What to give instead; of texts there are two kinds, running text and labeled texts."""
        if "language" in self.tasks:
            return "give a text file (.txt, .md) or a folder of them"
        if self.accepts == ("text",):
            return "give a CSV file with --text COLUMN, or a folder of texts by class"
        return "choose other data or another recipe"


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
    """Register a function as a recipe."""

    def decorate(function: Callable[..., Any]) -> Recipe:
        name = function.__name__
        if name in RECIPES:
            raise ValueError(f"two recipes are named {name!r}")
        RECIPES[name] = Recipe(
            name, function, data, accepts, tasks, kind, chapter, sources, abilities, grid or {}, comparison_metrics
        )
        return RECIPES[name]

    return decorate
