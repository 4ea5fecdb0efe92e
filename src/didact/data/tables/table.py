"""Tables: a CSV file of numeric and categorical columns, and how its rows become features.

    number    -> its value, the median where it is missing, and a 0/1 feature that says so
    category  -> one 0/1 feature for each of its values
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from didact.data.build import Examples, build_data, split_indices
from didact.data.checks import summarize_list
from didact.data.core import Batch, Data, Decode, Given
from didact.data.tables.cell_readings import Duration, Quantity, describe_quantity
from didact.data.tables.columns import (
    CategoricalColumn,
    Column,
    NumericColumn,
    column_from_spec,
    column_spec,
    describe_numbers,
    infer_columns,
)
from didact.data.tables.csv_reader import make_line_locator, parse_row
from didact.data.tables.decimal_commas import strip_commas
from didact.data.tables.leakage import describe_leaks
from didact.data.tables.read_table import read_table
from didact.data.tables.table_file import STANDARD_INPUT, TableFile, dataset_name, is_table_path
from didact.data.tables.table_options import (
    NO_TABLE_OPTIONS,
    TableOptions,
    check_target_stays,
    drop_columns,
    normalize_weights,
    read_split_files,
    read_weights,
    select_features,
    split_rows,
)
from didact.data.tables.target import Offsets, Task, choose_target, read_labeled_rows, target_columns
from didact.errors import UsageError, format_count, suggest_nearest

if TYPE_CHECKING:
    from pandas import DataFrame


_MANY_FEATURES = 5_000          # from which on it is said what they cost


def load_table(
    path: Path,
    *,
    target: str | None = None,
    task: Task | None = None,
    seed: int = 0,
    options: TableOptions = NO_TABLE_OPTIONS,
    allow_unlabeled: bool = False,
    indices: Mapping[str, Tensor] | None = None,
    run_data: Data | None = None,
) -> Data:
    """A table as Data. Medians and categories are those of the training rows alone.

    Rows whose target is missing are left out. Where no target is named (or "": none) and the last column cannot be one,
    all columns are inputs and the first note says why: enough for a model of the joint distribution; a recipe that
    needs a target refuses in those words. `allow_unlabeled`: the recipe needs none, so that a last column with gaps is
    an input. `run_data`: the data of a run that is loaded again.
    """
    all_columns, origins = read_split_files(
        path, options, target=target, min_columns=1, text_columns=target_columns(target)
    )
    name, offsets = dataset_name(path), get_stored_offsets(run_data)
    check_target_stays(options, target)
    weights = read_weights(all_columns, options, origins, path)
    frame = drop_columns(all_columns, options, path)
    try:
        target_name, notes = choose_target(frame, target, path)
        if target is None and allow_unlabeled and frame[target_name].isna().any():
            raise UsageError(f"the last column, {target_name!r}, lacks values: it is an input like the others")
        frame = select_features(frame, options, target_name)
        is_labeled, values = read_labeled_rows(frame, target_name, name, task, offsets)
    except UsageError as why:
        if target or task or options != NO_TABLE_OPTIONS:
            raise
        try:
            return _load_without_target(frame, path, str(why), seed=seed, indices=indices, run_data=run_data)
        except UsageError:
            raise why from None                # what is wrong with the target is nearer to what was meant
    if not is_labeled.all():
        frame = frame[is_labeled]
        origins = None if origins is None else origins[is_labeled]
        weights = None if weights is None else weights[is_labeled]
    indices = split_rows(
        name, values.y, origins, task=values.task, options=options, indices=indices, seed=seed
    )
    encoder, x = _fit_or_reuse_encoder(frame, target_name, indices["train"], run_data)
    columns = {"x": x, "y": values.y}
    if weights is not None:
        columns["weight"] = normalize_weights(weights, indices, str(options.sample_weight))
    examples = Examples(
        name,
        "table",
        columns,
        task=values.task,
        class_names=values.class_names,
        feature_names=encoder.feature_names,
        target=target_name,
        target_offset=values.offset,
        encoder=encoder,
        locator=make_line_locator(path, frame.index, frame.attrs["unit"]),
        notes=(
            *notes,
            values.note,
            *frame.attrs["notes"],
            *encoder.notes,
            *describe_leaks(encoder.columns, x, values.y, values.task, indices["train"]),
        ),
    )
    return build_data(examples, indices=indices)


def get_stored_offsets(run_data: Data | None) -> Offsets | None:
    """The offsets of a run's columns and target (0 in runs of earlier versions); None without a run: they are to be
    found."""
    if run_data is None:
        return None
    columns = run_data.encoder.columns if isinstance(run_data.encoder, TableEncoder) else ()
    return {column.name: column.offset for column in columns if isinstance(column, NumericColumn)} | {
        run_data.target: run_data.target_offset
    }


def _load_without_target(
    frame: "DataFrame",
    path: Path,
    reason: str,
    *,
    seed: int,
    indices: Mapping[str, Tensor] | None,
    run_data: Data | None,
) -> Data:
    """All columns as inputs, and why none is the target."""
    name = dataset_name(path)
    indices = split_indices(name, len(frame), None, task="none", indices=indices, seed=seed)
    encoder, x = _fit_or_reuse_encoder(frame, "", indices["train"], run_data)
    examples = Examples(
        name,
        "table",
        {"x": x},
        task="none",
        feature_names=encoder.feature_names,
        target="",
        encoder=encoder,
        locator=make_line_locator(path, frame.index, frame.attrs["unit"]),
        notes=(reason, *frame.attrs["notes"], *encoder.notes),
    )
    return build_data(examples, indices=indices)


def _fit_or_reuse_encoder(
    frame: "DataFrame", target: str, train: Tensor, run_data: Data | None
) -> tuple["TableEncoder", Tensor]:
    """The encoder of a run that is loaded again, where its columns are there; else one that is fitted."""
    encoder = None if run_data is None else run_data.encoder
    if isinstance(encoder, TableEncoder) and encoder.source_names <= set(frame.columns):
        return encoder, encoder.encode(frame)
    return TableEncoder.from_frame(frame, target, train)


def _exists(text: Given) -> bool:
    return TableFile.parse(text).exists()


@dataclass(frozen=True)
class TableEncoder:
    """Rows of a table -> (N, features) float32, the same way for training and for `predict`."""

    columns: tuple[Column, ...]
    target: str = "y"
    notes: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def from_frame(
        cls, frame: "DataFrame", target: str, rows: Tensor | None = None
    ) -> tuple["TableEncoder", Tensor]:
        """Fit medians, categories and offsets on `rows` (None: all); encode the whole frame."""
        commas = frame.attrs.get("commas", {})
        frame = frame.copy(deep=False)
        frame.attrs = {}                      # pandas copies them with every operation
        train_frame = frame if rows is None else frame.iloc[rows.numpy()]
        target_names = {target} if target in frame else set(target.split(","))
        columns: list[Column] = []
        notes: list[str] = []
        for name in frame.columns:
            if name in target_names:
                continue
            inferred, column_notes = infer_columns(train_frame[name])
            for column in inferred:
                if isinstance(column, NumericColumn) and column.reading is None:
                    column = replace(column, comma_meaning=commas.get(name, ""))
                    notes += describe_numbers(frame[name])
                elif isinstance(column, NumericColumn) and isinstance(column.reading, Quantity | Duration):
                    notes.append(describe_quantity(frame[name], column.reading))
                columns.append(column)
            notes += column_notes
        if not columns:
            reason = "; ".join(notes) or "there is none"
            raise UsageError(
                f"no column{f' besides the target {target!r}' if target else ''} can be learned from: {reason}"
            )
        encoder = cls(tuple(columns), target)
        num_numeric, num_categorical = (
            sum(isinstance(c, kind) for c in columns) for kind in (NumericColumn, CategoricalColumn)
        )
        columns_note = (
            f"{num_numeric} numeric and {format_count(num_categorical, 'categorical column')} make "
            f"{format_count(len(encoder.feature_names), 'feature')}"
        )
        num_features = len(encoder.feature_names)
        if num_features >= _MANY_FEATURES:
            notes.append(
                f"{num_features:,} features for {len(train_frame):,} training rows: a first layer of 256 units holds "
                f"{256 * num_features:,} weights, which takes time and learns by heart; --features names fewer"
            )
        return replace(encoder, notes=(columns_note, *notes)), encoder.encode(frame)

    @property
    def _columns_by_source(self) -> dict[str, Column]:
        """Of each column of the file the first that is made of it."""
        columns: dict[str, Column] = {}
        for column in self.columns:
            columns.setdefault(column.source_name, column)
        return columns

    @classmethod
    def numeric(cls, feature_names: Sequence[str], target: str = "y") -> "TableEncoder":
        """A table of numbers alone, none of them missing."""
        return cls(tuple(NumericColumn(name) for name in feature_names), target)

    @property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(name for column in self.columns for name in column.feature_names)

    @property
    def source_names(self) -> set[str]:
        """The columns of a file that are read."""
        return {column.source_name for column in self.columns}

    @property
    def decoders(self) -> Mapping[str, Decode]:
        return {}

    def encode(self, frame: "DataFrame") -> Tensor:
        parts = [column.encode(frame[column.source_name]) for column in self.columns]
        return torch.from_numpy(np.concatenate(parts, axis=1))

    def read(self, inputs: Sequence[Given]) -> tuple[list[str], Batch]:
        """Tables in files, or single rows written `a=1,b=2` or as JSON objects."""
        named_frames = list(self._read_frames(inputs))
        return [name for names, _ in named_frames for name in names], {
            "x": torch.cat([self.encode(frame) for _, frame in named_frames])
        }

    def describe_unseen_inputs(self, inputs: Sequence[Given]) -> list[str]:
        """Cells of numeric columns that are no numbers and unseen categories, with the first row of each."""
        notes = []
        for names, frame in self._read_frames(inputs):
            for source, column in self._columns_by_source.items():
                is_unseen, description = column.find_unseen(frame[source])
                if is_unseen.any():
                    first = names[int(is_unseen.argmax())]
                    notes.append(f"column {source!r} holds {description}; first in {first}")
        return notes

    def _read_frames(self, inputs: Sequence[Given]) -> Iterator[tuple[list[str], "DataFrame"]]:
        """The name of each row, and the rows as a frame."""
        import pandas as pd

        commas = {c.name: c.comma_meaning for c in self.columns if isinstance(c, NumericColumn) and c.comma_meaning}
        for text in inputs:
            is_file = text == STANDARD_INPUT or (is_table_path(str(text)) and ("=" not in str(text) or _exists(text)))
            if isinstance(text, Path) or is_file:
                frame = read_table(
                    Path(text),
                    min_columns=min(2, len(self.source_names)),
                    comma_meanings=commas,
                    text_columns={c.name for c in self.columns if isinstance(c, CategoricalColumn)},
                )
                self._check_has_columns(frame.columns, str(text))
                self._check_numeric_columns(frame, str(text))
                yield [f"{text}:{line}" for line in frame.index], frame
            else:
                row = parse_row(text)
                self._check_has_columns(row, text)
                row |= {name: strip_commas(str(row[name]), meaning) for name, meaning in commas.items() if row[name]}
                frame = pd.DataFrame([{name: row[name] for name in self.source_names}], index=[1], dtype=object)
                self._check_numeric_cells(frame)
                yield [text], frame

    def _check_has_columns(self, available: Sequence[str] | Mapping[str, Any], source: str) -> None:
        """Every column is needed; a value may be empty, a column not."""
        needed = list(dict.fromkeys(column.source_name for column in self.columns))
        missing = [name for name in needed if name not in available]
        if missing:
            extra = [name for name in available if name not in needed and name != self.target]
            hint = suggest_nearest(missing[0], extra) if extra else "an unknown value may be left empty"
            raise UsageError(f"{source!r} lacks the column {summarize_list([repr(name) for name in missing])}; {hint}")

    def _check_numeric_columns(self, frame: "DataFrame", source: str) -> None:
        """Refuse a file in which a numeric column holds no number at all: it was written in another way than in
        training."""
        for name, column in self._columns_by_source.items():
            present = frame[name].dropna()
            if isinstance(column, NumericColumn) and len(present) and column.to_numbers(present).isna().all():
                cell = f"{present.iloc[0]!r} in line {present.index[0]}"
                raise UsageError(
                    f"column {name!r} of {source} expects {column.expected_cells}, got {cell}; an unknown value may be "
                    "left empty"
                )

    def _check_numeric_cells(self, frame: "DataFrame") -> None:
        """Refuse words in numeric columns of a typed row; in a file they count as missing, as in training."""
        for name, column in self._columns_by_source.items():
            value = frame[name].iloc[0]
            if not isinstance(column, NumericColumn) or value is None:
                continue
            if isinstance(value, bool) or column.find_unseen(frame[name])[0][0]:
                expected = "a number" if column.reading is None else column.expected_cells
                raise UsageError(f"column {name!r} expects {expected}, got {value!r}")

    def spec(self) -> dict[str, Any]:
        return {"kind": "table", "target": self.target, "columns": [column_spec(column) for column in self.columns]}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "TableEncoder":
        return cls(tuple(column_from_spec(column) for column in spec["columns"]), spec["target"])
