"""Which columns play a part in a fit beside the response, as a user names them or gives them as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dslda.exceptions import InputError
from dslda.variational.design import CovariateColumn, Design

__all__ = ["ClassWeight", "Roles", "named_roles", "roles_of_arrays"]

ClassWeight = Literal["balanced"] | Mapping[Any, float]


@dataclass(frozen=True, slots=True)
class Roles:
    """Which columns of a corpus play a part beside the response.

    Attributes
    ----------
    covariates : tuple of str
    weight, exposure, trials, event : str or None
    class_weight : "balanced", mapping of class to weight, or None
    """

    covariates: tuple[str, ...] = ()
    weight: str | None = None
    exposure: str | None = None
    trials: str | None = None
    event: str | None = None
    class_weight: ClassWeight | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """All the columns named, once each."""
        named = (*self.covariates, self.weight, self.exposure, self.trials, self.event)
        return tuple(dict.fromkeys(name for name in named if name is not None))

    def of_response(self, response: str) -> Design:
        """The columns alone, before what they hold is known."""
        return Design(
            response,
            exposure=self.exposure,
            auxiliary=self.trials or self.event,
            weight=self.weight,
            covariates=tuple(CovariateColumn(name, None, 0.0, 1.0) for name in self.covariates),
        )


def named_roles(
    covariates: Any, weight: Any, exposure: Any, trials: Any, event: Any, class_weight: Any
) -> Roles:
    """The columns that are named for a corpus or bag.

    Raises
    ------
    InputError
        One is no name.
    """
    names = (covariates,) if isinstance(covariates, str) else covariates
    if isinstance(names, Mapping) or not isinstance(names, Sequence):
        raise InputError(f"covariates must name covariates of the corpus, got {type(covariates).__name__}")
    single = {"weight": weight, "exposure": exposure, "trials": trials, "event": event}
    for role, name in [*single.items(), *(("covariates", name) for name in names)]:
        if name is not None and not isinstance(name, str):
            raise InputError(f"{role} must be the name of a covariate of the corpus, got {name!r:.60}")
    return Roles(tuple(dict.fromkeys(names)), **single, class_weight=class_weight)


def roles_of_arrays(
    covariates: Any, weight: Any, exposure: Any, trials: Any, event: Any, class_weight: Any
) -> tuple[Roles, dict[str, Any]]:
    """The arrays that are given for a matrix, by name, and what they are for."""
    if isinstance(covariates, str) or not (isinstance(covariates, Mapping) or len(covariates) == 0):
        raise InputError(
            "covariates must be a mapping of name to array for a matrix, got "
            f"{type(covariates).__name__}; write covariates={{'age': [...]}}"
        )
    single = {"weight": weight, "exposure": exposure, "trials": trials, "event": event}
    arrays = {str(name): values for name, values in dict(covariates).items()}
    clash = set(arrays) & set(single)
    if clash:
        raise InputError(f"covariates must have other names than {', '.join(sorted(clash))}")
    given = {role: role for role, values in single.items() if values is not None}
    roles = Roles(tuple(arrays), **given, class_weight=class_weight)
    return roles, arrays | {role: single[role] for role in given}
