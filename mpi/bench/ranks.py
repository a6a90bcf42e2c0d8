#!/usr/bin/env python3
"""Ranks beside one process: `ranks.py PIPT IMAGE.tif [PAIRS]`. Wall time, in pairs that follow each other.

Each rank computes by one thread, and is bound to a core of its own: what it writes and says would else be done by another
core, as long as that one has nothing to do. While a pair is timed, the time of all CPUs that went to other programs is read, too; a pair
with more than 5 % of it is thrown away and done again. The table of docs/benchmarks-pipt.md is written anew.

What the host of a virtual machine does cannot be read, and two CPUs may be less than twice one. So two ranks are also
compared with two processes at once, each of which does all of the work on a core of its own: half their time is what two
ranks could reach on this machine at this time.
"""

import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

DOCUMENT = pathlib.Path(__file__).resolve().parent.parent.parent / "docs" / "benchmarks-pipt.md"
BEGIN, END = "<!-- begin mpi -->\n", "<!-- end mpi -->\n"
FOREIGN_MAX = 0.05
TRIES_MAX = 6
LAUNCHERS = {
    "MPICH": ["mpirun.mpich", "-bind-to", "core"],
    "Open MPI": ["mpirun.openmpi", "--allow-run-as-root", "--bind-to", "core"],
}


def busy():
    """Seconds that all CPUs have computed since the machine's start."""
    with open("/proc/stat") as stat:
        fields = [int(field) for field in stat.readline().split()[1:]]
    user, nice, system, _, _, irq, softirq = fields[:7]
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def timed(commands, directory):
    """Seconds that commands take at once, and the part of all CPUs' time that others had meanwhile."""
    before, own, begun = busy(), resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    processes = [subprocess.Popen(words, cwd=directory, stdout=subprocess.DEVNULL) for words in commands]
    if any([process.wait() for process in processes]):
        sys.exit("A command has failed")
    took = time.monotonic() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    of_own = after.ru_utime + after.ru_stime - own.ru_utime - own.ru_stime
    foreign = max(0.0, busy() - before - of_own) / (took * os.cpu_count())
    return took, foreign


def pairs(one, other, directory, count):
    """Times of both, of pairs that were not disturbed; and the most that others had of one that counts."""
    kept, thrown, worst = [], 0, 0.0
    while len(kept) < count:
        (first, foreign), (second, foreign_too) = timed(one, directory), timed(other, directory)
        most = max(foreign, foreign_too)
        if most > FOREIGN_MAX:
            thrown += 1
            if thrown > TRIES_MAX * count:
                sys.exit("Other programs have too much of the machine for these times to mean anything")
            continue
        kept.append((first, second))
        worst = max(worst, most)
    return kept, thrown, worst


def main():
    pipt, image = (str(pathlib.Path(path).resolve()) for path in sys.argv[1:3])
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 5

    def texture(output):
        options = ["--window", "9", "--levels", "32", "--overwrite", "--threads", "1"]
        return [pipt, "texture", image, output, *options]

    at_once = [["taskset", "--cpu-list", str(core), *texture(f"{core}.tif")] for core in range(2)]
    lines, failed = [], False
    with tempfile.TemporaryDirectory(dir=pathlib.Path(image).parent) as directory:
        for name, launcher in LAUNCHERS.items():
            two = [*launcher, "-n", "2", *texture("out.tif")]
            for what, one, other, least in [
                ("1 rank : 2 ranks", [[*launcher, "-n", "1", *texture("out.tif")]], [two], 1.8),
                ("2 processes at once : 2 ranks", at_once, [two], 1.8),
                ("2 ranks, direct : gather", [two], [[*two, "--collect", "gather"]], 0.5),
            ]:
                kept, thrown, worst = pairs(one, other, directory, count)
                ratios = sorted(first / second for first, second in kept)
                ratio = statistics.median(ratios)
                seconds = [statistics.median(side) for side in zip(*kept)]
                failed |= ratio < least
                lines.append(
                    f"| {name} | {what} | {seconds[0]:.2f} : {seconds[1]:.2f} | **{ratio:.2f}** "
                    f"| {ratios[0]:.2f} to {ratios[-1]:.2f} | {least} | {count}, {thrown} thrown away | {worst:.1%} |"
                )
                print(lines[-1], flush=True)
    head = (
        "| MPI | what | s | ratio | spread | goal | pairs | foreign CPU, at most |\n"
        "|---|---|---|---|---|---|---|---|\n"
    )
    text = DOCUMENT.read_text()
    if BEGIN in text:
        before, rest = text.split(BEGIN)
        DOCUMENT.write_text(before + BEGIN + head + "\n".join(lines) + "\n" + END + rest.split(END)[1])
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
