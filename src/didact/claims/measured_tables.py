"""The measured tables of the courses, and claims about time: what is stated, and the configurations that measure it.

Tables are named by their section. `unstated_choices` says what the course leaves open, and the choice made here.
"""

from typing import Any

from didact.claims.measured_table import Cell, Grid, MeasuredTable, MetricReading, Ordering

# "validation" is the course's test split: with the *_whole datasets all training examples train, and it is evaluated
# after every epoch
_ACCURACY, _LOSS, _TIME_RATIO = (
    MetricReading("validation", "accuracy"),
    MetricReading("train", "loss"),
    MetricReading("time", "ratio"),
)
_MNIST_OPTIONS: dict[str, Any] = {       # Gaba 1.6: linear layers with ReLU, and a constant learning rate
    "data": "mnist_whole", "dropout": 0.0, "init": "pytorch", "optimizer": "adam", "lr": 1e-3, "weight_decay": 0.0,
    "schedule": "constant", "epochs": 10, "batch_size": 128,
}  # fmt: skip
_CIFAR_OPTIONS = {"data": "cifar10_whole", "augment": ("crop_black", "flip", "light"), "batch_size": 128}
_SEQUENCE_OPTIONS: dict[str, Any] = {
    "data": "token_means", "recurrent_init": "random", "pool": "last", "vocab_size": 1000, "max_length": 50,
    "embed_dim": 128, "embedding_std": 1.0, "embedding_dropout": 0.0, "lr": 1e-3, "schedule": "constant",
    "clip_norm": 1.0, "batch_size": 64,
}  # fmt: skip
_REVIEW_OPTIONS: dict[str, Any] = {
    "data": "imdb_whole", "lr": 1e-4, "weight_decay": 0.01, "dropout": 0.1, "max_length": 256, "schedule": "constant",
    "clip_norm": None, "embedding_std": 1.0, "epochs": 10, "batch_size": 32,
}  # fmt: skip
_GAN_OPTIONS: dict[str, Any] = {"data": "fashion_mnist_whole", "epochs": 25, "batch_size": 128}
_VAE_OPTIONS: dict[str, Any] = {"data": "mnist_whole", "hidden": (512,), "epochs": 30, "batch_size": 128}
_DIFFUSION_OPTIONS: dict[str, Any] = {
    "data": "mnist_whole", "network": "simple", "variance": "beta", "solver_order": 1, "prediction_type": "noise",
    "lr": 2e-4, "ema": None, "clip_norm": None, "schedule": "constant", "epochs": 20, "batch_size": 128,
}  # fmt: skip
_ONE_LOGIT_NOTE = "One logit and its sigmoid for two classes, where the course has two logits and their softmax."
_FRECHET_REASON = (
    "the course names Inception's features but neither how small gray images enter the network nor how many; here the "
    "features are 8×8 thumbnails, whose distances do not compare with its own"
)
_DEVICE_REASON = (
    "the course names no device, and ratios over widths and heads depend on whether launches, memory or arithmetic "
    "limit it"
)


def _drop_options(options: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in names}


def _at_epoch(reading: MetricReading, epoch: int) -> MetricReading:
    return MetricReading(reading.split, reading.metric, epoch)


def _cells_along_axis(
    claim: str, axis: str, stated: dict[Any, float], reading: MetricReading, grid: int = 0, reason: str = ""
) -> tuple[Cell, ...]:
    """A cell for each value of an axis."""
    return tuple(Cell(claim, number, reading, grid, {axis: value}, reason) for value, number in stated.items())


def _cells_by_epoch(claim: str, stated: dict[int, float], reading: MetricReading) -> tuple[Cell, ...]:
    """A cell for each epoch of one configuration."""
    return tuple(Cell(claim, number, _at_epoch(reading, epoch)) for epoch, number in stated.items())


