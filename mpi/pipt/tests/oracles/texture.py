"""Features of co-occurrence beside their definitions, a matrix for each window, and beside scikit-image's matrices.

Types, bands, missing pixels and edges go through the whole command here, with few levels and small windows; the tests
of pipt-simd compare large windows and many levels, and `mpi/bench/equal.py` compares with GRASS, Orfeo ToolBox and ITK.
"""

import numpy
from skimage.feature import graycomatrix

from common import TYPES, framed, image, outside, run, with_holes

OFFSETS = [(1, 0), (1, 1), (0, 1), (-1, 1)]
EDGES = ["reflect", "mirror", "replicate", "constant", "shrink", "nodata"]
NODATA = 120
VALUE = 7
SHAPE = (19, 26)
LEVELS = 6
# Of a whole window's numbers results have 32 bits.
CLOSE = {"relative": 1e-5, "absolute": 2e-6}


def compare(lines):
    numbers = numpy.arange(LEVELS)
    for kind in TYPES:
        bands, holes = with_holes(kind, SHAPE, NODATA)
        for edge in EDGES:
            given = {"edge": edge, "value": VALUE} if edge == "constant" else {"edge": edge}
            _all(lines, bands, holes, edge, {"pairs": "inside"}, given)
        for conventions in [
            {"pairs": "reach"}, {"combine": "sum"}, {"symmetric": False}, {"combine": "sum", "pairs": "reach"},
        ]:
            _all(lines, bands, holes, "reflect", conventions, {})
        _each(lines, bands, holes, numbers)
        _scikit_image(lines, kind)


def _all(lines, bands, holes, edge, conventions, given):
    got = run("CoOccur", bands, nodata=NODATA, window=5, levels=LEVELS, **conventions, **given)
    found = [_features(*_matrices(band, hole, edge, **conventions)) for band, hole in zip(bands, holes)]
    about = f"{bands.dtype} {conventions} {given}"
    lines.compare("CoOccur", about, got, numpy.concatenate(found), **CLOSE)


def _each(lines, bands, holes, numbers):
    """The routines of one feature, with the powers and units that they may be given."""
    apart = numpy.abs(numbers[:, None] - numbers[None, :])
    powers = [
        ("CoOccurMax", {}, lambda p, _: p.max(axis=(-1, -2))),
        ("CoOccurEnergy", {}, lambda p, _: _sum(p * p)),
        *[("CoOccurContrast", {"exponent": n}, lambda p, _, n=n: _sum(p * apart**n)) for n in (1, 2, 3, 4)],
        ("CoOccurInverseMoment", {}, lambda p, _: _sum(p / (1 + apart**2))),
        ("CoOccurInverseMoment", {"moment": "gonzalez"}, lambda p, _: _sum(p * (apart > 0) / numpy.maximum(apart, 1)**2)),
        ("CoOccurHomogeneity", {}, lambda p, _: _sum(p / (1 + apart))),
        ("CoOccurCorrelation", {}, _correlation),
        ("CoOccurEntropy", {}, lambda p, _: _entropy(p) / numpy.log(2)),
        ("CoOccurEntropy", {"logarithm": "e"}, lambda p, _: _entropy(p)),
        *[("CoOccurCluster", {"cluster": n}, lambda p, _, n=n: _cluster(p, n)) for n in (2, 3, 4)],
    ]
    for edge in EDGES:
        given = {"edge": edge, "value": VALUE} if edge == "constant" else {"edge": edge}
        matrices = [_matrices(band, hole, edge) for band, hole in zip(bands, holes)]
        for routine, more, of in powers:
            got = run(routine, bands, nodata=NODATA, window=5, levels=LEVELS, **more, **given)
            found = [_mean(of, *both) for both in matrices]
            lines.compare(routine, f"{bands.dtype} {more} {given}", got, numpy.array(found), **CLOSE)


