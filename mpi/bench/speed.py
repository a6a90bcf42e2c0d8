"""Times of the toolkit's kernels and of other programs, in turn, on one core: a line for each goal.

Both sides are measured in CPU time, in three rounds, one after the other; the median counts. A program that
is a command (GRASS, Orfeo ToolBox) reads a file and writes files: the time of a module of its own that reads the
same image, or as many results, and writes as many results is subtracted.
"""

import datetime
import functools
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import time

from common import DOCUMENT, PROGRAMS, ROOT, TEXTURES, WORK, Grass, Otb, levels_of, photograph, write, write_tiff

SIDE = 512
# Windows of the largest texture reach so far beyond.
MARGIN = 8
RANK_SIDE = 1024
# What takes SciPy or libvips seconds.
SLOW_SIDE = 512
ROUNDS = 3
WANTED = sys.argv[1:]
PEERS = pathlib.Path(__file__).parent / "peers.py"


class Line:
    """A goal: a ratio of two times. Both sides are functions that give seconds a pixel, several at a time."""

    def __init__(self, name, ours, theirs, goal):
        self.name, self.goal = name, goal
        self.sides = [ours, theirs]

    def is_wanted(self):
        return not WANTED or any(part in self.name for part in WANTED)

    def take(self, times):
        """What was measured of each side."""
        times = [times[side] for side in self.sides]
        self.speeds = [1e-6 / statistics.median(each) for each in times]
        self.ratio = self.speeds[0] / self.speeds[1]
        # How far apart the fastest and the slowest measurement of a side are.
        self.spread = max((max(each) - min(each)) / statistics.median(each) for each in times)

    def cells(self):
        verdict = "-" if self.goal is None else "yes" if self.ratio >= self.goal else "**no**"
        goal = "-" if self.goal is None else f"{self.goal:g}"
        return [
            self.name, figure(self.speeds[0]), figure(self.speeds[1]), figure(self.ratio), goal, verdict,
            f"{100 * self.spread:.0f} %",
        ]


def figure(number):
    return f"{number:.0f}" if number >= 100 else f"{number:.3g}"


def printed(command, pixels):
    """Seconds a pixel that a program printed."""
    done = subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True)
    return [float(line) / pixels for line in done.stdout.split()]


def ours(level, *rest, side=SIDE):
    return lambda: printed([PROGRAMS / "peer_speed", 3, level, *rest], side * side)


def theirs(*rest, side=SIDE, repeat=1):
    return lambda: printed([sys.executable, PEERS, repeat, *rest], side * side)


def instruction_sets():
    """The last one that this machine has, and AVX2."""
    flags = pathlib.Path("/proc/cpuinfo").read_text()
    return ["avx512", "avx2"] if "avx512bw" in flags else ["avx2"]


def of_textures(grey):
    """Against GRASS, ITK and Orfeo ToolBox, which each get the same inner square: groups of lines."""
    grass = Grass() if Grass.is_here() else None
    methods = ["asm", "contrast", "corr", "idm", "entr"]
    groups = []
    goals = zip(TEXTURES, [(20, 20, 50), (50, 20, 50), (80, 25, 50)])
    wide = SIDE + 2 * MARGIN
    for (window, count), (mean, summed, reach) in goals:
        lines = []
        levels = levels_of(grey, count)
        inner = levels[MARGIN:-MARGIN, MARGIN:-MARGIN].copy()
        path, small = write(f"wide-{count}.raw", levels), write(f"inner-{count}.raw", inner)
        tiff = write_tiff(f"inner-{count}.tif", inner)
        pixels = inner.size

        def by_grass(window=window, name=f"levels{count}"):
            taken = grass.texture(name, window, methods) - grass.copies(methods)
            return [taken / pixels]

        def by_otb(window=window, count=count, tiff=tiff):
            result = WORK / "otb.tif"
            taken = Otb().texture(tiff, window, count, result) - Otb().copies(tiff, result)
            return [taken / pixels]

        if grass:
            grass.take(f"levels{count}", inner)
        by_itk = theirs("itk", "texture", window, count, small, SIDE)
        for level in instruction_sets():
            part = 1 if level == "avx512" else 0.5

            @functools.cache
            def us(like, holes="whole", window=window, count=count, path=path, level=level):
                return ours(level, "texture", like, window, count, holes, path, wide, SIDE)

            at = f"{window}/{count}, {level}"
            if grass:
                lines.append(Line(f"mean of 4 directions, 8 features, to GRASS's 5, {at}", us("eight"), by_grass, mean * part))
                lines.append(Line(f"the same 5 features as GRASS, {at}", us("grass"), by_grass, mean * part))
            lines.append(Line(f"sum of 4 directions, 8 features, to ITK's 8, {at}", us("itk"), by_itk, summed * part))
            if Otb.is_here():
                lines.append(Line(f"1 direction, OTB's 8 features, to OTB, {at}", us("otb"), by_otb, reach * part))
            lines.append(Line(f"nodata to none, {at}", us("eight", "holes"), us("eight"), 0.75))
        groups.append(lines)
    return groups