def _best_pairs(index: int, *others: int) -> tuple[tuple[int, int], ...]:
    return tuple((index, other) for other in others if other != index)


def _worst_pairs(index: int, *others: int) -> tuple[tuple[int, int], ...]:
    return tuple((other, index) for other in others if other != index)


def _mnist_table() -> MeasuredTable:
    stated = {1: ("C1.20", 0.2534, 0.9612), 2: ("C1.21", 0.1042, 0.9710), 10: ("C1.22", 0.0198, 0.9793)}
    cells = [
        Cell(claim, n, _at_epoch(r, epoch))
        for epoch, (claim, *numbers) in stated.items()
        for n, r in zip(numbers, (_LOSS, _ACCURACY), strict=True)
    ]
    return MeasuredTable(
        "1.6",
        "an MLP on MNIST, epoch by epoch",
        (Grid("mlp", _MNIST_OPTIONS | {"hidden": (256, 128)}),),
        tuple(cells),
        unstated_choices="Seed and number of runs.",
    )


def _mlp_width_table() -> MeasuredTable:
    stated = {(1024,): 0.9781, (256, 128): 0.9793, (256, 128, 64): 0.9802, (64, 64, 64, 64): 0.9745}
    return MeasuredTable(
        "1.7",
        "wide, two layers, three layers, deep and narrow on MNIST",
        (Grid("mlp", _MNIST_OPTIONS, {"hidden": tuple(stated)}),),
        _cells_along_axis("C1.23", "hidden", stated, _at_epoch(_ACCURACY, 10)),
        (
            Ordering(
                "three layers best, deep and narrow worst", _best_pairs(2, 0, 1, 3) + _worst_pairs(3, 0, 1), "C1.24"
            ),
        ),
        unstated_choices="Epochs (10, as in 1.6), which epoch counts (the last), seed.",
    )


def _optimizer_table() -> MeasuredTable:
    options = _drop_options(_MNIST_OPTIONS, "optimizer", "lr", "weight_decay") | {"hidden": (256, 128)}
    grids = (Grid("mlp", options | {"lr": 0.01, "weight_decay": 0.0}, {"optimizer": ("sgd", "momentum")}),
             Grid("mlp", options | {"lr": 1e-3, "weight_decay": 0.0}, {"optimizer": ("adam",)}),
             Grid("mlp", options | {"lr": 1e-3, "weight_decay": 0.01}, {"optimizer": ("adamw",)}))
    stated = (
        ("C2.25", "sgd", 0.9532, 0),
        ("C2.26", "momentum", 0.9721, 0),
        ("C2.27", "adam", 0.9793, 1),
        ("C2.28", "adamw", 0.9801, 2),
    )
    cells = tuple(
        Cell(claim, number, _at_epoch(_ACCURACY, 10), grid, {"optimizer": name}) for claim, name, number, grid in stated
    )
    return MeasuredTable("2.8", "four optimizers on MNIST", grids, cells,
                 (Ordering("AdamW above Adam above momentum above SGD", ((3, 2), (2, 1), (1, 0))),),
                 unstated_choices="Batch size (128), schedule (none), seed; its train_and_eval is not printed.")


