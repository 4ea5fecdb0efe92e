"""Image folder: one subfolder per class, or train/ and test/ (and val/) that each hold such.

    pets/cat/01.png   pets/dog/07.jpg            pets/train/cat/01.png   pets/test/cat/09.png

Images that lie in no class folder, or all in one, have no labels: generative and reconstruction models need none, and
read images beside class folders too.
"""

import hashlib
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from didact.data.build import CLASSIFICATION_TASKS, Examples, build_data, split_indices
from didact.data.checks import summarize_list
from didact.data.core import Batch, Data, Decode, Given, SourceLocator, uint8_to_unit
from didact.data.folder_tree import FolderTree
from didact.data.images.bit_depth import ValueRange, describe_range, find_value_range, has_more_than_8_bits, to_uint8
from didact.data.images.open_image import GRAYSCALE_MODES, IMAGE_SUFFIXES, open_image, read_bytes
from didact.data.split import train_val_test_split
from didact.data.storage import FileSplit, in_memory_limit
from didact.errors import UsageError, format_count

T = TypeVar("T")

_HASHED_BYTES_PER_END = 2**19        # bytes at each end of a file that its fingerprint is taken of
_MAX_DEFAULT_SIDE = 64               # side to which images are resized where no size is given
_FILES_AT_ONCE = 256                 # files that are read at once
SPLIT_OF_FOLDER = {
    "train": "train",
    "training": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "dev": "validation",
    "test": "test",
    "testing": "test",
}


@dataclass(frozen=True)
class ImageEncoder:
    """Image files -> (channels, height, width) bytes: rotated upright, on white where transparent, resized.

    `value_range` is that of a dataset whose files hold more than 8 bits.
    """

    shape: tuple[int, int, int]
    value_range: ValueRange | None = None

    @property
    def decoders(self) -> Mapping[str, Decode]:
        return {"x": uint8_to_unit}

    def open(self, path: str | Path, content: bytes | None = None) -> Tensor:
        """An image file in the encoder's shape; from its bytes where they are at hand."""
        _, height, width = self.shape
        return self._decode(path, content, (width, height))

    def open_full_size(self, path: str | Path) -> Tensor:
        """The image in its own size: to draw on."""
        return self._decode(path, None, None)

    def _decode(self, path: str | Path, content: bytes | None, target_size: tuple[int, int] | None) -> Tensor:
        from PIL import Image, ImageOps

        with open_image(path, content) as raw_image:
            if target_size:
                raw_image.draft(None, (2 * target_size[0], 2 * target_size[1]))  # a large JPEG is decoded small
            image = _to_8bit_opaque(ImageOps.exif_transpose(raw_image), self.value_range).convert(
                "L" if self.shape[0] == 1 else "RGB"
            )
            if target_size and image.size != target_size:
                image = image.resize(target_size, Image.Resampling.BILINEAR)
        x = torch.from_numpy(np.array(image, dtype=np.uint8))
        return x[None] if x.ndim == 2 else x.permute(2, 0, 1).contiguous()

    def read(self, inputs: Sequence[Given]) -> tuple[list[str], Batch]:
        """Image files, or folders of them."""
        files: list[str] = []
        for path in inputs:
            if os.path.isdir(path):
                images, _ = FolderTree(Path(path)).list_images()
                if not images:
                    raise UsageError(f"the folder {path} holds no image ({', '.join(IMAGE_SUFFIXES)})")
                files += images
            else:
                files.append(str(path))
        return files, {"x": torch.stack([self.open(file) for file in files])}

    def spec(self) -> dict[str, Any]:
        return {"kind": "images", "shape": list(self.shape)} | (
            {"span": list(self.value_range)} if self.value_range else {}
        )

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Self:
        channels, height, width = spec["shape"]
        value_range = spec.get("span")         # none for 8-bit images, nor in runs of earlier versions
        return cls((channels, height, width), (value_range[0], value_range[1]) if value_range else None)

    def with_value_range(
        self, files: Sequence[str], modes: Sequence[str], train_rows: Tensor, run_data: Data | None
    ) -> tuple[Self, list[str]]:
        """The encoder with the value range of the training files of more than 8 bits, and a note on it; unchanged where
        there are none.

        Data of a run (`run_data`) keep the run's range, or none where each file was scaled by itself.
        """
        if run_data is not None:
            value_range = run_data.encoder.value_range if isinstance(run_data.encoder, ImageEncoder) else None
            return replace(self, value_range=value_range), []
        high_bit_rows = {i for i, mode in enumerate(modes) if has_more_than_8_bits(mode)}
        ranges = find_value_range([files[i] for i in train_rows.tolist() if i in high_bit_rows])
        if ranges is None:
            return self, []
        return replace(self, value_range=ranges[0]), [describe_range(*ranges, len(high_bit_rows))]


