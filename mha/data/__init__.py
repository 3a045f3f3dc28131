"""Small records and sentences that chapters read; each file says where it comes from."""

import json
from importlib.resources import files


def load(name):
    """The record `mha/data/<name>.json` as Python lists and dicts.

    Raises
    ------
    TypeError
        If `name` is not a str.
    ValueError
        If there is no such record; a path is no name.

    >>> sorted(load("relations"))
    ['about', 'sentences']
    """
    if not isinstance(name, str):
        raise TypeError(f"name={name!r} is not a str; give the name of a record")
    folder = files("mha.data")
    names = sorted(file.name[:-5] for file in folder.iterdir() if file.name.endswith(".json"))
    if name not in names:
        raise ValueError(f"there is no record {name!r}; there are {', '.join(names)}")
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
