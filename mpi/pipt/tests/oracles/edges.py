"""Edges beside SciPy's filters in 64-bit floats."""

import numpy
from scipy import ndimage

from common import EDGES, TYPES, image, nearly, run
from means import samples_of

ROUND = [(0, 0), (0, 1), (0, 2), (1, 2), (2, 2), (2, 1), (2, 0), (1, 0)]
KERNEL = "1,2,-3,0,4/0,5,6.5,-1,2/3,-2,1,0,-7"


def compare(lines):
    for kind in TYPES:
        samples = samples_of(kind)
        wide = samples.astype("float64")
        to = "float32" if numpy.dtype(kind).itemsize <= 2 or kind == "float32" else "float64"
        for edge, mode in EDGES.items():
            given, theirs = {"edge": edge}, {"mode": mode}
            if edge == "constant":
                given["value"] = theirs["cval"] = 7
            for routine, more, real in _beside(wide, theirs):
                got = run(routine, samples, **more, **given)
                about = f"{kind} {more} {given}"
                if got.dtype != to:
                    raise AssertionError(f"{routine} {about}: {got.dtype} instead of {to}")
                scale = float(numpy.abs(wide).max())
                close = {"relative": 1e-6 if to == "float32" else 1e-12, "absolute": 1e-13 * scale}
                lines.compare(routine, about, got, real.astype(to), **close)
            for amount, threshold in [(1, 0), (2.5, 20)]:
                smooth = ndimage.gaussian_filter(wide, 1.5, **theirs)
                sharp = numpy.where(numpy.abs(wide - smooth) < threshold, wide, wide + amount * (wide - smooth))
                got = run("UnsharpMask", samples, sigma=1.5, amount=amount, threshold=threshold, **given)
                nearly(lines, "UnsharpMask", samples, got, sharp)
    _missing(lines)


def _beside(wide, theirs):
    """SciPy makes one direction of its results after the other, and takes the constant beyond the edge for what it has
    made of the first: so the image is made larger before."""
    if theirs["mode"] != "constant":
        yield from _real(wide, theirs)
        return
    larger = numpy.pad(wide, 9, constant_values=theirs["cval"])
    for routine, more, real in _real(larger, {"mode": "nearest"}):
        yield routine, more, real[9:-9, 9:-9]


def _real(wide, theirs):
    """Each routine, its parameters, and what it gives."""
    length = lambda of: numpy.hypot(of(wide, 1, **theirs), of(wide, 0, **theirs))
    yield "Sobel", {}, length(ndimage.sobel)
    yield "Prewitt", {}, length(ndimage.prewitt)
    across = numpy.array([[0, 0, 0], [0, 1, 0], [0, 0, -1.0]])
    other = numpy.array([[0, 0, 0], [0, 0, 1], [0, -1.0, 0]])
    corners = [ndimage.correlate(wide, weights, **theirs) for weights in (across, other)]
    yield "Roberts", {}, numpy.hypot(*corners)
    responses = []
    for first in range(8):
        weights = numpy.full((3, 3), -3.0)
        weights[1, 1] = 0
        for step in range(3):
            weights[ROUND[(first + step) % 8]] = 5
        responses.append(ndimage.correlate(wide, weights, **theirs))
    yield "Kirsch", {}, numpy.max(responses, axis=0)
    yield "Laplacian", {}, ndimage.laplace(wide, **theirs)
    all_round = numpy.ones((3, 3))
    all_round[1, 1] = -8
    yield "Laplacian", {"neighbours": 8}, ndimage.correlate(wide, all_round, **theirs)
    yield "LaplacianOfGaussian", {"sigma": 1.5}, ndimage.gaussian_laplace(wide, 1.5, **theirs)
    kernel = numpy.array([[float(weight) for weight in row.split(",")] for row in KERNEL.split("/")])
    yield "Convolve", {"kernel": KERNEL, "divide": 4}, ndimage.convolve(wide, kernel / 4, **theirs)


def _missing(lines):
    """In the place of a neighbour that is not there stands the pixel itself."""
    samples = image("float64", least=1, most=99)
    holes = numpy.random.default_rng(3).random(samples.shape) < 0.2
    padded = numpy.pad(numpy.where(holes, numpy.nan, samples), 1, constant_values=numpy.nan)
    height, width = samples.shape
    gradients = []
    for is_across in [True, False]:
        total = numpy.zeros_like(samples)
        for dy in (-1, 0, 1):
            for dx in (-1, 0, 1):
                along, side = (dx, dy) if is_across else (dy, dx)
                weight = along * (2 if side == 0 else 1)
                other = padded[1 + dy : 1 + dy + height, 1 + dx : 1 + dx + width]
                total += weight * numpy.where(numpy.isnan(other), samples, other)
        gradients.append(total)
    expected = numpy.where(holes, numpy.nan, numpy.hypot(*gradients))
    got = run("Sobel", numpy.where(holes, -1, samples), nodata=-1, edge="shrink")
    lines.compare("Sobel", "missing pixels", got, expected, relative=1e-12, absolute=1e-12)
