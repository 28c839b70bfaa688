"""Encrypted connections: certificates as options or Dask's configuration name them, checked before anything connects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dslda.exceptions import InputError

if TYPE_CHECKING:
    from distributed import Security

__all__ = ["SCHEMES", "for_own_workers", "for_scheduler"]

SCHEMES = ("tls://", "wss://")
"""Beginnings of the addresses whose connections are encrypted."""

CONFIGURATION = "distributed.comm.tls in Dask's configuration"
WHERE = f"see --tls-ca-file, --tls-cert and --tls-key, or {CONFIGURATION}"


def for_scheduler(address: str, *, ca_file: str | None, certificate: str | None, key: str | None) -> Security:
    """How a client connects to a scheduler.

    Parameters
    ----------
    address : str
    ca_file, certificate, key : str or None
        Files of PEM; where they are None, what Dask's configuration says (``distributed.comm.tls``). A certificate that is
        given takes no key from there.

    Raises
    ------
    InputError
        The address needs certificates and there are none, they cannot be used, or there are some and it needs none.
    """
    from distributed import Security

    given: dict[str, Any] = {}
    if ca_file is not None:
        given["tls_ca_file"] = ca_file
    if certificate is not None:
        given |= {"tls_client_cert": certificate, "tls_client_key": key}
    elif key is not None:
        given["tls_client_key"] = key
    security = Security(require_encryption=True if given else None, **given)
    if address.startswith(SCHEMES):
        _check(security, f"of a scheduler at {address}", WHERE)
    elif security.require_encryption:
        raise InputError(
            "address of a scheduler must begin with tls:// where files for TLS are given or Dask's configuration has "
            f"distributed.comm.require-encryption, got {address}; write the address that the scheduler says when it starts"
        )
    return security


def for_own_workers() -> dict[str, Any]:
    """Settings of Dask for workers on this machine: encrypted as well where its configuration wants all connections to be.

    Such a configuration may be that of a client, which has no certificates for scheduler and workers: they take the
    client's, since Dask asks who has signed a certificate and not whose it is.

    Raises
    ------
    InputError
        There is no certificate, or it cannot be used.
    """
    from distributed import Security

    security = Security()
    if not security.require_encryption:
        return {}
    _check(
        security,
        "of workers on this machine, where distributed.comm.require-encryption is set,",
        f"see {CONFIGURATION}",  # the options are those of a scheduler that runs
    )
    settings: dict[str, Any] = {"distributed.comm.default-scheme": "tls"}
    for role in ("scheduler", "worker"):
        settings |= {
            f"distributed.comm.tls.{role}.cert": security.tls_client_cert,
            f"distributed.comm.tls.{role}.key": security.tls_client_key,
        }
    return settings


def _check(security: Security, whose: str, where: str) -> None:
    """Refuse what a client cannot connect with; OpenSSL's own errors name no file."""
    authority, certificate, key = security.tls_ca_file, security.tls_client_cert, security.tls_client_key
    missing = [
        what
        for what, file in (("certificate of an authority", authority), ("own certificate", certificate))
        if not file
    ]
    if missing:
        raise InputError(f"files for TLS {whose} must be given, got no {' and no '.join(missing)}; {where}")
    try:
        security.get_connection_args("client")
    except (OSError, ValueError) as error:
        # PEM may stand in the configuration itself, and then it is no name
        files = ", ".join(f for f in (authority, certificate, key) if f and "\n" not in f)
        raise InputError(
            f"files for TLS {whose} must be PEM that can be read and belongs together, got {files} ({error}); {where}"
        ) from None
