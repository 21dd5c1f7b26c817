"""The page of ``nystra deploy web`` in headless Chromium, and the npm package in node.

The images are compared with those of ``nystra run`` of the same file.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

pytest.importorskip("selenium", reason="selenium is not installed: .ci/web brings it")

from exports import export
from headless import chromium, served
from nystra.core.arrays import Array
from nystra.deploy.web.folder import write_page
from nystra.deploy.web.options import WebOptions
from nystra.export import ExportOptions, Plan, export_model, mechanism
from nystra.models import pretrained_path
from nystra.runtime.images.image_data import quantize
from nystra.runtime.images.images import read_image
from nystra.runtime.model.references import ReferenceCase, read_references, write_references
from nystra.runtime.tasks.restoration.options import RunOptions
from nystra.runtime.tasks.restoration.run import run_images
from shared import ROOT

pytestmark = pytest.mark.release

PACKAGE = ROOT / "web" / "node_modules" / "onnxruntime-web"
SHOT = ROOT / "build" / "web_page.png"
SOFTWARE_GPU = ("--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader")
SECONDS = 300

Folder = tuple[Path, Path]
"""A model file of one size, and the folder of a page with it."""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from PIL import Image

    path = tmp_path_factory.mktemp("image") / "cup.png"
    photograph = Image.open(ROOT / "export" / "photographs" / "coffee.png").convert("RGB")
    photograph.crop((20, 20, 90, 70)).save(path)
    photograph.resize((640, 640)).save(path.with_name("large.png"))
    return path


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """The shipped SwinIR with linear attention."""
    folder = tmp_path_factory.mktemp("shipped")
    options = ExportOptions(
        Plan(mechanism("cluster")), static=(1, 3, 32, 32), target="portable", speed=False
    )
    model = export_model(pretrained_path("swinir_x2_w16"), folder / "m.onnx", options).model
    return model, page_of(model, folder)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A SwinIR that software WebGPU runs in seconds."""
    folder = tmp_path_factory.mktemp("tiny")
    model = export(folder, ExportOptions(static=(1, 3, 32, 32), target="portable"))
    return model, page_of(model, folder)


def page_of(model: Path, folder: Path) -> Path:
    if not PACKAGE.is_dir():
        pytest.skip("onnxruntime-web is not installed: `npm ci` in web/")
    return write_page(model, folder / "page", WebOptions(onnxruntime_web=PACKAGE))


def pixels_of(path: Path) -> Array:
    return quantize(read_image(path).pixels, 8).astype(int)


def expected(model: Path, image: Path, folder: Path) -> Array:
    run_images(model, image, folder / "expected.png", RunOptions(quiet=True))
    return pixels_of(folder / "expected.png")


class Page:
    """The page, used like a person does."""

    def __init__(self, browser: Any, address: str) -> None:
        self.browser, self.address = browser, address

    def at(self, name: str) -> Any:
        return self.browser.find_element("id", name)

    def until(self, what: Any) -> None:
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.browser, SECONDS, 0.05).until(lambda _: what())

    def ready(self) -> None:
        self.until(lambda: self.at("file").is_enabled() or self.at("error").is_displayed())

    def restore(self, image: Path) -> None:
        self.browser.execute_script("arguments[0].value = ''", self.at("file"))
        self.at("file").send_keys(str(image))

    def shown(self, name: str) -> str:
        """The text of a box, or nothing if it is hidden."""
        return str(self.at(name).text) if self.at(name).is_displayed() else ""

    def hosts(self) -> set[str | None]:
        """Every host that the page or its worker contacted."""
        messages = [json.loads(entry["message"]) for entry in self.browser.get_log("performance")]
        sent = [each["message"] for each in messages]
        urls = [
            urlsplit(each["params"]["request"]["url"])
            for each in sent
            if each["method"] == "Network.requestWillBeSent"
        ]
        return {url.netloc for url in urls if url.scheme not in ("blob", "data")}

    def problems(self) -> list[str]:
        """Errors in the console, including violations of the page's policy."""
        entries = [each for each in self.browser.get_log("browser") if each["level"] == "SEVERE"]
        # onnxruntime says that the file is not whole on WebGPU, which the page then tries in part.
        return [each["message"] for each in entries if "onnxruntime:" not in each["message"]]


@contextmanager
def opened(
    folder: Path,
    downloads: Path,
    *flags: str,
    query: str = "",
    headers: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Page]:
    no_other_host = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
    logs = {"performance": "ALL", "browser": "ALL"}
    with (
        served(folder, headers) as address,
        chromium(no_other_host, *flags, goog_loggingPrefs=logs) as browser,
    ):
        browser.set_page_load_timeout(SECONDS)
        behavior = {"behavior": "allow", "downloadPath": str(downloads)}
        browser.execute_cdp_cmd("Browser.setDownloadBehavior", behavior)
        browser.get(address + query)
        page = Page(browser, address)
        page.ready()
        yield page
        assert page.problems() == []
        assert page.hosts() == {urlsplit(address).netloc}


def restored(page: Page, image: Path, downloads: Path) -> Array:
    """The image that the page offers to save."""
    page.restore(image)
    page.until(lambda: page.shown("download") or page.shown("error"))
    assert page.shown("error") == ""
    page.at("download").click()
    saved = downloads / f"{image.stem}_restored.png"
    page.until(saved.exists)
    time.sleep(0.2)
    return pixels_of(saved)


