"""Routines of a window beside their definitions, written with NumPy, for all that can be missing: two bands of every
type, of which some pixels have no data, at each of the six edges.

An image is put into a frame first, which is what lies beyond its edge, with a mask of what is there. Then each window
of it is a row of samples, and of whether they are there.
"""

import numpy
from scipy import ndimage

from common import TYPES, framed, nearly, outside, run, with_holes

EDGES = ["reflect", "mirror", "replicate", "constant", "shrink", "nodata"]
NODATA = 120
VALUE = 7
SIGMA = 0.8
SHAPE = (27, 38)


class Windows:
    """What is around each pixel of one band, in rows of samples."""

    def __init__(self, values, there, half, edge):
        side = 2 * half + 1
        frame, known = framed(values, there, half, edge, VALUE)
        rows = lambda of: numpy.lib.stride_tricks.sliding_window_view(of, (side, side)).reshape(*values.shape, -1)
        self.values, self.there = rows(frame), rows(known)
        self.middle, self.has_middle = values, there
        self.beyond = outside(values.shape, half) if edge == "nodata" else numpy.zeros(values.shape, bool)


def compare(lines):
    for kind in TYPES:
        bands, holes = with_holes(kind, SHAPE, NODATA)
        for edge in EDGES:
            given = {"edge": edge, "value": VALUE} if edge == "constant" else {"edge": edge}
            for routine, more, half, of, is_float in _routines():
                got = run(routine, bands, nodata=NODATA, **more, **given)
                found = [_result(of, band, hole, half, edge) for band, hole in zip(bands, holes)]
                _same(lines, routine, f"{kind} {given}", bands, got, found, is_float)
            for routine, first, second in [("Open", _least, _greatest), ("Close", _greatest, _least)]:
                got = run(routine, bands, nodata=NODATA, **given)
                found = [_twice(first, second, band, hole, edge) for band, hole in zip(bands, holes)]
                _same(lines, routine, f"{kind} {given}", bands, got, found, False)
        _filled(lines, bands, holes)