def _dropout_decay_table() -> MeasuredTable:
    dropouts, decays = (0.0, 0.1, 0.3, 0.5, 0.7), (0.0, 1e-5, 1e-4, 1e-3, 1e-2)
    rows = {"C3.17": (0.9812, 0.9821, 0.9835, 0.9801, 0.9754), "C3.18": (0.9838, 0.9842, 0.9851, 0.9828, 0.9773),
            "C3.19": (0.9845, 0.9849, 0.9856, 0.9839, 0.9790), "C3.20": (0.9831, 0.9835, 0.9843, 0.9821, 0.9779),
            "C3.21": (0.9762, 0.9770, 0.9778, 0.9755, 0.9701)}
    cells = tuple(
        Cell(claim, number, _at_epoch(_ACCURACY, 20), 0, {"dropout": p, "weight_decay": decay})
        for (claim, numbers), p in zip(rows.items(), dropouts, strict=True)
        for number, decay in zip(numbers, decays, strict=True)
    )
    options = _MNIST_OPTIONS | {
        "hidden": (256, 256),
        "norm": "batch",
        "label_smoothing": 0.1,
        "augment": ("rigid",),
        "optimizer": "adamw",
        "epochs": 20,
    }
    least_decay = tuple(pair for row in range(5) for pair in _worst_pairs(5 * row + 4, *range(5 * row, 5 * row + 4)))
    most_dropout = tuple(pair for column in range(5) for pair in _worst_pairs(20 + column, *range(column, 20, 5)))
    orderings = (
        Ordering("dropout 0.3 with decay 1e-4 best", _best_pairs(12, *range(25))),
        Ordering("decay 1e-2 worst in every row", least_decay),
        Ordering("dropout 0.7 worst in every column", most_dropout),
    )
    grid = Grid("mlp", _drop_options(options, "dropout", "weight_decay"), {"dropout": dropouts, "weight_decay": decays})
    return MeasuredTable(
        "3.11",
        "dropout and weight decay on MNIST",
        (grid,),
        cells,
        orderings,
        unstated_choices="Seed, runs. Rotated and shifted images are interpolated linearly; the course takes the "
        "nearest pixel.",
    )


def _cifar_table() -> MeasuredTable:
    epochs = range(10, 101, 10)
    test = (0.7856, 0.8523, 0.8802, 0.8945, 0.9034, 0.9098, 0.9145, 0.9178, 0.9201, 0.9218)
    # on augmented images, with dropout
    train = (0.7142, 0.8134, 0.8612, 0.8876, 0.9056, 0.9213, 0.9345, 0.9467, 0.9534, 0.9578)
    loss = (0.8234, 0.5321, 0.4012, 0.3245, 0.2678, 0.2234, 0.1878, 0.1534, 0.1312, 0.1198)
    options = _CIFAR_OPTIONS | {
        "model": "cifar10net",
        "lr": 1e-3,
        "weight_decay": 1e-4,
        "schedule": "cosine",
        "clip_norm": None,
        "epochs": 100,
    }
    cells = (*_cells_by_epoch("C4.14", dict(zip(epochs, test, strict=True)), _ACCURACY),
             *_cells_by_epoch("C4.15", dict(zip(epochs, train, strict=True)), MetricReading("train", "accuracy")),
             *_cells_by_epoch("C4.16", dict(zip(epochs, loss, strict=True)), _LOSS))
    return MeasuredTable(
        "4.6",
        "CIFAR10Net, a hundred epochs",
        (Grid("cnn", options | {"train_accuracy": True}),),
        cells,
        unstated_choices="Seed, runs. Brightness changes before contrast; in the course in random order.",
    )


def _cnn_ablation_table() -> MeasuredTable:
    options = _CIFAR_OPTIONS | {"lr": 1e-3, "weight_decay": 0.01, "schedule": "constant", "epochs": 30}
    configurations = ((3, 32, 3), (5, 32, 3), (3, 64, 3), (3, 32, 5))
    grids = tuple(
        Grid("cnn_ablation", options, {"kernel_size": (k,), "channels": (f,), "num_blocks": (b,)})
        for k, f, b in configurations
    )
    axes = ("kernel_size", "channels", "num_blocks")
    cells = tuple(
        Cell("C4.22", number, _ACCURACY, i, dict(zip(axes, configurations[i], strict=True)))
        for i, number in enumerate((0.8734, 0.8812, 0.9015, 0.8956))
    )
    return MeasuredTable(
        "4.8",
        "kernels, filters and depth on CIFAR-10",
        grids,
        cells,
        (
            Ordering("more filters help more than larger kernels or more depth", _best_pairs(2, 0, 1, 3), "C4.23"),
            Ordering("5×5 kernels gain over 3×3", ((1, 0),)),
            Ordering("depth helps", ((3, 0),)),
        ),
        unstated_choices="Seed. The best epoch on the test split counts, as in the course, which is optimistic.",
    )


