"""`didact evaluate RUN --by COLUMN`: the metrics of a run for each group of its rows, and how far apart the groups are."""

import time
from typing import Any

from torch import Tensor

from didact.data.core import Batch
from didact.data.groups import features, groups
from didact.objectives.core import Objective
from didact.report.answers import answers
from didact.run import Run
from didact.train.session import judged
from didact.trust.fairness import gaps, rates

YES = ("yes", "yes_to_positive", "yes_to_negative")


def by_group(run: Run, column: str, *, device: str = "auto") -> dict[str, Any]:
    """Metrics on validation and test, of all rows and of each group; of two classes also how often the second is told, and the gaps."""
    started = time.perf_counter()
    objective, data, found = judged(run, device)
    told: dict[str, Any] = {"recipe": run.facts["recipe"], "run": str(run.folder), "by": column, "labels": list(data.labels)}
    told_apart = groups(data, column, "--by")
    names = told_apart.names
    for part, rows in found.items():
        group, said = told_apart.of(features(data.split(part))).to(rows["loss"].device), answers(run.facts, rows)
        scores = [of_group(objective, rows, group == k) for k in range(len(names))]
        if said is not None and said.task == "binary" and said.probabilities is not None:
            shares = rates(said.probabilities.argmax(1), said.y, group, len(names))
            scores = [one | dict(zip(YES, three, strict=True)) for one, three in zip(scores, shares.tolist(), strict=True)]
            told[f"{part}_gaps"] = gaps(shares)
        told[part] = objective.score(rows)
        told[f"{part}_by_group"] = {name: one for name, one in zip(names, scores, strict=True) if one["rows"]}
    return told | {"seconds": time.perf_counter() - started}


def of_group(objective: Objective, rows: Batch, own: Tensor) -> dict[str, Any]:
    """Its size and its metrics, if it has any rows."""
    scores = objective.score({name: value[own] for name, value in rows.items()}) if bool(own.any()) else {}
    return {"rows": int(own.sum()), **scores}
