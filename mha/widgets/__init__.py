"""Widgets of the book: one Python file and one ``static/<name>.js`` (+ ``.css``) each."""

from .base import AttentionWidget
from .head_explorer import HeadExplorer, Sentence
from .mask_painter import MaskPainter
from .output_mixer import OutputMixer
from .scaling_explorer import ScalingExplorer
from .soft_lookup import SoftLookup
from .softmax_jacobian import SoftmaxJacobian

__all__ = [
    "AttentionWidget",
    "HeadExplorer",
    "MaskPainter",
    "OutputMixer",
    "ScalingExplorer",
    "Sentence",
    "SoftLookup",
    "SoftmaxJacobian",
]
