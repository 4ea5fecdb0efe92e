"""A person's own images: a folder with one subfolder for each class, or with train/ and test/ that hold such.

Images that lie in no class folders, or all in one, have no labels: models that draw or give back images need none, and read those beside
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

from didact.data.assemble import CLASSIFICATION, assemble, divide
from didact.data.core import Batch, Data, Decode, Whence, unit
from didact.data.depth import Span, as_bytes, is_deep, span_note, span_of
from didact.data.health import listed
from didact.data.image_files import GREY, SUFFIXES, opened
from didact.data.readers import inside
from didact.data.splitting import three_way
from didact.data.stream import Streamed, resident_limit
from didact.errors import UsageError, counted

END = 2**19         # bytes at each end of a file that its fingerprint is taken of
LARGEST = 64        # side to which images are brought when none is asked for
PARTS = {"train": "train", "training": "train", "val": "validation", "valid": "validation", "validation": "validation",
         "test": "test", "testing": "test"}


@dataclass(frozen=True)
class ImageEncoder:
    """Image files -> (channels, height, width) bytes: turned upright, on white where transparent, resized.

    `span` is the range of a set whose files hold more than 8 bits.
    """

    shape: tuple[int, int, int]
    span: Span | None = None

    @property
    def decoders(self) -> Mapping[str, Decode]:
        return {"x": unit}

    def open(self, path: str | Path) -> Tensor:
        _, height, width = self.shape
        return self.decoded(path, (width, height))

    def whole(self, path: str | Path) -> Tensor:
        """The image as it is, every pixel of it: to draw on, or to be given back."""
        return self.decoded(path, None)

    def decoded(self, path: str | Path, size: tuple[int, int] | None) -> Tensor:
        from PIL import Image, ImageOps

        with opened(path) as found:
            if size:
                found.draft(None, (2 * size[0], 2 * size[1]))       # a large JPEG is decoded small
            image = flat(ImageOps.exif_transpose(found), self.span).convert("L" if self.shape[0] == 1 else "RGB")
            if size and image.size != size:
                image = image.resize(size, Image.Resampling.BILINEAR)
        x = torch.from_numpy(np.array(image, dtype=np.uint8))
        return x[None] if x.ndim == 2 else x.permute(2, 0, 1).contiguous()

    def read(self, inputs: Sequence[str]) -> tuple[list[str], Batch]:
        """Image files, or folders of them."""
        files: list[str] = []
        for given in inputs:
            if os.path.isdir(given):
                found, _ = images(Path(given))
                if not found:
                    raise UsageError(f"the folder {given} holds no image ({', '.join(SUFFIXES)})")
                files += found
            else:
                files.append(given)
        return files, {"x": torch.stack([self.open(file) for file in files])}

    def spec(self) -> dict[str, Any]:
        return {"kind": "images", "shape": list(self.shape)} | ({"span": list(self.span)} if self.span else {})

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Self:
        channels, height, width = spec["shape"]
        span = spec.get("span")             # none in runs of bytes, nor in those that were kept before there was one
        return cls((channels, height, width), (span[0], span[1]) if span else None)

    def spanning(self, files: Sequence[str], modes: Sequence[str], train: Tensor, before: Data | None) -> tuple[Self, list[str]]:
        """The same with the range of those training files that hold more than 8 bits, and what is said of it; as it is where none does.

        Where a run kept these data `before`, its range is taken: none, where each file was read for itself.
        """
        if before is not None:
            return replace(self, span=before.encoder.span if isinstance(before.encoder, ImageEncoder) else None), []
        deep = {i for i, mode in enumerate(modes) if is_deep(mode)}
        found = span_of([files[i] for i in train.tolist() if i in deep])
        return (replace(self, span=found[0]), [span_note(*found, len(deep))]) if found else (self, [])


def flat(image: Any, span: Span | None) -> Any:
    """Without transparency, and with 8 bits: a plain conversion would show hidden colours and clip 16 bits to white."""
    from PIL import Image

    if is_deep(image.mode):
        return Image.fromarray(as_bytes(image, span))
    if image.mode in ("LA", "La", "RGBA", "RGBa", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image


def images(folder: Path, root: Path | None = None) -> tuple[list[str], int]:
    """The image files below a folder, sorted, and how many other files lie there; hidden ones do not count.

    None lies outside of the data set's folder, `root`.
    """
    found, others, root = [], 0, root or folder
    inside(str(folder), root)
    for where, folders, files in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        for file in sorted(f for f in files if not f.startswith(".")):
            if file.lower().endswith(SUFFIXES):
                found.append(within(os.path.join(where, file), root))
            else:
                others += 1
    return found, others


def within(file: str, root: Path) -> str:
    """A file that was found below the root: only as a link can it lie elsewhere."""
    return inside(file, root) if os.path.islink(file) else file


def subfolders(folder: Path) -> list[Path]:
    """The folders inside, sorted; hidden ones do not count."""
    try:
        return sorted(f for f in folder.iterdir() if f.is_dir() and not f.name.startswith("."))
    except OSError as error:
        raise UsageError(f"cannot read the folder {folder}: {error.strerror}") from None


@dataclass(frozen=True)
class Found:
    """What lies in the folder: image i is of class y[i], where there are any, and, where the folder says so, of split part[i]."""

    files: tuple[str, ...]
    y: Tensor | None
    part: tuple[str, ...]
    labels: tuple[str, ...]
    others: int
    strays: int = 0     # images of the root that lie in none of the folders that were read
    beside: int = 0     # images beside the class folders that were read with them, where no classes are needed


def scan(root: Path, *, unlabelled: bool = False) -> Found:
    """Walk root/class/image, or root/train/class/image, root/test/class/image; where no class is asked for, images beside them too."""
    below = subfolders(root)
    tops = [(PARTS[f.name.lower()], f) for f in below if f.name.lower() in PARTS]
    if "train" not in {part for part, _ in tops}:
        tops = [("", root)]                                         # then val or test is the name of a class
    folders = [(part, folder) for part, top in tops for folder in subfolders(top)]
    if unlabelled and folders and (loose := [(file, part) for part, top in tops for file in directly(top, root)]):
        return together(root, folders, loose)
    if folders and (bare := [top for _, top in tops if not subfolders(top)]):
        raise UsageError(f"{bare[0]} holds no class folders, but those beside it do: expected {bare[0]}/<class>/<image>.png or .jpg")
    labels = sorted({folder.name for _, folder in folders})
    lying: list[tuple[str, int, str]] = []                          # file, class, part
    others = 0
    for part, folder in folders or tops:
        here, rest = images(folder, root)
        if folders and not here:
            raise UsageError(f"the class folder {folder} holds no image ({', '.join(SUFFIXES)}): add some or delete it")
        lying += [(file, labels.index(folder.name) if folders else 0, part) for file in here]
        others += rest
    if not lying:
        raise UsageError(f"{root} holds 0 images: expected {root}/<class>/<image>.png or .jpg, or images alone to learn no classes")
    files, y, parts = zip(*lying, strict=True)
    strays = len(set(images(root)[0]).difference(files))
    return Found(files, torch.tensor(y) if len(labels) > 1 else None, parts, tuple(labels), others, strays)


def directly(folder: Path, root: Path) -> list[str]:
    """The image files in a folder itself, sorted."""
    names = sorted(name for name in os.listdir(folder) if name.lower().endswith(SUFFIXES) and not name.startswith("."))
    return [within(path, root) for name in names if os.path.isfile(path := os.path.join(folder, name))]


def together(root: Path, folders: Sequence[tuple[str, Path]], loose: Sequence[tuple[str, str]]) -> Found:
    """Images in class folders and beside them, without classes."""
    lying, others = list(loose), 0
    for part, folder in folders:
        here, rest = images(folder, root)
        lying += [(file, part) for file in here]
        others += rest
    files, parts = zip(*lying, strict=True)
    strays = len(set(images(root)[0]).difference(files))
    return Found(files, None, parts, tuple(sorted({folder.name for _, folder in folders})), others, strays, len(loose))


def measure(files: Sequence[str]) -> tuple[Counter[tuple[int, int]], list[str]]:
    """How many images have which size, and the mode of each: read from the files' heads."""
    sizes: Counter[tuple[int, int]] = Counter()
    modes = []
    for file in files:
        with opened(file) as image:
            sizes[image.size] += 1
            modes.append(image.mode)
    return sizes, modes


