"""Routines without a window, and Canny, on two bands of every type of which some pixels have no data: beside NumPy.

Values are small here; the other families compare all values of each type.
"""

import numpy

import histogram
import noise
from canny import _lines as lines_of
from common import FLOATS, TYPES, WHOLE, limits, nearly, rounded, run, table, with_holes
from windows import EDGES, VALUE, Windows, _sum

NODATA = 120
SHAPE = (27, 38)


def compare(lines):
    for kind in TYPES:
        bands, holes = with_holes(kind, SHAPE, NODATA)
        _points(lines, bands, holes)
        _two(lines, kind, bands, holes)
        _places(lines, bands)
        _canny(lines, bands, holes)
        _measures(lines, bands, holes)
        _noise(lines, bands, holes)


# A point operation on floats may make any number, and so has NaN for no data.
POINTS = ["Invert", "Gamma", "Clip", "Add", "Subtract", "Divide"]


def _same(lines, routine, about, bands, got, real, holes, none=NODATA):
    """No data stays, as the number that the result has for it."""
    none = numpy.nan if routine in POINTS and got.dtype.kind == "f" else none
    lines.compare(routine, f"{about} no data", got[holes], numpy.full(holes.sum(), none, got.dtype))
    close = {"relative": 1e-6, "absolute": 1e-12}
    if got.dtype == bands.dtype and got.dtype.kind != "f":
        nearly(lines, routine, bands, numpy.where(holes, 0, got), numpy.where(holes, 0, real))
        return
    lines.compare(routine, about, numpy.where(holes, 0, got), numpy.where(holes, 0, real), **close)


def _points(lines, bands, holes):
    wide = bands.astype("float64")
    about = bands.dtype
    _same(lines, "Invert", about, bands, run("Invert", bands, nodata=NODATA, range="0:100"), 100 - wide, holes)
    got = run("Gamma", bands, nodata=NODATA, gamma=0.7, range="0:100")
    _same(lines, "Gamma", about, bands, got, 100 * (wide / 100) ** 0.7, holes)
    got = run("Clip", bands, nodata=NODATA, least=10, most=60)
    _same(lines, "Clip", about, bands, got, numpy.clip(wide, 10, 60), holes)
    got = run("Threshold", bands, nodata=NODATA, least=20, most=60)
    _same(lines, "Threshold", about, bands, got, ((wide >= 20) & (wide <= 60)).astype("uint8"), holes, 255)
    got = run("Quantise", bands, nodata=NODATA, levels=5, range="0:100")
    # A number that is no level.
    none = got[holes][0]
    if none < 5:
        raise AssertionError(f"Quantise {about}: {none} for no data is a level")
    _same(lines, "Quantise", about, bands, got, numpy.floor(wide / 20), holes, none)
    got = run("LogExp", bands, nodata=NODATA)
    _same(lines, "LogExp", about, bands, got, numpy.log(wide), holes, numpy.nan)


def _two(lines, kind, bands, holes):
    others, gaps = with_holes(kind, SHAPE, NODATA, seed=7, most=20)
    one, other = bands.astype("float64"), others.astype("float64")
    none = holes | gaps
    real = {"Add": one + other, "Subtract": one - other, "Divide": one / other}
    for routine, found in real.items():
        got = run(routine, [bands, others], nodata=NODATA)
        collides = ~none & (rounded(found, bands.dtype) == NODATA)
        _same(lines, routine, kind, bands, numpy.where(collides, 0, got), numpy.where(collides, 0, found), none)
    got = run("Multiply", [bands, others], nodata=NODATA, type="f64")
    # What has another type has another number for no data.
    _same(lines, "Multiply", kind, bands, got.astype("float64"), one * other, none, float(got[none][0]))
    if kind in WHOLE:
        for word, of in [("and", numpy.bitwise_and), ("or", numpy.bitwise_or), ("xor", numpy.bitwise_xor)]:
            got, found = run("AndOrXor", [bands, others], nodata=NODATA, bits=word), of(bands, others)
            collides = ~none & (found == NODATA)
            _same(lines, "AndOrXor", f"{kind} {word}", bands, numpy.where(collides, 0, got),
                  numpy.where(collides, 0, found), none)


