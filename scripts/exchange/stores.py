"""The files with weights in a folder of transformers, and their tensors by name."""
import os

from . import torchfile
from .files import read_json, regular
from .process import bad, say, shown
from .weights import Stored

FILES = ("model.safetensors", "pytorch_model.bin")  # the first that is there counts, as in transformers
INDEX = ".index.json"  # behind the name of one that is in parts
ADAPTERS = ("adapter_config.json", "adapter_model.safetensors", "adapter_model.bin")


def of_folder(path):
    """Returns the file that lists a folder's tensors, and these by name, as transformers takes them: those of one file,
    or of all parts that an index names. Names on standard error what else would change them. Fails where one is no file
    of weights, or not in the folder."""
    there = [name + end for name in FILES for end in ("", INDEX) if os.path.lexists(os.path.join(path, name + end))]
    if not there:
        bad(path, f"expected its weights, {' or '.join(FILES)}, whole or in parts with {INDEX}, found none")
    if adapters := [name for name in ADAPTERS if os.path.lexists(os.path.join(path, name))]:
        say(f"{path}: an adapter stands beside the weights ({', '.join(adapters)}): it is left out; merge it first if it is "
            "wanted")
    source = os.path.join(path, there[0])
    read = of_safetensors if there[0].startswith(FILES[0]) else torchfile.of_weights
    found = {}
    for file in shards(source) if there[0].endswith(INDEX) else [there[0]]:
        found |= read(os.path.join(path, file))
    return source, found


def of_safetensors(path):
    from safetensors import safe_open
    regular(path, "a safetensors file")
    try:
        stored, found = safe_open(path, "np"), {}
        for name in stored.keys():
            tensor = stored.get_slice(name)
            found[name] = Stored(path, tensor.get_dtype(), tuple(tensor.get_shape()),
                                 lambda name=name: stored.get_tensor(name))
        return found
    except Exception as error:  # SafetensorError, and what Rust raises of names that are no text
        bad(path, f"expected a safetensors file of {os.path.getsize(path)} bytes, found one that is cut short or "
                  f"another: {error}")


def shards(index):
    """Returns the files that an index names. Fails unless each is a name in its folder."""
    table = read_json(index).get("weight_map")
    if not isinstance(table, dict) or not table:
        bad(index, f"weight_map: expected a table of tensors and files, found {shown(table)}")
    for tensor, file in table.items():
        if not isinstance(file, str) or file in ("", ".", "..") or os.path.basename(file) != file or "\0" in file:
            bad(index, f"weight_map: tensor {tensor}: expected the name of a file in this folder, found {shown(file)}")
    return sorted(set(table.values()))
