"""Counting of the terms of documents, and its settings."""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, cached_property, partial
from itertools import repeat
from numbers import Integral, Real
from typing import Any, Literal, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from dslda.corpus.block import MAX_COUNT, DocumentBlock
from dslda.corpus.own_analyzer import allow, analyzer_name, check_name, function_of, is_known, terms_of
from dslda.corpus.vocabulary import Vocabulary
from dslda.exceptions import FormatError, InputError
from dslda.wording import short_repr

__all__ = [
    "DONE_BY_ANALYZER",
    "Analyzer",
    "Document",
    "TextSettings",
    "chosen_settings",
    "count_documents",
    "refuse_beside_analyzer",
]

DEFAULT_TOKEN_PATTERN = r"\w[\w\p{M}\u200c\u200d]*[\w\p{M}]"
"""Two or more letters, digits or marks, with zero-width joiners between them as in words of Persian and Hindi."""
PLAIN_TOKEN = re.compile(r"\w\w+")
"""What the default takes of texts without marks and joiners, in half the time."""
DOTTED_I = re.compile("i\u0307+")
"""What lower-casing makes of the Turkish İ."""
JOINERS = "\u200c\u200d"
EARLIER_TOKEN_PATTERN = r"(?u)\b\w\w+\b"
"""The default of releases that split words at marks; their corpora and models keep it."""
MARKS = r"\p{M}"
VARIATION_SELECTORS = range(0xFE00, 0xFE10)
"""Marks that make an emoji of a digit, and no part of a word."""
LAST_MARKS = (0x1F000, 0xE0100, 0xE01F0)
"""Marks are below the first of these characters, and between the others."""
ABSENT: Mapping[str, Any] = {"normalize": False, "analyzer": None}
"""Values of fields that the JSON leaves out, as earlier releases did."""

DONE_BY_ANALYZER = ("lowercase", "token_pattern", "ngrams", "stop_words", "normalize")
"""Settings without a use beside an analyzer of the user's own."""

Document: TypeAlias = str | tuple[Sequence[str], Sequence[int]]
"""A text, or words, which may repeat, and a count for each."""


