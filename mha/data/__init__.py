"""Small records and sentences that chapters read; each file says where it comes from."""

import json
from importlib.resources import files


def load(name):
    """The record `mha/data/<name>.json` as Python lists and dicts.

    Raises
    ------
    ValueError
        If there is no such record.

    >>> sorted(load("relations"))
    ['about', 'sentences']
    """
    folder = files("mha.data")
    if not (folder / f"{name}.json").is_file():
        names = sorted(file.name[:-5] for file in folder.iterdir() if file.name.endswith(".json"))
        raise ValueError(f"there is no record {name!r}; there are {', '.join(names)}")
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
