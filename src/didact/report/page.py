"""A run's page: one file that needs nothing else, in the order in which a reader asks."""

from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files as packaged
from pathlib import Path
from typing import Any

from torch import Tensor

from didact import files, metrics
from didact.errors import counted
from didact.report.answers import Answers, answers
from didact.report.boxes import box_groups
from didact.report.examples import address, cards, in_order
from didact.report.figures import Figure, class_figure, counts_of, curves, mistakes, prediction_figures, signal_figures, target_figure
from didact.report.gallery import PICTURES, pictures
from didact.report.inside import inside_figures
from didact.report.markup import Html, number, tag, text
from didact.report.masks import MASKS, RESTORED, mask_groups, restored_groups
from didact.report.neighbours import NEIGHBOURS, neighbour_table
from didact.report.rows import ROWS, row_tables
from didact.report.surface import learned_figure
from didact.report.words import (
    COURSES,
    about,
    argument,
    citation,
    duration,
    epochs,
    formula,
    interval,
    metric_name,
    metric_value,
    positive_class,
    some_stay,
)
from didact.run import Run

ENDED = {"budget": "the budget was spent", "patience": "validation no longer improved"}
EVERYWHERE = "What the model says over the whole range of the training examples and a little beyond, where it has seen nothing."
BOXES = "The test images with the highest and the lowest loss. Dashed: what is there. Drawn through: what was found, and how surely."
EXPLANATIONS = 12  # at most, of those that lie in the run's folder
EXPLAINED = "Red speaks for the class and blue against it; of maps without a sign, bright is strong."
SIGNAL = (
    "Before the first step: a variance that shrinks or grows from layer to layer does so exponentially with depth, "
    "and then the layers at one end hardly learn (Gaba 1.5)."
)
COPY = """
for (const button of document.querySelectorAll("button.copy")) {
  button.hidden = !navigator.clipboard;
  button.onclick = async () => {
    await navigator.clipboard.writeText(button.previousElementSibling.textContent);
    button.textContent = "copied";
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  };
}
"""


def style(name: str) -> str:
    return (packaged("didact.report") / name).read_text(encoding="utf-8")


def document(title: str, *body: object) -> str:
    head = tag(
        "head", Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html('<meta name="color-scheme" content="light dark">'),
        tag("title", title),
        tag("style", Html(style("chart.css") + style("style.css"))),
    )
    foot = tag("footer", "Written by didact. This page is one file: it can be kept, sent and opened anywhere.")
    return "<!doctype html>\n" + tag("html", head, tag("body", tag("main", *body, foot), tag("script", Html(COPY))), lang="en")


def section(name: str, *parts: object, lead: str = "") -> Html:
    return tag("section", tag("h2", name), tag("p", lead, class_="lead") if lead else None, *parts) if any(parts) else Html("")


def figure(f: Figure | None) -> Html:
    return tag("figure", f.svg, tag("figcaption", f.caption) if f.caption else None, class_="wide" if f.wide else None) if f else Html("")


def hero(f: Figure | None) -> Html:
    """A figure as large as the page allows, what it says beside it."""
    return tag("figure", f.svg, tag("figcaption", f.caption), class_="hero") if f else Html("")


def grid(figures: Iterable[Figure | None], kind: str = "pair") -> Html:
    shown = [figure(f) for f in figures if f]
    return tag("div", shown, class_=kind) if shown else Html("")


def table(
    head: Sequence[object], rows: Iterable[Sequence[object]], *, foot: Sequence[object] = (), numeric: int = 1, kind: str = ""
) -> Html:
    """A table that scrolls in its own box; columns from `numeric` on are numbers, at the right."""
    def cell(k: int, content: object) -> Html:
        side = "n" if k >= numeric else None
        return tag("th", content, scope="row", class_=side) if k == 0 else tag("td", content, class_=side)

    top = tag("thead", tag("tr", [tag("th", words, scope="col", class_="n" if k >= numeric else None) for k, words in enumerate(head)]))
    body = tag("tbody", [tag("tr", [cell(k, c) for k, c in enumerate(row)]) for row in rows])
    end = tag("tfoot", tag("tr", [cell(k, c) for k, c in enumerate(foot)])) if foot else None
    return tag("div", tag("table", top, body, end), class_=f"scroll {kind}".strip(), tabindex=0)


