"""A child process that answers requests: the side of the parent.

The child's side is `loop`. The output of the child and of the libraries in it is kept, and if the
child dies, or does not answer in time, the error says how.

Other pools cannot replace this folder: in a test a module in the current folder was imported by the
workers of loky and of pebble, which also got the whole environment of the parent, survived its
death and kept none of their output; the death of one worker broke loky's whole pool.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import IO, Any, TypeVar

from ...core.ending import signal_name

T = TypeVar("T")

_ENVIRONMENT = {
    *("HOME", "USER", "LOGNAME", "PATH", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP"),
    *(
        "XDG_CACHE_HOME",
        "XDG_CONFIG_HOME",
        "XDG_RUNTIME_DIR",
        "SYSTEMROOT",
        "USERPROFILE",
        "APPDATA",
        "LOCALAPPDATA",
    ),
    *("PYTHONHOME", "PYTHONHASHSEED", "PYTHONUTF8", "PYTHONIOENCODING", "PYTHONNOUSERSITE"),
    *("PYTHONUSERBASE", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"),
}
_PREFIXES = (
    *("NYSTRA_", "ORT_", "TORCH", "PYTORCH_", "TRT_", "TENSORRT_", "CUDA", "CUDNN_", "CUBLAS_"),
    *("NVIDIA_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "LC_", "LD_", "DYLD_"),
    *("MALLOC_", "GLIBC_", "ASAN_", "UBSAN_", "ONEDNN_", "OPENVINO_"),
    # Drivers of the other execution providers of onnxruntime.
    *("VK_", "MESA_", "ZE_", "HIP_", "ROCR_", "ROCM_", "MIGRAPHX_", "QNN_", "ADSP_"),
)
"""Environment variables that configure numeric libraries. Tokens and passwords of the parent are
not passed on."""

_FLAGS = ("-P",) if sys.version_info >= (3, 11) else ()

# Run by `python -c`; the arguments are the parent's process id, the module and the path. Until the
# path is set it imports only what is built in. Then Linux is told to end this process with the
# thread that started it; elsewhere it ends when it next reads from stdin.
_START = """
import sys
parent, module, *path = sys.argv[1:]
sys.path[:] = dict.fromkeys([*path, *filter(None, sys.path)])
del sys.argv[1:]
import os, runpy
if sys.platform == "linux":
    import ctypes, signal
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != int(parent):
        sys.exit(1)
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


