"""The text half of `didact sample`: a continuation of a prompt, or an answer to it."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from didact.cli.sample_images import IMAGE_OPTIONS, select_given

if TYPE_CHECKING:
    from didact.run import Run

_DEFAULT_NUM_TOKENS = 500


def answer_prompt(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """The answers of a published decoder to a prompt."""
    from didact.cli.progress import SlowTaskProgress
    from didact.data.load import reject_options
    from didact.inference.chat import answer_question
    from didact.samplers.top_k_top_p import DecodingConfig

    reject_options(f"{name} answers questions", **select_given(options, *IMAGE_OPTIONS))
    temperature, prompt, seed = options["temperature"], options["prompt"], options["seed"]
    if temperature is None:  # greedy, unless several answers or a sampling method are asked for
        wants_several = max(options["num_beams"] or 1, options["num_samples"] or 1) > 1
        temperature = float(wants_several or any(options[name] is not None for name in ("top_k", "top_p")))
    decoding = DecodingConfig(temperature, options["top_k"], options["top_p"], _get_beam_width(options))
    with SlowTaskProgress("tokens") as progress:
        texts = answer_question(
            name,
            prompt or "",
            n=options["num_samples"] or 1,
            decoding=decoding,
            progress=progress,
            **_make_generation_options(options),
        )
    return {"model": name, "prompt": prompt, "seed": seed, "decoding": asdict(decoding), "texts": texts}


def sample_text(run: "Run", options: dict[str, Any]) -> dict[str, Any]:
    """Continuations of a prompt by a run's language model."""
    from didact.cli.progress import SlowTaskProgress
    from didact.data.load import reject_options
    from didact.inference.generate_text import generate_continuations
    from didact.samplers.top_k_top_p import DecodingConfig

    reject_options(f"{run.folder} generates text", **select_given(options, *IMAGE_OPTIONS))
    temperature = options["temperature"]
    decoding = DecodingConfig(
        1.0 if temperature is None else temperature, options["top_k"], options["top_p"], _get_beam_width(options)
    )
    with SlowTaskProgress("tokens") as progress:
        texts = generate_continuations(
            run,
            options["prompt"],
            n=options["num_samples"] or 1,
            decoding=decoding,
            progress=progress,
            **_make_generation_options(options),
        )
    return {
        "run": str(run.folder),
        "prompt": options["prompt"],
        "seed": options["seed"],
        "decoding": asdict(decoding),
        "texts": texts,
    }


def _get_beam_width(options: dict[str, Any]) -> int:
    return 1 if options["num_beams"] is None else options["num_beams"]


def _make_generation_options(options: dict[str, Any]) -> dict[str, Any]:
    num_tokens = options["max_tokens"] or _DEFAULT_NUM_TOKENS
    return {"tokens": num_tokens, "seed": options["seed"], "device": options["device"]}
