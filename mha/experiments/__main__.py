"""Run one experiment: ``python -m mha.experiments NAME`` writes ``mha/data/NAME.json``."""

import argparse
from importlib import import_module

from mha.experiments import EXPERIMENTS, records


def main(arguments=None):
    """Run the experiment that is named and write its record."""
    parser = argparse.ArgumentParser(prog="python -m mha.experiments", description=__doc__)
    parser.add_argument("name", choices=sorted(EXPERIMENTS))
    name = parser.parse_args(arguments).name
    module, _, function = EXPERIMENTS[name].partition(":")
    run = getattr(import_module(module), function)
    print("wrote", records.write(name, run()))


if __name__ == "__main__":
    main()