def facts_list(pairs: Mapping[str, object]) -> Html:
    return tag("dl", [tag("div", tag("dt", k), tag("dd", v)) for k, v in pairs.items() if v not in (None, "", "–")], class_="facts")


def meter(share: float, words: str) -> Html:
    """A number with a bar behind it."""
    return tag("span", words, class_="meter", style=f"--share:{100 * min(1.0, max(0.0, share)):.1f}%")


def write(run: Run) -> Path:
    """report.html and figures/*.svg in the run's folder; returns the page's path."""
    facts, lines = run.facts | {"status": run.status}, run.metrics
    rows = run.load("test") if run.has("test.safetensors") else {}
    kept = run.load("examples") if run.has("examples.safetensors") else {}
    names = {which: run.called(which) for which in ("worst", "best")} if kept else {}
    grid_of = run.load("surface") if run.has("surface.safetensors") else {}
    said = answers(facts, rows)
    large, small = curves(facts, lines) if lines else ([], [])
    classes = class_figure(facts["data"]) or target_figure(said, facts["data"].get("target", ""))
    predicted = prediction_figures(said) if said else []
    learned = learned_figure(facts["data"], grid_of, noise=said is not None and said.std is not None)
    signal = signal_figures(facts)
    inside = inside_figures(rows, run.load("gallery") if run.has("gallery.safetensors") else {})
    page = document(
        f"{facts['recipe']} on {facts['data']['name']}",
        header(run.folder.name, facts, len(rows["loss"]) if "loss" in rows else 0),
        section("Repeat it", repeat(facts)),
        section("The data", data_section(facts, classes)),
        section("Learning", grid(large), grid(small, "trio"), lead=trained(facts)),
        section("What it learned", hero(learned), lead=EVERYWHERE),
        section("Pictures", pictures(run, rows, facts), lead=PICTURES),
        section("Inside", grid(inside)),
        section("Rows", row_tables(run, facts), lead=ROWS),
        section("Nearest words", neighbour_table(run, facts["data"]), lead=NEIGHBOURS),
        section("On the test split", test_section(predicted, said), mask_table(rows, facts["data"]), lead=judged(rows)),
        examples_section(kept, names, said, facts["data"]),
        section("Masks", mask_groups(kept, names, rows, facts["data"]), lead=MASKS),
        section("Restored images", restored_groups(kept, names, rows), lead=RESTORED),
        section("Boxes", box_groups(kept, names, rows, facts["data"]), lead=BOXES),
        section("Why it answers so", explanations(run.folder / "explanations"), lead=EXPLAINED),
        section("The network", layer_section(facts.get("layers")), signal_section(signal)),
        section("The run", run_section(run.folder.name, facts)),
        section("In the courses", sources(facts, courses=True)),
        section("In the literature", sources(facts, courses=False)),
    )
    for f in (*large, *small, *predicted, *signal, *inside, *(f for f in (classes, learned) if f)):
        alone = f.svg.replace(">", f"><style>{style('chart.css')}svg {{ background: var(--paper); }}</style>", 1)
        files.write_text(run.folder / "figures" / f.file, alone)
    path = run.folder / "report.html"
    files.write_text(path, page)
    return path


def header(name: str, facts: Mapping[str, Any], n: int) -> Html:
    when = str(facts.get("started", ""))[:16].replace("T", " ")
    took = duration(facts["seconds"]) if "seconds" in facts else facts.get("status", "")
    meta = [when, facts.get("device"), facts.get("precision"), f"seed {facts.get('settings', {}).get('seed', '–')}", took]
    return tag(
        "header",
        tag("p", f"didact · {facts.get('chapter') or 'run'} · {name}", class_="overline"),
        tag("h1", facts["recipe"], tag("span", f" on {facts['data']['name']}")),
        tag("p", facts.get("summary", ""), class_="summary"),
        tag("ul", [tag("li", words) for words in meta if words], class_="meta"),
        tiles(facts, n),
    )


