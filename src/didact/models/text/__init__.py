"""Networks of text.

    rnn                       recurrent classifier, language model and tagger (RNN, LSTM, GRU, Mamba, xLSTM)
    seq2seq                   recurrent encoder and decoder, with attention
    encoder_decoder           the Transformer of 2017
    transformer_classifier    a Transformer encoder for classification
    gpt, gpt_decode           GPT-2, and its fast decoding on a GPU
    llama                     LLaMA-style decoder
    bert                      BERT: masked language model, classifier, sentence encoder
    word2vec                  CBOW and skip-gram
    fasttext                  bag of hashed n-grams
"""

from didact.models.text.bert import BERT, BERTClassifier, MaskedBERT, SentenceEncoder
from didact.models.text.encoder_decoder import Transformer
from didact.models.text.fasttext import FastText
from didact.models.text.gpt import GPT
from didact.models.text.llama import Llama
from didact.models.text.rnn import RecurrentClassifier, RecurrentLanguageModel, RecurrentTagger
from didact.models.text.seq2seq import Seq2Seq
from didact.models.text.transformer_classifier import TransformerClassifier
from didact.models.text.word2vec import Word2Vec

__all__ = [
    "BERT", "GPT", "BERTClassifier", "FastText", "Llama", "MaskedBERT", "RecurrentClassifier", "RecurrentLanguageModel",
    "RecurrentTagger", "SentenceEncoder", "Seq2Seq", "Transformer", "TransformerClassifier", "Word2Vec",
]  # fmt: skip
