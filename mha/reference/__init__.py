"""Multi-head attention in NumPy alone, to check the rest of the package against.

Nothing here imports torch or another module of `mha`.
"""

from mha.reference import loops

__all__ = ["loops"]
