"""Brings the provider into the registry of Processing, and out again."""

from qgis.core import QgsApplication

from .provider import Provider


class Plugin:
    def __init__(self, _interface):
        self.provider = None

    def initProcessing(self):
        self.provider = Provider()
        QgsApplication.processingRegistry().addProvider(self.provider)

    def initGui(self):
        self.initProcessing()

    def unload(self):
        if self.provider is not None:
            QgsApplication.processingRegistry().removeProvider(self.provider)
            self.provider = None
