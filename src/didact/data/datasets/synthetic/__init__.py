"""Synthetic datasets, the same on every machine; the seed of a run is that of the split alone.

    points                tables: spirals, moons, sine, sparse linear regression, modular sums
    glyphs                images of letters and numerals
    segmentation_shapes   discs, squares and triangles with masks;  detection_shapes: with boxes
    backgrounds, draw_shapes    photograph crops and shapes, for both
    copy_memory           the copy task
    analogy_text          text with known analogies;  token_means: sequences of numbers

Importing a module registers its datasets.
"""
