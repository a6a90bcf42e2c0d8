"""The wheel in an environment that has nothing but it and NumPy."""

import os
import pathlib
import re
import subprocess
import sys

DOCS = pathlib.Path(__file__).parents[3] / "docs" / "pipt-python.md"
WHEELS = pathlib.Path(os.environ.get("PIPT_WHEELS", DOCS.parents[1] / "target" / "wheels"))
# Further interpreters to try the wheel with, separated by os.pathsep.
PYTHONS = [sys.executable, *filter(None, os.environ.get("PIPT_PYTHONS", "").split(os.pathsep))]


def run(*words, **how):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, **how)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_first_lines_of_the_guide_run_with_the_wheel_and_numpy_alone(tmp_path):
    (wheel,) = WHEELS.glob("pipt-*.whl")
    lines = re.search(r"```python first\n(.*?)```", DOCS.read_text(), re.S)[1]
    for number, python in enumerate(PYTHONS):
        clean = tmp_path / str(number)
        run(python, "-m", "venv", clean)
        run(clean / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel)
        listed = run(clean / "bin" / "python", "-m", "pip", "list", "--disable-pip-version-check", "--format=freeze")
        names = {line.split("==")[0].split(" ")[0] for line in listed.splitlines()}
        assert names - {"pip", "setuptools"} == {"numpy", "pipt"}, listed
        said = run(clean / "bin" / "python", "-c", lines, cwd=tmp_path)
        assert "entropy" in said and "(300, 400)" in said and "square_median" in said, said
