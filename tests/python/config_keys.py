# SPDX-License-Identifier: Apache-2.0
"""Each key of each family's config.json at several values: weft computes what transformers computes
from the same text, or refuses the text.

    python tests/python/config_keys.py [FAMILY ...]

prints each case in which weft differs, with "differs", "lax" (only transformers refuses it) or
"strict" (only weft refuses it; that is an error only at a value that changes no result)."""

import copy
import json
import pathlib
import sys
import tempfile

import numpy as np
import torch
import transformers
import weft
from weft import nn

REFERENCE = pathlib.Path(__file__).parent.parent / "reference"
sys.path.insert(0, str(REFERENCE))
import make_families  # noqa: E402

FAMILIES = ["llama", "mistral", "qwen2_window", "qwen3", "smollm3", "granite", "olmo2", "phi3",
            "gemma", "gemma2", "gemma3", "gpt2", "gpt_neox", "starcoder2", "stablelm", "bert",
            "modernbert", "mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3"]
# Sizes of tensors, and keys of transformers' own code that only change what a call returns.
LEFT_OUT = {"model_type", "vocab_size", "output_attentions", "output_hidden_states", "return_dict",
            "use_cache", "dtype", "torch_dtype", "architectures", "transformers_version",
            "experts_implementation", "_name_or_path", "id2label", "label2id", "num_labels",
            "torchscript", "pruned_heads", "chunk_size_feed_forward", "is_encoder_decoder",
            "tie_encoder_decoder", "use_bfloat16", "cross_attention_hidden_size",
            "output_router_logits"}
ROPE = {"rope_theta": [50.0, 0.0, None], "partial_rotary_factor": [0.5, 1.0, None],
        "rope_type": ["default", "linear", None], "type": ["default", "linear", None],
        "factor": [2.0, 1.0, 0.0, None], "attention_factor": [0.5, 0.0, None],
        "beta_fast": [8.0, 0, None], "beta_slow": [2.0, 0, None], "mscale": [0.5, 0.0, None],
        "mscale_all_dim": [0.5, 0.0, None], "truncate": [False, None],
        "original_max_position_embeddings": [8, 0, None], "low_freq_factor": [2.0, 0.0, None],
        "high_freq_factor": [8.0, 0.0, None], "finetuned": [True]}
KINDS = {
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 20},
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 32},
}


def known_keys():
    """Every key that a config class of the families has, with the defaults."""
    keys = {}
    families = json.loads((REFERENCE / "config_defaults.json").read_text())
    families.pop("versions")
    for family in families.values():
        for key, ranges in family.items():
            keys.setdefault(key, []).extend(value for value, _, _ in ranges)
    return keys


def other_values(value):
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value * 2, 0, 1, -1]
    if isinstance(value, float):
        return [value * 0.5, 0.0, 1.0]
    if isinstance(value, str):
        return ["gelu", "relu", "nothing"]
    return [[]] if isinstance(value, list) else []


def base_of(family):
    kind, options = make_families.MODELS[family]
    name = {"Gemma3": "Gemma3Text"}.get(kind, kind) + "Config"
    raw = json.loads(getattr(transformers, name)(**options).to_json_string(use_diff=False))
    for key in ("dtype", "transformers_version", "experts_implementation"):
        raw.pop(key, None)
    raw["architectures"] = [make_families.CLASSES.get(kind, kind + "ForCausalLM")]
    return raw


def cases_of(family):
    """(place, key, value): a change of the config at the top, in its rotary keys, or with another
    kind of scaling."""
    raw = base_of(family)
    for key, values in known_keys().items():
        if key in LEFT_OUT or key.startswith(("rope_parameters", "rope_scaling")):
            continue
        own = [raw[key]] if raw.get(key) is not None else []
        tried = []
        for value in [*own, *values][: None if key in raw else 1]:
            for each in (*other_values(value)[: None if key in raw else 1], value, None):
                if isinstance(each, int) and each > 300:
                    continue  # large models
                if each not in tried or type(each) is not type(tried[tried.index(each)]):
                    tried.append(each)
                    yield "top", key, each
        if key in raw:
            yield "top", key, "wrong"
    if family in ("gpt2", "bert"):
        return
    for key, values in ROPE.items():
        for value in values:
            yield "top", key, value
            yield "rope", key, value
            for kind in KINDS:
                yield kind, key, value
                yield kind + " in rope_scaling", key, value


