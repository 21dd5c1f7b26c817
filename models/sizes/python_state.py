"""What code keeps between calls: attributes, class attributes, globals, closures, caches.

Weights are no part of it. Only the code that is the network's own is searched: the Python modules
that define its parts, and those that they use, without libraries.
"""

from __future__ import annotations

import functools
import hashlib
import re
import sys
import threading
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..torch_internals import FakeTensor

_DEEPEST = 4
"""Levels of values within values that are compared."""

_MAX_ELEMENTS = 4096
"""Most elements of a container that are compared."""

_OF_MODULES = frozenset(vars(nn.Module()))
_FOREIGN = frozenset(("torch", "nystra", "numpy", *sys.stdlib_module_names))
_LIBRARIES = re.compile(r"[/\\](site|dist)-packages[/\\]")

_CACHES: tuple[type, ...] = (type(functools.lru_cache(lambda: None)),)
_METHODS = (MethodType, classmethod, staticmethod)
_SEQUENCES = (list, tuple, deque)
_COPIED = (set, Tensor, np.ndarray, ContextVar)

_Content = dict[Any, Any]

MISSING: Any = object()
"""The value of a variable that is not there."""


@dataclass(frozen=True)
class Change:
    """A value that is another one than before.

    Attributes:
        name: Of the variable that holds it, for messages.
        owner: What holds it.
        key: Where it is in the owner.
        before: The value before, or `MISSING`.
        after: The value now, or `MISSING`.
    """

    name: str
    owner: Any
    key: Any
    before: Any
    after: Any

    def put(self, value: Any) -> None:
        """Put another value in its place."""
        _put(self.owner, {**_content(self.owner), self.key: value})


class PythonState:
    """The values that the code of a network holds at one time, weights excepted."""

    def __init__(self, network: nn.Module, *, attributes: bool = True) -> None:
        """Note the values; ``attributes``: those of the network's modules too."""
        self._code = find_code(network)
        self._seen: set[int] = set()
        self._contents: list[tuple[str, Any, _Content]] = []
        for path, part in network.named_modules():
            name = f"{path}.".removeprefix("network.") if path else ""
            for value in [part] if attributes else vars(part).values():
                if value is part or isinstance(value, FunctionType):
                    self._note(name, value, 0)
            for kind in type(part).__mro__:
                self._note(f"{kind.__name__}.", kind, 0)
        for module in self._code.values():
            self._note("", module, 0)

    def _note(self, name: str, value: Any, depth: int) -> None:
        """Note what a value holds, and what that holds; ``name`` is what names in it start with."""
        if isinstance(value, _METHODS):
            value = value.__func__
        elif isinstance(value, property):
            value = value.fget
        if id(value) in self._seen or depth > _DEEPEST or not self._is_searched(value, depth):
            return
        self._seen.add(id(value))
        content = _content(value)
        if len(content) > _MAX_ELEMENTS:
            return
        self._contents.append((name, value, content))
        for key, each in content.items():
            inner = name
            if isinstance(each, type):
                inner = f"{each.__name__}."
            elif _has_variables(value):
                inner = f"{name}{key}"
                inner += "." if _has_variables(each) and not callable(each) else ""
            if isinstance(each, (FunctionType, *_METHODS)):
                inner = ""
            self._note(inner, each, depth + 1)

    def _is_searched(self, value: Any, depth: int) -> bool:
        if depth == 0 and isinstance(value, (nn.Module, ModuleType)):
            return True
        if isinstance(value, (FunctionType, type)):
            return value.__module__ in self._code
        simple = (*_SEQUENCES, *_CACHES, *_COPIED, Mapping, SimpleNamespace, threading.local)
        is_own = type(value).__module__ in self._code and _attributes_of(value) is not None
        return isinstance(value, simple) or is_own

    def changes(self) -> list[Change]:
        """Return what is another value now."""
        different = []
        for name, owner, before in self._contents:
            after = _content(owner)
            for key in {**before, **after}:
                one, other = before.get(key, MISSING), after.get(key, MISSING)
                if one is not other and describe(one) != describe(other):
                    full = f"{name}{key}" if _has_variables(owner) else name
                    different.append(Change(full, owner, key, one, other))
        return different

    def restore(self) -> None:
        """Put back what was changed, into the objects that held it."""
        for _, owner, before in self._contents:
            after = _content(owner)
            if isinstance(owner, _COPIED):
                is_same = describe(before) == describe(after)
            else:
                is_same = len(before) == len(after) and all(
                    name in after and after[name] is value for name, value in before.items()
                )
            if not is_same:
                _put(owner, before)

    @contextmanager
    def open_caches(self, cache: type) -> Iterator[None]:
        """Replace empty dictionaries by others, and cached functions by those that compute.

        Afterwards all is put back.
        """
        cached = []
        for _, owner, before in self._contents:
            if type(owner) is dict and not before:
                self.replace(owner, cache())
            for key, each in before.items():
                if isinstance(each, _CACHES) and isinstance(owner, (ModuleType, type)):
                    cached.append((owner, key, each))
                    setattr(owner, key, vars(each)["__wrapped__"])
        try:
            yield
        finally:
            for owner, key, each in cached:
                setattr(owner, key, each)
            self.restore()

    def replace(self, value: Any, other: Any) -> None:
        """Put another value wherever one is held."""
        for _, owner, before in self._contents:
            for key, each in before.items():
                if each is value:
                    _put(owner, {**_content(owner), key: other})


