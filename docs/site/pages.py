"""Pages of the site that come from files of the repository outside docs/."""

from __future__ import annotations

import re
from collections.abc import Iterator

MADE = {
    "index.md": (
        "",
        (
            "Install",
            "Run it",
            "Test it",
            "What do you have?",
            "Words",
            "Further reading",
            "Licence",
        ),
    ),
    "choosing.md": ("Choosing a mechanism", ()),
    "supported.md": ("What is supported", ()),
    "commands.md": ("The commands", ("Fill a hole",)),
    "elsewhere.md": ("Load the model elsewhere", ("Carry it to an edge box", "Guard it in CI")),
}
"""Page -> the section of README that is its head (README's own head where it is empty), others."""

COPIED = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security_policy.md",
    **{
        f"studies/measurements/{name}.md": f"measurements/{name.lower()}.md"
        for name in (
            "README",
            "quality",
            "quality_tables",
            "auto",
            "cluster",
            "performance",
            "openvino",
            "precision",
            "security",
            "serving",
            "gpu",
            "networks",
            "onnx_files",
            "hat",
            "rvrt",
            "vit",
            "paper",
            "psal",
        )
    },
    **{
        f"models/pretrained/{name}.md": f"models/{name}.md"
        for name in (
            "swinir_x2_w16",
            "swinir_x2_w32_nobias",
            "hat_x2_w16",
            "uformer_denoise25_w16",
            "vit_cifar10_p4",
        )
    },
}
"""File of the repository -> the page that it is."""


def made_of_readme(readme: str) -> dict[str, str]:
    """Return the pages of `MADE`, in the words of README.

    Raises:
        ValueError: README has a section that no page has, or the other way round.
    """
    head, *parts = re.split(r"^## ", readme, flags=re.M)
    sections = {part.partition("\n")[0]: part.partition("\n")[2].strip() for part in parts}
    wanted = [name for page in MADE for name in sections_of(page)]
    if sorted(wanted) != sorted(sections):
        odd = ", ".join(sorted(set(wanted) ^ set(sections)))
        raise ValueError(f"{odd}: expected each section of README.md once in docs/site/pages.py")
    written = {}
    for page, (first, others) in MADE.items():
        begin = f"# {first}\n\n{sections[first]}" if first else head.strip()
        written[page] = "\n\n".join((begin, *(f"## {name}\n\n{sections[name]}" for name in others)))
    return written


def sections_of(page: str) -> Iterator[str]:
    """Yield the sections of README that a page of `MADE` has."""
    first, others = MADE[page]
    yield from filter(None, (first, *others))
