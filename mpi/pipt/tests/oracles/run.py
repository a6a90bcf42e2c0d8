"""`run.py PIPT [FAMILY...]`: compares routines with other programs, and prints a line for each."""

import importlib
import pathlib
import sys

import common

FAMILIES = ["texture", "windows", "missing", "order", "geometry", "histogram", "points", "means", "edges", "canny", "noise"]


def main():
    common.begin(str(pathlib.Path(sys.argv[1]).resolve()))
    lines = common.Lines()
    for family in sys.argv[2:] or FAMILIES:
        importlib.import_module(family).compare(lines)
    if not sys.argv[2:]:
        lines.check_all()
    lines.show()
    sys.exit(1 if lines.failed else 0)


if __name__ == "__main__":
    main()
