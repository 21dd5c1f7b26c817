"""The page of platforms lists those with wheels, and tests that exist."""

import importlib.machinery
import importlib.util
import re
import sys

from shared import ROOT
from test_security_page import rows


def built_platforms() -> list[str]:
    loader = importlib.machinery.SourceFileLoader("wheels_script", str(ROOT / ".ci/wheels"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[loader.name] = module  # where dataclasses look for it
    try:
        loader.exec_module(module)
    finally:
        del sys.modules[loader.name]
    return list(module.PLATFORMS)


def test_every_platform_has_a_row_with_its_test() -> None:
    table = list(rows("studies/measurements/platforms.md", "platform"))
    assert [row[0].split("`")[1] for row in table if "`" in row[0]] == built_platforms()
    for platform, *_, agrees, tested in table:
        files = re.findall(r"`([\w/.]+)(?:::\w+)?`", tested)
        named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", tested)
        assert files, platform
        assert all((ROOT / file).is_file() for file in files), platform
        assert named or ".ci/fresh_root" in files or agrees in ("untried", ""), platform
        for file, test in named:
            assert f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), (file, test)
