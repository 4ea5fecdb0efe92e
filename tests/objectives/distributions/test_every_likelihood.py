"""Likelihoods against torch.nn.functional, torch.distributions, scikit-learn and worked values."""

from math import log, pi

import numpy as np
import pytest
import sklearn.metrics as sk
import torch
import torch.distributions as D
import torch.nn.functional as F
from sklearn.utils.class_weight import compute_class_weight
from torch.testing import assert_close

from didact.errors import UsageError
from didact.objectives.distributions.classification import Bernoulli, Categorical, MultiLabelBernoulli, make_likelihood
from didact.objectives.distributions.regression import Heteroscedastic, Huber, Laplace, Normal
from didact.objectives.losses import r_drop

LIKELIHOODS = {
    "categorical": lambda: Categorical(7, label_smoothing=0.1, weights=torch.rand(7) + 0.5),
    "bernoulli": lambda: Bernoulli(label_smoothing=0.1, weights=torch.tensor([0.6, 3.0])),
    "bernoullis": lambda: MultiLabelBernoulli(4),
    "normal": lambda: Normal(mean=3.0, std=2.0),
    "laplace": lambda: Laplace(mean=3.0, std=2.0),
    "huber": lambda: Huber(delta=0.7, mean=3.0, std=2.0),
    "heteroscedastic": lambda: Heteroscedastic(mean=3.0, std=2.0),
}
REGRESSION_NAMES = ("normal", "laplace", "huber", "heteroscedastic")


@pytest.fixture(params=sorted(LIKELIHOODS))
def likelihood_name(request):
    torch.manual_seed(0)
    return request.param


def make_targets(name, n):
    return {
        "categorical": lambda: torch.randint(7, (n,)),
        "bernoulli": lambda: torch.randint(2, (n,)),
        "bernoullis": lambda: torch.randint(2, (n, 4)).float(),
    }.get(name, lambda: 3 + 2 * torch.randn(n))()


# every likelihood


def test_likelihood_contract(likelihood_name):
    p = LIKELIHOODS[likelihood_name]()
    out, y = torch.randn(11, p.num_outputs, requires_grad=True), make_targets(likelihood_name, 11)
    assert p.loss(out, y).shape == p.eval_loss(out, y).shape == (11,)
    assert p.sample(out).shape == p.mode(out).shape == y.shape
    assert p.sample(out).dtype == p.mode(out).dtype == (y.dtype if likelihood_name in REGRESSION_NAMES else torch.int64)
    score = p.compute_metrics(out.detach(), y)
    assert p.monitor in score and all(type(v) is float for v in score.values())
    p.loss(out, y).sum().backward()
    assert out.grad.isfinite().all()


def test_likelihood_gradients_match_finite_differences(likelihood_name):
    p = LIKELIHOODS[likelihood_name]().double()
    out, y = torch.randn(5, p.num_outputs, dtype=torch.float64, requires_grad=True), make_targets(likelihood_name, 5)
    y = y.double() if y.is_floating_point() else y
    assert torch.autograd.gradcheck(lambda out: p.loss(out, y), out)
    assert torch.autograd.gradcheck(lambda out: p.eval_loss(out, y), out)


@pytest.mark.parametrize("size", [100.0, -100.0])
def test_likelihood_of_extreme_outputs_is_finite(likelihood_name, size):
    p = LIKELIHOODS[likelihood_name]()
    out, y = torch.randn(11, p.num_outputs).sign().mul(size).requires_grad_(), make_targets(likelihood_name, 11)
    loss = p.loss(out, y)
    (gradient,) = torch.autograd.grad(loss.sum(), out)
    assert loss.isfinite().all() and gradient.isfinite().all()
    assert p.mean(out).isfinite().all() and p.sample(out).isfinite().all()
    exact = p.double().loss(out.double(), y.double() if y.is_floating_point() else y)
    assert_close(loss, exact.float(), rtol=1e-4, atol=1e-4)


def test_half_precision_outputs_give_float32_losses(likelihood_name):
    p = LIKELIHOODS[likelihood_name]()
    out, y = torch.randn(11, p.num_outputs).bfloat16(), make_targets(likelihood_name, 11)
    assert p.loss(out, y).dtype == torch.float32
    assert_close(p.loss(out, y), p.loss(out.float(), y))
    assert p.compute_metrics(out, y) == pytest.approx(p.compute_metrics(out.float(), y), nan_ok=True)


