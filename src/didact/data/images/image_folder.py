"""A person's own images: a folder with one subfolder for each class, or with train/ and test/ that hold such.

Images that lie in no class folders, or all in one, have no labels: models that draw or give back images need none,
and read those beside
class folders as well.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from didact.data.build import CLASSIFICATION_TASKS, build_data, split_indices
from didact.data.checks import summarize_list
from didact.data.core import Batch, Data, Decode, Given, SourceLocator, uint8_to_unit
from didact.data.datasets.archives import inside
from didact.data.images.bit_depth import ValueRange, describe_range, find_value_range, has_more_than_8_bits, to_uint8
from didact.data.images.open_image import GRAYSCALE_MODES, IMAGE_SUFFIXES, open_image
from didact.data.split import train_val_test_split
from didact.data.storage import FileSplit, in_memory_limit
from didact.errors import UsageError, format_count

HASHED_BYTES_PER_END = 2**19         # bytes at each end of a file that its fingerprint is taken of
MAX_DEFAULT_SIDE = 64        # side to which images are brought when none is asked for
SPLIT_OF_FOLDER = {
    "train": "train",
    "training": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "test": "test",
    "testing": "test",
}


@dataclass(frozen=True)
class ImageEncoder:
    """Image files -> (channels, height, width) bytes: turned upright, on white where transparent, resized.

    `span` is the range of a set whose files hold more than 8 bits.
    """

    shape: tuple[int, int, int]
    value_range: ValueRange | None = None

    @property
    def decoders(self) -> Mapping[str, Decode]:
        return {"x": uint8_to_unit}

    def open(self, path: str | Path) -> Tensor:
        _, height, width = self.shape
        return self._decode(path, (width, height))

    def open_full_size(self, path: str | Path) -> Tensor:
        """The image as it is, every pixel of it: to draw on, or to be given back."""
        return self._decode(path, None)

    def _decode(self, path: str | Path, target_size: tuple[int, int] | None) -> Tensor:
        from PIL import Image, ImageOps

        with open_image(path) as raw_image:
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
                found, _ = list_images(Path(path))
                if not found:
                    raise UsageError(f"the folder {path} holds no image ({', '.join(IMAGE_SUFFIXES)})")
                files += found
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
        # none in runs of bytes, nor in those that were kept before there was one
        value_range = spec.get("span")
        return cls((channels, height, width), (value_range[0], value_range[1]) if value_range else None)

    def with_value_range(
        self, files: Sequence[str], modes: Sequence[str], train_rows: Tensor, run_data: Data | None
    ) -> tuple[Self, list[str]]:
        """The same with the range of those training files that hold more than 8 bits, and what is said of it; as it
        is where none does.

        Where a run kept these data (`run_data`), its range is taken: none, where each file was read for itself.
        """
        if run_data is not None:
            return replace(
                self, value_range=run_data.encoder.value_range if isinstance(run_data.encoder, ImageEncoder) else None
            ), []
        high_bit_rows = {i for i, mode in enumerate(modes) if has_more_than_8_bits(mode)}
        ranges = find_value_range([files[i] for i in train_rows.tolist() if i in high_bit_rows])
        return (
            (replace(self, value_range=ranges[0]), [describe_range(*ranges, len(high_bit_rows))])
            if ranges
            else (self, [])
        )


def _to_8bit_opaque(image: Any, value_range: ValueRange | None) -> Any:
    """Without transparency, and with 8 bits: a plain conversion would show hidden colours and clip 16 bits to white."""
    from PIL import Image

    if has_more_than_8_bits(image.mode):
        return Image.fromarray(to_uint8(image, value_range))
    if image.mode in ("LA", "La", "RGBA", "RGBa", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image


def list_images(folder: Path, root: Path | None = None) -> tuple[list[str], int]:
    """The image files below a folder, sorted, and how many other files lie there; hidden ones do not count.

    None lies outside of the data set's folder, `root`.
    """
    paths, num_others, root = [], 0, root or folder
    inside(str(folder), root)
    for current, children, files in os.walk(folder):
        children[:] = sorted(f for f in children if not f.startswith("."))
        for file in sorted(f for f in files if not f.startswith(".")):
            if file.lower().endswith(IMAGE_SUFFIXES):
                paths.append(within(os.path.join(current, file), root))
            else:
                num_others += 1
    return paths, num_others


def within(file: str, root: Path) -> str:
    """A file that was found below the root: only as a link can it lie elsewhere."""
    return inside(file, root) if os.path.islink(file) else file


def list_subfolders(folder: Path) -> list[Path]:
    """The folders inside, sorted; hidden ones do not count."""
    try:
        return sorted(f for f in folder.iterdir() if f.is_dir() and not f.name.startswith("."))
    except OSError as error:
        raise UsageError(f"cannot read the folder {folder}: {error.strerror}") from None


@dataclass(frozen=True)
class FolderListing:
    """What lies in the folder: image i is of class y[i], where there are any, and, where the folder says so, of
    split part[i]."""

    files: tuple[str, ...]
    y: Tensor | None
    splits: tuple[str, ...]
    class_names: tuple[str, ...]
    num_other_files: int
    num_images_outside: int = 0     # images of the root that lie in none of the folders that were read
    # images beside the class folders that were read with them, where no classes are needed
    num_images_beside: int = 0


def _scan_folder(root: Path, *, allow_unlabeled: bool = False) -> FolderListing:
    """Walk root/class/image, or root/train/class/image, root/test/class/image; where no class is asked for, images
    beside them too."""
    children = list_subfolders(root)
    split_roots = [(SPLIT_OF_FOLDER[f.name.lower()], f) for f in children if f.name.lower() in SPLIT_OF_FOLDER]
    if "train" not in {part for part, _ in split_roots}:
        split_roots = [("", root)]                                         # then val or test is the name of a class
    folders = [(part, folder) for part, split_root in split_roots for folder in list_subfolders(split_root)]
    if (
        allow_unlabeled
        and folders
        and (
            loose_images := [
                (file, part) for part, split_root in split_roots for file in _list_images_flat(split_root, root)
            ]
        )
    ):
        return _merge_unlabeled(root, folders, loose_images)
    if folders and (empty_roots := [split_root for _, split_root in split_roots if not list_subfolders(split_root)]):
        raise UsageError(
            f"{empty_roots[0]} holds no class folders, but those beside it do: expected "
            f"{empty_roots[0]}/<class>/<image>.png or .jpg"
        )
    labels = sorted({folder.name for _, folder in folders})
    entries: list[tuple[str, int, str]] = []                          # file, class, part
    num_others = 0
    for part, folder in folders or split_roots:
        here, num_skipped = list_images(folder, root)
        if folders and not here:
            raise UsageError(
                f"the class folder {folder} holds no image ({', '.join(IMAGE_SUFFIXES)}): add some or delete it"
            )
        entries += [(file, labels.index(folder.name) if folders else 0, part) for file in here]
        num_others += num_skipped
    if not entries:
        raise UsageError(
            f"{root} holds 0 images: expected {root}/<class>/<image>.png or .jpg, or images alone to learn no classes"
        )
    files, y, parts = zip(*entries, strict=True)
    num_outside = len(set(list_images(root)[0]).difference(files))
    return FolderListing(
        files, torch.tensor(y) if len(labels) > 1 else None, parts, tuple(labels), num_others, num_outside
    )


def _list_images_flat(folder: Path, root: Path) -> list[str]:
    """The image files in a folder itself, sorted."""
    names = sorted(
        name for name in os.listdir(folder) if name.lower().endswith(IMAGE_SUFFIXES) and not name.startswith(".")
    )
    return [within(path, root) for name in names if os.path.isfile(path := os.path.join(folder, name))]


def _merge_unlabeled(
    root: Path, folders: Sequence[tuple[str, Path]], loose_images: Sequence[tuple[str, str]]
) -> FolderListing:
    """Images in class folders and beside them, without classes."""
    entries, num_others = list(loose_images), 0
    for part, folder in folders:
        here, num_skipped = list_images(folder, root)
        entries += [(file, part) for file in here]
        num_others += num_skipped
    files, parts = zip(*entries, strict=True)
    num_outside = len(set(list_images(root)[0]).difference(files))
    return FolderListing(
        files,
        None,
        parts,
        tuple(sorted({folder.name for _, folder in folders})),
        num_others,
        num_outside,
        len(loose_images),
    )


def read_image_sizes(files: Sequence[str]) -> tuple[Counter[tuple[int, int]], list[str]]:
    """How many images have which size, and the mode of each: read from the files' heads."""
    sizes: Counter[tuple[int, int]] = Counter()
    modes = []
    for file in files:
        with open_image(file) as image:
            sizes[image.size] += 1
            modes.append(image.mode)
    return sizes, modes