def of_ranks(grey):
    side = RANK_SIDE
    files = {
        kind: {
            "u8": write(f"{kind}-u8.raw", (grey[:side, :side] >> 8).astype("u1")),
            "u16": write(f"{kind}-u16.raw", grey[:side, :side].astype("<u2")),
            "f32": write(f"{kind}-f32.raw", (grey[:side, :side] / 65535).astype("<f4")),
        }
        for kind, side in [("large", RANK_SIDE), ("small", SLOW_SIDE)]
    }
    level = instruction_sets()[0]

    def median(peer, size, kind, goal, files, side, what="median", repeat=3):
        return Line(
            f"{what} {size} x {size} {kind}, to {peer}",
            ours(level, what, size, kind, files[kind], side, side=side),
            theirs(peer, what, size, kind, files[kind], side, side=side, repeat=repeat),
            goal,
        )

    large, small = (files["large"], RANK_SIDE), (files["small"], SLOW_SIDE)
    lines = [median("opencv", 15, "u8", 0.8, *large)]
    for kind in ["u16", "f32"]:
        lines += [median(peer, 15, kind, 25, *small, repeat=1) for peer in ["libvips", "scipy"]]
    lines.append(
        Line(
            "AddGaussian u8, to opencv's randn and add",
            ours(level, "gaussian", 10, "u8", files["large"]["u8"], side, side=side),
            theirs("opencv", "gaussian", 10, "u8", files["large"]["u8"], side, side=side, repeat=3),
            1,
        )
    )
    lines += [median("opencv", size, "u8", None, *large) for size in [3, 5, 31, 51, 101]]
    lines += [median("opencv", size, "u16", None, *large) for size in [3, 5]]
    lines += [median("scikit-image", 15, "u8", None, *small, what="trimmed", repeat=1)]
    return [[line] for line in lines]


def cpu_times():
    """All CPU time of the machine, and what of it was not idle, in seconds."""
    fields = pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    ticks = [int(field) / os.sysconf("SC_CLK_TCK") for field in fields]
    return sum(ticks), sum(ticks) - ticks[3] - ticks[4]


def own_time():
    times = os.times()
    return sum(times[:4])


def machine():
    model = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return f"{os.cpu_count()} x {model[1] if model else platform.machine()}, Linux {platform.release()}"


def commit():
    said = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty", "--abbrev=12"], capture_output=True, text=True)
    return said.stdout.strip() or "unknown"


def versions():
    from importlib import metadata

    names = ["itk-texturefeatures", "opencv-python-headless", "pyvips-binary", "scipy", "scikit-image"]
    said = [f"{name} {metadata.version(name)}" for name in names]
    for package in ["grass-core", "otb-bin"]:
        query = subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${Version}", package], capture_output=True, text=True)
        if query.returncode == 0:
            said.append(query.stdout)
    return ", ".join(said)


def table(lines, about):
    heads = ["", "ours (Mpx/s)", "theirs (Mpx/s)", "ratio", "goal", "reached", "spread"]
    rows = [heads, ["---"] * len(heads), *[line.cells() for line in lines]]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n\n" + about + "\n"


def put(section, text):
    """Replaces a section of the document."""
    begin, end = f"<!-- begin {section} -->\n", f"<!-- end {section} -->"
    old = DOCUMENT.read_text()
    head, rest = old.split(begin, 1)
    DOCUMENT.write_text(head + begin + text + end + rest.split(end, 1)[1])


def run(groups):
    """Measures; says how busy the machine was with other things."""
    all_before, busy_before, own_before, begin = *cpu_times(), own_time(), time.monotonic()
    for lines in groups:
        # Each side once a round, though several lines look at it.
        sides = list(dict.fromkeys(side for line in lines for side in line.sides))
        times = {side: [] for side in sides}
        for number in range(ROUNDS):
            for side in sides[:: 1 - 2 * (number % 2)]:
                times[side].extend(side())
        for line in lines:
            line.take(times)
            print("  ".join(f"{cell:>6}" for cell in line.cells()), flush=True)
    all_after, busy_after = cpu_times()
    foreign = (busy_after - busy_before) - (own_time() - own_before)
    share = max(0.0, foreign / (all_after - all_before))
    return share, time.monotonic() - begin


def main():
    core = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    grey, name = photograph(max(SIDE + 2 * MARGIN, RANK_SIDE))
    wide = SIDE + 2 * MARGIN
    sections = {"texture": of_textures(grey[:wide, :wide]), "ranks": of_ranks(grey)}
    missed = []
    for section, groups in sections.items():
        groups = [[line for line in group if line.is_wanted()] for group in groups]
        lines = [line for group in groups for line in group]
        if not lines:
            continue
        share, taken = run(groups)
        missed += [line.name for line in lines if line.goal and line.ratio < line.goal]
        if not WANTED:
            about = (
                f"Measured {datetime.date.today()} at commit {commit()} on {machine()}, core {core}, "
                f"in {taken:.0f} s, foreign load {100 * share:.1f} %. Image: {name}. {versions()}."
            )
            put(section, table(lines, about))
        print(f"{section}: foreign load {100 * share:.1f} %, {taken:.0f} s", flush=True)
    for name in missed:
        print(f"Missed: {name}")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
