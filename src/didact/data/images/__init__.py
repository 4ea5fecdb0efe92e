"""Images: folders of class folders, segmentation masks and bounding boxes.

    image_folder     load_image_folder; ImageEncoder: files to tensors
    masks, boxes     images with masks (images/ and masks/), with COCO's or VOC's boxes (coco_voc)
    open_image       opening files, one-line errors          bit_depth   16-bit and float images as bytes
    augment          flips, crops, affine transforms, color jitter, cutout, mixup, CutMix, on the device
    augment_masks, augment_boxes                             the same with masks, with boxes
    resize           known datasets in another size          render      PNG, overlaid masks and boxes
"""

from typing import TYPE_CHECKING

from didact.lazy import make_lazy_getattr

if TYPE_CHECKING:
    from didact.data.images.augment import CutMix, Mixup, make_augmentations
    from didact.data.images.augment_boxes import make_box_augmentations
    from didact.data.images.augment_masks import make_mask_augmentations
    from didact.data.images.boxes import BoxEncoder, load_detection_folder
    from didact.data.images.image_folder import ImageEncoder, load_image_folder
    from didact.data.images.masks import load_segmentation_folder
    from didact.data.images.render import colorize_mask, draw_boxes, encode_png, overlay_mask
    from didact.data.images.resize import resize_dataset

_EXPORTS = {
    "augment": ("CutMix", "Mixup", "make_augmentations"),
    "augment_boxes": ("make_box_augmentations",),
    "augment_masks": ("make_mask_augmentations",),
    "boxes": ("BoxEncoder", "load_detection_folder"),
    "image_folder": ("ImageEncoder", "load_image_folder"),
    "masks": ("load_segmentation_folder",),
    "render": ("colorize_mask", "draw_boxes", "encode_png", "overlay_mask"),
    "resize": ("resize_dataset",),
}
_MODULE_OF_NAME = {name: module for module, names in _EXPORTS.items() for name in names}

__all__ = [
    "BoxEncoder", "CutMix", "ImageEncoder", "Mixup", "colorize_mask", "draw_boxes", "encode_png",
    "load_detection_folder", "load_image_folder", "load_segmentation_folder", "make_augmentations",
    "make_box_augmentations", "make_mask_augmentations", "overlay_mask", "resize_dataset",
]  # fmt: skip

__getattr__ = make_lazy_getattr(__name__, _MODULE_OF_NAME)
