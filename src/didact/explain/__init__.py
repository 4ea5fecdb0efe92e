"""Why a model said what it said: plain functions of a scoring function, inputs and a class, and pages made of them.

    from didact.explain import grad_cam, occlusion, saliency, shapley
    heat = grad_cam(model, images, target=3)      # (B, H, W), for any module that gives (B, classes)

Saliency needs a scalar, the score of one class, and a subset of features needs a value for those left out: Gaba
12.5.1 and
12.5.3 leave both open (M55). Here the score is what stands before the softmax, and `baseline` is what absence means.
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
