"""`classify.py FEATURES LABELS RESULT`: learns classes from labelled regions, and gives every pixel one.

Of each class every second region is learned from, and the others are what is counted on. The result has the tags of place
of the features.
"""

import sys

import numpy
import tifffile
from scipy import ndimage
from sklearn.ensemble import RandomForestClassifier

# GeoTIFF's: scale, tie points, matrix, keys and their values.
PLACE = [33550, 33922, 34264, 34735, 34736, 34737]


def main():
    features, labels, result = sys.argv[1:]
    with tifffile.TiffFile(features) as file:
        bands = file.asarray()
        tags = [file.pages[0].tags[code] for code in PLACE if code in file.pages[0].tags]
    columns = numpy.nan_to_num(numpy.moveaxis(bands, 0, -1).reshape(-1, bands.shape[0]))
    wanted = tifffile.imread(labels)
    half = numpy.zeros(wanted.shape, int)
    for number in range(1, wanted.max() + 1):
        regions, count = ndimage.label(wanted == number)
        half[regions > 0] = 1 + regions[regions > 0] % 2
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