def _sentiment_lstm_table() -> MeasuredTable:
    options = _SEQUENCE_OPTIONS | {
        "cell": "lstm",
        "hidden_size": 256,
        "num_layers": 2,
        "head": (128,),
        "dropout": 0.3,
        "weight_decay": 1e-4,
        "epochs": 20,
    }
    stated = {5: (0.5823, 0.7120), 10: (0.3912, 0.8210), 15: (0.2534, 0.8650), 20: (0.1823, 0.8890)}
    cells = (*_cells_by_epoch("C5.16", {n: v[0] for n, v in stated.items()}, _LOSS),
             *_cells_by_epoch("C5.16", {n: v[1] for n, v in stated.items()}, _ACCURACY))
    return MeasuredTable("5.8", "SentimentLSTM on sequences of numbers", (Grid("text_rnn", options),), cells,
                 unstated_choices=f"Seed. {_ONE_LOGIT_NOTE}")


def _recurrent_ablation_table() -> MeasuredTable:
    options = _SEQUENCE_OPTIONS | {"dropout": 0.0, "weight_decay": 0.0, "epochs": 15}
    rows = (
        ("lstm", 64, 1, 0.8234),
        ("lstm", 128, 1, 0.8650),
        ("lstm", 256, 1, 0.8812),
        ("lstm", 128, 2, 0.8745),
        ("lstm", 128, 3, 0.8701),
        ("gru", 128, 1, 0.8590),
        ("gru", 128, 2, 0.8678),
    )
    grids = tuple(
        Grid("text_rnn", options, {"cell": (cell,), "hidden_size": (hidden,), "num_layers": (layers,)})
        for cell, hidden, layers, _ in rows
    )
    cells = tuple(
        Cell("C5.24", number, _ACCURACY, i, {"cell": cell, "hidden_size": hidden, "num_layers": layers})
        for i, (cell, hidden, layers, number) in enumerate(rows)
    )
    return MeasuredTable("5.9", "LSTM and GRU, wide and deep, on sequences of numbers", grids, cells,
                 (Ordering("wider is better, three layers worse than two", ((1, 0), (2, 1), (3, 4)), "C5.25"),),
                 unstated_choices=f"Seed. Adam is AdamW without decay. {_ONE_LOGIT_NOTE}")


def _attention_time_table() -> MeasuredTable:
    stated = {(512, 1): 3.24, (512, 2): 3.18, (512, 4): 3.15, (512, 8): 3.21, (512, 16): 3.34, (512, 32): 3.82,
              (256, 8): 1.12, (768, 8): 6.45, (1024, 8): 10.87}
    options = {"batch": 32, "length": 128, "dropout": 0.1, "warmup": 5, "calls": 50}
    grids = (Grid("multi_head_attention", options, {"dim": (512,), "heads": (1, 2, 4, 8, 16, 32)}),
             Grid("multi_head_attention", options, {"dim": (256, 768, 1024), "heads": (8,)}))
    base = {"dim": 512, "heads": 8}
    cells = tuple(
        Cell("", 1, _TIME_RATIO, 0, base, "1 by definition: the others are ratios to it", baseline=base)
        if configuration == base
        else Cell(
            "C6.15",
            round(ms / 3.21, 4),
            _TIME_RATIO,
            int(configuration["dim"] != 512),
            configuration,
            _DEVICE_REASON,
            baseline=base,
        )
        for (dim, heads), ms in stated.items()
        for configuration in [{"dim": dim, "heads": heads}]
    )
    return MeasuredTable(
        "6.11",
        "time of multi-head attention, over that of width 512 with 8 heads",
        grids,
        cells,
        (
            Ordering(
                "nearly constant up to 16 heads, within a tenth", tuple((i, 3) for i in (0, 1, 2, 4)), equal_within=0.1
            ),
            Ordering("32 heads are slower", _best_pairs(5, 0, 1, 2, 3, 4)),
        ),
        is_benchmark=True,
        unstated_choices="Device, precision (float32), threads.",
    )


