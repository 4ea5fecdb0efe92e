"""One step for many: the boundary, the lesson and the average by hand; a teacher whose way is known; codes on one scale; half an image."""

import pytest
import torch
from torch import nn

from didact.errors import UsageError
from didact.models.denoise_unet import DenoiseUNet
from didact.models.vae import ConvVAE
from didact.models.vqvae import VQVAE
from didact.objectives.abilities import abilities
from didact.objectives.consistency import Consistency
from didact.objectives.diffusion import Diffusion, Way
from didact.objectives.elbo import ELBO
from didact.objectives.flow_matching import FlowMatching
from didact.objectives.latent_diffusion import Coder, LatentDiffusion
from didact.objectives.noising import Noising, way_back
from didact.objectives.pixels import pixels
from didact.objectives.vector_quantised import VectorQuantised
from didact.objectives.walks import arcs, side_of

SHAPE = (1, 6, 5)


def seeded(k=0):
    return torch.Generator().manual_seed(k)


def unet(shape=SHAPE, classes=0, dropout=0.0):
    torch.manual_seed(0)
    return DenoiseUNet(shape=shape, widths=(8, 16), time=16, classes=classes, dropout=dropout)


def student(predict="velocity", **words):
    return Consistency(Diffusion(unet(**words), SHAPE, Noising(40), predict=predict), intervals=8, decay=0.9)


class Truth(nn.Module):
    """What a network that has learned one image c would say, exactly."""

    def __init__(self, noising: Noising, c: float, predict: str):
        super().__init__()
        self.noising, self.c, self.predict = noising, c, predict
        self.still = nn.Parameter(torch.zeros(()))

    def forward(self, x, t, y=None):
        a, sigma = self.noising.at((t * self.noising.T).round().long())
        eps = (x - a * self.c) / sigma.clamp(min=1e-6)
        return {"noise": eps, "velocity": a * eps - sigma * self.c}[self.predict] + 0 * self.still


def test_without_noise_the_student_gives_back_what_it_sees():
    objective, x = student(), torch.randn(3, *SHAPE)
    torch.testing.assert_close(objective.f(objective.network, x, torch.zeros(3, dtype=torch.long), None), x, rtol=0, atol=0)
    assert not torch.allclose(objective.f(objective.network, x, torch.full((3,), 20), None), x)


