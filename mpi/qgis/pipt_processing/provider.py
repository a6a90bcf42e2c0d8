"""The provider: an algorithm for each routine that the installed command has."""

from qgis.core import Qgis, QgsMessageLog, QgsProcessingProvider

from . import command
from .algorithm import Algorithm


class Provider(QgsProcessingProvider):
    def id(self):
        return "pipt"

    def name(self):
        return "pipt"

    def longName(self):
        return "pipt: images of any size"

    def loadAlgorithms(self):
        try:
            routines = command.routines()
        except command.CommandError as error:
            QgsMessageLog.logMessage(str(error), "pipt", Qgis.Critical)
            return
        for routine in routines:
            self.addAlgorithm(Algorithm(routine))
