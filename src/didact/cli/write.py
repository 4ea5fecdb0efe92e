"""What `didact sample` lets a model write: the rest of a text, or an answer."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from didact.cli.picture import PICTURED, given

if TYPE_CHECKING:
    from didact.run import Run

TOKENS = 500


def chat(name: str, words: dict[str, Any]) -> dict[str, Any]:
    """The answers of a published decoder."""
    from didact.cli.progress import Waiting
    from didact.data.load import forbid
    from didact.objectives.writing import Manner
    from didact.samplers.chat import answers

    forbid(f"{name} answers questions", **given(words, *PICTURED))
    warm, prompt, seed = words["temperature"], words["prompt"], words["seed"]
    if warm is None:                           # the likeliest answer, unless several are wanted, or bounds to choose within
        several = max(words["beam"] or 1, words["n"] or 1) > 1
        warm = float(several or any(words[name] is not None for name in ("top_k", "top_p")))
    manner = Manner(warm, words["top_k"], words["top_p"], beams(words))
    with Waiting("tokens") as waiting:
        said = answers(name, prompt or "", n=words["n"] or 1, manner=manner, pace=waiting, **asked(words))
    return {"published": name, "prompt": prompt, "seed": seed, "manner": asdict(manner), "texts": said}


def write(of: "Run", words: dict[str, Any]) -> dict[str, Any]:
    """What a run's model writes behind a prompt."""
    from didact.cli.progress import Waiting
    from didact.data.load import forbid
    from didact.objectives.writing import Manner
    from didact.samplers.text import continued

    forbid(f"{of.folder} writes text", **given(words, *PICTURED))
    warm = words["temperature"]
    manner = Manner(1.0 if warm is None else warm, words["top_k"], words["top_p"], beams(words))
    with Waiting("tokens") as waiting:
        texts = continued(of, words["prompt"], n=words["n"] or 1, manner=manner, pace=waiting, **asked(words))
    return {"run": str(of.folder), "prompt": words["prompt"], "seed": words["seed"], "manner": asdict(manner), "texts": texts}


def beams(words: dict[str, Any]) -> int:
    return 1 if words["beam"] is None else words["beam"]


def asked(words: dict[str, Any]) -> dict[str, Any]:
    return {"tokens": words["tokens"] or TOKENS, "seed": words["seed"], "device": words["device"]}