@dataclass(frozen=True, slots=True)
class TextSettings:
    """Settings that turn documents into terms: tokenising and the filters of the vocabulary.

    Attributes
    ----------
    kind : {"text", "counts"}
        Documents are texts to tokenise, or words with counts. Only `stop_words` and the filters apply to words with
        counts.
    lowercase : bool
        Lower-case texts before tokenising.
    token_pattern : str, or None with an `analyzer`
        Regular expression of a token; the default takes words of two or more letters, digits or marks, such as the vowels of
        Hindi and the points of Arabic. With one capturing group, the group is the token. Beside Python's syntax, ``\\p{M}``
        stands for any mark.
    ngrams : (int, int)
        Shortest and longest n-gram that becomes a term, (1, 1) for single words.
    stop_words : None, "english" or tuple of str
        Words left out; "english" is scikit-learn's list. Without them topics are easier to read, and predictions may be
        worse: on movie reviews R2 fell by 0.02 to 0.035 (docs/benchmarks.md).
    min_df, max_df : int or float
        Terms in fewer (more) documents of the whole corpus are left out. An int is a number of documents, a
        float in [0, 1] a share of them. The defaults, 5 and 0.25, suit a few thousand documents or more: a
        word in one quarter of the documents tells little, one in fewer than five cannot be learned.
    max_features : int or None
        Keep this many terms, the most frequent in the corpus; None keeps all.
    normalize : bool
        Compose characters before tokenising (NFC), so that an accent is the same as a mark of its own; and where texts are
        lower-cased, leave no dot on an i, as the Turkish İ does. False for texts that earlier releases counted, and for words
        with counts.
    analyzer : str or None
        Name of the user's own function, MODULE:FUNCTION, that takes a text as it is and returns its terms, in place of all
        that `lowercase`, `token_pattern`, `ngrams`, `stop_words` and `normalize` do.

    Raises
    ------
    InputError
        A setting is out of its domain; the message names it.
    """

    kind: Literal["text", "counts"] = "text"
    lowercase: bool = True
    token_pattern: str | None = DEFAULT_TOKEN_PATTERN
    ngrams: tuple[int, int] = (1, 1)
    stop_words: str | tuple[str, ...] | None = None
    min_df: int | float = 5
    max_df: int | float = 0.25
    max_features: int | None = None
    normalize: bool = True
    analyzer: str | None = None

    __repr__ = short_repr

    def __post_init__(self) -> None:
        if self.kind not in ("text", "counts"):
            raise InputError(f"must be 'text' or 'counts', got {self.kind!r}", parameter="kind")
        for name in ("lowercase", "normalize"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"must be True or False, got {getattr(self, name)!r}", parameter=name)
        if self.analyzer is None:
            _check_token_pattern(self.token_pattern)
        # users and JSON spell a value in several ways; equal settings must compare equal
        object.__setattr__(self, "ngrams", _ngrams(self.ngrams))
        object.__setattr__(self, "stop_words", _stop_words(self.stop_words))
        object.__setattr__(self, "min_df", _frequency("min_df", self.min_df))
        object.__setattr__(self, "max_df", _frequency("max_df", self.max_df))
        if self.max_features is not None:
            if not _is_whole(self.max_features) or self.max_features < 1:
                raise InputError(
                    f"must be a whole number >= 1 or None, got {self.max_features!r}",
                    parameter="max_features",
                )
            object.__setattr__(self, "max_features", int(self.max_features))
        if self.analyzer is not None:
            self._leave_to_analyzer()
        if self.kind == "counts":
            defaults = (DEFAULT_TOKEN_PATTERN, EARLIER_TOKEN_PATTERN)
            if self.ngrams != (1, 1) or self.token_pattern not in defaults:
                raise InputError(
                    "are for texts, these documents are words with counts",
                    parameter=("ngrams", "token_pattern"),
                    remedy="drop them",
                )
            # neither is of use, and equal settings must compare equal
            object.__setattr__(self, "token_pattern", EARLIER_TOKEN_PATTERN)
            object.__setattr__(self, "normalize", False)

    def _leave_to_analyzer(self) -> None:
        check_name(self.analyzer)
        if self.kind == "counts":
            raise InputError(
                "is for texts, these documents are words with counts", parameter="analyzer", remedy="drop it"
            )
        refuse_beside_analyzer(
            {
                "token_pattern": None if self.token_pattern == DEFAULT_TOKEN_PATTERN else self.token_pattern,
                "ngrams": None if self.ngrams == (1, 1) else self.ngrams,
                "stop_words": self.stop_words,
            }
        )
        # equal settings must compare equal; and releases that know no analyzer refuse a file without a pattern
        for name, value in (("lowercase", False), ("token_pattern", None), ("normalize", False)):
            object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        # who receives the settings of a user who has named the analyzer may import it
        known = self.analyzer is not None and is_known(self.analyzer)
        return _sent_settings, (known, *(getattr(self, field.name) for field in fields(self)))

    def to_json(self) -> dict[str, Any]:
        """The settings as a JSON object."""
        data = {
            "kind": self.kind,
            "lowercase": self.lowercase,
            "token_pattern": self.token_pattern,
            "ngrams": list(self.ngrams),
            "stop_words": list(self.stop_words) if isinstance(self.stop_words, tuple) else self.stop_words,
            "min_df": _frequency_to_json(self.min_df),
            "max_df": _frequency_to_json(self.max_df),
            "max_features": self.max_features,
        }
        added = {name: getattr(self, name) for name in ABSENT}
        return data | {name: value for name, value in added.items() if value != ABSENT[name]}

    @classmethod
    def from_json(cls, data: object, where: str = "file") -> TextSettings:
        """The reverse of :meth:`to_json`; `where` begins the message of an error.

        Raises
        ------
        FormatError
            A field is missing or not valid.
        """
        if not isinstance(data, Mapping):
            raise FormatError(f"text settings must be a JSON object, got {data!r:.60}", place=where)
        try:
            known = {**ABSENT, **data}
            values = {field.name: known[field.name] for field in fields(cls)}
            for name in ("min_df", "max_df"):
                values[name] = _frequency_from_json(name, values[name])
            return cls(**values)
        except KeyError as error:
            raise FormatError(f"text settings: field {error} is missing", place=where) from error
        except InputError as error:
            raise FormatError(f"text settings: {error}", place=where) from error


def _sent_settings(known: bool, *values: Any) -> TextSettings:
    settings = TextSettings(*values)
    if known and settings.analyzer is not None:
        allow(settings.analyzer)
    return settings


