"""Make the pictures of README's gallery from real runs: python tools/make_gallery.py [NAME …] [--runs FOLDER]

Each entry trains one run (reused while its folder is there), opens its report or its explanation in headless Chromium
with one section alone, and photographs it. Public datasets are read from DIDACT_DATA.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
GALLERY = ROOT / "docs" / "gallery"
WIDTH = 640            # CSS pixels of a picture
MAX_HEIGHT = 520


@dataclass(frozen=True)
class Picture:
    """A part of a page: the element after `marker`, of this tag (the report of `train`, or the page of `explain`)."""

    train: tuple[str, ...]
    marker: str
    element: str = "figure"
    explain: tuple[str, ...] | None = None


PICTURES = {
    "surface": Picture(("mlp", "--data", "moons"), 'aria-label="Decision regions"'),
    "latent": Picture(("vae", "--data", "mnist", "--latent-dim", "2", "--epochs", "4"), "Latent plane"),
    "segmentation": Picture(("segmentation", "--data", "pennfudan", "--epochs", "15"), ">Lowest loss<", "ul"),
    "detection": Picture(("detection", "--data", "scatter", "--steps", "300"), ">Lowest loss<", "ul"),
    "explain": Picture(
        ("cnn", "--data", "fashion_mnist", "--steps", "300"), "<h2>test ex", "section", ("--method", "all")
    ),
    "attention": Picture(("seq2seq",), 'label="Alignment"', explain=("twenty one thousand", "--method", "alignment")),
}


def run_didact(*arguments: str) -> dict[str, Any]:
    """A command's answer."""
    command = [sys.executable, "-m", "didact", *arguments, "--json"]
    answer: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return answer


def find_page(name: str, picture: Picture, runs: Path) -> Path:
    """The report or explanation of the entry's run, trained now if it is not there."""
    root = runs / name
    if not list(root.glob("*/*/report.html")):
        run_didact("train", *picture.train, "--runs", str(root))
    if picture.explain is None:
        return next(root.glob("*/*/report.html"))
    return Path(run_didact("explain", "latest", *picture.explain, "--runs", str(root))["page"])


def cut_element(page: str, marker: str, element: str) -> str:
    """The page with one element alone: the first that holds the marker, or follows it."""
    elements = [m for m in re.finditer(rf"<{element}\b.*?</{element}>", page, re.DOTALL) if "style" not in m[0][:7]]
    body = page.index("<body")
    position = page.index(marker, body)
    chosen = next(m for m in elements if m.end() > position and m.start() > body)
    styles = "".join(re.findall(r"<style.*?</style>", page[:body], re.DOTALL))
    styles += f"<style>figure svg {{ max-width: 100%; max-height: {MAX_HEIGHT - 80}px }}</style>"
    content = f"<main style='max-width:none;padding:0'>{chosen[0]}</main>"
    body_style = f"margin:0;padding:14px;width:{WIDTH}px"
    return f"<!doctype html><meta charset=utf-8>{styles}<body style='{body_style}'>{content}</body>"


def photograph(html: str, target: Path) -> None:
    """A PNG of what the page shows, without the empty rest."""
    from PIL import Image, ImageChops

    with tempfile.TemporaryDirectory() as folder:
        page, shot = Path(folder, "page.html"), Path(folder, "shot.png")
        page.write_text(html, encoding="utf-8")
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-sync"]
        flags += [f"--window-size={WIDTH + 28},{MAX_HEIGHT}", f"--screenshot={shot}"]
        flags += [f"--user-data-dir={folder}/profile"]
        subprocess.run(["chromium", *flags, page.as_uri()], check=True, capture_output=True)
        image = Image.open(shot).convert("RGB")
    background = Image.new("RGB", image.size, image.getpixel((image.width - 1, image.height - 1)))
    box = ImageChops.difference(image, background).getbbox()
    image = image.crop((0, 0, image.width, min(image.height, box[3] + 14) if box else image.height))
    image.quantize(128).save(target, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"pictures to make, of {', '.join(PICTURES)} (all if none)")
    parser.add_argument("--runs", type=Path, default=Path("runs") / "gallery")
    args = parser.parse_args()
    GALLERY.mkdir(parents=True, exist_ok=True)
    for name in args.names or PICTURES:
        picture = PICTURES[name]
        page = find_page(name, picture, args.runs).read_text(encoding="utf-8")
        photograph(cut_element(page, picture.marker, picture.element), GALLERY / f"{name}.png")
        sys.stderr.write(f"{GALLERY / name}.png\n")


if __name__ == "__main__":
    main()
