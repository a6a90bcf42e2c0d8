"""Order statistics and morphology beside SciPy's rank filters and grey morphology."""

import numpy
from scipy import ndimage, stats

from common import EDGES, TYPES, image, nearly, run
from means import samples_of

SIZES = [1, 3, 7]


def footprint(size, cross):
    window = numpy.ones((size, size), bool)
    if cross:
        window[:] = False
        window[size // 2, :] = window[:, size // 2] = True
    return window


def compare(lines):
    for kind in TYPES:
        samples = image(kind)
        for size in SIZES:
            for edge, mode in EDGES.items():
                given = {"size": size, "edge": edge}
                theirs = {"mode": mode}
                if edge == "constant":
                    given["value"] = theirs["cval"] = 7
                for cross in [False, True]:
                    _compare_one(lines, samples, (size, cross), given, theirs)
                    if size > 1:
                        _trimmed(lines, samples_of(kind), (size, cross), given, theirs)


def _compare_one(lines, samples, window, given, theirs):
    size, cross = window
    about = f"{samples.dtype} {given}"
    theirs = {**theirs, "footprint": footprint(size, cross)}
    least = ndimage.minimum_filter(samples, **theirs)
    greatest = ndimage.maximum_filter(samples, **theirs)
    shape = "Cross" if cross else "Square"
    lines.compare(f"{shape}Min", about, run(f"{shape}Min", samples, **given), least)
    lines.compare(f"{shape}Max", about, run(f"{shape}Max", samples, **given), greatest)
    rank = int(theirs["footprint"].sum()) // 3
    ranked = ndimage.rank_filter(samples, rank, **theirs)
    lines.compare(f"{shape}Rank", about, run(f"{shape}Rank", samples, rank=rank, **given), ranked)
    middle = ndimage.rank_filter(samples, int(theirs["footprint"].sum()) // 2, **theirs)
    lines.compare(f"{shape}Median", about, run(f"{shape}Median", samples, **given), middle)
    given = {**given, "shape": shape.lower()}
    lines.compare("Erode", about, run("Erode", samples, **given), ndimage.grey_erosion(samples, **theirs))
    lines.compare("Dilate", about, run("Dilate", samples, **given), ndimage.grey_dilation(samples, **theirs))
    opened = ndimage.maximum_filter(least, **theirs)
    closed = ndimage.minimum_filter(greatest, **theirs)
    lines.compare("Open", about, run("Open", samples, **given), opened)
    lines.compare("Close", about, run("Close", samples, **given), closed)


def _trimmed(lines, samples, window, given, theirs):
    size, cross = window
    theirs = {**theirs, "footprint": footprint(size, cross)}
    trimmed = lambda values: stats.trim_mean(values, 0.2)
    real = ndimage.generic_filter(samples.astype("float64"), trimmed, **theirs)
    routine = "ATrimmedCrMean" if cross else "ATrimmedSqMean"
    nearly(lines, routine, samples, run(routine, samples, trim=0.2, **given), real)
