"""Make the pictures of README's gallery from real runs: python tools/make_gallery.py [NAME …] [--runs FOLDER]

Each entry trains one run (kept and reused while its folder is there), takes a figure of its report or of its explanation, and
photographs it with headless Chromium. Public datasets are read from DIDACT_DATA.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GALLERY = ROOT / "docs" / "gallery"
WIDTH = 520  # CSS pixels of a picture


@dataclass(frozen=True)
class Picture:
    """A figure of a run: the `number`-th below the heading of its report, or of the page of `explain`."""

    train: tuple[str, ...]
    heading: str
    number: int = 0
    explain: tuple[str, ...] | None = None


PICTURES = {
    "latent": Picture(("vae", "--data", "mnist", "--latent-dim", "2", "--epochs", "5"), "Drawn"),
    "segmentation": Picture(("segmentation", "--data", "pennfudan", "--size", "96"), "Masks"),
    "detection": Picture(("detection", "--data", "scatter"), "Boxes"),
    "explain": Picture(("cnn", "--data", "fashion_mnist", "--epochs", "1"), "", explain=("--method", "grad_cam")),
    "attention": Picture(("translate",), "", explain=("twenty one", "--method", "alignment")),
    "forecast": Picture(("forecast",), "Forecast"),
}


def run_didact(*arguments: str) -> dict:
    """A command's answer."""
    command = [sys.executable, "-m", "didact", *arguments, "--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def find_page(name: str, picture: Picture, runs: Path) -> Path:
    """The report or explanation of the entry's run, trained now if it is not there."""
    root = runs / name
    if not list(root.glob("*/*/report.html")):
        run_didact("train", *picture.train, "--runs", str(root))
    if picture.explain is None:
        return next(root.glob("*/*/report.html"))
    return Path(run_didact("explain", "latest", *picture.explain, "--runs", str(root))["page"])


def cut_figure(page: str, heading: str, number: int) -> str:
    """The page with one figure alone."""
    sections = [s for s in re.split(r"(?=<section)", page) if f">{heading}" in s] if heading else [page]
    if not sections:
        raise SystemExit(f"no heading {heading!r}; there are {re.findall('<h2[^>]*>([^<]*)', page)}")
    figures = re.findall(r"<figure.*?</figure>", sections[0], re.DOTALL)
    styles = "".join(re.findall(r"<style.*?</style>", page, re.DOTALL))
    body = f"<body style='margin:0;padding:12px;width:{WIDTH}px;box-sizing:border-box'>{figures[number]}</body>"
    return f"<!doctype html><meta charset=utf-8>{styles}{body}"


def photograph(html: str, target: Path) -> None:
    """A PNG of what the page shows, without the empty rest."""
    from PIL import Image, ImageChops

    with tempfile.TemporaryDirectory() as folder:
        page, shot = Path(folder, "page.html"), Path(folder, "shot.png")
        page.write_text(html, encoding="utf-8")
        command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--force-device-scale-factor=2"]
        command += [f"--user-data-dir={folder}/profile", f"--window-size={WIDTH},1600", f"--screenshot={shot}", page.as_uri()]
        subprocess.run(command, check=True, capture_output=True)
        image = Image.open(shot).convert("RGB")
    background = Image.new("RGB", image.size, image.getpixel((image.width - 1, image.height - 1)))
    box = ImageChops.difference(image, background).getbbox()
    image = image.crop((0, 0, image.width, min(image.height, box[3] + 24) if box else image.height))
    image.quantize(128).save(target, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*PICTURES, []], help="pictures to make (all if none)")
    parser.add_argument("--runs", type=Path, default=Path("runs") / "gallery")
    args = parser.parse_args()
    GALLERY.mkdir(parents=True, exist_ok=True)
    for name in args.names or PICTURES:
        picture = PICTURES[name]
        page = find_page(name, picture, args.runs).read_text(encoding="utf-8")
        photograph(cut_figure(page, picture.heading, picture.number), GALLERY / f"{name}.png")
        print(GALLERY / f"{name}.png", file=sys.stderr)


if __name__ == "__main__":
    main()
