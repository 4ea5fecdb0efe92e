"""Vision transformer (Dosovitskiy et al. 2021): an image is a sequence of patches, read like a sentence.

    patches -> tokens, a class token before them, + positions -> depth x [attention, perceptron] -> class token -> classes

State-dict names and shapes are those of torchvision's `vit_b_16`, so that its published weights load.
"""

from collections import OrderedDict
from math import sqrt
from typing import Any

import torch
from torch import Tensor, nn

from didact.layers.attention import SelfAttention
from didact.layers.patch import PatchEmbed, tokens
from didact.layers.standardise import Standardise
from didact.registry import register

EPS = 1e-6  # of every layer norm; PyTorch's own default is 1e-5


class Block(nn.Module):
    """u = x + SA(LN(x)),  y = u + MLP(LN(u)).  Eqs. 2-3 of the paper: the norm stands before, so that depth keeps a clear path."""

    def __init__(self, dim: int, heads: int, hidden: int, dropout: float):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(dim, eps=EPS), nn.LayerNorm(dim, eps=EPS)
        self.self_attention = SelfAttention(dim, heads)
        self.dropout = nn.Dropout(dropout)
        # five members, since torchvision's names count the dropouts: mlp.0 and mlp.3 hold the weights
        self.mlp = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Dropout(dropout), nn.Linear(hidden, dim), nn.Dropout(dropout))

    def forward(self, x: Tensor) -> Tensor:                        # (B, 1 + S, D)
        u = x + self.dropout(self.self_attention(self.ln_1(x)))
        y: Tensor = u + self.mlp(self.ln_2(u))
        return y


class Encoder(nn.Module):
    """Positions are learned and added: without them a transformer sees a set of patches (which Fleuret 5.3 leaves unsaid)."""

    def __init__(self, length: int, dim: int, depth: int, heads: int, hidden: int, dropout: float):
        super().__init__()
        self.pos_embedding = nn.Parameter(0.02 * torch.randn(1, length, dim))
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.Sequential(
            OrderedDict((f"encoder_layer_{l}", Block(dim, heads, hidden, dropout)) for l in range(depth))
        )
        self.ln = nn.LayerNorm(dim, eps=EPS)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.ln(self.layers(self.dropout(x + self.pos_embedding)))
        return y


@register("vit_tiny", size=32, patch=4, dim=128, depth=6, heads=4, hidden=512)
@register("vit_s_16", size=224, patch=16, dim=384, depth=12, heads=6, hidden=1536)
@register("vit_b_16", size=224, patch=16, dim=768, depth=12, heads=12, hidden=3072)
class ViT(nn.Module):
    """y = W LN(z_L)[class] + b.  Eqs. 1-4 of the paper; Gaba 7.8, Fleuret 5.3."""

    def __init__(
        self, *,
        size: int, patch: int, dim: int, depth: int, heads: int, hidden: int, classes: int = 10, channels: int = 3,
        dropout: float = 0.0, mean: Tensor | None = None, std: Tensor | None = None,
    ):
        super().__init__()
        self.standardise = Standardise(mean, std) if mean is not None and std is not None else nn.Identity()
        self.conv_proj = PatchEmbed(channels, dim, patch=patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.encoder = Encoder(1 + tokens(size, patch), dim, depth, heads, hidden, dropout)
        self.heads = nn.Sequential(OrderedDict(head=nn.Linear(dim, classes)))
        self.initialise()

    def initialise(self) -> None:
        """Xavier in the perceptrons, 1 / n_in in the patches, a small head: torchvision's, but that its head is zero."""
        for layer in self.encoder.modules():
            if isinstance(layer, nn.Sequential) and isinstance(layer[0], nn.Linear):
                for affine in (layer[0], layer[3]):
                    nn.init.xavier_uniform_(affine.weight)
                    nn.init.normal_(affine.bias, std=1e-6)
        nn.init.trunc_normal_(self.conv_proj.weight, std=1 / sqrt(self.conv_proj.weight[0].numel()))
        nn.init.trunc_normal_(self.heads.head.weight, std=0.02)
        for bias in (self.conv_proj.bias, self.heads.head.bias):
            assert bias is not None
            nn.init.zeros_(bias)

    def forward(self, x: Tensor) -> Tensor:                        # (B, C, size, size)
        x = self.conv_proj(self.standardise(x))                    # (B, S, D)
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], dim=1)
        y: Tensor = self.heads(self.encoder(x)[:, 0])              # (B, classes)
        return y

    @torch.no_grad()
    def attention_maps(self, x: Tensor) -> Tensor:
        """Who attends to whom in every layer: (B, depth, heads, 1 + S, 1 + S), the class token first."""
        z = self.conv_proj(self.standardise(x))
        z = torch.cat([self.class_token.expand(len(z), -1, -1), z], dim=1) + self.encoder.pos_embedding
        maps = []
        for block in self.encoder.layers:
            maps.append(block.self_attention.look(block.ln_1(z))[1])
            z = block(z)
        return torch.stack(maps, dim=1)

    @classmethod
    def example(cls, batch: int = 2) -> tuple[dict[str, Any], Tensor]:
        """Keywords of a small one and an input for it, for tests over the registry."""
        mean, std = torch.tensor([0.1, 0.2, 0.3])[:, None, None], torch.tensor([0.5, 1.0, 2.0])[:, None, None]
        small = {"size": 24, "patch": 8, "dim": 16, "depth": 2, "heads": 2, "hidden": 24}
        return {**small, "classes": 11, "mean": mean, "std": std}, torch.rand(batch, 3, 24, 24)
