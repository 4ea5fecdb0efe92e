"""Gaba, chapter 7: transformers."""

import math

import torch
from torch import Tensor, nn
from torch.autograd.functional import jacobian

from didact.claims.forms import Conditional, Display, Equal, Exactly, InInterval, Printed, WithinStandardErrors
from didact.claims.helpers import Pair, compute_gradients, count_parameters
from didact.claims.registry import answer, claim, mark_not_checkable
from didact.layers.attention.grouped_query import GroupedQueryAttention
from didact.layers.feedforward import FeedForward
from didact.layers.moe import MixtureOfExperts
from didact.layers.norm import PreNorm
from didact.layers.patch_embed import PatchEmbed, count_patches
from didact.layers.positional import sinusoidal_table
from didact.models.text.transformer_classifier import Block, TransformerClassifier
from didact.objectives.distributions.classification import Categorical
from didact.objectives.text.masked_lm import MaskedLanguageModel


def encode_positions(length: int, d: int) -> Tensor:
    """PE[pos, 2i] = sin(pos/10000^{2i/d}), PE[pos, 2i+1] = cos(pos/10000^{2i/d}), entry by entry."""
    rows = [
        [(math.cos if c % 2 else math.sin)(pos / 10000 ** (2 * (c // 2) / d)) for c in range(d)]
        for pos in range(length)
    ]
    return torch.tensor(rows)


SINGLE_PRECISION = Equal(1e-5)  # didact's positions are single-precision numbers


@claim("C7.1", SINGLE_PRECISION)
def shifted_positions() -> Pair:
    """PE_{pos+k} = M_k PE_pos with one rotation by ω_i k for each pair of columns, k = 7, at all of didact's
    positions"""
    d, k = 16, 7
    angles = [k / 10000 ** (2 * i / d) for i in range(d // 2)]
    M = torch.block_diag(*(torch.tensor([[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]]) for a in angles))
    pe = sinusoidal_table(60, d).double()
    return pe[:-k] @ M.T, pe[k:]


@claim("C7.2", SINGLE_PRECISION)
def code_of_the_positions() -> Pair:
    """the vectorized code of 7.8, with exp(−2i ln(10000)/d), and didact's, against the formula, in single precision"""
    length, d = 50, 32
    position = torch.arange(0, length).unsqueeze(1).float()
    div_term = torch.exp(torch.arange(0, d, 2).float() * (-math.log(10000.0) / d))
    pe = torch.zeros(length, d)
    pe[:, 0::2], pe[:, 1::2] = torch.sin(position * div_term), torch.cos(position * div_term)
    return [pe, sinusoidal_table(length, d)], [encode_positions(length, d)] * 2


@claim("C7.3", Equal())
def jacobian_of_pre_norm() -> Pair:
    """∂x_L/∂x_l = I + Σ_k ∂SubLayer_k(LayerNorm(x_k))/∂x_l, for four of didact's pre-norm sublayers"""
    blocks = nn.Sequential(*[PreNorm(FeedForward(6, 9, activation="gelu"), nn.LayerNorm(6)) for _ in range(4)])

    def residual_total(x: Tensor) -> Tensor:
        total = torch.zeros(6)
        for block in blocks:
            assert isinstance(block, PreNorm)
            f = block.sublayer(block.norm(x))
            x, total = x + f, total + f
        return total

    x = torch.randn(6)
    return torch.eye(6) + jacobian(residual_total, x), jacobian(blocks, x)


@claim(
    "C7.4",
    InInterval(low=1e-3),
    correction="no guarantee: with the sublayer −σ·LayerNorm(x), σ held fixed, only two directions survive; one, a "
    "constant shift of all components, always does, but after the final LayerNorm of the network no gradient of the "
    "loss points along it",
)
def gradient_of_pre_norm() -> Display:
    """‖∂L/∂x‖ through didact's x + A LayerNorm(x), L a random direction that LayerNorm lets through: A random, and A =
    −σ(x) I; and for the latter the Jacobian times (1, …, 1)"""
    x, norm = torch.randn(8, requires_grad=True), nn.LayerNorm(8, elementwise_affine=False, eps=0.0)
    σ, u, x_hat = x.detach().std(correction=0), torch.randn(8), norm(x).detach()
    u = u - u.mean() - (u @ x_hat) / 8 * x_hat          # a direction that the norm lets through
    gradient_norms = []
    for A in (torch.randn(8, 8), -σ * torch.eye(8)):
        linear = nn.Linear(8, 8, bias=False)
        linear.weight.data = A
        block = PreNorm(linear, norm)
        gradient_norms.append(compute_gradients(block(x) @ u, x)[0].norm() / u.norm())
    shifted = jacobian(block, x.detach()) @ torch.ones(8)
    return Display(
        gradient_norms,
        {
            "with A random": gradient_norms[0],
            "with A = −σ I": gradient_norms[1],
            "there a shift by 1 becomes": shifted.min(),
        },
    )


def _make_classifier() -> TransformerClassifier:
    """TransformerClassifier of 7.8: didact's, with its embeddings initialized as there."""
    return TransformerClassifier(10_000, 2, embed_dim=128, num_layers=4, num_heads=4, ffn_dim=512, embedding_std=1.0)


@claim("C7.5", Exactly((32, 2)))
def shape_of_the_logits() -> tuple[int, ...]:
    """32 sequences of 64 tokens, two classes"""
    return tuple(_make_classifier()(torch.randint(0, 10_000, (32, 64))).shape)


@claim("C7.6", InInterval(-3, 3))
def first_loss() -> Display:
    """0.6847 minus the mean of the first losses of twelve of didact's networks, in their standard deviations: four
    networks, each with three newly initialized heads and sampled labels; the course names no seed"""
    torch.set_default_dtype(torch.float32)                 # as the program of 7.8, and in half the time
    losses = []
    with torch.no_grad():
        for _ in range(4):
            net = _make_classifier()
            text = net.embed(torch.randint(0, 10_000, (32, 64)))
            for _ in range(3):
                net.head.reset_parameters()
                losses.append(Categorical(2).mean_loss(net.head(text), torch.randint(0, 2, (32,))))
    mean, loss_std = torch.stack(losses).mean(), torch.stack(losses).std()
    deviation = (0.6847 - mean) / loss_std
    return Display(
        deviation,
        {"mean of twelve": mean, "standard deviation": loss_std, "stated": 0.6847, "in those from the mean": deviation},
    )


@answer("C7.7")
def size_of_the_classifier() -> int:
    """embedding 10,000 × 128, four blocks with d_ff = 512, final norm and head: what the program of 7.8 would print if
    it printed its size"""
    return count_parameters(_make_classifier())


@claim("C7.8", Equal(), condition="linear layers without biases; those of 7.8 have them, 5 d + d_ff more per block")
def size_of_a_block() -> Conditional:
    """4d² + 2 d d_ff + 4d, against didact's block without the biases of its linear layers, and with them"""
    sizes = ((128, 512), (512, 2048))
    stated = [4 * d**2 + 2 * d * f + 4 * d for d, f in sizes]
    blocks = [Block(d, 4, f, norm="pre", dropout=0.0) for d, f in sizes]
    biases = [
        sum(p.numel() for name, p in b.named_parameters() if "bias" in name and ".norm." not in name) for b in blocks
    ]
    block_parameters = [count_parameters(b) for b in blocks]
    return Conditional(
        (stated, [n - m for n, m in zip(block_parameters, biases, strict=True)]), (stated, block_parameters)
    )


@claim("C7.9", Equal(), remark="where P divides H and W; otherwise the remainder at the edges is cropped or padded")
def number_of_patches() -> Pair:
    """HW/P², against the tokens of didact's patch embedding, and its count of patches"""
    cases = ((32, 32, 8), (224, 224, 16), (28, 56, 7))
    token_counts = [PatchEmbed(1, 3, patch_size=P)(torch.zeros(1, 1, H, W)).shape[1] for H, W, P in cases]
    stated = [H * W / P**2 for H, W, P in cases]
    return [stated, stated], [token_counts, [count_patches((H, W), P) for H, W, P in cases]]


mark_not_checkable(
    "C7.15", "an exponent fitted to a paper's training runs; the course gives no data to derive it from"
)


@claim("C7.16", Printed("47e9", "13e9"))
def size_of_mixtral() -> list[int]:
    """total and active parameters of didact's layers in the sizes of the published config.json of Mixtral-8x7B-v0.1: 32
    layers, embedding dimension 4096, 8 experts of 14336 of which 2 are active, 32 heads with 8 key-value heads, 32,000
    tokens and an untied output matrix"""
    d, ffn_dim, num_layers, vocab_size = 4096, 14_336, 32, 32_000
    with torch.device("meta"):
        attention = count_parameters(GroupedQueryAttention(d, 32, 8))
        experts = [count_parameters(MixtureOfExperts(d, ffn_dim, num_experts=n)) for n in (8, 2)]
    unused = 6 * d                                         # the router scores all eight experts
    return [num_layers * (attention + e + 2 * d) + 2 * vocab_size * d + d for e in (experts[0], experts[1] + unused)]


@claim(
    "C7.17",
    WithinStandardErrors(),
    remark="15 % are selected for prediction; 80 % of these become the mask token, 12 % of all tokens",
)
def share_of_masked_tokens() -> Display:
    """the fraction of a million tokens that didact's masked language model selects, against 0.15; and the fraction
    replaced by the mask token, against 80 % of that, as in the paper: the others are replaced by random tokens or
    left"""
    model = MaskedLanguageModel(nn.Identity(), 1000)
    read, hidden = model.apply_mask(torch.randint(1, 1001, (1000, 1000)))
    p = torch.stack([hidden, read == model.mask_token_id]).double().mean((1, 2))
    error = (p * (1 - p) / hidden.numel()).sqrt()
    return Display(
        (p, error, [0.15, 0.8 * 0.15]), {"of all tokens, selected": p[0], "replaced by the mask token": p[1]}
    )
