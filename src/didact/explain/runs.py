"""`didact explain`: why a run's model answers as it does, for inputs of one's own or for the test examples it got most wrong."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from didact.data.centring import full
from didact.data.core import Given, Resident, doubts
from didact.data.load import forbid
from didact.errors import UsageError, pick
from didact.explain import beside, figures, heads, sequences
from didact.explain.inside import feature_maps, filters
from didact.explain.methods import FEATURES, IMAGES, VIEWS, How, asked, first_convolution, layer_named
from didact.explain.page import Told, cleared, page
from didact.explain.subject import Subject
from didact.objectives.abilities import Classifies, Fills, Forecasts, Tags, Translates
from didact.report.markup import number
from didact.report.page import write as write_report
from didact.run import Run
from didact.train.machine import pick_device
from didact.train.session import restored

MOST = 64               # inputs at a time: each costs hundreds of passes
SLOW = 0.01             # seconds of one pass from which on a method may take a minute: each is then told when it begins


@dataclass(frozen=True)
class Inputs:
    """Decoded inputs with names, and the true classes where they are known."""

    names: list[str]
    x: Tensor
    true: list[str] = field(default_factory=list)


def explain(
    run: Run, inputs: Sequence[Given] = (), *,
    methods: Sequence[str] = ("all",), label: str | None = None, layer: str | None = None, patches: int | None = None, samples: int = 32,
    to: Path | None = None, device: str = "auto", against: Sequence[Run] = (), tell: Callable[[str], object] = lambda words: None,
) -> dict[str, Any]:
    """Explain each input, write a page and a figure for each of them, and return what was found.

    In the run's own folder (`to` not given) the figures become a section of its report. `against` are further runs whose memory is
    drawn in one chart with this one's.
    """
    if against:
        if tuple(methods) != ("memory",) or (label, layer, patches) != (None, None, None):
            raise UsageError("--beside compares how far gradients reach back; give it with --method memory alone")
        return beside.explain([run, *against], inputs, to=to, device=device)
    if "heads" in methods:
        if inputs or len(methods) > 1 or (label, layer, patches) != (None, None, None):
            raise UsageError("--method heads judges the validation split and explains no input: give it alone, without inputs and options")
        return heads.explain(run, to=to, device=device, tell=tell)
    if (inside := within(run, inputs, methods, to, device, tell, **{"class": label}, layer=layer, patches=patches)) is not None:
        return inside
    subject = Subject.of(run, device)
    given = read(subject, inputs) if inputs else worst(run, subject)
    for doubt in doubts(subject.data.encoder, inputs) if subject.data.encoder else ():
        tell(doubt)
    x = given.x.to(subject.device)
    names = asked(methods, subject, x)
    refuse(subject, names, layer, patches)
    how = How(layer_named(subject, layer, x), patches, samples)
    target = subject.data.labels.index(known_label(subject, label)) if label is not None else None
    folder = to or run.folder / "explanations"
    told = []
    for k, name in enumerate(given.names):
        tell(f"{k + 1} of {len(given.names)}: {name}")
        one = explained(subject, x[k], names, how, target, tell)
        told.append(Told(name, one, true=given.true[k] if given.true else "", file=file_name(name, k)))
    kernels = figures.filters_panel(filters(subject.objective, subject.data.shape)) if "filters" in names else None
    if to is None:
        cleared(folder)
    written = page(folder, run.facts, told, kernels)
    if to is None and run.has("report.html"):
        write_report(run)
    return {"run": str(run.folder), "page": str(written), "explained": [one.facts(folder) for one in told]}


def within(
    run: Run, inputs: Sequence[Given], methods: Sequence[str], to: Path | None, device: str, tell: Callable[[str], object], **options: Any
) -> dict[str, Any] | None:
    """Of a network that reads tokens or values in their order: attention, alignment, gates and memory; None of any other."""
    objective, data = restored(run)
    known = sequences.methods_of(getattr(objective, "network", objective))
    if not known or data.kind not in ("text", "pairs", "tags", "series"):
        return None
    if not isinstance(objective, Classifies | Translates | Tags | Fills | Forecasts):
        return None
    forbid(f"{run.folder} reads one after another, and what is inside is shown for all classes", **options)
    names, place = sequences.asked(methods, known), pick_device(device, known=objective.devices)
    objective.to(place)
    given = sequences.texts(data, inputs) if inputs else sequences.kept(run)
    for doubt in doubts(data.encoder, inputs) if data.encoder else ():
        tell(doubt)
    if len(given) > MOST:
        raise UsageError(f"{len(given):,} inputs are more than the {MOST} that are explained at a time; give fewer")
    if isinstance(objective, Fills) and not inputs:
        given = [(name, {**batch, "x": objective.veil(batch)}) for name, batch in given]
    folder = to or run.folder / "explanations"
    readings = [
        sequences.look(objective, data, {key: v.to(place) for key, v in batch.items()}, name, names, file_name(name, k))
        for k, (name, batch) in enumerate(given)
    ]
    if to is None:
        cleared(folder)
    written = sequences.page(folder, run.facts, readings)
    if to is None and run.has("report.html"):
        write_report(run)
    return {"run": str(run.folder), "page": str(written), "explained": [one.facts(folder) for one in readings]}


def explained(
    subject: Subject, x: Tensor, names: Sequence[str], how: How, target: int | None, tell: Callable[[str], object]
) -> dict[str, Any]:
    """Of one input: what the model says, the class that is explained, and each method's numbers."""
    p = subject.probabilities(x[None])[0]
    answer = int(p.argmax())
    c = answer if target is None else target
    began = perf_counter()
    score = float(subject.scores(x[None])[0, c].detach())
    slow = perf_counter() - began > SLOW
    table = IMAGES if subject.pictures else FEATURES
    values = {}
    for name in (name for name in names if name not in VIEWS):
        if slow:
            tell(f"  {table[name].title} …")
        values[name] = table[name].compute(subject, x, c, how).detach().cpu()
    found: dict[str, Any] = {
        "predicted": subject.data.labels[answer], "probability": float(p[answer]),
        "class": subject.data.labels[c], "class_probability": float(p[c]), "score": score, "values": values,
    }
    if subject.pictures:
        size = x.shape[1], x.shape[2]
        found |= {"image": x.cpu(), "patches": how.grid(size)}
        if "feature_maps" in names:
            found["maps"] = feature_maps(subject.scores, x[None], how.layer or first_convolution(subject))[0].cpu()
    else:
        found["parts"], members = subject.parts(x)
        found["notes"] = values_of(x, members, found["parts"], subject) if subject.data.kind == "table" else []
    return found


