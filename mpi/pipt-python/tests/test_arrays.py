"""Arrays of all kinds beside SciPy."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pipt
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from scipy.ndimage import median_filter

ARRAYS = int(os.environ.get("PIPT_ODD_ARRAYS", "200"))
DOCS = pathlib.Path(__file__).parents[3] / "docs" / "pipt-python.md"
GOOD = ["u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f4", "f8", "?", "f2"]
BAD = ["c8", "c16", "M8[s]", "m8[s]", "O", "S3", "U2", "g", [("a", "u1"), ("b", "f4")]]


def image(dtype="u2", shape=(40, 50)):
    return np.random.default_rng(5).integers(0, 100, shape).astype(dtype)


def scipy(array, size):
    return median_filter(np.ascontiguousarray(array).astype("f8"), size, mode="reflect")


@st.composite
def odd_arrays(draw):
    shape = tuple(draw(st.lists(st.integers(0, 9), max_size=5)))
    dtype = np.dtype(draw(st.sampled_from(GOOD + BAD)))
    if dtype.fields is None and draw(st.booleans()):
        dtype = dtype.newbyteorder()
    array = np.zeros(shape, dtype)
    if dtype.kind in "uifb":
        array = np.random.default_rng(draw(st.integers(0, 99))).integers(0, 100, shape).astype(dtype)
    for axis in range(array.ndim):
        step = draw(st.sampled_from([1, 1, -1, 2, -2]))
        array = array[(slice(None),) * axis + (slice(None, None, step),)]
    if draw(st.booleans()):
        array = array.T
    if draw(st.booleans()):
        array.flags.writeable = False
    return array


@settings(max_examples=ARRAYS, deadline=None, suppress_health_check=list(HealthCheck))
@given(odd_arrays(), st.sampled_from([-1, 0]))
def test_odd_arrays_are_computed_rightly_or_refused_by_a_sentence(array, axis):
    before = array.copy()
    is_image = array.ndim in (2, 3) and array.size > 0 and array.dtype.fields is None
    is_image = is_image and array.dtype.kind in "buif" and array.dtype.itemsize <= 8
    if not is_image:
        with pytest.raises((TypeError, ValueError)) as refused:
            pipt.median(array, size=3, channel_axis=axis)
        assert len(str(refused.value)) > 20
        return
    found = pipt.median(array, size=3, channel_axis=axis)
    size = 3 if array.ndim == 2 else (3, 3, 1) if axis == -1 else (1, 3, 3)
    assert found.shape == array.shape
    assert np.array_equal(found.astype("f8"), scipy(array, size))
    if array.dtype.kind in "ui":
        assert found.dtype == array.dtype.newbyteorder("=")
    assert np.array_equal(array, before)


def test_texture_and_threads_and_parts():
    array = image()
    whole = pipt.texture(array, window=5, levels=8)
    assert "entropy" in whole and whole["entropy"].shape == array.shape
    one = pipt.texture(array, window=5, levels=8, threads=1)
    assert all(np.array_equal(whole[name], one[name], equal_nan=True) for name in whole)
    bands = pipt.texture(np.dstack([array, array + 1]), window=5, levels=8)
    assert np.array_equal(bands["entropy"][..., 0], whole["entropy"], equal_nan=True)
    first = pipt.texture(np.stack([array, array + 1]), window=5, levels=8, channel_axis=0)
    assert np.array_equal(first["entropy"][0], whole["entropy"], equal_nan=True)


def test_masks_and_nodata():
    array = image()
    masked = np.ma.MaskedArray(array, array < 10)
    found = pipt.median(masked, size=3)
    assert isinstance(found, np.ma.MaskedArray) and np.array_equal(found.mask, masked.mask)
    with pytest.raises(ValueError, match="nodata"):
        pipt.median(array, size=3, edge="nodata")
    assert (pipt.median(array, size=3, edge="nodata", nodata=255)[0] == 255).all()


def test_wrong_words_are_refused():
    for name, keywords in [("SquareMedan", {}), ("SquareMedian", {"size": 4}), ("SquareMedian", {"size": 3.5})]:
        with pytest.raises(ValueError):
            pipt.apply(name, image(), **keywords)
    with pytest.raises(TypeError, match="it has size"):
        pipt.square_median(image(), wide=3)
    with pytest.raises(OSError):
        pipt.open("/nowhere.tif")


def test_all_routines_have_a_function():
    names = [one["name"] for one in pipt._table.ROUTINES.values()]
    assert len(names) == 63 + 2
    for name in names:
        function = getattr(pipt, pipt._table.snake(name))
        assert all(one["about"] in function.__doc__ for one in pipt._table.ROUTINES[name]["parameters"])


@pytest.mark.parametrize("kind", ["array", "slow array", "file"])
def test_control_c_ends_it_within_a_second_or_so(kind, tmp_path):
    import tifffile

    tifffile.imwrite(tmp_path / "scene.tif", image("u2", (6000, 6000)))
    work = {
        "array": "pipt.texture(a, window=9, levels=64)",
        "slow array": "pipt.texture(a, window=63, levels=4096)",
        "file": "pipt.open('scene.tif').co_occur(window=9, levels=64).write('rough.tif')",
    }[kind]
    code = (
        # A shell that runs this in the background has its programs ignore the signal.
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "import numpy as np, pipt, sys; a = np.random.default_rng(1).integers(0, 4096, (6000, 6000)).astype('f8');"
        f"print('begun', flush=True)\ntry:\n {work}\nexcept KeyboardInterrupt:\n print('ended')"
    )
    work = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    # Whether it computes yet is seen by what it has used: the grey levels are looked for first, in less.
    used = lambda: int(pathlib.Path(f"/proc/{work.pid}/stat").read_text().split()[13])
    try:
        assert work.stdout.readline() == "begun\n"
        begun = used()
        while used() < begun + 400:
            assert work.poll() is None
            os.sched_yield()
        sent = time.monotonic()
        work.send_signal(signal.SIGINT)
        assert work.communicate(timeout=60)[0] == "ended\n"
    finally:
        work.kill()
    took = time.monotonic() - sent
    print(f"{kind}: {took:.2f} s")
    assert took < 2


def test_the_first_lines_and_the_recipes_of_the_guide_run(tmp_path):
    import tifffile

    parts = re.findall(r"```python.*?\n(.*?)```", DOCS.read_text(), re.S)
    assert len(parts) == 5
    tifffile.imwrite(tmp_path / "scene.tif", image(shape=(300, 200)))
    for parts in [parts[:1], parts]:
        done = subprocess.run(
            [sys.executable, "-c", "\n".join(parts)], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


def test_stubs_are_current_and_strictly_typed(tmp_path):
    use = tmp_path / "use.py"
    use.write_text(
        "import numpy as np\nimport pipt\na = np.zeros((9, 9), np.uint8)\nb = pipt.square_median(a, size=3)\n"
        "c = pipt.texture(b)['entropy']\npipt.open('a.tif').read(0, 0, 1, 1)\n"
    )
    for words in [
        ["-m", "pipt.stubs", "--check"],
        ["-m", "mypy", "--strict", str(use)],
        ["-m", "mypy.stubtest", "pipt", "--concise"],
    ]:
        done = subprocess.run([sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
