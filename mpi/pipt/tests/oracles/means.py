"""Means and smoothing beside SciPy's filters in 64-bit floats, and beside their definitions written with NumPy."""

import numpy
from scipy import ndimage, signal

from common import EDGES, FLOATS, TYPES, image, nearly, run

SIZES = [1, 3, 7]


def samples_of(kind, above=None):
    """Samples of which means are exact in 64-bit floats but for the last digits."""
    if kind in FLOATS:
        return image(kind, least=0.5 if above is not None else -1000, most=1000)
    limits = numpy.iinfo(kind)
    least = 1 if above is not None else max(limits.min, -(10**6))
    return image(kind, least=least, most=min(limits.max, 10**6))


def compare(lines):
    for kind in TYPES:
        samples = samples_of(kind)
        wide = samples.astype("float64")
        for edge, mode in EDGES.items():
            given, theirs = {"edge": edge}, {"mode": mode}
            if edge == "constant":
                given["value"] = theirs["cval"] = 7
            for size in SIZES:
                _windows(lines, samples, wide, {"size": size, **given}, theirs)
            for sigma in [0.5, 2]:
                got = run("GaussianSmooth", samples, sigma=sigma, **given)
                real = ndimage.gaussian_filter(wide, sigma, **theirs)
                nearly(lines, "GaussianSmooth", samples, got, real)
        _of_positive(lines, kind)
        _wiener(lines, samples, wide)
    _missing(lines)


def _windows(lines, samples, wide, given, theirs):
    size = given["size"]
    square = numpy.ones((size, size))
    cross = numpy.zeros((size, size))
    cross[size // 2, :] = cross[:, size // 2] = 1
    for routine, window in [("SquareMean", square), ("CrossMean", cross)]:
        real = ndimage.correlate(wide, window, **theirs) / window.sum()
        nearly(lines, routine, samples, run(routine, samples, **given), real)
    within = 300.5

    def near(window):
        middle = window[window.size // 2]
        return window[numpy.abs(window - middle) <= within].mean()

    real = ndimage.generic_filter(wide, near, size=size, **theirs)
    nearly(lines, "SigmaFilter", samples, run("SigmaFilter", samples, within=within, **given), real)


def _of_positive(lines, kind):
    samples = samples_of(kind, above=0)
    wide = samples.astype("float64")
    geometric = numpy.exp(ndimage.correlate(numpy.log(wide), numpy.ones((3, 3)) / 9, mode="reflect"))
    harmonic = 1 / ndimage.correlate(1 / wide, numpy.ones((3, 3)) / 9, mode="reflect")
    nearly(lines, "GeometricMean", samples, run("GeometricMean", samples), geometric)
    nearly(lines, "HarmonicMean", samples, run("HarmonicMean", samples), harmonic)
    samples[20, 30] = 0
    bad = ndimage.binary_dilation(samples <= 0, numpy.ones((3, 3)))
    nearly(lines, "GeometricMean", samples, run("GeometricMean", samples), numpy.where(bad, 0, geometric))
    nearly(lines, "HarmonicMean", samples, run("HarmonicMean", samples), numpy.where(bad, 0, harmonic))


def _wiener(lines, samples, wide):
    for size in [3, 5]:
        for noise in [None, float(wide.var()) / 2]:
            given = {} if noise is None else {"noise": noise}
            got = run("AdaptiveWiener", samples, size=size, edge="constant", value=0, **given)
            nearly(lines, "AdaptiveWiener", samples, got, signal.wiener(wide, size, noise))


def _missing(lines):
    """A mean is that of the samples that are there; with edge=shrink the image ends at its edge."""
    samples = image("float64", least=1, most=99)
    holes = numpy.random.default_rng(3).random(samples.shape) < 0.2
    there = (~holes).astype("float64")
    for routine, weights in [
        ("SquareMean", lambda a: ndimage.correlate(a, numpy.ones((3, 3)), mode="constant")),
        ("GaussianSmooth", lambda a: ndimage.gaussian_filter(a, 1.0, mode="constant")),
    ]:
        mean = weights(numpy.where(holes, 0, samples)) / weights(there)
        given = numpy.where(holes, -1, samples)
        got = run(routine, given, nodata=-1, edge="shrink")
        expected = numpy.where(holes, -1, mean)
        lines.compare(routine, "missing pixels", got, expected, relative=1e-12)
        got = run(routine, given, nodata=-1, edge="shrink", fill=True)
        lines.compare(routine, "filled pixels", got, mean, relative=1e-12)