def values_of(x: Tensor, members: Tensor, parts: Sequence[str], subject: Subject) -> list[str]:
    """The value of each column as a person reads it: a number, or the category whose feature, `column=category`, is 1."""
    found, names = [], subject.data.names
    for k, (part, shift) in enumerate(zip(parts, subject.shifts(len(parts)), strict=True)):
        own = (members == k).nonzero()[:, 0].tolist()
        named = [names[i].removeprefix(f"{part}=") for i in own if names and names[i] != part and float(x[i]) > 0.5]
        value = full(float(x[own[0]]) + shift, shift) if shift else number(float(x[own[0]]), 3)
        found.append(value if shift or not names or names[own[0]] == part else "".join(named[:1]) or "–")
    return found


def read(subject: Subject, inputs: Sequence[Given]) -> Inputs:
    """Files, rows or texts, read as the training data were."""
    encoder = subject.data.encoder
    if encoder is None:
        raise UsageError(f"the run learned from {subject.data.name!r}, whose inputs cannot be read from files; leave them out")
    names, columns = encoder.read(inputs)
    if len(names) > MOST:
        raise UsageError(f"{len(names):,} inputs are more than the {MOST} that are explained at a time; give fewer")
    return Inputs(names, Resident(columns, encoder.decoders).batch(torch.arange(len(names)))["x"])


def worst(run: Run, subject: Subject) -> Inputs:
    """The test examples with the highest loss, which the run keeps for its report."""
    kept = run.load("examples") if run.has("examples.safetensors") else {}
    if not {"worst", "worst_x"} <= kept.keys() or not len(kept["worst"]):
        raise UsageError(f"{run.folder} keeps no test examples to explain: finish it with didact resume, or give inputs")
    rows = kept["worst"][: sequences.WORST].tolist()
    y = run.load("test").get("y") if run.has("test.safetensors") else None
    true = [subject.data.labels[int(y[row])] for row in rows] if y is not None and y.ndim == 1 else []
    return Inputs(run.called("worst")[: len(rows)], kept["worst_x"][: len(rows)], true)


def refuse(subject: Subject, names: Sequence[str], layer: str | None, patches: int | None) -> None:
    """An option that would be passed over in silence is a mistake."""
    if layer is not None and not {"grad_cam", "feature_maps"} & set(names):
        raise UsageError(f"--layer is for grad_cam and feature_maps, got --layer {layer} with {', '.join(names)}")
    if patches is not None and not subject.pictures:
        raise UsageError(f"--patches is for images, but this run reads a {subject.data.kind}, got --patches {patches}")


def known_label(subject: Subject, label: str) -> str:
    return pick("class", label, {known: known for known in subject.data.labels})


def file_name(name: str, k: int) -> str:
    """Without suffix: its number, and what of its name every file system allows."""
    words = re.sub(r"[^\w]+", "-", name.rpartition("/")[2]).strip("-")[:40]
    return f"{k + 1:02d}-{words or 'input'}"


