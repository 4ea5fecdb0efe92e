"""A run's page: one file that needs nothing else, in the order in which a reader asks."""

from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files as packaged
from pathlib import Path
from typing import Any

from torch import Tensor

from didact import files, metrics
from didact.report.answers import Answers, answers
from didact.report.examples import cards
from didact.report.figures import Figure, class_figure, counts_of, curves, prediction_figures
from didact.report.markup import Html, number, tag
from didact.report.words import argument, duration, interval, metric_name, metric_value
from didact.run import Run

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
        Html('<meta name="color-scheme" content="light dark">'), tag("title", title), tag("style", Html(style("chart.css") + style("style.css"))),
    )
    foot = tag("footer", "Written by didact. This page is one file: it can be kept, sent and opened anywhere.")
    return "<!doctype html>\n" + tag("html", head, tag("body", tag("main", *body, foot), tag("script", Html(COPY))), lang="en")


def section(name: str, *parts: object, lead: str = "") -> Html:
    return tag("section", tag("h2", name), tag("p", lead, class_="lead") if lead else None, *parts) if any(parts) else Html("")


def figure(f: Figure | None) -> Html:
    return tag("figure", f.svg, tag("figcaption", f.caption) if f.caption else None) if f else Html("")


def grid(figures: Iterable[Figure | None], kind: str = "grid") -> Html:
    shown = [figure(f) for f in figures if f]
    return tag("div", shown, class_=kind) if shown else Html("")


def table(head: Sequence[object], rows: Iterable[Sequence[object]], *, foot: Sequence[object] = (), numeric: int = 1, kind: str = "") -> Html:
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
    facts, lines = run.facts, run.metrics
    rows = run.load("test") if run.has("test.safetensors") else {}
    kept = run.load("examples") if run.has("examples.safetensors") else {}
    said = answers(facts, rows)
    large, small = curves(facts, lines) if lines else ([], [])
    classes = class_figure(facts.get("health", {}))
    predicted = prediction_figures(said) if said else []
    page = document(
        f"{facts['recipe']} on {facts['data']['name']}",
        header(run.folder.name, facts, len(rows["loss"]) if "loss" in rows else 0),
        section("Repeat it", repeat(facts)),
        section("The data", data_section(facts, classes)),
        section("Learning", grid(large), grid(small, "grid small"), lead=learned(facts)),
        section("On the test split", grid(predicted), class_table(said) if said else None, lead=judged(facts, said)),
        examples_section(kept, said, facts["data"]),
        section("The network", layer_section(facts.get("layers"))),
        section("The run", run_section(run.folder.name, facts)),
        section("In the courses", sources(facts)),
    )
    for f in (*large, *small, *predicted, *([classes] if classes else [])):
        alone = f.svg.replace("<title>", f"<style>{style('chart.css')}svg {{ background: var(--paper); }}</style><title>", 1)
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
        tag("p", f"didact · {facts.get('chapter') or 'run'} · {name}", class_="over"),
        tag("h1", facts["recipe"], tag("span", f" on {facts['data']['name']}")),
        tag("p", facts.get("summary", ""), class_="summary"),
        tag("ul", [tag("li", words) for words in meta if words], class_="meta"),
        tiles(facts, n),
    )


def tiles(facts: Mapping[str, Any], n: int) -> Html:
    """The test metrics, the one that chose the model first and largest."""
    test, validation, watch = facts.get("test") or {}, facts.get("validation") or {}, (facts.get("watch") or ["loss"])[0]
    if not test:
        return tag("p", f"This run is {facts.get('status', 'not finished')}: it has not been tested yet.", class_="note")
    ordered = sorted(test, key=lambda name: name != watch)
    return tag("ul", [tile(name, test[name], validation.get(name), n, name == watch) for name in ordered], class_="tiles")


def tile(name: str, value: float, validation: float | None, n: int, first: bool) -> Html:
    below = f"validation {metric_value(name, validation)}" if validation is not None else ""
    if name == "accuracy" and n:
        low, high = interval(value, n)
        below = f"95 % interval {100 * low:.1f} to {100 * high:.1f} % · {below}" if first else below
    shown = metric_value(name, value)
    return tag("li", tag("span", f"test {metric_name(name)}" if first else metric_name(name)), tag("strong", shown), tag("small", below), class_="first" if first else None)


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
    splits = health.get("splits", {})
    twice = health.get("duplicates")
    pairs = {
        "set": facts["data"]["name"],
        "kind": f"{health.get('kind', facts['data']['kind'])}, {health.get('task', facts['data']['task'])}",
        "target": health.get("target"),
        "each input": " × ".join(map(str, health.get("shape", ()))),
        "classes": number(len(health["classes"])) if health.get("classes") else None,
        "imbalance": f"{health['imbalance']:.2f} : 1, most to least frequent class" if health.get("classes") else None,
        "duplicates": None if twice is None else f"{twice['validation']:,} of validation and {twice['test']:,} of test also stand in training",
        "fingerprint": tag("code", health.get("fingerprint", "")),
    }
    left = tag("div", split_bar(splits), facts_list(pairs), notes(health.get("notes", ())))
    return tag("div", left, figure(classes), class_="grid")


