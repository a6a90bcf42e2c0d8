"""Filters the images of a directory with SciPy, for a test of the rank filters.

Each line of `jobs` names an image, its type, width and height, and what to do with it; the result is written
as raw samples.
"""

import pathlib
import sys

import numpy
from scipy import ndimage, stats

directory = pathlib.Path(sys.argv[1])
for line in (directory / "jobs").read_text().splitlines():
    name, kind, width, height, operation, columns, rows, number = line.split()
    width, height, columns, rows = int(width), int(height), int(columns), int(rows)
    image = numpy.fromfile(directory / name, kind).reshape(height, width)
    size = (rows, columns)
    if operation == "rank":
        result = ndimage.rank_filter(image, int(number), size=size, mode="reflect")
    elif operation == "median":
        result = ndimage.median_filter(image, size=size, mode="mirror")
    elif operation == "percentile":
        result = ndimage.percentile_filter(image, float(number), size=size, mode="nearest")
    elif operation == "cross":
        cross = numpy.zeros(size, bool)
        cross[rows // 2] = True
        cross[:, columns // 2] = True
        result = ndimage.median_filter(image, footprint=cross, mode="reflect")
    else:
        padded = numpy.pad(
            image,
            ((rows // 2, (rows - 1) // 2), (columns // 2, (columns - 1) // 2)),
            "symmetric",
        )
        if image.dtype == "f4":
            # Of 32-bit floats it would give a mean in 32 bits, and in ours there are 64.
            padded = padded.astype("f8")
        windows = numpy.lib.stride_tricks.sliding_window_view(padded, size)
        result = stats.trim_mean(windows.reshape(height, width, -1), float(number), axis=-1)
        result = result.astype("f8")
    result.tofile(directory / (name + ".result"))
