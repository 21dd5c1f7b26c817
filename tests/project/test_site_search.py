"""The site in a browser over HTTP: nothing is loaded from elsewhere, the search finds pages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from headless import chromium, served
from shared import ROOT

pytestmark = pytest.mark.full

SHOT = ROOT / "build" / "site.png"


def test_the_search_box(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="the extra docs is not installed")
    pytest.importorskip("selenium", reason="selenium is not installed")
    from selenium.webdriver.support.ui import WebDriverWait

    build = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    subprocess.run(build, cwd=ROOT, env=quiet, check=True)
    for page in tmp_path.rglob("*.html"):
        elsewhere = re.findall(r"<(?:script|link|img)[^>]*https?://[^>]*>", page.read_text())
        assert elsewhere == [], page
    with served(tmp_path) as address, chromium() as browser:
        browser.get(address)
        box = browser.find_element("css selector", "input.md-search__input")
        box.click()
        box.send_keys("pseudoinverse")
        links = WebDriverWait(browser, 60).until(
            lambda one: one.find_elements("css selector", "a.md-search-result__link")
        )
        SHOT.parent.mkdir(exist_ok=True)
        browser.save_screenshot(str(SHOT))
        assert len(links) > 1
        assert all(link.get_attribute("href").startswith(address) for link in links)
        links[0].click()
        WebDriverWait(browser, 60).until(lambda one: "pseudoinverse" in one.page_source.lower())
