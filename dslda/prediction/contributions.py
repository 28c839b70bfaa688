"""What topics and covariates add to the linear predictors of documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dslda.exceptions import InputError
from dslda.persistence.model_record import ModelRecord
from dslda.prediction.columns import undetermined
from dslda.prediction.counted_block import CountedBlock
from dslda.prediction.predict import inferred, linear_predictor
from dslda.variational.design import FIRST_COVARIATE, OFFSET

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["check_is_a_sum", "contributions"]


def check_is_a_sum(record: ModelRecord) -> None:
    """Refuse a response whose linear predictors are no sum of what topics add.

    Raises
    ------
    InputError
        It has a predictor for each class.
    """
    if record.parameters.n_classes is not None:
        raise InputError(
            f"contributions are for responses with one linear predictor, got family {record.spec.family}, which has one for "
            "each class, and no sum over topics; use class_coefficients() beside transform()"
        )


def contributions(record: ModelRecord, counted: CountedBlock, doc_id: Sequence[str]) -> pa.Table:
    """As :meth:`dslda.model.Model.contributions`, of a block of documents."""
    import pyarrow as pa

    from dslda.families.registry import get_family

    parameters, design, scaling = record.parameters, record.design, record.scaling
    family = get_family(record.spec.family, record.spec.family_options)
    posterior, extras = inferred(record, counted, family)
    omega, _ = linear_predictor(record, posterior, extras)
    known = posterior.n_known_tokens[:, np.newaxis]
    # gamma is alpha and the sum of phi over the words
    shares = np.full(posterior.gamma.shape, np.nan)
    np.divide(posterior.gamma - parameters.alpha, known, out=shares, where=known > 0)
    topics = shares * family.coefficients_to_user(parameters.eta, scaling.center, scaling.scale)
    beside: dict[str, Any] = {}
    if extras is not None:
        # as dslda.coefficients has them
        unit = scaling.scale if family.link == "identity" else 1.0
        for p, column in enumerate(design.covariates):
            added = unit * parameters.zeta[p] * extras[:, FIRST_COVARIATE + p]
            name = f"covariate_{column.name}"
            beside[name] = beside[name] + added if name in beside else added
        if design.exposure is not None:
            beside["log_exposure"] = extras[:, OFFSET]
    without = undetermined(record, counted.columns, counted.block.n_documents) != ""
    sums = np.where(without, np.nan, family.coefficients_to_user(omega, scaling.center, scaling.scale))
    columns = {
        "linear_predictor": sums,
        **{f"topic_{k}": column for k, column in enumerate(topics.T)},
        **{name: np.where(without, np.nan, column) for name, column in beside.items()},
    }
    return pa.table(
        {
            "id": pa.array(doc_id, pa.string()),
            **{
                name: pa.array(np.ascontiguousarray(column), from_pandas=True)
                for name, column in columns.items()
            },
        }
    )
