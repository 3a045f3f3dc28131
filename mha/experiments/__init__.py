"""Experiments of the chapters: each trains, and its record is what the chapter shows.

``python -m mha.experiments NAME`` runs one and writes ``mha/data/NAME.json``.
"""

# name: "module:function", imported when asked for; the function takes nothing, returns a dict
EXPERIMENTS = {
    "recall": "mha.experiments.recall:run",
    "leak": "mha.experiments.leak:run",
}
