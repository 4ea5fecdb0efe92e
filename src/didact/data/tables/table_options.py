"""Options on the rows and columns of a table: splits in files of their own, inputs, and weights of rows."""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from didact.data.build import CLASSIFICATION_TASKS, split_indices
from didact.data.core import SPLITS
from didact.data.split import train_val_test_split
from didact.data.tables.csv_reader import resolve_columns, to_numeric
from didact.data.tables.read_table import read_table
from didact.data.tables.table_file import TableFile
from didact.errors import UsageError, suggest_nearest

if TYPE_CHECKING:
    from pandas import DataFrame

Origins = NDArray[np.int8]             # of each row: the number in SPLITS of the file it comes from
_TEST_FRACTION = 0.15                  # of the rows, where a validation file is given and no test file


@dataclass(frozen=True)
class TableOptions:
    """Files of the validation and test split, columns that are no inputs or the only ones, and the weights of rows."""

    validation: str | None = None
    test: str | None = None
    drop: tuple[str, ...] | None = None
    features: tuple[str, ...] | None = None
    sample_weight: str | None = None

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> "TableOptions":
        """From settings, or from what a run saved."""
        values = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
        return cls(**{f.name: values.get(f.name) for f in fields(cls)})

    def to_source(self) -> dict[str, Any]:
        """What loads the table again: the options that were given, with whole paths."""
        columns = {"drop": self.drop, "features": self.features, "sample_weight": self.sample_weight}
        paths = {part: os.path.abspath(os.path.expanduser(file)) for part, file in self.split_files.items()}
        return paths | {name: list(v) if isinstance(v, tuple) else v for name, v in columns.items() if v is not None}

    @property
    def split_files(self) -> dict[str, str]:
        """The files of the validation and test split that were given."""
        files = {"validation": self.validation, "test": self.test}
        return {part: file for part, file in files.items() if file is not None}


NO_TABLE_OPTIONS = TableOptions()


def read_split_files(
    path: Path,
    options: TableOptions,
    *,
    target: str | None,
    min_columns: int = 2,
    text_columns: Collection[str | int] | None = None,
) -> "tuple[DataFrame, Origins | None]":
    """The rows of all files, those of validation and test behind; None where there is one file.

    In the index, rows of the other files are called "LINE of FILE".
    """
    import pandas as pd

    frame = read_table(path, min_columns=min_columns, text_columns=text_columns)
    if not options.split_files:
        return frame, None
    names = [str(name) for name in frame.columns]
    texts = resolve_columns(names, text_columns or ())
    frames, origins = [frame], [np.zeros(len(frame), dtype=np.int8)]
    for part, location in options.split_files.items():
        file = Path(os.path.expanduser(location))
        if not TableFile.parse(file).exists():
            raise UsageError(f"--{part} {location}: there is no such file")
        other = read_table(
            file, min_columns=min_columns, comma_meanings=frame.attrs["commas"],
            text_columns=None if text_columns is None else texts,
        )  # fmt: skip
        _check_columns(names, other, options, target, part, location)
        other.index = pd.Index([f"{line} of {file.name}" for line in other.index], dtype=object)
        frames.append(other.reindex(columns=frame.columns))
        origins.append(np.full(len(other), SPLITS.index(part), dtype=np.int8))
    attrs = dict(frame.attrs)
    attrs["notes"] = [
        *attrs["notes"],
        *(
            f"{part}: {len(other):,} rows of {file}"
            for other, (part, file) in zip(frames[1:], options.split_files.items(), strict=True)
        ),
    ]
    joined = pd.concat([frame.set_axis(frame.index.astype(object)), *frames[1:]])
    joined.attrs = attrs
    return joined, np.concatenate(origins)


def _check_columns(
    names: Sequence[str], other: "DataFrame", options: TableOptions, target: str | None, part: str, location: str
) -> None:
    """Refuse a split that lacks a column which is needed."""
    available = [str(name) for name in other.columns]
    targets = {names[-1]} if target is None else {target, *target.split(",")}
    ignored = {*(options.drop or ()), options.sample_weight}
    needed = [n for n in names if n not in ignored and (options.features is None or n in {*options.features, *targets})]
    missing = next((name for name in needed if name not in available), None)
    if missing is None:
        return
    if missing in targets:
        raise UsageError(
            f"--{part} {location} lacks the target {missing!r}, which a split to evaluate on needs; for predictions of "
            f"new rows: didact predict latest {location}"
        )
    raise UsageError(f"--{part} {location} lacks the column {missing!r}; {suggest_nearest(missing, available)}")


