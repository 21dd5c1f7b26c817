"""Writing the folder that Triton serves a model from."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ...core.errors import BackendUnavailableError, NystraError
from ...core.files.reading import file_sha256
from ...core.files.writing import atomic_folder
from ...core.metadata import key_of
from ...core.plain_text import printable
from ...plugins.library import choose_library
from ...runtime.compiled.cache import Engine, EngineRecord
from ...runtime.model.model_copy import COPY, ModelCopy
from ...runtime.model.onnx_header import OnnxHeader, read_onnx_header
from ...runtime.options import RANGE
from ...runtime.session import Session
from ...runtime.tasks.classification.listing import check_labels, read_labels
from ...runtime.tasks.handler import Handler
from ...runtime.tasks.registry import find_handler
from .config import (
    LABELS,
    file_tensors,
    head,
    network_tensors,
    parameters,
    quote,
)
from .options import TritonOptions

MODEL_PY = '''"""Where Triton's python backend looks; the class is part of nystra."""

from nystra.deploy.triton.python_model import TritonPythonModel

__all__ = ["TritonPythonModel"]
'''

_VERSION = "1"
_PARAMETERS = ("architecture", "scale", "license", "version", "task", "precision")


def write_repository(
    model: str | os.PathLike[str],
    repository: str | os.PathLike[str],
    options: TritonOptions | None = None,
) -> Path:
    """Write a model into a model repository of Triton: one folder, atomically.

    Args:
        model: The ONNX file.
        repository: The model repository, which is created; other models in it are unchanged.
        options: The options.

    Returns:
        The model's folder in it.

    Raises:
        NystraError: The backend cannot serve the file, or the folder of the model exists already.
        BackendUnavailableError: No installed backend can load the file to read its inputs, or an
            engine needs a library that is not installed.
    """
    options = options or TritonOptions()
    entry = _Model(Path(model), options)
    target = Path(repository, entry.name)
    with atomic_folder(target, overwrite=options.overwrite) as folder:
        entry.write(folder)
    return target


class _Model:
    def __init__(self, path: Path, options: TritonOptions) -> None:
        self.path, self.options = path, options
        self.name = options.name or path.stem
        TritonOptions(name=self.name)  # a stem may be no name of a model
        self.session = Session(path, range=options.range)
        self.facts = self.session.facts
        self.header = read_onnx_header(path)
        stated = () if options.labels is None else read_labels(options.labels)
        own = self.facts.preprocessing.labels if self.facts.preprocessing else ()
        self.labels = stated or own
        classes = self.facts.outputs[0].channels
        if options.labels is not None and "classes" not in self.facts.outputs[0].axes:
            raise NystraError(f"`labels` is for classifiers, and {path} is none")
        if self.labels and classes is not None:
            check_labels(self.labels, classes, str(options.labels or path))
        self.copy = ModelCopy.of(path)
        self.record = self._record()
        self.library = _library_for(options, self.header, self.record)
        self.handler: Handler | None = None
        if options.facts.files:
            self.handler = find_handler(self.session).open(self.session, self.name)
        elif not options.facts.operators and self.header.has_operators:
            raise NystraError(
                f"{path} has operators of nystra, which Triton's {options.backend} backend does "
                "not support: export it with `inline`, or use `backend` python; see "
                "docs/serving.md"
            )

    def write(self, folder: Path) -> None:
        version = folder / _VERSION
        version.mkdir()
        if self.record is not None:
            shutil.copyfile(str(self.options.engine), version / "model.plan")
        else:
            self.copy.write(version)
        if self.library is not None:
            shutil.copyfile(self.library, version / self.library.name)
        if self.labels:
            text = "".join(f"{printable(label)}\n" for label in self.labels)
            (folder / LABELS).write_text(text, encoding="utf-8")
        if self.handler is None:
            fields = self._network_fields()
        else:
            fields = self._file_fields(self.handler)
            (version / "model.py").write_text(MODEL_PY, encoding="utf-8")
        copied = version / COPY
        metadata = self.header.metadata
        about = {key: metadata[key] for key in map(key_of, _PARAMETERS) if key in metadata}
        about["nystra.model.sha256"] = file_sha256(copied if copied.is_file() else self.path)
        text = "\n".join([*fields, *parameters(about)])
        (folder / "config.pbtxt").write_text(f"{text}\n", encoding="utf-8")

    def _file_fields(self, handler: Handler) -> list[str]:
        """Return the configuration of the python backend."""
        options = self.options
        stated = {
            "session_backend": "ort-cuda" if options.gpu else "auto",
            "library": "none" if options.library == "none" else "auto",
            "tile": options.tile,
            "threads": options.threads,
            "overlap": options.overlap,
            "range": None if options.range is None else RANGE.show(options.range),
        }
        tensors = file_tensors(self.facts, handler.tensors, labels=bool(self.labels))
        return [*head(self.name, options, 0), *tensors, *parameters(stated)]

    def _network_fields(self) -> list[str]:
        """Return the configuration of a backend that is given tensors: the network alone."""
        options, max_batch = self.options, self._max_batch()
        fields = head(self.name, options, max_batch)
        fields += network_tensors(self.facts, max_batch, labels=bool(self.labels))
        if options.facts.libraries:
            fields += parameters({"intra_op_thread_count": options.threads})
            if self.library is not None:
                folder = f"{options.server_path.rstrip('/')}/{self.name}/{_VERSION}"
                library = quote(f"{folder}/{self.library.name}")
                fields.append(f"model_operations {{ op_library_filename: {library} }}")
        if self.record is None:
            fields.append(f"default_model_filename: {quote(COPY)}")
        return fields

    def _max_batch(self) -> int:
        """Return how many images run at once; 0 where the batch is a number of the file."""
        ports = (*self.facts.inputs, *self.facts.outputs)
        if any(port.axes[:1] != ("batch",) or "batch" in port.lengths for port in ports):
            return 0
        if self.record is None:
            return self.options.max_batch
        return min(row[2][0] for row in self.record.profile.values())

    def _record(self) -> EngineRecord | None:
        if self.options.engine is None:
            return None
        engine = Path(self.options.engine)
        record = Engine.beside(engine).record
        built_for = record.backend, record.hashes.get("model")
        if built_for != (self.options.backend, file_sha256(self.path)):
            raise NystraError(
                f"the engine {engine} is of another model or builder ({record.model}, "
                f"{record.backend}): expected one for {self.options.backend} from {self.path}"
            )
        return record


def _library_for(
    options: TritonOptions, header: OnnxHeader, record: EngineRecord | None
) -> Path | None:
    """Return the library that the server loads with the model, or None.

    The python backend has nystra's own; onnxruntime runs the operators' bodies without one; an
    engine whose plugins are missing cannot be loaded.
    """
    if record is not None:
        major = record.version.partition(".")[0]
        name = f"nystra_trt_register{major}"
        choice = choose_library(options.library, needed=bool(record.plugins), name=name)
        if record.plugins and choice.path is None and options.library != "none":
            raise BackendUnavailableError(
                f"the engine has {len(record.plugins)} plugins of nystra, and {choice.reason}. "
                f"Give `library` lib{name}.so, or `library` none to load it on the server yourself"
            )
        return choice.path
    if not options.facts.libraries:
        return None
    name = "nystra_onnxruntime_cuda" if options.gpu else "nystra_onnxruntime"
    return choose_library(options.library, needed=header.has_operators, name=name).path