def test_the_page_on_webassembly(shipped: Folder, image: Path, tmp_path: Path) -> None:
    model, folder = shipped
    with opened(folder, tmp_path, "--disable-gpu") as page:
        assert "on WebAssembly (CPU)" in page.shown("about")
        assert page.shown("warning").startswith("Not on the GPU: WebGPU finds no GPU")
        page.restore(image.with_name("large.png"))
        page.until(lambda: page.at("progress").get_attribute("value") > "0")
        page.at("cancel").click()
        page.until(lambda: page.shown("error") == "Cancelled.")
        assert page.shown("download") == ""
        result = restored(page, image, tmp_path)
        page.at("validate").click()
        page.until(lambda: page.shown("report"))
        assert page.shown("report").count("passed") == 3
        SHOT.parent.mkdir(exist_ok=True)
        page.browser.save_screenshot(str(SHOT))
    difference = np.abs(result - expected(model, image, tmp_path))
    assert result.shape == (100, 140, 3)
    assert difference.max() <= 1


def test_the_page_on_webgpu(tiny: Folder, image: Path, tmp_path: Path) -> None:
    model, folder = tiny
    with opened(folder, tmp_path, *SOFTWARE_GPU) as page:
        assert "on WebGPU" in page.shown("about")
        assert "computes WebGPU in software" in page.shown("warning")
        assert page.shown("report").count("passed") == 3, "it was compared before its first image"
        result = restored(page, image, tmp_path)
    assert np.abs(result - expected(model, image, tmp_path)).max() <= 1


def test_all_of_a_portable_file_is_on_the_gpu(shipped: Folder, tmp_path: Path) -> None:
    with opened(shipped[1], tmp_path, *SOFTWARE_GPU) as page:
        assert "on WebGPU" in page.shown("about")
        assert "a part of it runs on the CPU" not in page.shown("warning")
        assert page.shown("report").count("passed") == 3


def test_a_gpu_that_nothing_was_compared_on(tiny: Folder, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny[1], tmp_path / "page")
    listing = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps({**listing, "references": None}))
    with opened(folder, tmp_path, *SOFTWARE_GPU) as page:
        assert "no references to compare this GPU with" in page.shown("warning")
        assert not page.at("validate").is_enabled()


def test_a_wrong_gpu_is_not_used(tiny: Folder, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny[1], tmp_path / "page")
    (recorded,) = folder.glob("*.npz")
    found = read_references(recorded)
    wrong = [
        ReferenceCase(case.inputs, {name: array + 0.01 for name, array in case.outputs.items()})
        for case in found.cases
    ]
    write_references(recorded, wrong, found.meta)
    with opened(folder, tmp_path, *SOFTWARE_GPU) as page:
        assert "on WebAssembly (CPU)" in page.shown("about")
        assert "WebGPU does not reproduce the references here" in page.shown("warning")
        page.at("validate").click()
        page.until(lambda: page.shown("report"))
        assert page.shown("report").count("failed: the largest difference is 1.0e-2") == 3


def test_webassembly_is_taken_where_it_is_asked_for(tiny: Folder, tmp_path: Path) -> None:
    with opened(tiny[1], tmp_path, *SOFTWARE_GPU, query="?provider=wasm") as page:
        assert page.shown("warning").startswith("Not on the GPU: WebAssembly was requested.")


def test_webassembly_has_threads_where_the_server_isolates_the_page(
    tiny: Folder, image: Path, tmp_path: Path
) -> None:
    headers = {
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Embedder-Policy": "require-corp",
    }
    model, folder = tiny
    with opened(folder, tmp_path, query="?provider=wasm", headers=headers) as page:
        cores = page.browser.execute_script("return navigator.hardwareConcurrency")
        assert cores < 2 or f"with {min(cores, 8)} threads" in page.shown("warning")
        result = restored(page, image, tmp_path)
    assert np.abs(result - expected(model, image, tmp_path)).max() <= 1


def test_a_page_from_the_disk_says_what_it_needs(tiny: Folder) -> None:
    with chromium() as browser:
        browser.get(f"file://{tiny[1]}/index.html")
        assert "python -m http.server" in browser.find_element("id", "about").text


def test_what_is_no_image_and_what_is_too_large(tiny: Folder, tmp_path: Path) -> None:
    from PIL import Image

    (tmp_path / "text.png").write_text("no image")
    Image.new("L", (9000, 1)).save(tmp_path / "wide.png")
    with opened(tiny[1], tmp_path, query="?provider=wasm") as page:
        page.restore(tmp_path / "text.png")
        page.until(lambda: page.shown("error"))
        assert page.shown("error") == "text.png is no image that this browser reads."
        page.restore(tmp_path / "wide.png")
        page.until(lambda: "18000x2" in page.shown("error"))
        assert "at most 16384 a side" in page.shown("error")


def test_the_package_in_node(shipped: Folder, image: Path, tmp_path: Path) -> None:
    if shutil.which("node") is None or not (ROOT / "web" / "dist").is_dir():
        pytest.skip("no node, or the package is not compiled: `npm run dist` in web/")
    model, _ = shipped
    pixels = pixels_of(image).astype(np.uint8)
    height, width, _ = pixels.shape
    opaque = np.full((height, width, 1), 255, np.uint8)
    script = ROOT / "web" / "test" / "restore.mjs"
    recorded = model.with_suffix(".npz")
    done = subprocess.run(
        ["node", str(script), str(model), str(recorded), str(width), str(height)],
        input=np.concatenate([pixels, opaque], axis=2).tobytes(),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    said = json.loads(done.stderr)
    assert said["report"]["passed"]
    assert len(said["report"]["cases"]) == len(read_references(recorded).cases)
    assert max(case["maxAbs"] for case in said["report"]["cases"]) < 1e-5
    assert said["cancelled"] == "AbortError"
    assert said["progress"] == [[done, 6] for done in range(1, 7)]
    result = np.frombuffer(done.stdout, np.uint8).reshape(2 * height, 2 * width, 4).astype(int)
    assert np.abs(result[:, :, :3] - expected(model, image, tmp_path)).max() <= 1