def channels_of(modes: Iterable[str]) -> int:
    """One where all images are grey, else three."""
    return 1 if set(modes) <= set(GREY) else 3


def divided(found: Found, seed: int) -> dict[str, Tensor] | None:
    """The split that the folders name; the part that has no folder of its own is cut from train/."""
    rows = {part: torch.tensor([i for i, p in enumerate(found.part) if p == part]) for part in set(found.part)}
    if "" in rows:
        return None
    train = rows["train"]
    lacking = [part for part in ("validation", "test") if part not in rows]
    if lacking:
        share = 0.15 if len(lacking) == 2 else 0.1
        cut = three_way(
            len(train), None if found.y is None else found.y[train], seed=seed,
            fractions=(share if "validation" in lacking else 0.0, share if "test" in lacking else 0.0),
        )
        rows |= {part: train[cut[part]] for part in ("train", *lacking)}
    return rows


def load(
    root: Path, *, size: int | None = None, seed: int = 0, indices: Mapping[str, Tensor] | None = None, unlabelled: bool = False,
    before: Data | None = None,
) -> Data:
    """A folder of images as Data: in memory where it fits, else read while learning.

    `unlabelled`: nobody asks for their classes. `before`: what a run kept of these data.
    """
    if size is not None and size < 1:
        raise UsageError(f"--size expects a side of at least 1 pixel, got {size}")
    found = scan(root, unlabelled=unlabelled)
    sizes, modes = measure(found.files)
    side = size or min(LARGEST, max(sizes.most_common(1)[0][0]))
    task = "none" if found.y is None else CLASSIFICATION[len(found.labels) > 2]
    indices = divide(root.name, len(found.files), found.y, task=task, indices=indices or divided(found, seed), seed=seed)
    encoder, told = ImageEncoder((channels_of(modes), side, side)).spanning(found.files, modes, indices["train"], before)
    notes = [*describe(root, found, sizes, encoder), *told]
    small = {} if found.y is None else {"y": found.y}
    nbytes = len(found.files) * encoder.shape[0] * side * side
    if nbytes > resident_limit():
        workers = min(8, os.cpu_count() or 1)
        columns: Batch | Streamed = Streamed(found.files, encoder.open, small, encoder.decoders, workers)
        notes.append(f"{nbytes / 2**30:.2g} GiB of images are read while learning, by {workers} processes")
    else:
        columns = {"x": decoded(found.files, encoder), **small}
    return assemble(
        root.resolve().name, "images", columns, task=task, labels=() if found.y is None else found.labels,
        target="" if found.y is None else "class", encoder=encoder, indices=indices, seed=seed, notes=notes,
        whence=below(root, found.files), fingerprint=of_files(found.files, encoder, found.y),
    )


