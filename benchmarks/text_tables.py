"""Twelve tables of texts: didact's default beside TF-IDF with logistic regression or ridge, on the same rows.

    python benchmarks/text_tables.py [--tables esol,names] [--recipe fasttext] [--seeds 3] [--vader FOLDER]

Accuracy of classes and R² of numbers on the test split. The peers are scikit-learn's, with its default options:
TfidfVectorizer of words and pairs of words, and of 2 to 5 characters (as they are, and in lower case), fitted to the
training and validation rows. One JSON line for each table to stdout; then the page in Markdown to --page.

Sources: DIDACT_DATA (molecules, ud_ewt, imdb), the packages pyspellchecker and names, docstrings of installed packages,
and --vader: the folder with the *_GroundTruth.txt files of Hutto and Gilbert 2014. A table whose source is missing is
left out and named.
"""

import argparse
import ast
import csv
import gzip
import importlib.util
import json
import lzma
import os
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import mean
from typing import Any

import torch

import didact
from didact.baselines.texts import PIECE_OPTIONS, WORD_OPTIONS, make_tf_idf_pipeline
from didact.data.core import SPLITS, Data, TensorSplit
from didact.data.load import load
from didact.metrics import r2

Rows = list[tuple[str, Any]]
PEERS = {
    "words": WORD_OPTIONS,
    "characters": {**PIECE_OPTIONS, "lowercase": False},
    "characters, lower case": PIECE_OPTIONS,
}
DATA = Path(os.environ.get("DIDACT_DATA", "nowhere"))


