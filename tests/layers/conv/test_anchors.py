"""Anchors against values worked out by hand and plain loops."""

import math

import pytest
import torch
from torch.testing import assert_close

from didact.layers.conv.anchors import (
    anchor_grid,
    decode_boxes,
    default_sizes,
    encode_boxes,
    generalized_iou,
    kmeans_iou,
    match_anchors,
    shape_iou,
    to_corners,
)
from helpers.box_iou import box_iou


def make_random_boxes(n, generator, *, min_size=0.05):
    corner = torch.rand(n, 2, generator=generator) * 0.6
    return torch.cat([corner, corner + min_size + torch.rand(n, 2, generator=generator) * 0.4], dim=1)


def test_default_sizes_match_the_paper():
    sizes = default_sizes(6, 3)
    assert_close(sizes[:, 0, 0], torch.tensor([0.2, 0.34, 0.48, 0.62, 0.76, 0.9]))          # six maps: steps of 0.14
    assert_close(sizes[0], 0.2 * torch.tensor([[1, 1], [2**0.5, 2**-0.5], [2**-0.5, 2**0.5]]))
    assert default_sizes(1, 12).unique(dim=1).shape == (1, 12, 2)                           # all different


def test_anchor_grid_of_two_rows_and_three_columns():
    sizes = torch.tensor([[[0.1, 0.2], [0.3, 0.4]]])
    grid = anchor_grid([(2, 3)], sizes)
    assert grid.shape == (12, 4)
    assert_close(grid[0], torch.tensor([1 / 6, 1 / 4, 0.1, 0.2]))
    # boxes of a cell are next to each other
    assert_close(grid[1], torch.tensor([1 / 6, 1 / 4, 0.3, 0.4]))
    assert_close(grid[2, :2], torch.tensor([3 / 6, 1 / 4]))
    assert_close(grid[6, :2], torch.tensor([1 / 6, 3 / 4]))                                 # then the next row
    assert len(anchor_grid([(4, 6), (2, 3)], sizes.repeat(2, 1, 1))) == 60


def test_encode_boxes_matches_hand_values_and_decode_boxes_inverts_it():
    anchor = torch.tensor([0.5, 0.5, 0.2, 0.4])
    t = encode_boxes(torch.tensor([0.42, 0.4, 0.62, 0.8]), anchor)
    assert_close(t, torch.tensor([0.02 / 0.2 / 0.1, 0.1 / 0.4 / 0.1, 0.0, 0.0]))
    assert_close(
        encode_boxes(to_corners(torch.tensor([0.5, 0.5, 0.4, 0.4])), anchor)[2], torch.tensor(math.log(2) / 0.2)
    )
    g = torch.Generator().manual_seed(0)
    boxes, anchors = (
        make_random_boxes(50, g),
        torch.cat([torch.rand(50, 2, generator=g), 0.1 + torch.rand(50, 2, generator=g)], 1),
    )
    assert_close(decode_boxes(encode_boxes(boxes, anchors), anchors), boxes)
    assert decode_boxes(torch.full((1, 4), 1e4), anchors[:1]).isfinite().all()


@pytest.mark.parametrize("seed", range(4))
def test_match_anchors_matches_plain_loops(seed):
    g = torch.Generator().manual_seed(seed)
    # no two overlap alike
    anchors = anchor_grid([(5, 7), (3, 4)], default_sizes(2, 3)) + 0.01 * torch.rand(141, 4, generator=g)
    boxes, is_box = make_random_boxes(4 * 6, g).view(4, 6, 4), torch.rand(4, 6, generator=g) < 0.7
    # an image without objects
    is_box[0] = False
    box_index, is_matched = match_anchors(anchors, boxes, is_box)
    for b in range(4):
        expected = {}
        anchor_corners = to_corners(anchors).tolist()
        for a, anchor in enumerate(anchor_corners):
            best = max(((box_iou(anchor, boxes[b, m].tolist()), -m) for m in range(6) if is_box[b, m]), default=(0, 0))
            if best[0] >= 0.5:
                expected[a] = -best[1]
        forced = {}
        for m in range(6):
            if is_box[b, m]:
                value, a = max((box_iou(anchor, boxes[b, m].tolist()), -a) for a, anchor in enumerate(anchor_corners))
                forced[-a] = max(forced.get(-a, (-1, 0)), (value, -m))
        expected |= {a: -m for a, (_, m) in forced.items()}
        assert is_matched[b].nonzero()[:, 0].tolist() == sorted(expected)
        assert box_index[b, is_matched[b]].tolist() == [expected[a] for a in sorted(expected)]