def _flash_attention_table() -> MeasuredTable:
    lengths, precisions = (1024, 2048, 4096, 8192), ("fp32", "bf16")
    grid = Grid("scaled_dot_product", {"batch": 2, "heads": 8, "dim": 64, "warmup": 5, "calls": 20},
                {"form": ("explicit", "fused"), "precision": precisions, "length": lengths})

    def configuration(form: str, precision: str, length: int) -> dict[str, Any]:
        return {"form": form, "precision": precision, "length": length}

    times = [
        Cell(
            "C6.19",
            2,
            _TIME_RATIO,
            0,
            configuration("explicit", p, n),
            range_end=4,
            baseline=configuration("fused", p, n),
        )
        for p in precisions
        for n in lengths
    ]
    # O(n): twice the memory for twice the length
    memory = [
        Cell(
            "C6.19",
            2,
            MetricReading("memory", "ratio"),
            0,
            configuration("fused", p, 2 * n),
            baseline=configuration("fused", p, n),
        )
        for p in precisions
        for n in lengths[:-1]
    ]
    return MeasuredTable(
        "6.12",
        "attention with its n × n matrix over PyTorch's kernel without it",
        (grid,),
        (*times, *memory),
        is_benchmark=True,
        needs_gpu=True,
        cells_are_conditions=True,
        unstated_choices="GPU, lengths, precision, batch size (2), heads (8 of dimension 64), forward alone or not "
        "(alone). In float32 PyTorch's kernel is not FlashAttention, which needs 16 bits, but another one without the "
        "matrix.",
    )


def _gru_time_table() -> MeasuredTable:
    sizes = ((64, 1), (128, 1), (256, 1), (128, 2), (128, 3))
    options = {"width": 128, "batch": 64, "length": 50, "warmup": 3, "calls": 20}
    grids = tuple(
        Grid("recurrent_layer", options, {"cell": ("lstm", "gru"), "hidden": (hidden,), "layers": (layers,)})
        for hidden, layers in sizes
    )
    cells = tuple(
        Cell(
            "C5.13",
            0.25,
            MetricReading("time", "saved"),
            i,
            {"cell": "gru"} | size,
            range_end=0.2,
            baseline={"cell": "lstm"} | size,
        )
        for i, size in enumerate({"hidden": hidden, "layers": layers} for hidden, layers in sizes)
    )
    return MeasuredTable(
        "5.6",
        "fraction of the time of an LSTM that a GRU saves, forward and backward",
        grids,
        cells,
        is_benchmark=True,
        cells_are_conditions=True,
        unstated_choices="Device, sizes (those of 5.9, one direction), batch size (64), length (50), and whether 25 % "
        "is of time or of speed: a quarter more speed is a fifth less time, and either counts.",
    )


def _batch_time_table() -> MeasuredTable:
    sizes = (4, 16, 64, 256)
    grid = Grid("classifier", {"warmup": 5, "calls": 30}, {"network": ("mlp", "resnet18"), "batch": (1, *sizes)})
    cells = tuple(
        Cell("CF51", 1, _TIME_RATIO, 0, {"network": network, "batch": n}, baseline={"network": network, "batch": 1})
        for network in ("mlp", "resnet18") for n in sizes
    )
    return MeasuredTable(
        "fleuret-2.1",
        "time of a batch over that of one sample",
        (grid,),
        cells,
        is_benchmark=True,
        needs_gpu=True,
        cells_are_conditions=True,
        unstated_choices="GPU, network (three layers of 1024, ResNet-18 on 224 × 224), float32, batch size; almost: "
        "within a tenth.",
    )


