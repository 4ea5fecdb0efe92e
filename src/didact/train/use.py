"""Using a trained model: `predict` serves whatever the objective is able to do."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from didact import files
from didact.data.core import Batch, Data, Given, Resident, doubts
from didact.data.hiding import MASK, HidingEncoder
from didact.data.pairs import PairEncoder
from didact.data.pictures import framed, overlaid, png, stretched
from didact.errors import UsageError
from didact.layers.dropout import drops
from didact.metrics.detection import SURE, shown
from didact.objectives.abilities import ABILITIES, Detects, Draws, Predictive, Restores, Translates, abilities
from didact.objectives.core import Objective
from didact.objectives.regressions import Regression
from didact.objectives.uncertainty import mc_dropout
from didact.run import Run
from didact.train.session import restored

SHOWN = 3          # likeliest classes that a prediction names
AT_ONCE = 2**22    # numbers of the inputs that are answered together

Answer = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """How a model is asked: so often under dropout (MC dropout), for so many random answers beside, with so many beams, how sure."""

    passes: int = 0
    draws: int = 0
    beam: int = 1
    sure: float = SURE


def predict(
    run: Run | Path | str, inputs: Sequence[Given] | Given, *,
    passes: int = 0, draws: int = 0, beam: int = 1, sure: float | None = None, to: Path | str | None = None,
    warn: Callable[[str], None] = lambda doubt: None,
) -> list[Answer]:
    """What the run's model says of each input: files, rows or texts, read as its training data were.

    A Path is a file. A str is an image's file or a CSV file where the run reads such, and a text where it reads texts.
    `passes` keeps dropout on and asks so often (MC dropout); `draws` adds so many random answers from p(y | x), of numbers with the
    deviation of the residuals on the validation split where the model does not predict one; `beam` looks for the
    likeliest translation; boxes of a score below `sure` are left out. Masks, frames and restored images are tensors, or drawn into
    PNG files of the folder `to`. What the model never learned to read is told to `warn`.
    """
    objective, data = restored(run if isinstance(run, Run) else Run.open(run))
    inputs = [inputs] if isinstance(inputs, str | Path) else inputs
    if others := [each for each in inputs if not isinstance(each, str | Path)]:
        raise UsageError(f"inputs are files, texts, or rows written a=1,b=2, got {type(others[0]).__name__}")
    if data.encoder is None:
        raise UsageError(f"the run learned from {data.name!r}, whose inputs cannot be read from files")
    if passes and not any(map(drops, objective.modules())):
        raise UsageError(f"--passes {passes} asks again under dropout, but this run's network has none; train with --dropout")
    if beam != 1 and not isinstance(objective, Translates):
        raise UsageError(f"--beam {beam} looks for the likeliest translation, but this run's model translates nothing; leave it out")
    if sure is not None and not isinstance(objective, Detects):
        raise UsageError(f"--sure {sure:g} is the least score of a box, but this run's model finds none; leave it out")
    if to is not None and not pictures(abilities(objective)):
        raise UsageError(f"--to {to} is the folder of masks, boxes and restored images, but this run's model draws none; leave it out")
    if draws:
        measure_noise(objective, run if isinstance(run, Run) else Run.open(run), draws)
    asked = Asked(passes, draws, beam, SURE if sure is None else sure)
    names, columns = data.encoder.read(inputs)
    for doubt in doubts(data.encoder, inputs):
        warn(doubt)
    found = (answer for batch in batches(objective, data, names, columns) for answer in answers(objective, data, batch, asked))
    whole = ({"input": name, **answer} for name, answer in zip(names, found, strict=True))
    return list(whole) if to is None else pictured(whole, data, Path(to))


def measure_noise(objective: Objective, run: Run, draws: int) -> None:
    """A loss that does not learn how far numbers lie from their predictions draws as far as those of the validation split did."""
    likelihood = getattr(objective, "likelihood", None)
    if not isinstance(likelihood, Regression) or likelihood.learns_noise:
        return
    rmse = (run.facts.get("validation") or {}).get("rmse")
    if rmse is None:
        raise UsageError(
            f"--draws {draws} needs how far the validation targets lie from their predictions, which {run.folder} does not say before"
            f" it is finished; go on with: didact resume {run.folder}"
        )
    likelihood.residual_std = float(rmse)


def batches(objective: Objective, data: Data, names: Sequence[str], columns: Batch) -> Iterator[Batch]:
    """Inputs as training read them, many at once; images to be given back pixel by pixel, each in the size of its file."""
    assert data.encoder is not None
    if isinstance(objective, Restores) and objective.any_size:
        yield from ({"x": on_file(name, data)[None]} for name in names)
        return
    split = Resident(columns, data.encoder.decoders)
    for index in torch.arange(len(split)).split(max(1, min(1024, AT_ONCE // max(1, data.features)))):
        yield split.batch(index)


@torch.no_grad()
def answers(objective: Objective, data: Data, batch: Batch, asked: Asked) -> list[Answer]:
    """One dict for each example, by the first thing that the objective can do."""
    way = next((way for ability, way in WAYS.items() if isinstance(objective, ABILITIES[ability])), None)
    if way is None:
        raise UsageError(f"this run's model can do none of: {', '.join(WAYS)}; `didact list` shows what each recipe can do")
    found = way(objective, data, batch, asked)
    if asked.draws:
        if not isinstance(objective, Draws):
            raise UsageError(f"--draws {asked.draws} asks for random answers, but this run's model draws none; leave it out")
        drawn = torch.stack([objective.draw(batch) for _ in range(asked.draws)], dim=1)
        for answer, row in zip(found, drawn.tolist(), strict=True):
            answer["draws"] = [drawn_value(data, d) for d in row]
    return found


def classified(objective: Any, data: Data, batch: Batch, asked: Asked) -> list[Answer]:
    p = mc_dropout(objective, batch, passes=asked.passes) if asked.passes else Predictive(objective.classify(batch), None)
    return [labelled(data, *row) for row in rows(p)]


def regressed(objective: Any, data: Data, batch: Batch, asked: Asked) -> list[Answer]:
    p = mc_dropout(objective, batch, passes=asked.passes) if asked.passes else objective.regress(batch)
    return [valued(data, *row) for row in rows(p)]


def detected(objective: Any, data: Data, batch: Batch, asked: Asked) -> list[Answer]:
    detections = (shown(each, sure=asked.sure) for each in objective.detect(batch).cpu())
    return [boxed(data, *row) for row in zip(detections, batch["size"].tolist(), strict=True)]


def segmented(objective: Any, data: Data, batch: Batch, asked: Asked) -> list[Answer]:
    """The share of the image that each class covers, and the mask."""
    found = []
    for mask in objective.segment(batch).argmax(1).cpu():
        share = torch.bincount(mask.flatten(), minlength=data.classes) / mask.numel()
        found.append({"shares": dict(zip(data.labels, share.tolist(), strict=True)), "mask": mask})
    return found


def given_back(objective: Any, data: Data, batch: Batch, asked: Asked) -> list[Answer]:
    return [{"restored": image} for image in objective.restore(batch).cpu()]


def translated(objective: Any, data: Data, batch: Batch, asked: Asked) -> list[Answer]:
    assert isinstance(data.encoder, PairEncoder)
    return [{"translation": data.encoder.target.decode(row)} for row in objective.translate(batch, beam=asked.beam).tolist()]


def filled(objective: Any, data: Data, batch: Batch, asked: Asked) -> list[Answer]:
    """The text with the likeliest token in each hidden place, and the runners-up."""
    assert isinstance(data.encoder, HidingEncoder)
    found = []
    for x, n, p in zip(batch["x"], batch["length"].tolist(), objective.fill(batch), strict=True):
        hidden = p.sum(-1) > 0
        if not bool(hidden.any()):
            raise UsageError(f"expected a text with {MASK} where a token is hidden, got none")
        ids, spelled = torch.where(hidden, p.argmax(-1), x)[:n].tolist(), data.encoder.tokenizer.decode
        top = (row.topk(min(SHOWN, len(row))) for row in p[hidden])
        guesses = [{spelled([i]) or data.labels[i]: v for v, i in zip(*map(Tensor.tolist, each), strict=True)} for each in top]
        found.append({"filled": spelled(ids), "guesses": guesses})
    return found


def tagged(objective: Any, data: Data, batch: Batch, asked: Asked) -> list[Answer]:
    """The likeliest label of each token that was asked about, and how likely all of them are together."""
    found = []
    for p in objective.tag(batch):
        best, label = p[p.sum(-1) > 0].max(-1)
        found.append({"tags": " ".join(data.labels[k] for k in label.tolist()), "probability": float(best.prod())})
    return found


def forecasted(objective: Any, data: Data, batch: Batch, asked: Asked) -> list[Answer]:
    return [{named(data): row} for row in objective.forecast(batch).tolist()]


# an ability that gives an answer adds a line here; the first that an objective has is asked
WAYS: dict[str, Callable[[Any, Data, Batch, Asked], list[Answer]]] = {
    "classify": classified, "regress": regressed, "detect": detected, "segment": segmented, "restore": given_back,
    "translate": translated, "tag": tagged, "fill": filled, "forecast": forecasted,
}


PICTURES = ("detect", "segment", "restore")   # ways whose answers are drawn


def pictures(able: Sequence[str]) -> bool:
    """Whether who can do this answers with pictures."""
    return next((way for way in WAYS if way in able), "") in PICTURES


def on_file(name: str, data: Data) -> Tensor:
    """The input's own image, to draw on: (C, H, W) in [0, 1]."""
    image: Tensor = data.encoder.whole(name)  # type: ignore[union-attr]
    return image / 255


