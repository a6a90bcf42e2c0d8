"""Features of GRASS and ITK by brute force, in 64 bits: a matrix for each window and direction."""

import numpy

DIRECTIONS = [(1, 0), (1, 1), (0, 1), (-1, 1)]


def counts(window, direction, count):
    """Of pairs within the window: a row for each level of the first pixel."""
    dx, dy = direction
    side = window.shape[0]
    left, right = max(0, -dx), side - max(0, dx)
    first = window[: side - dy, left:right].ravel()
    second = window[dy:, left + dx : right + dx].ravel()
    pairs = numpy.bincount(first * count + second, minlength=count * count)
    return pairs.reshape(count, count).astype("f8")


def matrix(window, direction, count):
    """Symmetric, of pairs within the window, divided by its sum."""
    pairs = counts(window, direction, count)
    return (pairs + pairs.T) / (2 * pairs.sum())


def entropy(values):
    values = values[values > 0]
    return -(values * numpy.log2(values)).sum()


def features(pairs):
    """Correlation, and the second information measure of correlation in bits, as GRASS has them."""
    number = numpy.arange(pairs.shape[0])
    margin = pairs.sum(axis=1)
    mean = (number * margin).sum()
    variance = ((number - mean) ** 2 * margin).sum()
    product = (pairs * numpy.outer(number - mean, number - mean)).sum()
    correlation = product / variance if variance > 1e-12 else 0.0
    gained = max(0.0, 2 * entropy(margin) - entropy(pairs))
    return correlation, numpy.sqrt(1 - numpy.exp(-2 * gained))


def of_grass(levels, side):
    """Means of the four directions for every window within the image."""
    windows = numpy.lib.stride_tricks.sliding_window_view(levels.astype("i8"), (side, side))
    height, width = windows.shape[:2]
    count = int(levels.max()) + 1
    found = numpy.zeros((2, height, width))
    for y in range(height):
        for x in range(width):
            made = [features(matrix(windows[y, x], direction, count)) for direction in DIRECTIONS]
            found[:, y, x] = numpy.mean(made, axis=0)
    return {"correlation": found[0], "information-measure-2": found[1]}


def features_of_first(pairs):
    """ITK's features that have the first level's mean and variance for both levels of a pair."""
    count = pairs.shape[0]
    number = numpy.arange(count)
    margin = pairs.sum(axis=1)
    mean = (number * margin).sum()
    variance = ((number - mean) ** 2 * margin).sum()
    first, second = numpy.meshgrid(number - mean, number - mean, indexing="ij")
    # ITK divides by 1 where the variance is 0, and the sum is 0 there.
    correlation = (first * second * pairs).sum() / variance**2 if variance > 1e-12 else 0.0
    both = first + second
    of_margin = ((margin - 1 / count) ** 2).sum() / count
    product = (numpy.outer(number, number) * pairs).sum() - 1 / count**2
    # Where every level is as frequent ITK divides by 0; the toolkit then says 0.
    haralick = product / of_margin if of_margin > 1e-15 else 0.0
    return correlation, (both**3 * pairs).sum(), (both**4 * pairs).sum(), haralick


def of_itk(levels, side, count):
    """Of one matrix of four directions for every window within the image. ITK's offsets point backwards."""
    windows = numpy.lib.stride_tricks.sliding_window_view(levels.astype("i8"), (side, side))
    height, width = windows.shape[:2]
    found = numpy.zeros((4, height, width))
    for y in range(height):
        for x in range(width):
            pairs = sum(counts(windows[y, x], direction, count) for direction in DIRECTIONS).T
            found[:, y, x] = features_of_first(pairs / pairs.sum())
    names = ["first-correlation", "first-cluster-3", "first-cluster-4", "first-haralick-correlation"]
    return dict(zip(names, found))
