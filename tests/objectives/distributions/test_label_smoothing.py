"""Label smoothing written out, against PyTorch's."""

import pytest
import torch
import torch.nn.functional as F

from didact.errors import UsageError
from didact.objectives.distributions.label_smoothing import check_label_smoothing, smooth_labels


@pytest.mark.parametrize("a", [0.0, 0.1, 0.9])
def test_smoothed_targets_give_the_loss_of_pytorch(a):
    logits, y = torch.randn(20, 7), torch.randint(7, (20,))
    targets = smooth_labels(F.one_hot(y, 7).float(), a, 7)
    torch.testing.assert_close(targets.sum(1), torch.ones(20))
    torch.testing.assert_close(F.cross_entropy(logits, targets), F.cross_entropy(logits, y, label_smoothing=a))


@pytest.mark.parametrize("a", [-0.1, 1.0, float("nan")])
def test_label_smoothing_leaves_the_true_class_a_weight(a):
    with pytest.raises(UsageError, match="label smoothing must be from 0 to less than 1, got"):
        check_label_smoothing(a)
