"""Every generative recipe with its variants, so small that training takes a moment."""

AUTOENCODER = "vqvae channels=8,8 codebook_size=8 code_dim=4"
SMALL_GENERATIVE_RUNS = {
    "autoencoder": {"hidden": (8,), "input_noise": 0.1, "mask_ratio": 0.1},
    "semi_supervised": {"hidden": (8,), "fine_tune": True},
    "vae": {"hidden": (8,), "kl_warmup": 5, "free_bits": 0.1},
    "vae of samples": {"hidden": (8,), "num_samples": 3},
    "vae of classes": {"hidden": (8,), "conditional": True, "likelihood": "categorical"},
    "vae of rows": {"data": "iris", "hidden": (8,)},
    "vqvae": {"channels": (8, 8), "codebook_size": 8, "code_dim": 4},
    "gan": {"hidden": (8,), "conditional": True},
    "gan of rows": {"data": "iris"},
    "dcgan": {"channels": 4},
    "wgan": {"channels": 4, "discriminator_steps": 2},
    "stylegan": {"channels": 4, "latent_dim": 4, "style_dim": 8, "channels_discriminator": 8},
    "diffusion": {"channels": (8, 16), "time_dim": 8, "conditional": True},
    "diffusion of velocity": {"network": "simple", "prediction_type": "velocity"},
    "flow_matching": {"channels": (8, 16), "time_dim": 8, "conditional": True},
    "consistency": {"teacher": "diffusion channels=8,16 time_dim=8 conditional=yes guidance=1"},
    "latent_diffusion": {"autoencoder": AUTOENCODER, "channels": (8,), "time_dim": 8},
    "vqvae_prior": {"autoencoder": AUTOENCODER, "channels": 4, "num_layers": 1},
    "denoising": {"channels": (8, 8)},
    "pixelcnn": {"channels": 4, "num_layers": 1},
    "pixelrnn": {"channels": 4, "num_layers": 1},
    "realnvp": {"hidden": 8, "num_couplings": 2},
    "realnvp of images": {"data": "digits", "hidden": 8, "num_couplings": 2},
}