def drop_columns(frame: "DataFrame", options: TableOptions, path: Path) -> "DataFrame":
    """The table without the columns of --drop and --sample-weight."""
    if options.drop and options.features:
        raise UsageError("--features names the only inputs, so that --drop has nothing to do; leave one of them out")
    names = [str(name) for name in frame.columns]
    for flag, columns in (("drop", options.drop), ("features", options.features)):
        for name in columns or ():
            if name not in names:
                raise UsageError(f"--{flag}: {path} has no column {name!r}; {suggest_nearest(name, names)}")
    dropped = {*(options.drop or ()), options.sample_weight}
    return frame[[name for name in frame.columns if name not in dropped]]


def select_features(frame: "DataFrame", options: TableOptions, target: str) -> "DataFrame":
    """The target and the columns of --features alone, in the order of the file."""
    if options.features is None:
        return frame
    targets = {target} if target in frame else set(target.split(","))
    if both := next((name for name in options.features if name in targets), None):
        raise UsageError(f"--features names the target, {both!r}: it cannot be an input; leave it out")
    return frame[[name for name in frame.columns if name in targets or name in options.features]]


def check_target_stays(options: TableOptions, target: str | None) -> None:
    """Refuse --drop and --sample-weight of the target."""
    if target is None:
        return
    for name in (target, *target.split(",")):
        if name in (options.drop or ()):
            raise UsageError(f"--drop {name}: it is the target; leave it out, or choose another with --target")
        if name == options.sample_weight:
            raise UsageError(f"--sample-weight {name}: it is the target; choose another column")


def read_weights(frame: "DataFrame", options: TableOptions, origins: Origins | None, path: Path) -> Tensor | None:
    """The weights of the rows as they are in the file; 1 in validation and test files without the column."""
    name = options.sample_weight
    if name is None:
        return None
    if name not in frame.columns:
        raise UsageError(
            f"--sample-weight: {path} has no column {name!r}; {suggest_nearest(name, map(str, frame.columns))}"
        )
    weights = to_numeric(frame[name]).to_numpy(np.float64, copy=True)
    if origins is not None:
        for part in SPLITS[1:]:
            rows = origins == SPLITS.index(part)
            if frame[name][rows].isna().all():
                weights[rows] = 1.0
    is_wrong = ~np.isfinite(weights) | (weights < 0)
    if is_wrong.any():
        i = int(is_wrong.argmax())
        cell = "nothing" if frame[name].isna().iloc[i] else repr(str(frame[name].iloc[i]))
        raise UsageError(
            f"--sample-weight {name} expects numbers of at least 0, got {cell} in {frame.attrs['unit']} "
            f"{frame.index[i]}"
        )
    return torch.from_numpy(weights)


def normalize_weights(weights: Tensor, indices: Mapping[str, Tensor], name: str) -> Tensor:
    """w_i n / Σ w_j over the n training rows: mean 1, as class weights have, so that batches of any size add up."""
    for part in SPLITS:
        if not weights[indices[part]].sum() > 0:
            raise UsageError(f"--sample-weight {name} is 0 in every {part} row: nothing is left to count")
    return (weights / weights[indices["train"]].mean()).float()


def split_rows(
    name: str,
    y: Tensor,
    origins: Origins | None,
    *,
    task: str,
    options: TableOptions = NO_TABLE_OPTIONS,
    indices: Mapping[str, Tensor] | None = None,
    seed: int = 0,
) -> dict[str, Tensor]:
    """The rows of each split: by the files they come from, else a seeded split."""
    if origins is None or indices is not None:
        return split_indices(name, len(y), y, task=task, indices=indices, seed=seed)
    rows = {part: torch.from_numpy(np.flatnonzero(origins == i)) for i, part in enumerate(SPLITS)}
    for part, location in options.split_files.items():
        if not len(rows[part]):
            raise UsageError(f"--{part} {location} holds no row with a target: nothing could be evaluated")
    if not len(rows["train"]):
        raise UsageError(f"{name!r} holds no row with a target to train on")
    if len(options.split_files) == 2:
        return rows
    if options.test is not None:
        return split_indices(name, len(y), y, task=task, test_indices=rows["test"], seed=seed)
    strata = y[rows["train"]] if task in CLASSIFICATION_TASKS else None
    parts = train_val_test_split(len(rows["train"]), strata, fractions=(0.0, _TEST_FRACTION), seed=seed)
    return {
        "train": rows["train"][parts["train"]],
        "validation": rows["validation"],
        "test": rows["train"][parts["test"]],
    }
