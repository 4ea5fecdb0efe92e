"""Reports: the page of a run, of several runs side by side, of a sweep. They read the run's folder only.

    page, figures, predictions, examples        the report; its charts; saved predictions; highest and lowest losses
    gallery, generative_figures, sampled_rows   what generative models make
    mask_strips, box_strips, nearest_words      segmentation, detection, word vectors
    decision_surfaces                           the learned function over one or two features
    compare_runs                                several runs, sweeps
"""

from didact.report.compare_runs import compare_runs, write_sweep_page
from didact.report.page import write_report

__all__ = ["compare_runs", "write_report", "write_sweep_page"]
