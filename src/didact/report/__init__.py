"""Pages that a person would show: of a run, of several side by side, of a sweep."""

from didact.report.compare_runs import compare_runs, write_sweep_page
from didact.report.page import write_report

__all__ = [
    "compare_runs", "write_report", "write_sweep_page",
]
