"""The flags that are made from options, and those that say how a model file is run."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import NystraError
from ...core.option import Option, Options, spell_names
from ...core.option_kinds import File, NamedChoice, Switch
from ..console import echo_error, steps, warn

if TYPE_CHECKING:
    from ...runtime.session import Session
    from ...runtime.session_spec import SessionSpec


def add_options(
    parser: argparse._ActionsContainer,
    record: type[Options],
    names: Iterable[str] | None = None,
    **docs: str,
) -> None:
    """Add a flag for each option of a record.

    Args:
        parser: Or a group of it.
        record: The record.
        names: Those that are added, in this order; None adds all.
        **docs: What an option means, where the record does not say it in full.
    """
    options = record.list_options()
    flags = flags_by_name(parser) | {name: flag_of(name, kind) for name, kind in options.items()}
    for name in options if names is None else names:
        doc = docs.get(name, options[name].doc)
        text = options[name].default_text
        kind = replace(
            options[name],
            doc=spell_names(doc, flags.get),
            default_text=spell_names(text, flags.get),
        )
        if isinstance(kind, NamedChoice):
            _add_named_choice(parser, name, kind)
            continue
        kwargs: dict[str, Any] = (
            {} if isinstance(kind, Switch) else {"type": partial(kind.read, name)}
        )
        if kind.is_list:
            kwargs["action"] = _Added
        add_option(parser, name, kind, default=kind.default, **kwargs)


def add_option(parser: argparse._ActionsContainer, name: str, kind: Option, **kwargs: Any) -> None:
    """Add the flag of an option.

    Args:
        parser: Or a group of it.
        name: Name of the option.
        kind: The option.
        **kwargs: As argparse takes it; without ``type`` the text of the flag stays as it is.
    """
    flags = [flag for flag in (kind.short and f"-{kind.short}", kind.alias) if flag]
    flags.append(flag_of(name, kind))
    looks: dict[str, Any] = {"metavar": kind.placeholder}
    if isinstance(kind, Switch):
        looks = {"action": "store_false" if kind.default else "store_true"}
    kwargs = {"default": None, "required": kind.required, "help": kind.help, **looks, **kwargs}
    parser.add_argument(*flags, dest=name, **kwargs)


class _Added(argparse.Action):
    """Adds the values of a repeated flag, pairs or a tuple, to the former ones."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        former = getattr(namespace, self.dest)
        if isinstance(values, dict):
            values = {**(former or {}), **values}
        elif former is not self.default:
            values = former + values
        setattr(namespace, self.dest, values)


def _add_named_choice(parser: argparse._ActionsContainer, name: str, kind: NamedChoice) -> None:
    group = parser.add_mutually_exclusive_group()
    for word, (flag_name, doc) in kind.flags.items():
        group.add_argument(
            _spell_flag(flag_name),
            dest=name,
            action="store_const",
            const=word,
            default=kind.default,
            help=doc,
        )


def flag_of(name: str, kind: Option) -> str:
    """Return the flag of an option, such as ``--max-memory``."""
    if kind.flag:
        return kind.flag
    return _spell_flag(f"no_{name}" if isinstance(kind, Switch) and kind.default else name)


def _spell_flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def option_values(args: argparse.Namespace, record: type[Options]) -> dict[str, Any]:
    """Return the values that the flags of a record were given, or their defaults, by name."""
    return {name: getattr(args, name) for name in record.list_options()}


def flags_by_name(parser: argparse._ActionsContainer) -> dict[str, str]:
    """Return the flag of each option that a parser knows, by the name of the option.

    A word that has a flag of its own is named like its flag.
    """
    flags = {}
    for action in parser._actions:  # argparse lists them in no other way
        if action.option_strings:
            flag = action.option_strings[-1]
            word = flag[2:].replace("-", "_")
            flags[word if isinstance(action.const, str) else action.dest] = flag
    return flags


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--json``, ``-v`` and ``-q``."""
    parser.add_argument("--json", action="store_true", help="print the results as JSON on stdout")
    volume = parser.add_mutually_exclusive_group()
    volume.add_argument("-v", "--verbose", action="store_true", help="print each step")
    volume.add_argument("-q", "--quiet", action="store_true", help="print errors only")


CHECKPOINT = File(
    None, "compare with PyTorch on this checkpoint", default_text="the recorded outputs"
)
REFERENCES = File(None, "recorded outputs", default_text="next to the model", metavar="FILE.npz")
SHEET = File(
    None, "draw photographs: input, full attention, exported, difference", metavar="OUT.png"
)


_SESSION = ("backend", "threads", "library", "precision", "ep_library", "range")


def add_session_arguments(parser: argparse.ArgumentParser) -> None:
    """Add how a model file is run."""
    from ...runtime.backends import backend_names
    from ...runtime.session_spec import FASTEST, SessionSpec

    backends = (
        f"{', '.join(backend_names())}; openvino:GPU names a device, ort needs the name of an "
        "execution provider of onnxruntime, such as ort:WebGpuExecutionProvider; "
        f"{FASTEST} times ort-cpu and openvino once per file and uses the faster one; auto uses "
        "the first one installed"
    )
    add_options(parser, SessionSpec, _SESSION, backend=backends)
    parser.add_argument(
        "--backend-option",
        dest="options",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the backend; may be repeated",
    )


def session_spec(args: argparse.Namespace, model: Path, side: int | None = None) -> SessionSpec:
    """Return how a command runs a model file; ``--backend fastest`` is timed here, once.

    Args:
        args: With what `add_session_arguments` adds.
        model: The file.
        side: Side of the expected images or tiles, if known.
    """
    from ...runtime.session_spec import FASTEST, SessionSpec

    values = {name: getattr(args, name) for name in _SESSION}
    spec = SessionSpec(model, **values, options=_pairs(args.options))
    if spec.backend != FASTEST:
        return spec
    from ...runtime.fastest import choose_fastest

    with steps(args, piped=True) as progress:
        fastest = choose_fastest(spec, side, progress)
    if not args.quiet:
        echo_error(f"note: {fastest.reason}")
    return fastest.spec


def _pairs(texts: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise NystraError(f"--backend-option {text!r:.40} is not NAME=VALUE")
        pairs[name] = value
    return pairs


def open_session(args: argparse.Namespace, side: int | None = None) -> Session:
    """Load the model file of a command.

    Args:
        args: With what `add_session_arguments` adds, and ``model``.
        side: Side of the expected images or tiles, if known.
    """
    from ...runtime.backends.base import EMULATED
    from ...runtime.session import Session

    session = Session.open(session_spec(args, args.model, side))
    if session.emulated and not args.quiet:
        echo_error(f"note: {EMULATED}")
    if session.library_refused and not args.quiet:
        warn(session.library_reason)
    if session.assignment is not None and not args.quiet:
        echo_error(f"note: {session.assignment.describe()}")
    return session
