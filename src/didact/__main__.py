"""python -m didact."""

from didact.cli.main import run

run()