# parts of an answer that are drawn: what is kept of them is the path of a PNG
DRAWN: dict[str, Callable[[str, Data, Tensor], Tensor]] = {
    "classes": lambda name, data, mask: stretched(mask, on_file(name, data).shape[1:])[None] / 255,     # pixel by pixel the class's number
    "mask": lambda name, data, mask: overlaid(on_file(name, data), mask, data.classes),
    "frames": lambda name, data, found: framed(on_file(name, data), found, data.labels),
    "restored": lambda name, data, image: image,
}


def pictured(answers: Iterable[Answer], data: Data, to: Path) -> list[Answer]:
    """The answers with their pictures written, one by one: many photographs would not fit. Of one name, the later are numbered."""
    taken: set[Path] = set()
    told = []
    for answer in answers:
        stem = Path(answer["input"]).stem
        if (mask := answer.pop("mask", None)) is not None:
            answer |= {"classes": mask, "mask": mask}      # as numbers, to go on with, and to look at
        for part in DRAWN.keys() & answer.keys():
            spelled = (to / f"{stem}{'' if k == 1 else f'-{k}'}-{part}.png" for k in count(1))
            path = next(path for path in spelled if path not in taken)
            taken.add(path)
            files.write_bytes(path, png(DRAWN[part](answer["input"], data, answer[part])))
            answer[part] = str(path)
        told.append(answer)
    return told