def below(root: Path, files: Sequence[str]) -> Whence:
    """Each file as it is called inside the folder."""
    return lambda row: os.path.relpath(files[row], root)


def of_files(files: Sequence[str], encoder: ImageEncoder, y: Tensor | None) -> str:
    """Sixteen hexadecimal digits of files and targets, the same whether images are held in memory or streamed.

    Of each file its name, its size and its bytes: of large ones the first and the last, since to read them all would take an epoch.
    """
    digest = hashlib.blake2b(repr(encoder.shape + (encoder.span or ())).encode(), digest_size=8)
    digest.update(b"" if y is None else y.contiguous().numpy().tobytes())
    for name in files:
        size = os.path.getsize(name)
        digest.update(f"{os.path.basename(name)} {size}\n".encode())
        with open(name, "rb") as file:
            digest.update(file.read(END))
            file.seek(max(END, size - END))
            digest.update(file.read())
    return digest.hexdigest()


def decoded(files: Sequence[str], encoder: ImageEncoder) -> Tensor:
    """All images as bytes; decoders leave Python's lock, so threads help."""
    x = torch.empty(len(files), *encoder.shape, dtype=torch.uint8)
    with ThreadPoolExecutor() as pool:
        for i, image in enumerate(pool.map(encoder.open, files)):
            x[i] = image
    return x


def unlabelled(root: Path, found: Found) -> str:
    """Why there are no labels, and what would give some: a recipe that needs them says so in these words."""
    if found.beside:
        inside = f"{len(found.files) - found.beside:,} in {listed(found.labels)} and {found.beside:,} beside"
        keep = "to keep the classes, move the images beside them elsewhere, or give --conditional to a recipe that has it"
        return f"{len(found.files):,} images, {inside}: all are read, without classes, since none are asked for; {keep}"
    if found.labels:
        return f"{root} holds only one class folder, {found.labels[0]!r}: at least two can be told apart"
    return f"{root} holds {len(found.files):,} images but no class folders: expected {root}/<class>/<image>.png or .jpg to learn classes"


def split_notes(parts: Sequence[str], strays: int, read: str = "") -> list[str]:
    """What folders decided: the split, where they name it, and the images that lie in none of those that were read."""
    folders = f"the folders {', '.join(sorted(set(parts)))}"
    split = [f"split by {folders}; what is not there is cut from train"] if parts[0] else []
    return split + ([f"left out: {counted(strays, 'image')} outside {read or folders}"] if strays else [])


def describe(root: Path, found: Found, sizes: Counter[tuple[int, int]], encoder: ImageEncoder) -> list[str]:
    """What was found and inferred."""
    told = f"{len(found.files):,} images of {len(found.labels)} classes: {listed(found.labels)}"
    notes = [unlabelled(root, found) if found.y is None else told, in_size(sizes, encoder)]
    notes += split_notes(found.part, found.strays, "the class folders" if found.labels and not found.beside else "")
    if found.others:
        notes.append(f"passed over: {counted(found.others, 'file')} beside the images")
    return notes


def in_size(sizes: Counter[tuple[int, int]], encoder: ImageEncoder) -> str:
    """From which sizes to which images are brought, where they are not of it already."""
    channels, height, width = encoder.shape
    kind = "grey" if channels == 1 else "in colour"
    if set(sizes) == {(width, height)}:
        return f"images of {width}×{height}, {kind}"
    (w, h), _ = sizes.most_common(1)[0]
    various = f"{len(sizes)} sizes, mostly {w}×{h}," if len(sizes) > 1 else f"{w}×{h}"
    return f"images of {various} are resized to {width}×{height}, {kind}"