def _routines():
    """Each routine, its parameters, half of its window, and what it is of windows."""
    for shape, cross in [("Square", False), ("Cross", True)]:
        size = 25 if not cross else 9
        rank = size // 3
        yield f"{shape}Min", {"size": 5}, 2, _of_order(cross, lambda n, _: (0, 0)), False
        yield f"{shape}Max", {"size": 5}, 2, _of_order(cross, lambda n, _: (n - 1, n - 1)), False
        middle = lambda n, _: ((n - 1) // 2, (n - 1) // 2)
        yield f"{shape}Median", {"size": 5}, 2, _of_order(cross, middle), False
        part = lambda n, all: (rank * (n - 1) // (all - 1),) * 2
        yield f"{shape}Rank", {"size": 5, "rank": rank}, 2, _of_order(cross, lambda n, all, p=part: p(n, all)), False
        trimmed = lambda n, _: (numpy.floor(0.2 * n).astype(int), n - 1 - numpy.floor(0.2 * n).astype(int))
        name = "ATrimmedCrMean" if cross else "ATrimmedSqMean"
        yield name, {"size": 5, "trim": 0.2}, 2, _of_order(cross, trimmed), False
        yield f"{shape}Mean", {"size": 5}, 2, _weighted(_footprint(2, cross)), False
        word = {"size": 5, "shape": shape.lower()}
        yield "Erode", word, 2, _of_order(cross, lambda n, _: (0, 0)), False
        yield "Dilate", word, 2, _of_order(cross, lambda n, _: (n - 1, n - 1)), False
    bell = _response(lambda point: ndimage.gaussian_filter(point, SIGMA), 3)
    yield "GaussianSmooth", {"sigma": SIGMA}, 3, _weighted(bell), False
    yield "GeometricMean", {}, 1, _of_logarithms, False
    yield "HarmonicMean", {}, 1, _of_inverses, False
    yield "SigmaFilter", {"size": 5, "within": 30}, 2, _near, False
    yield "AdaptiveWiener", {"size": 5, "noise": 500}, 2, _wiener, False
    smooth = _weighted(bell)
    sharp = lambda windows: windows.middle + 0.4 * (windows.middle - smooth(windows))
    yield "UnsharpMask", {"sigma": SIGMA, "amount": 0.4, "threshold": 0}, 3, sharp, False
    for name, weights in [("Sobel", [1, 2, 1]), ("Prewitt", [1, 1, 1])]:
        across = numpy.outer(weights, [-1, 0, 1])
        yield name, {}, 1, _length([across, across.T]), True
    corner = [[[0, 0, 0], [0, 1, 0], [0, 0, -1]], [[0, 0, 0], [0, 0, 1], [0, -1, 0]]]
    yield "Roberts", {}, 1, _length(corner), True
    yield "Kirsch", {}, 1, _kirsch, True
    for neighbours, weights in [(4, [[0, 1, 0], [1, -4, 1], [0, 1, 0]]), (8, [[1, 1, 1], [1, -8, 1], [1, 1, 1]])]:
        yield "Laplacian", {"neighbours": neighbours}, 1, _sum(weights), True
    curved = _response(lambda point: ndimage.gaussian_laplace(point, SIGMA), 3)
    yield "LaplacianOfGaussian", {"sigma": SIGMA}, 3, _sum(curved), True
    turned = numpy.array([[1, 2, -3], [0, 4, 0.5], [-1, 2, 6]])
    yield "Convolve", {"kernel": "1,2,-3/0,4,0.5/-1,2,6"}, 1, _sum(turned[::-1, ::-1]), True


def _result(of, band, holes, half, edge):
    windows = Windows(band.astype("float64"), ~holes, half, edge)
    with numpy.errstate(all="ignore"):
        return numpy.where(holes | windows.beyond, numpy.nan, of(windows))


def _twice(first, second, band, holes, edge):
    once = _result(first, band, holes, 1, edge)
    return _result(second, numpy.nan_to_num(once), numpy.isnan(once), 1, edge)


def _same(lines, routine, about, bands, got, found, is_float):
    """Of floats NaN is no data, of the others the number that the image has for it."""
    found, kind = numpy.array(found), bands.dtype
    if is_float:
        narrow = kind.itemsize <= 2 or kind == "float32"
        close = {"relative": 1e-6, "absolute": 1e-4} if narrow else {"relative": 1e-12, "absolute": 1e-10}
        lines.compare(routine, about, got, found, **close)
        return
    none = numpy.isnan(found)
    lines.compare(routine, f"{about} no data", got[none], numpy.full(none.sum(), NODATA, kind))
    nearly(lines, routine, bands, numpy.where(none, 0, got), numpy.where(none, 0, found))


def _filled(lines, bands, holes):
    """Where the window has samples its pixel is given one."""
    for routine, of in [("SquareMedian", _of_order(False, lambda n, _: ((n - 1) // 2,) * 2)),
                        ("SquareMean", _weighted(numpy.ones(9)))]:
        got = run(routine, bands, nodata=NODATA, fill=True, edge="shrink")
        found = []
        for band, hole in zip(bands, holes):
            windows = Windows(band.astype("float64"), ~hole, 1, "shrink")
            with numpy.errstate(all="ignore"):
                found.append(numpy.where(windows.there.any(axis=-1), of(windows), numpy.nan))
        _same(lines, routine, f"{bands.dtype} filled", bands, got, found, False)


def _footprint(half, cross):
    window = numpy.full((2 * half + 1, 2 * half + 1), not cross)
    window[half, :] = window[:, half] = True
    return window.ravel()


def _response(of, half):
    """The weights of a filter of SciPy: what it makes of one point."""
    point = numpy.zeros((8 * half + 1, 8 * half + 1))
    point[4 * half, 4 * half] = 1
    return of(point)[3 * half : 5 * half + 1, 3 * half : 5 * half + 1].ravel()


def _of_order(cross, which):
    """The mean of the sorted samples that are there, from one number to another."""

    def of(windows):
        half = int(numpy.sqrt(windows.values.shape[-1])) // 2
        kept = windows.there & _footprint(half, cross)
        count = kept.sum(axis=-1)
        values = numpy.sort(numpy.where(kept, windows.values, numpy.inf), axis=-1)
        first, last = which(count, int(_footprint(half, cross).sum()))
        place = numpy.arange(values.shape[-1])
        taken = (place >= numpy.expand_dims(first, -1)) & (place <= numpy.expand_dims(last, -1))
        return numpy.where(taken, values, 0).sum(axis=-1) / taken.sum(axis=-1)

    return of


_least = _of_order(False, lambda n, _: (0 * n, 0 * n))
_greatest = _of_order(False, lambda n, _: (n - 1, n - 1))


def _weighted(weights):
    weights = numpy.asarray(weights, dtype="float64").ravel()

    def of(windows):
        kept = windows.there * weights
        return (windows.values * kept).sum(axis=-1) / kept.sum(axis=-1)

    return of


def _of_logarithms(windows):
    total = numpy.where(windows.there, numpy.log(windows.values), 0).sum(axis=-1)
    return numpy.exp(total / windows.there.sum(axis=-1))


def _of_inverses(windows):
    return windows.there.sum(axis=-1) / numpy.where(windows.there, 1 / windows.values, 0).sum(axis=-1)


def _near(windows):
    kept = windows.there & (numpy.abs(windows.values - windows.middle[..., None]) <= 30)
    return numpy.where(kept, windows.values, 0).sum(axis=-1) / kept.sum(axis=-1)


def _wiener(windows):
    """Lim, 1990, equation 9.44."""
    count = windows.there.sum(axis=-1)
    mean = numpy.where(windows.there, windows.values, 0).sum(axis=-1) / count
    apart = numpy.where(windows.there, windows.values - mean[..., None], 0)
    variance = (apart**2).sum(axis=-1) / count
    part = numpy.where(variance <= 500, 0, 1 - 500 / variance)
    return mean + part * (windows.middle - mean)


def _neighbours(windows):
    """The pixel itself stands in the place of a neighbour that is not there."""
    return numpy.where(windows.there, windows.values, windows.middle[..., None])


def _sum(weights):
    return lambda windows: (_neighbours(windows) * numpy.ravel(weights)).sum(axis=-1)


def _length(kernels):
    return lambda windows: numpy.sqrt(sum(_sum(weights)(windows) ** 2 for weights in kernels))


def _kirsch(windows):
    round_about = [0, 1, 2, 5, 8, 7, 6, 3]
    found = []
    for turn in range(8):
        weights = numpy.zeros(9)
        weights[round_about] = numpy.roll([5, 5, 5, -3, -3, -3, -3, -3], turn)
        found.append(_sum(weights)(windows))
    return numpy.max(found, axis=0)