def test_sample_means_converge_to_the_mean(likelihood_name):
    p = LIKELIHOODS[likelihood_name]()
    out = torch.randn(3, p.num_outputs)
    repeated_outputs = out.repeat(60_000, 1)
    samples = p.sample(repeated_outputs, torch.Generator().manual_seed(1))
    if likelihood_name == "categorical":
        samples = F.one_hot(samples, 7)
    average = samples.double().reshape(60_000, *p.mean(out).shape).mean(0)
    assert_close(average, p.mean(out).double(), atol=0.06 if likelihood_name in REGRESSION_NAMES else 0.01, rtol=0)
    first_sample, second_sample = (p.sample(out, torch.Generator().manual_seed(2)) for _ in range(2))
    assert torch.equal(first_sample, second_sample)


def test_likelihood_mode_has_the_lowest_loss(likelihood_name):
    p = LIKELIHOODS[likelihood_name]()
    out = torch.randn(9, p.num_outputs)
    mode = p.mode(out)
    lowest_loss = p.eval_loss(out, mode.float() if likelihood_name == "bernoullis" else mode)
    for _ in range(50):
        assert (lowest_loss <= p.eval_loss(out, make_targets(likelihood_name, 9)) + 1e-6).all()


# classes


def test_categorical_is_cross_entropy():
    torch.manual_seed(0)
    out, y, soft = 3 * torch.randn(40, 7), torch.randint(7, (40,)), torch.rand(40, 7).softmax(-1)
    assert_close(Categorical(7).loss(out, y), -D.Categorical(logits=out).log_prob(y))
    assert_close(Categorical(7).eval_loss(out, soft), -(soft * out.log_softmax(-1)).sum(-1))
    assert_close(Categorical(7).log_p(out), Categorical(7).probabilities(out).log())
    smoothed = Categorical(7, label_smoothing=0.1)
    target = 0.9 * F.one_hot(y, 7) + 0.1 / 7                             # Gaba eq. 3.34
    assert_close(smoothed.loss(out, y), -(target * out.log_softmax(-1)).sum(-1))
    assert_close(smoothed.eval_loss(out, y), F.cross_entropy(out, y, reduction="none"))
    assert_close(smoothed.loss(out, F.one_hot(y, 7).float()), smoothed.loss(out, y))


def test_class_weights_scale_examples_not_batches():
    torch.manual_seed(0)
    y = torch.tensor([0] * 30 + [1] * 9 + [2])
    balanced_weights = compute_class_weight("balanced", classes=np.arange(3), y=y.numpy())
    out, w = torch.randn(40, 3), torch.tensor(balanced_weights, dtype=torch.float32)
    p = Categorical(3, weights=w)
    loss = p.loss(out, y)
    assert_close(loss, F.cross_entropy(out, y, weight=w, reduction="none"))
    assert_close(p.loss(out, F.one_hot(y, 3).float()), loss)
    # over the training distribution the weights have mean 1, so there both conventions agree; in its parts ours adds up
    assert_close(loss.mean(), F.cross_entropy(out, y, weight=w))
    parts = [p.loss(out[i::4], y[i::4]).mean() for i in range(4)]
    assert_close(torch.stack(parts).mean(), loss.mean())
    assert_close(p.eval_loss(out, y), F.cross_entropy(out, y, reduction="none"))


def test_categorical_weights_of_soft_targets_are_mixed():
    p, y = Categorical(2, weights=torch.tensor([0.5, 2.0])), torch.tensor([[0.25, 0.75]])
    assert_close(p.loss(torch.zeros(1, 2), y), torch.tensor([(0.125 + 1.5) * log(2)]))


@pytest.mark.parametrize("scale", [1.0, 50.0])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_bernoulli_is_a_two_class_categorical(scale, smoothing):
    torch.manual_seed(0)
    z, y, soft = scale * torch.randn(40, 1), torch.randint(2, (40,)), torch.rand(40)
    soft = torch.stack([1 - soft, soft], -1)
    two_logits, w = torch.cat([torch.zeros_like(z), z], -1), torch.tensor([0.7, 1.9])
    bernoulli, categorical = (
        Bernoulli(label_smoothing=smoothing, weights=w),
        Categorical(2, label_smoothing=smoothing, weights=w),
    )
    for target in (y, soft):
        assert_close(bernoulli.loss(z, target), categorical.loss(two_logits, target))
        assert_close(bernoulli.eval_loss(z, target), categorical.eval_loss(two_logits, target))
    assert_close(bernoulli.probabilities(z), categorical.probabilities(two_logits))
    assert_close(bernoulli.log_p(z), categorical.log_p(two_logits))
    assert_close(bernoulli.mode(z), categorical.mode(two_logits))
    assert_close(bernoulli.eval_loss(z, y), -D.Bernoulli(logits=z[:, 0]).log_prob(y.float()))


