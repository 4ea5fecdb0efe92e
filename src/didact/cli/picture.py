"""What `didact sample` draws: images on a sheet, rows of a table, ways through codes, the other half of an image."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from didact.run import Run
    from didact.samplers.judging import Verdict

WAY = ("steps", "eta", "order", "guidance")
PICTURED = ("label", *WAY, "complete", "keep", "interpolate", "edit", "reach", "to", "judge", "judge_weights")
MANY = 64       # images or rows, where no number is given
WRITTEN = ("tokens", "top_k", "top_p", "beam")


def given(words: dict[str, Any], *names: str) -> dict[str, Any]:
    """The options of these names as they are typed; None for one that was not."""
    return {name.replace("_", "-"): words[name] if words[name] is not False else None for name in names}


def picture(of: "Run", images: Sequence[str], words: dict[str, Any], runs: str) -> dict[str, Any]:
    """A sheet of images or rows of a table: from noise, from code to code, or the other half of an image."""
    from didact.cli.progress import Waiting
    from didact.errors import UsageError
    from didact.objectives.pace import paced
    from didact.samplers.draw import save_rows, save_sheet

    rows = of.facts["data"]["kind"] == "table"
    suffix = ".csv" if rows else ".png"
    to = Path(words["to"]) if words["to"] else of.folder / f"samples{suffix}"
    if to.suffix.lower() != suffix:
        raise UsageError(f"--to expects a file that ends in {suffix}, got {words['to']}")
    agree(of, words, rows)
    judge = judge_asked(of, words, runs)
    way = {name: words[name] for name in (*WAY, "temperature") if words[name] is not None}
    with Waiting("steps of drawing") as waiting, paced(waiting):
        told, drawn, columns = made(of, images, words, {name: words[name] for name in ("seed", "label", "device")} | way)
    if rows:
        told["columns"] = save_rows(of, drawn, to)
    else:
        save_sheet(drawn, to, columns=columns)
    result = {"run": str(of.folder), "seed": words["seed"], "label": words["label"], "file": str(to), **told, **way}
    return result | ({} if judge is None else {"judged": judge(drawn)})


def agree(of: "Run", words: dict[str, Any], rows: bool) -> None:
    """An option that would be passed over in silence is a mistake."""
    from didact.data.load import forbid

    judges = given(words, "judge", "judge_weights")
    forbid(f"{of.folder} draws {'rows' if rows else 'images'}", **given(words, *WRITTEN))
    if words["complete"] is None:
        forbid("no image is given to be completed", **given(words, "keep"))
    if words["edit"] is None:
        forbid("no number of a code is to be changed", **given(words, "reach"))
    if words["edit"] is not None or words["interpolate"]:
        forbid("a code is drawn as it is, and alone", **given(words, "eta", "temperature"), **judges)
    if words["complete"] is not None:
        forbid("an image is to be completed", **given(words, "interpolate", "edit"))
        forbid("what is judged is drawn from noise alone", **judges)
    if words["edit"] is not None:
        forbid("--edit changes one code", **given(words, "n", "interpolate"))
    if rows:
        forbid(f"{of.folder} draws rows of a table", **judges)
    if words["judge"] is not None:
        forbid("a run judges", **given(words, "judge_weights"))


def made(
    of: "Run", images: Sequence[str], words: dict[str, Any], asked: dict[str, Any]
) -> tuple[dict[str, Any], "Tensor", int | None]:
    """What to tell, what was drawn, and in how many columns it is shown."""
    from didact.data.load import forbid
    from didact.objectives.walks import SHOWN
    from didact.samplers.draw import completed, draw
    from didact.samplers.walk import edited, interpolated

    n, about = words["n"], {"images": list(images)} if images else {}
    if words["complete"] is not None:
        n, keep = n or 14, words["keep"] or "top"
        return {"n": n, "completed": words["complete"], "kept": keep}, completed(of, words["complete"], n, keep=keep, **asked), None
    if words["edit"] is not None:
        reach = words["reach"] or 3.0
        drawn = edited(of, words["edit"], images, reach=reach, **asked)
        return {"n": len(drawn), "edited": words["edit"], "reach": reach, **about}, drawn, SHOWN
    if words["interpolate"]:
        if images:
            forbid("the way leads from image to image", **given(words, "n"))
        drawn = interpolated(of, n or SHOWN, images, **asked)
        return {"n": len(drawn) // SHOWN, "interpolated": True, **about}, drawn, SHOWN
    return {"n": n or MANY}, draw(of, n or MANY, **asked), None


def judge_asked(of: "Run", words: dict[str, Any], runs: str) -> "Verdict | None":
    """The classifier that is to judge the very images that will be drawn, where one is asked: whether it can is known before they are."""
    from didact.run import Run
    from didact.samplers.judging import inception_of, judge_of

    n, asked = words["n"] or MANY, {"label": words["label"], "device": words["device"]}
    if words["judge"] is not None:
        return judge_of(of, Run.open(words["judge"], runs), n, **asked)
    return None if words["judge_weights"] is None else inception_of(of, words["judge_weights"], n, **asked)
