"""Datasets known by name.

    download       the registry, where files are looked for, download with checksums
    archives       compressed files, tar and zip archives, idx and CIFAR records
    sklearn_sets   digits, iris, wine, breast_cancer, diabetes: no download
    public         MNIST, Fashion-MNIST, CIFAR-10, Adult, IMDB;  full_train: all training examples, as the courses do
    reviews        rt_polarity and synthetic sentiment;  char_corpora: Tiny Shakespeare, Python's help topics
    synthetic/     points, glyphs, shapes with masks and boxes, the copy task, analogies

Further ones are beside their format: bccd in images/boxes, pennfudan in images/masks, multi30k in text/parallel_texts,
temperatures in time_series. `didact.data.list_datasets` imports all of them.
"""

from didact.data.datasets.download import DATASETS, DatasetEntry, RemoteFile, register_dataset

__all__ = ["DATASETS", "DatasetEntry", "RemoteFile", "register_dataset"]