def tiles(facts: Mapping[str, Any], n: int) -> Html:
    """The test metrics, the one that chose the model first and largest."""
    test, validation, watch = facts.get("test") or {}, facts.get("validation") or {}, (facts.get("watch") or ["loss"])[0]
    if not test:
        return tag("p", f"This run has not been tested yet: it is {facts['status'] or 'not finished'}.", class_="warning")
    first = watch if watch in test else next(iter(test))
    told = facts.get("notes", ())
    positive = positive_class(facts)
    rest = [
        tile(metric_name(name, positive), metric_value(name, test[name]), shown_beside(name, validation), about(name, told))
        for name in test if name != first
    ]
    large = headline(first, test[first], validation.get(first), n, formula(first, test) or about(first, told))
    across = f"--across:{(len(rest) + 1) // 2 if len(rest) > 4 else max(1, len(rest))}"
    return tag("div", large, tag("div", rest, class_="rest", style=across), class_="tiles")


def shown_beside(name: str, validation: Mapping[str, float]) -> str:
    return f"validation {metric_value(name, validation[name])}" if validation.get(name) is not None else ""


def tile(title: str, value: str, below: str, hint: str = "") -> Html:
    lines = tag("span", title), tag("strong", value), tag("small", below)
    return tag("div", *lines, class_="tile", title=hint or None)


def headline(name: str, value: float, validation: float | None, n: int, how: str = "") -> Html:
    below = [how] if how else []
    below += [f"validation {metric_value(name, validation)}"] if validation is not None else []
    if name == "accuracy" and n:
        low, high = interval(value, n)
        below.insert(0, f"95 % interval {100 * low:.1f} to {100 * high:.1f} %")
    lines = [tag("small", line) for line in below]
    return tag("div", tag("span", f"test {metric_name(name)}"), tag("strong", metric_value(name, value)), lines, class_="tile first")


def repeat(facts: Mapping[str, Any]) -> list[Html]:
    command = tag("div", tag("code", facts.get("repeat", "")), tag("button", "copy", type="button", class_="copy"), class_="command")
    given = {name: argument(value) for name, value in facts.get("arguments", {}).items()}
    chips = tag("ul", [tag("li", tag("span", k.replace("_", " ")), f" {v}") for k, v in given.items()], class_="chips")
    return [command, tag("details", tag("summary", f"All {len(given)} arguments"), chips), notes(facts.get("notes", ()))]


def notes(lines: Iterable[str]) -> Html:
    shown = [tag("li", line) for line in lines]
    return tag("ul", shown, class_="notes") if shown else Html("")


def data_section(facts: Mapping[str, Any], classes: Figure | None) -> Html:
    health = facts.get("health", {})
    splits, labels = health.get("splits", {}), facts["data"].get("labels")
    pairs = {
        "set": facts["data"]["name"],
        "kind": f"{health.get('kind', facts['data']['kind'])}, {health.get('task', facts['data']['task'])}",
        "target": health.get("target"),
        "each input": " × ".join(f"{n:,}" for n in health.get("shape", ())),
        "classes": number(len(labels)) if labels else None,
        "imbalance": f"{health['imbalance']:.2f} : 1, most to least frequent class" if labels and "imbalance" in health else None,
        "duplicates": duplicates(health.get("duplicates")),
        "fingerprint": tag("code", health.get("fingerprint", "")),
    }
    told = [line for line in health.get("notes", ()) if not line.startswith(f"{splits.get('train', 0):,} training")]  # seen above
    left = tag("div", split_bar(splits), facts_list(pairs), notes(told))
    return tag("div", left, figure(classes), class_="pair")


