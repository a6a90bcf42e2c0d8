"""The plugin: one provider of Processing algorithms, made of what the command says that it has."""


def classFactory(interface):  # noqa: N802, the name is QGIS's
    from .plugin import Plugin

    return Plugin(interface)
