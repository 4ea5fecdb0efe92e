"""Every recipe that learns to draw or to give back, so small that it takes a moment; words behind the name tell its
variants apart."""

AUTOENCODER = "vqvae widths=8,8 codes=8 dim=4"
SMALL_GENERATIVE_RUNS = {
    "autoencoder": {"widths": (8,), "noise": 0.1, "masked": 0.1},
    "semi_supervised": {"widths": (8,)},
    "vae": {"widths": (8,), "warmup": 5, "free_bits": 0.1},
    "vae of samples": {"widths": (8,), "samples": 3},
    "vae of classes": {"widths": (8,), "conditional": True, "likelihood": "categorical"},
    "vae of rows": {"data": "iris", "widths": (8,)},
    "vqvae": {"widths": (8, 8), "codes": 8, "dim": 4},
    "gan": {"widths": (8,), "conditional": True},
    "gan of rows": {"data": "iris"},
    "dcgan": {"width": 4},
    "wgan": {"width": 4, "turns": 2},
    "stylegan": {"width": 4, "latent": 4, "style": 8, "width_discriminator": 8},
    "diffusion": {"widths": (8, 16), "time": 8, "conditional": True},
    "diffusion of velocity": {"network": "simple", "predict": "velocity"},
    "flow_matching": {"widths": (8, 16), "time": 8, "conditional": True},
    "consistency": {"teacher": "diffusion widths=8,16 time=8 conditional=yes guidance=1"},
    "latent_diffusion": {"coder": AUTOENCODER, "widths": (8,), "time": 8},
    "vqvae_prior": {"coder": AUTOENCODER, "width": 4, "depth": 1},
    "denoising": {"widths": (8, 8)},
    "pixelcnn": {"width": 4, "depth": 1},
    "pixelrnn": {"width": 4, "depth": 1},
    "realnvp": {"hidden": 8, "couplings": 2},
    "realnvp of images": {"data": "digits", "hidden": 8, "couplings": 2},
}
