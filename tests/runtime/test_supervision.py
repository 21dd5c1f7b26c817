"""One error ends no thread that others wait for, and readiness asks whether the threads live."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from later import full
from nystra.core.ending import signal_name
from nystra.runtime.pool.local import Processes
from nystra.runtime.serving.batcher import Batcher
from nystra.runtime.serving.errors import ModelFailedError, StoppingError
from nystra.runtime.serving.request_queue import RequestQueue, Work
from nystra.runtime.workers.child import Child, ChildError
from runtime_models import nystra_metadata, save_upscaler
from serving_tools import Service

PATIENCE = 20.0
IMAGE = np.zeros((1, 3, 8, 8), np.float32)


def doubled(images: np.ndarray) -> np.ndarray:
    return 2 * images


def asked(batcher: Batcher, images: np.ndarray) -> Any:
    """Return the answer to a call, which may not wait for ever."""
    answer: Future[Any] = Future()

    def call() -> None:
        try:
            answer.set_result(batcher(Work(lambda _: None), images))
        except Exception as error:
            answer.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    return answer.result(PATIENCE)


def test_a_report_that_fails_spoils_no_answer(capsys: pytest.CaptureFixture[str]) -> None:
    def failing(images: int, seconds: float) -> None:
        raise ValueError("a metric refuses the number")

    batcher = Batcher(doubled, on_run=failing)
    for _ in range(2):
        assert asked(batcher, IMAGE + 1).max() == 2
    assert "a metric refuses the number" in capsys.readouterr().err
    batcher.close()


@pytest.mark.parametrize("pixels", [None, 64])
def test_no_images_are_an_answer_too(pixels: int | None) -> None:
    batcher = Batcher(doubled, images=2, pixels=pixels)
    assert asked(batcher, IMAGE[:0]).shape == (0, 3, 8, 8)
    assert asked(batcher, IMAGE).shape == IMAGE.shape
    batcher.close()


def test_images_without_axes_fail_alone() -> None:
    batcher = Batcher(doubled)
    with pytest.raises(ModelFailedError):
        asked(batcher, np.zeros(()))
    assert asked(batcher, IMAGE).shape == IMAGE.shape
    batcher.close()


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, RuntimeError])
def test_any_error_of_the_model_is_an_answer(error: type[BaseException]) -> None:
    def model(images: np.ndarray) -> np.ndarray:
        if images.max() > 0:
            raise error("over")
        return images

    batcher = Batcher(model)
    for _ in range(2):
        with pytest.raises(ModelFailedError, match="the model failed: over"):
            asked(batcher, IMAGE + 1)
        assert asked(batcher, IMAGE).max() == 0
    assert batcher.alive
    batcher.close()
    assert not batcher.alive


def test_a_thread_that_ends_all_the_same_lets_nobody_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    begun = threading.Event()

    def fails(self: Batcher, first: object) -> None:
        begun.wait(PATIENCE)
        raise RuntimeError("a fault of the batcher")

    monkeypatch.setattr(Batcher, "_answer", fails)
    batcher = Batcher(doubled)
    call = partial(batcher, Work(lambda _: None), IMAGE)
    threading.Thread(target=call, daemon=True).start()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(call)
        while not batcher._orders:
            time.sleep(0.001)
        begun.set()
        with pytest.raises(StoppingError):
            waiting.result(PATIENCE)
    with pytest.raises(StoppingError):
        asked(batcher, IMAGE)


@pytest.fixture
def service(tmp_path: Path) -> Service:
    return Service(save_upscaler(tmp_path / "m.onnx", metadata=nystra_metadata()))


def test_readiness_asks_whether_the_threads_live(service: Service) -> None:
    assert service.ask("/readyz").status == 200
    service.models.close()
    reply = service.ask("/readyz")
    assert (reply.status, reply.code) == (503, "stopping")
    assert "a thread of the service ended" in reply.message
    assert service.ask("/healthz").status == 200
    service.close()


def test_readiness_asks_for_the_threads_of_requests(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)

    def fails(self: Work[Any]) -> None:
        raise RuntimeError("a fault of the queue")

    monkeypatch.setattr(Work, "run", fails)
    service.queue.submit(Work(lambda _: None))
    end = time.monotonic() + PATIENCE
    while service.queue.alive and time.monotonic() < end:
        time.sleep(0.01)
    assert service.ask("/readyz").status == 503
    service.close()


def test_a_caller_that_gave_up_ends_no_thread() -> None:
    queue = RequestQueue(workers=1)
    begun, free = threading.Event(), threading.Event()

    def do(_: Work[Any]) -> bool:
        begun.set()
        return free.wait(PATIENCE)

    queue.submit(Work(do))
    assert begun.wait(PATIENCE)
    abandoned = Work(lambda _: None)
    queue.submit(abandoned)
    assert abandoned.future.cancel()  # as asyncio does with what nobody awaits
    free.set()
    after = Work(lambda _: "done")
    queue.submit(after)
    assert after.future.result(PATIENCE) == "done"
    assert queue.alive
    queue.close(PATIENCE)


def test_closing_answers_what_waits_for_memory() -> None:
    queue = RequestQueue(workers=2, memory=100)
    begun, free = threading.Event(), threading.Event()

    def do(_: Work[Any]) -> bool:
        begun.set()
        return free.wait(PATIENCE)

    queue.submit(Work(do, 80))
    assert begun.wait(PATIENCE)
    waiting = [Work(lambda _: None, 80) for _ in range(3)]
    for work in waiting:
        queue.submit(work)
    time.sleep(0.1)  # the other thread sleeps
    assert not queue.close(0.1)
    try:
        for work in waiting:
            with pytest.raises(StoppingError):
                work.future.result(5)
    finally:
        free.set()


WORKER = """
import signal, sys
from pathlib import Path
from nystra.runtime.workers.loop import answer_requests

