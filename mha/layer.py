"""Multi-head attention as a layer: project → split → attend → merge → W_O."""

import torch
from torch import nn

from mha.attention import check_dropout
from mha.backends import find_backend
from mha.heads import check_count, check_flag, head_width, merge_heads, split_heads
from mha.masks import check_mask

CONVERTED = {torch.float32, torch.bfloat16, torch.float16}  # by autocast, into one of them


class MultiHeadAttention(nn.Module):
    """Let every token gather from the others through several heads at once.

    q = x W_Q, k = c W_K, v = c W_V with c = context or x; head h attends with its own d columns;
    y = [z_1 … z_H] W_O + b_O (Vaswani et al. 2017, §3.2.2). A query that may see no key has z = 0,
    hence y = b_O.

    Parameters
    ----------
    d_model : int, D, the width of x, context and y
    n_heads : int, H
    d_head : int, d; None means D / H, which must be a whole number
    bias : bool, whether the four projections add a bias
    dropout : float in [0, 1), the share of weights dropped, in training only
    backend : "loop", "explicit" or "fused" (`mha.backends`): one result up to rounding, three costs

    Raises
    ------
    TypeError, ValueError
        An argument out of range; the message says what to pass.

    Examples
    --------
    >>> layer = MultiHeadAttention(d_model=6, n_heads=2)
    >>> y, weights = layer(torch.ones(1, 3, 6), is_causal=True, return_weights=True)
    >>> y.shape, weights.shape
    (torch.Size([1, 3, 6]), torch.Size([1, 2, 3, 3]))
    """

    def __init__(
        self, d_model, n_heads, *, d_head=None, bias=False, dropout=0.0, backend="explicit"
    ):
        check_count("d_model", d_model)
        check_count("n_heads", n_heads)
        if d_head is not None:
            check_count("d_head", d_head)
        check_flag("bias", bias)
        check_dropout(dropout)
        find_backend(backend)
        super().__init__()
        self.d_model = d_model
        self.n_heads = n_heads
        self.d_head = head_width("d_model", d_model, n_heads) if d_head is None else d_head
        self.dropout = float(dropout)
        self.backend = backend
        width = n_heads * self.d_head  # H d, all heads side by side
        # nn.Linear stores each matrix transposed: the W_Q of the formula is q_proj.weight.T
        self.q_proj = nn.Linear(d_model, width, bias=bias)
        self.k_proj = nn.Linear(d_model, width, bias=bias)
        self.v_proj = nn.Linear(d_model, width, bias=bias)
        self.out_proj = nn.Linear(width, d_model, bias=bias)
        self.reset_parameters()

    def reset_parameters(self):
        """Draw each matrix Xavier-uniform on its own and set the biases to 0.

        With H·d = D this gives the scaled logits of a normalised x variance 1. One matrix packed
        from W_Q, W_K and W_V would look wider to Xavier and give a quarter of it.
        """
        for projection in (self.q_proj, self.k_proj, self.v_proj, self.out_proj):
            nn.init.xavier_uniform_(projection.weight)
            if projection.bias is not None:
                nn.init.zeros_(projection.bias)

    def forward(
        self, x, context=None, *, mask=None, is_causal=False, head_gate=None, return_weights=False
    ):
        """Attend from x to context, or to x itself.

        Parameters
        ----------
        x : Tensor, B T D, the tokens that ask
        context : Tensor, B S D, the tokens that answer; None means x
        mask : bool Tensor, (T, S) or broadcasting to (B, H, T, S), True = may attend; or None
        is_causal : bool; and-ed with `mask`: the last query sees the last key
        head_gate : real Tensor, H or B H; multiplies each head's z, and learns if it is a parameter
        return_weights : bool; "fused" then computes them beside its result, at T·S cost

        Returns
        -------
        y : Tensor, B T D; or (y, weights) with weights B H T S, before dropout and gate

        Raises
        ------
        TypeError, ValueError
            Before anything is computed; the message says what to pass.
        """
        context = x if context is None else context
        self._check_inputs(x, context, mask, is_causal, head_gate, return_weights)
        q = split_heads(self.q_proj(x), self.n_heads)  # B H T d
        k = split_heads(self.k_proj(context), self.n_heads)  # B H S d
        v = split_heads(self.v_proj(context), self.n_heads)  # B H S d
        attend = find_backend(self.backend)
        z, weights = attend(
            q,
            k,
            v,
            mask,
            dropout=self.dropout if self.training else 0.0,
            is_causal=is_causal,
            return_weights=return_weights,
        )  # B H T d, B H T S
        if head_gate is not None:
            z = z * head_gate[..., None, None].to(z.dtype)  # (B) H 1 1
        y = self.out_proj(merge_heads(z))  # B T D
        return (y, weights) if return_weights else y

    def extra_repr(self):
        return (
            f"d_model={self.d_model}, n_heads={self.n_heads}, d_head={self.d_head}, "
            f"dropout={self.dropout}, backend={self.backend!r}"
        )

    def _check_inputs(self, x, context, mask, is_causal, head_gate, return_weights):
        self._check_tokens("x", x, "(B, T, D)", self.q_proj)
        self._check_tokens("context", context, "(B, S, D)", self.k_proj)
        batch, n_queries, _ = x.shape
        if context.shape[0] != batch:
            raise ValueError(
                f"context has batch size {context.shape[0]}, x has {batch}; pass one context for "
                "each sequence, or repeat one with context.expand(len(x), -1, -1)"
            )
        check_mask(mask, (batch, self.n_heads, n_queries, context.shape[1]))
        check_flag("is_causal", is_causal)
        check_flag("return_weights", return_weights)
        if head_gate is None:
            return
        if not isinstance(head_gate, torch.Tensor):
            kind = type(head_gate).__name__
            raise TypeError(f"head_gate is a {kind}; pass a tensor, one number for each head")
        if head_gate.is_complex():
            raise TypeError(f"head_gate has dtype {head_gate.dtype}; pass real numbers")
        if head_gate.shape not in ((self.n_heads,), (batch, self.n_heads)):
            raise ValueError(
                f"head_gate has shape {tuple(head_gate.shape)}; pass (H,) = ({self.n_heads},) or "
                f"(B, H) = ({batch}, {self.n_heads})"
            )

    def _check_tokens(self, name, x, axes, projection):
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"{name} is a {type(x).__name__}; pass a torch tensor, {axes}")
        if x.ndim != 3:
            hint = f"; add a batch axis: {name}[None]" if x.ndim == 2 else ""
            raise ValueError(f"{name} has shape {tuple(x.shape)}; the layer takes {axes}{hint}")
        if x.shape[-1] != self.d_model:
            raise ValueError(
                f"{name} has width {x.shape[-1]}, but the layer has d_model={self.d_model}; "
                f"pass {axes} with D={self.d_model}, or build the layer for {x.shape[-1]}"
            )
        weight = getattr(projection, "weight", None)
        if not isinstance(weight, torch.Tensor):
            return  # a wrapped or quantised projection knows for itself what it takes
        dtype = weight.dtype
        kind = x.device.type
        autocast = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
        converted = autocast and {x.dtype, dtype} <= CONVERTED
        if x.dtype != dtype and not converted:
            raise TypeError(
                f"{name} has dtype {x.dtype}, the layer's weights have {dtype}; convert one: "
                f"{name}.to({dtype}) or layer.to({name}.dtype)"
            )