def infer_channels(modes: Iterable[str]) -> int:
    """One where all images are grey, else three."""
    return 1 if set(modes) <= set(GRAYSCALE_MODES) else 3


def split_by_folders(listing: FolderListing, seed: int) -> dict[str, Tensor] | None:
    """The split that the folders name; the part that has no folder of its own is cut from train/."""
    rows = {part: torch.tensor([i for i, p in enumerate(listing.splits) if p == part]) for part in set(listing.splits)}
    if "" in rows:
        return None
    train = rows["train"]
    missing_splits = [part for part in ("validation", "test") if part not in rows]
    if missing_splits:
        fraction = 0.15 if len(missing_splits) == 2 else 0.1
        split_rows = train_val_test_split(
            len(train),
            None if listing.y is None else listing.y[train],
            seed=seed,
            fractions=(
                fraction if "validation" in missing_splits else 0.0,
                fraction if "test" in missing_splits else 0.0,
            ),
        )
        rows |= {part: train[split_rows[part]] for part in ("train", *missing_splits)}
    return rows


def load_image_folder(
    root: Path,
    *,
    size: int | None = None,
    seed: int = 0,
    indices: Mapping[str, Tensor] | None = None,
    allow_unlabeled: bool = False,
    run_data: Data | None = None,
) -> Data:
    """A folder of images as Data: in memory where it fits, else read while learning.

    `allow_unlabeled`: nobody asks for their classes. `run_data`: what a run kept of these data.
    """
    if size is not None and size < 1:
        raise UsageError(f"--size expects a side of at least 1 pixel, got {size}")
    listing = _scan_folder(root, allow_unlabeled=allow_unlabeled)
    sizes, modes = read_image_sizes(listing.files)
    side = size or min(MAX_DEFAULT_SIDE, max(sizes.most_common(1)[0][0]))
    task = "none" if listing.y is None else CLASSIFICATION_TASKS[len(listing.class_names) > 2]
    indices = split_indices(
        root.name,
        len(listing.files),
        listing.y,
        task=task,
        indices=indices or split_by_folders(listing, seed),
        seed=seed,
    )
    encoder, range_notes = ImageEncoder((infer_channels(modes), side, side)).with_value_range(
        listing.files, modes, indices["train"], run_data
    )
    notes = [*_describe_folder(root, listing, sizes, encoder), *range_notes]
    targets = {} if listing.y is None else {"y": listing.y}
    nbytes = len(listing.files) * encoder.shape[0] * side * side
    if nbytes > in_memory_limit():
        num_workers = min(8, os.cpu_count() or 1)
        columns: Batch | FileSplit = FileSplit(listing.files, encoder.open, targets, encoder.decoders, num_workers)
        notes.append(f"{nbytes / 2**30:.2g} GiB of images are read while learning, by {num_workers} processes")
    else:
        columns = {"x": decode_images(listing.files, encoder), **targets}
    return build_data(
        root.resolve().name,
        "images",
        columns,
        task=task,
        class_names=() if listing.y is None else listing.class_names,
        target="" if listing.y is None else "class",
        encoder=encoder,
        indices=indices,
        seed=seed,
        notes=notes,
        locator=make_path_locator(root, listing.files),
        fingerprint=fingerprint_files(listing.files, encoder, listing.y),
    )


