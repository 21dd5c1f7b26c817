"""The reference of the Python names, made from their signatures and docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module

PACKAGES = ("nystra.runtime", "nystra.export", "nystra.models", "nystra.deploy")
"""The packages whose public names are listed."""

_WIDTH = 88
_SECTION = re.compile(r"(Args|Attributes|Returns|Yields|Raises):$")
_ENTRY = re.compile(r"(\*{0,2}\w+|[\w.]+): (.*)")


def reference_text(packages: Sequence[str] = PACKAGES) -> str:
    """Return the public names of packages in Markdown, a heading each."""
    return "\n".join(line for package in packages for line in _package(package))


def _package(package: str) -> Iterator[str]:
    module = import_module(package)
    yield f"## {package}\n"
    yield f"{docstring_text(inspect.getdoc(module) or '')}\n"
    for name in module.__all__:
        yield from _entry(name, getattr(module, name), "###")


def _entry(name: str, value: object, heading: str) -> Iterator[str]:
    """Yield a function, or a class with its public methods and properties."""
    yield f"{heading} {name}\n"
    if callable(value):
        yield f"```python\n{signature_text(name.rpartition('.')[2], value)}\n```\n"
    yield f"{docstring_text(inspect.getdoc(value) or '')}\n"
    if not inspect.isclass(value):
        return
    for key, member in vars(value).items():
        inner = getattr(member, "__func__", getattr(member, "func", member))
        if key.startswith("_") or not (inspect.isfunction(inner) or isinstance(inner, property)):
            continue
        if inspect.getdoc(inner):
            yield from _entry(f"{name}.{key}", inner, "####")


def signature_text(name: str, value: Callable[..., object]) -> str:
    """Return a signature, with a line for each parameter if one line is too long."""
    signature = inspect.signature(value)
    written: list[str] = []
    for each in signature.parameters.values():
        if each.kind is each.KEYWORD_ONLY and not any(part.startswith("*") for part in written):
            written.append("*")
        if each.name not in ("self", "cls"):
            written.append(_parameter(each))
    returned = signature.return_annotation
    end = "" if returned is signature.empty or inspect.isclass(value) else f" -> {_type(returned)}"
    line = f"{name}({', '.join(written)}){end}"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([f"{name}(", *(f"    {each}," for each in written), f"){end}"])


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    text = stars.get(parameter.kind, "") + parameter.name
    if parameter.annotation is not parameter.empty:
        text += f": {_type(parameter.annotation)}"
    if parameter.default is parameter.empty:
        return text
    value = repr(parameter.default)
    return f"{text} = {'...' if value.startswith('<') or ' object at ' in value else value}"


def _type(annotation: object) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def docstring_text(text: str) -> str:
    """Return a docstring of Google's style in Markdown."""
    lines: list[str] = []
    kind = ""
    for line in text.replace("``", "`").splitlines():
        section = _SECTION.match(line)
        if section:
            kind = section[1]
            lines += [f"**{kind}**", ""]
        elif not kind or not line.startswith("    "):
            kind = kind if not line else ""
            lines.append(line)
        elif kind in ("Returns", "Yields"):
            lines.append(line.strip())
        else:
            entry = None if line.startswith("     ") else _ENTRY.match(line.strip())
            lines.append(f"- `{entry[1]}`: {entry[2]}" if entry else f"  {line.strip()}")
    return "\n".join(lines).strip()
