"""The error hierarchy: one root, typed fields, picklable (Spark ships them from workers)."""

from __future__ import annotations

import inspect
import pickle

import pytest

from pravega_wire import errors

CLASSES = [
    value
    for _, value in inspect.getmembers(errors, inspect.isclass)
    if issubclass(value, BaseException) and value.__module__ == errors.__name__
]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_error(cls: type[errors.PravegaError]) -> None:
    assert issubclass(cls, errors.PravegaError)
    assert isinstance(cls.retriable, bool)
    assert cls.__doc__
    error = cls("what happened", segment="s/t/0.#epoch.0", host="h:1")
    assert str(error) == error.message == "what happened"
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is cls
    assert (copy.message, copy.segment, copy.host) == ("what happened", "s/t/0.#epoch.0", "h:1")


def test_there_are_errors_to_test() -> None:
    assert len(CLASSES) > 40
