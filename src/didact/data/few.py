"""Few labels: a handful of examples keep theirs, and the rest are images alone."""

from dataclasses import replace

import torch

from didact.data.core import Absent, Data, Resident
from didact.errors import UsageError


def few_labels(data: Data, each: int, seed: int = 0) -> Data:
    """Beside every training row a labelled one, "few_x" and "few_y", out of `each` of every class, in turn.

    So any batch brings as many labelled examples as unlabelled ones, whatever their numbers, and no shape ever changes.
    """
    if isinstance(data.train, Absent):  # a run rebuilt from its folder: nothing is trained
        return data
    if not isinstance(data.train, Resident):
        raise UsageError(f"few labels need images that fit into memory, but {data.name!r} is read while training; use a smaller --size")
    y, g = data.train.columns["y"].cpu(), torch.Generator().manual_seed(seed)
    if min(data.counts["train"]) < each:
        raise UsageError(f"--labels {each} of each class, but a class of {data.name!r} has {min(data.counts['train'])} training examples")
    places = [(y == k).nonzero()[:, 0] for k in range(data.classes)]
    labelled = torch.cat([rows[torch.randperm(len(rows), generator=g)[:each]] for rows in places])
    partner = labelled[torch.arange(len(y)) % len(labelled)].to(data.train.device)
    columns = {**data.train.columns, "few_x": data.train.columns["x"][partner], "few_y": data.train.columns["y"][partner]}
    decoders = data.train.decoders
    train = replace(data.train, columns=columns, decoders={**decoders, "few_x": decoders["x"]} if "x" in decoders else decoders)
    note = f"{len(labelled):,} training examples keep their labels, {each} of each class; {len(y) - len(labelled):,} are images alone"
    return replace(data, train=train, notes=(*data.notes, note))
