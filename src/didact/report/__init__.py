"""Pages that a person would show: of a run, of several side by side, of a sweep."""

from didact.report.compare import compare, sweep_page
from didact.report.page import write

__all__ = ["compare", "sweep_page", "write"]
