"""Opening image files, with one-line errors for damaged ones."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

from didact.errors import UsageError

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".heic", ".heif", ".avif")
_HEIF_SUFFIXES = (".heic", ".heif")
GRAYSCALE_MODES = ("1", "L", "LA", "La", "I", "I;16", "I;16B", "I;16L", "F")
_TRANSPOSED_ORIENTATIONS = (5, 6, 7, 8)  # EXIF orientations that swap width and height


class ImageHeader(NamedTuple):
    """What the first bytes of an image file say: width and height as stored, and upright as its metadata ask."""

    stored_size: tuple[int, int]
    size: tuple[int, int]
    mode: str


@contextmanager
def open_image(path: Any, content: bytes | None = None) -> Iterator[Any]:
    """The file as Pillow's image, from its bytes where they are at hand; any error inside the block is the file's
    fault, reported in one line."""
    from PIL import Image

    _require_decoder(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")         # metadata that is a little broken
        try:
            with Image.open(path if content is None else BytesIO(content)) as image:
                yield image
        except UsageError:                      # it can be read, but is not what is expected
            raise
        # decoders raise anything on damaged files: SyntaxError, struct.error, MemoryError …
        except Exception as error:
            raise _make_image_error(path, error) from None


def _require_decoder(path: Any) -> None:
    """Register the reader of HEIC with Pillow; refuse what cannot be read here in one line."""
    suffix = Path(path).suffix.lower() if isinstance(path, str | Path) else ""
    if suffix in _HEIF_SUFFIXES and not _register_heif() and os.path.exists(path):
        raise UsageError(f"the image {path} is HEIC: pip install 'didact[heic]' to read it, or convert it to JPEG")
    if suffix == ".avif" and not _reads_avif() and os.path.exists(path):
        raise UsageError(f"the image {path} is AVIF, which this Pillow does not read: update Pillow, or convert it")


@cache
def _register_heif() -> bool:
    """Whether Pillow reads HEIC: with pillow-heif."""
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        return False
    register_heif_opener()
    return True


@cache
def _reads_avif() -> bool:
    from PIL import features

    return bool(features.check("avif"))


def read_bytes(path: str) -> bytes:
    """The bytes of an image file."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise _make_image_error(path, error) from None


def read_header(path: str) -> ImageHeader:
    """Size and mode of an image. Of a PNG, this reads the whole file: its metadata may be at the end."""
    with open_image(path) as image:
        width, height = image.size
        is_transposed = image.getexif().get(0x0112) in _TRANSPOSED_ORIENTATIONS
        return ImageHeader((width, height), (height, width) if is_transposed else (width, height), image.mode)


def _make_image_error(path: str | Path, error: Exception) -> UsageError:
    """The error that names the image and what is wrong with it."""
    if not os.path.exists(path):
        return UsageError(f"no image at {path}: expected a file or a folder of files ({', '.join(IMAGE_SUFFIXES)})")
    if os.path.isfile(path) and os.path.getsize(path) == 0:
        return UsageError(f"the image {path} is empty (0 bytes): replace it or leave it out")
    reason = str(error).split("\n")[0] or type(error).__name__
    return UsageError(f"the image {path} cannot be read ({reason}): replace it or leave it out")
