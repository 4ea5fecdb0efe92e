"""Architectures: one file a family, presets by name. Importing this package fills the registry `MODELS`.

    vision/        LeNet to ResNet, EfficientNet, ConvNeXt, ViT, Mixer; U-Net; SSD, YOLO; denoising autoencoder
    text/          RNNs, seq2seq, Transformer, BERT, GPT-2, LLaMA, word2vec
    generative/    autoencoders, VAE, VQ-VAE, GANs, diffusion U-Nets, PixelCNN, PixelRNN, RealNVP
    tabular/       MLP, ensemble, wide and deep, forecasters of series
    pretrained/    loading weights of others: PyTorch and safetensors files, GGUF, MiniLM, GloVe
    scratch_twins  the networks of `didact.scratch` in PyTorch

    from didact.models import GPT, ResNet, UNet
    from didact.registry import create_model; create_model("resnet18", num_classes=10)

Every registered class has `example(batch_size)`: keywords of a small model and an input for it, for tests over the
registry.
"""

from didact.models.generative.autoencoder import Autoencoder, ConvAutoencoder
from didact.models.generative.diffusion_unet import DiffusionUNet, SimpleUNet
from didact.models.generative.gan import (
    DCGANDiscriminator,
    DCGANGenerator,
    DenseDiscriminator,
    DenseGenerator,
    StyleGenerator,
)
from didact.models.generative.pixelcnn import PixelCNN
from didact.models.generative.pixelrnn import PixelRNN
from didact.models.generative.realnvp import MonotoneFlow, MultiScaleRealNVP, RealNVP
from didact.models.generative.vae import VAE, ConvVAE
from didact.models.generative.vqvae import VQVAE
from didact.models.tabular.ensemble import TabularEnsemble
from didact.models.tabular.forecaster import RNNForecaster
from didact.models.tabular.linear_forecaster import DLinearForecaster, LinearForecaster
from didact.models.tabular.mlp import MLP
from didact.models.tabular.residual_forecaster import ResidualForecaster
from didact.models.tabular.wide_deep import WideDeep
from didact.models.text.bert import BERT, BERTClassifier, MaskedBERT, SentenceEncoder
from didact.models.text.encoder_decoder import Transformer
from didact.models.text.gpt import GPT
from didact.models.text.llama import Llama
from didact.models.text.rnn import RecurrentClassifier, RecurrentLanguageModel, RecurrentTagger
from didact.models.text.seq2seq import Seq2Seq
from didact.models.text.transformer_classifier import TransformerClassifier
from didact.models.text.word2vec import Word2Vec
from didact.models.vision.alexnet import AlexNet
from didact.models.vision.cnn import CNN, CIFAR10Net
from didact.models.vision.convnext import ConvNeXt
from didact.models.vision.denoising_autoencoder import DenoisingAutoencoder
from didact.models.vision.efficientnet import EfficientNet
from didact.models.vision.inception import InceptionV3
from didact.models.vision.lenet import LeNet5, LeNetLike
from didact.models.vision.mixer import Mixer
from didact.models.vision.resnet import ResNet
from didact.models.vision.resnet9 import ResNet9
from didact.models.vision.ssd import SSD
from didact.models.vision.unet import UNet
from didact.models.vision.vgg import VGG
from didact.models.vision.vit import ViT
from didact.models.vision.yolo import YOLO

__all__ = [
    "BERT", "CNN", "GPT", "MLP", "SSD", "VAE", "VGG", "VQVAE", "YOLO", "AlexNet", "Autoencoder", "BERTClassifier",
    "CIFAR10Net", "ConvAutoencoder", "ConvNeXt", "ConvVAE", "DCGANDiscriminator", "DCGANGenerator", "DLinearForecaster",
    "DenoisingAutoencoder", "DenseDiscriminator", "DenseGenerator", "DiffusionUNet", "EfficientNet", "InceptionV3",
    "LeNet5", "LeNetLike", "LinearForecaster", "Llama", "MaskedBERT", "Mixer", "MonotoneFlow", "MultiScaleRealNVP",
    "PixelCNN", "PixelRNN", "RNNForecaster", "RealNVP", "RecurrentClassifier", "RecurrentLanguageModel",
    "RecurrentTagger", "ResNet", "ResNet9", "ResidualForecaster", "SentenceEncoder", "Seq2Seq", "SimpleUNet",
    "StyleGenerator", "TabularEnsemble", "Transformer", "TransformerClassifier", "UNet", "ViT", "WideDeep", "Word2Vec",
]  # fmt: skip
