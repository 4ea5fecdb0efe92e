"""Inference: what is done with a trained run (`didact predict`, `sample`, `evaluate`, `search`).

    predict            predictions of files, rows and texts, by whatever the model is able to do
    sample_images      samples of generative models, inpainting; PNG sheets and CSV files of samples
    latent_walks       latent interpolation and traversal
    generate_text      text generation with a language model;  chat  questions to a published decoder
    evaluate           validation and test metrics anew;  evaluate_by_group  fairness;  evaluate_int8  quantized weights
    evaluate_samples   FID, KID, precision and recall of samples in a classifier's features
    search             semantic search in texts, nearest words

A function that is named like its module is imported from there: `from didact.inference.predict import predict`; also as
`didact.predict` and `didact.evaluate`. The samplers themselves (top-p, beam search, DDIM) are in `didact.samplers`.
"""

from typing import TYPE_CHECKING

from didact.lazy import make_lazy_getattr

if TYPE_CHECKING:
    from didact.inference.chat import ChatModel as ChatModel
    from didact.inference.chat import answer_question as answer_question
    from didact.inference.evaluate import evaluate_splits as evaluate_splits
    from didact.inference.evaluate_samples import ImageClassifier as ImageClassifier
    from didact.inference.evaluate_samples import inception_quality as inception_quality
    from didact.inference.evaluate_samples import quality_vs_classifier as quality_vs_classifier
    from didact.inference.generate_text import generate_continuations as generate_continuations
    from didact.inference.latent_walks import interpolate_latents as interpolate_latents
    from didact.inference.latent_walks import traverse_latents as traverse_latents
    from didact.inference.predict import Prediction as Prediction
    from didact.inference.sample_images import inpaint_image as inpaint_image
    from didact.inference.sample_images import save_image_grid as save_image_grid
    from didact.inference.search import TextEmbedder as TextEmbedder
    from didact.inference.search import load_text_embedder as load_text_embedder
    from didact.inference.search import load_word_vectors as load_word_vectors
    from didact.inference.search import nearest_words as nearest_words

_EXPORTS = {
    "ChatModel": "chat",
    "ImageClassifier": "evaluate_samples",
    "Prediction": "predict",
    "TextEmbedder": "search",
    "answer_question": "chat",
    "evaluate_splits": "evaluate",
    "generate_continuations": "generate_text",
    "inception_quality": "evaluate_samples",
    "inpaint_image": "sample_images",
    "interpolate_latents": "latent_walks",
    "load_text_embedder": "search",
    "load_word_vectors": "search",
    "nearest_words": "search",
    "quality_vs_classifier": "evaluate_samples",
    "save_image_grid": "sample_images",
    "traverse_latents": "latent_walks",
}
__all__ = sorted(_EXPORTS)

__getattr__ = make_lazy_getattr(__name__, _EXPORTS)
