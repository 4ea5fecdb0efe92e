"""What is known of the data, as JSON: a run is rebuilt from its folder alone, without the data at hand."""

from collections.abc import Mapping
from typing import Any

import torch

from didact.data.boxes import BoxEncoder
from didact.data.copying import CopyEncoder
from didact.data.core import SPLITS, Absent, Data
from didact.data.folder import ImageEncoder
from didact.data.pairs import PairEncoder
from didact.data.sequences import StreamEncoder
from didact.data.series import SeriesEncoder
from didact.data.table import TableEncoder
from didact.data.text import BagEncoder
from didact.errors import pick

ENCODERS: dict[str, Any] = {
    "table": TableEncoder, "images": ImageEncoder, "boxes": BoxEncoder, "bag": BagEncoder, "stream": StreamEncoder,
    "pairs": PairEncoder, "series": SeriesEncoder, "copy": CopyEncoder,
}
PLAIN = ("name", "kind", "task", "target", "target_mean", "target_std", "fingerprint")
ADDED = {"target_shift": 0.0}    # what runs that were kept before it lack, and what they mean by that
TUPLES = ("shape", "labels", "names", "notes")
TENSORS = ("mean", "std")


def spec(data: Data) -> dict[str, Any]:
    """All but the examples and their numbers."""
    return {
        **{name: getattr(data, name) for name in (*PLAIN, *ADDED)},
        **{name: list(getattr(data, name)) for name in TUPLES},
        **{name: getattr(data, name).tolist() for name in TENSORS},
        "counts": {part: list(counts) for part, counts in data.counts.items()},
        "rows": {part: len(data.split(part)) for part in SPLITS},
        "source": dict(data.source),
        "encoder": data.encoder.spec() if data.encoder else None,
    }


def from_spec(spec: Mapping[str, Any]) -> Data:
    """The same data with splits whose examples are not at hand."""
    encoder = spec["encoder"]
    fields: dict[str, Any] = {
        **{name: spec[name] for name in PLAIN},
        **{name: spec.get(name, default) for name, default in ADDED.items()},
        **{name: tuple(spec[name]) for name in TUPLES},
        **{name: torch.tensor(spec[name]) for name in TENSORS},
        **{part: Absent(rows) for part, rows in spec["rows"].items()},
    }
    return Data(
        **fields,
        counts={part: tuple(counts) for part, counts in spec["counts"].items()},
        source=dict(spec["source"]),
        encoder=encoder and pick("encoder", encoder["kind"], ENCODERS).from_spec(encoder),
    )
