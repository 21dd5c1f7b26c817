"""Reads a pickle as plain values: nothing that it names is imported, and nothing is called.

The opcodes are those of the standard library's ``pickletools``. Dictionaries, lists and texts
become themselves; an object of any class becomes a `Standin`, which holds what the pickle gave it.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, BinaryIO, cast

_MAX_STEPS = 5_000_000
_LONGEST = 1 << 26  # bytes of one text or number in a pickle
_STEPS_OF_PAIR = 10
_LARGEST_PLACE = 1 << 32  # in the memo
_PUSHED = frozenset(
    (
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
        *("BYTEARRAY8", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
    )
)
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list,
    "EMPTY_SET": list,  # a list: nothing is hashed but the texts of dictionaries
    "EMPTY_DICT": dict,
}
_BUILTINS = ("builtins", "__builtin__")
_DICTS = frozenset(
    f"{module}.{name}"
    for module in ("collections", *_BUILTINS)
    for name in ("OrderedDict", "defaultdict", "Counter", "dict")
)
_SEQUENCES = {
    f"{module}.{name}" for module in _BUILTINS for name in ("set", "frozenset", "list", "tuple")
} | {"torch.Size", "torch._C.Size"}
_RUNS = frozenset(
    (
        *("os", "posix", "nt", "subprocess", "commands", "sys", "runpy", "importlib", "pty"),
        *("ctypes", "socket", "shutil", "code", "webbrowser"),
    )
)
"""Modules whose functions no checkpoint calls, unless it was made to run something."""
_RUNS_TOO = frozenset(
    f"{module}.{name}"
    for module in _BUILTINS
    for name in ("eval", "exec", "execfile", "compile", "__import__", "open", "input", "breakpoint")
)


class LimitError(ValueError):
    """A file is whole, but larger or older than nystra reads; the text completes "it"."""


class RunsCodeError(ValueError):
    """A pickle calls a function that runs code; its text is the name of the function."""


@dataclass(frozen=True)
class Named:
    """A class or function that a pickle names, ``module.name``."""

    name: str


@dataclass(eq=False)
class Standin:
    """An object of a pickle that was not built.

    Attributes:
        name: Its class, or the function that would have returned it.
        arguments: Of that call.
        entries: Its entries with texts as keys, if the pickle fills it as a dictionary.
        state: Its attributes, as the pickle states them.
    """

    name: str
    arguments: tuple[Any, ...] = ()
    entries: dict[str, Any] = field(default_factory=dict)
    state: Any = None


class _Limited:
    """A file for ``pickletools`` that never reads more at once than any checkpoint needs."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file

    def read(self, count: int) -> bytes:
        return self.file.read(min(count, _LONGEST))

    def readline(self) -> bytes:
        return self.file.readline(_LONGEST)


def read_pickle(
    file: BinaryIO,
    rebuild: Callable[[str, tuple[Any, ...]], Any] = lambda _name, _arguments: None,
    persistent: Callable[[Any], Any] = lambda _: None,
) -> Any:
    """Return the value of a pickle; the file is left behind its end.

    Args:
        file: The file, at the beginning of the pickle.
        rebuild: Returns the value of a call (name, arguments), or None for a `Standin`.
        persistent: Returns the value of a persistent identifier.

    Raises:
        RunsCodeError: It calls a function that runs code.
        LimitError: It has too many steps.
        ValueError: It is not a pickle, or is truncated.
        IndexError: It takes what is not on its stack.
        KeyError: It refers to a place of its memo that was not filled.
        UnicodeDecodeError: A text is not valid.
    """
    return _Machine(rebuild, persistent).run(file)


