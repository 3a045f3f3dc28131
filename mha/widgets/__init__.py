"""Widgets of the book: one Python file and one ``static/<name>.js`` (+ ``.css``) each."""

from .base import AttentionWidget
from .head_explorer import HeadExplorer, Sentence
from .output_mixer import OutputMixer
from .soft_lookup import SoftLookup

__all__ = ["AttentionWidget", "HeadExplorer", "OutputMixer", "Sentence", "SoftLookup"]
