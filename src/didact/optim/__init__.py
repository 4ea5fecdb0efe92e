"""Optimizers that PyTorch lacks, learning-rate schedules, proximal steps."""
