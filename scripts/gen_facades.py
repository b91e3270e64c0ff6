#!/usr/bin/env python3
"""Generate the blocking and asyncio facades from the async classes; ``--check`` compares without writing.

The generator starts at ``PravegaClient`` and follows the return types of its methods to find the classes. It
reads methods, signatures and docstrings from their source. The hand-written part of each facade is its
``bases.py``, which describes how the two fit together.

Docstrings are copied with three changes. In the blocking facade the prose loses its async words
(``BLOCKING_WORDS``), and the paragraph that begins with "If this call is cancelled" describes the time limit.
In both facades the code of literal blocks (``Example::``) is rewritten to run on that facade
(``CODE_WORDS``).
"""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from pravega_wire._public import home_of  # noqa: E402
from pravega_wire.stream.opening import Opening  # noqa: E402

ENTRANCE = "pravega_wire.stream.client"
COMMAND = "scripts/gen_facades.py"

TIMEOUT = "the longest time that this call may take, in seconds."
READ_BY_CALLER = {"pravega_wire.stream.key_value_table", "pravega_wire.stream.synchronizer"}
"""Modules that read the user's iterables in the caller's thread, item by item as they serialize them."""

CANCELLED = re.compile(r"\n\nIf this call is cancelled(.+?)(?=\n\n|\Z)", re.DOTALL)
"""The paragraph about the state after that. The blocking methods say it of their time limit."""

FACADES = {
    "sync": "The blocking client: the async classes, called from ordinary threads.",
    "aio": "The asyncio client: the async classes, called from an asyncio event loop.",
}

PACKAGES = {
    "sync": """The blocking version of :mod:`pravega_wire`: the same names, without ``await``.

``with pravega_wire.sync.open_client(config) as client:`` runs the async client in one background thread and
forwards calls to it, so both behave the same. Several threads may share a client. A client cannot be pickled
or used in a forked process: send the :class:`PravegaConfig` there and open another client.

Methods that wait take a ``timeout`` in seconds. After it the call is cancelled and raises
:class:`PravegaTimeoutError`; where the state after that is not obvious, the method says so. None, the
default, sets no limit beside the configuration's ``operation_timeout``.
""",
    "aio": """The asyncio version of :mod:`pravega_wire`: the same names, awaited in an asyncio event loop.

``async with pravega_wire.aio.open_client(config) as client:`` runs the async client in one background thread
and forwards calls to it, so both behave the same. Use a client only in the event loop that opened it.
""",
}
"""The docstrings of the packages."""

IMPORTS = (
    "from collections.abc import AsyncGenerator, Generator",
    "from functools import partial",
    "from typing import Any, Generic, Self, TypeVar, cast, overload",
    "from pravega_wire.stream.opening import opening",
)
"""What generated code may use; what it does not use is left out in the end."""

MORE = {
    "sync": {
        "DirectReader": "pravega_wire.sync.direct",
        "SchemaRegistry": "pravega_wire.schemas.blocking",
        "TableMapping": "pravega_wire.sync.table_mapping",
    },
    "aio": {},
}
"""Names that only one of the packages has."""


# --- the async classes ----------------------------------------------------------------------------


@dataclass
class Method:
    """A public method or property, as written in the source.

    :ivar nodes: its overloads, followed by the definition.
    """

    name: str
    nodes: list[ast.FunctionDef | ast.AsyncFunctionDef]
    module: ModuleType

    @property
    def node(self) -> ast.FunctionDef | ast.AsyncFunctionDef:
        return self.nodes[-1]

    @property
    def doc(self) -> str:
        return ast.get_docstring(self.node) or ""

    @property
    def is_property(self) -> bool:
        return "property" in decorators(self.node)

    @property
    def is_generator(self) -> bool:
        return isinstance(self.node, ast.AsyncFunctionDef) and any(
            isinstance(each, ast.Yield) for each in own_nodes(self.node)
        )

    @property
    def is_coroutine(self) -> bool:
        return isinstance(self.node, ast.AsyncFunctionDef) and not self.is_generator

    @property
    def arguments(self) -> list[ast.arg]:
        found = self.node.args
        return [*found.posonlyargs, *found.args, *found.kwonlyargs][1:]

    @property
    def is_opening(self) -> bool:
        """Whether its calls can be entered as well as awaited."""
        return "opening" in decorators(self.node)

    @property
    def has_timeout(self) -> bool:
        return any(each.arg == "timeout" for each in self.arguments)


@dataclass
class Attribute:
    """A public attribute that ``__init__`` sets and the class's docstring describes."""

    name: str
    type: ast.expr
    doc: str
    module: ModuleType