def split_bar(splits: Mapping[str, int]) -> Html:
    if not splits:
        return Html("")
    parts = [
        tag("li", tag("b", f"{rows:,}"), tag("span", name), style=f"--c:var(--s{tone});flex-grow:{rows}") for tone, (name, rows) in enumerate(splits.items())
    ]
    return tag("ul", parts, class_="splits")


def learned(facts: Mapping[str, Any]) -> str:
    plan, words = facts.get("plan", {}), []
    if plan:
        words.append(f"{facts.get('steps', plan['total']):,} steps of {plan['batch']:,} examples ({facts.get('steps', plan['total']) / plan['epoch']:.3g} epochs).")
    if facts.get("stopped") == "patience":
        words.append("Stopped early: validation no longer improved.")
    if facts.get("best_step"):
        words.append(f"The model is that of step {facts['best_step']:,}, the best on validation by {metric_name(facts['watch'][0])}.")
    return " ".join(words)


def judged(facts: Mapping[str, Any], said: Answers | None) -> str:
    return f"{len(said.y):,} examples that were neither trained on nor used to choose the model." if said else ""


def class_table(said: Answers) -> Html:
    """Precision, recall and F1 of each class, or of each label where an example may carry several."""
    if said.probabilities is None:
        return Html("")
    if said.task == "multilabel":
        chosen, truth = said.probabilities > 0.5, said.y > 0.5
        both = (chosen & truth).sum(0)
        counts = (both / chosen.sum(0).clamp(min=1), both / truth.sum(0).clamp(min=1), 2 * both / (chosen.sum(0) + truth.sum(0)).clamp(min=1))
        support = truth.sum(0).tolist()
    else:
        matrix = counts_of(said)
        counts = metrics.precision(matrix), metrics.recall(matrix), metrics.f1(matrix)
        support = matrix.sum(1).tolist()
    rows = [[label, *(meter(float(c[k]), f"{100 * float(c[k]):.1f} %") for c in counts), f"{support[k]:,}"] for k, label in enumerate(said.labels)]
    return table(["class", "precision", "recall", "F1", "test examples"], rows, kind="tall")


def examples_section(kept: Mapping[str, Tensor], said: Answers | None, data: Mapping[str, Any]) -> Html:
    if said is None or not {"worst", "best", "worst_x", "best_x"} <= kept.keys():
        return Html("")
    unusual = {"table": " Of each row, the features furthest from the training mean.", "text": " Of each text, its least usual words."}
    groups = [
        (tag("h3", title), tag("ul", cards(which, kept, said, data), class_=f"examples {data['kind'] if data['kind'] in unusual else 'pictures'}"))
        for which, title in (("worst", "Most surprising"), ("best", "Least surprising"))
    ]
    return section("Worst and best predictions", groups, lead=f"The test examples with the highest and the lowest loss.{unusual.get(data['kind'], '')}")


def layer_section(layers: Mapping[str, Any] | None) -> Html:
    if not layers:
        return Html("")
    rows = []
    for row in layers["rows"]:
        shape = " × ".join(map(str, row["shape"])) if row["shape"] is not None else "–"
        count = meter(row["parameters"] / max(1, layers["total"]), f"{row['parameters']:,}") if row["parameters"] else "–"
        rows.append([row["name"], row["layer"], shape, count])
    totals = f"{layers['trainable']:,} trainable · {layers['tied']:,} tied"
    return table(["layer", "kind", "output", "parameters"], rows, foot=["total", totals, "", f"{layers['total']:,}"], numeric=2)


def run_section(name: str, facts: Mapping[str, Any]) -> Html:
    git, machine = facts.get("git"), facts.get("machine", {})
    versions = {k: v for k, v in facts.get("versions", {}).items() if v}
    return facts_list({
        "run": tag("code", name),
        "status": f"{facts.get('status', '')}{', stopped by ' + facts['stopped'] if facts.get('stopped') else ''}",
        "started": facts.get("started"),
        "seed": f"{facts.get('settings', {}).get('seed', '–')} (split {facts.get('settings', {}).get('split_seed', '–')})",
        "fingerprint of losses": " · ".join(f"step {step}: {value:.7g}" for step, value in facts.get("fingerprint", {}).items()),
        "versions": " · ".join(f"{package} {v}" for package, v in versions.items()),
        "git": f"{git['commit'][:12]}{' with changes' if git['dirty'] else ''}" if git else "not in a repository",
        "machine": f"{machine.get('system', '')}, {machine.get('cores', '–')} cores, {machine.get('threads', '–')} threads" if machine else None,
        "processes": facts.get("processes"),
        "called as": tag("code", facts.get("command", "")),
    })


def sources(facts: Mapping[str, Any]) -> Html:
    return tag("ul", [tag("li", s) for s in facts["sources"]], class_="chips") if facts.get("sources") else Html("")