def _review_transformer_table() -> MeasuredTable:
    base = {"num_layers": 4, "num_heads": 4, "ffn_dim": 512, "norm": "pre"}
    stated: dict[str, tuple[str, dict[Any, float]]] = {
        "norm": ("C7.10", {"post": 0.863, "pre": 0.871}),
        "num_layers": ("C7.11", {1: 0.825, 2: 0.854, 6: 0.874, 8: 0.872}),
        "num_heads": ("C7.12", {1: 0.848, 2: 0.860, 8: 0.873}),
        "ffn_dim": ("C7.13", {128: 0.841, 256: 0.859, 1024: 0.875}),
    }  # fmt: skip
    grids = tuple(
        Grid("text_transformer", _REVIEW_OPTIONS | _drop_options(base, axis), {axis: tuple(row)})
        for axis, (_, row) in stated.items()
    )
    cells = tuple(
        cell
        for i, (axis, (claim, row)) in enumerate(stated.items())
        for cell in _cells_along_axis(claim, axis, row, _at_epoch(_ACCURACY, 10), i)
    )
    return MeasuredTable(
        "7.9",
        "a Transformer on film reviews (table 7.1)",
        grids,
        cells,
        (
            Ordering("pre-norm above post-norm", ((1, 0),), "C7.14"),
            Ordering("beyond 6 layers little is gained, less than a hundredth", ((5, 4),), equal_within=0.01),
            Ordering("the width of the feed-forward layer matters: 128 units worst", _worst_pairs(9, 10, 1, 11)),
            Ordering("one head is not enough", _worst_pairs(6, 7, 1, 8)),
        ),
        unstated_choices="Tokenization, vocabulary (10,000), batch size (32, as in 7.8), epochs (10, the last counts), "
        "warm-up (none), seeds; embedding dimension 128, and pre-norm unless the norm is what changes. Padding is "
        f"masked in attention and in the mean (M38). {_ONE_LOGIT_NOTE}",
    )


def _dcgan_table() -> MeasuredTable:
    traces = {1: (0.5823, 1.8932), 2: (0.4517, 2.1045), 10: (0.6102, 1.3287), 25: (0.6731, 0.9845)}
    cells = tuple(
        Cell("C8.11", number, MetricReading("train", f"{player}/loss", epoch, last_batch=True))
        for epoch, numbers in traces.items()
        for player, number in zip(("discriminator", "generator"), numbers, strict=True)
    )
    return MeasuredTable(
        "8.7",
        "DCGAN on Fashion-MNIST, epoch by epoch",
        (Grid("dcgan", _GAN_OPTIONS | {"log_every": 1}),),
        cells,
        unstated_choices="Seed. The last batch of an epoch has 96 images; the course drops it.",
    )


