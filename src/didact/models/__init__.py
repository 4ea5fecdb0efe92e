"""Architectures: one file a family. Importing this package fills the registry."""

from didact.models.alexnet import AlexNet
from didact.models.cifar import CNN, CIFAR10Net
from didact.models.convnext import ConvNeXt
from didact.models.denoiser import Denoiser
from didact.models.efficientnet import EfficientNet
from didact.models.lenet import LeNet5, LeNetLike
from didact.models.mixer import Mixer
from didact.models.mlp import MLP
from didact.models.resnet import ResNet
from didact.models.unet import UNet
from didact.models.vgg import VGG
from didact.models.vit import ViT
from didact.models.wide_deep import WideDeep

__all__ = [
    "CNN", "MLP", "VGG", "AlexNet", "CIFAR10Net", "ConvNeXt", "Denoiser",
    "EfficientNet", "LeNet5", "LeNetLike", "Mixer", "ResNet", "UNet", "ViT", "WideDeep",
]
