from math import cos, pi, radians, sin

import numpy as np
import pytest
import torch
from scipy import ndimage, stats

from didact.data.images.augment import (
    AUGMENTATIONS,
    Affine,
    ColorJitter,
    CutMix,
    Cutout,
    Flip,
    GaussianNoise,
    Mixup,
    RandomCrop,
    Rotate,
    compose,
    make_augmentations,
    sample_beta,
    sample_box_mask,
    warp,
)
from didact.errors import UsageError

SHAPES = [(6, 1, 9, 14), (5, 3, 11, 7)]


def make_generator(seed=0):
    return torch.Generator().manual_seed(seed)


def make_images(shape, seed=0):
    return torch.rand(shape, generator=make_generator(seed))


def make_batch(shape, classes=4, seed=0):
    return {"x": make_images(shape, seed), "y": torch.arange(shape[0]) % classes, "row": torch.arange(shape[0])}


def assert_same(a, b, atol=1e-5):
    torch.testing.assert_close(a, b, atol=atol, rtol=0)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "augmentation",
    [
        Flip(horizontal=0),
        RandomCrop(padding=0),
        Rotate(0),
        Affine(0, 0, 0, 0),
        ColorJitter(0, 0, 0),
        GaussianNoise(0),
        Cutout(0),
    ],
    ids=lambda a: type(a).__name__,
)
def test_augmentations_of_zero_strength_change_nothing(shape, augmentation):
    examples = make_batch(shape)
    assert_same(augmentation(examples, make_generator())["x"], examples["x"])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", sorted(AUGMENTATIONS))
def test_every_augmentation_keeps_shape_dtype_and_is_seeded(name, shape):
    augment, b = AUGMENTATIONS[name](4), make_batch(shape)
    original = {k: v.clone() for k, v in b.items()}
    first, second, other_seed = (
        augment(b, make_generator(1)),
        augment(b, make_generator(1)),
        augment(b, make_generator(2)),
    )
    assert first["x"].shape == shape
    assert first["x"].dtype == torch.float32
    assert first["x"].isfinite().all()
    assert torch.equal(first["row"], b["row"])
    assert torch.equal(first["x"], second["x"])                           # the generator decides
    assert torch.equal(first["y"], second["y"])
    assert any(not torch.equal(augment(b, make_generator(s))["x"], other_seed["x"]) for s in range(3, 9))
    assert all(torch.equal(b[k], original[k]) for k in b)                # the caller's batch is untouched


@pytest.mark.parametrize("name", sorted(AUGMENTATIONS))
def test_augmentations_leave_the_global_generator_alone(name):
    state = torch.get_rng_state()
    AUGMENTATIONS[name](4)(make_batch((6, 3, 8, 9)), make_generator())
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("name", sorted(set(AUGMENTATIONS) - {"mixup", "cutmix"}))
def test_augmentations_vary_between_examples(name):
    x = make_images((1, 3, 16, 12)).expand(40, -1, -1, -1).contiguous()
    out = AUGMENTATIONS[name](4)({"x": x}, make_generator())["x"]
    assert len(torch.unique(out.flatten(1), dim=0)) >= (2 if name == "flip" else 9)


def test_augmentation_variants_of_the_courses():
    """Gaba 4.6 pads with zeros and keeps saturation, Gaba 3.10 rotates and translates without scaling."""
    ones = {"x": torch.ones(50, 3, 16, 16)}
    assert (AUGMENTATIONS["crop_black"](4)(ones, make_generator())["x"] == 0).any()
    assert (AUGMENTATIONS["crop"](4)(ones, make_generator())["x"] == 1).all()
    gray = {"x": make_images((1, 1, 16, 16)).expand(50, 3, -1, -1)}
    light = AUGMENTATIONS["light"](4)
    assert_same(light(gray, make_generator())["x"].std(1), torch.zeros(50, 16, 16))
    assert (light.saturation, light.brightness, light.contrast) == (0, 0.2, 0.2)
    disc = (torch.arange(33) - 16).square() + (torch.arange(33)[:, None] - 16).square() < 64
    discs = {"x": disc.float().expand(200, 1, 33, 33)}
    mass = [AUGMENTATIONS[name](4)(discs, make_generator())["x"].sum((1, 2, 3)) for name in ("rigid", "affine")]
    assert mass[0].std() < 0.02 * mass[0].mean() < 0.05 * mass[0].mean() < mass[1].std(), (
        "only scaling changes the area"
    )


def test_flip_mirrors_both_axes():
    b = make_batch((5, 3, 7, 4))
    flip_both = Flip(horizontal=1, vertical=1)
    assert_same(flip_both(b, make_generator())["x"], b["x"].flip((2, 3)), atol=0)
    assert_same(flip_both(flip_both(b, make_generator()), make_generator())["x"], b["x"], atol=0)
    assert_same(Flip(horizontal=1)(b, make_generator())["x"], b["x"].flip(-1), atol=0)
    assert_same(Flip(horizontal=0, vertical=1)(b, make_generator())["x"], b["x"].flip(-2), atol=0)