def _places(lines, bands):
    height, width = SHAPE
    about = bands.dtype
    got = run("Crop", bands, nodata=NODATA, x=3, y=5, width=20, height=11)
    lines.compare("Crop", f"{about} no data", got, bands[:, 5:16, 3:23])
    got = run("FlipRotate90", bands, nodata=NODATA, how="90")
    lines.compare("FlipRotate90", f"{about} no data", got, numpy.rot90(bands, -1, axes=(1, 2)))
    got = run("Resample", bands, nodata=NODATA, width=2 * width, height=2 * height, method="nearest")
    lines.compare("Resample", f"{about} no data", got, bands.repeat(2, axis=1).repeat(2, axis=2))
    even = bands[:, :26]
    got = run("Resample", even, nodata=NODATA, factor=0.5, method="average")
    fours = even.reshape(2, 13, 2, 19, 2).swapaxes(2, 3).reshape(2, 13, 19, 4).astype("float64")
    known = fours != NODATA
    count = known.sum(axis=-1)
    mean = numpy.where(known, fours, 0).sum(axis=-1) / numpy.maximum(count, 1)
    _same(lines, "Resample", f"{about} average", even, got, mean, count < 2)


def _canny(lines, bands, holes):
    across = numpy.outer([1, 2, 1], [-1, 0, 1])
    for edge in EDGES:
        given = {"edge": edge, "value": VALUE} if edge == "constant" else {"edge": edge}
        got = run("Canny", bands, nodata=NODATA, sigma=0, low=70, high=150, **given)
        found = []
        for band, hole in zip(bands, holes):
            windows = Windows(band.astype("float64"), ~hole, 1, edge)
            none = hole | windows.beyond
            gradients = [numpy.where(none, 0, _sum(kernel)(windows)) for kernel in (across, across.T)]
            found.append(numpy.where(none, 255, lines_of(*gradients, 70, 150)))
        lines.compare("Canny", f"{bands.dtype} {given} no data", got, numpy.array(found))


def _measures(lines, bands, holes):
    kind = bands.dtype
    low, high = limits(kind)
    stretched = run("ContrastStretch", bands, nodata=NODATA, percent=0, result="0:100")
    equal = run("HistEqualise", bands, nodata=NODATA)
    others, gaps = with_holes(kind.name, (20, 31), NODATA, seed=9, least=30, most=80)
    matched = run("HistMatch", [bands, others], nodata=NODATA)
    rows = {name: table(name, bands, nodata=NODATA) for name in ["Histogram", "Stats"]}
    for number, (band, hole) in enumerate(zip(bands, holes)):
        values, second = band[~hole], others[number][~gaps[number]]
        wide = values.astype("float64")
        put = lambda real: _put(hole, real)
        near = lambda routine, got, real: _same(lines, routine, f"{kind} no data", band, got, put(real), hole)
        near("ContrastStretch", stretched[number], 100 * (wide - wide.min()) / (wide.max() - wide.min()))
        places, counts, _ = histogram._bins(values)
        sums = numpy.cumsum(counts)
        first = sums[sums > 0][0]
        real = low + (high - low) * ((sums - first) / (sums[-1] - first))[places]
        collides = put(rounded(real, kind).astype("float64")) == NODATA
        near("HistEqualise", _apart(equal[number], hole, collides), _apart_of(real, collides, hole))
        _, wanted, middles = histogram._bins(second)
        parts, known = numpy.cumsum(counts) / counts.sum(), wanted > 0
        real = numpy.interp(parts, (numpy.cumsum(wanted) / wanted.sum())[known], middles[known])[places]
        near("HistMatch", matched[number], real)
        counted = [row[3] for row in rows["Histogram"] if row[0] == number + 1]
        expected = numpy.histogram(wide, bins=len(counted))[0]
        lines.compare("Histogram", f"{kind} no data", numpy.array(counted), expected)
        about = [number + 1, wide.size, hole.sum(), wide.min(), wide.max(), wide.mean(), wide.std()]
        lines.compare("Stats", f"{kind} no data", numpy.array(rows["Stats"][number][:7]), about, relative=1e-12)