def split_bar(splits: Mapping[str, int]) -> Html:
    """How the examples are divided, to scale, and in numbers below."""
    parts = list(enumerate(splits.items()))
    bar = tag("div", [tag("i", style=f"--c:var(--s{tone});flex-grow:{rows}") for tone, (_, rows) in parts])
    keys = tag("ul", [tag("li", tag("b", f"{rows:,}"), f" {name}", style=f"--c:var(--s{tone})") for tone, (name, rows) in parts])
    return tag("div", bar, keys, class_="splits") if splits else Html("")


def trained(facts: Mapping[str, Any]) -> str:
    plan, words = facts.get("plan", {}), []
    if plan:
        steps = facts.get("steps", plan["total"])
        passes = epochs(steps / plan["epoch"])
        words.append(f"{counted(steps, 'step')} of {counted(plan['batch'], 'example')} ({passes} epoch{'s' * (passes != '1')}).")
    if facts.get("stopped") == "patience":
        words.append("Stopped early: validation no longer improved.")
    if facts.get("best_step"):
        words.append(f"The model is that of step {facts['best_step']:,}, the best on validation by {metric_name(facts['watch'][0])}.")
    return " ".join(words)


def duplicates(found: Mapping[str, int] | None) -> str:
    if found is None:
        return "not looked for"
    shown = " and ".join(f"{count:,} of {part}" for part, count in found.items() if count)
    return f"{shown} also stand in training" if shown else "none across the splits"


def judged(rows: Mapping[str, Tensor]) -> str:
    return f"{len(rows['loss']):,} examples that were neither trained on nor used to choose the model." if "loss" in rows else ""


