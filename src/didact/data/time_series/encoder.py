"""The encoder of time series: the last window of a file, or of values that are written out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from didact.data.core import Batch, Decode, Given
from didact.data.tables.table_file import STANDARD_INPUT, is_table_path
from didact.data.time_series.dates import continue_dates
from didact.data.time_series.read_series import SeriesLayout, parse_values, read_series
from didact.errors import UsageError

DEFAULT_WINDOW = 30   # past values in an input (Gaba Ex 5.3)


@dataclass(frozen=True)
class SeriesStatistics:
    """Of one series: mean and standard deviation of each channel in training, and its lengths in the three parts."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    lengths: tuple[int, ...]


@dataclass(frozen=True)
class SeriesEncoder:
    """The last `window` values of a column as an input, with those of its covariates."""

    column: str
    window: int = DEFAULT_WINDOW
    horizon: int = 1
    period: int = 1                         # of the seasons, in values; 1: none was found
    is_positive: bool = False               # whether every training value is, so that logarithms can be taken
    layout: SeriesLayout | None = None      # None: of values that do not come from a file
    statistics: Mapping[str, SeriesStatistics] = field(default_factory=dict)      # by series

    @property
    def columns(self) -> tuple[str, ...]:
        """The channels of an input: the target first."""
        return self.layout.columns if self.layout else (self.column,)

    @property
    def has_many_series(self) -> bool:
        return len(self.statistics) > 1

    @property
    def decoders(self) -> Mapping[str, Decode]:
        return {}

    def read(self, inputs: Sequence[Given]) -> tuple[list[str], Batch]:
        """CSV files with the columns, or values written 12.1,11.8,…; of a file with many series, one input each."""
        names, rows, stats = list[str](), list[Tensor](), list[SeriesStatistics]()
        for text in inputs:
            for name, values in self._read_values(text).items():
                if len(values) < self.window:
                    series_text = f"{name!r} of {str(text)!r}" if name else repr(str(text))
                    raise UsageError(
                        f"a window is {self.window} values of {self.column!r}, got {len(values)} in {series_text}"
                    )
                names.append(f"{text} {name}".strip())
                rows.append(values[-self.window :])
                stats.append(self.statistics.get(name) or compute_statistics(values, (len(values), 0, 0)))
        columns = {"x": torch.stack(rows)}
        if self.has_many_series:
            columns |= {
                "location": torch.tensor([s.mean for s in stats]),
                "scale": torch.tensor([s.std for s in stats]),
            }
        return names, columns

    def _read_values(self, text: Given) -> Mapping[str, Tensor]:
        """The series of an input by name, each (T, channels)."""
        if is_file(text):
            layout = self.layout or SeriesLayout((self.column,))
            return read_series(Path(text), layout=layout).values
        if len(self.columns) > 1:
            raise UsageError(
                f"expected a file with the columns {', '.join(self.columns)}, got {text!r}: values alone are not "
                "enough for a model with covariates"
            )
        return {"": torch.tensor(parse_values(str(text), self.column))[:, None]}

    def list_forecast_dates(self, inputs: Sequence[Given]) -> list[list[str] | None]:
        """For each example of `read`, the dates of what follows it; None where they are not known."""
        dates = list[list[str] | None]()
        for text in inputs:
            if not is_file(text):
                dates.append(None)
                continue
            table = read_series(Path(text), layout=self.layout or SeriesLayout((self.column,)))
            dates += [None if times is None else continue_dates(times, self.horizon) for times in table.times.values()]
        return dates

    def spec(self) -> dict[str, Any]:
        layout = self.layout and {
            "targets": list(self.layout.targets),
            "covariates": list(self.layout.covariates),
            "series_column": self.layout.series_column,
        }
        return {
            "kind": "series",
            "column": self.column,
            "window": self.window,
            "horizon": self.horizon,
            "period": self.period,
            "is_positive": self.is_positive,
            "layout": layout,
            "statistics": {
                name: [list(s.mean), list(s.std), list(s.lengths)] for name, s in self.statistics.items()
            },
        }

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "SeriesEncoder":
        layout = spec["layout"]
        return cls(
            spec["column"],
            spec["window"],
            spec["horizon"],
            spec["period"],
            spec["is_positive"],
            layout
            and SeriesLayout(tuple(layout["targets"]), tuple(layout["covariates"]), layout["series_column"]),
            {
                name: SeriesStatistics(tuple(map(float, mean)), tuple(map(float, std)), tuple(map(int, lengths)))
                for name, (mean, std, lengths) in spec["statistics"].items()
            },
        )


def is_file(text: Given) -> bool:
    """Whether an input names a table, rather than being values that are written out."""
    return isinstance(text, Path) or text == STANDARD_INPUT or is_table_path(text)


def compute_statistics(values: Tensor, lengths: tuple[int, ...]) -> SeriesStatistics:
    """Mean and standard deviation of each channel over the training part, whose length is the first."""
    part = values[: lengths[0]].double()
    std = part.std(0, correction=0)
    return SeriesStatistics(
        tuple(part.mean(0).tolist()), tuple(torch.where(std > 0, std, 1.0).tolist()), tuple(lengths)
    )