def _put(holes, real):
    """What is found of the samples that are there, in their places."""
    found = numpy.zeros(holes.shape)
    found[~holes] = real
    return found


def _apart(got, holes, collides):
    """Without those results that happen to be the number for no data."""
    return numpy.where(collides & ~holes, 0, got)


def _apart_of(real, collides, holes):
    return numpy.where(collides[~holes], 0, real)


def _noise(lines, bands, holes):
    """Each band has noise of its own, and no data has none."""
    kind, seed = bands.dtype, noise.SEED
    real = bands.astype("float64")
    own = [{"shape": SHAPE, "band": band} for band in range(2)]
    word = numpy.array([noise.own(1, **where) for where in own])
    narrow = kind.itemsize < 4
    part = ((word >> numpy.uint64(9)).astype(float) + 0.5) / 2**23 if narrow else (word.astype(float) + 0.5) / 2**32
    many = {
        "AddUniform": (-9 + 18 * part, {"least": -9, "most": 9}),
        "AddGaussian": (numpy.array([3 * noise.normal(2, **where) for where in own]), {"deviation": 3}),
        "AddSpeckle": (numpy.array([0.1 * noise.normal(4, **where) for where in own]) * real, {"deviation": 0.1}),
    }
    word = numpy.array([noise.own(3, **where) for where in own])
    side = numpy.where(word & numpy.uint64(1), -1.0, 1.0)
    far = -numpy.log(noise.unit(word)) * 3 / numpy.sqrt(2)
    many["AddLaplacian"] = (side * far, {"deviation": 3})
    for routine, (added, parameters) in many.items():
        got = run(routine, bands, nodata=NODATA, seed=seed, **parameters)
        _kept(lines, routine, kind, got, holes)
        if str(kind) in FLOATS:
            expected, off = (real + added).astype(kind), {"absolute": 2e-4}
            lines.compare(routine, f"{kind} no data", got[~holes], expected[~holes], **off)
            continue
        there = ~holes & (numpy.abs(added - numpy.floor(added) - 0.5) >= 2e-4)
        expected = rounded(real + numpy.rint(added), kind)
        there &= expected != NODATA
        lines.compare(routine, f"{kind} no data", got[there], expected[there])
    word = numpy.array([noise.own(5, **where) for where in own])
    got = run("AddSaltPepper", bands, nodata=NODATA, probability=0.25, salt=0.75, ends="1:99", seed=seed)
    expected = numpy.where(word < 0.1875 * 2**32, 99, numpy.where(word < 0.25 * 2**32, 1, bands))
    lines.compare("AddSaltPepper", f"{kind} no data", got[~holes], expected[~holes])
    _kept(lines, "AddSaltPepper", kind, got, holes)
    got = run("AddBitError", bands, nodata=NODATA, probability=0.125, seed=seed)
    bits = bands.view(f"u{kind.itemsize}").astype(numpy.uint64)
    for bit in range(8 * kind.itemsize):
        turned = numpy.array([noise.own(256 + bit, **where) for where in own]) < 2**29
        bits ^= turned.astype(numpy.uint64) << numpy.uint64(bit)
    expected = bits.astype(f"u{kind.itemsize}").view(kind)
    # Of floats what is no number is missing, and its bits are not kept.
    there = ~holes & (expected != NODATA) & (expected == expected)
    lines.compare("AddBitError", f"{kind} no data", got[there], expected[there])
    _kept(lines, "AddBitError", kind, got, holes)


def _kept(lines, routine, kind, got, holes):
    lines.compare(routine, f"{kind} no data", got[holes], numpy.full(holes.sum(), NODATA, kind))
