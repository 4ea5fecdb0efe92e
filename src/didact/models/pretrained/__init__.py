"""Pretrained weights. Files are read as data: nothing that they contain is executed.

    weights         .safetensors and PyTorch files into a model, with a report of what matched
    gguf            LLaMA-style decoders from GGUF files
    minilm          all-MiniLM-L6-v2: sentence embeddings
    word_vectors    GloVe and other word vectors: neighbors, analogies
"""

from didact.models.pretrained.gguf import load_llama
from didact.models.pretrained.minilm import MiniLM
from didact.models.pretrained.weights import WeightsReport, load_weights, read_weights
from didact.models.pretrained.word_vectors import WordVectors, load_glove, read_word_vectors

__all__ = [
    "MiniLM", "WeightsReport", "WordVectors", "load_glove", "load_llama", "load_weights", "read_weights",
    "read_word_vectors",
]  # fmt: skip