def chosen_settings(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The text settings that a caller chose, without those that are None, and with the name of an analyzer.

    Raises
    ------
    InputError
        The analyzer cannot be used, or others are chosen that it leaves no use for.
    """
    chosen = {name: value for name, value in chosen.items() if value is not None}
    if "analyzer" in chosen:
        refuse_beside_analyzer(chosen)
        chosen["analyzer"] = analyzer_name(chosen["analyzer"])
    return chosen


def refuse_beside_analyzer(chosen: Mapping[str, Any]) -> None:
    """Refuse settings that an analyzer of the user's own leaves no use for."""
    names = tuple(name for name in DONE_BY_ANALYZER if chosen.get(name) is not None)
    if names:
        raise InputError(
            "must be left out beside an analyzer, which gets the text as it is and returns its terms",
            parameter=names,
            remedy="do it in the analyzer",
        )


class Analyzer:
    """Callable that turns one document into the counts of its terms, before any vocabulary.

    Tokenising is scikit-learn's, so that a corpus has the terms that `CountVectorizer` would find, but for words with marks.
    A pickle holds only the settings.
    """

    def __init__(self, settings: TextSettings) -> None:
        self.settings = settings

    def __call__(self, document: Document) -> Counter[str]:
        """Terms of one document with their counts.

        Parameters
        ----------
        document : str, or (words, counts)

        Raises
        ------
        InputError
            `document` is none, is a text where the settings are for counts, or has counts that are not whole and >= 0; or the
            user's analyzer fails.
        """
        if isinstance(document, str):
            if self.settings.kind == "counts":
                raise InputError(
                    "documents of this corpus are words with counts, got a text",
                    remedy="give a pair (words, counts)",
                )
            return Counter(self._analyze(document))
        counts = _counted(document)
        for word in self._stop_words.intersection(counts):
            del counts[word]
        return counts

    def ready(self) -> None:
        """Import the user's analyzer: an error is no fault of a document then.

        Raises
        ------
        InputError
            It is not known here, or a worker cannot import it.
        """
        if self.settings.analyzer is not None:
            _ = self._analyze

    def impossible(self, terms: Iterable[str]) -> list[str]:
        """Those of the terms that no document can have, whatever it says.

        A token pattern that looks beyond its token cannot be tried on a term alone: then letters and stop words decide. A
        user's own analyzer may return any term.
        """
        settings = self.settings
        if settings.token_pattern is None:
            return []
        if settings.kind == "text" and not _looks_around(settings.token_pattern):
            return [term for term in terms if term not in self._analyze(term)]
        is_text = settings.kind == "text"
        return [
            term for term in terms if term in self._stop_words or (is_text and term != self._prepared(term))
        ]

    def __reduce__(self) -> tuple[Any, ...]:
        return Analyzer, (self.settings,)

    def _prepared(self, text: str) -> str:
        """The text as its tokens are written."""
        if self.settings.lowercase:
            text = text.lower()
        if self.settings.normalize and not text.isascii():
            if self.settings.lowercase:
                text = DOTTED_I.sub("i", text)
            text = unicodedata.normalize("NFC", text)
        return text

    @cached_property
    def _tokens(self) -> Callable[[str], list[str]]:
        pattern = self.settings.token_pattern
        assert pattern is not None
        find: Callable[[str], list[str]] = re.compile(expanded(pattern)).findall
        if pattern != DEFAULT_TOKEN_PATTERN:
            return find
        find_plain: Callable[[str], list[str]] = PLAIN_TOKEN.findall
        return lambda text: find(text) if _may_hold_marks(text) else find_plain(text)

    @cached_property
    def _analyze(self) -> Callable[[str], list[str]]:
        if (name := self.settings.analyzer) is not None:
            return partial(terms_of, name, function_of(name))
        analyze: Callable[[str], list[str]] = self._vectorizer().build_analyzer()
        return analyze

    @cached_property
    def _stop_words(self) -> frozenset[str]:
        if self.settings.stop_words is None:
            return frozenset()
        return frozenset(self._vectorizer().get_stop_words() or ())

    def _vectorizer(self) -> Any:
        from sklearn.feature_extraction.text import CountVectorizer

        settings = self.settings
        stop_words: str | list[str] | None = (
            list(settings.stop_words) if isinstance(settings.stop_words, tuple) else settings.stop_words
        )
        if isinstance(stop_words, list) and settings.normalize:
            stop_words = [unicodedata.normalize("NFC", word) for word in stop_words]
        return CountVectorizer(
            preprocessor=self._prepared,
            tokenizer=self._tokens,
            token_pattern=None,
            ngram_range=settings.ngrams,
            stop_words=stop_words,
        )


def expanded(pattern: str) -> str:
    r"""A token pattern with the marks in place of ``\p{M}``, which Python does not know."""
    if MARKS not in pattern:
        return pattern
    parts, inside = [], False
    for part in re.findall(r"\\p\{M\}|\\.|\[\^?\]?|.", pattern, re.DOTALL):
        if part == MARKS:
            parts.append(_marks() if inside else f"[{_marks()}]")
            continue
        if not inside:
            inside = part.startswith("[")
        elif part.endswith("]") and part[0] != "\\":
            inside = False
        parts.append(part)
    return "".join(parts)


@cache
def _mark_ranges() -> list[tuple[int, int]]:
    """First and last of each range of combining marks that are part of words."""
    last, *rest = LAST_MARKS
    ranges: list[tuple[int, int]] = []
    for code in (*range(last), *range(*rest)):
        if unicodedata.category(chr(code)) in ("Mn", "Mc") and code not in VARIATION_SELECTORS:
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1] = (ranges[-1][0], code)
            else:
                ranges.append((code, code))
    return ranges


