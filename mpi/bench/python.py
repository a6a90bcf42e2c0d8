"""The Python package beside the command: `python.py PIPT`, with the package, NumPy, SciPy and tifffile installed.

CPU seconds of one thread, best of three: the call on an array that is there already, and the command from file to file,
uncompressed, which starts, reads and writes besides. That both give the same is looked at first.
"""

import resource
import subprocess
import sys
import tempfile

import numpy as np
import pipt
import tifffile
from scipy.ndimage import gaussian_filter

SIDE = 2048
CASES = [
    (
        "texture 9/32",
        lambda image: pipt.texture(image, window=9, levels=32, threads=1),
        "texture --window 9 --levels 32",
    ),
    ("median 15x15", lambda image: pipt.median(image, size=15, threads=1), "median --size 15"),
]


def used(whose):
    usage = resource.getrusage(whose)
    return usage.ru_utime + usage.ru_stime


def seconds(work, whose):
    begun = used(whose)
    result = work()
    return used(whose) - begun, result


def photograph():
    """Made up: broad and fine structure."""
    noise = np.random.default_rng(1)
    broad, fine = (gaussian_filter(noise.normal(size=(SIDE, SIDE)), width) for width in (6, 1))
    return np.clip(broad * 300 + fine * 40 + 128, 0, 255).astype(np.uint8)


def main(program):
    image = photograph()
    with tempfile.TemporaryDirectory() as directory:
        source, target = f"{directory}/image.tif", f"{directory}/out.tif"
        tifffile.imwrite(source, image)
        for name, call, words in CASES:
            how = ["--threads", "1", "--compress", "none", "--overwrite", "--quiet"]
            work = lambda: subprocess.run([program, *words.split(), source, target, *how], stdout=subprocess.DEVNULL, check=True)
            command = min(seconds(work, resource.RUSAGE_CHILDREN)[0] for _ in range(3))
            calls = [seconds(lambda: call(image), resource.RUSAGE_SELF) for _ in range(3)]
            array, made = min(calls, key=lambda one: one[0])
            strided = min(seconds(lambda: call(image.T), resource.RUSAGE_SELF)[0] for _ in range(3))
            made = np.stack(list(made.values())) if isinstance(made, dict) else made
            written = tifffile.imread(target)
            written = written if written.shape == made.shape else np.moveaxis(written, -1, 0)
            assert np.array_equal(made, written, equal_nan=True), name
            print(f"| {name} | {array:.3f} | {strided:.3f} | {command:.3f} |")


if __name__ == "__main__":
    main(sys.argv[1])
