"""Child processes: no code of the current folder, no secrets, and an end with their parent."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from nystra.runtime.workers import child as child_process
from nystra.runtime.workers.child import start_child
from runtime_models import nystra_metadata, save_upscaler

TRAPS = ("json", "numpy", "tensorrt", "runpy", "ctypes", "sitecustomize", "usercustomize", "nystra")

LOOK = """
import json, os, sys
open_files = sorted(int(name) for name in os.listdir("/proc/self/fd")) if os.name == "posix" else []
print(json.dumps({
    "path": sys.path, "argv": sys.argv[1:], "environment": dict(os.environ),
    "files": open_files, "safe": getattr(sys.flags, "safe_path", None),
}))
"""


@pytest.fixture
def trapped(tmp_path: Path) -> Path:
    """Return a folder of modules that leave a file behind when they are imported."""
    folder = tmp_path / "downloads"
    folder.mkdir()
    for name in TRAPS:
        (folder / f"{name}.py").write_text(
            f"open({str(tmp_path / 'caught')!r}, 'a').write({name!r})"
        )
    return folder


def looked(module_folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Return the environment that a child process sees."""
    (module_folder / "looking_around.py").write_text(LOOK)
    monkeypatch.syspath_prepend(str(module_folder))
    with tempfile.TemporaryFile() as words:
        process = start_child("looking_around", words)
        out, _ = process.communicate(timeout=60)
        words.seek(0)
        assert process.returncode == 0, words.read().decode()
    seen: dict[str, object] = json.loads(out)
    return seen


@pytest.mark.parametrize("flags", [child_process._FLAGS, ()])  # () is Python 3.10
@pytest.mark.parametrize("added", ["", ".", "downloads"])
def test_no_module_of_the_present_folder_runs(
    flags: tuple[str, ...],
    added: str,
    trapped: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    modules = tmp_path / "modules"
    modules.mkdir()
    monkeypatch.chdir(trapped)
    monkeypatch.setattr(child_process, "_FLAGS", flags)
    monkeypatch.setenv("PYTHONPATH", str(trapped))
    monkeypatch.syspath_prepend(str(trapped) if added == "downloads" else added)
    seen = looked(modules, monkeypatch)
    assert not (tmp_path / "caught").exists()
    assert str(trapped) not in seen["path"]  # type: ignore[operator]
    assert "" not in seen["path"]  # type: ignore[operator]
    assert seen["argv"] == []


def test_a_child_gets_the_path_of_its_parent_and_no_more_than_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "AWS_SECRET_ACCESS_KEY",
        "GITHUB_TOKEN",
        "PYTHONSTARTUP",
        "PYTHONPATH",
        "PYTHONINSPECT",
    ):
        monkeypatch.setenv(name, "secret")
    monkeypatch.chdir("/")
    kept = {"OMP_NUM_THREADS": "1", "NYSTRA_CPU_ISA": "generic", "LC_ALL": "C.UTF-8"}
    for name, value in kept.items():
        monkeypatch.setenv(name, value)
    with (tmp_path / "open").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        seen = looked(tmp_path, monkeypatch)
    environment = seen["environment"]
    assert isinstance(environment, dict)
    assert "secret" not in environment.values()
    assert kept.items() <= environment.items()
    path = seen["path"]
    assert isinstance(path, list)
    assert path[: len(sys.path)] == list(dict.fromkeys(filter(None, sys.path)))
    assert len(seen["files"]) <= 4  # type: ignore[arg-type]  the three, and the listing itself
    if sys.version_info >= (3, 11):
        assert seen["safe"] is True


@pytest.mark.full
def test_bench_runs_nothing_beside_a_downloaded_model(trapped: Path, tmp_path: Path) -> None:
    model = save_upscaler(trapped / "m.onnx", metadata=nystra_metadata())
    program = "import sys; sys.path.pop(0); from nystra.cli.main import main; sys.exit(main())"
    command = ["bench", model.name, "--sizes", "8x8", "--seconds", "0.01", "--runs", "3"]
    done = subprocess.run(
        [sys.executable, "-c", program, *command], cwd=trapped, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "images/s" in done.stdout
    assert not (tmp_path / "caught").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends children on Linux only")
def test_a_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    (tmp_path / "long_worker.py").write_text(
        "import time\nprint('up', flush=True)\ntime.sleep(300)"
    )
    (tmp_path / "parent.py").write_text(
        "import sys, tempfile\n"
        "from nystra.runtime.workers.child import start_child\n"
        "child = start_child('long_worker', tempfile.TemporaryFile())\n"
        "child.stdout.readline()\n"
        "print(child.pid, flush=True)\n"
        "child.wait()\n"
    )
    with subprocess.Popen(
        [sys.executable, str(tmp_path / "parent.py")], stdout=subprocess.PIPE, cwd="/"
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        os.kill(child, 0)
        parent.send_signal(signal.SIGKILL)
    for _ in range(100):
        if not running(child):
            return
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    pytest.fail("the child outlived its parent")


def running(process: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