def _marks() -> str:
    """The marks, for a class of characters."""
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in _mark_ranges())


@cache
def _units_of_marks() -> NDArray[np.bool_]:
    """Units of UTF-16 that are a mark or joiner, or half of a character that may be one."""
    units = np.zeros(1 << 16, dtype=np.bool_)
    for first, last in (*_mark_ranges(), *((ord(joiner), ord(joiner)) for joiner in JOINERS)):
        units[first : last + 1] = True
    units[0xD800:0xE000] = True
    return units


def _may_hold_marks(text: str) -> bool:
    """False for a text without marks and joiners."""
    if text.isascii():
        return False
    units = np.frombuffer(text.encode("utf-16-le", "surrogatepass"), dtype="<u2")
    return bool(_units_of_marks()[units].any())


def count_documents(
    documents: Iterable[Document],
    vocabulary: Vocabulary,
    settings: TextSettings | Analyzer,
    *,
    new_words: Callable[[str, int], None] | None = None,
    place: Callable[[int], str] = "document {}".format,
) -> tuple[DocumentBlock, NDArray[np.int64]]:
    """Count documents over a vocabulary.

    Parameters
    ----------
    documents : iterable of str or (words, counts)
    vocabulary : Vocabulary
    settings : TextSettings or Analyzer
        An analyzer saves time for callers that count many blocks.
    new_words : callable, optional
        Called with every word of a document that is not in the vocabulary, and its count.
    place : callable, optional
        Names the place of a document in errors by its position.

    Returns
    -------
    DocumentBlock
        Counts only.
    ndarray of int64, shape (n_documents,)
        Tokens of each document that are not in the vocabulary.

    Raises
    ------
    InputError
        The errors of :class:`Analyzer`, with the place of the document.
    """
    analyze = settings if isinstance(settings, Analyzer) else Analyzer(settings)
    lookup = vocabulary.index.get
    terms, counts, lengths = array("q"), array("q"), array("q")
    for position, document in enumerate(documents):
        try:
            counted = analyze(document)
            counts.extend(counted.values())
        except InputError as error:
            raise error.at(place(position)) from None
        except OverflowError:
            raise _too_large(max(counted.values())).at(place(position)) from None
        positions = list(map(lookup, counted, repeat(-1)))
        terms.extend(positions)
        lengths.append(len(positions))
        if new_words is not None and -1 in positions:
            for word, term in zip(counted, positions, strict=True):
                if term < 0:
                    new_words(word, counted[word])
    # all documents at once: for one document, numpy takes as long as tokenising
    n_documents = len(lengths)
    ids, occurrences = np.array(terms), np.array(counts)
    rows = np.repeat(np.arange(n_documents), np.array(lengths))
    in_vocabulary = ids >= 0
    unknown = np.zeros(n_documents, dtype=np.int64)
    np.add.at(unknown, rows[~in_vocabulary], occurrences[~in_vocabulary])
    ids, occurrences, rows = (values[in_vocabulary] for values in (ids, occurrences, rows))
    if occurrences.size and occurrences.max() > MAX_COUNT:
        first = int(np.argmax(occurrences > MAX_COUNT))
        raise _too_large(int(occurrences[first])).at(place(int(rows[first])))
    return DocumentBlock.from_entries(rows, ids, occurrences, n_documents), unknown


