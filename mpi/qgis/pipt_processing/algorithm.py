"""A routine as an algorithm of Processing: its parameters are those that `pipt list --json` says it has."""

import os
import tempfile

from qgis.core import (
    QgsProcessingAlgorithm,
    QgsProcessingException,
    QgsProcessingParameterBoolean,
    QgsProcessingParameterDefinition,
    QgsProcessingParameterEnum,
    QgsProcessingParameterFile,
    QgsProcessingParameterFileDestination,
    QgsProcessingParameterNumber,
    QgsProcessingParameterRasterDestination,
    QgsProcessingParameterRasterLayer,
    QgsProcessingParameterString,
)

from . import command

FAMILIES = {
    "texture": "Texture",
    "order": "Order statistics",
    "morphology": "Morphology",
    "means": "Means and smoothing",
    "edges": "Edges and sharpening",
    "points": "Point operations",
    "histogram": "Histograms and measures",
    "geometry": "Geometry",
    "noise": "Noise",
}
INPUTS = ["INPUT", "SECOND"]
OUTPUT = "OUTPUT"
TABLE = "write-table"
# Of the image that is read and of the work, for all routines.
NODATA, THREADS, MEMORY, COMPRESS = "NODATA", "THREADS", "MEMORY", "COMPRESS"
COMPRESSIONS = ["deflate", "zstd", "lzw", "none"]
NUMBERS = {"whole", "odd", "number"}
# What QGIS's fields of whole numbers can hold.
WHOLE_MOST = 2**31 - 1


def key(parameter):
    """QGIS's name of a parameter."""
    return parameter["name"].upper().replace("-", "_")


