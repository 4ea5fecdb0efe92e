"""Explanations of a model's predictions: functions of a scoring function, inputs and a class; and pages made of them.

    from didact.explain import grad_cam, occlusion, saliency, shapley
    heat = grad_cam(model, images, target=3)      # (B, H, W), for any module that gives (B, classes)

    gradients            saliency, SmoothGrad, gradient × input;  grad_cam  Grad-CAM
    occlusion, shapley   occlusion and Shapley values;  feature_maps  feature maps and filters
    attention_maps       attention weights;  head_ablation  the importance of attention heads
    gradient_memory      gates and gradient norms over time of recurrent networks;  compare_memory  of several runs
    explain_run          `didact explain`;  sequences  its part for texts and series;  methods, page, figures, colormap

Saliency needs a scalar, the score of one class, and a subset of features needs a value for those left out: Gaba 12.5.1
and 12.5.3 leave both open (M55). Here the score is the logit, and `baseline` is the value of what is absent.
"""

from didact.explain.feature_maps import feature_maps, filters
from didact.explain.grad_cam import grad_cam
from didact.explain.gradients import gradient_times_input, saliency, smooth_grad
from didact.explain.occlusion import occlusion, patch_grid
from didact.explain.shapley import shapley

__all__ = [
    "feature_maps", "filters", "grad_cam", "gradient_times_input", "occlusion", "patch_grid", "saliency", "shapley",
    "smooth_grad",
]
