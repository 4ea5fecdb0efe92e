"""How much two boxes overlap, in plain Python: what the layers, losses and metrics of detection are compared with."""


def box_iou(a, b):
    """IoU of two boxes (x1, y1, x2, y2)."""
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    intersection = max(width, 0) * max(height, 0)
    return intersection / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - intersection)
