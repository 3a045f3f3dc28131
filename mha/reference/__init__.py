"""Multi-head attention in NumPy alone, to check the rest of the package against.

`loops` is the oracle, one number at a time; `forward` the same in arrays, one function a stage;
`backward` its gradients by hand, one function a stage again.
Nothing here imports torch or another module of `mha`.
"""

from mha.reference import backward, forward, loops

__all__ = ["backward", "forward", "loops"]
