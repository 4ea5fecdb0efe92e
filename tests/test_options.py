"""Options of a signature: values round-trip through text, errors name the mistake, aliases and conditions."""

import math
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from didact.cli.recipes import load_recipes
from didact.errors import UsageError
from didact.options import (
    Aliases,
    OnlyWith,
    Option,
    Range,
    VerbatimText,
    bind_arguments,
    format_value,
    note_unused_options,
    read_options,
    resolve_alias,
    to_json_value,
)


def example_recipe(
    data: object,
    *,
    lr: Annotated[float, Range(0, open_low=True), "learning rate"] = 1e-3,
    hidden: tuple[int, ...] = (256, 128),
    norm: Literal["none", "batch"] = "none",
    quick: bool = False,
    clip: float | None = None,
) -> None: ...


OPTIONS = read_options(example_recipe, skip=1)


def test_read_options_reads_the_signature():
    assert list(OPTIONS) == ["lr", "hidden", "norm", "quick", "clip"]
    assert OPTIONS["lr"].value_syntax == "float more than 0" and OPTIONS["lr"].help == "learning rate"
    assert OPTIONS["hidden"].is_list and OPTIONS["hidden"].default_text == "256,128"
    assert OPTIONS["norm"].value_syntax == "none|batch" and OPTIONS["clip"].is_optional


@given(st.floats(min_value=1e-300, max_value=1e18))
def test_format_value_round_trips_numbers(value):
    assert OPTIONS["lr"].parse(format_value(value)) == value


@given(st.lists(st.integers(1, 10**6), min_size=1))
def test_format_value_round_trips_lists(values):
    assert OPTIONS["hidden"].parse(format_value(tuple(values))) == tuple(values)


@pytest.mark.parametrize(
    ("text", "values"), [("256-128", (256, 128)), ("8x4", (8, 4)), ("5", (5,)), (" 3, 4 ", (3, 4))]
)
def test_parse_accepts_several_list_separators(text, values):
    assert OPTIONS["hidden"].parse(text) == values


def test_format_value_keeps_every_digit():
    assert format_value(0.1 + 0.2) == "0.30000000000000004" and format_value(3.0) == "3" and format_value(True) == "yes"


@pytest.mark.parametrize(("name", "text", "message"), [
    ("lr", "0", "expects float more than 0, got 0"), ("lr", "nan", "expects float"), ("lr", "inf", "expects float"),
    ("lr", "fast", "got 'fast'"), ("hidden", "a,b", "got 'a'"),
    ("norm", "batsh", "did you mean 'batch'"), ("quick", "maybe", "got 'maybe'"),
])
def test_parse_errors_name_the_mistake(name, text, message):
    with pytest.raises(UsageError, match=message):
        OPTIONS[name].parse(text)


def test_bind_arguments_checks_python_callers():
    assert bind_arguments(OPTIONS, {"lr": 1}, owner="r")["lr"] == 1.0
    assert bind_arguments(OPTIONS, {"hidden": 8}, owner="r")["hidden"] == (8,)
    for arguments in ({"lr": "0.1"}, {"hidden": (1.5,)}, {"quick": 1}, {"lr": True}):
        with pytest.raises(UsageError, match="expects"):
            bind_arguments(OPTIONS, arguments, owner="r")
    with pytest.raises(UsageError, match="has no option --hiden; did you mean 'hidden'"):
        bind_arguments(OPTIONS, {"hiden": 8}, owner="recipe 'r'")


def test_none_is_parsed_only_by_optional_options():
    assert OPTIONS["clip"].parse("none") is None
    with pytest.raises(UsageError):
        OPTIONS["lr"].parse("none")


def test_verbatim_text_may_be_none():
    def recipe_with_files(
        *, data: Annotated[str | None, VerbatimText(), "a file"] = None, weights: str | None = None
    ) -> None: ...

    options_by_name = read_options(recipe_with_files)
    assert options_by_name["data"].parse("none") == "none" and options_by_name["weights"].parse("none") is None


@pytest.mark.parametrize("value", [1e30, 2.0**63, float("inf")])
def test_check_names_the_upper_limit(value):
    with pytest.raises(UsageError, match=r"--lr expects float more than 0, in size below 2\^63 = 9.22e\+18, got"):
        OPTIONS["lr"].check(value)
    assert OPTIONS["lr"].check(1e18) == 1e18


