"""Imports go one way, and `import mha` stays light. Read from the source, module by module."""

import ast
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

import mha

PACKAGE = Path(mha.__file__).parent
# Along the data: a module may import from its own level and from those before it.
LEVELS = [
    {"heads", "masks", "conventions", "moments"},
    {"attention", "gradients"},
    {"backends", "conversion"},
    {"layer"},
    {"cache", "pruning", "block", "bert"},
    {"experiments", "bench", "exercises", "testing", "initialisation"},
]
LEVEL = {name: level for level, names in enumerate(LEVELS) for name in names}
CORE = set().union(*LEVELS[:4])
MODELS = {"backends", "conversion", "layer"}.union(*LEVELS[4:])
NUMPY_ONLY = {"reference", "patterns"}
DRAWING = {"plotting", "widgets"}
LEAVES = {"checkpoint", "data", "example", "notebook"}  # files, numbers and text: nothing of mha
ROOT = "mha"  # `import mha` inside the package: it brings the layer, and may go round in a circle
HEAVY = [
    "matplotlib", "seaborn", "ipywidgets", "anywidget", "transformers", "tokenizers",
    "safetensors", "IPython",
]  # fmt: skip


def dotted(path):
    """Return the module's name below the package: reference/loops.py is reference.loops."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {dotted(path): path for path in sorted(PACKAGE.rglob("*.py"))}
NAMES = set(SOURCES)  # "" is mha/__init__.py


def imported(source, module=""):
    """Return what a source text imports: names below the package, and other top-level packages."""
    own, others = set(), set()
    is_package = module in SOURCES and SOURCES[module].name == "__init__.py"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            full = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                inside = module.split(".") if module else []
                up = node.level - 1 if is_package else node.level
                inside = inside[: len(inside) - up]
                base = ".".join(["mha", *inside, *([base] if base else [])])
            full = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in full:
            top, _, rest = name.partition(".")
            if top != "mha":
                others.add(top)
                continue
            while rest and rest not in NAMES:  # mha.heads.split_heads is a name in mha.heads
                rest = rest.rpartition(".")[0]
            own.add(rest or ROOT)
    return own, others


GRAPH = {name: imported(path.read_text("utf-8"), name) for name, path in SOURCES.items()}


def top(name):
    return name.partition(".")[0]


def complaints(module, own, others):
    """Say which rules of direction a module breaks."""
    here, targets = top(module), {top(name) for name in own}
    outside = others - set(sys.stdlib_module_names)
    found = []
    if here in LEVEL:
        later = {name for name in targets if LEVEL.get(name, -1) > LEVEL[here]}
        found += [f"mha.{module} imports mha.{name}, which comes later" for name in later]
        if ROOT in targets and LEVEL[here] < 5:
            found.append(f"mha.{module} imports mha itself; import from the module that defines it")
    if here in CORE:
        found += [f"mha.{module} imports {name}" for name in outside - {"torch", "numpy"}]
        found += [f"mha.{module} imports mha.{name}" for name in targets - CORE - {ROOT}]
    if here in NUMPY_ONLY:
        found += [f"mha.{module} imports {name}; numpy only" for name in outside - {"numpy"}]
        found += [f"mha.{module} imports mha.{name}" for name in targets - NUMPY_ONLY]
    if here in LEAVES:
        found += [f"mha.{module} imports mha.{name}" for name in targets - {here}]
    if here in DRAWING:
        found += [f"mha.{module} imports mha.{name}, a model" for name in targets & MODELS]
        if ROOT in targets:
            found.append(f"mha.{module} imports mha itself, and with it the layer")
    return sorted(found)


@pytest.mark.parametrize("module", sorted(NAMES - {""}))
def test_imports_go_one_way(module):
    assert complaints(module, *GRAPH[module]) == []


def test_there_is_no_circle():
    graph = {module or ROOT: own - {module} for module, (own, _) in GRAPH.items()}
    order = list(graphlib.TopologicalSorter(graph).static_order())
    assert order.index("heads") < order.index("layer") < order.index(ROOT)


def test_the_package_is_read():
    assert {"heads", "masks", "attention", "backends", "layer", "reference.loops"} <= NAMES
    assert GRAPH["layer"] == (
        {"attention", "backends", "conversion", "heads", "masks"},
        {"torch"},
    )
    assert GRAPH["gradients"] == (set(), {"torch"})
    assert GRAPH["reference.backward"] == ({"reference.forward"}, {"math", "numpy", "typing"})
    assert GRAPH["conversion"] == ({"heads"}, {"math", "torch"})
    assert GRAPH["reference.loops"] == (set(), {"math", "numpy"})


@pytest.mark.parametrize(
    ("module", "line", "complaint"),
    [
        ("heads", "from mha.layer import MultiHeadAttention", "mha.layer, which comes later"),
        ("heads", "from .layer import MultiHeadAttention", "mha.layer, which comes later"),
        ("attention", "import mha.backends", "mha.backends, which comes later"),
        ("conversion", "from mha.layer import MultiHeadAttention", "mha.layer, which comes later"),
        ("conversion", "import transformers", "imports transformers"),
        ("conventions", "import mha.attention", "mha.attention, which comes later"),
        ("masks", "def f():\n    from mha import split_heads", "imports mha itself"),
        ("layer", "import einops", "imports einops"),
        ("layer", "from mha import plotting", "imports mha.plotting"),
        ("reference.loops", "import torch", "torch; numpy only"),
        ("reference.loops", "from ..masks import causal_mask", "imports mha.masks"),
        ("patterns", "from mha.heads import split_heads", "imports mha.heads"),
        ("checkpoint", "from mha.layer import MultiHeadAttention", "imports mha.layer"),
        ("plotting", "from mha.layer import MultiHeadAttention", "mha.layer, a model"),
        ("widgets.base", "from mha import MultiHeadAttention", "imports mha itself"),
    ],
)
def test_a_wrong_import_is_noticed(module, line, complaint):
    found = complaints(module, *imported(line, module))
    assert any(complaint in text for text in found), found


def test_import_mha_loads_nothing_heavy():
    code = (
        "import sys, mha; assert {'torch', 'numpy'} <= set(sys.modules); "
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=PACKAGE.parent,
    )
    assert done.stdout.strip() == "[]"


def test_public_names():
    assert mha.__all__ == sorted(mha.__all__)
    for name in mha.__all__:
        assert getattr(mha, name).__doc__