def _matrices(band, holes, edge, pairs="inside", combine="mean", symmetric=True, half=2):
    """For each offset and pixel a matrix, which sums to 1, and whether it has any pair."""
    frame, known = framed(band, ~holes, half + 1, edge, VALUE)
    levels = _levels(frame, band[~holes])
    height, width = band.shape
    rows, columns = numpy.mgrid[half + 1 : half + 1 + height, half + 1 : half + 1 + width]
    counts = numpy.zeros((len(OFFSETS), height, width, LEVELS, LEVELS))
    own = numpy.mgrid[0:height, 0:width]
    for number, (dx, dy) in enumerate(OFFSETS):
        for y in range(-half, half + 1):
            for x in range(-half, half + 1):
                if pairs == "inside" and not (abs(x + dx) <= half and abs(y + dy) <= half):
                    continue
                first, second = (rows + y, columns + x), (rows + y + dy, columns + x + dx)
                both = known[first] & known[second]
                numpy.add.at(counts[number], (*own, levels[first], levels[second]), both)
    if symmetric:
        counts += counts.swapaxes(-1, -2)
    if combine == "sum":
        counts = counts.sum(axis=0, keepdims=True)
    total = counts.sum(axis=(-1, -2), keepdims=True)
    with numpy.errstate(invalid="ignore"):
        parts = counts / total
    there = total[..., 0, 0] > 0
    if edge == "nodata":
        there &= ~outside(band.shape, half)
    return parts, there


def _levels(samples, of):
    """Equal steps of the band's range."""
    least, most = float(of.min()), float(of.max())
    steps = numpy.floor((samples.astype("float64") - least) / ((most - least) / LEVELS))
    return numpy.clip(steps, 0, LEVELS - 1).astype(int)


def _features(parts, there):
    """The eight, of the mean over offsets."""
    apart = numpy.abs(numpy.subtract.outer(numpy.arange(LEVELS), numpy.arange(LEVELS)))
    eight = [
        lambda p, _: p.max(axis=(-1, -2)),
        lambda p, _: _sum(p * p),
        lambda p, _: _sum(p * apart**2),
        lambda p, _: _sum(p / (1 + apart**2)),
        lambda p, _: _sum(p / (1 + apart)),
        _correlation,
        lambda p, _: _entropy(p) / numpy.log(2),
        lambda p, _: _cluster(p, 2),
    ]
    return numpy.array([_mean(of, parts, there) for of in eight])


def _mean(of, parts, there):
    """An offset without pairs does not count; a pixel without any pair has no data."""
    found = numpy.where(there, of(numpy.where(there[..., None, None], parts, 1 / LEVELS**2), None), 0)
    with numpy.errstate(invalid="ignore"):
        return found.sum(axis=0) / there.sum(axis=0)


def _sum(values):
    return values.sum(axis=(-1, -2))


def _entropy(parts):
    return -_sum(parts * numpy.log(numpy.where(parts > 0, parts, 1)))


def _moments(parts):
    numbers = numpy.arange(LEVELS)
    means, variances = [], []
    for axis in (-1, -2):
        margin = parts.sum(axis=axis)
        mean = (margin * numbers).sum(axis=-1)
        means.append(mean)
        variances.append((margin * (numbers - mean[..., None]) ** 2).sum(axis=-1))
    return means, variances


def _correlation(parts, _):
    """0 where there is only one level."""
    numbers = numpy.arange(LEVELS)
    (first, second), (one, other) = _moments(parts)
    products = (numbers - first[..., None])[..., :, None] * (numbers - second[..., None])[..., None, :]
    flat = one * other < 1e-12
    return numpy.where(flat, 0, _sum(parts * products) / numpy.sqrt(numpy.where(flat, 1, one * other)))


def _cluster(parts, power):
    numbers = numpy.add.outer(numpy.arange(LEVELS), numpy.arange(LEVELS))
    (first, second), _ = _moments(parts)
    return _sum(parts * (numbers - (first + second)[..., None, None]) ** power)


def _scikit_image(lines, kind):
    """Its matrices of windows within the image, for each direction by itself."""
    samples = image(kind, seed=4, least=0, most=90, shape=SHAPE)
    half = 3
    levels = _levels(samples, samples).astype("uint8")
    got = run("CoOccur", samples, window=7, levels=LEVELS, combine="separate")
    got = got.reshape(4, 8, *SHAPE)[:, :, half:-half, half:-half] if got.shape[0] == 32 else None
    found = numpy.zeros_like(got, dtype="float64")
    turns = [0, numpy.pi / 4, numpy.pi / 2, 3 * numpy.pi / 4]
    for y in range(got.shape[2]):
        for x in range(got.shape[3]):
            window = levels[y : y + 2 * half + 1, x : x + 2 * half + 1]
            parts = graycomatrix(window, [1], turns, levels=LEVELS, symmetric=True, normed=True)[:, :, 0]
            parts = numpy.moveaxis(parts, -1, 0)[:, None, None]
            for turn in range(4):
                found[turn, :, y, x] = _features(parts[turn : turn + 1], numpy.ones((1, 1, 1), bool))[:, 0, 0]
    lines.compare("CoOccur", f"{kind} scikit-image", got, found, **CLOSE)
