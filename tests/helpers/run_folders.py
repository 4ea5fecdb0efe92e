"""Run folders as training leaves them, small and quick; and a reader of the pages made of them."""

from html.parser import HTMLParser

import torch

from didact.run import Run


def make_metadata(
    task="multiclass", class_names=("0", "1", "2"), kind="images", shape=(1, 4, 4), feature_names=(), **extra
):
    data = {
        "name": "shapes",
        "kind": kind,
        "task": task,
        "shape": list(shape),
        "class_names": list(class_names),
        "feature_names": list(feature_names),
    }
    data |= {"mean": [0.0], "std": [1.0], "target_mean": 0.0, "target_std": 1.0, "target": "y", "fingerprint": "00ff"}
    data["class_counts"] = {
        part: [n + k for k in range(len(class_names))] for part, n in (("train", 10), ("validation", 3), ("test", 4))
    }
    health = {"name": "shapes", "kind": kind, "task": task, "target": "y", "shape": list(shape)}
    health |= {
        "splits": {"train": 30, "validation": 9, "test": 12},
        "imbalance": 1.2,
        "duplicates": {"validation": 0, "test": 2},
    }
    health |= {"notes": ["30 training, 9 validation and 12 test examples", "something to know"], "fingerprint": "00ff"}
    layers = {
        "rows": [{"name": "head", "layer": "Linear", "shape": [3], "parameters": 51}],
        "total": 51,
        "trainable": 51,
        "tied": 0,
    }
    return {
        "recipe": "mlp",
        "arguments": {"lr": 0.1, "hidden": [8, 4], "dropout": None},
        "settings": {"seed": 0, "split_seed": 0, "runs": "runs"},
        "summary": "Layers.",
        "chapter": "foundations",
        "sources": ["Gaba 1.2"],
        "command_to_repeat": "didact train mlp --lr 0.1",
        "started": "2026-01-02T03:04:05+0000",
        "status": "finished",
        "data": data,
        "health": health,
        "notes": [],
        "layers": layers,
        "device": "cpu",
        "precision": "fp32",
        "processes": 1,
        "plan": {"batch_size": 8, "rounds_per_epoch": 4, "total_rounds": 12},
        "monitor": ["accuracy", "max"],
        "versions": {"python": "3.12", "torch": "2.11"},
        "machine": {"system": "Linux", "cores": 2},
        "git": None,
        "command": "didact train mlp",
        "stop_reason": "budget",
        "seconds": 1.5,
        "steps": 12,
        "best_step": 8,
        "validation": {"loss": 0.2, "accuracy": 0.9},
        "test": {"loss": 0.25, "accuracy": 0.875},
        "fingerprint": {"1": 1.1},
        **extra,
    }


LINES = [
    line
    for step in (4, 8, 12)
    for line in (
        {
            "step": step,
            "epoch": step / 4,
            "lr": 0.1 / step,
            "train": {"loss": 1 / step},
            "gradients": {"net.a": 1.0, "net.b": 0.1},
        },
        {"step": step, "epoch": step / 4, "validation": {"loss": 1.5 / step, "accuracy": 1 - 1 / step}, "seconds": 0.1},
    )
]


def make_run(root, rows=None, examples=None, lines=LINES, **metadata):
    run = Run.create(root, "mlp")
    run.update_metadata(**make_metadata(**metadata))
    run.log(lines)
    if rows is not None:
        run.save("test", rows)
    if examples is not None:
        run.save("examples", examples)
    return run


def make_classifier_run(root, class_names=("0", "1", "2"), n=12, **metadata):
    """Images of three classes, all right but the last, which is said to be the first class."""
    y = torch.arange(n) % len(class_names)
    output = 4 * torch.nn.functional.one_hot(y, len(class_names)).float()
    output[-1] = output[0]
    loss = torch.nn.functional.cross_entropy(output, y, reduction="none")
    order = loss.argsort(descending=True)
    shape = metadata.setdefault("shape", (1, 4, 4))
    examples = {
        "worst": order[:2],
        "best": order.flip(0)[:2],
        "worst_x": torch.rand(2, *shape),
        "best_x": torch.rand(2, *shape),
    }
    return make_run(root, {"loss": loss, "output": output, "y": y}, examples, class_names=class_names, **metadata)


class HtmlChecker(HTMLParser):
    """Counts what is opened and not closed, and collects visible text."""

    VOID = ("meta",)

    def __init__(self):
        super().__init__()
        self.open_tags, self.texts = [], []

    def handle_starttag(self, tag, attrs):
        if tag not in self.VOID:
            self.open_tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open_tags.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def read_page(path):
    page = path.read_text(encoding="utf-8")
    parser = HtmlChecker()
    parser.feed(page)
    assert parser.open_tags == []
    return page, " ".join(parser.texts)