def test_flip_rate():
    x = torch.zeros(4000, 1, 1, 2)
    x[..., 0] = 1
    rate = Flip(horizontal=0.3)({"x": x}, make_generator())["x"][:, 0, 0, 1].mean()
    assert abs(rate - 0.3) < 4 * (0.3 * 0.7 / 4000) ** 0.5


@pytest.mark.parametrize("shape", [(300, 1, 9, 14), (300, 3, 11, 8)])
def test_random_crop_is_a_roll_padded_with_zeros(shape):
    b = make_batch(shape)
    out = RandomCrop(padding=2)(b, make_generator())["x"]
    height, width = shape[2:]
    shifts = set()
    for x, y in zip(b["x"], out, strict=True):
        matching_shifts = []
        for down in range(-2, 3):
            for right in range(-2, 3):
                rolled = torch.roll(x, (down, right), (1, 2))
                rows, cols = torch.arange(height) - down, torch.arange(width) - right
                inside_mask = ((rows >= 0) & (rows < height))[:, None] & (cols >= 0) & (cols < width)
                if torch.equal(y, rolled * inside_mask):
                    matching_shifts.append((down, right))
        assert len(matching_shifts) == 1
        shifts.add(matching_shifts[0])
    assert len(shifts) == 25


def test_random_crop_reflection_equals_numpy():
    b = make_batch((200, 2, 6, 7))
    out = RandomCrop(padding=2, reflect=True)(b, make_generator())["x"]
    for x, y in zip(b["x"], out, strict=True):
        padded = torch.from_numpy(np.pad(x.numpy(), ((0, 0), (2, 2), (2, 2)), mode="reflect"))
        assert any(torch.equal(y, padded[:, i : i + 6, j : j + 7]) for i in range(5) for j in range(5))
    small_batch = make_batch((3, 1, 2, 2))
    assert RandomCrop(padding=2, reflect=True)(small_batch, make_generator())["x"].shape == (3, 1, 2, 2), (
        "too small to be reflected: black"
    )


@pytest.mark.parametrize(("down", "right"), [(0, 2), (3, 0), (-1, -2)])
def test_warp_by_whole_pixels_is_a_roll_inside(down, right):
    x = make_images((2, 3, 10, 13))
    out = warp(x, torch.zeros(2, 1, 1, 1), down=down, right=right)
    assert_same(out[..., 3:-3, 3:-3], torch.roll(x, (down, right), (2, 3))[..., 3:-3, 3:-3])


@pytest.mark.parametrize("side", [8, 9])
@pytest.mark.parametrize("quarter_turns", [1, 2, 3])
def test_warp_by_quarter_turns_equals_rot90(side, quarter_turns):
    x = make_images((2, 3, side, side))
    out = warp(x, torch.full((2, 1, 1, 1), quarter_turns * pi / 2))
    assert_same(out, torch.rot90(x, quarter_turns, (2, 3)))


def test_warp_by_half_a_turn_flips_an_oblong_image():
    x = make_images((2, 1, 6, 11))
    assert_same(warp(x, torch.full((2, 1, 1, 1), pi)), x.flip((2, 3)))


@pytest.mark.parametrize("shape", [(1, 1, 9, 14), (1, 1, 12, 7)])
def test_warp_equals_scipy_affine_transform(shape):
    x = make_images(shape)
    angle, scale, shear, right, down = radians(33), 1.3, 0.2, 1.7, -0.6
    t = torch.full((1, 1, 1, 1), angle)
    out = warp(x, t, scale=scale, shear=shear, right=right, down=down)
    # scipy maps output (row, column) to input; rows point down, so counterclockwise is clockwise in (x, y)
    rotation = np.array([[cos(angle), sin(angle)], [-sin(angle), cos(angle)]])
    forward = scale * rotation @ np.array([[1, shear], [0, 1]])
    inverse = np.linalg.inv(forward)[::-1, ::-1]
    center = (np.array(shape[2:]) - 1) / 2
    offset = center - inverse @ (center + np.array([down, right]))
    expected = ndimage.affine_transform(x[0, 0].double().numpy(), inverse, offset, order=1, mode="grid-constant")
    np.testing.assert_allclose(out[0, 0], expected, atol=1e-5)


