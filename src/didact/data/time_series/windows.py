"""Windows of past values and the next ones. Splits follow time: the past trains, the future tests.

The first 70 % of every series are for training, then validation, then test. A window belongs to the part in which all
of its targets lie; its past values may reach back into the part before, which is known when it is forecast.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from didact.data.build import Examples, build_data
from didact.data.core import SPLITS, Batch, Data, MissingSplit, TensorSplit
from didact.data.tables.table_file import dataset_name
from didact.data.time_series.encoder import DEFAULT_WINDOW, SeriesEncoder, compute_statistics
from didact.data.time_series.period import find_period
from didact.data.time_series.read_series import SeriesLayout, read_series
from didact.errors import UsageError

MIN_VALUES = 50       # in a series: fewer leave nothing to validate and test on
MIN_MEMBER_VALUES = 20       # in one of many series
_TRAIN_FRACTION, _VALIDATION_END = 0.7, 0.85


def build_series(
    name: str,
    values: Sequence[float] | Mapping[str, Tensor],
    column: str,
    *,
    window: int = DEFAULT_WINDOW,
    horizon: int = 1,
    layout: SeriesLayout | None = None,
    notes: Sequence[str] = (),
) -> Data:
    """x (N, window, channels) and the `horizon` values of the target behind it, y (N,) or (N, horizon).

    `values` are one series, or several by name: (T, channels), the target first. Of several, each window has its
    series' number ("series"), and the training mean and standard deviation of its channels ("location", "scale").
    """
    series = values if isinstance(values, Mapping) else {"": torch.tensor(values, dtype=torch.float32)[:, None]}
    series, short_notes = _check_lengths(name, column, series)
    lengths = {key: _split_lengths(len(s)) for key, s in series.items()}
    train_values = {key: s[: lengths[key][0], 0] for key, s in series.items()}
    period = _find_common_period(train_values.values())
    encoder = SeriesEncoder(
        column,
        window,
        horizon,
        period,
        all(bool((s > 0).all()) for s in train_values.values()),
        layout,
        {key: compute_statistics(s, lengths[key]) for key, s in series.items()},
    )
    parts: dict[str, Batch] = {}
    for part in SPLITS:
        segments = [
            Segment(number, *_cut_part(s, lengths[key], part)) for number, (key, s) in enumerate(series.items())
        ]
        parts[part] = _cut_windows(segments, encoder)
        if not len(parts[part]["y"]):
            raise UsageError(_describe_shortage(name, part, encoder))
    columns = {key: torch.cat([parts[part][key] for part in SPLITS]) for key in parts["train"]}
    if horizon == 1:
        columns["y"] = columns["y"][:, 0]
    sizes = [len(parts[part]["y"]) for part in SPLITS]
    num_values = sum(map(len, series.values()))
    many_text = f" of {len(series)} series" if len(series) > 1 else ""
    period_note = [f"period: {period} values, by autocorrelation of the training values"] if period > 1 else []
    return build_data(
        Examples(
            name,
            "series",
            columns,
            task="regression" if horizon == 1 else "forecast",
            target=column,
            feature_names=encoder.columns,
            encoder=encoder,
            notes=[
                f"{num_values:,} values of {column!r}{many_text} in windows of {window}, split in the order of time",
                *short_notes,
                *notes,
                *period_note,
            ],
        ),
        indices=dict(zip(SPLITS, torch.arange(sum(sizes)).split(sizes), strict=True)),
    )


@dataclass(frozen=True)
class Segment:
    """A stretch of one series, (T, channels), whose values from `start` on are targets."""

    series: int
    values: Tensor
    start: int


def with_horizon(data: Data, *, window: int, horizon: int = 1, covariates: Sequence[str] = ()) -> Data:
    """The same series in windows of another length, each with the `horizon` values behind it: y (N, horizon).

    The borders of the splits stay. Of the other columns only `covariates` are kept.
    """
    encoder = data.encoder
    if not isinstance(encoder, SeriesEncoder):
        raise UsageError(
            f"windows are cut from a time series, but {data.name!r} is {data.kind}: give a CSV file with a column of "
            "numbers"
        )
    channels = [0, *(encoder.columns.index(name) for name in covariates)]
    statistics = {
        key: replace(s, mean=tuple(s.mean[c] for c in channels), std=tuple(s.std[c] for c in channels))
        for key, s in encoder.statistics.items()
    }
    layout = encoder.layout and replace(encoder.layout, covariates=tuple(covariates))
    new_encoder = replace(encoder, window=window, horizon=horizon, layout=layout, statistics=statistics)
    parts: dict[str, Any] = {}
    history: dict[int, Tensor] = {}
    for part in SPLITS:
        split = data.split(part)
        if isinstance(split, TensorSplit):
            segments = list(_recover_segments(split, history))
            history = {segment.series: segment.values for segment in segments}
            cut = _cut_windows([replace(s, values=s.values[:, channels]) for s in segments], new_encoder)
            parts[part] = TensorSplit(cut)
            num_rows = len(cut["y"])
        else:
            num_rows = sum(_count_windows(s.lengths, part, window, horizon) for s in statistics.values())
            parts[part] = MissingSplit(num_rows)
        if num_rows < 1:
            raise UsageError(_describe_shortage(data.name, part, new_encoder))
    return replace(
        data, shape=(window, len(channels)), feature_names=new_encoder.columns, encoder=new_encoder, **parts
    )


def recover_test_series(data: Data) -> list[Segment]:
    """Every series up to its end, from its windows; its targets are those of the test split."""
    segments: list[Segment] = []
    history: dict[int, Tensor] = {}
    for part in SPLITS:
        split = data.split(part)
        assert isinstance(split, TensorSplit)
        segments = list(_recover_segments(split, history))
        history = {segment.series: segment.values for segment in segments}
    return segments


def load_series(path: Path, *, target: str | None = None, window: int = DEFAULT_WINDOW, horizon: int = 1) -> Data:
    """A CSV file: the named columns or the last numeric one, in the order of a column of dates or else of the rows."""
    table = read_series(path, target=target)
    # shorter for a short series; `with_horizon` cuts the windows that a recipe asks for
    shortest = max(MIN_MEMBER_VALUES, min(map(len, table.values.values())))
    window = max(1, min(window, shortest // 10 - horizon))
    return build_series(
        dataset_name(path),
        table.values,
        ",".join(table.layout.targets),
        window=window,
        horizon=horizon,
        layout=table.layout,
        notes=table.notes,
    )


def _check_lengths(
    name: str, column: str, series: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], list[str]]:
    """The series that are long enough, with a note on the others; refused where too few values are left."""
    if len(series) > 1:
        long_enough = {key: s for key, s in series.items() if len(s) >= MIN_MEMBER_VALUES}
    else:
        long_enough = dict(series)
    total = sum(map(len, long_enough.values()))
    if total < MIN_VALUES:
        total = sum(map(len, series.values()))
        raise UsageError(
            f"{name!r} holds {total} values of {column!r}: too few to train, validate and test on; a time series needs "
            f"at least {MIN_VALUES}"
        )
    num_short = len(series) - len(long_enough)
    note = f"{num_short} of {len(series)} series have fewer than {MIN_MEMBER_VALUES} values: left out"
    return long_enough, [note] if num_short else []


def _split_lengths(n: int) -> tuple[int, ...]:
    """The lengths of the training, validation and test parts."""
    first, second = int(_TRAIN_FRACTION * n), int(_VALIDATION_END * n)
    return first, second - first, n - second


def _find_common_period(series: Sequence[Tensor] | Any) -> int:
    """The period that most series have, of a few dozen of them."""
    periods = [find_period(s) for s in list(series)[:40]]
    return max(set(periods), key=periods.count)


def _cut_part(s: Tensor, lengths: Sequence[int], part: str) -> tuple[Tensor, int]:
    """A series up to the end of a part, and where its targets begin."""
    i = SPLITS.index(part)
    return s[: sum(lengths[: i + 1])], sum(lengths[:i])


def _count_windows(lengths: Sequence[int], part: str, window: int, horizon: int) -> int:
    """How many windows have all targets in a part; the past values of the first one begin with the series."""
    i = SPLITS.index(part)
    start, end = sum(lengths[:i]), sum(lengths[: i + 1])
    return max(0, end - max(start, window) - horizon + 1)


def _cut_windows(segments: Sequence[Segment], encoder: SeriesEncoder) -> Batch:
    """Every window of the segments whose targets are in them: x (N, window, channels), y (N, horizon)."""
    window, horizon, span = encoder.window, encoder.horizon, encoder.window + encoder.horizon
    xs, ys, numbers = [], [], []
    for segment in segments:
        first = max(0, segment.start - window)
        s = segment.values[first:]
        if len(s) < span:
            continue
        spans = s.unfold(0, span, 1)                                   # (N, channels, span)
        xs.append(spans[:, :, :window].transpose(1, 2))
        ys.append(spans[:, 0, window:])
        numbers.append(torch.full((len(spans),), segment.series))
    channels = len(encoder.columns)
    x = torch.cat(xs) if xs else torch.zeros(0, window, channels)
    y = torch.cat(ys) if ys else torch.zeros(0, horizon)
    columns = {"x": x.contiguous(), "y": y.contiguous()}
    if encoder.has_many_series:
        number = torch.cat(numbers) if numbers else torch.zeros(0, dtype=torch.long)
        means, stds = (
            torch.tensor([getattr(s, name) for s in encoder.statistics.values()]) for name in ("mean", "std")
        )
        columns |= {"series": number, "location": means[number], "scale": stds[number]}
    return columns


def _recover_segments(split: TensorSplit, history: Mapping[int, Tensor]) -> Iterator[Segment]:
    """The series from its windows, which begin one value after the other, with the values of the parts before."""
    x, y = split.columns["x"], split.columns["y"]
    y = y[:, None] if y.ndim == 1 else y
    number = split.columns.get("series", torch.zeros(len(x), dtype=torch.long, device=x.device))
    window = x.shape[1]
    for key in number.unique().tolist():
        own_x, own_y = x[number == key], y[number == key]
        # the covariates of the last targets are in no window, and no window needs them
        last = own_x[-1, -1].repeat(own_y.shape[1], 1)
        last[:, 0] = own_y[-1]
        own = torch.cat([own_x[0], own_x[1:, -1], last])
        before = history.get(key)
        if before is None:
            yield Segment(key, own, 0)
        elif len(before) >= window and torch.equal(before[-window:, 0], own[:window, 0]):
            yield Segment(key, torch.cat([before[:-window], own]), len(before))
        else:                                           # a part that was cut: its own past is all that is known
            yield Segment(key, own, window)


def _describe_shortage(name: str, part: str, encoder: SeriesEncoder) -> str:
    """Why a part has no window, and what to choose."""
    longest = max(encoder.statistics.values(), key=lambda s: s.lengths)
    length = longest.lengths[SPLITS.index(part)]
    window, horizon = encoder.window, encoder.horizon
    if part == "train":
        return (
            f"the training part of {name!r} has {length} values, but a window takes {window} + {horizon}; choose a "
            "smaller --window or --horizon"
        )
    return (
        f"the {part} part of {name!r} has {length} values, but each forecast takes {horizon}; choose a smaller "
        "--horizon"
    )
