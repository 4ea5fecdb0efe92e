"""Few labels, for semi-supervised learning: a handful of examples keep theirs, the rest are unlabeled."""

from dataclasses import replace

import torch

from didact.data.core import Data, MissingSplit, TensorSplit
from didact.errors import UsageError


def with_few_labels(data: Data, labels_per_class: int, seed: int = 0) -> Data:
    """Each training example comes with a labeled one, "few_x" and "few_y", out of `labels_per_class` of each class in
    turn.

    So every batch holds as many labeled as unlabeled examples, and shapes are fixed.
    """
    if isinstance(data.train, MissingSplit):  # a run loaded from its folder: nothing is trained
        return data
    if not isinstance(data.train, TensorSplit):
        raise UsageError(
            f"few labels need images that fit into memory, but {data.name!r} is read during training; use a smaller "
            "--size"
        )
    y, g = data.train.columns["y"].cpu(), torch.Generator().manual_seed(seed)
    if min(data.class_counts["train"]) < labels_per_class:
        raise UsageError(
            f"--labels-per-class {labels_per_class} of each class, but a class of {data.name!r} has "
            f"{min(data.class_counts['train'])} training examples"
        )
    class_rows = [(y == k).nonzero()[:, 0] for k in range(data.num_classes)]
    labeled_rows = torch.cat([rows[torch.randperm(len(rows), generator=g)[:labels_per_class]] for rows in class_rows])
    partner_rows = labeled_rows[torch.arange(len(y)) % len(labeled_rows)].to(data.train.device)
    columns = {
        **data.train.columns,
        "few_x": data.train.columns["x"][partner_rows],
        "few_y": data.train.columns["y"][partner_rows],
    }
    decoders = data.train.decoders
    train = replace(
        data.train, columns=columns, decoders={**decoders, "few_x": decoders["x"]} if "x" in decoders else decoders
    )
    note = (
        f"{len(labeled_rows):,} training examples keep their labels, {labels_per_class} of each class; "
        f"{len(y) - len(labeled_rows):,} are unlabeled"
    )
    return replace(data, train=train, notes=(*data.notes, note))