def test_rotate_samples_angles_within_its_bounds():
    x = torch.zeros(2000, 1, 41, 41)
    x[:, 0, 20, 20:] = 1                                       # a ray to the right
    out = Rotate(30)({"x": x}, make_generator())["x"][:, 0]
    v, u = torch.meshgrid(20 - torch.arange(41.0), torch.arange(41.0) - 20, indexing="ij")
    angle = torch.rad2deg(torch.atan2((out * v).sum((1, 2)), (out * u).sum((1, 2))))
    assert angle.abs().max() < 30.5
    assert abs(angle.mean()) < 4 * 30 / 3**0.5 / 2000**0.5
    assert abs(angle.std() - 30 / 3**0.5) < 0.7


def test_affine_translates_by_fractions_of_each_side():
    x = torch.zeros(2000, 1, 20, 40)
    x[:, 0, 10, 20] = 1
    out = Affine(degrees=0, translate=0.1, scale=0)({"x": x}, make_generator())["x"][:, 0]
    down = (out * torch.arange(20.0)[:, None]).sum((1, 2)) - 10
    right = (out * torch.arange(40.0)).sum((1, 2)) - 20
    assert 1.9 < down.abs().max() < 2.001
    assert 3.8 < right.abs().max() < 4.001
    assert abs(np.corrcoef(down, right)[0, 1]) < 0.1


@pytest.mark.parametrize("kind", ["brightness", "contrast", "saturation"])
def test_color_jitter_equals_pillow_enhancement(kind):
    from PIL import Image, ImageEnhance

    no_jitter = {"brightness": 0.0, "contrast": 0.0, "saturation": 0.0}
    pixels = (make_images((8, 3, 9, 14)) * 255).byte()
    x = pixels.float() / 255
    out = ColorJitter(**{**no_jitter, kind: 0.5})({"x": x}, make_generator())["x"]
    factors = 0.5 + torch.rand(8, generator=make_generator())
    enhancer = {"brightness": "Brightness", "contrast": "Contrast", "saturation": "Color"}[kind]
    for image, jittered_image, f in zip(pixels, out, factors.tolist(), strict=True):
        pillow = getattr(ImageEnhance, enhancer)(Image.fromarray(image.permute(1, 2, 0).numpy())).enhance(f)
        # Pillow rounds
        np.testing.assert_allclose(jittered_image.permute(1, 2, 0), np.asarray(pillow) / 255, atol=2.1 / 255)


def test_color_jitter_saturation_leaves_gray_images_alone():
    b = make_batch((4, 1, 5, 6))
    assert_same(ColorJitter(0, 0, saturation=0.9)(b, make_generator())["x"], b["x"], atol=1e-6)


def test_gaussian_noise_is_normal():
    x = make_images((50, 3, 20, 10))
    e = (GaussianNoise(0.1)({"x": x}, make_generator())["x"] - x) / 0.1
    assert stats.kstest(e.flatten().numpy()[:5000], "norm").pvalue > 1e-3


