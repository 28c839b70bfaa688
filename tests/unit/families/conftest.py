"""The helpers of tests/reference are imported by name: problems with classes."""

from __future__ import annotations

import sys
from pathlib import Path

REFERENCE = str(Path(__file__).resolve().parents[2] / "reference")
if REFERENCE not in sys.path:
    sys.path.append(REFERENCE)
