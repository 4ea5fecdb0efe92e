"""Character encodings: which one a file of text is in, found out from its bytes.

UTF-8 and UTF-16 can be told for sure. The others are guessed: of the encodings in use, the one whose letters make
ordinary words.
"""

import codecs
import unicodedata
from collections.abc import Sequence
from functools import cache

# longest first: the mark of UTF-32 begins with that of UTF-16
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"),
)  # fmt: skip
# the likelier ones first: of two that fit equally well the first is taken
_SINGLE_BYTE_ENCODINGS = (
    "cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "mac_roman", "koi8_r", "cp850",
)  # fmt: skip
_MULTI_BYTE_ENCODINGS = ("shift_jis", "gb18030", "euc_kr", "big5", "euc_jp")
_NAMES = {
    "cp1252": "Windows-1252", "cp1250": "Windows-1250", "cp1251": "Windows-1251", "cp1253": "Windows-1253",
    "cp1254": "Windows-1254", "mac_roman": "Mac Roman", "koi8_r": "KOI8-R", "cp850": "code page 850",
    "shift_jis": "Shift JIS", "gb18030": "GB 18030", "euc_kr": "EUC-KR", "big5": "Big5", "euc_jp": "EUC-JP",
    "utf-16": "UTF-16", "utf-16-le": "UTF-16", "utf-16-be": "UTF-16", "utf-32": "UTF-32",
}  # fmt: skip
_SAMPLE_BYTES = 100_000                 # bytes around the first character outside of ASCII that are looked at
_MIN_SCORE = -0.2                       # below, no encoding makes words of the bytes
# the letters of languages beside a to z: the words of a file have those of one of them
_ALPHABETS = tuple(map(frozenset, (
    "äöüß", "éèêëàâçîïôùûüœæ", "áéíóúñüºª", "áâãàçéêíóôõúü", "àèéìòù", "æøåäöéü", "éëïöüèê", "áéíóúýþæöð", "äöõüšž",
    "ąćęłńóśźż", "áčďéěíňóřšťúůýžäĺľôŕ", "áéíóöőúüű", "ăâîșțşţ", "čćđšž", "çğıöşüâîi", "āčēģīķļņšūž", "ąčęėįšųūž",
)))  # fmt: skip
_ORDINARY_SYMBOLS = frozenset("€£°²³µ–—’‘“”„«»§±×½¼¾…´¿¡·•™©®№、。「」")
_FREQUENT_HANGUL = frozenset(
    "이다는의에가고하을를은한지로사자기대도리어인해스시아나주그정일부제서들만상보수전과장성적오라게동비여구마원조거선"
    "으면안공화계생무것있며소했세국위유모연된미경관신등요치학양방우중니할발년입실문재당적내용되트민개진때없결명회행"
    "김철박영희산름울최강윤임권황송홍번호값날짜출매점품격름별남녀북천광인물"
)


def decode_to_utf8(raw: bytes) -> tuple[bytes, str] | None:
    """The bytes as UTF-8 without a byte order mark, and the name of an encoding that is not UTF-8; None where they are
    no text."""
    encoding = detect_encoding(raw)
    if encoding is None:
        return None
    if encoding == "utf-8":
        return raw.removeprefix(codecs.BOM_UTF8), ""
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else (text.removeprefix("\ufeff").encode(), _NAMES[encoding])


def detect_encoding(raw: bytes) -> str | None:
    """The name of the codec; None where the bytes are no text."""
    marked = next((encoding for mark, encoding in _MARKS if raw.startswith(mark)), None)
    if marked not in (None, "utf-8"):
        return marked
    if b"\0" in raw:
        return _detect_utf16(raw)
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        return _guess_encoding(raw, error.start)
    return "utf-8"


def _detect_utf16(raw: bytes) -> str | None:
    """UTF-16 without a mark: of ASCII characters every other byte is zero."""
    sample = raw[: _SAMPLE_BYTES - _SAMPLE_BYTES % 2]
    even, odd = sample[::2].count(0), sample[1::2].count(0)
    if max(even, odd) < len(sample) / 5 or min(even, odd) > max(even, odd) / 10:
        return None
    return "utf-16-le" if odd > even else "utf-16-be"


