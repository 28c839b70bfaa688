"""Encrypted connections, with certificates from options or Dask's configuration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dslda.exceptions import InputError

if TYPE_CHECKING:
    from distributed import Security

__all__ = ["for_own_workers", "for_scheduler"]

CONFIGURATION = "distributed.comm.tls in Dask's configuration"
WHERE = ("see {tls_ca_file}, {tls_cert} and {tls_key}", f"see {CONFIGURATION}")


def for_scheduler(address: str, *, ca_file: str | None, certificate: str | None, key: str | None) -> Security:
    """Settings for a client's connection to a scheduler.

    Parameters
    ----------
    address : str
    ca_file, certificate, key : str or None
        PEM files. None stands for the value in Dask's configuration (``distributed.comm.tls``), but a `certificate` is
        never combined with a key of the configuration.

    Raises
    ------
    InputError
        The address needs certificates, and they are missing or unusable; or it needs none, and there are some.
    """
    from distributed import Security

    files: dict[str, Any] = {}
    if ca_file is not None:
        files["tls_ca_file"] = ca_file
    if certificate is not None:
        files |= {"tls_client_cert": certificate, "tls_client_key": key}
    elif key is not None:
        files["tls_client_key"] = key
    security = Security(require_encryption=True if files else None, **files)
    if address.startswith(("tls://", "wss://")):
        _check(security, f"of a scheduler at {address}", WHERE)
    elif security.require_encryption:
        raise InputError(
            "must begin with tls:// where files for TLS are given or Dask's configuration has "
            f"distributed.comm.require-encryption, got {address}",
            parameter="scheduler",
            remedy="write the address that the scheduler prints when it starts",
        )
    return security


def for_own_workers() -> dict[str, Any]:
    """Dask's settings for workers on this machine, which encrypt connections if Dask's configuration requires it.

    Scheduler and workers use the client's certificates, since the configuration may have no others. Dask checks who signed
    a certificate, not whose it is.

    Raises
    ------
    InputError
        Certificates are missing or unusable.
    """
    from distributed import Security

    security = Security()
    if not security.require_encryption:
        return {}
    _check(
        security,
        "of workers on this machine, where distributed.comm.require-encryption is set,",
        (f"see {CONFIGURATION}",),  # the options are only for a running scheduler
    )
    settings: dict[str, Any] = {"distributed.comm.default-scheme": "tls"}
    for role in ("scheduler", "worker"):
        settings |= {
            f"distributed.comm.tls.{role}.cert": security.tls_client_cert,
            f"distributed.comm.tls.{role}.key": security.tls_client_key,
        }
    return settings


def _check(security: Security, whose: str, remedy: Sequence[str]) -> None:
    """Refuse files that no client can connect with; OpenSSL's own errors name no file."""
    authority, certificate, key = security.tls_ca_file, security.tls_client_cert, security.tls_client_key
    files = {"certificate of an authority": authority, "own certificate": certificate}
    if missing := [name for name, file in files.items() if not file]:
        raise InputError(
            f"files for TLS {whose} must be given, got no {' and no '.join(missing)}", remedy=remedy
        )
    try:
        security.get_connection_args("client")
    except (OSError, ValueError) as error:
        # the configuration may hold PEM itself instead of the name of a file
        names = ", ".join(f for f in (authority, certificate, key) if f and "\n" not in f)
        raise InputError(
            f"files for TLS {whose} must be PEM that can be read and belongs together, got {names} ({error})",
            remedy=remedy,
        ) from None
