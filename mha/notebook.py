"""What every chapter shows around its own cells: the data-flow strip and numbers for the prose."""

from html import escape

STAGES = {  # name: (what it is called on the strip, the shape that leaves it)
    "x": ("x", "B T D"),
    "project": ("project", "q k v: B T D"),
    "split": ("split", "B H T d"),
    "scores": ("scores q·k", "B H T S"),
    "scale": ("scale", "B H T S"),
    "mask": ("mask", "B H T S"),
    "softmax": ("softmax", "weights: B H T S"),
    "sum": ("weighted sum", "z: B H T d"),
    "merge": ("merge", "B T D"),
    "output": ("W_O", "y: B T D"),
}

# The strip brings its own style, so that it looks the same in Jupyter and on the site.
STYLE = """<style>
.mha-flow {display: flex; flex-wrap: wrap; gap: .5rem 1.25rem; margin: .8rem 0; padding: 0;
  list-style: none; font-family: sans-serif; font-size: .82rem; line-height: 1.3}
.mha-flow li {position: relative; margin: 0; padding: .28rem .6rem; border: 1px solid #8886;
  border-radius: .4rem}
.mha-flow li:not(:last-child)::after {content: "→"; content: "→" / ""; position: absolute;
  right: -1.1rem; top: 50%; transform: translateY(-50%)}
.mha-flow .name, .mha-flow .shape {display: block; white-space: nowrap}
.mha-flow .shape {font-family: monospace; font-size: .74rem}
.mha-flow .now {border-color: currentColor; box-shadow: inset 0 0 0 1px currentColor;
  font-weight: 600}
</style>"""


class DataFlow:
    """The strip x → project → … → W_O with some stages marked; made by `data_flow`."""

    def __init__(self, current):
        self.current = current

    def __repr__(self):
        return " → ".join(f"[{name}]" if name in self.current else name for name in STAGES)

    def _repr_html_(self):
        items = "".join(self._item(name, *texts) for name, texts in STAGES.items())
        return f'{STYLE}<ol class="mha-flow" aria-label="The data flow of the layer">{items}</ol>'

    def _item(self, stage, name, shape):
        now = ' class="now" aria-current="step"' if stage in self.current else ""
        return (f'<li{now}><span class="name">{escape(name)}</span>'
                f'<span class="shape">{escape(shape)}</span></li>')


def data_flow(*current):
    """The strip of the layer's stages, the named ones marked.

    Parameters
    ----------
    *current : str
        Stages this chapter works on: x, project, split, scores, scale, mask, softmax, sum,
        merge, output.

    Raises
    ------
    ValueError
        If a stage is unknown.

    Examples
    --------
    >>> data_flow("split")
    x → project → [split] → scores → scale → mask → softmax → sum → merge → output
    """
    for name in current:
        if name not in STAGES:
            raise ValueError(f"stage {name!r} is unknown; use one of {', '.join(STAGES)}")
    return DataFlow(current)


def glue(name, value):
    """Store a number for the prose: the text then reads it with the role ``{glue:text}`name` ``.

    Writes the output format of MyST-NB's own `glue`, without needing MyST-NB: the notebooks also
    run where only mha is installed.

    Parameters
    ----------
    name : str
        The name the prose uses; one value a name and notebook.
    value : str or number
        Shown as `str(value)`; format it first, to digits that every machine agrees on.
    """
    from IPython.display import display

    data = {"application/papermill.record/text/plain": str(value)}
    mark = {"scrapbook": {"name": name, "mime_prefix": "application/papermill.record/"}}
    display(data, metadata=mark, raw=True)