def end(number, frame):
    Path(sys.argv[0]).with_suffix(".ended").touch()
    sys.exit(1)

signal.signal(signal.SIGTERM, end)
sys.exit(answer_requests(lambda request, send: {"value": request["do"]}))
"""

linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends children on Linux only")


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "supervised_worker.py").write_text(WORKER)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "supervised_worker"


def in_a_thread(do: Callable[[], Any]) -> Any:
    """Return the result of a function, called in a thread that has ended."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(do).result(PATIENCE)


def test_a_child_outlives_the_thread_that_started_it(worker: str) -> None:
    def start() -> Child:
        child = Child(worker, PATIENCE)
        assert child.ask("first")["value"] == "first"
        return child

    with in_a_thread(start) as child:
        time.sleep(0.3)
        assert child.ask("second")["value"] == "second"


def test_a_pool_closes_in_order_though_its_threads_end_first(worker: str, tmp_path: Path) -> None:
    pool = Processes(worker, {}, 1)
    assert [result.value for result in pool.run([("work", ())])] == ["work"]
    pool._threads.shutdown()
    time.sleep(0.3)
    pool.close()
    assert (tmp_path / "supervised_worker.ended").exists()


@linux
def test_a_forked_process_starts_children_too(worker: str) -> None:
    with Child(worker, PATIENCE) as child:
        child.ask("work")
    process = os.fork()
    if not process:
        with Child(worker, PATIENCE) as child:
            os._exit(0 if child.ask("work")["value"] == "work" else 1)
    end = time.monotonic() + PATIENCE
    while not (ended := os.waitpid(process, os.WNOHANG))[0]:
        if time.monotonic() > end:
            os.kill(process, signal.SIGKILL)
        time.sleep(0.01)
    assert ended[1] == 0


@linux
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGRTMIN + 1, signal.SIGRTMAX - 1])
def test_a_death_by_any_signal_has_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    program = f"import os\nos.kill(os.getpid(), {int(number)})"
    (tmp_path / "dying_worker.py").write_text(program)
    monkeypatch.syspath_prepend(str(tmp_path))
    words = f"the process was ended by {signal_name(number)}"
    with Child("dying_worker", PATIENCE) as child, pytest.raises(ChildError, match=words):
        child.ask("work")
    assert signal_name(signal.SIGKILL) == "SIGKILL"


BUSY = """
import os, sys, threading, time
from nystra.core import ending

def refuse():
    raise {error}("the engine refuses to stop")

def never():
    time.sleep(60)

ending.GRACE = float(sys.argv[1])
with ending.EndingSignals([15], lambda number: None, "ended"):
    with ending.Computing({stop}):
        print("ready", flush=True)
        end = time.monotonic() + 30
        while time.monotonic() < end:
            pass
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals")
@pytest.mark.parametrize(
    ("stop", "error"),
    [("never", "RuntimeError"), *full(("refuse", "RuntimeError"), ("refuse", "SystemExit"))],
)
@pytest.mark.parametrize("times", [1, 2])
def test_an_engine_that_does_not_stop_delays_no_end(stop: str, error: str, times: int) -> None:
    program = BUSY.format(stop=stop, error=error)
    grace = 0.5 if times == 1 else 60.0
    with subprocess.Popen(
        [sys.executable, "-c", program, str(grace)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        for number in range(times):
            time.sleep(0.5 if number else 0.0)
            process.send_signal(signal.SIGTERM)
        try:
            _, errors = process.communicate(timeout=10)
        finally:
            process.kill()
    assert process.returncode == 128 + signal.SIGTERM
    assert errors.decode().splitlines()[-1] == "ended"


def test_one_stop_that_fails_leaves_no_engine_running() -> None:
    from nystra.core.ending import Computing, stop_engines

    stopped = threading.Event()

    def refuse() -> None:
        raise RuntimeError("the engine refuses to stop")

    with Computing(refuse), Computing(stopped.set):
        stop_engines()
    assert stopped.is_set()
