"""The page of the service in a headless browser: upload an image, see it before and after."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra nystra[serve] is not installed")
pytest.importorskip("selenium", reason="selenium is not installed")
import uvicorn

from classifier_models import save_classifier
from headless import chromium
from runtime_models import nystra_metadata, save_upscaler
from serving_tools import Service, png

pytestmark = pytest.mark.full

SHOT = Path(__file__).parents[2] / "build" / "page.png"


@pytest.fixture
def browser() -> Iterator[Any]:
    with chromium() as made:
        yield made


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    service = Service(
        save_upscaler(tmp_path / "twice.onnx", metadata=nystra_metadata()),
        save_classifier(tmp_path / "colors.onnx"),
        token="secret",
    )
    config = uvicorn.Config(service.app, port=0, log_level="warning", ws="none", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        thread.join(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    server.should_exit = True
    thread.join()
    service.close()


def test_before_and_after(browser: Any, address: str, tmp_path: Path) -> None:
    from selenium.webdriver.support.ui import Select, WebDriverWait

    def at(name: str) -> Any:
        return browser.find_element("id", name)

    def until(what: Any) -> None:
        WebDriverWait(browser, 10).until(lambda _: what())

    (tmp_path / "photo.png").write_bytes(png(60, 80))
    browser.get(address)
    until(lambda: "token" in at("message").text)
    at("token").send_keys("secret\t")
    until(lambda: len(Select(at("model")).options) == 2)
    at("file").send_keys(str(tmp_path / "photo.png"))
    at("go").click()
    until(lambda: at("view").is_displayed())
    assert "160 x 120 pixels" in at("message").text
    browser.execute_script("slider.value = 25; slider.dispatchEvent(new Event('input'))")
    cut = browser.execute_script("return getComputedStyle(before).clipPath")
    assert cut in ("inset(0px 75% 0px 0px)", "inset(0px calc(75%) 0px 0px)"), cut
    assert at("save").get_attribute("download") == "photo_nystra.png"
    SHOT.parent.mkdir(exist_ok=True)
    browser.save_screenshot(str(SHOT))
    Select(at("model")).select_by_visible_text("colors")
    at("go").click()
    until(lambda: at("classes").is_displayed())
    assert "%" in at("classes").text
    (tmp_path / "noise.png").write_bytes(b"no image")
    at("file").send_keys(str(tmp_path / "noise.png"))
    at("go").click()
    until(lambda: "is not an image" in at("message").text)
    logged = [entry for entry in browser.get_log("browser") if "Content Security" in str(entry)]
    assert logged == []
