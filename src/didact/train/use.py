"""Using a trained model: `predict` serves whatever the objective is able to do."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.dropout import _DropoutNd

from didact.data.core import Batch, Data, Resident
from didact.errors import UsageError
from didact.objectives.abilities import Classifies, Predictive, Regresses
from didact.objectives.core import Objective
from didact.objectives.uncertainty import mc_dropout
from didact.run import Run
from didact.train.session import restored

SHOWN = 3  # likeliest classes that a prediction names


def predict(run: Run, inputs: Sequence[str], *, passes: int = 0, draws: int = 0, batch: int = 1024) -> list[dict[str, Any]]:
    """What the run's model says of each input: files, rows or texts, read as its training data were.

    `passes` keeps dropout on and asks so often (MC dropout); `draws` adds so many random answers from p(y | x).
    """
    objective, data = restored(run)
    if data.encoder is None:
        raise UsageError(f"the run learned from {data.name!r}, whose inputs cannot be read from files")
    if passes and not any(isinstance(m, _DropoutNd) and m.p > 0 for m in objective.modules()):
        raise UsageError(f"--passes {passes} asks again under dropout, but this run's network has none; train with --dropout")
    names, columns = data.encoder.read(inputs)
    split = Resident(columns, data.encoder.decoders)
    found: list[dict[str, Any]] = []
    for index in torch.arange(len(split)).split(batch):
        found += answers(objective, data, split.batch(index), passes=passes, draws=draws)
    return [{"input": name, **answer} for name, answer in zip(names, found, strict=True)]


@torch.no_grad()
def answers(objective: Objective, data: Data, batch: Batch, *, passes: int, draws: int) -> list[dict[str, Any]]:
    """One dict for each example, by what the objective can do."""
    if isinstance(objective, Classifies):
        p = mc_dropout(objective, batch, passes=passes) if passes else Predictive(objective.classify(batch), None)
        found = [labelled(data, *row) for row in rows(p)]
    elif isinstance(objective, Regresses):
        p = mc_dropout(objective, batch, passes=passes) if passes else objective.regress(batch)
        found = [valued(data, *row) for row in rows(p)]
    else:
        raise UsageError("this run's model neither classifies nor regresses; `didact list` shows what each recipe can do")
    if draws:
        drawn = torch.stack([objective.draw(batch) for _ in range(draws)], dim=1)  # type: ignore[operator]
        for answer, row in zip(found, drawn.tolist(), strict=True):
            answer["draws"] = [data.labels[int(d)] for d in row] if data.labels and data.task != "multilabel" else row
    return found


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


def valued(data: Data, mean: Tensor, std: Tensor | None) -> dict[str, Any]:
    answer: dict[str, Any] = {data.target: float(mean)}
    if std is not None:
        answer |= {"std": float(std), "low": float(mean - 1.96 * std), "high": float(mean + 1.96 * std)}
    return answer