def test_section(predicted: Sequence[Figure], said: Answers | None) -> Html | None:
    if said is None:
        return None
    wide, shown = [figure(f) for f in predicted if f.wide], [figure(f) for f in predicted if not f.wide]
    often = mistakes(said) if said.task == "multiclass" else []
    if often:
        rows = [[true, answer, f"{count:,}", f"{100 * share:.1f} %"] for true, answer, count, share in often]
        title = tag("h3", "Most frequent mistakes")
        shown.append(tag("figure", title, table(["true", "predicted", "times", "of the class"], rows, numeric=2, kind="bare")))
    half = max(1, len(shown) // 2)
    stacks = [tag("div", side, class_="stack") for side in (shown[:half], shown[half:])]
    return text([wide, tag("div", stacks, class_="pair"), class_table(said)])


def class_table(said: Answers) -> Html:
    """Precision, recall and F1 of each class, or of each label where an example may carry several."""
    if said.probabilities is None:
        return Html("")
    if said.task == "multilabel":
        chosen, truth = said.probabilities > 0.5, said.y > 0.5
        both = (chosen & truth).sum(0)
        made, there = chosen.sum(0), truth.sum(0)
        counts = both / made.clamp(min=1), both / there.clamp(min=1), 2 * both / (made + there).clamp(min=1)
        support = truth.sum(0).tolist()
    else:
        matrix = counts_of(said)
        counts = metrics.precision(matrix), metrics.recall(matrix), metrics.f1(matrix)
        support = matrix.sum(1).tolist()
    shares = [[meter(v, f"{100 * v:.1f} %") for v in c.tolist()] for c in counts]
    rows = [[label, *(column[k] for column in shares), f"{support[k]:,}"] for k, label in enumerate(said.labels)]
    return table(["class", "precision", "recall", "F1", "test examples"], rows, kind="tall")


def mask_table(rows: Mapping[str, Tensor], data: Mapping[str, Any]) -> Html:
    """IoU and Dice of each class over all pixels of the test split."""
    labels = data.get("labels", ())
    if "confusion" not in rows or rows["confusion"].shape[1:] != (len(labels), len(labels)):
        return Html("")
    counts = rows["confusion"].sum(0)
    shares = [[meter(v, f"{100 * v:.1f} %") if v == v else "–" for v in c.tolist()] for c in (metrics.iou(counts), metrics.dice(counts))]
    pixels = (100 * counts.sum(1) / counts.sum()).tolist()
    found = [[label, *(column[k] for column in shares), f"{pixels[k]:.1f} %"] for k, label in enumerate(labels)]
    return table(["class", "IoU", "Dice", "of all pixels"], found, kind="tall")


def examples_section(
    kept: Mapping[str, Tensor], names: Mapping[str, Sequence[str]], said: Answers | None, data: Mapping[str, Any]
) -> Html:
    if said is None or not {"worst", "best", "worst_x", "best_x"} <= kept.keys():
        return Html("")
    unusual = {"table": " Of each row, the features furthest from the training mean."}
    if not in_order(kept["worst_x"]):
        unusual["text"] = " Of each text, its least usual words."
    kind = "examples pictures" if kept["worst_x"].ndim == 4 else "examples"
    groups = [
        (tag("h3", title), tag("ul", cards(which, kept, names[which], said, data), class_=kind))
        for which, title in (("worst", "Most surprising"), ("best", "Least surprising"))
    ]
    lead = f"The test examples with the highest and the lowest loss.{unusual.get(data['kind'], '')}"
    return section("Worst and best predictions", groups, lead=lead)


def explanations(folder: Path) -> Html:
    """What `didact explain` drew; as images, in which nothing can run."""
    kinds = {".png": "image/png", ".svg": "image/svg+xml"}
    found = sorted(p for p in folder.glob("*") if p.suffix in kinds)[:EXPLANATIONS]
    drawn = [tag("img", src=address(p.read_bytes(), kinds[p.suffix]), alt=p.stem.replace("-", " "), style="max-width:100%") for p in found]
    return tag("div", [tag("figure", image) for image in drawn], class_="stack") if drawn else Html("")


def layer_section(layers: Mapping[str, Any] | None) -> Html:
    if not layers:
        return Html("")
    rows, partly = [], some_stay(layers)
    for row in layers["rows"]:
        shape = " × ".join(map(str, row["shape"])) if row["shape"] is not None else "–"
        count = meter(row["parameters"] / max(1, layers["total"]), f"{row['parameters']:,}") if row["parameters"] else "–"
        learned = [f"{row['trainable']:,}" if row["trainable"] else "–"] if partly else []
        rows.append([row["name"], row["layer"], shape, count, *learned])
    totals = f"{layers['trainable']:,} trainable · {layers['tied']:,} tied"
    head, foot = ["layer", "kind", "output", "parameters"], ["total", totals, "", f"{layers['total']:,}"]
    if partly:
        head, foot = [*head, "trained"], [*foot, f"{layers['trainable']:,}"]
    return table(head, rows, foot=foot, numeric=2)


def signal_section(figures: Sequence[Figure]) -> list[Html]:
    return [tag("h3", "Signal at the start"), tag("p", SIGNAL, class_="lead"), grid(figures)] if figures else []


def run_section(name: str, facts: Mapping[str, Any]) -> Html:
    git, machine = facts.get("git"), facts.get("machine", {})
    versions = {k: v for k, v in facts.get("versions", {}).items() if v}
    return facts_list({
        "run": tag("code", name),
        "status": ", ".join(filter(None, [facts.get("status"), ENDED.get(facts.get("stopped", ""))])),
        "started": facts.get("started"),
        "seed": f"{facts.get('settings', {}).get('seed', '–')} (split {facts.get('settings', {}).get('split_seed', '–')})",
        "fingerprint of losses": " · ".join(f"step {step}: {value:.7g}" for step, value in facts.get("fingerprint", {}).items()),
        "versions": " · ".join(f"{package} {v}" for package, v in versions.items()),
        "git": f"{git['commit'][:12]}{' with changes' if git['dirty'] else ''}" if git else "not in a repository",
        "machine": ", ".join(f"{value}" if key == "system" else f"{key} {value}" for key, value in machine.items()),
        "processes": facts.get("processes"),
        "called as": tag("code", facts.get("command", "")),
    })


def sources(facts: Mapping[str, Any], *, courses: bool) -> Html:
    """Sections of courses, spelt out; or papers, where no course has it."""
    found = {s: citation(s) for s in facts.get("sources") or ()}
    chosen = {s: spelt for s, spelt in found.items() if s.startswith(tuple(COURSES)) == courses}
    return facts_list(chosen) if chosen else Html("")
