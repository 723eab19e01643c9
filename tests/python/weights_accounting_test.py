# SPDX-License-Identifier: Apache-2.0
"""Imports, exports and loads account for every tensor of both sides: the same bits, or a refusal,
or a sentence on stderr that names what is skipped."""

import json
import os
import pathlib
import struct
import subprocess

import numpy as np
import pytest
import weft
from weft import nn

PROGRAM = os.environ.get("WEFT_PROGRAM", "weft")
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 13,
         "num_key_value_heads": 2, "intermediate_size": 8, "max_position_embeddings": 16}
ENCODER = {k: v for k, v in SIZES.items() if k != "num_key_value_heads"}
EXPERTS = {**SIZES, "num_experts_per_tok": 2, "moe_intermediate_size": 4, "num_experts": 3}
LATENT = {**SIZES, "num_key_value_heads": 4, "kv_lora_rank": 4, "q_lora_rank": None,
          "qk_nope_head_dim": 4, "qk_rope_head_dim": 4, "v_head_dim": 4, "n_routed_experts": 4,
          "num_experts_per_tok": 2, "moe_intermediate_size": 4, "first_k_dense_replace": 1}
CONFIGS = {
    **{name: SIZES for name in ("llama", "mistral", "qwen2", "qwen3", "smollm3", "granite", "olmo2",
                                "phi3", "gemma", "gemma2", "gemma3_text", "starcoder2",
                                "mixtral")},
    "gpt2": {"n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 16, "vocab_size": 13},
    "stablelm": {**SIZES, "partial_rotary_factor": 0.5},
    "gpt_neox": {**ENCODER, "rotary_pct": 0.5}, "bert": ENCODER, "modernbert": ENCODER,
    "qwen2_moe": {**EXPERTS, "shared_expert_intermediate_size": 4}, "qwen3_moe": EXPERTS,
    "deepseek_v2": LATENT, "deepseek_v3": {**LATENT, "n_group": 2, "topk_group": 1},
}
HEADS = {"bert": "BertForMaskedLM", "modernbert": "ModernBertForMaskedLM"}
# Names of constants that old files of a family hold.
CONSTANTS = {"gpt2": "transformer.h.0.attn.masked_bias", "bert": "bert.embeddings.position_ids",
             "gpt_neox": "gpt_neox.layers.0.attention.bias",
             "llama": "model.layers.0.self_attn.rotary_emb.inv_freq"}


def test_all_families_are_here():
    assert sorted(CONFIGS) == weft.nn.transformer_families()


def read_tensors(path):
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    at = 8 + size
    return {name: (entry["dtype"], entry["shape"],
                   data[at + entry["data_offsets"][0]:at + entry["data_offsets"][1]])
            for name, entry in header.items()}


def write_tensors(path, tensors):
    header, data = {}, b""
    for name, (dtype, shape, elements) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(data), len(data) + len(elements)]}
        data += elements
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def run(*command, cwd):
    return subprocess.run([PROGRAM, *map(str, command)], cwd=cwd, capture_output=True, text=True)


def made_model(family, tied, folder, **more):
    """A model's files, as weft exports them."""
    raw = {"model_type": family, "tie_word_embeddings": tied, "pad_token_id": None,
           **CONFIGS[family], **more}
    if family in HEADS:
        raw["architectures"] = [HEADS[family]]
    folder.mkdir()
    (folder / "raw.json").write_text(json.dumps(raw))
    config = weft.transformer_config(str(folder / "raw.json"))

    def body(world):
        model = nn.TransformerModel(config)
        weft.manual_seed(1)
        model.materialize()
        state = weft.TrainingState()
        state.add("model", model)
        saved = weft.CheckpointSaver(world, str(folder / "run")).save(1, state)
        weft.export_hugging_face(saved, str(folder / "model"), world, config=config)

    weft.run_ranks(1, body)
    return folder / "model" / "model.safetensors"


