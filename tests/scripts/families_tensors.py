"""The numbers of the models in tests/data/hf/families and gpt-bigcode, which are not kept: normal ones, always the same."""
import numpy as np


def numbers(shapes, norms_add_one):
    """Arrays of F32 by name. Norms are near 1, or near 0 where the model adds 1 (Gemma)."""
    rng, made = np.random.RandomState(11), {}  # its stream is the same in every version of NumPy
    for name in sorted(shapes):
        x = rng.normal(size=shapes[name])
        if len(shapes[name]) == 2:
            x *= 1.2 / np.sqrt(shapes[name][1]) if "emb" not in name and "wte" not in name else 0.7
        else:
            x = 0.3 * x + (name.endswith("norm.weight") or ".ln_" in name or "norm_" in name) * (
                name.endswith("weight") and not norms_add_one)
        made[name] = x.astype(np.float32)
    return made