def _to_8bit_opaque(image: Any, value_range: ValueRange | None) -> Any:
    """Without transparency, and with 8 bits: a plain conversion would show hidden colors and clip 16 bits to white."""
    from PIL import Image

    if has_more_than_8_bits(image.mode):
        return Image.fromarray(to_uint8(image, value_range))
    if image.mode in ("LA", "La", "RGBA", "RGBa", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image


@dataclass(frozen=True)
class _ImageListing:
    """The images of a folder: image i is of class y[i], where there are classes, and of split splits[i], where folders
    name the splits."""

    files: tuple[str, ...]
    y: Tensor | None
    splits: tuple[str, ...]
    class_names: tuple[str, ...]
    num_other_files: int
    num_images_outside: int     # images in none of the folders that were read
    num_loose_images: int = 0  # images beside the class folders, read with them where no labels are needed


def _list_labeled_images(tree: FolderTree, *, allow_unlabeled: bool = False) -> _ImageListing:
    """root/class/image, or root/train/class/image and root/test/class/image; with `allow_unlabeled` images beside the
    class folders too."""
    root = tree.root
    children = tree.list_subfolders()
    split_roots = [(SPLIT_OF_FOLDER[f.name.lower()], f) for f in children if f.name.lower() in SPLIT_OF_FOLDER]
    if "train" not in {part for part, _ in split_roots}:
        split_roots = [("", root)]                                         # then val or test is the name of a class
    class_folders = {split_root: tree.list_subfolders(split_root) for _, split_root in split_roots}
    folders = [(part, folder) for part, split_root in split_roots for folder in class_folders[split_root]]
    if allow_unlabeled and folders:
        loose_images = [(file, part) for part, folder in split_roots for file in tree.list_images_flat(folder)]
        if loose_images:
            return _merge_unlabeled(tree, folders, loose_images)
    empty_roots = [split_root for split_root, class_folder in class_folders.items() if not class_folder]
    if folders and empty_roots:
        raise UsageError(
            f"{empty_roots[0]} holds no class folders, but those beside it do: expected "
            f"{empty_roots[0]}/<class>/<image>.png or .jpg"
        )
    labels = sorted({folder.name for _, folder in folders})
    entries: list[tuple[str, int, str]] = []                               # file, class, split
    num_others = 0
    for part, folder in folders or split_roots:
        files, num_skipped = tree.list_images(folder)
        if folders and not files:
            raise UsageError(
                f"the class folder {folder} holds no image ({', '.join(IMAGE_SUFFIXES)}): add some or delete it"
            )
        entries += [(file, labels.index(folder.name) if folders else 0, part) for file in files]
        num_others += num_skipped
    if not entries:
        raise UsageError(
            f"{root} holds 0 images: expected {root}/<class>/<image>.png or .jpg, or images alone to learn no classes"
        )
    all_files, y, splits = zip(*entries, strict=True)
    return _ImageListing(
        files=all_files,
        y=torch.tensor(y) if len(labels) > 1 else None,
        splits=splits,
        class_names=tuple(labels),
        num_other_files=num_others,
        num_images_outside=_count_images_outside(tree, all_files),
    )


def _merge_unlabeled(
    tree: FolderTree, folders: Sequence[tuple[str, Path]], loose_images: Sequence[tuple[str, str]]
) -> _ImageListing:
    """Images in class folders and beside them, without labels."""
    entries, num_others = list(loose_images), 0
    for part, folder in folders:
        images, num_skipped = tree.list_images(folder)
        entries += [(file, part) for file in images]
        num_others += num_skipped
    files, splits = zip(*entries, strict=True)
    return _ImageListing(
        files=files,
        y=None,
        splits=splits,
        class_names=tuple(sorted({folder.name for _, folder in folders})),
        num_other_files=num_others,
        num_images_outside=_count_images_outside(tree, files),
        num_loose_images=len(loose_images),
    )


def _count_images_outside(tree: FolderTree, files: Iterable[str]) -> int:
    return len(set(tree.list_images()[0]).difference(files))


def _read_image_sizes(files: Sequence[str]) -> tuple[Counter[tuple[int, int]], list[str]]:
    """How many images have which size, and the mode of each, from the first bytes of the files."""
    sizes: Counter[tuple[int, int]] = Counter()
    modes = []
    with ThreadPoolExecutor() as pool:
        for size, mode in map_ahead(pool, _read_size, files):
            sizes[size] += 1
            modes.append(mode)
    return sizes, modes


def _read_size(file: str) -> tuple[tuple[int, int], str]:
    """Size and mode of an image."""
    with open_image(file) as image:
        return image.size, image.mode


def infer_channels(modes: Iterable[str]) -> int:
    """One where all images are gray, else three."""
    return 1 if set(modes) <= set(GRAYSCALE_MODES) else 3


def split_by_folders(splits: Sequence[str], y: Tensor | None, seed: int) -> dict[str, Tensor] | None:
    """The split that folders name, None where they name none; a part without a folder is taken from train/."""
    rows = {part: torch.tensor([i for i, p in enumerate(splits) if p == part]) for part in set(splits)}
    if "" in rows:
        return None
    if "train" not in rows:
        raise UsageError(f"there are examples for {', '.join(sorted(rows))} but none for train: put some there")
    train = rows["train"]
    missing_splits = [part for part in ("validation", "test") if part not in rows]
    if missing_splits:
        fraction = 0.15 if len(missing_splits) == 2 else 0.1
        split_rows = train_val_test_split(
            len(train),
            None if y is None else y[train],
            seed=seed,
            fractions=(
                fraction if "validation" in missing_splits else 0.0,
                fraction if "test" in missing_splits else 0.0,
            ),
        )
        rows |= {part: train[split_rows[part]] for part in ("train", *missing_splits)}
    return rows


def load_image_folder(
    root: Path | FolderTree,
    *,
    size: int | None = None,
    seed: int = 0,
    indices: Mapping[str, Tensor] | None = None,
    allow_unlabeled: bool = False,
    run_data: Data | None = None,
) -> Data:
    """An image folder as Data: in memory where it fits, else read during training.

    `allow_unlabeled`: labels are not needed. `run_data`: the data of a run that is loaded again.
    """
    check_size(size)
    tree = FolderTree.of(root)
    root = tree.root
    listing = _list_labeled_images(tree, allow_unlabeled=allow_unlabeled)
    y = listing.y
    task = "none" if y is None else CLASSIFICATION_TASKS[len(listing.class_names) > 2]
    return build_image_data(
        Examples(
            root.resolve().name,
            "images",
            {} if y is None else {"y": y},
            task=task,
            class_names=() if y is None else listing.class_names,
            target="" if y is None else "class",
            notes=_describe_folder(root, listing),
            locator=make_path_locator(root, listing.files),
        ),
        listing.files,
        size=size,
        seed=seed,
        indices=indices or split_by_folders(listing.splits, y, seed),
        run_data=run_data,
    )


def build_image_data(
    examples: Examples,
    files: Sequence[str],
    *,
    size: int | None,
    seed: int,
    indices: Mapping[str, Tensor] | None,
    run_data: Data | None,
) -> Data:
    """Data of image files: the columns of `examples` are those beside the images."""
    check_size(size)
    assert isinstance(examples.columns, dict)
    y = examples.columns.get("y")
    sizes, modes = _read_image_sizes(files)
    side = size or min(_MAX_DEFAULT_SIDE, max(sizes.most_common(1)[0][0]))
    indices = split_indices(examples.name, len(files), y, task=examples.task, indices=indices, seed=seed)
    encoder, range_notes = ImageEncoder((infer_channels(modes), side, side)).with_value_range(
        files, modes, indices["train"], run_data
    )
    columns, fingerprint = load_images(files, encoder, examples.columns, y)
    first_note, *other_notes = examples.notes
    notes = [first_note, describe_resize(sizes, encoder), *other_notes, *range_notes]
    if isinstance(columns, FileSplit):
        size_text = f"{len(files) * encoder.shape[0] * side * side / 2**30:.2g} GiB"
        notes.append(f"{size_text} of images are read during training, by {columns.num_workers} worker processes")
    return build_data(
        replace(examples, columns=columns, encoder=encoder, notes=notes, fingerprint=fingerprint),
        indices=indices,
        seed=seed,
    )


def check_size(size: int | None) -> None:
    if size is not None and size < 1:
        raise UsageError(f"--size expects a side of at least 1 pixel, got {size}")


def make_path_locator(root: Path, files: Sequence[str]) -> SourceLocator:
    """Locate an example by its file's path inside the folder."""
    return lambda row: os.path.relpath(files[row], root)


def load_images(
    files: Sequence[str], encoder: ImageEncoder, columns: Batch, fingerprinted: Tensor | None
) -> tuple[Batch | FileSplit, str]:
    """All images in memory where they fit, else a split that reads them during training; and their fingerprint.

    The fingerprint is sixteen hexadecimal digits of files and targets, the same either way: of each file its name, size
    and bytes; of large ones the first and the last, since to read them all would take an epoch. In memory, it is taken
    of the bytes that are decoded: each file is opened once.
    """
    digest = hashlib.blake2b(repr(encoder.shape + (encoder.value_range or ())).encode(), digest_size=8)
    digest.update(b"" if fingerprinted is None else fingerprinted.contiguous().numpy().tobytes())
    # hashing and decoding release Python's lock, so threads help; digests are joined in the order of the files
    with ThreadPoolExecutor() as pool:
        if len(files) * encoder.shape[0] * encoder.shape[1] * encoder.shape[2] > in_memory_limit():
            for file_digest in map_ahead(pool, _hash_file, files):
                digest.update(file_digest)
            num_workers = min(8, os.cpu_count() or 1)
            return FileSplit(tuple(files), encoder.open, columns, encoder.decoders, num_workers), digest.hexdigest()

        def decode(file: str) -> tuple[Tensor, bytes]:
            content = read_bytes(file)
            tail_start = max(_HASHED_BYTES_PER_END, len(content) - _HASHED_BYTES_PER_END)
            head, tail = content[:_HASHED_BYTES_PER_END], content[tail_start:]
            return encoder.open(file, content), _hash_ends(file, len(content), head, tail)

        x = torch.empty(len(files), *encoder.shape, dtype=torch.uint8)
        for i, (image, file_digest) in enumerate(map_ahead(pool, decode, files)):
            x[i] = image
            digest.update(file_digest)
    return {"x": x, **columns}, digest.hexdigest()


def map_ahead(pool: ThreadPoolExecutor, function: Callable[[str], T], files: Sequence[str]) -> Iterator[T]:
    """The results in order, with at most `_FILES_AT_ONCE` of them under way: no file waits for the slowest of a group.
    """
    pending: deque[Future[T]] = deque()
    try:
        for file in files:
            if len(pending) == _FILES_AT_ONCE:
                yield pending.popleft().result()
            pending.append(pool.submit(function, file))
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:                   # after an error: the rest is not read
            future.cancel()


def _hash_ends(path: str, size: int, head: bytes, tail: bytes) -> bytes:
    """The digest of a file's name, size, first and last bytes."""
    digest = hashlib.blake2b(os.fsencode(f"{os.path.basename(path)} {size}\n"), digest_size=16)
    digest.update(head)
    digest.update(tail)
    return digest.digest()


def _hash_file(path: str) -> bytes:
    """The digest of a file that is not decoded now: of its first bytes, and the last of those behind."""
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        head = file.read(_HASHED_BYTES_PER_END)
        file.seek(max(_HASHED_BYTES_PER_END, size - _HASHED_BYTES_PER_END))
        return _hash_ends(path, size, head, file.read())


def _explain_no_labels(root: Path, listing: _ImageListing) -> str:
    """Why there are no labels, and what would give some; a recipe that needs them refuses in these words."""
    if listing.num_loose_images:
        counts_text = (
            f"{len(listing.files) - listing.num_loose_images:,} in {summarize_list(listing.class_names)} and "
            f"{listing.num_loose_images:,} beside"
        )
        return (
            f"{len(listing.files):,} images, {counts_text}: all are read, without labels, since none are needed; to "
            "keep the classes, move the images beside them elsewhere, or give --conditional to a recipe that has it"
        )
    if listing.class_names:
        return (
            f"{root} holds only one class folder, {listing.class_names[0]!r}: a classifier needs at least two classes"
        )
    return (
        f"{root} holds {len(listing.files):,} images but no class folders: expected {root}/<class>/<image>.png or .jpg "
        "to learn classes"
    )


def describe_splits(splits: Sequence[str], num_outside: int, folders_read: str = "") -> list[str]:
    """Notes on folders: the split, where they name it, and the images that lie in none of those that were read."""
    folder_names = f"the folders {', '.join(sorted(set(splits)))}"
    notes = [f"split by {folder_names}; what has no folder is taken from train"] if splits[0] else []
    if num_outside:
        notes.append(f"left out: {format_count(num_outside, 'image')} outside {folders_read or folder_names}")
    return notes


def _describe_folder(root: Path, listing: _ImageListing) -> list[str]:
    """Notes on what was found and inferred."""
    classes_note = (
        f"{len(listing.files):,} images of {len(listing.class_names)} classes: {summarize_list(listing.class_names)}"
    )
    notes = [_explain_no_labels(root, listing) if listing.y is None else classes_note]
    notes += describe_splits(
        listing.splits,
        listing.num_images_outside,
        "the class folders" if listing.class_names and not listing.num_loose_images else "",
    )
    if listing.num_other_files:
        notes.append(f"ignored: {format_count(listing.num_other_files, 'file')} beside the images")
    return notes


def describe_resize(sizes: Counter[tuple[int, int]], encoder: ImageEncoder) -> str:
    """A note on the sizes of the images, and to which they are resized."""
    channels, height, width = encoder.shape
    color_text = "gray" if channels == 1 else "in color"
    if set(sizes) == {(width, height)}:
        return f"images of {width}×{height}, {color_text}"
    (w, h), _ = sizes.most_common(1)[0]
    sizes_text = f"{len(sizes)} sizes, mostly {w}×{h}," if len(sizes) > 1 else f"{w}×{h}"
    return f"images of {sizes_text} are resized to {width}×{height}, {color_text}"
