"""Networks of images.

    lenet, alexnet, vgg, inception        the first convolutional networks
    resnet, resnet9, convnext, efficientnet
                                          residual networks and their successors
    cnn                                   small networks for experiments
    vit, mixer                            networks of patches
    unet                                  segmentation
    ssd, yolo                             object detection
    denoising_autoencoder                 image restoration
"""

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
    "CNN", "SSD", "VGG", "YOLO", "AlexNet", "CIFAR10Net", "ConvNeXt", "DenoisingAutoencoder", "EfficientNet",
    "InceptionV3", "LeNet5", "LeNetLike", "Mixer", "ResNet", "ResNet9", "UNet", "ViT",
]  # fmt: skip
