"""The command `pipt`: where it is, what it can do, and how it is run."""

import json
import os
import shutil
import subprocess

from qgis.PyQt.QtCore import QProcess

# It answers at once; who does not is no such program.
LIST_SECONDS = 20
# How often a request to stop is looked for, and how long the program may take to end after it.
LOOK_MS = 100
END_MS = 5000


class CommandError(Exception):
    """What could not be done, as a sentence."""


def path():
    """The program: the one that the variable PIPT names, or the one on the path."""
    named = os.environ.get("PIPT", "")
    found = shutil.which(named or "pipt")
    if found is None:
        where = f"PIPT={named} is no program" if named else "The command pipt is not on the path"
        raise CommandError(f"{where}: install it (make install-pipt), or let the variable PIPT name it")
    return found


def routines():
    """What `pipt list --json` says, an object for each routine."""
    program = path()
    try:
        said = subprocess.run(
            [program, "list", "--json"], capture_output=True, text=True, timeout=LIST_SECONDS, check=True
        ).stdout
        found = [json.loads(line) for line in said.splitlines()]
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise CommandError(f"{program} list --json does not say which routines there are: {error}") from error
    if any("type" not in parameter for routine in found for parameter in routine["parameters"]):
        raise CommandError(f"{program} is older than this plugin: install the command again")
    return found


def run(job, folder, options, feedback):
    """Runs a batch file in a folder. Ends with the sentence of the program where it fails, and quietly, with False,
    where the user stops it."""
    process = QProcess()
    process.setWorkingDirectory(folder)
    process.start(path(), ["run", job, "--percent", "--quiet", "--overwrite", *options])
    if not process.waitForStarted():
        raise CommandError(f"{path()} cannot be started: {process.errorString()}")
    rest, said = b"", []
    while process.state() != QProcess.NotRunning:
        process.waitForFinished(LOOK_MS)
        rest = _take(process, rest, said, feedback)
        if feedback.isCanceled():
            process.terminate()
            if not process.waitForFinished(END_MS):
                process.kill()
                process.waitForFinished(END_MS)
            feedback.pushInfo("Stopped: the program has ended")
            return False
    _take(process, rest + b"\n", said, feedback)
    for line in bytes(process.readAllStandardOutput()).decode(errors="replace").splitlines():
        feedback.pushInfo(line)
    if process.exitStatus() != QProcess.NormalExit or process.exitCode() != 0:
        raise CommandError("\n".join(said) or f"pipt ended with {process.exitCode()} and said nothing")
    # It says nothing of what takes less than a moment.
    feedback.setProgress(100)
    return True


def _take(process, rest, said, feedback):
    """Numbers of percent move the bar; all else is kept to be shown. What is no whole line yet is given back."""
    *lines, rest = (rest + bytes(process.readAllStandardError())).split(b"\n")
    for line in lines:
        line = line.decode(errors="replace").strip()
        number, _, unit = line.partition(" ")
        if unit == "%" and number.isdigit():
            feedback.setProgress(float(number))
        elif line:
            said.append(line)
            feedback.pushInfo(line)
    return rest
