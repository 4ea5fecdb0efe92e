"""The networks of `didact.scratch` in PyTorch, with the same names and shapes, so that weights can be exchanged."""

from itertools import pairwise

import torch
from torch import Tensor, nn

CELLS: dict[str, type[nn.RNN] | type[nn.LSTM] | type[nn.GRU]] = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}


class TwinMLP(nn.Module):
    """Affine layers with ReLU in between."""

    def __init__(self, features: int, hidden: tuple[int, ...], num_classes: int):
        super().__init__()
        widths = (features, *hidden, num_classes)
        parts: list[nn.Module] = [nn.Flatten()]
        for a, b in pairwise(widths):
            parts += [nn.Linear(a, b), nn.ReLU()]
        self.layers = nn.Sequential(*parts[:-1])

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        return y


class TwinLeNet(nn.Module):
    """conv 5x5 (6) - pool - conv 5x5 (16) - pool - 120 - 84 - classes."""

    def __init__(self, channels: int, size: int, num_classes: int):
        super().__init__()
        half = size // 2
        border = 0 if half >= 7 else 2
        side = (half - 4 + 2 * border) // 2
        self.features = nn.Sequential(
            nn.Conv2d(channels, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5, padding=border), nn.ReLU(), nn.MaxPool2d(2),
        )
        self.head = TwinMLP(16 * side * side, (120, 84), num_classes)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.features(x))
        return y


class TwinCharacterRNN(nn.Module):
    """Embedding, one recurrent layer, logits of the next character."""

    def __init__(self, vocab_size: int, embed_dim: int, hidden_size: int, *, cell: str = "lstm"):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, embed_dim)
        self.rnn = CELLS[cell](embed_dim, hidden_size, batch_first=True)
        self.head = nn.Linear(hidden_size, vocab_size)

    def forward(self, ids: Tensor) -> Tensor:
        y: Tensor = self.head(self.rnn(self.embed(ids))[0])
        return y


class TwinBlock(nn.Module):
    """Pre-norm attention and feed-forward network, each added to its input."""

    def __init__(self, embed_dim: int, num_heads: int):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(embed_dim), nn.LayerNorm(embed_dim)
        self.attention = nn.MultiheadAttention(embed_dim, num_heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(embed_dim, 4 * embed_dim), nn.GELU(), nn.Linear(4 * embed_dim, embed_dim))

    def forward(self, x: Tensor) -> Tensor:
        t, n = x.shape[1], self.norm1(x)
        mask = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1)
        u = x + self.attention(n, n, n, attn_mask=mask, need_weights=False)[0]
        y: Tensor = u + self.mlp(self.norm2(u))
        return y


class TwinGPT(nn.Module):
    """Token and position embeddings, blocks, logits of the next token."""

    def __init__(
        self, vocab_size: int, *, context_length: int, embed_dim: int = 64, num_heads: int = 4, num_layers: int = 2
    ):
        super().__init__()
        self.embed, self.position = nn.Embedding(vocab_size, embed_dim), nn.Embedding(context_length, embed_dim)
        self.blocks = nn.Sequential(*[TwinBlock(embed_dim, num_heads) for _ in range(num_layers)])
        self.norm, self.head = nn.LayerNorm(embed_dim), nn.Linear(embed_dim, vocab_size)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids) + self.position(torch.arange(ids.shape[1], device=ids.device))
        y: Tensor = self.head(self.norm(self.blocks(x)))
        return y
