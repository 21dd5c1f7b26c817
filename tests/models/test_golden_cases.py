"""The reference cases in the repository: all are described, used, and small."""

import re

import pytest

from golden_cases import FOLDER, golden
from shared import ROOT

LIMIT = 12_000_000
CASES = sorted(path.stem for path in (FOLDER / "cases").glob("*.npz"))
README = (FOLDER / "README.md").read_text(encoding="utf-8")


def test_all_together_are_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) <= LIMIT


def test_the_page_lists_each_case_with_its_source() -> None:
    rows = README.partition("## Sources")[2].splitlines()
    listed = {name: row for row in rows for name in re.findall(r"`([a-z]\w+)`", row)}
    assert {name for name in listed if name in CASES} == set(CASES)
    for name in CASES:
        source = golden(name).meta["source"]
        assert source["repo"] in listed[name]
        assert source["commit"][:12] in listed[name]
        assert source["licence"] in listed[name]


def test_no_network_of_the_readme_is_proved_elsewhere_alone() -> None:
    """Networks of others' packages are compared with those packages."""
    table = (ROOT / "README.md").read_text(encoding="utf-8").partition("## What is supported")[2]
    networks = re.findall(r"^\| ([\w ]+) \|", table, re.M)
    prefixes = {
        "HAT": "hat_",
        "SwinIR": "swinir_",
        "Uformer": "uformer_",
        "SST": "sst_",
        "ESC": "esc_",
        "DehazeFormer": "dehazeformer_",
        "RVRT": "rvrt_",
        "ViT": "vit_",
        "CSNLN": "csnln_",
        "contextual attention": "inpaint_",
    }
    for network in networks[: networks.index("spandrel")]:
        if network == "colorization":
            continue  # its attention is of the cases of PSAL; the network is our own
        prefix = prefixes[network]
        assert any(name.startswith(prefix) for name in CASES), network


@pytest.mark.parametrize("name", CASES)
def test_a_case_holds_what_its_description_says(name: str) -> None:
    case = golden(name)
    for run, _, _, outputs in case.runs():
        for output in run["outputs"]:
            stored = outputs[output["name"]]
            kept = output.get("subsample")
            expected = list(output["shape"])
            if kept:
                for axis, offset in ((-2, "row_offset"), (-1, "col_offset")):
                    expected[axis] = len(range(kept[offset], expected[axis], kept["step"]))
            assert list(stored.shape) == expected, (run["name"], output["name"])
