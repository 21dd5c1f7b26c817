"""A task as CONTRIBUTING says to add one: a row, and what runs a file of it."""

from toy_tree import Toy

JOB = '''"""Runs a file on noise and writes the mean of what it gives."""

from pathlib import Path

from ....core.ports.examples import example_arrays
from ....core.ports.port import picture_size


def write_mean(session, source, target, options, **more):
    """Return one result, of the text file that is written."""
    (output,) = session.run(example_arrays(session.facts.inputs, picture_size(9, 6))).values()
    Path(target).write_text(str(float(output.mean())))
    done = {"status": "done", "reason": "", "output_size": output.shape[:1:-1], "tiles": 1}
    return [{"input": str(source), "output": str(target), "error": None, "warnings": []} | done]
'''

ROW = """
TASKS = [
    Task(
        names=("toy",),
        takes=("image",),
        may_take=(),
        gives="picture",
        run=Lazy("toy.run", "write_mean"),
        summary=Lazy("restoration.summary"),
        options=Lazy("restoration.options", "RunOptions"),
    ),
"""

TOY = Toy(
    "task",
    "toy",
    {"runtime/tasks/<name>/run.py": JOB},
    {"runtime/tasks/registry.py": (("\nTASKS = [\n", ROW),)},
)
