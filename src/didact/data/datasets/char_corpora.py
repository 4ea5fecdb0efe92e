"""Character-level corpora for language modeling."""

from hashlib import blake2b

from didact.data.core import Data
from didact.data.datasets.download import RemoteFile, read_files, register_dataset
from didact.data.text.language_modeling import build_language_modeling_data

_SHAKESPEARE_FILE = RemoteFile(
    "input.txt", "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
)


@register_dataset(
    kind="text", task="language", license="public domain; collected by Karpathy 2015", files=(_SHAKESPEARE_FILE,)
)
def tinyshakespeare(seed: int = 0) -> Data:
    """1.1 million characters of Shakespeare's plays, for language modeling."""
    (raw,) = read_files("tinyshakespeare", (_SHAKESPEARE_FILE,))
    return build_language_modeling_data("tinyshakespeare", raw.decode())


@register_dataset(kind="text", task="language", license="PSF; the help topics that come with Python")
def python_topics(seed: int = 0) -> Data:
    """200,000 characters of English about Python, from its own help topics: no download."""
    from pydoc_data.topics import topics

    # shuffled: in the order of their names, the last are all of one kind
    shuffled_names = sorted(topics, key=lambda name: blake2b(name.encode()).digest())
    text = "\n".join(topics[name] for name in shuffled_names)
    plain_text = "".join(c for c in text if c.isascii() and (c.isprintable() or c == "\n"))
    return build_language_modeling_data("python_topics", plain_text[:200_000])
