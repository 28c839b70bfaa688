"""Leftovers of killed runs: the next run that writes the corpus puts them back, or removes them."""

from __future__ import annotations

import contextlib
import logging
import os
import re

from dslda.corpus.manifest import APPENDED, Manifest, is_unfinished
from dslda.exceptions import FormatError, InputError
from dslda.storage.location import METADATA, Location

__all__ = ["clear_leftovers", "has_unfinished"]

GROUP = re.compile(r"\d+-[0-9a-f]{8}")
"""Names of the groups that appending makes."""

logger = logging.getLogger("dslda.output")


def clear_leftovers(location: Location) -> None:
    """Put back a corpus that a killed run was about to replace, and remove what is unfinished.

    Parameters
    ----------
    location : Location
        Of a corpus, which nobody is writing: the caller has locked it.
    """
    for old in location.hidden("old") if location.local else ():  # object stores have no renames
        # between its two renames a run that replaces has nothing in the place
        if not location.holds() and _manifest(old) is not None:
            with contextlib.suppress(OSError):
                os.rmdir(location.url)  # an empty folder
            os.rename(old.url, location.url)
            logger.warning(
                "%s is back: a run that was killed while it replaced it had left it aside", location.url
            )
    unfinished = location.hidden("partial", "old", "probe")
    if has_unfinished(location):
        unfinished.append(location)
    manifest = _manifest(location)
    if manifest is not None:
        named = {group.path for group in manifest.appended}
        folder = location.child(APPENDED)
        # what is called otherwise is not of ours
        groups = [f"{APPENDED}/{entry}" for entry in folder.entries() if GROUP.fullmatch(entry)]
        unfinished += [location.child(group) for group in groups if group not in named]
        for place in (location, folder):
            unfinished += [place.child(entry) for entry in place.entries() if _is_temporary(entry)]
    for left in unfinished:
        logger.info("removing %s, left by a run that was killed", left.url)
        left.remove()


def has_unfinished(location: Location) -> bool:
    """True where an object store holds a corpus that a killed run never completed."""
    try:
        return not location.local and is_unfinished(location.read_attributes())
    except (InputError, FormatError):
        return False


def _manifest(location: Location) -> Manifest | None:
    try:
        return Manifest.from_json(location.read_attributes(), location.url)
    except (InputError, FormatError):
        return None


def _is_temporary(entry: str) -> bool:
    """True for metadata that a killed run was writing, through us or zarr."""
    return entry.startswith((f".{METADATA}.", "zarr.")) and entry.endswith(".partial")
