"""What both comparisons need: the image, the programs of the toolkit, GRASS and Orfeo ToolBox."""

import os
import pathlib
import shutil
import subprocess

import numpy

import waves

WORK = pathlib.Path(os.environ["PIPT_BENCH_WORK"])
PROGRAMS = pathlib.Path(os.environ["PIPT_BENCH_PROGRAMS"])
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DOCUMENT = ROOT / "docs" / "benchmarks-pipt.md"

# Window and levels of the texture lines, and the least ratio to each program with AVX-512.
TEXTURES = [(5, 8), (9, 32), (15, 64)]

GRASS_METHODS = {
    "asm": "ASM", "contrast": "Contr", "corr": "Corr", "var": "Var",
    "idm": "IDM", "entr": "Entr", "moc1": "MOC-1", "moc2": "MOC-2",
}


def photograph(side):
    """Luminance from 0 to 65535 of a square of a photograph, or of an image that is made up; and its name."""
    path = os.environ.get("PIPT_BENCH_IMAGE", "")
    if path:
        from PIL import Image

        with Image.open(path) as image:
            left = max(0, min(1500, image.width - side))
            top = max(0, min(500, image.height - side))
            box = (left, top, left + side, top + side)
            colours = numpy.asarray(image.convert("RGB").crop(box)).astype("f8")
        grey = colours @ [0.299, 0.587, 0.114] * 257
        return grey.round().astype("u2"), f"{pathlib.Path(path).name}, from ({left}, {top})"
    return numpy.stack(list(waves.rows(side))), "synthetic: waves and grain, seed 1"


def levels_of(grey, levels):
    """The image in so many grey levels, which divide the whole range."""
    return (grey.astype("u4") * levels >> 16).astype("u1")


def write(name, array):
    """A file of raw samples."""
    path = WORK / name
    array.tofile(path)
    return path


def write_tiff(name, array):
    import tifffile

    path = WORK / name
    tifffile.imwrite(path, array)
    return path


def cpu_of(command, **options):
    """Seconds of CPU time of a command and its children."""
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **options
    )
    errors = process.stderr.read().decode(errors="replace")
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{command} failed: {errors[-2000:]}")
    return usage.ru_utime + usage.ru_stime


class Grass:
    """Modules of GRASS, called without its shell, in a database of their own."""

    def __init__(self):
        base = subprocess.run(
            ["grass", "--config", "path"], check=True, capture_output=True, text=True
        ).stdout.strip()
        database = WORK / "grassdata"
        shutil.rmtree(database, ignore_errors=True)
        cpu_of(["grass", "-c", "XY", "-e", str(database)])
        settings = WORK / "gisrc"
        settings.write_text(
            f"GISDBASE: {WORK}\nLOCATION_NAME: grassdata\nMAPSET: PERMANENT\nGUI: text\n"
        )
        self.environment = os.environ | {
            "GISBASE": base,
            "GISRC": str(settings),
            "PATH": f"{base}/bin:{base}/scripts:{os.environ['PATH']}",
            "LD_LIBRARY_PATH": f"{base}/lib",
            "GRASS_OVERWRITE": "1",
            "OMP_NUM_THREADS": "1",
        }

    @staticmethod
    def is_here():
        return shutil.which("grass") is not None

    def cpu_of(self, *command):
        return cpu_of([str(word) for word in command], env=self.environment)

    def take(self, name, levels):
        """Makes a map of an image."""
        path = WORK / "grass.bin"
        levels.tofile(path)
        height, width = levels.shape
        self.cpu_of(
            "r.in.bin", f"input={path}", f"output={name}", "bytes=1",
            f"rows={height}", f"cols={width}",
            f"north={height}", "south=0", f"east={width}", "west=0",
        )
        self.cpu_of("g.region", f"raster={name}")

    def texture(self, name, window, methods):
        """CPU time of r.texture."""
        return self.cpu_of(
            "r.texture", f"input={name}", "output=t", f"size={window}", "distance=1",
            f"method={','.join(methods)}",
        )

    def copies(self, methods):
        """CPU time of reading these results and writing them again."""
        maps = [f"t_{GRASS_METHODS[method]}" for method in methods]
        return self.cpu_of(
            "r.mapcalc", ";".join(f'"copy{number}"="{name}"' for number, name in enumerate(maps))
        )

    def result(self, method, shape):
        path = WORK / "grass.bin"
        self.cpu_of("r.out.bin", "-f", f"input=t_{GRASS_METHODS[method]}", f"output={path}", "bytes=4")
        return numpy.fromfile(path, "f4").reshape(shape)


class Otb:
    """Orfeo ToolBox's application, on one thread."""

    environment = os.environ | {"ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS": "1", "OMP_NUM_THREADS": "1"}

    @staticmethod
    def is_here():
        return shutil.which("otbcli") is not None

    def texture(self, image, window, levels, result):
        """CPU time of the eight simple features of one offset, with reading and writing."""
        half = str(window // 2)
        return cpu_of(
            [
                "otbcli_HaralickTextureExtraction", "-in", str(image), "-step", "1",
                "-parameters.xrad", half, "-parameters.yrad", half,
                "-parameters.xoff", "1", "-parameters.yoff", "0",
                "-parameters.min", "0", "-parameters.max", str(levels),
                "-parameters.nbbin", str(levels), "-texture", "simple",
                "-out", str(result), "float",
            ],
            env=self.environment,
        )

    def copies(self, image, result):
        """CPU time of starting, reading the image, and writing as many results."""
        return cpu_of(
            ["otbcli_ConcatenateImages", "-il", *[str(image)] * 8, "-out", str(result), "float"],
            env=self.environment,
        )
