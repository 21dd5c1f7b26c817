"""The HTML page: self-contained, and safe against names with markup."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nystra.core.errors import NystraError
from nystra.export.attention.registry import mechanism
from nystra.export.report.page import Page, image_uri, site_table, together
from nystra.runtime.images.images import decode_image


def test_equal_sites_are_one_row() -> None:
    sites = [f"layers.{group}.blocks.{block}.attn" for group in range(4) for block in range(6)]
    heads, rows = site_table(dict.fromkeys(sites, mechanism("full")))
    assert heads == ("sites", "number", "mechanism", "parameters"), "nobody gave a reason"
    assert rows == [
        ("layers.{0, 1, 2, 3}.blocks.{0, 1, 2, 3, 4, 5}.attn", "24", "full", "mask regions")
    ]
    shifted = {path: mechanism("full") for path in sites}
    wide = replace(mechanism("nystra"), reason="wide")
    shifted |= {path: wide for path in sites if path[-6] in "135"}
    heads, rows = site_table(shifted)
    assert heads[-1] == "reason"
    assert [row[:3] for row in rows] == [
        ("layers.{0, 1, 2, 3}.blocks.{0, 2, 4}.attn", "12", "full"),
        ("layers.{0, 1, 2, 3}.blocks.{1, 3, 5}.attn", "12", "nystra"),
    ]
    assert together(["a.0.b", "a.1.c"]) == "a.0.b, a.1.c", "a.{0, 1}.{b, c} would be four"
    assert together(["a.0", "b"]) == "a.0, b"


def test_a_page_holds_what_was_added(tmp_path: Path) -> None:
    page = Page("a <b> & c")
    page.add_heading("<script>")
    page.paragraph("1 < 2")
    page.table(("x", "<y>"), [("&", '"')])
    pixels = np.linspace(-0.5, 1.5, 48, dtype=np.float32).reshape(4, 4, 3)
    page.images([('"onload="', image_uri(pixels))], 64)
    page.write(tmp_path / "a.html")
    text = (tmp_path / "a.html").read_text()
    assert "<title>a &lt;b&gt; &amp; c</title>" in text
    assert "<h2>&lt;script&gt;</h2>" in text
    assert "<td>&amp;</td><td>&quot;</td>" in text
    assert 'alt="&quot;onload=&quot;"' in text
    assert not re.search(r"<script|https?://|<link", text)
    (data,) = re.findall(r'src="data:image/png;base64,([^"]+)"', text)
    shown = decode_image(base64.b64decode(data), "the image").pixels
    np.testing.assert_allclose(shown, np.clip(pixels, 0, 1), atol=0.51 / 255)


def test_a_page_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "no").touch()
    with pytest.raises(NystraError, match="cannot create the folder"):
        Page("a").write(tmp_path / "no" / "a.html")
