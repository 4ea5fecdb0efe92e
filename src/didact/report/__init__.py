"""Reports: the page of a run, of several runs side by side, of a sweep. They read the run's folder only.

    page, figures, predictions, examples        the report; its charts; saved predictions; highest and lowest losses
    gallery, generative_figures, sampled_rows   what generative models make
    mask_strips, box_strips, nearest_words      segmentation, detection, word vectors
    decision_surfaces                           the learned function over one or two features
    run_comparison, leaderboard                 several runs, sweeps; models over folds
"""

from typing import TYPE_CHECKING

from didact.lazy import make_lazy_getattr

if TYPE_CHECKING:
    from didact.report.leaderboard import write_leaderboard as write_leaderboard
    from didact.report.page import write_report as write_report
    from didact.report.run_comparison import compare_runs as compare_runs
    from didact.report.run_comparison import write_sweep_page as write_sweep_page

_EXPORTS = {
    "compare_runs": "run_comparison",
    "write_leaderboard": "leaderboard",
    "write_report": "page",
    "write_sweep_page": "run_comparison",
}
__all__ = sorted(_EXPORTS)

__getattr__ = make_lazy_getattr(__name__, _EXPORTS)
