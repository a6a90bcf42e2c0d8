"""`classify.py FEATURES LABELS RESULT`: learns classes from labelled regions, and gives every pixel one.

Squares of the labelled regions are learned from and counted on by turns, as on a chessboard. The result has the tags of place
of the features.
"""

import sys

import numpy
import tifffile
from sklearn.ensemble import RandomForestClassifier

# GeoTIFF's: scale, tie points, matrix, keys and their values.
PLACE = [33550, 33922, 34264, 34735, 34736, 34737]

SQUARE = 8


def main():
    features, labels, result = sys.argv[1:]
    with tifffile.TiffFile(features) as file:
        bands = file.asarray()
        tags = [file.pages[0].tags[code] for code in PLACE if code in file.pages[0].tags]
    # A band a column, also of a single one.
    columns = numpy.nan_to_num(bands.reshape(-1, bands.shape[-2] * bands.shape[-1]).T)
    wanted = tifffile.imread(labels)
    y, x = numpy.indices(wanted.shape) // SQUARE
    half = numpy.where(wanted > 0, 1 + (x + y) % 2, 0)
    forest = RandomForestClassifier(100, random_state=1, class_weight="balanced", n_jobs=1)
    learned = half.ravel() == 2
    forest.fit(columns[learned], wanted.ravel()[learned])
    found = forest.predict(columns).astype("uint8").reshape(wanted.shape)
    extra = [(tag.code, int(tag.dtype), tag.count, tag.value, True) for tag in tags]
    tifffile.imwrite(result, found, extratags=extra, photometric="minisblack", compression="deflate")
    counted = half == 1
    right = (found == wanted)[counted]
    each = [(found == number)[counted & (wanted == number)].mean() for number in numpy.unique(wanted[counted])]
    print(f"{counted.sum()} {100 * right.mean():.2f} {100 * numpy.mean(each):.2f}")


if __name__ == "__main__":
    main()
