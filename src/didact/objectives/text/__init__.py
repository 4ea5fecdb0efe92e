"""Objectives of texts.

    language_model           language models, their cross-entropy and perplexity
    causal_lm                decoders that generate text (GPT, LLaMA, recurrent networks)
    chunked_cross_entropy    the cross-entropy of large vocabularies, in chunks and exact
    masked_lm                masked language models (BERT)
    seq2seq                  translation: teacher forcing, greedy decoding and beam search, BLEU
    tagging                  a label for each token
    word2vec                 word vectors by negative sampling
"""

from typing import TYPE_CHECKING

from didact.lazy import make_lazy_getattr

if TYPE_CHECKING:
    from didact.objectives.text.causal_lm import CausalLanguageModel as CausalLanguageModel
    from didact.objectives.text.causal_lm import Decoder as Decoder
    from didact.objectives.text.causal_lm import GenerativeLanguageModel as GenerativeLanguageModel
    from didact.objectives.text.causal_lm import IncrementalDecoder as IncrementalDecoder
    from didact.objectives.text.language_model import LanguageModel as LanguageModel
    from didact.objectives.text.language_model import next_token_loss as next_token_loss
    from didact.objectives.text.language_model import perplexity as perplexity
    from didact.objectives.text.masked_lm import MaskedLanguageModel as MaskedLanguageModel
    from didact.objectives.text.seq2seq import EncoderDecoder as EncoderDecoder
    from didact.objectives.text.seq2seq import Seq2SeqObjective as Seq2SeqObjective
    from didact.objectives.text.tagging import TaggingObjective as TaggingObjective
    from didact.objectives.text.word2vec import NegativeSamplingObjective as NegativeSamplingObjective
    from didact.objectives.text.word2vec import negative_sampling as negative_sampling

_EXPORTS = {
    "CausalLanguageModel": "causal_lm",
    "Decoder": "causal_lm",
    "EncoderDecoder": "seq2seq",
    "GenerativeLanguageModel": "causal_lm",
    "IncrementalDecoder": "causal_lm",
    "LanguageModel": "language_model",
    "MaskedLanguageModel": "masked_lm",
    "NegativeSamplingObjective": "word2vec",
    "Seq2SeqObjective": "seq2seq",
    "TaggingObjective": "tagging",
    "negative_sampling": "word2vec",
    "next_token_loss": "language_model",
    "perplexity": "language_model",
}
__all__ = sorted(_EXPORTS)

__getattr__ = make_lazy_getattr(__name__, _EXPORTS)