def changed(family, place, key, value):
    raw = base_of(family)
    kind = place.split()[0]
    if place == "top":
        return raw | {key: value}
    rope = copy.deepcopy(raw.get("rope_parameters") or {})
    nested = [rope[name] for name in ("full_attention", "sliding_attention") if name in rope]
    for own in nested[:1] or [rope]:
        if kind in KINDS:
            theta = {k: own[k] for k in ("rope_theta", "partial_rotary_factor") if k in own}
            own.clear()
            own.update(theta, rope_type=kind, **KINDS[kind])
        own[key] = value
    raw["rope_parameters"] = rope
    if place.endswith("rope_scaling"):
        raw.pop("rope_parameters")
        raw["rope_theta"] = rope.pop("rope_theta", 10000.0)
        raw["rope_scaling"] = rope
    return raw


def reference_of(raw, ids):
    """The model of transformers, its logits and the gradient of its embedding."""
    config = transformers.CONFIG_MAPPING[raw["model_type"]].from_dict(copy.deepcopy(raw))
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    model = getattr(transformers, raw["architectures"][0])(config).float()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, p in make_families.contents_of(model):
            center = make_families.center_of(name, raw["architectures"][0])
            p.copy_(torch.randn(p.shape, generator=generator) * 0.25 + center)
    model.eval()
    logits = model(input_ids=torch.tensor(ids)).logits
    logits.square().mean().backward()
    table = model.get_input_embeddings().weight
    return model, logits.detach().numpy(), table.grad.numpy()


def far(got, expected):
    if got.shape != expected.shape or np.isfinite(got).all() != np.isfinite(expected).all():
        return float("inf")
    if not np.isfinite(expected).all():
        return 0.0
    return np.abs(got - expected).max() / max(np.abs(expected).max(), 1e-30)


def outcome(raw, folder):
    """"equal", "both refuse", or how weft and transformers differ, with the reason."""
    pad = raw.get("pad_token_id")
    ids = np.random.default_rng(1).integers(0, 331, (2, 13))
    ids[0, 3] = ids[1, 5] = pad if isinstance(pad, int) and 0 <= pad < 331 else 7
    try:
        model, logits, gradient = reference_of(raw, ids)
    except Exception as error:  # anything: it is transformers' answer
        expected = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:90]}" if str(
            error).strip() else type(error).__name__
        model = None
    text = json.dumps(raw)
    try:
        config = config_in(text, folder)
    except ValueError as error:
        return ("strict: " if model else "both refuse: ") + str(error).split("config.json")[-1]
    if model is None:
        return "lax: " + expected
    model.save_pretrained(folder)
    (folder / "config.json").write_text(text)
    own = nn.TransformerModel(config)
    try:
        weft.load_hugging_face(own, str(folder))
        own.eval()
        got = own(weft.tensor(ids))
    except ValueError as error:
        return f"refused later: {error}"
    if (distance := far(got.detach().numpy(), logits)) > 2e-4:
        return f"differs: logits by {distance:.1e}"
    (got * got).mean().backward()
    table = dict(own.named_parameters())["model.embed_tokens.weight"]
    distance = far(table.grad.numpy(), gradient)
    return "equal" if distance <= 2e-3 else f"differs: gradient by {distance:.1e}"


def config_in(text, folder):
    (folder / "config.json").write_text(text)
    return weft.transformer_config(str(folder))


def main():
    transformers.logging.set_verbosity(50)
    counts = {}
    for family in sys.argv[1:] or FAMILIES:
        for place, key, value in cases_of(family):
            with tempfile.TemporaryDirectory() as folder:
                found = outcome(changed(family, place, key, value), pathlib.Path(folder))
            kind = found.split(":")[0]
            counts[kind] = counts.get(kind, 0) + 1
            if kind not in ("equal", "both refuse"):
                print(f"{family} {place} {key}={json.dumps(value)}: {found}", flush=True)
    print(counts)


if __name__ == "__main__":
    main()
