"""Multi-head attention, one definition for every chapter of the book.

The modules follow the data: x → project → split → scores → scale → mask → softmax → weighted sum
→ merge → W_O. Masks are bool, True = may attend.
"""

from mha import bert
from mha.attention import attention_scores, masked_softmax, scaled_dot_product_attention
from mha.conventions import from_additive, to_additive, to_torch_mha
from mha.gradients import (
    gradient_study,
    jacobian_norm,
    median_and_mean,
    query_gradient_norm,
    softmax_jacobian,
)
from mha.heads import merge_heads, share_heads, split_heads
from mha.layer import MultiHeadAttention
from mha.masks import causal_mask, combine_masks, padding_mask, window_mask

__all__ = [
    "MultiHeadAttention",
    "attention_scores",
    "bert",
    "causal_mask",
    "combine_masks",
    "from_additive",
    "gradient_study",
    "jacobian_norm",
    "masked_softmax",
    "median_and_mean",
    "merge_heads",
    "padding_mask",
    "query_gradient_norm",
    "scaled_dot_product_attention",
    "share_heads",
    "softmax_jacobian",
    "split_heads",
    "to_additive",
    "to_torch_mha",
    "window_mask",
]