def _too_large(count: int) -> InputError:
    return InputError(f"a count must be at most {MAX_COUNT}, got {count}")


def _counted(document: object) -> Counter[str]:
    """Add up the counts of a document of words and counts; drop counts of 0."""
    if not isinstance(document, (tuple, list)) or len(document) != 2 or isinstance(document[1], (str, bytes)):
        raise InputError(f"a document must be a text or a pair (words, counts), got {document!r:.80}")
    words, counts = document
    if isinstance(words, (str, bytes)) or not hasattr(words, "__len__") or not hasattr(counts, "__len__"):
        raise InputError(
            f"must be two lists, got {words!r:.40} and {counts!r:.40}", parameter=("words", "counts")
        )
    if len(words) != len(counts):
        raise InputError(
            f"must be of the same length, got {len(words)} words and {len(counts)} counts",
            parameter=("words", "counts"),
        )
    total: Counter[str] = Counter()
    for word, count in zip(words, counts, strict=True):
        if not isinstance(word, str):
            raise InputError(f"must be strings, got {word!r}", parameter="words")
        try:
            whole = int(count)
        except (TypeError, ValueError, OverflowError, np.ma.MaskError):
            whole = -1
        if whole < 0 or whole != count or isinstance(count, bool):
            raise InputError(f"must be whole numbers >= 0, got {count!r} for {word!r}", parameter="counts")
        if whole:
            total[word] += whole
    return total


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _check_token_pattern(pattern: object) -> None:
    if not isinstance(pattern, str):
        raise InputError(f"must be a regular expression, got {pattern!r}", parameter="token_pattern")
    try:
        groups = re.compile(expanded(pattern)).groups
    except re.error as error:
        raise InputError(
            f"must be a regular expression, got {pattern!r}: {error}", parameter="token_pattern"
        ) from error
    if groups > 1:
        raise InputError(
            f"must have at most one capturing group, got {groups} in {pattern!r}",
            parameter="token_pattern",
            remedy="write (?:...) for the others",
        )


def _looks_around(pattern: str) -> bool:
    """True if what a token pattern takes depends on the text around it, or is a part of what it matches."""
    return re.compile(expanded(pattern)).groups > 0 or re.search(r"\(\?<?[=!]|\\B", pattern) is not None


def _ngrams(value: object) -> tuple[int, int]:
    if isinstance(value, (tuple, list)) and len(value) == 2 and all(map(_is_whole, value)):
        shortest, longest = int(value[0]), int(value[1])
        if 1 <= shortest <= longest:
            return shortest, longest
    raise InputError(
        f"must be (shortest, longest) with 1 <= shortest <= longest, got {value!r}", parameter="ngrams"
    )


def _stop_words(value: object) -> str | tuple[str, ...] | None:
    if value is None or value == "english":
        return value
    if isinstance(value, Collection) and not isinstance(value, (str, bytes, Mapping)):
        words = list(value)
        if all(isinstance(word, str) for word in words):
            return tuple(sorted(set(words)))
    raise InputError(f"must be None, 'english' or a list of words, got {value!r:.60}", parameter="stop_words")


def _frequency(name: str, value: object) -> int | float:
    if _is_whole(value):
        if value >= 1:
            return int(value)
    elif isinstance(value, Real) and not isinstance(value, bool) and 0.0 <= float(value) <= 1.0:
        return float(value)
    raise InputError(
        f"must be a whole number of documents >= 1 or a share of them in [0.0, 1.0], got {value!r}",
        parameter=name,
    )


def _frequency_to_json(value: int | float) -> dict[str, int | float]:
    # 1 and 1.0 mean opposite things, and not every JSON library keeps them apart
    return {"documents": value} if isinstance(value, int) else {"share": value}


def _frequency_from_json(name: str, data: object) -> int | float:
    if isinstance(data, Mapping) and len(data) == 1:
        if "documents" in data and _is_whole(data["documents"]):
            return _frequency(name, data["documents"])
        share = data.get("share")
        if isinstance(share, (int, float)) and not isinstance(share, bool):
            return _frequency(name, float(share))
    raise InputError(f"must be {{'documents': n}} or {{'share': x}}, got {data!r:.60}", parameter=name)