@dataclass
class Handle:
    """An async class that has a counterpart in both facades."""

    cls: type
    node: ast.ClassDef
    module: ModuleType
    methods: list[Method] = field(default_factory=list)
    attributes: list[Attribute] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.cls.__name__

    @property
    def parameters(self) -> list[str]:
        """Its type variables."""
        return [each.__name__ for each in getattr(self.cls, "__parameters__", ())]

    def has(self, name: str) -> bool:
        return hasattr(self.cls, name)


def decorators(node: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    return {ast.unparse(each) for each in node.decorator_list}


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function, without those of nested functions."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from own_nodes(child)


class Source:
    """The modules that the classes are read from."""

    def __init__(self) -> None:
        self._trees: dict[str, ast.Module] = {}

    def tree(self, module: ModuleType) -> ast.Module:
        if module.__name__ not in self._trees:
            self._trees[module.__name__] = ast.parse(inspect.getsource(module))
        return self._trees[module.__name__]

    def class_node(self, cls: type) -> ast.ClassDef:
        for node in self.tree(sys.modules[home_of(cls)]).body:
            if isinstance(node, ast.ClassDef) and node.name == cls.__name__:
                return node
        raise LookupError(cls)

    def origin(self, module: ModuleType, name: str) -> str | None:
        """The statement that defines a name in a module, as another module would import it."""
        for node in ast.walk(self.tree(module)):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        renamed = f" as {alias.asname}" if alias.asname else ""
                        return f"from {node.module} import {alias.name}{renamed}"
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        return f"import {alias.name}"
        for node in self.tree(module).body:
            targets: list[ast.expr] = []
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
                return f"from {module.__name__} import {name}"
            if isinstance(node, ast.Assign):
                targets = node.targets
            elif isinstance(node, ast.AnnAssign):
                targets = [node.target]
            if any(isinstance(each, ast.Name) and each.id == name for each in targets):
                value = node.value  # type: ignore[attr-defined]  # both have one
                if isinstance(value, ast.Call) and ast.unparse(value.func) == "TypeVar":
                    return f"{name} = {ast.unparse(value)}"
                return f"from {module.__name__} import {name}"
        return None


def is_handle(value: object) -> bool:
    """Whether objects of this class have methods that must be awaited."""
    if not inspect.isclass(value) or not home_of(value).startswith("pravega_wire."):
        return False
    if value is Opening:
        return False
    return any(
        inspect.iscoroutinefunction(each) or name in ("__aiter__", "__aenter__")
        for name, each in inspect.getmembers(value)
        if not name.startswith("_") or name in ("__aiter__", "__aenter__")
    )


def names_in(node: ast.AST) -> Iterator[str]:
    """The names in an expression. Annotations may be strings."""
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            yield each.id
        elif isinstance(each, ast.Constant) and isinstance(each.value, str):
            try:
                yield from names_in(ast.parse(each.value, mode="eval"))
            except SyntaxError:
                pass


def ivars(doc: str) -> dict[str, str]:
    """The attributes that a class's docstring describes."""
    found = re.findall(r":ivar (\w+): (.*?)(?=:ivar |:param |\n\s*\n|\Z)", doc, re.DOTALL)
    return {name: " ".join(text.split()) for name, text in found}


class Classes:
    """The async classes that have counterparts in the facades, base classes first."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.handles: dict[type, Handle] = {}
        entrance = import_module(ENTRANCE)
        self._add(entrance.PravegaClient)

    def _add(self, cls: type) -> None:
        if cls in self.handles:
            return
        module = sys.modules[home_of(cls)]
        handle = Handle(cls, self.source.class_node(cls), module)
        for base in cls.__bases__:
            if home_of(base).startswith("pravega_wire.") and self._public_base(base):
                self._add(base)
        self.handles[cls] = handle
        self._read(handle)
        for method in handle.methods:
            for node in method.nodes:
                if node.returns is not None:
                    for name in names_in(node.returns):
                        value = getattr(method.module, name, None)
                        if is_handle(value):
                            self._add(value)  # type: ignore[arg-type]  # a class

    def _public_base(self, base: type) -> bool:
        # Promise, the part of an acknowledgement without I/O, has no counterpart.
        return not base.__name__.startswith("_") and base.__name__ != "Promise"

    def base(self, handle: Handle) -> Handle | None:
        """The nearest base class that has a counterpart."""
        for cls in handle.cls.__mro__[1:]:
            if cls in self.handles:
                return self.handles[cls]
        for cls in handle.cls.__mro__[1:]:
            if home_of(cls).startswith("pravega_wire.") and self._public_base(cls):
                self._add(cls)
                return self.handles[cls]
        return None

    def _read(self, handle: Handle) -> None:
        inherited = self.base(handle)
        layers = [handle.cls]
        for cls in handle.cls.__mro__[1:]:
            if inherited is not None and cls is inherited.cls:
                break
            if home_of(cls).startswith("pravega_wire."):
                layers.append(cls)
        methods: dict[str, Method] = {}
        for cls in layers:
            module = sys.modules[home_of(cls)]
            found: dict[str, Method] = {}
            node = self.source.class_node(cls)
            for each in node.body:
                if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                    continue
                if each.name.startswith("_") or "classmethod" in decorators(each):
                    continue
                found.setdefault(each.name, Method(each.name, [], module)).nodes.append(each)
            for name, method in found.items():
                methods.setdefault(name, method)
            self._read_attributes(handle, cls, node, module, methods)
        handle.methods = [
            each
            for each in methods.values()
            if not (each.name == "close" and "aclose" in methods and "aclose" in each.doc)
        ]

    def _read_attributes(
        self, handle: Handle, cls: type, node: ast.ClassDef, module: ModuleType, methods: dict[str, Method]
    ) -> None:
        described = ivars(inspect.getdoc(cls) or "")
        init = next(
            (each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"),
            None,
        )
        if init is None:
            return
        arguments = {each.arg: each.annotation for each in [*init.args.args, *init.args.kwonlyargs]}
        for each in ast.walk(init):
            kind: ast.expr | None = None
            if isinstance(each, ast.AnnAssign):
                target, kind = each.target, each.annotation
            elif isinstance(each, ast.Assign):
                target = each.targets[0]
                if isinstance(each.value, ast.Name):
                    kind = arguments.get(each.value.id)
                elif isinstance(each.value, ast.Constant):
                    kind = ast.Name(type(each.value.value).__name__)
            else:
                continue
            if not (isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self"):
                continue
            name = target.attr
            if name in methods or name not in described:
                continue
            if kind is None:
                raise SystemExit(
                    f"{cls.__qualname__}.{name} has an :ivar field but no type: annotate it in __init__"
                )
            if all(name != known.name for known in handle.attributes):
                handle.attributes.append(Attribute(name, kind, described[name], module))


# --- the hand-written part ------------------------------------------------------------------------


class ByHand:
    """The hand-written module ``bases`` of a facade."""

    def __init__(self, facade: str) -> None:
        self.name = f"pravega_wire.{facade}.bases"
        self.tree = ast.parse((ROOT / "pravega_wire" / facade / "bases.py").read_text())
        shared = ast.parse((ROOT / "pravega_wire" / "threads" / "outbox.py").read_text())
        self.classes = {
            each.name: each for each in (*shared.body, *self.tree.body) if isinstance(each, ast.ClassDef)
        }
        self.imported = {
            alias.asname or alias.name
            for each in self.tree.body
            if isinstance(each, ast.ImportFrom)
            for alias in each.names
        }
        exported = next(
            each.value
            for each in self.tree.body
            if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "__all__"
        )
        self.exported: list[str] = ast.literal_eval(exported)

    def is_whole(self, name: str) -> bool:
        """Whether ``bases`` defines the whole public class."""
        return name in self.exported

    def base(self, handle: Handle) -> str:
        if f"{handle.name}Base" in self.classes:
            return f"{handle.name}Base"
        return "Closable" if handle.has("__aenter__") else "Handle"

    def parameters(self, base: str) -> list[str]:
        """The type variables of a base."""
        for each in self.classes[base].bases:
            if isinstance(each, ast.Subscript) and ast.unparse(each.value) == "Generic":
                return list(names_in(each.slice))
        return []

    def hooks(self, base: str, name: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        """The hand-written methods that implement a generated one, the nearest to ``base`` first."""
        cls = self.classes.get(base)
        if cls is None:
            return
        for each in cls.body:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name == f"_{name}":
                yield each
        for above in cls.bases:
            yield from self.hooks(ast.unparse(above).partition("[")[0], name)

    def hook(self, base: str, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """The hand-written method that implements a generated one, or None."""
        return next(self.hooks(base, name), None)

    def note(self, base: str, name: str) -> str:
        """What hand-written code says about a generated method: the docstring nearest to ``base``."""
        said = filter(None, map(ast.get_docstring, self.hooks(base, name)))
        return inspect.cleandoc(next(said, ""))


# --- documentation --------------------------------------------------------------------------------

WIDTH = 110

FIELD = re.compile(r"\s*:\w+( [^:]+)?:(?!`)")
"""Begins a field such as ``:param x:``, not a role such as ``:class:`X` ``."""

CODE_WORDS = {
    "sync": (
        (r"(?m)^ *import trio\n", ""),
        (r"\btrio\.run\((\w+)\)", r"\1()"),
        (r"\basync (with|for|def) ", r"\1 "),
        (r"\bawait ", ""),
        (r"\baclose\b", "close"),
        (r"\bfrom pravega_wire import open_client\b", "from pravega_wire.sync import open_client"),
    ),
    "aio": (
        (r"\bimport trio\b", "import asyncio"),
        (r"\btrio\.run\((\w+)\)", r"asyncio.run(\1())"),
        (r"\btrio\.sleep\b", "asyncio.sleep"),
        (r"\bfrom pravega_wire import open_client\b", "from pravega_wire.aio import open_client"),
    ),
}
"""How the code of an example changes for a facade."""

FOREIGN = {"sync": r"\b(async|await|trio|asyncio)\b", "aio": r"\btrio\b"}
"""Words that may not remain in the code of a facade's examples."""

BLOCKING_WORDS = (
    (r"\basync\s+(with|for|def)\b", r"\1"),
    (r"\bawait\s+", ""),
    (r"\baclose\b", "close"),
    (r"\bAsync\b", "Blocking"),
)


def paragraphs(doc: str) -> Iterator[tuple[bool, list[str]]]:
    """Split a docstring into literal blocks and the text between them, both as lines.

    A literal block follows a line that ends in ``::``. It is indented more than that line and includes the
    blank lines around it.
    """
    lines = doc.splitlines()
    text: list[str] = []
    while lines:
        text.append(lines.pop(0))
        if not text[-1].rstrip().endswith("::"):
            continue
        depth = _depth(text[-1])
        code: list[str] = []
        while lines and (not lines[0].strip() or _depth(lines[0]) > depth):
            code.append(lines.pop(0))
        yield False, text
        yield True, code
        text = []
    if text:
        yield False, text


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def facade_words(doc: str, facade: str) -> str:
    """A docstring of an async class as a facade has it.

    :raises SystemExit: an example has code that cannot be rewritten for the facade.
    """
    found: list[str] = []
    for is_code, lines in paragraphs(doc):
        text = "\n".join(lines)
        if is_code:
            # The line break lets the last line match as the others do.
            text = _replaced(text + "\n", CODE_WORDS[facade]).removesuffix("\n")
            left = re.search(FOREIGN[facade], text)
            if left is not None:
                raise SystemExit(
                    f"an example cannot be rewritten for pravega_wire.{facade}, because of "
                    f"{left.group()!r}:\n{text}"
                )
        elif facade == "sync":
            text = _replaced(text, BLOCKING_WORDS)
        found.append(text)
    return "\n".join(found)


def _replaced(text: str, words: Iterable[tuple[str, str]]) -> str:
    for pattern, replacement in words:
        text = re.sub(pattern, replacement, text)
    return text


def with_notes(doc: str, note: str, timeout: str | None) -> str:
    """Add a paragraph before the examples and fields of a docstring, and the field of a time limit."""
    lines = doc.splitlines()
    first_field = next((i for i, line in enumerate(lines) if FIELD.match(line)), len(lines))
    text, fields = lines[:first_field], lines[first_field:]
    while text and not text[-1].strip():
        text.pop()
    if note:
        example = next((i for i, line in enumerate(text) if line.strip() == "Example::"), len(text))
        before = text[:example]
        while before and not before[-1].strip():
            before.pop()
        after_note = ["", *text[example:]] if example < len(text) else []
        text = [*before, "", *note.splitlines(), *after_note]
    if timeout is not None:
        after = next(
            (i for i, line in enumerate(fields) if re.match(r":(returns|raises)", line)), len(fields)
        )
        fields[after:after] = textwrap.wrap(f":param timeout: {timeout}", 100, subsequent_indent="    ")
    return "\n".join([*text, *(["", *fields] if fields else [])]).strip()


def parts(lines: list[str]) -> Iterator[list[str]]:
    """The paragraphs, fields and list items of a docstring, with each empty line as a part."""
    part: list[str] = []
    for line in lines:
        if part and (
            not line.strip() or not part[0].strip() or (FIELD.match(line) or line.lstrip().startswith("- "))
        ):
            yield part
            part = []
        part.append(line)
    if part:
        yield part


def indented(doc: str, indent: str) -> str:
    """A docstring as source code, with long lines wrapped. Literal blocks are kept as they are."""
    lines: list[str] = []
    divided: list[tuple[bool, list[str]]] = []
    for is_code, group in paragraphs(doc):
        divided += [(True, group)] if is_code else [(False, part) for part in parts(group)]
    for is_code, part in divided:
        if is_code:
            lines += part
            continue
        if max(map(len, part)) + len(indent) <= WIDTH and len(indent) + len(part[0]) + 3 <= WIDTH:
            lines += part
            continue
        begin = part[0][: len(part[0]) - len(part[0].lstrip())]
        more = begin + ("    " if FIELD.match(part[0]) else "  " if part[0].startswith("- ") else "")
        # Inline code stays on one line: "\0" is a space where no line may end.
        text = re.sub(
            r"``.*?``", lambda code: code.group().replace(" ", "\0"), " ".join(map(str.strip, part))
        )
        wrapped = textwrap.wrap(
            text,
            WIDTH - len(indent) - (0 if lines else 3),
            initial_indent=begin,
            subsequent_indent=more,
            break_on_hyphens=False,
            break_long_words=False,
        )
        lines += [line.replace("\0", " ") for line in wrapped]
    raw = "r" if "\\" in doc else ""
    if len(lines) == 1:
        return f'{indent}{raw}"""{lines[0]}"""'
    body = "\n".join(indent + line if line.strip() else "" for line in lines)
    return f'{indent}{raw}"""{body.lstrip()}\n{indent}"""'


# --- writing --------------------------------------------------------------------------------------


class Facade:
    """One generated module.

    :param name: ``sync`` or ``aio``.
    """

    def __init__(self, name: str, classes: Classes) -> None:
        self.name = name
        self.blocking = name == "sync"
        self.classes = classes
        self.by_hand = ByHand(name)
        self.imports: dict[str, str] = {}
        self.variables: dict[str, str] = {}
        self.used: set[str] = set()
        self.handle_names = {each.cls.__name__ for each in classes.handles.values()}

    # --- names ----------------------------------------------------------------------------------

    def need(self, name: str, module: ModuleType) -> None:
        """Import a name that a signature uses."""
        if name in self.handle_names or name in dir(__builtins__) or name == "Self":
            if name in self.handle_names and self.by_hand.is_whole(name):
                self.used.add(name)
            return
        statement = self.classes.source.origin(module, name)
        if statement is None:
            return
        table = self.variables if statement.startswith(f"{name} = ") else self.imports
        if table.setdefault(name, statement) != statement:
            raise SystemExit(f"{name} has two meanings: {table[name]!r} and {statement!r}")

    def text(self, node: ast.expr, module: ModuleType) -> str:
        """An expression of a signature, as this module writes it."""
        for name in names_in(node):
            self.need(name, module)
        return ast.unparse(node)

    def use(self, name: str) -> str:
        """Import something from the hand-written module."""
        self.used.add(name)
        return name

    # --- results --------------------------------------------------------------------------------

    def result(self, method: Method, node: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[str, str, str]:
        """Describe what a method returns.

        :returns: its type in this facade; the name of the handle class it returns, or ``""``; and ``"items"``
            if it is iterated over, ``"plain"`` otherwise.
        """
        assert node.returns is not None, method.name
        returns = node.returns
        module = method.module
        if isinstance(returns, ast.Constant) and isinstance(returns.value, str):
            returns = ast.parse(returns.value, mode="eval").body
        if method.is_generator:
            assert isinstance(returns, ast.Subscript)
            item = returns.slice.elts[0] if isinstance(returns.slice, ast.Tuple) else returns.slice
            text = self.text(item, module)
            if self.blocking:
                return f"Generator[{text}, None, None]", "", "items"
            return f"AsyncGenerator[{text}, None]", "", "items"
        first = returns
        while isinstance(first, ast.BinOp):
            first = first.left
        if isinstance(first, ast.Subscript):
            first = first.value
        if isinstance(first, ast.Name) and first.id in self.handle_names:
            return self.text(returns, module), first.id, "plain"
        return self.text(returns, module), "", "plain"

    # --- signatures -----------------------------------------------------------------------------

    def signature(
        self, method: Method, node: ast.FunctionDef | ast.AsyncFunctionDef, *, timeout: bool
    ) -> str:
        found = node.args
        parts: list[str] = []
        positional = [*found.posonlyargs, *found.args]
        defaults = [None] * (len(positional) - len(found.defaults)) + list(found.defaults)

        def one(argument: ast.arg, default: ast.expr | None) -> str:
            text = argument.arg
            if argument.annotation is not None:
                text += f": {self.text(argument.annotation, method.module)}"
            if default is not None:
                text += f" = {self.text(default, method.module)}"
            return text

        for index, (argument, default) in enumerate(zip(positional, defaults, strict=True)):
            parts.append(one(argument, default))
            if found.posonlyargs and index == len(found.posonlyargs) - 1:
                parts.append("/")
        keywords = [one(*pair) for pair in zip(found.kwonlyargs, found.kw_defaults, strict=True)]
        if timeout:
            keywords.append("timeout: float | None = None")
        if keywords:
            parts += ["*", *keywords]
        return ", ".join(parts)

    def passed(self, method: Method, *, raw: bool) -> list[str]:
        """The arguments, as they are passed on. Iterables of the user are read first, unless ``raw``."""
        found = method.node.args
        raw = raw or method.module.__name__ in READ_BY_CALLER

        def given(argument: ast.arg) -> str:
            kind = "" if argument.annotation is None else ast.unparse(argument.annotation)
            if not raw and re.search(r"\bIterable\[", kind) and "Callable" not in kind:
                return f"{self.use('listed')}({argument.arg})"
            return argument.arg

        return [
            *(given(each) for each in [*found.posonlyargs, *found.args][1:]),
            *(f"{each.arg}={given(each)}" for each in found.kwonlyargs),
        ]

    # --- bodies ---------------------------------------------------------------------------------

    def doc(self, method: Method, note: str, *, timeout: bool) -> str:
        doc = method.doc
        said, _, limit = note.partition(":param timeout:")
        limit = " ".join(limit.split())
        if timeout:
            cancelled = CANCELLED.search(doc)
            if cancelled is not None:
                doc = doc.replace(cancelled[0], "")
                limit = limit or f"seconds. If the limit is reached{cancelled[1]}"
            limit = facade_words(limit or TIMEOUT, self.name)
        return with_notes(facade_words(doc, self.name), said.strip(), limit or None)

    def public_name(self, name: str) -> str:
        return "close" if self.blocking and name == "aclose" else name

    def method(self, handle: Handle, method: Method) -> str:
        name = self.public_name(method.name)
        base = self.by_hand.base(handle)
        hook = self.by_hand.hook(base, name)
        timeout = self.blocking and method.is_coroutine and not method.has_timeout
        doc = self.doc(method, self.by_hand.note(base, name), timeout=timeout)
        if hook is None:
            statement = self.call_of_twin(method, timeout=timeout)
        else:
            statement = self.call_of_hook(method, name, hook, timeout=timeout)
        lines = [*self.heads(method, name, timeout=timeout), indented(doc, " " * 8), f"        {statement}"]
        return "\n".join(lines)

    def heads(self, method: Method, name: str, *, timeout: bool) -> Iterator[str]:
        """The lines before the docstring: decorators and signature, first those of the overloads."""
        begin = "async def" if method.is_coroutine and not self.blocking else "def"
        for node in method.nodes:
            is_overload = node is not method.node
            if is_overload:
                yield "    @overload"
            if method.is_opening and not self.blocking:
                yield "    @opening"
            if method.is_property:
                yield "    @property"
            returns, _, _ = self.result(method, node)
            signature = self.signature(method, node, timeout=timeout)
            yield f"    {begin} {name}({signature}) -> {returns}:{' ...' if is_overload else ''}"

    def call_of_hook(
        self, method: Method, name: str, hook: ast.FunctionDef | ast.AsyncFunctionDef, *, timeout: bool
    ) -> str:
        """The statement that calls the hand-written method."""
        _, cls, how = self.result(method, method.node)
        call = f"self._{name}"
        if not method.is_property:
            arguments = self.passed(method, raw=True) + (["timeout=timeout"] if timeout else [])
            call += f"({', '.join(arguments)})"
        if isinstance(hook, ast.AsyncFunctionDef) and how != "items":
            call = f"await {call}"
        if cls and hook.returns is not None and ast.unparse(hook.returns).startswith("tuple["):
            return f"return {cls}(self._portal, *({call}))"
        return f"return {call}"

    def call_of_twin(self, method: Method, *, timeout: bool) -> str:
        """The statement that calls the method of the async object."""
        annotation, cls, how = self.result(method, method.node)
        value = f"self._twin.{method.name}"
        if method.is_coroutine:
            value = self.crossing(method, value, timeout=timeout)
        elif not method.is_property:
            value += f"({', '.join(self.passed(method, raw=False))})"
        if how == "items":
            return f"return {self.use('blocking' if self.blocking else 'crossing')}(self._portal, {value})"
        if cls:
            return f"return {cls}(self._portal, {value})"
        return value if annotation == "None" else f"return {value}"

    def crossing(self, method: Method, twin: str, *, timeout: bool) -> str:
        """The expression that calls a coroutine function in the client's thread."""
        if len(method.nodes) > 1:
            twin = f'cast("Any", {twin})'
        given = [twin, *self.passed(method, raw=False)]
        if method.has_timeout:
            given = [f"partial({', '.join(given)})"]
        if self.blocking:
            given.insert(0, "timeout" if timeout else "None")
        how = "_end" if self.public_name(method.name) in ("close", "aclose") else "_call"
        return f"{'' if self.blocking else 'await '}self.{how}({', '.join(given)})"

    def attribute(self, handle: Handle, attribute: Attribute) -> str:
        doc = attribute.doc[:1].upper() + attribute.doc[1:]
        if not doc.endswith("."):
            doc += "."
        doc = facade_words(doc, self.name)
        hook = self.by_hand.hook(self.by_hand.base(handle), attribute.name)
        source = f"self._{attribute.name}" if hook is not None else f"self._twin.{attribute.name}"
        return "\n".join(
            [
                "    @property",
                f"    def {attribute.name}(self) -> {self.text(attribute.type, attribute.module)}:",
                indented(doc, " " * 8),
                f"        return {source}",
            ]
        )

    # --- classes --------------------------------------------------------------------------------

    def twin_type(self, handle: Handle, *, values_by_hand: bool) -> str:
        """The async class behind a handle."""
        alias = f"Async{handle.name}"
        self.imports[alias] = f"from {home_of(handle.cls)} import {handle.name} as {alias}"
        parameters = ["bytes"] if values_by_hand else handle.parameters
        return alias + (f"[{', '.join(parameters)}]" if parameters else "")

    def class_text(self, handle: Handle) -> str:
        base = self.by_hand.base(handle)
        own_base = f"{handle.name}Base" in self.by_hand.classes
        inherited = self.classes.base(handle)
        parameters = handle.parameters
        for each in parameters:
            self.need(each, handle.module)
        bases: list[str] = []
        if inherited is not None:
            # A writer without a type variable writes bytes.
            given = parameters or ["bytes"] * len(inherited.parameters)
            bases.append(inherited.name + (f"[{', '.join(given)}]" if inherited.parameters else ""))
        if inherited is None or own_base:
            of_base = self.by_hand.parameters(base)
            bases.append(self.use(base) + (f"[{', '.join(of_base)}]" if of_base else ""))
        if parameters and not any("[" in each for each in bases):
            bases.append(f"Generic[{', '.join(parameters)}]")
        doc = inspect.getdoc(handle.cls) or ""
        # Attributes are properties here, with docstrings of their own.
        doc = re.sub(r"^:ivar \w+:.*\n?(?:[ \t]+\S.*\n?)*", "", doc, flags=re.MULTILINE).strip()
        doc = facade_words(doc, self.name)
        body = [
            *(self.attribute(handle, each) for each in handle.attributes),
            *(self.method(handle, each) for each in handle.methods),
        ]
        header = [f"class {handle.name}({', '.join(bases)}):", indented(doc, "    ")]
        header.append(f"\n    _twin: {self.twin_type(handle, values_by_hand=self._values_by_hand(base))}")
        return "\n".join(header) + "\n\n" + "\n\n".join(body)

    def _values_by_hand(self, base: str) -> bool:
        """Whether the base class converts values itself, so that its async object handles bytes."""
        cls = self.by_hand.classes[base]
        return any(
            isinstance(each, ast.FunctionDef)
            and each.name == "__init__"
            and any(argument.arg == "serializer" for argument in each.args.args)
            for each in cls.body
        )

    def entrance(self) -> str:
        """The function that opens a client."""
        module = import_module(ENTRANCE)
        node = next(
            each
            for each in self.classes.source.tree(module).body
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name == "open_client"
        )
        method = Method("open_client", [node], module)
        found = node.args
        given = [
            *(each.arg for each in [*found.posonlyargs, *found.args]),
            *(f"{each.arg}={each.arg}" for each in found.kwonlyargs),
        ]
        # The facade runs trio itself, so this error cannot happen.
        doc, removed = re.subn(
            r"\n:raises InvalidArgumentError: called outside trio.*?(?=\n:|\Z)",
            "",
            method.doc,
            flags=re.DOTALL,
        )
        if removed != 1:
            raise SystemExit("open_client documents its error outside trio differently: change the pattern")
        doc = facade_words(doc, self.name)
        signature = self.signature(method, node, timeout=False)
        opened = self.use("opened_client")
        if self.blocking:
            note = (
                "The client runs in a thread of its own, which also calls the observer. Instead of entering "
                "the client, you can call its :meth:`~PravegaClient.close`."
            )
            lines = [f"def open_client({signature}) -> PravegaClient:"]
        else:
            note = (
                "The client runs in a thread of its own, which also calls the observer. Instead of entering "
                "it, you can open it by ``client = await open_client(...)`` and call its "
                ":meth:`~PravegaClient.aclose`."
            )
            lines = ["@opening", f"async def open_client({signature}) -> PravegaClient:"]
        call = f"{opened}({', '.join(given)})"
        lines += [
            indented(with_notes(doc, note, None), "    "),
            f"    return PravegaClient({call if self.blocking else '*await ' + call})",
        ]
        return "\n".join(lines)

    def exports(self) -> list[str]:
        public = set(import_module("pravega_wire").__all__)
        return sorted({"open_client"} | {each.name for each in self.classes.handles.values()} & public)

    def render(self) -> str:
        texts = [self.entrance()]
        for handle in self.classes.handles.values():
            if self.by_hand.is_whole(handle.name):
                self.use(handle.name)
            else:
                texts.append(self.class_text(handle))
        modules = sorted({home_of(each.cls) for each in self.classes.handles.values()})
        imports = sorted(set(self.imports.values()))
        imports.append(f"from {self.by_hand.name} import {', '.join(sorted(self.used))}")
        head = [
            f'"""{FACADES[self.name]}',
            "",
            f"Generated by ``{COMMAND}`` from {', '.join(f'``{each}``' for each in modules)}",
            f"and ``{self.by_hand.name}``. Do not edit it: run ``python {COMMAND}``.",
            '"""',
            "",
            "from __future__ import annotations",
            "",
            *imports,
            *IMPORTS,
            "",
            f"__all__ = {self.exports()!r}",
            "",
            *(
                each + ("  # noqa: E741" if each.startswith("I = ") else "")
                for each in sorted(self.variables.values())
            ),
            "",
            "",
        ]
        head[2:4] = textwrap.wrap(
            head[2] + " " + head[3], WIDTH, break_on_hyphens=False, break_long_words=False
        )
        return formatted("\n".join(head) + "\n\n\n".join(texts) + "\n", f"pravega_wire/{self.name}/client.py")


def package(name: str, exports: list[str]) -> str:
    """The ``__init__`` of a facade."""
    more: dict[str, str] = MORE[name]
    lines = [
        f'"""{PACKAGES[name]}"""',
        "",
        f"# Generated by {COMMAND}. Do not edit it.",
        "from pravega_wire import _public",
        f"from pravega_wire.{name}.client import {', '.join(exports)}",
        *(f"from {module} import {each}" for each, module in more.items()),
        "",
        f"__all__ = {sorted([*exports, *more])!r}",
        "",
        "_public.publish(__name__, __all__)",
    ]
    return formatted("\n".join(lines) + "\n", f"pravega_wire/{name}/__init__.py")


def formatted(text: str, path: str) -> str:
    """The text as ruff formats it."""
    fix = ["check", "--quiet", "--fix", "--select"]
    # A package exports what it imports.
    unused = [] if path.endswith("__init__.py") else [[*fix, "F401"]]
    for command in (*unused, [*fix, "I"], ["format", "--quiet"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", path, "-"],
            input=text,
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=False,
        )
        if done.returncode != 0 and not done.stdout:
            raise SystemExit(f"{path}: {done.stderr}")
        text = done.stdout
    return text


def render() -> dict[Path, str]:
    """Every generated file."""
    classes = Classes(Source())
    files: dict[Path, str] = {}
    for name in FACADES:
        if not (ROOT / "pravega_wire" / name / "bases.py").exists():
            continue
        facade = Facade(name, classes)
        files[ROOT / "pravega_wire" / name / "client.py"] = facade.render()
        files[ROOT / "pravega_wire" / name / "__init__.py"] = package(name, facade.exports())
    return files


def main() -> int:
    out_of_date = []
    for path, wanted in render().items():
        if "--check" not in sys.argv[1:]:
            path.write_text(wanted)
        elif not path.exists() or path.read_text() != wanted:
            out_of_date.append(str(path.relative_to(ROOT)))
    if out_of_date:
        print(f"{', '.join(out_of_date)}: out of date; run {COMMAND}", file=sys.stderr)
        return 1
    if "--check" in sys.argv[1:]:
        print("the facades are up to date")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