class Algorithm(QgsProcessingAlgorithm):
    def __init__(self, routine):
        super().__init__()
        self.routine = routine

    def createInstance(self):
        return Algorithm(self.routine)

    def name(self):
        return self.routine["routine"].lower()

    def displayName(self):
        return self.routine["routine"]

    def group(self):
        return FAMILIES.get(self.routine["family"], self.routine["family"])

    def groupId(self):
        return self.routine["family"]

    def shortDescription(self):
        return self.routine["about"]

    def shortHelpString(self):
        lines = [f"{parameter['name']}: {parameter['about']}" for parameter in self.routine["parameters"]]
        return "\n\n".join([self.routine["about"], *lines])

    def writes_table(self):
        return any(parameter["name"] == TABLE for parameter in self.routine["parameters"])

    def initAlgorithm(self, _configuration=None):
        count = self.routine["images"]
        for number, name in enumerate(INPUTS[: count + self.routine["optional_images"]]):
            words = ["Image", "Second image"][number]
            self.addParameter(QgsProcessingParameterRasterLayer(name, words, optional=number >= count))
        for parameter in self.routine["parameters"]:
            self.addParameter(_field(parameter))
        for parameter in _common():
            parameter.setFlags(parameter.flags() | QgsProcessingParameterDefinition.FlagAdvanced)
            self.addParameter(parameter)
        if not self.writes_table():
            self.addParameter(QgsProcessingParameterRasterDestination(OUTPUT, self.displayName()))

    def checkParameterValues(self, parameters, context):
        for parameter in self.routine["parameters"]:
            if parameter["type"] == "odd" and self.parameterAsInt(parameters, key(parameter), context) % 2 == 0:
                return False, f"{parameter['name']} is {parameter['is']}"
        return super().checkParameterValues(parameters, context)

    def processAlgorithm(self, parameters, context, feedback):
        output = None
        if not self.writes_table():
            output = self.parameterAsOutputLayer(parameters, OUTPUT, context)
        with tempfile.TemporaryDirectory(prefix="pipt-") as folder:
            lines = self._job(parameters, context, output)
            with open(os.path.join(folder, "job.txt"), "w", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n")
            feedback.pushInfo("\n".join(lines))
            options = ["--ram", self.parameterAsString(parameters, MEMORY, context)]
            threads = self.parameterAsInt(parameters, THREADS, context)
            options += ["--threads", str(threads)] if threads else []
            try:
                is_done = command.run("job.txt", folder, options, feedback)
            except command.CommandError as error:
                raise QgsProcessingException(str(error)) from error
        if not is_done:
            return {}
        results = {} if output is None else {OUTPUT: output}
        for parameter in self.routine["parameters"]:
            if _is_written(parameter):
                results[key(parameter)] = self.parameterAsFileOutput(parameters, key(parameter), context)
        return results

    def _job(self, parameters, context, output):
        """The batch file."""
        nodata = self.parameterAsString(parameters, NODATA, context).strip()
        lines, images = [], []
        for name in INPUTS[: self.routine["images"] + self.routine["optional_images"]]:
            layer = self.parameterAsRasterLayer(parameters, name, context)
            if layer is None:
                continue
            images.append(name.lower())
            source = _quoted(layer.source())
            lines.append(f"in {source} as {images[-1]}" + (f" nodata={_quoted(nodata)}" if nodata else ""))
        words = [self._word(parameters, context, parameter) for parameter in self.routine["parameters"]]
        lines.append(" ".join(["result =", self.routine["routine"], *images, *filter(None, words)]))
        if output is not None:
            compress = COMPRESSIONS[self.parameterAsEnum(parameters, COMPRESS, context)]
            lines.append(f"write result {_quoted(output)} compress={compress}")
        return lines

    def _word(self, parameters, context, parameter):
        """NAME=VALUE, or nothing where the command takes its own."""
        name, kind = key(parameter), parameter["type"]
        if kind == "yes-no":
            return f"{parameter['name']}={'yes' if self.parameterAsBool(parameters, name, context) else 'no'}"
        if kind == "choice":
            place = self.parameterAsEnum(parameters, name, context)
            words = _choices(parameter)
            value = words[place] if 0 <= place < len(words) else ""
        elif _is_written(parameter):
            value = self.parameterAsFileOutput(parameters, name, context)
        elif _is_file(parameter):
            value = self.parameterAsFile(parameters, name, context)
        else:
            if kind in NUMBERS and parameters.get(name) is None and parameter["default"] is None:
                return ""
            value = self.parameterAsString(parameters, name, context)
            # A whole number may come as a float's text.
            if kind in ("whole", "odd") and value.endswith(".0"):
                value = value[:-2]
        # What has its default is not said: with like= only what is given counts.
        if not value or value == parameter["default"]:
            return ""
        return f"{parameter['name']}={_quoted(value)}"


def _quoted(text):
    """As one word of a batch file."""
    if '"' in text or "\n" in text:
        raise QgsProcessingException(f"{text} has a quotation mark or a line's end in it, which pipt cannot read")
    return f'"{text}"' if text.startswith("#") or any(letter.isspace() for letter in text) else text


def _is_written(parameter):
    return parameter["name"].startswith("write-")


def _is_file(parameter):
    return parameter["name"] == "thresholds"


def _choices(parameter):
    """The words, and nothing where nothing is taken by itself."""
    return parameter["words"] if parameter["default"] or parameter["needed"] else ["", *parameter["words"]]


def _field(parameter):
    """QGIS's parameter for one of the command's."""
    name, kind, default = key(parameter), parameter["type"], parameter["default"]
    words = parameter["name"]
    optional = not parameter["needed"]
    if _is_written(parameter):
        ending = "Tables (*.csv)" if parameter["name"] == TABLE else "Text (*.txt)"
        return QgsProcessingParameterFileDestination(name, words, ending, optional=optional, createByDefault=not optional)
    if _is_file(parameter):
        return QgsProcessingParameterFile(name, words, optional=optional)
    if kind == "yes-no":
        return QgsProcessingParameterBoolean(name, words, default == "yes")
    if kind == "choice":
        choices = _choices(parameter)
        place = choices.index(default) if default in choices else 0
        return QgsProcessingParameterEnum(name, words, choices, defaultValue=place)
    if kind in NUMBERS and not (default is None and optional):
        least, most = parameter["least"], parameter["most"]
        whole = kind != "number"
        field = QgsProcessingParameterNumber(
            name, words, QgsProcessingParameterNumber.Integer if whole else QgsProcessingParameterNumber.Double,
            None if default is None else (int(default) if whole else float(default)), default is None and optional,
        )
        if least is not None:
            field.setMinimum(least)
        if most is not None:
            field.setMaximum(min(most, WHOLE_MOST) if whole else most)
        return field
    # Lists and ranges, and numbers that need not be there, are written as in a batch file.
    field = QgsProcessingParameterString(name, f"{words} ({parameter['is']})", default, optional=optional)
    return field


def _common():
    yield QgsProcessingParameterString(NODATA, "No data (a number, if the file does not say it)", "", optional=True)
    yield QgsProcessingParameterEnum(COMPRESS, "Compression", COMPRESSIONS, defaultValue=0)
    yield QgsProcessingParameterNumber(
        THREADS, "Threads (0: one for each CPU)", QgsProcessingParameterNumber.Integer, 0, False, 0, 1024
    )
    yield QgsProcessingParameterString(MEMORY, "Memory that may be used", "1G")