@pytest.mark.parametrize("size", [1, 4, 5, 30])
@pytest.mark.parametrize("shape", [(200, 1, 9, 14), (200, 3, 12, 7)])
def test_cutout_blackens_exactly_one_box(size, shape):
    x = make_images(shape) + 0.1
    out = Cutout(size)({"x": x}, make_generator())["x"]
    black_mask = out == 0
    assert torch.equal(out, x * ~black_mask)
    assert torch.equal(black_mask.all(1), black_mask.any(1))                # the same in every channel
    rows, cols = black_mask[:, 0].any(2), black_mask[:, 0].any(1)
    assert torch.equal(black_mask[:, 0], rows[:, :, None] & cols[:, None, :])          # a rectangle ...
    for line in (rows, cols):
        side = line.shape[1]
        assert (line.int().diff(dim=1).abs().sum(1) <= 2).all()                  # ... without holes ...
        is_unclipped = ~line[:, 0] & ~line[:, -1]
        # ... of the given size, unless clipped
        assert (line[is_unclipped].sum(1) == size).all()
        assert (line.sum(1) >= min(size // 2, side)).all()


def test_sample_box_mask_centers_are_uniform():
    x = torch.zeros(7000, 1, 5, 7)
    positions = sample_box_mask(x, make_generator(), 1, 1).flatten(1).int().argmax(1)
    counts = torch.bincount(positions, minlength=35)
    assert stats.chisquare(counts.numpy()).pvalue > 1e-3


@pytest.mark.parametrize("alpha", [0.05, 0.2, 1.0, 4.0])
def test_sample_beta_follows_the_distribution(alpha):
    l = sample_beta(alpha, 20_000, make_generator())
    assert l.isfinite().all()
    assert l.min() >= 0
    assert l.max() <= 1
    variance = 1 / (4 * (2 * alpha + 1))
    assert abs(l.mean() - 0.5) < 4 * (variance / 20_000) ** 0.5
    assert l.var().item() == pytest.approx(variance, rel=0.03)
    low = l[l < 0.5].double().numpy()  # the lower half: near 1, where float32 is coarse, much of the mass is rounded
    assert stats.kstest(low, lambda v: 2 * stats.beta(alpha, alpha).cdf(v)).pvalue > 1e-3


def test_sample_beta_of_a_tiny_alpha_is_a_coin():
    l = sample_beta(1e-3, 2000, make_generator())
    assert (((l < 1e-6) | (l > 1 - 1e-6)).float().mean()) > 0.97
    assert abs(l.mean() - 0.5) < 0.05
    with pytest.raises(UsageError, match="more than 0, got 0"):
        sample_beta(0, 3, make_generator())


@pytest.mark.parametrize("shape", [*SHAPES, (7, 13)])            # a table can be mixed too
def test_mixup_images_match_their_labels(shape):
    n = shape[0]
    b = {"x": make_images(shape), "y": torch.arange(n)}  # every example a class of its own: labels name the partner
    out = Mixup(alpha=1.0, num_classes=n)(b, make_generator())
    y = out["y"]
    assert y.shape == (n, n)
    assert_same(y.sum(1), torch.ones(n), atol=1e-6)
    assert ((y > 0).sum(1) <= 2).all()
    assert_same(out["x"], (y @ b["x"].flatten(1)).view(shape), atol=1e-6)
    partner = (y - torch.diag(y.diag())).argmax(1)
    assert (partner != torch.arange(n)).sum() >= 2


@pytest.mark.parametrize("shape", [(64, 1, 9, 14), (64, 3, 11, 7)])
def test_cutmix_labels_count_the_pixels(shape):
    n, channels, height, width = shape
    x = torch.arange(n, dtype=torch.float32)[:, None, None, None].expand(shape)  # every pixel names its owner
    out = CutMix(alpha=1.0, num_classes=n)({"x": x, "y": torch.arange(n)}, make_generator())
    owners = out["x"][:, 0].long()
    assert all(torch.equal(out["x"][:, c].long(), owners) for c in range(channels))
    pixel_shares = torch.stack([torch.bincount(o.flatten(), minlength=n) for o in owners]) / (height * width)
    assert_same(out["y"], pixel_shares, atol=1e-6)
    own_shares = out["y"].diag()
    assert len(own_shares.unique()) > 20
    assert 0.35 < own_shares.mean() < 0.8                              # clipping keeps more than Beta(1, 1)'s half


@pytest.mark.parametrize("augment", [Mixup, CutMix])
def test_mixup_and_cutmix_mix_numeric_targets(augment):
    b = {"x": make_images((6, 1, 8, 8)), "y": torch.tensor([0, 1, 0, 1, 1, 0])}
    one_output = augment(1.0, 1)(b, make_generator())["y"]
    two_outputs = augment(1.0, 2)(b, make_generator())["y"]
    assert_same(two_outputs[:, 1], one_output, atol=1e-6)                  # one output: the probability of class 1
    numeric_targets = augment(1.0, 0)({**b, "y": b["y"].float()}, make_generator())["y"]
    assert_same(numeric_targets, one_output, atol=0)
    chained_targets = compose(augment(1.0, 2), augment(1.0, 2))(b, make_generator())["y"]
    assert_same(chained_targets.sum(1), torch.ones(6), atol=1e-6)


def test_compose_and_make_augmentations_apply_in_order():
    b, g = make_batch((6, 3, 8, 9)), make_generator()
    expected = GaussianNoise()(Flip()(b, g), g)["x"]
    assert_same(compose(Flip(), GaussianNoise())(b, make_generator())["x"], expected, atol=0)
    assert_same(make_augmentations(("flip", "noise"), num_classes=4)(b, make_generator())["x"], expected, atol=0)
    assert make_augmentations((), num_classes=4) is None
    with pytest.raises(UsageError, match="no augmentation named 'mixap'; did you mean 'mixup'"):
        make_augmentations(("flip", "mixap"), num_classes=4)


def test_flip_refuses_tables():
    with pytest.raises(UsageError, match=r"for images .* got \(5, 13\)"):
        Flip()({"x": torch.rand(5, 13)}, make_generator())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", sorted(AUGMENTATIONS))
def test_cuda_graph_captures_every_augmentation(name):
    augment = AUGMENTATIONS[name](4)
    b = {k: v.cuda() for k, v in make_batch((32, 3, 9, 14)).items()}
    g = torch.Generator("cuda").manual_seed(0)
    eager = [augment(b, g) for _ in range(3)]
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        augment(b, g)
    torch.cuda.synchronize()
    g.manual_seed(0)
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(g)
    with torch.cuda.graph(graph):
        out = augment(b, g)
    for expected in eager:                                 # replays continue the random stream, and sample the same
        graph.replay()
        assert_same(out["x"], expected["x"], atol=1e-6)
        assert_same(out["y"], expected["y"], atol=1e-6)