def rows(p: Predictive) -> list[tuple[Tensor, Tensor | None]]:
    deviations = p.std.unbind() if p.std is not None else [None] * len(p.mean)
    return list(zip(p.mean.unbind(), deviations, strict=True))


def labelled(data: Data, p: Tensor, std: Tensor | None) -> dict[str, Any]:
    """The likeliest class, its probability and the runners-up; all likely labels where there may be several."""
    top = p.argsort(descending=True)[: min(SHOWN, len(p))]
    answer: dict[str, Any] = {"label": data.labels[int(top[0])], "probability": float(p[top[0]])}
    if data.task == "multilabel":
        answer = {"labels": [data.labels[i] for i in (p > 0.5).nonzero()[:, 0].tolist()]}
    if std is not None:
        answer["std"] = float(std[top[0]])
    return answer | {"probabilities": {data.labels[int(i)]: float(p[i]) for i in top}}


def named(data: Data) -> str:
    """The target's name in an answer, which the answer's other parts have theirs beside."""
    return f"predicted {data.target}" if data.target in ("input", "std", "low", "high", "draws") else data.target


def valued(data: Data, mean: Tensor, std: Tensor | None) -> dict[str, Any]:
    shift = data.target_shift                   # added as double: a tensor would round it
    answer: dict[str, Any] = {named(data): float(mean) + shift}
    if std is not None:
        answer |= {"std": float(std), "low": float(mean - 1.96 * std) + shift, "high": float(mean + 1.96 * std) + shift}
    return answer


def drawn_value(data: Data, drawn: Any) -> Any:
    """A random answer in the target's own words: a class by its name, labels as they are, a number in its units."""
    if data.task == "multilabel":
        return drawn
    return data.labels[int(drawn)] if data.labels else drawn + data.target_shift


def boxed(data: Data, there: Tensor, size: Sequence[int]) -> dict[str, Any]:
    """What was found, the surest first: x1, y1, x2, y2 in pixels of the file."""
    sides = torch.tensor([*size, *size])
    boxes = [
        {"label": data.labels[int(row[5])], "score": float(row[4]), "box": [round(v, 1) for v in (row[:4] * sides).tolist()]}
        for row in there
    ]
    return {"boxes": boxes, "frames": there}
