"""Multi-head attention as a layer: project → split → attend → merge → W_O."""

import torch
from torch import nn

from mha.attention import check_dropout
from mha.backends import find_backend
from mha.conversion import fill, is_plain, read_bert, read_torch, write_torch
from mha.heads import check_count, check_flag, head_width, merge_heads, share_heads, split_heads
from mha.masks import check_mask

CONVERTED = {torch.float32, torch.bfloat16, torch.float16}  # by autocast, into one of them


class MultiHeadAttention(nn.Module):
    """Let every token gather from the others through several heads at once.

    q = x W_Q in H heads, k = c W_K and v = c W_V in K heads, with c = context or x. Head h attends
    with its own d columns of q and with key/value head g = ⌊h K/H⌋: z_h = softmax(q_h k_gᵀ/√d) v_g;
    y = [z_0 … z_(H−1)] W_O + b_O (Vaswani et al. 2017, §3.2.2). K < H is grouped-query attention
    (Ainslie et al. 2023, §2.2), K = 1 multi-query (Shazeer 2019, §3). A query that may see no key
    has z = 0, hence y = b_O. What is no valid argument raises TypeError or ValueError.

    Parameters
    ----------
    d_model : int, D, the width of x and y
    n_heads : int, H, the query heads
    n_kv_heads : int, K, the key/value heads, a divisor of H; None means H
    d_head : int, d; None means D / H, which must be a whole number
    d_context : int, the width of context; None means D; with any other a context must be passed
    bias : bool, whether the four projections add a bias
    dropout : float in [0, 1), the share of weights dropped, in training only
    backend : "loop", "explicit" or "fused" (`mha.backends`): one result up to rounding, three costs

    Examples
    --------
    >>> layer = MultiHeadAttention(d_model=6, n_heads=2)
    >>> y, weights = layer(torch.ones(1, 3, 6), is_causal=True, return_weights=True)
    >>> y.shape, weights.shape
    (torch.Size([1, 3, 6]), torch.Size([1, 2, 3, 3]))
    """

    def __init__(
        self, d_model, n_heads, *, n_kv_heads=None, d_head=None, d_context=None, bias=False,
        dropout=0.0, backend="explicit",
    ):  # fmt: skip
        d_model, n_heads = check_count("d_model", d_model), check_count("n_heads", n_heads)
        if n_kv_heads is None:
            n_kv_heads = n_heads
        n_kv_heads = n_heads // head_width("n_heads", n_heads, n_kv_heads, "n_kv_heads")
        if d_head is None:
            d_head = head_width("d_model", d_model, n_heads)
        d_head = check_count("d_head", d_head)
        d_context = d_model if d_context is None else check_count("d_context", d_context)
        check_flag("bias", bias)
        check_dropout(dropout)
        find_backend(backend)
        super().__init__()
        self.d_model = d_model
        self.n_heads = n_heads
        self.n_kv_heads = n_kv_heads
        self.d_head = d_head
        self.d_context = d_context
        self.dropout = float(dropout)
        self.backend = backend
        width, kv_width = n_heads * d_head, n_kv_heads * d_head  # H d and K d: heads side by side
        # nn.Linear stores each matrix transposed: the W_Q of the formula is q_proj.weight.T
        self.q_proj = nn.Linear(d_model, width, bias=bias)
        self.k_proj = nn.Linear(d_context, kv_width, bias=bias)
        self.v_proj = nn.Linear(d_context, kv_width, bias=bias)
        self.out_proj = nn.Linear(width, d_model, bias=bias)
        self.reset_parameters()

    def reset_parameters(self):
        """Draw each matrix Xavier-uniform on its own and set the biases to 0.

        With H·d = K·d = D this gives the scaled logits of a normalised x variance 1. One matrix
        packed from W_Q, W_K and W_V would look wider to Xavier and give a quarter of it; the W_K of
        fewer heads, K < H, looks narrower and gives 2D / (D + K·d), up to twice as much.
        """
        for projection in (self.q_proj, self.k_proj, self.v_proj, self.out_proj):
            nn.init.xavier_uniform_(projection.weight)
            if projection.bias is not None:
                nn.init.zeros_(projection.bias)

    @classmethod
    def from_torch(cls, module, backend="explicit"):
        """Copy an nn.MultiheadAttention: its weights, function, dropout, dtype, device and mode.

        The copy takes B T D, whatever the module's `batch_first` says. Their masks mean opposites,
        see `to_torch_mha`; and where a query may see no key, the module can give NaN.

        Raises
        ------
        TypeError, ValueError
            Another module; kdim and vdim that differ; add_bias_kv or add_zero_attn.

        Examples
        --------
        >>> module, x = nn.MultiheadAttention(6, 2, batch_first=True), torch.ones(1, 3, 6)
        >>> torch.allclose(MultiHeadAttention.from_torch(module)(x), module(x, x, x)[0], atol=1e-6)
        True
        """
        return cls._of(*read_torch(module), backend).train(module.training)

    @classmethod
    def from_bert(cls, bert_attention, backend="explicit"):
        """Copy the BertAttention of `transformers`, such as model.encoder.layer[0].attention.

        from_bert(a)(x) equals a.output.dense(a.self(x)[0]): W_O lives in a.output, beside the sum
        and the norm that follow the layer. RoBERTa's and ELECTRA's are taken too; cross-attention
        is asked with a context.

        Raises
        ------
        TypeError, ValueError
            Another module, or one that computes another function; the message says which.
        """
        return cls._of(*read_bert(bert_attention), backend).train(bert_attention.self.training)

    def to_torch(self):
        """Copy the layer to an nn.MultiheadAttention(batch_first=True) of D / d heads.

        Key/value heads are repeated for the query heads that share them, heads that are missing
        where H·d < D are zero, and so are biases that are missing beside others.

        Raises
        ------
        TypeError, ValueError
            A projection that is no nn.Linear; H·d > D, or a d that does not divide D.

        Examples
        --------
        >>> MultiHeadAttention(6, 1, d_head=2).to_torch().num_heads
        3
        """
        if not is_plain(self, MultiHeadAttention):
            raise TypeError(
                f"layer is a {type(self).__name__} with a forward of its own or hooks, which "
                "nn.MultiheadAttention has no place for; load its weights into a MultiHeadAttention"
            )
        return write_torch(self)

    @classmethod
    def _of(cls, arguments, tensors, backend):
        with torch.device("meta"):  # neither memory nor random numbers: `tensors` has every value
            layer = cls(**arguments, backend=backend)
        return fill(layer, tensors)

    def forward(
        self, x, context=None, *, mask=None, is_causal=False, head_gate=None, return_weights=False
    ):
        """Attend from x to context, or to x itself.

        Parameters
        ----------
        x : Tensor, B T D, the tokens that ask
        context : Tensor, B S d_context, the tokens that answer; None means x
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
        context = self._own_context(x) if context is None else context
        self._check_inputs(x, context, mask, is_causal, head_gate, return_weights)
        q = split_heads(self.q_proj(x), self.n_heads)  # B H T d
        k = split_heads(self.k_proj(context), self.n_kv_heads)  # B K S d
        v = split_heads(self.v_proj(context), self.n_kv_heads)  # B K S d
        k, v = share_heads(k, self.n_heads), share_heads(v, self.n_heads)  # B H S d
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
        shared = f"n_kv_heads={self.n_kv_heads}, " if self.n_kv_heads != self.n_heads else ""
        other = f"d_context={self.d_context}, " if self.d_context != self.d_model else ""
        return (
            f"d_model={self.d_model}, n_heads={self.n_heads}, {shared}d_head={self.d_head}, "
            f"{other}dropout={self.dropout}, backend={self.backend!r}"
        )

    def _own_context(self, x):
        if self.d_context != self.d_model:
            raise ValueError(
                f"context is missing, and x cannot stand in: the layer has d_model={self.d_model} "
                f"and d_context={self.d_context}; pass a context, (B, S, d_context)"
            )
        return x

    def _check_inputs(self, x, context, mask, is_causal, head_gate, return_weights):
        self._check_tokens("x", x, "T", self.q_proj, "d_model")
        size = "d_model" if self.d_context == self.d_model else "d_context"
        self._check_tokens("context", context, "S", self.k_proj, size)
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

    def _check_tokens(self, name, x, count, projection, size):
        width, letter = getattr(self, size), "D" if size == "d_model" else size
        axes = f"(B, {count}, {letter})"
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"{name} is a {type(x).__name__}; pass a torch tensor, {axes}")
        if x.ndim != 3:
            hint = f"; add a batch axis: {name}[None]" if x.ndim == 2 else ""
            raise ValueError(f"{name} has shape {tuple(x.shape)}; the layer takes {axes}{hint}")
        if x.shape[-1] != width:
            raise ValueError(
                f"{name} has width {x.shape[-1]}, but the layer has {size}={width}; "
                f"pass {axes} with {letter}={width}, or build the layer for {x.shape[-1]}"
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