def find_package(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(f"the package {name} is not installed")
    return Path(spec.origin).parent


def read_languages(vader: Path) -> Rows:
    """2,000 words of each of six languages, of the 8,000 most frequent ones; words of two languages are left out."""
    folder, frequent = find_package("spellchecker") / "resources", {}
    for language in ("en", "fr", "de", "es", "it", "nl"):
        counts = json.loads(gzip.decompress((folder / f"{language}.json.gz").read_bytes()))
        words = [word for word in sorted(counts, key=lambda w: -counts[w]) if word.isalpha() and len(word) > 2]
        frequent[language] = words[:8000]
    languages_of = defaultdict(set)
    for language, words in frequent.items():
        for word in words:
            languages_of[word].add(language)
    choose = random.Random(0).sample
    return [
        (word, language)
        for language, words in frequent.items()
        for word in choose([word for word in words if len(languages_of[word]) == 1], 2000)
    ]


def read_first_names(vader: Path) -> Rows:
    """First names of the census of 1990: F or M; names of both are left out."""
    names = {
        sex: {line.split()[0].lower() for line in (find_package("names") / f"dist.{kind}.first").read_text().split("\n")
              if line}
        for sex, kind in (("F", "female"), ("M", "male"))
    }
    both = names["F"] & names["M"]
    return [(name, sex) for sex in names for name in sorted(names[sex] - both)]


def read_molecules(name: str, labels: dict[str, str] | None = None) -> Callable[[Path], Rows]:
    def read(vader: Path) -> Rows:
        with (DATA / "molecules" / f"{name}.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        return [(row["smiles"], labels[row["y"]] if labels else float(row["y"])) for row in rows]

    return read


def read_parts_of_speech(vader: Path) -> Rows:
    """English words by their most frequent part of speech."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for part in ("train", "dev", "test"):
        for line in lzma.decompress((DATA / "ud_ewt" / f"{part}.tsv.xz").read_bytes()).decode().split("\n"):
            word, _, tag = [*line.split("\t"), "", "", ""][:3]
            if tag in ("NOUN", "VERB", "ADJ", "ADV", "PROPN") and word.isalpha() and len(word) > 2:
                counts[word.lower()][tag] += 1
    return [(word, max(tags, key=lambda tag: tags[tag])) for word, tags in sorted(counts.items())]


def read_docstrings(packages: Iterable[str]) -> list[tuple[str, str, str]]:
    """(name, docstring, package) of up to 1,200 functions and classes of each package."""
    rows = []
    for package in packages:
        found = []
        for path in sorted(find_package(package).rglob("*.py")):
            if "test" in str(path):
                continue
            try:
                tree = ast.parse(path.read_text(encoding="utf-8"))
            except (SyntaxError, UnicodeDecodeError):
                continue
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    docstring = ast.get_docstring(node) or ""
                    found += [(node.name, docstring[:4000], package)] if len(docstring) > 20 else []
        random.Random(0).shuffle(found)
        rows += found[:1200]
    return rows


_PACKAGES = ("networkx", "sympy", "pandas", "sklearn", "scipy", "matplotlib", "torch", "numpy")


def read_function_names(vader: Path) -> Rows:
    names = {name: package for name, _, package in read_docstrings(_PACKAGES) if not name.startswith("_")}
    return list(names.items())


def read_scores(file: str) -> Callable[[Path], Rows]:
    """Texts with the mean sentiment that people gave them, −4 to 4."""
    def read(vader: Path) -> Rows:
        lines = (vader / file).read_text(encoding="utf-8", errors="replace").split("\n")
        return [(text, float(score)) for _, score, text in (line.split("\t", 2) for line in lines if line)]

    return read


def read_reviews(column: int, offset: int) -> Callable[[Path], Rows]:
    """8,000 film reviews of IMDB, with their sentiment (column 1) or their stars (column 3)."""
    def read(vader: Path) -> Rows:
        text = lzma.decompress((DATA / "imdb" / "imdb_50k.tsv.xz").read_bytes()).decode()
        rows = [line.split("\t", 4) for line in text.split("\n")[:-1]]
        random.Random(0).shuffle(rows)
        return [
            (row[4], row[1] if column == 1 else float(row[column])) for row in rows[offset : offset + 8000]
        ]

    return read


TABLES: dict[str, tuple[str, Callable[[Path], Rows]]] = {
    "languages": ("language of a word, six languages", read_languages),
    "names": ("sex of a first name", read_first_names),
    "esol": ("solubility of a molecule (SMILES)", read_molecules("esol")),
    "tweets": ("sentiment scores of tweets", read_scores("tweets_GroundTruth.txt")),
    "bbbp": ("does a molecule pass the blood-brain barrier", read_molecules("bbbp", {"0": "no", "1": "yes"})),
    "lipophilicity": ("lipophilicity of a molecule", read_molecules("lipophilicity")),
    "parts_of_speech": ("part of speech of a word", read_parts_of_speech),
    "functions": ("package of a function's name", read_function_names),
    "editorials": ("sentiment scores of editorials' sentences", read_scores("nytEditorialSnippets_GroundTruth.txt")),
    "imdb": ("sentiment of film reviews", read_reviews(1, 0)),
    "imdb_stars": ("stars of film reviews", read_reviews(3, 8000)),
    "docstrings": (
        "package of a docstring",
        lambda vader: [(docstring, package) for _, docstring, package in read_docstrings(_PACKAGES)],
    ),
}


def write_table(path: Path, rows: Rows) -> None:
    rows = sorted(rows, key=str)
    random.Random(1).shuffle(rows)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "target"), *rows])


def score_peer(data: Data, options: dict[str, Any]) -> tuple[float, float]:
    """Accuracy or R² on the test rows, and CPU seconds; chance where no text holds a word of two letters."""
    y = {part: split.columns["y"] for part in SPLITS if isinstance(split := data.split(part), TensorSplit)}
    start, y_test = time.process_time(), y["test"]
    pipeline = make_tf_idf_pipeline(data.task, options)
    fit_texts = data.read_texts("train") + data.read_texts("validation")
    pipeline.fit(fit_texts, torch.cat([y["train"], y["validation"]]).numpy())
    predicted = torch.from_numpy(pipeline.predict(data.read_texts("test")))
    score = r2(predicted, y_test) if data.task == "regression" else (predicted == y_test).double().mean()
    return float(score), time.process_time() - start


def measure_table(name: str, folder: Path, *, recipe: str, seeds: int, vader: Path) -> dict[str, Any]:
    path = folder / f"{name}.csv"
    write_table(path, TABLES[name][1](vader))
    # a few different whole numbers, as stars, would be classes
    options: dict[str, Any] = {"task": "number"} if name == "imdb_stars" else {}
    data = load(str(path), text="text", target="target", **options)
    metric = "r2" if data.task == "regression" else "accuracy"
    row: dict[str, Any] = {
        "table": name, "about": TABLES[name][0], "train": len(data.train), "test": len(data.test), "metric": metric,
        "recipe": recipe, "didact": [], "cpu_seconds": [],
    }
    for seed in range(seeds):
        start = time.process_time()
        run = didact.train(
            recipe, data=str(path), text="text", target="target", seed=seed, runs=str(folder / "runs"), **options
        )
        row["cpu_seconds"].append(round(time.process_time() - start, 1))
        row["didact"].append(round(run.metadata["test"][metric], 4))
    peers = {peer: score_peer(data, peer_options) for peer, peer_options in PEERS.items()}
    row["peers"] = {peer: round(score, 4) for peer, (score, _) in peers.items()}
    row["peer_cpu_seconds"] = {peer: round(seconds, 1) for peer, (_, seconds) in peers.items()}
    row["margin"] = round(mean(row["didact"]) - max(row["peers"].values()), 4)
    return row


def format_page(rows: list[dict[str, Any]]) -> str:
    """The results as a Markdown page."""
    num_seeds = len(rows[0]["didact"])
    lines = [
        "# Texts: didact's default beside TF-IDF",
        "",
        f"`python benchmarks/text_tables.py`, {num_seeds} seed{'s' * (num_seeds > 1)}, the same rows in one run (70 % "
        "for training, 15 % for validation, 15 % for test): accuracy of classes, R² of numbers on the test rows. "
        "TF-IDF is scikit-learn's with its default options, with logistic regression or ridge, fitted to the training "
        "and validation rows, since it needs no validation; the best of its three columns counts for the margin.",
        "",
        "| table | training texts | metric | didact | words | 2–5 characters | in lower case | margin |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        spread = f" ± {torch.tensor(row['didact']).std().item():.3f}" if len(row["didact"]) > 1 else ""
        cells = [row["about"], f"{row['train']:,}", row["metric"], f"{mean(row['didact']):.3f}{spread}"]
        cells += [f"{score:.3f}" for score in row["peers"].values()]
        lines.append("| " + " | ".join([*cells, f"{row['margin']:+.3f}"]) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--recipe", default="fasttext")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--vader", type=Path, default=Path("vader"))
    parser.add_argument("--page", type=Path)
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.tables.split(","):
            try:
                row = measure_table(
                    name, Path(folder), recipe=arguments.recipe, seeds=arguments.seeds, vader=arguments.vader
                )
            except FileNotFoundError as error:
                print(f"{name} is left out: {error}", file=sys.stderr)
                continue
            rows.append(row)
            print(json.dumps(row), flush=True)
    if arguments.page and rows:
        arguments.page.write_text(format_page(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
