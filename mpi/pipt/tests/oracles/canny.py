"""Canny beside OpenCV for bytes, and beside SciPy's filters and labels for all types."""

import cv2
import numpy
from scipy import ndimage

from common import EDGES, TYPES, image, run
from means import samples_of

ALL_ROUND = numpy.ones((3, 3))


def compare(lines):
    _opencv(lines)
    for kind in TYPES:
        samples = samples_of(kind)
        wide = samples.astype("float64")
        scale = float(numpy.abs(wide).max())
        for edge, mode in EDGES.items():
            given, theirs = {"edge": edge}, {"mode": mode}
            if edge == "constant":
                given["value"] = theirs["cval"] = 7
            for sigma, low, high in [(0, 1.2, 3.1), (1.5, 0.2, 0.5)]:
                limits = {"low": low * scale, "high": high * scale}
                got = run("Canny", samples, sigma=sigma, **limits, **given)
                expected = _canny(wide, sigma, limits["low"], limits["high"], theirs)
                if not 0 < expected.sum() < expected.size / 2:
                    raise AssertionError(f"Canny {kind} {given} {sigma}: {expected.sum()} pixels of edges")
                lines.compare("Canny", f"{kind} {given} {sigma}", got, expected)
    _long(lines)
    _missing(lines)


def _opencv(lines):
    """Noise, smooth noise, which has long lines, and steps, which have ties."""
    noise = image("uint8")
    smooth = ndimage.gaussian_filter(noise.astype(float), 2)
    smooth = numpy.clip((smooth - smooth.mean()) * 8 + 128, 0, 255).astype("uint8")
    steps = numpy.kron(noise[::8, ::8], numpy.ones((8, 8), "uint8"))
    for about, samples in {"noise": noise, "smooth": smooth, "steps": steps}.items():
        for low, high in [(0, 0), (50, 100), (100, 300), (200, 900)]:
            got = run("Canny", samples, sigma=0, low=low, high=high, edge="replicate")
            theirs = cv2.Canny(samples, low, high, apertureSize=3, L2gradient=True)
            lines.compare("Canny", f"OpenCV {about} {low} {high}", got, (theirs > 0).astype("uint8"))


def _long(lines):
    """Larger than the tiles in which lines are looked for, which have 256 pixels: a spiral goes on across many."""
    y, x = numpy.mgrid[-550:550, -800:800].astype(float)
    spiral = 100 * numpy.sign(numpy.sin(numpy.hypot(x, y) / 40 + numpy.arctan2(y, x)))
    noise = numpy.random.default_rng(8).normal(0, 5, x.shape)
    smooth = numpy.clip(128 + spiral + noise, 0, 255).astype("uint8")
    steep = numpy.hypot(*(ndimage.sobel(smooth.astype(float), axis) for axis in (0, 1)))
    low, high = 60, int(numpy.sort(steep, None)[-3])
    got = run("Canny", smooth, block=512, sigma=0, low=low, high=high, edge="replicate")
    theirs = cv2.Canny(smooth, low, high, apertureSize=3, L2gradient=True) > 0
    found, _ = ndimage.label(theirs, ALL_ROUND)
    longest = max(places[1].stop - places[1].start for places in ndimage.find_objects(found))
    if longest <= 1000:
        raise AssertionError(f"No line is longer than a tile: {longest}")
    lines.compare("Canny", "OpenCV, larger than a tile", got, theirs.astype("uint8"))


def _canny(wide, sigma, low, high, theirs):
    if theirs["mode"] != "constant":
        return _real(wide, sigma, low, high, theirs)
    # The constant lies beyond the edge of each image that is made, as ours has it.
    smooth = wide
    if sigma:
        smooth = ndimage.gaussian_filter(numpy.pad(wide, 9, constant_values=theirs["cval"]), sigma, mode="nearest")
        smooth = smooth[9:-9, 9:-9]
    larger = numpy.pad(smooth, 1, constant_values=theirs["cval"])
    across, down = (ndimage.sobel(larger, axis)[1:-1, 1:-1] for axis in (1, 0))
    return _lines(across, down, low, high)


def _real(wide, sigma, low, high, theirs):
    smooth = ndimage.gaussian_filter(wide, sigma, **theirs) if sigma else wide
    return _lines(ndimage.sobel(smooth, 1, **theirs), ndimage.sobel(smooth, 0, **theirs), low, high)


def _lines(across, down, low, high):
    """By the angle of the gradient, in eighths of a turn."""
    squares = across**2 + down**2
    padded = numpy.pad(squares, 1)
    height, width = squares.shape

    def beside(dx, dy):
        return padded[1 + dy : 1 + dy + height, 1 + dx : 1 + dx + width]

    eighth = numpy.rint(numpy.arctan2(down, across) / (numpy.pi / 4)).astype(int) % 4
    crest = numpy.select(
        [eighth == 0, eighth == 1, eighth == 2, eighth == 3],
        [
            (squares > beside(-1, 0)) & (squares >= beside(1, 0)),
            (squares > beside(-1, -1)) & (squares > beside(1, 1)),
            (squares > beside(0, -1)) & (squares >= beside(0, 1)),
            (squares > beside(1, -1)) & (squares > beside(-1, 1)),
        ],
    ).astype(bool)
    weak = crest & (squares > low**2)
    regions, _ = ndimage.label(weak, ALL_ROUND)
    kept = numpy.unique(regions[weak & (squares > high**2)])
    return (weak & numpy.isin(regions, kept)).astype("uint8")


def _missing(lines):
    """What is missing is missing in the result, and has no gradient for its neighbours."""
    samples = image("float64", least=1, most=99)
    holes = numpy.random.default_rng(3).random(samples.shape) < 0.1
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
        gradients.append(numpy.where(holes, 0, total))
    expected = numpy.where(holes, 255, _lines(*gradients, 90, 200))
    got = run("Canny", numpy.where(holes, -1, samples), nodata=-1, edge="shrink", sigma=0, low=90, high=200)
    lines.compare("Canny", "missing pixels", got, expected)
