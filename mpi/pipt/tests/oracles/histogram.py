"""Histograms and measures beside NumPy's; matching and equalising beside their definitions, written with NumPy."""

import numpy

from common import TYPES, image, limits, nearly, run, table

SHAPE = (600, 700)


def compare(lines):
    for kind in TYPES:
        samples = image(kind, shape=SHAPE)
        small = image(kind, seed=2)
        narrow = image(kind, least=3, most=90)
        _histogram(lines, samples)
        _stats(lines, samples)
        for one in [samples, small, narrow]:
            _equalise(lines, one)
            _stretch(lines, one)
        _match(lines, small, narrow)
        _match(lines, narrow, samples)
        _match(lines, samples, small)
    _missing(lines)


def _rows(lines, routine, about, got, expected, **tolerance):
    lines.compare(routine, about, numpy.array(got), numpy.array(expected, dtype="float64"), **tolerance)


def _histogram(lines, samples):
    for bins in [1, 7, 256]:
        counts, borders = numpy.histogram(samples.astype("float64"), bins=bins)
        got = table("Histogram", samples, bins=bins)
        about = f"{samples.dtype} {bins}"
        _rows(lines, "Histogram", about, [row[3] for row in got], counts)
        _rows(lines, "Histogram", about, [row[1] for row in got], borders[:-1], relative=1e-14)
        _rows(lines, "Histogram", about, [row[2] for row in got], borders[1:], relative=1e-14)
    counts, _ = numpy.histogram(samples.astype("float64"), bins=10, range=(2, 50))
    got = table("Histogram", samples, bins=10, range="2:50")
    _rows(lines, "Histogram", f"{samples.dtype} 2:50", [row[3] for row in got], counts)


def _stats(lines, samples):
    other = samples[::-1, ::-1]
    wide, turned = samples.astype("float64"), other.astype("float64")
    squares = numpy.mean((wide - turned) ** 2)
    peak = 1.0 if samples.dtype.kind == "f" else float(numpy.iinfo(samples.dtype).max)
    about = [1, wide.size, 0, wide.min(), wide.max(), wide.mean(), wide.std()]
    _rows(lines, "Stats", samples.dtype, table("Stats", samples), [about], relative=1e-12, absolute=1e-9)
    about += [squares, 10 * numpy.log10(peak**2 / squares)]
    got = table("Stats", [samples, other])
    _rows(lines, "Stats", samples.dtype, got, [about], relative=1e-12, absolute=1e-9)


def _bins(samples, bins=65536):
    """The bin of each sample, the count of each bin, and the middle of each."""
    kind = samples.dtype
    if kind.itemsize <= 2:
        first = numpy.iinfo(kind).min
        count = 256**kind.itemsize
        places = samples.astype("int64") - first
        middles = numpy.arange(count) + float(first)
    else:
        wide = samples.astype("float64")
        borders = numpy.linspace(wide.min(), wide.max(), bins + 1)
        count = bins
        places = numpy.minimum(numpy.searchsorted(borders, wide, side="right") - 1, bins - 1)
        middles = (borders[:-1] + borders[1:]) / 2
    return places, numpy.bincount(places.ravel(), minlength=count), middles


def _equalise(lines, samples):
    places, counts, _ = _bins(samples)
    sums = numpy.cumsum(counts)
    first = sums[sums > 0][0]
    low, high = limits(samples.dtype)
    real = low + (high - low) * ((sums - first) / (sums[-1] - first))[places]
    nearly(lines, "HistEqualise", samples, run("HistEqualise", samples), real)


def _match(lines, samples, other):
    places, counts, _ = _bins(samples)
    _, others, middles = _bins(other)
    parts = numpy.cumsum(counts) / counts.sum()
    known = others > 0
    real = numpy.interp(parts, (numpy.cumsum(others) / others.sum())[known], middles[known])[places]
    nearly(lines, "HistMatch", samples, run("HistMatch", [samples, other]), real)


def _stretch(lines, samples):
    wide = samples.astype("float64")
    low, high = limits(samples.dtype)
    for percent in [0, 2, 12.5]:
        least = numpy.percentile(wide, percent, method="lower")
        most = numpy.sort(wide, axis=None)[wide.size - 1 - int(percent / 100 * (wide.size - 1))]
        real = low + (high - low) * numpy.clip((wide - least) / (most - least), 0, 1)
        got = run("ContrastStretch", samples, percent=percent)
        nearly(lines, "ContrastStretch", samples, got, real)
    real = 10 + 40 * numpy.clip((wide - 5) / (60 - 5), 0, 1)
    got = run("ContrastStretch", samples, range="5:60", result="10:50")
    nearly(lines, "ContrastStretch", samples, got, real)


def _missing(lines):
    """What has no data counts for nothing, and stays; bands are looked at each by itself."""
    bands = numpy.stack([image("uint8", seed, least=0, most=200) for seed in range(2)])
    expected = numpy.zeros_like(bands)
    for to, band in zip(expected, bands):
        there = band != 0
        counts = numpy.bincount(band[there], minlength=256)
        sums = numpy.cumsum(counts)
        first = sums[sums > 0][0]
        real = 255 * ((sums - first) / (sums[-1] - first))
        to[there] = numpy.rint(real).astype("uint8")[band[there]]
    got = run("HistEqualise", bands, nodata=0)
    lines.compare("HistEqualise", "missing pixels", numpy.where(bands == 0, 0, got), expected)
    rows = table("Stats", bands, nodata=0)
    expected = [[1 + n, (band != 0).sum(), (band == 0).sum()] for n, band in enumerate(bands)]
    _rows(lines, "Stats", "missing pixels", [row[:3] for row in rows], expected)