def edits_of(family, tensors):
    """(what, the tensors after it): tensors left out, added, or stored under two names."""
    names = sorted(tensors)
    shortened = next((n for n in names if n.split(".", 1)[0] in ("model", "bert", "transformer",
                                                                 "gpt_neox")), None)
    dtype, shape, elements = tensors[names[0]]
    other = np.random.default_rng(1).normal(size=len(elements) // 4).astype("<f4").tobytes()
    for name in names[:: max(1, len(names) // 5)]:
        yield "lacks " + name, {k: v for k, v in tensors.items() if k != name}
    yield "adds", tensors | {"model.layers.0.lora_A.weight": (dtype, shape, other)}
    yield "adds a layer", tensors | {names[-1].replace("1", "7"): tensors[names[-1]], "x": (
        dtype, shape, other)}
    head = next((n for n in ("lm_head.weight", "embed_out.weight", "decoder.weight",
                             "cls.predictions.decoder.weight") if n in tensors), None)
    table = next(n for n in names if "embed_tokens" in n or "wte" in n or "embed_in" in n
                 or "word_embeddings" in n or "tok_embeddings" in n)
    if head is None:
        head = {"bert": "cls.predictions.decoder.weight",
                "modernbert": "decoder.weight"}.get(family, "lm_head.weight")
        kind, size, values = tensors[table]
        yield "an equal head", tensors | {head: (kind, size, values)}
        changed = bytes([values[0] ^ 1]) + values[1:]
        yield "another head", tensors | {head: (kind, size, changed)}
    if shortened:
        bare = shortened.split(".", 1)[1]
        kind, size, values = tensors[shortened]
        yield "another bare name", tensors | {bare: (kind, size, values[:-4] + b"\0\0\0\x3f")}
    if family in CONSTANTS:
        yield "a constant", tensors | {CONSTANTS[family]: (dtype, shape, other)}


@pytest.mark.parametrize("family", CONFIGS)
@pytest.mark.parametrize("tied", [False, True])
def test_every_tensor_is_accounted_for(family, tied, tmp_path):
    path = made_model(family, tied, tmp_path / "made")
    tensors = read_tensors(path)
    imported = 0
    for number, (what, edited) in enumerate([("nothing", tensors), *edits_of(family, tensors)]):
        write_tensors(path, edited)
        done = run("ckpt", "import", path.parent, f"in{number}", "--ranks", 2, cwd=tmp_path)
        assert done.returncode in (0, 2), (what, done.stderr)
        if done.returncode == 2:
            assert what != "nothing", done.stderr
            with pytest.raises(ValueError):
                config = weft.transformer_config(str(path.parent))
                weft.load_hugging_face(nn.TransformerModel(config), str(path.parent))
            continue
        imported += 1
        back = run("ckpt", "export", f"in{number}", f"out{number}", cwd=tmp_path)
        assert back.returncode == 0, (what, back.stderr)
        got = read_tensors(tmp_path / f"out{number}" / "model.safetensors")
        for name, tensor in edited.items():
            # A second name of a tensor with the same elements is not written again.
            same = name in got or tensor in got.values()
            assert same or name in done.stderr, (what, name)
            assert name not in got or got[name] == tensor, (what, name)
        assert set(got) <= set(edited), what
    assert imported >= 1 + (family in CONSTANTS)


def test_a_checkpoint_that_lacks_a_parameter_is_not_exported(tmp_path):
    path = made_model("phi3", True, tmp_path / "made")
    config = weft.transformer_config(str(path.parent))

    def body(world):
        model = nn.TransformerModel(config)
        model.materialize()
        tensors = {"model/" + n: t for n, t in weft.state_dict(model).tensors.items()}
        table = tensors["model/model.embed_tokens.weight"]
        save = weft.CheckpointSaver(world, str(tmp_path / "run")).save
        lost = dict(tensors)
        del lost["model/model.layers.1.self_attn.k_proj.weight"]
        twice = tensors | {"model/lm_head.weight": table}
        differs = tensors | {"model/lm_head.weight": weft.ones(table.shape)}
        return [save(i + 1, weft.StateDict(each)) for i, each in enumerate((lost, twice, differs))]

    lost, twice, differs = weft.run_ranks(1, body)[0]
    export = lambda path, to: weft.run_ranks(2, lambda world: weft.export_hugging_face(
        path, str(tmp_path / to), world, config=config))
    with pytest.raises(ValueError, match='tensor "model.layers.1.self_attn.k_proj.weight" is miss'):
        export(lost, "lost")
    with pytest.raises(ValueError, match="they are one tied parameter of the model"):
        export(differs, "differs")
    export(twice, "twice")
    assert "lm_head.weight" not in read_tensors(tmp_path / "twice" / "model.safetensors")


def test_adapters_are_left_alone(tmp_path):
    path = made_model("phi3", True, tmp_path / "made")
    config = weft.transformer_config(str(path.parent))
    whole = nn.TransformerModel(config)
    weft.load_hugging_face(whole, str(path.parent))
    model = nn.TransformerModel(config)
    attention = dict(model.named_modules())["model.layers.1.self_attn"]
    attention.adapter = nn.Linear(16, 2, bias=False)
    with pytest.raises(ValueError, match='tensor "model.layers.1.self_attn.adapter.weight" is mis'):
        weft.load_hugging_face(model, str(path.parent))
    tensors = read_tensors(path)
    write_tensors(path, tensors | {"extra": ("F32", [1], b"\0\0\0\0")})
    skipped = weft.load_hugging_face(model, str(path.parent), strict=False)
    missing, unexpected = skipped
    assert missing == skipped.missing_keys == ["model.layers.1.self_attn.adapter.weight"]
    assert unexpected == skipped.unexpected_keys == ["extra"]
    want = dict(whole.named_parameters())
    for name, parameter in model.named_parameters():
        if name in want:
            assert (parameter.detach().numpy() == want[name].detach().numpy()).all(), name
    # A tensor of a wrong shape is refused even when strict is false.
    wrong = dict(tensors)
    wrong["model.norm.weight"] = ("F32", [1], b"\0\0\0\0")
    write_tensors(path, wrong)
    with pytest.raises(ValueError, match="model.norm.weight"):
        weft.load_hugging_face(model, str(path.parent), strict=False)


@pytest.mark.parametrize("ranks", [1, 2])
def test_weights_that_are_not_finite_are_named(ranks, tmp_path):
    path = made_model("llama", True, tmp_path / "made", vocab_size=256)
    tensors = read_tensors(path)
    kind, size, values = tensors["model.layers.1.mlp.up_proj.weight"]
    bad = np.frombuffer(values, "<f4").copy()
    bad[[3, 9]] = np.nan, np.inf
    tensors["model.layers.1.mlp.up_proj.weight"] = (kind, size, bad.tobytes())
    write_tensors(path, tensors)
    (tmp_path / "text").write_text("a line of text\n" * 40)
    command = ["train", "--init", path.parent, "--data", "text", "--batch", 2, "--seq", 4,
               "--steps", 1, "--ranks", ranks]
    done = run(*command, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert ('model.safetensors: tensor "model.layers.1.mlp.up_proj.weight" has 2 of 128 elements '
            "that are NaN or infinite, expected finite weights") in done.stderr


def test_two_tensors_of_one_name_are_not_exported(tmp_path):
    raw = {"model_type": "gpt2", "tie_word_embeddings": False, **CONFIGS["gpt2"]}
    (tmp_path / "raw.json").write_text(json.dumps(raw))
    config = weft.transformer_config(str(tmp_path / "raw.json"))

    def body(world):
        model = nn.TransformerModel(config)
        model.materialize()
        tensors = {"model/" + n: t for n, t in weft.state_dict(model).tensors.items()}
        tensors["model/transformer.wte.weight"] = weft.ones((1,))
        path = weft.CheckpointSaver(world, str(tmp_path / "run")).save(1, weft.StateDict(tensors))
        weft.export_hugging_face(path, str(tmp_path / "out"), world, config=config)

    with pytest.raises(ValueError, match='are both named "transformer.wte.weight" in the files'):
        weft.run_ranks(1, body)


def test_an_expert_of_two_names_is_refused(tmp_path):
    path = made_model("qwen3_moe", False, tmp_path / "made")
    tensors = read_tensors(path)
    name = "model.layers.1.mlp.experts.2.up_proj.weight"
    write_tensors(path, tensors | {name.removeprefix("model."): tensors[name]})
    model = nn.TransformerModel(weft.transformer_config(str(path.parent)))
    with pytest.raises(ValueError, match="are one expert's, expected one of them"):
        weft.load_hugging_face(model, str(path.parent))
