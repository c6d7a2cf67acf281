"""Where labkit keeps what belongs to its user: the run log, and how far the exercises are."""

import os
from pathlib import Path

from labkit.errors import InputRefused


def home() -> Path:
    """The folder: ``LABKIT_HOME``, else ``labkit`` in ``XDG_DATA_HOME``, else in ``~/.local/share``.

    It may not be there yet. XDG Base Directory Specification, section 3. Refused: a user without a home.
    """
    if own := os.environ.get("LABKIT_HOME"):
        return Path(own)
    if data := os.environ.get("XDG_DATA_HOME"):
        return Path(data) / "labkit"
    try:
        return Path.home() / ".local" / "share" / "labkit"
    except RuntimeError:
        raise InputRefused("this user has no home folder; set LABKIT_HOME to a folder for labkit") from None