def test_multi_label_bernoulli_is_independent_bernoullis():
    torch.manual_seed(0)
    z, y = torch.randn(40, 4), torch.randint(2, (40, 4)).float()
    joint = D.Independent(D.Bernoulli(logits=z), 1)
    assert_close(MultiLabelBernoulli(4).loss(z, y), -joint.log_prob(y) / 4)
    assert_close(MultiLabelBernoulli(4).loss(z, y).mean(), F.binary_cross_entropy_with_logits(z, y))


# numbers


def test_regression_losses_are_likelihoods_up_to_constants():
    torch.manual_seed(0)
    out, y = torch.randn(40, 1), 3 + 2 * torch.randn(40)
    t = (y - 3) / 2
    unit = D.Normal(out[:, 0], 1.0)
    assert_close(Normal(mean=3.0, std=2.0).loss(out, y), -2 * unit.log_prob(t) - log(2 * pi))
    assert_close(Laplace(mean=3.0, std=2.0).loss(out, y), -D.Laplace(out[:, 0], 1.0).log_prob(t) - log(2))
    expected = F.huber_loss(out[:, 0], t, reduction="none", delta=0.7)
    assert_close(Huber(delta=0.7, mean=3.0, std=2.0).loss(out, y), expected)
    assert_close(Huber(delta=1e3).loss(out, y), Normal().loss(out, y) / 2)


def test_heteroscedastic_is_the_gaussian_density():
    torch.manual_seed(0)
    p = Heteroscedastic(mean=3.0, std=2.0)
    out, y = torch.randn(40, 2), 3 + 2 * torch.randn(40)
    t, variance = (y - 3) / 2, out[:, 1].exp()
    assert_close(p.loss(out, y), F.gaussian_nll_loss(out[:, 0], t, variance, full=True, reduction="none"))
    density = D.Normal(p.mean(out), p.std(out))                          # in the targets' units
    score = p.compute_metrics(out, y)
    assert score["nll"] == pytest.approx(-density.log_prob(y).mean().item(), rel=1e-5)
    coverage = ((y - p.mean(out)).abs() <= 1.959964 * p.std(out)).float().mean().item()
    assert score["coverage_95"] == pytest.approx(coverage)


def test_regression_network_predicts_standardized_values():
    p = Normal(mean=100.0, std=20.0)
    out, y = torch.tensor([[0.0], [1.0], [-2.0]]), torch.tensor([100.0, 140.0, 60.0])
    assert p.mean(out).tolist() == p.mode(out).tolist() == [100, 120, 60]
    assert p.loss(out, y).tolist() == [0, 1, 0]
    assert p.compute_metrics(out, y) == pytest.approx({"mae": 20 / 3, "rmse": 20 / 3**0.5, "r2": 1 - 400 / 3200})
    assert p.std(out) is None


@pytest.mark.parametrize("make", [Normal, Laplace, lambda: Huber(delta=0.3), lambda: Huber(delta=2.0)])
def test_regression_samples_follow_the_density(make):
    """Quantiles of samples against the numerical integral of exp(-loss)."""
    p = make()
    r = torch.linspace(-40, 40, 800_001, dtype=torch.float64)
    energy = p.double().loss(torch.zeros(len(r), 1, dtype=torch.float64), r) / (2 if make is Normal else 1)
    cumulative = (-energy).exp().cumsum(0)
    cumulative /= cumulative[-1].clone()
    samples = p.sample(torch.zeros(200_000, 1), torch.Generator().manual_seed(0)).double()
    for quantile in (0.02, 0.2, 0.4, 0.5, 0.7, 0.9, 0.98):
        threshold = r[torch.searchsorted(cumulative, quantile)]
        assert abs((samples <= threshold).double().mean() - quantile) < 0.004   # 3.6 standard errors at the median


