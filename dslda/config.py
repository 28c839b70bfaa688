"""Settings of an installation, from Dask's configuration (namespace ``dslda``)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Self

from dslda.exceptions import InputError

__all__ = ["ClusterSettings", "EngineSettings"]


@dataclass(frozen=True, slots=True)
class _Settings:
    """A section of ``dslda.yaml``, which documents each setting and holds its default; times in seconds."""

    SECTION: ClassVar[str]

    @classmethod
    def load(cls) -> Self:
        """The current settings.

        Raises
        ------
        InputError
            A setting is of the wrong kind; it must be a number or time above 0, or true or false.
        """
        import dask.config

        values: dict[str, Any] = {}
        for field in fields(cls):
            name = f"{cls.SECTION}.{field.name.replace('_', '-')}"
            check = _boolean if field.type == "bool" else _positive
            # defaults that were set inside a `dask.config.set` context end with it
            default = dask.config.get(name, config=_defaults())
            values[field.name] = check(name, dask.config.get(name, default=default))
        return cls(**values)


@dataclass(frozen=True, slots=True)
class EngineSettings(_Settings):
    """Section ``dslda.engine``."""

    SECTION = "dslda.engine"
    stall_timeout: float
    iteration_budget: float
    publish_timeout: float
    scheduler_timeout: float
    resident_fraction: float
    float32_parameters: bool


@dataclass(frozen=True, slots=True)
class ClusterSettings(_Settings):
    """Section ``dslda.cluster``."""

    SECTION = "dslda.cluster"
    cores_per_process: float
    start_timeout: float


@cache
def _defaults() -> dict[str, Any]:
    """The content of ``dslda.yaml``, which becomes part of Dask's configuration at the first use."""
    import dask.config
    import yaml

    defaults: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("dslda.yaml").read_text("utf-8"))
    dask.config.update_defaults(defaults)
    return defaults


def _positive(name: str, value: object) -> float:
    from dask.utils import parse_timedelta

    try:
        number = float(value) if isinstance(value, (int, float)) else float(parse_timedelta(value))
    except (ValueError, TypeError, KeyError, AttributeError):
        number = -1.0
    if not number > 0:
        raise InputError(
            f"must be a number or a time such as '10 minutes' above 0, got {value!r}",
            parameter=f"setting {name}",
        )
    return number


def _boolean(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"must be true or false, got {value!r}", parameter=f"setting {name}")
    return value
