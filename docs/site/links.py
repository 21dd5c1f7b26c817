"""Links of one page, made right on the site: the repository's pages, and its other files."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping

_FENCE = re.compile(r"^ *(```|~~~)")
_LINK = re.compile(r"(?<=\]\()(?!\w+:|/|\))([^)#\s]*)(#[^)\s]+)?")
_CODE = re.compile(r"(?<!<pre>)(?<!<pre><span></span>)<code>[^<]*</code>")
_FLAG = re.compile(r"(?<![\w-])--?\w[\w-]*")
_SPAN = re.compile(r"(?<!\[)`([\w./-]+\.md)`")


def rewritten(text: str, source: str, homes: Mapping[str, str], titles: Mapping[str, str]) -> str:
    """Return a page with its links as they are on the site.

    A link goes to where the site has that file of the repository, and a page that is named in code
    (``docs/serve.md``) becomes a link with its title. What the site does not have stays as it is:
    MkDocs finds it.

    Args:
        text: Markdown.
        source: Its file in the repository.
        homes: File of the repository -> file of the site.
        titles: File of the site -> title.
    """
    here = posixpath.dirname(homes[source])

    def link(match: re.Match[str]) -> str:
        file, anchor = target(source, match[1]), match[2] or ""
        there = homes.get(file)
        if there is None or (there == homes[source] and not match[1]):
            return match[0]
        return posixpath.relpath(there, here or ".") + anchor

    def span(match: re.Match[str]) -> str:
        there = homes.get(match[1])
        if there not in titles or there == homes[source]:
            return match[0]
        return f"[{titles[there]}]({posixpath.relpath(there, here or '.')})"

    return "\n".join(
        line if code else _SPAN.sub(span, _LINK.sub(link, line)) for line, code in _lines(text)
    )


def targets(text: str, source: str) -> Iterator[str]:
    """Yield the files of the repository that a page links to."""
    for line, code in _lines(text):
        if not code:
            yield from (target(source, match[1]) for match in _LINK.finditer(line))


def target(source: str, link: str) -> str:
    """Return the file of the repository that a link in one of its files means."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), link)) if link else source


def whole_flags(html: str) -> str:
    """Return a page in which browsers break no line at the hyphens of ``--min-psnr``."""

    def whole(code: re.Match[str]) -> str:
        return _FLAG.sub(r'<span style="white-space: nowrap">\g<0></span>', code[0])

    return _CODE.sub(whole, html)


def _lines(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each line, and whether it is code."""
    code = False
    for line in text.split("\n"):
        fence = _FENCE.match(line) is not None
        yield line, code or fence
        code ^= fence