def test_to_json_value_replaces_non_finite_numbers():
    assert to_json_value({"a": math.nan, "b": [math.inf, 1.0], "c": (2,)}) == {"a": None, "b": [None, 1.0], "c": [2]}


def test_option_must_have_one_type():
    def recipe_with_union(data: object, *, x: int | str = 1) -> None: ...

    with pytest.raises(AssertionError, match="not one type"):
        read_options(recipe_with_union, skip=1)
    assert Option("a", int, 1).flag == "a"


def aliased_recipe(
    data: object,
    *,
    batch_size: Annotated[int, Range(1), "batch size", Aliases("batch")] = 8,
    num_layers: Annotated[int, Range(1), "layers", Aliases("layers", "depth")] = 2,
) -> None: ...


def test_aliases_count_as_their_option():
    options = read_options(aliased_recipe, skip=1)
    assert [resolve_alias(name, options, owner="r") for name in ("batch", "depth", "num_layers")] == [
        "batch_size",
        "num_layers",
        "num_layers",
    ]
    assert bind_arguments(options, {"batch": 4, "layers": 3}, owner="r") == {"batch_size": 4, "num_layers": 3}
    with pytest.raises(UsageError, match="--batch-size expects int at least 1, got 0"):
        bind_arguments(options, {"batch": 0}, owner="r")
    with pytest.raises(UsageError, match="--num-layers is given twice, also as depth; give it once"):
        bind_arguments(options, {"layers": 3, "depth": 3}, owner="r")
    with pytest.raises(UsageError, match="r has no option --batches; did you mean 'batch-size'"):
        bind_arguments(options, {"batches": 3}, owner="r")


def test_condition_of_an_option_is_part_of_its_help():
    def conditional_recipe(
        data: object,
        *,
        weights: str | None = None,
        mode: Literal["full", "lora", "head"] = "full",
        eta: float = 0.0,
        conditional: bool = False,
        steps: Annotated[int, OnlyWith("weights", None), OnlyWith("mode", "full", "lora"), "pretraining steps"] = 400,
        variance: Annotated[float, OnlyWith("eta", above=0), "variance"] = 1.0,
        drop: Annotated[float, OnlyWith("conditional", True), "label dropout"] = 0.1,
    ) -> None: ...

    options = read_options(conditional_recipe, skip=1)
    assert options["steps"].help == "pretraining steps (only without --weights and with --mode full or lora)"
    assert options["variance"].help == "variance (only with --eta above 0)"
    assert options["drop"].help == "label dropout (only with --conditional)"
    values = bind_arguments(options, {"steps": 3, "weights": "x", "drop": 0.2}, owner="r")
    assert note_unused_options(options, ("steps", "drop"), values) == (
        "--steps 3 does nothing: it is used only without --weights, and --weights is x",
        "--drop 0.2 does nothing: it is used only with --conditional, and --conditional is no",
    )


FIELD_ALIASES = {  # of PyTorch, Hugging Face, scikit-learn, gensim, papers and their published code
    "T", "aux_loss_weight", "batch", "beta_schedule", "block_size", "bptt", "bucket", "cell", "cfg",
    "commitment_cost", "d_ff", "d_model", "embedding_dim", "filters", "guidance_scale", "heads", "hidden_size",
    "hidden_sizes", "iou_threshold", "kl_weight", "lags", "lambda_gp", "layers", "learning_rate", "lora_r",
    "lr_schedule", "mask_probability", "max_grad_norm", "max_seq_length", "max_steps", "n_critic", "n_estimators",
    "negative", "num_embeddings", "num_epochs", "num_inference_steps", "num_timesteps", "order", "season_length",
    "short_seq_prob", "smoothing", "tied", "tta", "vector_size", "width",
}  # fmt: skip


def test_recipes_have_only_aliases_of_the_field():
    options = [option for recipe in load_recipes().values() for option in recipe.options.values()]
    assert {alias for option in options for alias in option.aliases} == FIELD_ALIASES
    for option in options:
        assert option.name not in option.aliases
