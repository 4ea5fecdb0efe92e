"""Data as JSON, without the examples: a run is loaded from its folder alone."""

from collections.abc import Mapping
from typing import Any

import torch

from didact.data.core import SPLITS, Data, MissingSplit
from didact.data.datasets.synthetic.copy_memory import CopyEncoder
from didact.data.images.boxes import BoxEncoder
from didact.data.images.image_folder import ImageEncoder
from didact.data.tables.table import TableEncoder
from didact.data.text.classification import BagEncoder
from didact.data.text.language_modeling import TextEncoder
from didact.data.text.parallel_texts import PairEncoder
from didact.data.time_series import SeriesEncoder
from didact.errors import look_up

_ENCODERS: dict[str, Any] = {
    "table": TableEncoder, "images": ImageEncoder, "boxes": BoxEncoder, "bag": BagEncoder, "stream": TextEncoder,
    "pairs": PairEncoder, "series": SeriesEncoder, "copy": CopyEncoder,
}
_PLAIN_FIELDS = ("name", "kind", "task", "target", "target_mean", "target_std", "fingerprint")
# fields that runs of earlier versions lack, with their values then
_ADDED_FIELDS = {"target_offset": 0.0}
_TUPLE_FIELDS = ("shape", "class_names", "feature_names", "notes")
_TENSOR_FIELDS = ("mean", "std")


def data_to_json(data: Data) -> dict[str, Any]:
    """All but the examples and their indices."""
    return {
        **{name: getattr(data, name) for name in (*_PLAIN_FIELDS, *_ADDED_FIELDS)},
        **{name: list(getattr(data, name)) for name in _TUPLE_FIELDS},
        **{name: getattr(data, name).tolist() for name in _TENSOR_FIELDS},
        "class_counts": {part: list(counts) for part, counts in data.class_counts.items()},
        **({"bin_edges": [list(edges) for edges in data.bin_edges]} if data.bin_edges else {}),
        "rows": {part: len(data.split(part)) for part in SPLITS},
        "source": dict(data.source),
        "encoder": data.encoder.spec() if data.encoder else None,
    }


def data_from_json(spec: Mapping[str, Any]) -> Data:
    """The same data with `MissingSplit`s."""
    encoder = spec["encoder"]
    fields: dict[str, Any] = {
        **{name: spec[name] for name in _PLAIN_FIELDS},
        **{name: spec.get(name, default) for name, default in _ADDED_FIELDS.items()},
        **{name: tuple(spec[name]) for name in _TUPLE_FIELDS},
        **{name: torch.tensor(spec[name]) for name in _TENSOR_FIELDS},
        **{part: MissingSplit(rows) for part, rows in spec["rows"].items()},
    }
    return Data(
        **fields,
        bin_edges=tuple(tuple(edges) for edges in spec.get("bin_edges", ())),
        class_counts={part: tuple(counts) for part, counts in spec["class_counts"].items()},
        source=dict(spec["source"]),
        encoder=encoder and look_up("encoder", encoder["kind"], _ENCODERS).from_spec(encoder),
    )
