"""A headless browser, and a file server for it."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest


class _Quiet(SimpleHTTPRequestHandler):
    """Serves the files of a folder without a log."""

    def __init__(self, *where: Any, more: Mapping[str, str], **how: Any) -> None:
        self.more = more
        super().__init__(*where, **how)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""

    def end_headers(self) -> None:
        """End the header of a response with the additional headers."""
        for name, value in self.more.items():
            self.send_header(name, value)
        super().end_headers()


@contextmanager
def served(folder: Path, headers: Mapping[str, str] = MappingProxyType({})) -> Iterator[str]:
    """Yield the URL of a server of a folder's files, like ``python -m http.server``.

    Args:
        folder: The folder.
        headers: Additional headers of every response.
    """
    handler = partial(_Quiet, directory=folder, more=headers)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()


@contextmanager
def chromium(*flags: str, **capabilities: Any) -> Iterator[Any]:
    """Yield a driver of Chromium, or skip the test if one of the two is missing.

    Args:
        *flags: Flags of Chromium, besides the usual ones.
        **capabilities: Capabilities of the driver, by their names with ``_`` for the colon.
    """
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    binary = shutil.which("chromium") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("no chromium and chromedriver here")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    usual = ("--headless=new", "--no-sandbox", "--window-size=1000,900")
    for flag in (*usual, *(flags or ("--disable-gpu",))):
        options.add_argument(flag)
    for name, value in capabilities.items():
        options.set_capability(name.replace("_", ":"), value)
    browser = webdriver.Chrome(options, webdriver.ChromeService(driver))
    try:
        yield browser
    finally:
        browser.quit()
