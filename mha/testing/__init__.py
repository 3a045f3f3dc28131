"""The proof chain as data: one layer, computed in ways that share no code, in every setting.

y has its oracle in `mha.reference.loops`, which can be checked by eye; the gradients have theirs in
the complex step through `mha.reference.forward`, which needs no autograd.
"""

from mha.testing.cases import SETTINGS, Case, build_case
from mha.testing.comparison import Comparison, Difference, compare_implementations
from mha.testing.implementations import IMPLEMENTATIONS, Unsupported

__all__ = [
    "IMPLEMENTATIONS",
    "SETTINGS",
    "Case",
    "Comparison",
    "Difference",
    "Unsupported",
    "build_case",
    "compare_implementations",
]