class _Machine:
    def __init__(
        self,
        rebuild: Callable[[str, tuple[Any, ...]], Any],
        persistent: Callable[[Any], Any],
    ) -> None:
        self.rebuild, self.persistent = rebuild, persistent
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.steps = 0

    def run(self, file: BinaryIO) -> Any:
        stack = self.stack
        for code, argument, _ in pickletools.genops(cast("BinaryIO", _Limited(file))):
            self._count(1)
            name = code.name
            if name in _PUSHED:
                stack.append(argument)
            elif name in _CONSTANTS:
                stack.append(_CONSTANTS[name]())
            elif name in _STEPS:
                _STEPS[name](self, argument)
            elif name == "STOP":
                return stack.pop()
            elif name not in ("PROTO", "FRAME", "READONLY_BUFFER"):
                raise ValueError(f"its pickle has the opcode {name}")
        raise ValueError("its pickle does not end")

    def _count(self, steps: int) -> None:
        self.steps += steps
        if self.steps > _MAX_STEPS:
            raise LimitError(f"has a pickle of more than {_MAX_STEPS} steps")

    def pop_to_mark(self) -> list[Any]:
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def pop(self, count: int) -> list[Any]:
        if len(self.stack) < count:
            raise IndexError("its pickle takes what is not on its stack")
        items = self.stack[-count:]
        del self.stack[-count:]
        return items

    def put(self, place: Any) -> None:
        if not 0 <= int(place) < _LARGEST_PLACE:
            raise ValueError(f"its pickle has the memo {int(place):.3g}")
        self.memo[int(place)] = self.stack[-1]

    def read_memo(self, place: int) -> Any:
        if place not in self.memo:
            raise ValueError("its pickle takes what it did not keep")
        return self.memo[place]

    def fill(self, items: list[Any]) -> None:
        target = self.stack[-1]
        _fill(target.entries if isinstance(target, Standin) else target, items[::2], items[1::2])

    def extend(self, items: list[Any]) -> None:
        if isinstance(self.stack[-1], list):
            self.stack[-1].extend(items)

    def build(self, state: Any) -> None:
        if isinstance(self.stack[-1], Standin):
            self.stack[-1].state = state

    def dictionary_of(self, items: list[Any]) -> None:
        self.stack.append({})
        self.fill(items)

    def call_first(self, items: list[Any]) -> None:
        self.call(items[0], tuple(items[1:]))

    def call(self, what: Any, arguments: Any) -> None:
        name = what.name if isinstance(what, Named) else "a call"
        if name.partition(".")[0] in _RUNS or name in _RUNS_TOO:
            raise RunsCodeError(name)
        arguments = arguments if isinstance(arguments, tuple) else ()
        if name in _DICTS:
            self.stack.append(self._dictionary(arguments))
        elif name in _SEQUENCES:
            self.stack.append(arguments[0] if arguments else [])
        else:
            value = self.rebuild(name, arguments)
            self.stack.append(Standin(name, arguments) if value is None else value)

    def _dictionary(self, arguments: tuple[Any, ...]) -> dict[str, Any]:
        """Return a dictionary of pairs, as Python 2 stated an ``OrderedDict``."""
        filled: dict[str, Any] = {}
        pairs = arguments[-1] if arguments else []
        if isinstance(pairs, list):
            self._count(_STEPS_OF_PAIR * len(pairs))
            pairs = [pair for pair in pairs if isinstance(pair, (list, tuple)) and len(pair) == 2]
            _fill(filled, (key for key, _ in pairs), (value for _, value in pairs))
        elif isinstance(pairs, dict):
            self._count(_STEPS_OF_PAIR * len(pairs))
            filled.update(pairs)
        return filled


def _fill(target: Any, keys: Iterable[Any], values: Iterable[Any]) -> None:
    """Set entries with texts as keys: others lead to no tensor, and may be made slow to hash."""
    if isinstance(target, dict):
        target.update(
            (key, value) for key, value in zip(keys, values, strict=False) if type(key) is str
        )


def _name_global(module: Any, name: Any) -> Named:
    return Named(f"{module}.{name}" if type(module) is type(name) is str else "an object")


def _pair(text: str) -> Named:
    return _name_global(*text.split(" ", 1))


_STEPS: dict[str, Callable[[_Machine, Any], Any]] = {
    "MARK": lambda m, _: m.marks.append(len(m.stack)),
    "POP": lambda m, _: m.pop(1),
    "POP_MARK": lambda m, _: m.pop_to_mark(),
    "DUP": lambda m, _: m.stack.append(m.stack[-1]),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), lambda m, place: m.put(place)),
    "MEMOIZE": lambda m, _: m.put(len(m.memo)),
    **dict.fromkeys(
        ("GET", "BINGET", "LONG_BINGET"), lambda m, place: m.stack.append(m.read_memo(int(place)))
    ),
    "TUPLE": lambda m, _: m.stack.append(tuple(m.pop_to_mark())),
    "TUPLE1": lambda m, _: m.stack.append(tuple(m.pop(1))),
    "TUPLE2": lambda m, _: m.stack.append(tuple(m.pop(2))),
    "TUPLE3": lambda m, _: m.stack.append(tuple(m.pop(3))),
    **dict.fromkeys(("LIST", "FROZENSET"), lambda m, _: m.stack.append(m.pop_to_mark())),
    "DICT": lambda m, _: m.dictionary_of(m.pop_to_mark()),
    "APPEND": lambda m, _: m.extend(m.pop(1)),
    **dict.fromkeys(("APPENDS", "ADDITEMS"), lambda m, _: m.extend(m.pop_to_mark())),
    "SETITEM": lambda m, _: m.fill(m.pop(2)),
    "SETITEMS": lambda m, _: m.fill(m.pop_to_mark()),
    "GLOBAL": lambda m, text: m.stack.append(_pair(text)),
    "STACK_GLOBAL": lambda m, _: m.stack.append(_name_global(*m.pop(2))),
    **dict.fromkeys(
        ("EXT1", "EXT2", "EXT4"), lambda m, code: m.stack.append(Named(f"extension {code}"))
    ),
    "NEXT_BUFFER": lambda m, _: m.stack.append(Standin("a buffer")),
    "REDUCE": lambda m, _: m.call(*m.pop(2)),
    "NEWOBJ": lambda m, _: m.call(*m.pop(2)),
    "NEWOBJ_EX": lambda m, _: m.call(*m.pop(3)[:2]),
    "OBJ": lambda m, _: m.call_first(m.pop_to_mark()),
    "INST": lambda m, text: m.call(_pair(text), tuple(m.pop_to_mark())),
    "BUILD": lambda m, _: m.build(*m.pop(1)),
    "PERSID": lambda m, name: m.stack.append(m.persistent(name)),
    "BINPERSID": lambda m, _: m.stack.append(m.persistent(*m.pop(1))),
}
