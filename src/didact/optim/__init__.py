"""Optimizers that PyTorch lacks, optimizers by name, and learning-rate schedules.

    factory            make_optimizer("adamw", lr=…): all optimizers by name, with their default learning rates
    schedule           constant, step decay, cosine, warmup + cosine, one cycle
    lion, lamb, lars, muon, sam
                       an optimizer each
    proximal           elastic net by proximal steps
    weight_clipping    weights clamped after each step
    multi              several optimizers as one
    for_device         fused kernels, and steps that a CUDA graph can capture
    base               what our optimizers share
"""

from didact.optim.factory import OPTIMIZERS, make_optimizer
from didact.optim.for_device import build_optimizer, set_lr
from didact.optim.lamb import LAMB
from didact.optim.lars import LARS
from didact.optim.lion import Lion
from didact.optim.multi import MultiOptimizer
from didact.optim.muon import Muon, muon_with_adamw
from didact.optim.proximal import elastic_net, with_proximal
from didact.optim.sam import SAM
from didact.optim.schedule import (
    SCHEDULES,
    Constant,
    Cosine,
    OneCycle,
    Schedule,
    StepDecay,
    WarmupCosine,
    make_schedule,
)
from didact.optim.weight_clipping import with_weight_clipping

__all__ = [
    "LAMB", "LARS", "OPTIMIZERS", "SAM", "SCHEDULES", "Constant", "Cosine", "Lion", "MultiOptimizer", "Muon",
    "OneCycle", "Schedule", "StepDecay", "WarmupCosine", "build_optimizer", "elastic_net", "make_optimizer",
    "make_schedule", "muon_with_adamw", "set_lr", "with_proximal", "with_weight_clipping",
]  # fmt: skip
