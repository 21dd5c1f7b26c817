"""Starts child processes, with the module path of this process, which end with it.

``python -m module`` puts the current folder first on the path, so that a ``json.py`` or
``numpy.py`` next to a downloaded model would run. Here a child gets the path of its parent without
the current folder, and only the environment variables and open files that it needs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import IO

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
# path is set it imports only what is built in. Then Linux is told to end this process with its
# parent; elsewhere it ends when it next reads from stdin.
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
    before: Callable[[], None] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a Python module as a child process, pipes on its stdin and stdout.

    Args:
        module: Its full name; it is run as ``__main__``.
        stderr: Destination of its stderr.
        environment: Added to the variables that it gets from this process.
        before: Called in the child before Python starts.
    """
    kept = {name: value for name, value in os.environ.items() if _is_needed(name)}
    return subprocess.Popen(
        [sys.executable, *_FLAGS, "-c", _START, str(os.getpid()), module, *_path()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env={**kept, "PYTHONSAFEPATH": "1", **(environment or {})},
        preexec_fn=before,
        close_fds=True,
    )


def _is_needed(name: str) -> bool:
    return name.upper() in _ENVIRONMENT or name.upper().startswith(_PREFIXES)


def _path() -> list[str]:
    """Return the module path of this process, without the current folder."""
    here = os.path.realpath(os.curdir)
    return [entry for entry in sys.path if os.path.isabs(entry) and os.path.realpath(entry) != here]
