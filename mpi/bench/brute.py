"""GRASS's features by brute force, in 64 bits: a matrix for each window and direction."""

import numpy

DIRECTIONS = [(1, 0), (1, 1), (0, 1), (-1, 1)]


def matrix(window, direction, count):
    """Symmetric, of pairs within the window, divided by its sum."""
    dx, dy = direction
    side = window.shape[0]
    left, right = max(0, -dx), side - max(0, dx)
    first = window[: side - dy, left:right].ravel()
    second = window[dy:, left + dx : right + dx].ravel()
    pairs = numpy.bincount(first * count + second, minlength=count * count)
    pairs = pairs.reshape(count, count).astype("f8")
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
