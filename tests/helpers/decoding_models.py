"""Small models for tests of decoding: their likeliest token stands out, or follows from a table."""

import torch

from didact.models.text.gpt import GPT
from didact.models.text.llama import Llama
from didact.samplers.top_k_top_p import DecodingConfig

GREEDY = DecodingConfig(temperature=0)


def make_sharp(model, std=0.5):
    """Weights so large that the likeliest token stands out and depends on what was read."""
    torch.manual_seed(1)
    for name, p in model.named_parameters():
        if p.ndim > 1:
            torch.nn.init.normal_(p, std=3.0 if "wpe" in name else std)
    return model.eval()


LANGUAGE_MODELS = {
    "gpt": lambda: GPT(23, context_length=200, embed_dim=16, num_layers=2, num_heads=4),
    "llama": lambda: Llama(23, context_length=200, embed_dim=16, num_layers=2, num_heads=4, num_kv_heads=2, ffn_dim=24),
}


class StatelessCache:
    """A cache that holds nothing: the next token depends on the last one alone."""

    capacity = 9

    def narrow(self, visible):
        return self

    def clear(self):
        pass

    def reorder(self, indices):
        pass


# from 0: mostly 1, from which all are equally likely; less often 2, which is nearly always followed by 3
NEXT_TOKEN_PROBABILITIES = torch.tensor(
    [[0.0, 0.6, 0.4, 0.0], [0.25, 0.25, 0.25, 0.25], [0.02, 0.02, 0.01, 0.95], [0.1, 0.1, 0.1, 0.7]]
)


def step_chain(tokens, cache):
    return NEXT_TOKEN_PROBABILITIES.log()[tokens[:, -1]]
