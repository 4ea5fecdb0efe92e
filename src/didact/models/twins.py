"""The networks of `didact.scratch` in PyTorch: the same names and shapes, so that weights go from one to the other."""

from itertools import pairwise

import torch
from torch import Tensor, nn

CELLS: dict[str, type[nn.RNN] | type[nn.LSTM] | type[nn.GRU]] = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}


class TwinMLP(nn.Module):
    """Affine layers with ReLU between."""

    def __init__(self, features: int, hidden: tuple[int, ...], classes: int):
        super().__init__()
        widths = (features, *hidden, classes)
        parts: list[nn.Module] = [nn.Flatten()]
        for a, b in pairwise(widths):
            parts += [nn.Linear(a, b), nn.ReLU()]
        self.layers = nn.Sequential(*parts[:-1])

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        return y


class TwinLeNet(nn.Module):
    """conv 5x5 (6) - pool - conv 5x5 (16) - pool - 120 - 84 - classes."""

    def __init__(self, channels: int, size: int, classes: int):
        super().__init__()
        half = size // 2
        border = 0 if half >= 7 else 2
        side = (half - 4 + 2 * border) // 2
        self.features = nn.Sequential(
            nn.Conv2d(channels, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5, padding=border), nn.ReLU(), nn.MaxPool2d(2),
        )
        self.head = TwinMLP(16 * side * side, (120, 84), classes)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.features(x))
        return y


class TwinCharacterRNN(nn.Module):
    """Embedding, one recurrent layer, scores of the next character."""

    def __init__(self, tokens: int, width: int, hidden: int, *, cell: str = "lstm"):
        super().__init__()
        self.embed = nn.Embedding(tokens, width)
        self.rnn = CELLS[cell](width, hidden, batch_first=True)
        self.head = nn.Linear(hidden, tokens)

    def forward(self, ids: Tensor) -> Tensor:
        y: Tensor = self.head(self.rnn(self.embed(ids))[0])
        return y


class TwinBlock(nn.Module):
    """Pre-norm attention and feed-forward, each added to what came in."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        t, n = x.shape[1], self.norm1(x)
        mask = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1)
        u = x + self.attention(n, n, n, attn_mask=mask, need_weights=False)[0]
        y: Tensor = u + self.mlp(self.norm2(u))
        return y


class TwinGPT(nn.Module):
    """Token and position embeddings, blocks, scores of the next token."""

    def __init__(self, tokens: int, *, context: int, width: int = 64, heads: int = 4, depth: int = 2):
        super().__init__()
        self.embed, self.position = nn.Embedding(tokens, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*[TwinBlock(width, heads) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, tokens)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids) + self.position(torch.arange(ids.shape[1], device=ids.device))
        y: Tensor = self.head(self.norm(self.blocks(x)))
        return y