def start_child(
    module: str,
    stderr: IO[bytes],
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a Python module as a child process, pipes on its stdin and stdout.

    ``python -m module`` puts the current folder first on the path, so that a ``json.py`` or
    ``numpy.py`` next to a downloaded model would run. Here a child gets the path of its parent
    without the current folder, and only the environment variables and open files that it needs.

    Args:
        module: Its full name; it is run as ``__main__``.
        stderr: Destination of its stderr.
        environment: Added to the variables that it gets from this process.
    """
    variables = {name: value for name, value in os.environ.items() if _is_needed(name)}
    return _starter().call(
        subprocess.Popen,
        [sys.executable, *_FLAGS, "-c", _START, str(os.getpid()), module, *_path()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env={**variables, "PYTHONSAFEPATH": "1", **(environment or {})},
        close_fds=True,
    )


class _Starter:
    """A thread that lives as long as the process, and starts all its children.

    Linux ends a child with the thread that started it, not with the process.
    """

    def __init__(self) -> None:
        self.process = os.getpid()
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        threading.Thread(target=self._work, name="nystra-starter", daemon=True).start()

    def call(self, function: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Call a function in the thread."""
        result: Future[T] = Future()
        self._calls.put((result, partial(function, *arguments, **options)))
        return result.result()

    def _work(self) -> None:
        while True:
            result, function = self._calls.get()
            try:
                result.set_result(function())
            except BaseException as error:  # noqa: BLE001 - raised for who called
                result.set_exception(error)
            del result, function


_lock = threading.Lock()
_last: _Starter | None = None


def _starter() -> _Starter:
    global _last
    with _lock:
        if _last is None or _last.process != os.getpid():  # a fork has no threads of its parent
            _last = _Starter()
        return _last


def _is_needed(name: str) -> bool:
    return name.upper() in _ENVIRONMENT or name.upper().startswith(_PREFIXES)


def _path() -> list[str]:
    """Return the module path of this process, without the current folder."""
    current = os.path.realpath(os.curdir)
    return [
        entry for entry in sys.path if os.path.isabs(entry) and os.path.realpath(entry) != current
    ]


ANSWER_SECONDS = 900.0
"""Time limit for a child process to answer, in seconds."""


class ChildError(Exception):
    """The failure of a child.

    Attributes:
        exit_code: Exit code of the error that the child reported; 1 if it died without reporting
            one.
        death: How the process ended, as half a sentence; None if it reported the error itself.
    """

    def __init__(self, message: str, exit_code: int = 1, death: str | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.death = death


class Child:
    """One child process; a context manager that ends it.

    Attributes:
        output: The lines that the child printed, once it is closed.
    """

    def __init__(
        self,
        module: str,
        answer_seconds: float = ANSWER_SECONDS,
        *,
        environment: Mapping[str, str] | None = None,
        grace: float = 1.0,
    ) -> None:
        """Start a module that calls `loop.answer_requests`.

        Args:
            module: Its full name.
            answer_seconds: Time limit of an answer, after which the child is ended.
            environment: As in `start_child`.
            grace: Seconds for the child process to end when it is closed.
        """
        self.output: list[str] = []
        self._limit, self._grace = answer_seconds, grace
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115  closed by close()
        self._process = start_child(module, self._printed, environment)

    def __enter__(self) -> Child:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End the child; at once if the command is interrupted."""
        if kind is not None and not issubclass(kind, Exception):
            self._process.kill()
        self.close()

    def ask(
        self,
        what: str,
        request: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Send one request and return the answer.

        Args:
            what: The request's ``do``.
            request: Its other entries.

        Raises:
            ChildError: The child reported an error, died, or gave no answer in time.
        """
        line = json.dumps({"do": what, **(request or {})}) + "\n"
        late = threading.Event()

        def end() -> None:
            late.set()
            self._process.kill()

        timer = threading.Timer(self._limit, end)
        timer.start()
        try:
            answer = self._converse(line.encode())
        finally:
            timer.cancel()
        if late.is_set():
            death = f"did not answer in {self._limit:.0f} s"
            raise ChildError(f"no answer to {what!r} in {self._limit:.0f} s", death=death)
        if answer is None:
            death = self._death()
            last = self._lines()[-1:]
            last_output = f" (last output: {last[0][:300]})" if last else ""
            raise ChildError(f"the process {death}{last_output}", death=death)
        if "error" in answer:
            raise ChildError(answer["error"], answer["exit_code"])
        return answer

    def interrupt(self, *, force: bool = False) -> None:
        """End the child process from another thread; pending requests fail.

        Args:
            force: End it with SIGKILL.
        """
        if force:
            self._process.kill()
        else:
            self._process.terminate()

    def close(self) -> None:
        """End the child process, by a signal if necessary."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._wait(self._grace)
        if not self._printed.closed:
            self.output = self._lines()
            self._printed.close()

    def _converse(self, line: bytes) -> dict[str, Any] | None:
        """Return the answer to a line; None if the child ends before it answers."""
        if self._process.stdin is None or self._process.stdout is None:
            return None
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
            text = self._process.stdout.readline()
            if text.endswith(b"\n"):
                message: dict[str, Any] = json.loads(text)
                return message
        except OSError:
            pass
        return None

    def _death(self) -> str:
        """Return how the process ended, as half a sentence."""
        code = self._wait(10.0)
        if code >= 0:
            return f"ended with exit code {code}"
        name = signal_name(-code)
        return f"was ended by {name}{': out of memory?' if name == 'SIGKILL' else ''}"

    def _wait(self, seconds: float) -> int:
        """Return the exit code of the process, which is ended after a time limit."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def _lines(self) -> list[str]:
        self._printed.seek(0)
        return self._printed.read().decode("utf-8", "replace").strip().splitlines()