@pytest.mark.parametrize("make", [Normal, Laplace, lambda **k: Huber(delta=0.3, **k), Huber])
def test_regression_samples_have_the_standard_deviation_of_the_residuals(make):
    p = make(mean=7.0, std=50.0)
    p.residual_std = 3.0
    samples = p.sample(torch.zeros(200_000, 1), torch.Generator().manual_seed(0)).double()
    assert samples.mean().item() == pytest.approx(7, abs=0.05) and samples.std().item() == pytest.approx(3, rel=0.02)


def test_regression_state_dict_keeps_location_and_scale():
    p = Normal(mean=5.0, std=3.0)
    other = Normal()
    other.load_state_dict(p.state_dict())
    assert other.mean(torch.ones(1, 1)).item() == 8


# scores


def test_categorical_metrics_match_scikit_learn():
    torch.manual_seed(0)
    out, y = 2 * torch.randn(300, 7), torch.randint(7, (300,))
    score, predicted = Categorical(7).compute_metrics(out, y), out.argmax(-1)
    assert list(score) == [
        "accuracy",
        "top5",
        "precision_macro",
        "recall_macro",
        "f1_macro",
        "auroc",
        "calibration_error",
    ]
    assert score["accuracy"] == pytest.approx(sk.accuracy_score(y, predicted))
    assert score["top5"] == pytest.approx(sk.top_k_accuracy_score(y, out, k=5))
    assert score["precision_macro"] == pytest.approx(sk.precision_score(y, predicted, average="macro"))
    assert score["recall_macro"] == pytest.approx(sk.recall_score(y, predicted, average="macro"))
    assert score["f1_macro"] == pytest.approx(sk.f1_score(y, predicted, average="macro"))
    assert score["auroc"] == pytest.approx(sk.roc_auc_score(y, out.double().softmax(-1), multi_class="ovr"))
    assert "top5" not in Categorical(5).compute_metrics(out[:, :5], y % 5)


def test_bernoulli_metrics_match_scikit_learn():
    torch.manual_seed(0)
    z, y = torch.randn(300, 1), torch.randint(2, (300,))
    score, predicted = Bernoulli().compute_metrics(z, y), (z[:, 0] > 0).long()
    macro_names = ["precision_macro", "recall_macro", "f1_macro"]
    assert list(score) == ["accuracy", "precision", "recall", "f1", *macro_names, "auroc", "calibration_error"]
    assert score["accuracy"] == pytest.approx(sk.accuracy_score(y, predicted))
    assert score["precision"] == pytest.approx(sk.precision_score(y, predicted))
    assert score["recall"] == pytest.approx(sk.recall_score(y, predicted))
    assert score["f1"] == pytest.approx(sk.f1_score(y, predicted))
    assert score["precision_macro"] == pytest.approx(sk.precision_score(y, predicted, average="macro"))
    assert score["recall_macro"] == pytest.approx(sk.recall_score(y, predicted, average="macro"))
    assert score["f1_macro"] == pytest.approx(sk.f1_score(y, predicted, average="macro"))
    assert score["auroc"] == pytest.approx(sk.roc_auc_score(y, z[:, 0]))


def test_bernoulli_auroc_keeps_the_order_of_saturated_logits():
    z, y = torch.tensor([[60.0], [80.0], [100.0], [120.0]]), torch.tensor([0, 0, 1, 1])
    assert Bernoulli().compute_metrics(z, y)["auroc"] == 1


def test_multi_label_bernoulli_metrics_match_scikit_learn():
    torch.manual_seed(0)
    z, y = torch.randn(300, 4), torch.randint(2, (300, 4)).float()
    score, predicted = MultiLabelBernoulli(4).compute_metrics(z, y), (z > 0).long()
    assert list(score) == ["accuracy", "f1_macro", "auroc"]
    assert score["accuracy"] == pytest.approx(1 - sk.hamming_loss(y, predicted))
    assert score["f1_macro"] == pytest.approx(sk.f1_score(y, predicted, average="macro"))
    assert score["auroc"] == pytest.approx(sk.roc_auc_score(y, z, average="macro"))