def make_path_locator(root: Path, files: Sequence[str]) -> SourceLocator:
    """Each file as it is called inside the folder."""
    return lambda row: os.path.relpath(files[row], root)


def fingerprint_files(files: Sequence[str], encoder: ImageEncoder, y: Tensor | None) -> str:
    """Sixteen hexadecimal digits of files and targets, the same whether images are held in memory or streamed.

    Of each file its name, its size and its bytes: of large ones the first and the last, since to read them all
    would take an epoch.
    """
    digest = hashlib.blake2b(repr(encoder.shape + (encoder.value_range or ())).encode(), digest_size=8)
    digest.update(b"" if y is None else y.contiguous().numpy().tobytes())
    for name in files:
        size = os.path.getsize(name)
        digest.update(f"{os.path.basename(name)} {size}\n".encode())
        with open(name, "rb") as file:
            digest.update(file.read(HASHED_BYTES_PER_END))
            file.seek(max(HASHED_BYTES_PER_END, size - HASHED_BYTES_PER_END))
            digest.update(file.read())
    return digest.hexdigest()


def decode_images(files: Sequence[str], encoder: ImageEncoder) -> Tensor:
    """All images as bytes; decoders leave Python's lock, so threads help."""
    x = torch.empty(len(files), *encoder.shape, dtype=torch.uint8)
    with ThreadPoolExecutor() as pool:
        for i, image in enumerate(pool.map(encoder.open, files)):
            x[i] = image
    return x


