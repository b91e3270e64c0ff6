"""The page of a package index: README.md, whose links to files of the repository are made absolute."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)(\[[^\]]*\])\((?![a-z]+:|#)([^)\s]+)\)")


def readme(text: str, repository: str) -> str:
    """The text with ``[Writers](docs/writers.md)`` as a link to the repository."""
    repository = repository.rstrip("/")
    return _LINK.sub(
        lambda found: f"{found[1]}{found[2]}({repository}/{'raw' if found[1] else 'blob'}/main/{found[3]})",
        text,
    )


class ReadmeHook(MetadataHookInterface):  # type: ignore[misc]
    """Called by hatchling when it builds a distribution or an editable installation."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the field that ``pyproject.toml`` calls dynamic."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": readme(text, metadata["urls"]["Repository"]),
        }