def find_code(network: nn.Module) -> dict[str, ModuleType]:
    """Return the Python modules whose code a network runs by name, without libraries."""
    kinds = {kind for part in network.modules() for kind in type(part).__mro__}
    todo = sorted({kind.__module__ for kind in kinds})
    packages = {_package(name) for name in todo} - _FOREIGN
    modules: dict[str, ModuleType] = {}
    while todo:
        name = todo.pop(0)
        if name in modules or name not in sys.modules or _package(name) in _FOREIGN:
            continue
        modules[name] = sys.modules[name]
        for value in list(vars(modules[name]).values()):
            if isinstance(value, ModuleType):
                other = value.__name__
            elif isinstance(value, (FunctionType, type)):
                other = value.__module__ or ""  # functions of extensions may have none
            else:
                continue
            if _is_own(other) or (isinstance(value, FunctionType) and _package(other) in packages):
                todo.append(other)
    return modules


def _package(name: str) -> str:
    return name.partition(".")[0]


def _is_own(name: str) -> bool:
    """Return whether a Python module is a file of the user's, in no library."""
    file = getattr(sys.modules.get(name), "__file__", None)
    if file is None or _package(name) in _FOREIGN:
        return name == "__main__"
    return not _LIBRARIES.search(file)


def _has_variables(value: Any) -> bool:
    return isinstance(value, (nn.Module, ModuleType, type, FunctionType)) or not isinstance(
        value, (*_SEQUENCES, *_CACHES, *_COPIED, Mapping)
    )


def _content(value: Any) -> _Content:
    """Return what a value holds: by name, key or place, or a copy of its elements at ""."""
    if isinstance(value, nn.Module):
        own = {name: each for name, each in vars(value).items() if name not in _OF_MODULES}
        return own | value._buffers
    if isinstance(value, FunctionType):
        return _variables_of(value)
    if isinstance(value, _CACHES):
        cache: Any = value
        return {"": cache.cache_info().currsize, "function": cache.__wrapped__}
    if isinstance(value, dict):
        return dict(dict.items(value))  # a subclass may build another value at each access
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, _SEQUENCES):
        return dict(enumerate(value))
    if isinstance(value, Tensor):
        return {"": value.detach().clone()}
    if isinstance(value, (np.ndarray, set)):
        return {"": value.copy()}
    if isinstance(value, ContextVar):
        try:
            return {"": value.get()}
        except LookupError:  # it was never set
            return {}
    names = _attributes_of(value) or {}
    return {name: each for name, each in names.items() if not str(name).startswith("__")}


def _attributes_of(value: Any) -> Mapping[str, Any] | None:
    """Return the attributes of an object, or None; its class may warn where they are asked for."""
    attributes: Mapping[str, Any]
    if issubclass(type(value), threading.local):
        attributes = vars(value)  # those of this thread
        return attributes
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except AttributeError:
        names = [name for kind in type(value).__mro__ for name in vars(kind).get("__slots__", ())]
        return {name: getattr(value, name) for name in names if hasattr(value, name)} or None
    return attributes