def test_match_anchors_matches_every_box():
    anchors = anchor_grid([(4, 4)], torch.tensor([[[0.3, 0.3]]]))
    box_index, is_matched = match_anchors(
        anchors, torch.tensor([[[0.4, 0.0, 0.42, 1.0]]]), torch.ones(1, 1, dtype=torch.bool)
    )
    assert is_matched.sum() == 1 and box_index[is_matched].tolist() == [0]


def test_match_anchors_gives_each_box_its_best_anchor():
    """The first anchor overlaps the post by 1/40 and the square by 19/21; but the square has a better one, and the
    post has none."""
    anchors = torch.tensor([[0.5, 0.5, 0.4, 0.4], [0.52, 0.5, 0.4, 0.4]])
    post, square = [0.3, 0.3, 0.31, 0.7], [0.32, 0.3, 0.72, 0.7]
    box_index, is_matched = match_anchors(anchors, torch.tensor([[post, square]]), torch.ones(1, 2, dtype=torch.bool))
    assert box_index.tolist() == [[0, 1]] and is_matched.all()


def giou_reference(a, b):
    c = (max(a[2], b[2]) - min(a[0], b[0])) * (max(a[3], b[3]) - min(a[1], b[1]))
    area_a, area_b = ((x[2] - x[0]) * (x[3] - x[1]) for x in (a, b))
    iou = box_iou(a, b)
    # union = (|A| + |B|) / (1 + IoU)
    return iou - (c - (area_a + area_b) / (1 + iou)) / c


def test_generalized_iou_matches_its_definition():
    g = torch.Generator().manual_seed(0)
    a, b = make_random_boxes(40, g), make_random_boxes(40, g)
    assert_close(
        generalized_iou(a, b), torch.tensor([giou_reference(p, q) for p, q in zip(a.tolist(), b.tolist(), strict=True)])
    )
    assert_close(generalized_iou(a, a), torch.ones(40))
    # two unit squares three apart: nothing in common, 2 of 4 around them are empty
    assert generalized_iou(torch.tensor([0.0, 0, 1, 1]), torch.tensor([3.0, 0, 4, 1])).item() == pytest.approx(-0.5)
    assert generalized_iou(torch.zeros(1, 4), torch.zeros(1, 4)).isfinite().all()
    torch.autograd.gradcheck(
        generalized_iou, (make_random_boxes(5, g).double().requires_grad_(), make_random_boxes(5, g).double())
    )


def test_kmeans_iou_finds_the_cluster_means():
    g = torch.Generator().manual_seed(0)
    centers = torch.tensor([[0.05, 0.05], [0.2, 0.1], [0.1, 0.25], [0.5, 0.5]])
    sizes = (centers[:, None] * (1 + 0.1 * (torch.rand(4, 30, 2, generator=g) - 0.5))).reshape(-1, 2)
    means = kmeans_iou(sizes[torch.randperm(120, generator=g)], 4)
    assert_close(means, sizes.view(4, 30, 2).mean(1), atol=1e-3, rtol=0)                    # already by area
    # weighted means: the one box of a rare class counts as much as all of a common one
    two_sizes = torch.cat([torch.full((99, 2), 0.1), torch.full((1, 2), 0.11)])
    assert_close(kmeans_iou(two_sizes, 1), torch.full((1, 2), 0.1001))
    assert_close(
        kmeans_iou(two_sizes, 1, weights=torch.cat([torch.full((99,), 1 / 99), torch.ones(1)])),
        torch.full((1, 2), 0.105),
    )
    assert kmeans_iou(torch.full((2, 2), 0.3), 5).isfinite().all()  # fewer boxes than means
    assert_close(
        shape_iou(torch.tensor([[0.2, 0.4]]), torch.tensor([[0.4, 0.2], [0.2, 0.4]])), torch.tensor([[1 / 3, 1.0]])
    )
