"""Records of experiments: what came out, and where, when and how it was run."""

import datetime
import json
import platform
from importlib.resources import files

import numpy as np
import torch


def provenance(name):
    """Say how a record was made: its command, the date, the device and the versions."""
    return {
        "command": f"python -m mha.experiments {name}",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "device": f"CPU, {platform.machine()}, {torch.backends.cpu.get_cpu_capability()}",
        "threads": torch.get_num_threads(),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
    }


def write(name, result, folder=None):
    """Write the record of an experiment and return its path.

    Parameters
    ----------
    name : str
        The experiment; the file is ``<name>.json``.
    result : dict
        What `json` can write, without NaN and infinity. A key "provenance" is added to it.
    folder : Path, optional
        Default: `mha/data`, where `mha.data.load` finds it.

    Raises
    ------
    ValueError
        If a number is not finite, or `result` has a provenance of its own. No file is written.
    """
    if "provenance" in result:
        raise ValueError("the result holds a key 'provenance'; leave it out, it is added here")
    record = {"provenance": provenance(name), **result}
    text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
    path = (folder or files("mha.data")) / f"{name}.json"
    path.write_text(text + "\n", encoding="utf-8")
    return path
