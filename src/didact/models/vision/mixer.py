"""MLP-Mixer (Tolstikhin et al. 2021): an image classifier without attention.

    patches -> tokens -> depth x [mix across tokens, mix across channels] -> mean -> classes
"""

from typing import Any

import torch
from torch import Tensor, nn

from didact.layers.patch_embed import PatchEmbed, count_patches
from didact.layers.standardize import Standardize
from didact.registry import register_model


def _make_mlp(n: int, hidden: int) -> nn.Sequential:
    """W2 gelu(W1 x + b1) + b2, n -> hidden -> n."""
    return nn.Sequential(nn.Linear(n, hidden), nn.GELU(), nn.Linear(hidden, n))


class MixerBlock(nn.Module):
    """u = x + mlp_S(LN(x)ᵀ)ᵀ,  y = u + mlp_D(LN(u)).  Eq. 1 of the paper."""

    def __init__(self, num_tokens: int, dim: int):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.mix_tokens = _make_mlp(num_tokens, hidden=dim // 2)
        self.mix_channels = _make_mlp(dim, hidden=4 * dim)

    def forward(self, x: Tensor) -> Tensor:                        # (B, S, D)
        u = x + self.mix_tokens(self.norm1(x).mT).mT               # the transpose makes S the mixed axis
        y: Tensor = u + self.mix_channels(self.norm2(u))
        return y


@register_model("mixer_tiny", embed_dim=64, depth=4)
@register_model("mixer_small", embed_dim=256, depth=8)
@register_model("mixer_s_16", size=(224, 224), patch_size=16, embed_dim=512, depth=8)
@register_model("mixer_b_16", size=(224, 224), patch_size=16, embed_dim=768, depth=12)
class Mixer(nn.Module):
    """Gaba 1.8 and exercise 1.5. S/16 and B/16 are the paper's (table 1), for 224 px; the others are for 32."""

    def __init__(
        self,
        *,
        embed_dim: int,
        depth: int,
        num_classes: int = 10,
        channels: int = 3,
        size: tuple[int, int] = (32, 32),
        patch_size: int = 4,
        mean: Tensor | None = None,
        std: Tensor | None = None,
    ):
        super().__init__()
        self.standardize = Standardize.or_identity(mean, std)
        self.embed = PatchEmbed(channels, embed_dim, patch_size=patch_size)
        self.blocks = nn.Sequential(*[MixerBlock(count_patches(size, patch_size), embed_dim) for _ in range(depth)])
        self.norm = nn.LayerNorm(embed_dim)
        self.head = nn.Linear(embed_dim, num_classes)

    def forward(self, x: Tensor) -> Tensor:                        # (B, C, H, W)
        x = self.embed(self.standardize(x))                        # (B, S, D)
        x = self.norm(self.blocks(x))
        y: Tensor = self.head(x.mean(dim=1))                       # (B, classes)
        return y

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        mean, std = torch.tensor([0.1, 0.2, 0.3])[:, None, None], torch.tensor([0.5, 1.0, 2.0])[:, None, None]
        return {
            "embed_dim": 12,
            "depth": 2,
            "num_classes": 7,
            "size": (15, 10),
            "patch_size": 5,
            "mean": mean,
            "std": std,
        }, torch.rand(batch_size, 3, 15, 10)
