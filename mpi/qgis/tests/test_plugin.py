"""The plugin in a real QGIS without a screen, with the real command, which PIPT names.

The image is made by GDAL: of whole numbers, with a place on the map and a number for no data.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import numpy
from osgeo import gdal, osr
from qgis.core import (
    QgsApplication, QgsProcessingContext, QgsProcessingException, QgsProcessingFeedback, QgsRasterLayer,
)

sys.path[:0] = ["/usr/share/qgis/python/plugins", str(pathlib.Path(__file__).resolve().parents[1])]

APPLICATION = QgsApplication([], False)
APPLICATION.initQgis()

import processing  # noqa: E402, it needs the application
from processing.core.Processing import Processing  # noqa: E402

Processing.initialize()

from pipt_processing import classFactory, command  # noqa: E402

PIPT = os.environ["PIPT"]
PLUGIN = classFactory(None)
PLUGIN.initProcessing()
PLACE = (500000.0, 10.0, 0.0, 5000000.0, 0.0, -10.0)


class Feedback(QgsProcessingFeedback):
    """Keeps what it is told."""

    def __init__(self):
        super().__init__(False)
        self.said = []

    def pushInfo(self, info):
        self.said.append(info)


def scene(path, side=300):
    samples = numpy.random.default_rng(1).integers(1, 1000, (2, side, side)).astype("uint16")
    samples[:, 20:30, 40:60] = 0
    made = gdal.GetDriverByName("GTiff").Create(str(path), side, side, 2, gdal.GDT_UInt16, ["TILED=YES"])
    system = osr.SpatialReference()
    system.ImportFromEPSG(32633)
    made.SetProjection(system.ExportToWkt())
    made.SetGeoTransform(PLACE)
    for number, band in enumerate(samples):
        made.GetRasterBand(number + 1).SetNoDataValue(0)
        made.GetRasterBand(number + 1).WriteArray(band)
    made.FlushCache()


class Test(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.kept = tempfile.TemporaryDirectory()
        # A blank has to be quoted on the way.
        cls.folder = pathlib.Path(cls.kept.name) / "a scene"
        cls.folder.mkdir()
        cls.scene = cls.folder / "in.tif"
        scene(cls.scene)

    @classmethod
    def tearDownClass(cls):
        cls.kept.cleanup()

    def path(self, name):
        return str(self.folder / name)

    def run_both(self, routine, options, words):
        """An algorithm, and the command itself, on the same image."""
        output, feedback = self.path(f"{routine}.tif"), Feedback()
        given = {"INPUT": str(self.scene), "OUTPUT": output, **options}
        done = processing.run(f"pipt:{routine.lower()}", given, feedback=feedback)
        job = self.folder / "job.txt"
        job.write_text(f"in in.tif as scene\nr = {routine} scene {words}\nwrite r own.tif compress=deflate\n")
        subprocess.run([PIPT, "run", str(job), "--overwrite", "--quiet"], cwd=self.folder, check=True)
        compared = subprocess.run([PIPT, "verify", output, "--against", self.path("own.tif")], cwd=self.folder)
        self.assertEqual(compared.returncode, 0, routine)
        self.assertEqual(done["OUTPUT"], output)
        return gdal.Open(output), feedback

    def test_each_routine_has_an_algorithm(self):
        listed = {routine["routine"].lower() for routine in command.routines()}
        self.assertEqual({algorithm.name() for algorithm in PLUGIN.provider.algorithms()}, listed)
        # The 63, the eight textures at once, and kernels of users.
        self.assertEqual(len(listed), 65)
        for algorithm in PLUGIN.provider.algorithms():
            self.assertTrue(algorithm.create() and algorithm.shortHelpString(), algorithm.name())

    def test_results_are_those_of_the_command_and_keep_their_place(self):
        for routine, options, words in [
            ("SquareMedian", {"SIZE": 5}, "size=5"),
            ("CoOccurEntropy", {"WINDOW": 7, "LEVELS": 16, "COMBINE": 1}, "window=7 levels=16 combine=sum"),
            ("CoOccur", {"WINDOW": 5, "LEVELS": 8, "LIKE": 1}, "window=5 levels=8 like=grass"),
            ("CoOccur", {"WINDOW": 5, "LEVELS": 8, "FEATURES": "energy,max"}, "window=5 levels=8 features=energy,max"),
            ("AddGaussian", {"SEED": 7, "DEVIATION": 2.5}, "seed=7 deviation=2.5"),
            ("Threshold", {"LEAST": "100", "MOST": "500"}, "least=100 most=500"),
            ("Convolve", {"KERNEL": "1,2,1/2,4,2/1,2,1"}, "kernel=1,2,1/2,4,2/1,2,1"),
            ("ContrastStretch", {"PERCENT": 1}, "percent=1"),
            ("Erode", {"SHAPE": 1, "EDGE": 4}, "shape=cross edge=shrink"),
        ]:
            with self.subTest(routine=routine):
                found, feedback = self.run_both(routine, options, words)
                self.assertEqual(found.GetGeoTransform(), PLACE)
                self.assertIn("UTM zone 33N", found.GetProjection())
                self.assertIsNotNone(found.GetRasterBand(1).GetNoDataValue())
                self.assertEqual(feedback.progress(), 100)
                self.assertTrue(QgsRasterLayer(found.GetDescription(), "result").isValid())

    def test_two_images_are_taken(self):
        output = self.path("sum.tif")
        given = {"INPUT": str(self.scene), "SECOND": str(self.scene), "OUTPUT": output}
        processing.run("pipt:add", given, feedback=Feedback())
        twice, once = gdal.Open(output).ReadAsArray(), gdal.Open(str(self.scene)).ReadAsArray()
        numpy.testing.assert_array_equal(twice, 2 * once)

    def test_a_table_is_written(self):
        table = self.path("stats.csv")
        done = processing.run("pipt:stats", {"INPUT": str(self.scene), "WRITE_TABLE": table}, feedback=Feedback())
        self.assertEqual(done["WRITE_TABLE"], table)
        rows = pathlib.Path(table).read_text().splitlines()
        self.assertEqual(len(rows), 3)
        band = gdal.Open(str(self.scene)).ReadAsArray()[0]
        self.assertAlmostEqual(float(rows[1].split(",")[5]), band[band > 0].mean(), places=9)

    def test_what_cannot_be_is_said(self):
        given = {"INPUT": str(self.scene), "OUTPUT": self.path("no.tif")}
        with self.assertRaisesRegex(QgsProcessingException, "an odd number from 1 to 255"):
            processing.run("pipt:squaremedian", {**given, "SIZE": 4}, feedback=Feedback())
        with self.assertRaisesRegex(QgsProcessingException, "range=high cannot be"):
            processing.run("pipt:cooccurmax", {**given, "RANGE": "high"}, feedback=Feedback())
        self.assertFalse(os.path.exists(given["OUTPUT"]))

    def test_cancelling_ends_the_program(self):
        big = self.folder / "big.tif"
        scene(big, 3000)
        algorithm = QgsApplication.processingRegistry().createAlgorithmById("pipt:cooccur")
        feedback, context = Feedback(), QgsProcessingContext()
        given = {"INPUT": str(big), "WINDOW": 31, "LEVELS": 256, "OUTPUT": self.path("big-texture.tif"), "THREADS": 1}
        ended = []
        thread = threading.Thread(target=lambda: ended.append(algorithm.run(given, context, feedback)))
        thread.start()
        deadline = time.monotonic() + 60
        # Until it is seen to have done a part.
        while feedback.progress() == 0 and thread.is_alive() and time.monotonic() < deadline:
            thread.join(0.02)
        self.assertTrue(0 < feedback.progress() < 100, feedback.said)
        self.assertEqual(len(children("pipt")), 1)
        feedback.cancel()
        thread.join(30)
        self.assertFalse(thread.is_alive())
        self.assertEqual(children("pipt"), [])
        self.assertIn("Stopped: the program has ended", feedback.said)
        self.assertFalse(os.path.exists(given["OUTPUT"]))


def children(name):
    """This process's children of that name, by /proc."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            before, after = stat.read_text().rsplit(")", 1)
        except OSError:
            continue
        if before.endswith(f"({name}") and int(after.split()[1]) == os.getpid():
            found.append(stat.parent.name)
    return found


if __name__ == "__main__":
    done = unittest.main(exit=False, verbosity=2).result
    # QGIS does not end cleanly where Python objects outlive it.
    sys.stdout.flush()
    os._exit(0 if done.wasSuccessful() else 1)