def _explain_no_labels(root: Path, listing: FolderListing) -> str:
    """Why there are no labels, and what would give some: a recipe that needs them says so in these words."""
    if listing.num_images_beside:
        counts_text = (
            f"{len(listing.files) - listing.num_images_beside:,} in {summarize_list(listing.class_names)} and "
            f"{listing.num_images_beside:,} beside"
        )
        advice = (
            "to keep the classes, move the images beside them elsewhere, or give --conditional to a recipe that has it"
        )
        return (
            f"{len(listing.files):,} images, {counts_text}: all are read, without classes, since none are asked for; "
            f"{advice}"
        )
    if listing.class_names:
        return f"{root} holds only one class folder, {listing.class_names[0]!r}: at least two can be told apart"
    return (
        f"{root} holds {len(listing.files):,} images but no class folders: expected {root}/<class>/<image>.png or .jpg "
        "to learn classes"
    )


def describe_splits(splits: Sequence[str], num_outside: int, folders_read: str = "") -> list[str]:
    """What folders decided: the split, where they name it, and the images that lie in none of those that were read."""
    folder_names = f"the folders {', '.join(sorted(set(splits)))}"
    notes = [f"split by {folder_names}; what is not there is cut from train"] if splits[0] else []
    return notes + (
        [f"left out: {format_count(num_outside, 'image')} outside {folders_read or folder_names}"]
        if num_outside
        else []
    )


def _describe_folder(
    root: Path, listing: FolderListing, sizes: Counter[tuple[int, int]], encoder: ImageEncoder
) -> list[str]:
    """What was found and inferred."""
    classes_note = (
        f"{len(listing.files):,} images of {len(listing.class_names)} classes: {summarize_list(listing.class_names)}"
    )
    notes = [_explain_no_labels(root, listing) if listing.y is None else classes_note, describe_resize(sizes, encoder)]
    notes += describe_splits(
        listing.splits,
        listing.num_images_outside,
        "the class folders" if listing.class_names and not listing.num_images_beside else "",
    )
    if listing.num_other_files:
        notes.append(f"passed over: {format_count(listing.num_other_files, 'file')} beside the images")
    return notes


def describe_resize(sizes: Counter[tuple[int, int]], encoder: ImageEncoder) -> str:
    """From which sizes to which images are brought, where they are not of it already."""
    channels, height, width = encoder.shape
    color_text = "grey" if channels == 1 else "in colour"
    if set(sizes) == {(width, height)}:
        return f"images of {width}×{height}, {color_text}"
    (w, h), _ = sizes.most_common(1)[0]
    sizes_text = f"{len(sizes)} sizes, mostly {w}×{h}," if len(sizes) > 1 else f"{w}×{h}"
    return f"images of {sizes_text} are resized to {width}×{height}, {color_text}"