def _guess_encoding(raw: bytes, start: int) -> str | None:
    """The encoding whose letters make the most ordinary words."""
    # whole lines: no character of several bytes is cut
    begin = raw.rfind(b"\n", 0, start) + 1
    end = raw.find(b"\n", begin + _SAMPLE_BYTES)
    sample = raw[begin:] if end < 0 else raw[begin:end]
    if sum(byte < 9 or 13 < byte < 27 for byte in sample) > 0:          # control characters: not a text
        return None
    scores = {}
    for encoding in (*_SINGLE_BYTE_ENCODINGS, *_MULTI_BYTE_ENCODINGS):
        try:
            scores[encoding] = _score_text(sample.decode(encoding))
        except UnicodeDecodeError:
            continue
    best = max(scores, key=lambda encoding: scores[encoding] + 0.05 * (encoding == "cp1252"), default=None)
    return best if best is not None and scores[best] > _MIN_SCORE else None


def _score_text(text: str) -> float:
    """How ordinary the words of a text are: for each character outside of ASCII, between −1 and 1."""
    others = [ch for ch in text if ch > "\x7f"]
    latin = [ch.lower()[0] for ch in others if _find_script(ch) == "latin"]
    alphabet = max(_ALPHABETS, key=lambda letters: sum(ch in letters for ch in latin))
    total = sum(
        _score_character(before, ch, after, alphabet)
        for before, ch, after in zip(" " + text[:-1], text, text[1:] + " ", strict=True)
        if ch > "\x7f"
    )
    return total / max(1, len(others))


def _score_character(before: str, ch: str, after: str, alphabet: frozenset[str]) -> float:
    """−1 what no word holds: a control character, a capital behind a small letter, two scripts in a word."""
    script = _find_script(ch)
    if script in ("control", "private"):
        return -1.0
    neighbors = [_find_script(other) for other in (before, after) if other.isalpha()]
    if script == "symbol":
        return 0.5 if ch in _ORDINARY_SYMBOLS and (len(neighbors) < 2 or ch == "’") else -0.4
    if script == "han":
        return 0.4 if _is_frequent_han(ch) and neighbors else -0.3
    if script == "hangul":
        return 0.6 if ch in _FREQUENT_HANGUL else 0.1
    if any(neighbor != script for neighbor in neighbors):
        return -0.1 if script == "kana" else -0.8
    if ch.isupper() and before.islower():
        return -1.0
    if script == "latin":
        is_foreign = len(neighbors) == 2 and before > "\x7f" and after > "\x7f"    # three such letters in a row
        return -0.3 if is_foreign else (0.5 if ch.lower()[0] in alphabet else -0.2)
    return 0.6 if neighbors else 0.2


@cache
def _find_script(ch: str) -> str:
    """latin, cyrillic, greek, kana, hangul, han or symbol; control and private where no text holds it."""
    category = unicodedata.category(ch)
    if category in ("Cc", "Cn", "Cs"):
        return "control"
    if category == "Co":
        return "private"
    if not category.startswith("L"):
        return "symbol"
    name = unicodedata.name(ch, "").split(" ")[0].lower()
    scripts = {"katakana": "kana", "hiragana": "kana", "cjk": "han", "halfwidth": "private"}
    return scripts.get(name, name)


def _is_frequent_han(ch: str) -> bool:
    """Whether it is among the 3,755 characters of the first level of GB 2312, or among the frequent ones of Big5."""
    for encoding, low, high in (("gb2312", 0xB0, 0xD7), ("big5", 0xA4, 0xC6), ("shift_jis", 0x88, 0x97)):
        try:
            if low <= ch.encode(encoding)[0] <= high:
                return True
        except UnicodeEncodeError:
            continue
    return False


def list_encodings() -> Sequence[str]:
    """The codecs that are tried where a text is not UTF-8."""
    return (*_SINGLE_BYTE_ENCODINGS, *_MULTI_BYTE_ENCODINGS)
