"""Defects that are planted into the product, to see that the simulation finds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Final

__all__ = ["TEETH", "Tooth", "planted", "tooth"]


@dataclass(frozen=True)
class Tooth:
    """A defect.

    :ivar workloads: the workloads that can find it.
    :ivar plant: plants it for the time of a block.
    """

    workloads: tuple[str, ...]
    plant: Callable[[], AbstractContextManager[None]]


TEETH: Final[dict[str, Tooth]] = {}


def tooth(
    name: str, workloads: tuple[str, ...]
) -> Callable[[Callable[[], Iterator[None]]], Callable[[], AbstractContextManager[None]]]:
    """Make a defect of a function that plants it, yields, and takes it away."""

    def add(plant: Callable[[], Iterator[None]]) -> Callable[[], AbstractContextManager[None]]:
        made = contextmanager(plant)
        TEETH[name] = Tooth(workloads, made)
        return made

    return add


def planted(name: str | None) -> AbstractContextManager[None]:
    """Plant a defect for the time of a block; nothing if there is no name."""
    return nullcontext() if name is None else TEETH[name].plant()