def _gan_ablation_table() -> MeasuredTable:
    fid = MetricReading("validation", "frechet", 25)
    grids = (
        Grid("dcgan", _GAN_OPTIONS, {"latent_dim": (32, 64, 100, 256)}),
        *(
            Grid("dcgan", _GAN_OPTIONS, {"lr": (g,), "lr_discriminator": (d,)})
            for g, d in ((5e-4, 2e-4), (2e-4, 5e-4), (1e-4, 4e-4))
        ),
        Grid("dcgan", _GAN_OPTIONS, {"discriminator_steps": (1, 3)}),
        Grid("wgan", _GAN_OPTIONS | {"lr": 1e-4}, {"discriminator_steps": (5,)}),
    )
    cells = (
        Cell("C8.14", 28.3, fid, 0, {"latent_dim": 100}, _FRECHET_REASON),
        *_cells_along_axis("C8.15", "latent_dim", {32: 35.1, 64: 30.2, 256: 27.8}, fid, 0, _FRECHET_REASON),
        *(
            Cell("C8.16", number, fid, 1 + i, {"lr": g, "lr_discriminator": d}, _FRECHET_REASON)
            for i, (g, d, number) in enumerate(((5e-4, 2e-4, 32.5), (2e-4, 5e-4, 41.7), (1e-4, 4e-4, 25.9)))
        ),
        *_cells_along_axis("C8.17", "discriminator_steps", {1: 28.3, 3: 26.7}, fid, 4, _FRECHET_REASON),
        *_cells_along_axis("C8.17", "discriminator_steps", {5: 23.4}, fid, 5, _FRECHET_REASON),
    )
    # a lower FID is better, so the first of a pair is the worse
    orderings = (
        Ordering("too few latent dimensions are worse", _best_pairs(1, 0, 2, 3)),
        Ordering("two time-scales are better than one", ((0, 6),)),
        Ordering("WGAN-GP with five critic steps best of all", _worst_pairs(9, *range(9))),
    )
    return MeasuredTable(
        "8.9",
        "DCGAN and WGAN-GP on Fashion-MNIST (table 8.1)",
        grids,
        cells,
        orderings,
        unstated_choices="Features and number of images of FID, the loss for three critic steps (the base's, since its "
        "learning rates are too), λ (10), seeds. The last batch of an epoch, smaller than the others, is not dropped.",
    )


def _vae_table() -> MeasuredTable:
    stated = {5: 137.42, 10: 118.65, 15: 112.83, 20: 109.71, 25: 107.94, 30: 106.58}
    return MeasuredTable(
        "9.8",
        "a VAE on MNIST, epoch by epoch",
        (Grid("vae", _VAE_OPTIONS | {"latent_dim": 20}),),
        _cells_by_epoch("C9.9", stated, _LOSS),
        unstated_choices="Seed.",
    )


def _vae_ablation_table() -> MeasuredTable:
    reconstruction, kl = MetricReading("validation", "reconstruction", 30), MetricReading("validation", "kl", 30)
    latents = {
        2: (112.5, 8.7),
        5: (96.1, 14.2),
        10: (87.4, 19.8),
        20: (82.3, 24.3),
        50: (80.1, 25.8),
        100: (79.5, 21.3),
    }
    betas = {0.5: (78.9, 31.2), 1.0: (82.3, 24.3), 2.0: (89.4, 16.1), 4.0: (97.8, 9.3), 10.0: (115.2, 3.8)}
    options = _drop_options(_VAE_OPTIONS, "hidden") | {"latent_dim": 20}
    grids = (
        Grid("vae", _VAE_OPTIONS, {"latent_dim": tuple(latents)}),
        Grid("vae", _VAE_OPTIONS | {"latent_dim": 20}, {"beta": tuple(betas)}),
        Grid("vae", options, {"hidden": ((256, 256),)}),
        Grid("vae", options, {"network": ("conv",)}),
    )
    cells = [
        Cell(claim, number, reading, grid, {axis: value})
        for claim, axis, stated, grid in (("C9.11", "latent_dim", latents, 0), ("C9.12", "beta", betas, 1))
        for value, numbers in stated.items() for reading, number in zip((reconstruction, kl), numbers, strict=True)
    ]
    cells += [Cell("C9.14", n, r, 2, {"hidden": (256, 256)}) for r, n in ((reconstruction, 84.1), (kl, 23.9))]
    cells += [Cell("C9.14", n, r, 3, {"network": "conv"}) for r, n in ((reconstruction, 73.5), (kl, 26.7))]
    cells += [
        Cell("C9.15", 100, MetricReading("validation", "active_units", 30), 0, {"latent_dim": 100}, is_upper_bound=True)
    ]
    # reconstruction is an error: higher is worse
    orderings = (
        Ordering("two latent dimensions reconstruct worst", _best_pairs(0, 2, 4, 6, 8, 10)),
        Ordering("β > 1 reconstructs worse than 1", _best_pairs(16, 14) + _best_pairs(18, 14) + _best_pairs(20, 14)),
        Ordering("convolutions reconstruct better", _worst_pairs(24, 6, 22)),
    )
    return MeasuredTable(
        "9.9",
        "a VAE on MNIST: latent size, β, layers (table 9.1)",
        grids,
        tuple(cells),
        orderings,
        unstated_choices="Train or test split (test), what MLP (256-256) and Conv are, latent samples per image (1), "
        "seeds; when a dimension is ignored (the variance of its mean over images is below 0.01).",
    )


