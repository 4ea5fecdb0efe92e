"""Data: three splits of examples, from datasets known by name or from one's own files.

    core, storage    Data, Batch; splits in memory, in pinned memory, in files
    load             by name or path: `didact.load`; a file format is one entry of its READERS
    build            Examples to Data: split, statistics, checks
    split, folds, checks, balance, groups, few_labels, bin_edges, serialize, folder_tree
    time_series      windows of past values and the next ones
    images/          image folders, segmentation masks, bounding boxes, augmentation, rendering
    tables/          files of tables: columns, targets, missing values
    text/            tokenizers, classification, language modeling, parallel texts, skip-gram
    datasets/        public, synthetic and scikit-learn's datasets; registry and download

    from didact.data import Data, Examples, build_data
"""

from typing import TYPE_CHECKING

from didact.lazy import make_lazy_getattr

if TYPE_CHECKING:
    from didact.data.balance import class_weights, oversample, reweigh_groups, undersample
    from didact.data.build import Examples, build_data, compute_mean_std, split_indices
    from didact.data.core import IGNORE_LABEL, SPLITS, Batch, Data, Encoder, MissingSplit, Split, TensorSplit
    from didact.data.few_labels import with_few_labels
    from didact.data.folder_tree import FolderTree
    from didact.data.groups import Groups, make_groups
    from didact.data.load import READERS, Reader, ReadOptions, list_datasets, reload_data
    from didact.data.serialize import data_from_json, data_to_json
    from didact.data.split import train_val_test_split
    from didact.data.storage import FileSplit, PinnedSplit, to_device
    from didact.data.time_series import SeriesEncoder, build_series, load_series, with_horizon

_EXPORTS = {
    "balance": ("class_weights", "oversample", "reweigh_groups", "undersample"),
    "build": ("Examples", "build_data", "compute_mean_std", "split_indices"),
    "core": ("IGNORE_LABEL", "SPLITS", "Batch", "Data", "Encoder", "MissingSplit", "Split", "TensorSplit"),
    "few_labels": ("with_few_labels",),
    "folder_tree": ("FolderTree",),
    "groups": ("Groups", "make_groups"),
    "load": ("READERS", "ReadOptions", "Reader", "list_datasets", "reload_data"),
    "serialize": ("data_from_json", "data_to_json"),
    "split": ("train_val_test_split",),
    "storage": ("FileSplit", "PinnedSplit", "to_device"),
    "time_series": ("SeriesEncoder", "build_series", "load_series", "with_horizon"),
}
_MODULE_OF_NAME = {name: module for module, names in _EXPORTS.items() for name in names}

__all__ = [
    "IGNORE_LABEL", "READERS", "SPLITS", "Batch", "Data", "Encoder", "Examples", "FileSplit", "FolderTree", "Groups",
    "MissingSplit", "PinnedSplit", "ReadOptions", "Reader", "SeriesEncoder", "Split", "TensorSplit", "build_data",
    "build_series", "class_weights", "compute_mean_std", "data_from_json", "data_to_json", "list_datasets",
    "load_series", "make_groups", "oversample", "reload_data", "reweigh_groups", "split_indices", "to_device",
    "train_val_test_split", "undersample", "with_few_labels", "with_horizon",
]  # fmt: skip

__getattr__ = make_lazy_getattr(__name__, _MODULE_OF_NAME)
