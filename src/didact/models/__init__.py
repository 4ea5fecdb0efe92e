"""Architectures: one file a family. Importing this package fills the registry."""

from didact.models.alexnet import AlexNet
from didact.models.autoencoder import Autoencoder, ConvAutoencoder
from didact.models.bert import BERT, BERTClassifier, MaskedBERT, SentenceEncoder
from didact.models.cifar import CNN, CIFAR10Net
from didact.models.convnext import ConvNeXt
from didact.models.denoise_unet import DenoiseUNet, SimpleUNet
from didact.models.denoiser import Denoiser
from didact.models.efficientnet import EfficientNet
from didact.models.forecaster import Forecaster
from didact.models.gan import DCGANDiscriminator, DCGANGenerator, DenseDiscriminator, DenseGenerator, StyleGenerator
from didact.models.gpt import GPT
from didact.models.lenet import LeNet5, LeNetLike
from didact.models.llama import Llama
from didact.models.mixer import Mixer
from didact.models.mlp import MLP
from didact.models.pixelcnn import PixelCNN
from didact.models.pixelrnn import PixelRNN
from didact.models.realnvp import MonotoneFlow, MultiScaleRealNVP, RealNVP
from didact.models.recurrent import RecurrentClassifier, RecurrentLanguageModel, RecurrentTagger
from didact.models.resnet import ResNet
from didact.models.resnet9 import ResNet9
from didact.models.seq2seq import Seq2Seq
from didact.models.ssd import SSD
from didact.models.text_encoder import TextEncoder
from didact.models.transformer import Transformer
from didact.models.unet import UNet
from didact.models.vae import VAE, ConvVAE
from didact.models.vgg import VGG
from didact.models.vit import ViT
from didact.models.vqvae import VQVAE
from didact.models.wide_deep import WideDeep
from didact.models.word2vec import Word2Vec
from didact.models.yolo import YOLO

__all__ = [
    "BERT", "CNN", "GPT", "MLP", "SSD", "VAE", "VGG", "VQVAE", "YOLO", "AlexNet", "Autoencoder", "BERTClassifier",
    "CIFAR10Net", "ConvAutoencoder", "ConvNeXt", "ConvVAE", "DCGANDiscriminator", "DCGANGenerator", "DenoiseUNet", "Denoiser",
    "DenseDiscriminator", "DenseGenerator", "EfficientNet", "Forecaster", "LeNet5", "LeNetLike", "Llama", "MaskedBERT", "Mixer",
    "MonotoneFlow", "MultiScaleRealNVP", "PixelCNN", "PixelRNN", "RealNVP", "RecurrentClassifier", "RecurrentLanguageModel",
    "RecurrentTagger", "ResNet", "ResNet9", "SentenceEncoder", "Seq2Seq", "SimpleUNet", "StyleGenerator", "TextEncoder", "Transformer",
    "UNet", "ViT", "WideDeep", "Word2Vec",
]