def _diffusion_table() -> MeasuredTable:
    stated = {1: 0.1283, 2: 0.0541, 3: 0.0472, 20: 0.0298}
    return MeasuredTable(
        "10.8",
        "a diffusion model on MNIST, epoch by epoch",
        (Grid("diffusion", _DIFFUSION_OPTIONS | {"noise_schedule": "linear", "evaluations": 20}),),
        # the classifier that judges samples has a loss of its own
        _cells_by_epoch("C10.17", stated, MetricReading("train", "model/loss")),
        unstated_choices="Seed; no EMA of the weights. SimpleUNet, whose first layer fails (M50), has 555,041 "
        "parameters with a 3×3 convolution before it; the frequencies of the timestep embedding are those of equation "
        "10.19.",
    )


def _diffusion_ablation_table() -> MeasuredTable:
    fid = MetricReading("validation", "frechet", 20)
    options: dict[str, Any] = {
        "noise_schedule": "linear",
        "timesteps": 1000,
        "channels": (32, 64, 128),
        "sampling_steps": 1000,
        "eta": 1.0,
    }
    rows: tuple[tuple[str, float, dict[str, Any]], ...] = (
        ("C10.18", 12.4, {}), ("C10.19", 28.7, {"timesteps": 200, "sampling_steps": 200}),
        ("C10.20", 10.1, {"noise_schedule": "cosine"}),
        ("C10.21", 18.9, {"channels": (8, 16, 32)}),
        ("C10.21", 7.8, {"noise_schedule": "cosine", "channels": (64, 128, 256)}),
        ("C10.22", 11.3, {"noise_schedule": "cosine", "sampling_steps": 50, "eta": 0.0}),
    )  # fmt: skip
    grids = tuple(
        Grid("diffusion", _DIFFUSION_OPTIONS | {"evaluations": 1}, {k: (v,) for k, v in (options | changes).items()})
        for _, _, changes in rows
    )
    cells = tuple(
        Cell(claim, number, fid, i, options | changes, _FRECHET_REASON)
        for i, (claim, number, changes) in enumerate(rows)
    )
    return MeasuredTable(
        "10.9",
        "schedules, steps and widths of diffusion on MNIST (table 10.1)",
        grids,
        cells,
        (Ordering("the cosine schedule is better", ((0, 2),), "C10.23"), Ordering("fewer steps are worse", ((1, 0),))),
        unstated_choices="FID's features, number of images, what dim means (the channels of the smallest maps, 128 "
        "where it is not stated), epochs (20), spacing of DDIM's steps (even), seeds. σ_t = √β_t as in 10.8, but the "
        "predicted image is clipped to [−1, 1]; β of 200 steps is five times as large.",
    )


TABLES = {
    table.name: table
    for table in (
        _mnist_table(), _mlp_width_table(), _optimizer_table(), _dropout_decay_table(), _cifar_table(),
        _cnn_ablation_table(), _gru_time_table(), _sentiment_lstm_table(),
        _recurrent_ablation_table(), _attention_time_table(), _flash_attention_table(), _review_transformer_table(),
        _dcgan_table(), _gan_ablation_table(), _vae_table(), _vae_ablation_table(), _diffusion_table(),
        _diffusion_ablation_table(), _batch_time_table(),
    )
}  # fmt: skip
