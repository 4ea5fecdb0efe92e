"""Sweeps: a grid of arguments, trained one after another or in parallel jobs."""