def test_likelihood_metrics_are_independent_of_row_order(likelihood_name):
    p = LIKELIHOODS[likelihood_name]()
    out, y = torch.randn(101, p.num_outputs), make_targets(likelihood_name, 101)
    order = torch.randperm(101)
    assert p.compute_metrics(out[order], y[order]) == pytest.approx(p.compute_metrics(out, y), rel=1e-12)


# the one that a task asks for


@pytest.mark.parametrize(
    ("keywords", "kind", "outputs"),
    [
        ({"task": "regression"}, Normal, 1),
        ({"task": "regression", "loss": "l1"}, Laplace, 1),
        ({"task": "regression", "loss": "huber"}, Huber, 1),
        ({"task": "regression", "loss": "gaussian"}, Heteroscedastic, 2),
        ({"task": "binary", "num_classes": 2, "label_smoothing": 0.1}, Bernoulli, 1),
        ({"task": "multiclass", "num_classes": 3, "weights": torch.ones(3)}, Categorical, 3),
        ({"task": "multilabel", "num_classes": 3, "loss": "cross_entropy"}, MultiLabelBernoulli, 3),
    ],
)
def test_make_likelihood_chooses_by_task_and_loss(keywords, kind, outputs):
    p = make_likelihood(**keywords)
    assert type(p) is kind
    assert (p.task, p.num_outputs) == (keywords["task"], outputs)


def test_make_likelihood_passes_the_target_mean_and_std():
    assert make_likelihood("regression", loss="huber", mean=4.0, std=2.0).mean(torch.ones(1, 1)).item() == 6


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"task": "regresion"}, "did you mean 'regression'"),
        ({"task": "regression", "loss": "mes"}, "did you mean 'mse'"),
        ({"task": "regression", "loss": "cross_entropy"}, "mse or l1 or huber or gaussian, got 'cross_entropy'"),
        ({"task": "multiclass", "num_classes": 3, "loss": "mse"}, "cross_entropy, got 'mse'"),
        ({"task": "regression", "label_smoothing": 0.1}, "label smoothing needs"),
        ({"task": "multilabel", "num_classes": 3, "weights": torch.ones(3)}, "class weights need"),
        ({"task": "multiclass", "num_classes": 1}, "at least 2 classes, got 1"),
        ({"task": "multiclass", "num_classes": 3, "weights": torch.ones(2)}, "must be 3 non-negative numbers"),
        ({"task": "multiclass", "num_classes": 3, "label_smoothing": 1.0}, "less than 1, got 1"),
        ({"task": "regression", "std": 0.0}, "std=0"),
    ],
)
def test_make_likelihood_refuses_mismatches_in_one_line(keywords, message):
    with pytest.raises(UsageError, match=message) as error:
        make_likelihood(**keywords)
    assert "\n" not in str(error.value)


# R-Drop


def test_r_drop_is_the_mean_of_both_divergences():
    torch.manual_seed(0)
    a, b = torch.randn(2, 40, 7, dtype=torch.float64)
    p, q = D.Categorical(logits=a), D.Categorical(logits=b)
    expected = 0.5 * (D.kl_divergence(p, q) + D.kl_divergence(q, p))
    log_p, log_q = a.log_softmax(-1), b.log_softmax(-1)
    assert_close(r_drop(log_p, log_q), expected)
    assert_close(r_drop(log_q, log_p), expected)
    assert (r_drop(log_p, log_p) == 0).all()
    assert torch.autograd.gradcheck(
        lambda a, b: r_drop(a.log_softmax(-1), b.log_softmax(-1)), (a[:3].requires_grad_(), b[:3].requires_grad_())
    )


def test_r_drop_of_certain_and_opposed_passes_is_finite():
    a = torch.tensor([[100.0, -100.0]])
    assert_close(r_drop(a.log_softmax(-1), (-a).log_softmax(-1)), torch.tensor([200.0]))


@pytest.mark.parametrize("keywords", [{}, {"label_smoothing": 0.1}, {"weights": torch.tensor([0.5, 1.0, 2.0])}])
def test_categorical_mean_loss_is_the_mean_of_the_loss(keywords):
    out, y = torch.randn(17, 3), torch.randint(3, (17,))
    likelihood = Categorical(3, **keywords)
    torch.testing.assert_close(likelihood.mean_loss(out, y), likelihood.loss(out, y).mean())
    soft = torch.rand(17, 3).softmax(-1)
    torch.testing.assert_close(likelihood.mean_loss(out, soft), likelihood.loss(out, soft).mean())