@pytest.mark.parametrize("predict", ["noise", "image", "velocity"])
def test_a_lesson_is_one_step_of_ddim(predict):
    objective, x = student(predict), torch.randn(4, *SHAPE)
    taught = Diffusion(objective.teacher, SHAPE, Noising(40), predict=predict)
    for t, s in ((40, 35), (20, 15), (5, 0)):
        step = objective.taught_step(x, torch.full((4,), t), torch.full((4,), s), None)
        a, sigma = (v**0.5 for v in (taught.kept[t], 1 - taught.kept[t]))
        out = taught.says(x, t / 40, None, 0.0)
        x0 = {"noise": (x - sigma * out) / a, "image": out, "velocity": a * x - sigma * out}[predict].clamp(-1, 1)
        (wanted,) = way_back(lambda x, t, x0=x0: x0, x, taught.kept, (t, s))
        torch.testing.assert_close(step, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("predict", ["noise", "velocity"])
def test_who_knows_the_only_image_has_nothing_to_learn(predict):
    """All of the teacher's ways lead to c; the student whose velocity points there is consistent, and draws it at once."""
    objective, c = student(predict), 0.4
    objective.teacher = Truth(objective.noising, c, predict)
    objective.network = objective.target = Truth(objective.noising, c, "velocity")
    x, eps = torch.full((16, *SHAPE), (1 + c) / 2), torch.randn(16, *SHAPE)
    t = objective.moment(torch.linspace(0, 0.999, 16))
    assert set(t.tolist()) == {5, 10, 15, 20, 25, 30, 35, 40}
    assert objective.errors(x, None, t, eps).max() < 1e-6
    for steps in (1, 2):
        torch.testing.assert_close(objective.sample(3, seeded(), steps=steps), torch.full((3, *SHAPE), (1 + c) / 2), rtol=0, atol=1e-3)
    objective.network = Truth(objective.noising, 0.1, "velocity")
    assert objective.errors(x, None, t, eps).max() > 0.01


def test_the_average_follows_the_student_and_nobody_else_learns():
    objective = student(dropout=0.5)
    assert {id(p) for player in objective.players() for p in player.parameters} == {id(p) for p in objective.network.parameters()}
    before = [p.clone() for p in objective.target.parameters()]
    with torch.no_grad():
        for p in objective.network.parameters():
            p.add_(1.0)
    for _ in range(3):
        objective.train().loss({"x": torch.rand(4, *SHAPE)})["loss"].backward()  # in parts, or only looked at: no step was taken
    assert all(map(torch.equal, before, objective.target.parameters()))
    objective.stepped()
    for old, new in zip(before, objective.target.parameters(), strict=True):
        torch.testing.assert_close(new, old + 0.1)                              # 0.9 θ⁻ + 0.1 (θ⁻ + 1)
    assert objective.network.training and not objective.teacher.training and not objective.target.training


def test_what_a_student_is_not_asked():
    objective = student()
    assert "complete" not in abilities(objective) and "sample" in abilities(objective)
    with pytest.raises(UsageError, match=r"--eta, --order and --guidance are its teacher.s"):
        objective.sample(1, seeded(), eta=1.0)
    with pytest.raises(UsageError, match="in 1 to 40 of them, got 41"):
        objective.sample(1, seeded(), steps=41)


def coders():
    torch.manual_seed(0)
    shape = (1, 12, 8)
    vae = ELBO(ConvVAE(shape=shape, widths=(8, 16), latent=6), pixels("bernoulli"))
    return {"vqvae": VectorQuantised(VQVAE(shape=shape, widths=(8, 16), codes=12, dim=5), variance=0.1), "vae": vae}


@pytest.mark.parametrize("name", ["vqvae", "vae"])
def test_codes_are_on_one_scale_and_come_back(name):
    learned = coders()[name].eval()
    coder = Coder(learned)
    objective = LatentDiffusion(coder, DenoiseUNet(shape=coder.shape, widths=(16,), time=16), Noising(20), way=Way(3))
    x = torch.rand(64, 1, 12, 8)
    objective.measure(x)
    z = objective.train().inside(x)
    assert z.shape == (64, *coder.shape) and coder.shape == {"vqvae": (5, 3, 2), "vae": (6, 1, 1)}[name]
    torch.testing.assert_close(z.mean((0, 2, 3)), torch.zeros(coder.shape[0]), rtol=0, atol=1e-4)
    torch.testing.assert_close(z.std((0, 2, 3)), torch.ones(coder.shape[0]), rtol=0, atol=1e-3)
    with torch.no_grad():
        wanted = learned.restore({"x": x}) if name == "vqvae" else learned.shown(learned.network.encode(x)[0])
    torch.testing.assert_close(objective.outside(z), wanted, rtol=1e-4, atol=1e-4)
    assert objective.sample(2, seeded()).shape == (2, 1, 12, 8) and "complete" not in abilities(objective)
    assert not any(p.requires_grad for p in coder.parameters()) and not learned.network.training
    objective.loss({"x": x})["loss"].backward()
    assert all(p.grad is None for p in coder.parameters())


@pytest.mark.parametrize("kind", ["ddpm", "two steps"])
def test_judging_is_the_same_in_any_batches(kind):
    """The noise of each step belongs to the row, not to its place in a batch: what is drawn in batches of 7 is what is drawn at once."""
    ddpm = Diffusion(unet(classes=2), SHAPE, Noising(40), way=Way(5, eta=1.0), classes=2)
    objective = ddpm if kind == "ddpm" else Consistency(ddpm, intervals=8, decay=0.9, steps=2)
    g, n = seeded(), 30
    batch = {"x": torch.rand(n, *SHAPE, generator=g), "y": torch.arange(n) % 2, "row": torch.arange(n)}
    with torch.no_grad():
        whole = objective.eval().judge(batch)
        cut = [objective.judge({k: v[i : i + 7] for k, v in batch.items()}) for i in range(0, n, 7)]
        turned = objective.judge({k: v.flip(0) for k, v in batch.items()})
    for name, column in whole.items():
        torch.testing.assert_close(torch.cat([c[name] for c in cut]), column, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(turned[name].flip(0), column, rtol=1e-4, atol=1e-5)
    objective.noises.copy_(objective.noises[:1].expand_as(objective.noises))     # one noise to begin with …
    alike = objective.drawn(torch.arange(n), torch.zeros(n, dtype=torch.long))
    assert (alike[1:] - alike[:1]).abs().flatten(1).max(1).values.min() > 1e-3     # … and still each row goes its own way


class Two(nn.Module):
    """All that is to be known when an image is either +c or −c everywhere: E[x_0 | x_t] = c tanh(a c Σ x_t / σ²)."""

    def __init__(self, mixed, predict):
        super().__init__()
        self.mixed, self.predict, self.c = mixed, predict, 0.6

    def forward(self, x, t, y=None):
        a, sigma = self.mixed(t)
        sigma = sigma.clamp(min=1e-3)
        x0 = self.c * torch.tanh(a * self.c * x.sum((1, 2, 3), keepdim=True) / sigma**2) * torch.ones_like(x)
        return x0 if self.predict == "image" else (x - x0) / sigma


def knowing(kind):
    if kind == "diffusion":
        noising = Noising(100)
        return Diffusion(Two(lambda t: noising.at((t * 100).round().long()), "image"), SHAPE, noising, predict="image", way=Way(50))
    lines = Two(lambda t: (1 - t[:, None, None, None], t[:, None, None, None]), "velocity")
    return FlowMatching(lines, SHAPE, way=Way(50))


@pytest.mark.parametrize("side", ["top", "left", "bottom", "right"])
@pytest.mark.parametrize("kind", ["diffusion", "flow"])
def test_the_half_that_is_known_decides_the_other(kind, side):
    objective = knowing(kind)
    free = objective.sample(64, seeded())
    assert 16 < (free.mean((1, 2, 3)) > 0.5).sum() < 48                          # +c and −c, as noise has it
    x = torch.rand(64, *SHAPE) * 0.1 + torch.where(torch.arange(64) % 2 == 0, 0.75, 0.15)[:, None, None, None]
    there = side_of(SHAPE[1:], 3, side, x.device)
    with torch.no_grad():
        full = objective.complete(x, 3, seeded(1), side=side)
    torch.testing.assert_close(full[:, :, there], x[:, :, there], rtol=0, atol=1e-4)
    rest = full[:, :, ~there].mean((1, 2))
    assert (rest[::2] > 0.7).float().mean() > 0.9 and (rest[1::2] < 0.3).float().mean() > 0.9


def test_sides_of_an_image():
    device = torch.device("cpu")
    found = {side: side_of((2, 3), 1, side, device).int().tolist() for side in ("top", "bottom", "left", "right")}
    assert found == {"top": [[1, 1, 1], [0, 0, 0]], "bottom": [[0, 0, 0], [1, 1, 1]],
                     "left": [[1, 0, 0], [1, 0, 0]], "right": [[0, 0, 1], [0, 0, 1]]}


def test_arcs_keep_the_length_of_noise():
    a, b = torch.randn(2, 3, 1, 20, 20)
    walk = arcs(a, b, steps=5).unflatten(0, (3, 5))
    torch.testing.assert_close(walk[:, 0], a, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(walk[:, -1], b, rtol=1e-4, atol=1e-4)
    assert ((walk.flatten(2).norm(dim=2) / 20 - 1).abs() < 0.1).all()            # a straight way would be 0.7 in the middle
