"""Vision transformer (ViT, Dosovitskiy et al. 2021): an image as a sequence of patches.

    patches -> tokens, a class token before them, + positions -> depth x [attention, MLP] -> class token -> classes

State-dict names and shapes are those of torchvision's `vit_b_16`, so that its published weights load.
"""

from collections import OrderedDict
from math import sqrt
from typing import Any

import torch
from torch import Tensor, nn

from didact.layers.attention.multihead import MultiHeadAttention
from didact.layers.patch_embed import PatchEmbed, count_patches
from didact.layers.standardize import Standardize
from didact.registry import register_model

LAYER_NORM_EPS = 1e-6  # of every layer norm; PyTorch's own default is 1e-5


def _make_mlp(dim: int, ffn_dim: int, dropout: float) -> nn.Sequential:
    """W2 gelu(W1 x + b1) + b2. Five members, since torchvision's names count its dropouts: 0 and 3 have the weights."""
    w1, w2 = nn.Linear(dim, ffn_dim), nn.Linear(ffn_dim, dim)
    for affine in (w1, w2):
        nn.init.xavier_uniform_(affine.weight)
        nn.init.zeros_(affine.bias)
    return nn.Sequential(w1, nn.GELU(), nn.Dropout(dropout), w2, nn.Dropout(dropout))


class Block(nn.Module):
    """u = x + SA(LN(x)),  y = u + MLP(LN(u)).  Pre-norm; eqs. 2-3 of the paper."""

    def __init__(self, dim: int, num_heads: int, ffn_dim: int, dropout: float):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(dim, eps=LAYER_NORM_EPS), nn.LayerNorm(dim, eps=LAYER_NORM_EPS)
        self.self_attention = MultiHeadAttention(dim, num_heads)
        self.dropout = nn.Dropout(dropout)
        self.mlp = _make_mlp(dim, ffn_dim, dropout)

    def forward(self, x: Tensor) -> Tensor:                        # (B, 1 + S, D)
        u = x + self.dropout(self.self_attention(self.ln_1(x)))
        y: Tensor = u + self.mlp(self.ln_2(u))
        return y


class Encoder(nn.Module):
    """Transformer blocks with learned positions, without which attention ignores the order of patches (which Fleuret
    5.3 leaves unsaid).
    """

    def __init__(self, num_tokens: int, dim: int, depth: int, num_heads: int, ffn_dim: int, dropout: float):
        super().__init__()
        self.pos_embedding = nn.Parameter(0.02 * torch.randn(1, num_tokens, dim))
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.Sequential(
            OrderedDict((f"encoder_layer_{l}", Block(dim, num_heads, ffn_dim, dropout)) for l in range(depth))
        )
        self.ln = nn.LayerNorm(dim, eps=LAYER_NORM_EPS)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.ln(self.layers(self.dropout(x + self.pos_embedding)))
        return y


@register_model("vit_tiny", size=(32, 32), patch_size=4, embed_dim=128, depth=6, num_heads=4, ffn_dim=512)
@register_model("vit_s_16", size=(224, 224), patch_size=16, embed_dim=384, depth=12, num_heads=6, ffn_dim=1536)
@register_model("vit_b_16", size=(224, 224), patch_size=16, embed_dim=768, depth=12, num_heads=12, ffn_dim=3072)
class ViT(nn.Module):
    """y = W LN(z_L)[class] + b.  Eqs. 1-4 of the paper; Gaba 7.5, Fleuret 5.3."""

    def __init__(
        self,
        *,
        size: tuple[int, int],
        patch_size: int,
        embed_dim: int,
        depth: int,
        num_heads: int,
        ffn_dim: int,
        num_classes: int = 10,
        channels: int = 3,
        dropout: float = 0.0,
        mean: Tensor | None = None,
        std: Tensor | None = None,
    ):
        super().__init__()
        self.standardize = Standardize.or_identity(mean, std)
        self.conv_proj = PatchEmbed(channels, embed_dim, patch_size=patch_size)
        self.grid = size[0] // patch_size, size[1] // patch_size    # of patches; other positions are interpolated to it
        self.class_token = nn.Parameter(torch.zeros(1, 1, embed_dim))
        self.encoder = Encoder(1 + count_patches(size, patch_size), embed_dim, depth, num_heads, ffn_dim, dropout)
        head = nn.Linear(embed_dim, num_classes)
        self.heads = nn.Sequential(OrderedDict(head=head))
        nn.init.trunc_normal_(self.conv_proj.weight, std=1 / sqrt(channels * patch_size * patch_size))
        nn.init.trunc_normal_(head.weight, std=0.02)    # torchvision's is zero, which blocks the first step's gradients
        nn.init.zeros_(head.bias)

    def forward(self, x: Tensor) -> Tensor:                        # (B, C, H, W)
        y: Tensor = self.heads(self.encoder(self.embed(x))[:, 0])  # (B, classes)
        return y

    def embed(self, x: Tensor) -> Tensor:
        """The class token and those of the patches: (B, 1 + S, D)."""
        x = self.conv_proj(self.standardize(x))
        return torch.cat([self.class_token.expand(len(x), -1, -1), x], dim=1)

    @torch.no_grad()
    def attention_maps(self, x: Tensor) -> Tensor:
        """Attention weights of every layer: (B, depth, heads, 1 + S, 1 + S), the class token first."""
        z, maps = self.embed(x) + self.encoder.pos_embedding, []
        for block in self.encoder.layers:
            assert isinstance(block, Block)
            maps.append(block.self_attention.forward_with_weights(block.ln_1(z))[1])
            z = block(z)
        return torch.stack(maps, dim=1)

    @classmethod
    def example(cls, batch_size: int = 2) -> tuple[dict[str, Any], Tensor]:
        mean, std = torch.tensor([0.1, 0.2, 0.3])[:, None, None], torch.tensor([0.5, 1.0, 2.0])[:, None, None]
        small = {"size": (24, 16), "patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2, "ffn_dim": 24}
        return {**small, "num_classes": 11, "mean": mean, "std": std}, torch.rand(batch_size, 3, 24, 16)
