"""Text: tokenizers, and texts as data for each task.

    tokenizers           by character, word or byte-pair encoding; bpe: learned in plain Python; gpt2_bpe: pretrained
    classification       bags and sequences of words, from a CSV file
    language_modeling    running text in windows; masked_lm: with <mask>
    parallel_texts       sentence pairs for translation
    skipgram             words and the words around them
    augment_text         random deletion, swap and insertion
"""

from didact.data.text.augment_text import make_text_augmentations
from didact.data.text.bpe import apply_merges, train_bpe
from didact.data.text.classification import BagEncoder, SequenceEncoder, as_sequences, load_text_table
from didact.data.text.gpt2_bpe import PretrainedBPE, load_gpt2_tokenizer
from didact.data.text.language_modeling import (
    TextEncoder,
    TokenWindows,
    build_language_modeling_data,
    load_text_files,
    with_context,
)
from didact.data.text.masked_lm import MaskedTextEncoder, for_masked_lm
from didact.data.text.parallel_texts import PairEncoder, build_pairs, load_pairs
from didact.data.text.skipgram import ContextWindows, as_word_stream
from didact.data.text.tokenizers import BPETokenizer, CharTokenizer, Tokenizer, WordTokenizer

__all__ = [
    "BPETokenizer", "BagEncoder", "CharTokenizer", "ContextWindows", "MaskedTextEncoder", "PairEncoder",
    "PretrainedBPE", "SequenceEncoder", "TextEncoder", "TokenWindows", "Tokenizer", "WordTokenizer", "apply_merges",
    "as_sequences", "as_word_stream", "build_language_modeling_data", "build_pairs", "for_masked_lm",
    "load_gpt2_tokenizer", "load_pairs", "load_text_files", "load_text_table", "make_text_augmentations", "train_bpe",
    "with_context",
]  # fmt: skip