def _variables_of(function: FunctionType) -> _Content:
    """Return what a function keeps: attributes, variables of its closure, default arguments."""
    content: _Content = {
        f"{function.__name__}.{name}": value
        for name, value in vars(function).items()
        if not name.startswith("__")
    }
    names = function.__code__.co_freevars
    for name, cell in zip(names, function.__closure__ or (), strict=True):
        try:
            content[name] = cell.cell_contents
        except ValueError:  # it is not set yet
            continue
    defaults = function.__defaults__ or ()
    arguments = function.__code__.co_varnames[: function.__code__.co_argcount]
    content |= zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True)
    return content | (function.__kwdefaults__ or {})


def _put(owner: Any, content: _Content) -> None:
    """Make an object hold what `_content` returned of it."""
    if isinstance(owner, FunctionType):
        _put_variables(owner, content)
    elif isinstance(owner, _CACHES):
        cache: Any = owner
        cache.cache_clear()
    elif isinstance(owner, (dict, set)):
        owner.clear()
        owner.update(content.get("", ()) if isinstance(owner, set) else content)
    elif isinstance(owner, (list, deque)):
        owner.clear()
        owner.extend(content.values())
    elif isinstance(owner, Tensor) and owner.shape == content[""].shape:
        with torch.no_grad():
            owner.copy_(content[""])
    elif isinstance(owner, np.ndarray):
        owner[...] = content[""]
    elif isinstance(owner, ContextVar):
        for kept in content.values():
            owner.set(kept)
    elif _has_variables(owner):
        _put_attributes(owner, content)


def _put_variables(function: FunctionType, content: _Content) -> None:
    for name in [name for name in vars(function) if not name.startswith("__")]:
        value = content.get(f"{function.__name__}.{name}", MISSING)
        if value is MISSING:
            delattr(function, name)
        else:
            setattr(function, name, value)
    names = function.__code__.co_freevars
    for name, cell in zip(names, function.__closure__ or (), strict=True):
        if name in content:
            cell.cell_contents = content[name]
    defaults = function.__defaults__ or ()
    arguments = function.__code__.co_varnames[: function.__code__.co_argcount]
    if defaults:
        named = arguments[len(arguments) - len(defaults) :]
        function.__defaults__ = tuple(content[name] for name in named)
    named_only = function.__kwdefaults__ or {}
    named_only.update({name: content[name] for name in named_only})


def _put_attributes(owner: Any, content: _Content) -> None:
    before = _content(owner)
    put, remove = setattr, delattr
    if not isinstance(owner, (type, nn.Module, threading.local)):  # as of a frozen dataclass
        put, remove = object.__setattr__, object.__delattr__
    for name in {**before, **content}:
        value = content.get(name, MISSING)
        if value is before.get(name, MISSING) or callable(value):
            continue
        if value is MISSING:
            remove(owner, name)
        else:
            put(owner, name, value)


def describe(value: Any, depth: int = 0) -> Any:
    """Return what can be compared of a value."""
    kind = type(value)  # isinstance() asks the value for its class, and some warn of that
    if issubclass(kind, (nn.Module, FakeTensor, torch.SymInt, torch.SymFloat, torch.SymBool)):
        return id(value)
    if issubclass(kind, Tensor):
        values = value.detach().contiguous().reshape(-1).view(torch.uint8)
        return tuple(value.shape), str(value.dtype), _hash(values.numpy())
    if issubclass(kind, np.ndarray):
        return value.shape, _hash(value)
    if value is None or issubclass(kind, (int, float, complex, str, bytes)):
        return kind.__name__, value
    if depth >= _DEEPEST or (issubclass(kind, Collection) and len(value) > _MAX_ELEMENTS):
        return id(value)
    if issubclass(kind, Mapping):
        return [(str(key), describe(each, depth + 1)) for key, each in value.items()]
    if issubclass(kind, _SEQUENCES):
        return [describe(each, depth + 1) for each in value]
    if issubclass(kind, (set, frozenset)):
        return sorted(map(str, value))
    attributes = None if callable(value) else _attributes_of(value)
    if attributes is not None:
        return [(name, describe(each, depth + 1)) for name, each in attributes.items()]
    return id(value)


def _hash(array: np.ndarray[Any, Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
