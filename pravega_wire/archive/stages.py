"""The points of the algorithms, for progress and for tests that end the process there.

Not public.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TypeAlias

__all__ = ["Observer", "Stage", "nothing"]


class Stage(Enum):
    """The points of archiving and restoring, in order. The values describe what has been done."""

    PLANNED = "the manifest says what will be archived, and there is no file"
    WRITING = "a temporary file has some events"
    WRITTEN = "a temporary file is whole"
    RENAMED = "the file has its name, and the manifest does not mention it"
    RECORDED = "the manifest says that the file is whole"
    COLLECTED = (
        "the files that Spark's tasks wrote are with the others, and the manifest does not mention them"
    )
    COMPLETE = "the manifest says that the archive is complete"

    OPENED = "the stream to restore into exists"
    SCALED = "the stream has the segments of an epoch, and none of its events"
    RESTORING = "some events of an epoch are on their way"
    STORED = "all events of an epoch are stored, and no segment records that"
    RESTORED = "the segments record that all events of an epoch are stored"


Observer: TypeAlias = Callable[[Stage, str], object]
"""Called at each point, with the name of the file or the epoch that it is about; it must not wait."""


def nothing(stage: Stage, about: str) -> None:
    """The observer that does nothing."""
