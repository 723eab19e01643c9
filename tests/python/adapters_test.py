# SPDX-License-Identifier: Apache-2.0
"""Adapters from Python: PEFT's numbers and files (tests/reference/make_lora.py), and PEFT itself
where it is installed."""

import json
import pathlib

import numpy as np
import pytest
import weft
from weft import nn, optim

from llama_test import far, read_safetensors

REFERENCE = pathlib.Path(__file__).parent.parent / "reference"
TOKENS = read_safetensors(REFERENCE / "grouped/reference.safetensors")[0]["tokens"]
ADAMW = dict(lr=1e-3, betas=(0.9, 0.95), eps=1e-6, weight_decay=0.1)


def rows_of(part, mesh):
    return weft.distribute(weft.from_numpy(part.copy()), mesh, {"dp": weft.Shard(0)})


def trained(world, case, directory, bits=None, axes=None):
    """Losses and logits of 20 steps, and the adapter in PEFT's files."""
    mesh = weft.DeviceMesh(world, axes or {"dp": world.size})
    model = nn.TransformerModel(weft.transformer_config(str(REFERENCE / "grouped")))
    config = json.loads((REFERENCE / f"lora/{case}/initial/adapter_config.json").read_text())
    weft.add_adapters(
        model,
        rank=config["r"],
        alpha=config["lora_alpha"],
        rslora=config["use_rslora"],
        targets=config["target_modules"],
    )
    if bits:
        weft.quantize_base(model, bits)
    if axes and "tp" in axes:
        weft.parallelize(model, mesh["tp"], weft.transformer_styles(model.config))
    for block in model.blocks():
        weft.fully_shard(block, mesh["dp"])
    weft.fully_shard(model, mesh["dp"])
    weft.load_hugging_face(model, str(REFERENCE / "grouped"))
    weft.load_peft(model, str(REFERENCE / f"lora/{case}/initial"))
    optimizer = optim.AdamW(model.parameters(), **ADAMW)
    losses = []
    for step in range(20):
        tokens = TOKENS[step % len(TOKENS)]
        loss = model.loss(rows_of(tokens[:, :-1], mesh), rows_of(tokens[:, 1:], mesh))
        losses.append(loss.full_tensor().item())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    if directory:
        weft.save_peft(model, str(directory), base_model=str(REFERENCE / "grouped"))
    with weft.no_grad():
        logits = model(rows_of(TOKENS[0][:, :-1], mesh)).full_tensor().numpy()
    return np.array(losses), logits


@pytest.mark.parametrize("case, bits", [("all", None), ("int8", 8), ("int4", 4)])
@pytest.mark.parametrize("axes", [{"dp": 1}, {"dp": 3}, {"dp": 2, "tp": 2}], ids=str)
def test_losses_and_logits_are_those_of_peft(case, bits, axes):
    expected = read_safetensors(REFERENCE / f"lora/{case}/reference.safetensors")[0]
    ranks = int(np.prod(list(axes.values())))
    for losses, logits in weft.run_ranks(ranks, lambda w: trained(w, case, None, bits, axes)):
        bound = 1e-4 if bits else 1e-5
        assert far(losses, expected["losses"]) <= bound
        assert far(logits, expected["logits"]) <= bound


def test_peft_reads_what_four_ranks_trained(tmp_path):
    """Its logits are those of weft."""
    peft = pytest.importorskip("peft")
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = tmp_path / "adapter"
    _, logits = weft.run_ranks(4, lambda world: trained(world, "all", folder))[0]
    base = transformers.LlamaForCausalLM.from_pretrained(REFERENCE / "grouped")
    model = peft.PeftModel.from_pretrained(base, folder)
    with torch.no_grad():
        got = model(input_ids=torch.tensor(TOKENS[0][:, :-1])).logits.numpy()
    assert far(logits, got) <= 1e-5


def test_weft_reads_what_peft_writes_for_another_family(tmp_path):
    """GPT-2 calls modules otherwise, and stores them transposed."""
    peft = pytest.importorskip("peft")
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(3)
    config = transformers.GPT2Config(vocab_size=61, n_positions=32, n_embd=24, n_layer=2, n_head=2)
    base = transformers.GPT2LMHeadModel(config).eval()
    base.save_pretrained(tmp_path / "base")
    adapter = peft.LoraConfig(
        r=3, task_type="CAUSAL_LM", target_modules=["mlp.c_fc", "c_proj"], fan_in_fan_out=True
    )
    model = peft.get_peft_model(base, adapter).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.1)
        model.save_pretrained(tmp_path / "adapter")
        ids = torch.randint(61, (2, 9))
        expected = model(input_ids=ids).logits.numpy()
    ours = nn.TransformerModel(weft.transformer_config(str(tmp_path / "base")))
    weft.load_hugging_face(ours, str(tmp_path / "base"))
    weft.load_peft(ours, str(tmp_path / "adapter"))
    ours.eval()
    with weft.no_grad():
        ids = weft.from_numpy(ids.numpy())
        assert far(ours(ids).numpy(), expected) <= 1e-5
        weft.save_peft(ours, str(tmp_path / "again"), base_model=str(tmp_path / "base"))
        weft.merge_adapters(ours)
        assert far(ours(ids).numpy(), expected) <= 1e-5
    base = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "base")
    again = peft.PeftModel.from_pretrained(base, tmp_path / "again").eval()
    with torch.no_grad():
        got = again(input_ids=torch.tensor(ids.numpy())).logits.numpy()
    assert far(got, expected) <= 1e-5
    fused = nn.TransformerModel(weft.transformer_config(str(tmp_path / "base")))
    weft.add_adapters(fused, targets=["q_proj"])
    fused.materialize()
    with pytest.raises(ValueError, match='is a part of "transformer.h.0.attn.c_attn" in a model'):
        weft.save_peft(fused, str(tmp_path / "fused"))


def test_shared_experts_have_adapters(tmp_path):
    """Weights of routed experts are refused by name."""
    peft = pytest.importorskip("peft")
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(4)
    config = transformers.Qwen2MoeConfig(
        vocab_size=61,
        hidden_size=32,
        intermediate_size=24,
        moe_intermediate_size=16,
        shared_expert_intermediate_size=24,
        num_experts=4,
        num_experts_per_tok=2,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    base = transformers.Qwen2MoeForCausalLM(config).eval()
    base.save_pretrained(tmp_path / "base")
    targets = ["q_proj", "shared_expert.up_proj", "shared_expert.down_proj"]
    adapter = peft.LoraConfig(r=3, task_type="CAUSAL_LM", target_modules=targets)
    model = peft.get_peft_model(base, adapter).eval()
    ids = torch.randint(61, (4, 9))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.1)
        expected = model(input_ids=ids).logits.numpy()
    model.save_pretrained(tmp_path / "adapter")
    config = weft.transformer_config(str(tmp_path / "base"))

    def body(world):
        mesh = weft.DeviceMesh(world, {"ep": 2, "tp": 2})
        ours = nn.TransformerModel(config)
        weft.add_adapters(ours, rank=3, alpha=8, targets=targets)
        weft.parallelize(ours, mesh["ep"], weft.expert_styles())
        weft.parallelize(ours, mesh["tp"], weft.transformer_styles(config))
        weft.load_hugging_face(ours, str(tmp_path / "base"))
        weft.load_peft(ours, str(tmp_path / "adapter"))
        ours.eval()
        with weft.no_grad():
            rows = weft.distribute(weft.from_numpy(ids.numpy()), mesh, {"ep": weft.Shard(0)})
            return ours(rows).full_tensor().numpy()

    for logits in weft.run_ranks(4, body):
        assert far(logits, expected) <= 1e-5
    with pytest.raises(ValueError, match="weights of experts are multiplied in groups"):
        weft.add_adapters(nn.TransformerModel(config), targets=["experts.gate_proj"])


class Own(nn.Module):
    """A user's module, two of whose layers have adapters."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 10)
        self.inner = nn.Sequential(nn.Linear(10, 10, bias=False), nn.Linear(10, 3))

    def forward(self, x):
        return self.inner(weft.tanh(self.first(x)))


def test_adapters_of_a_users_module():
    model = Own()
    assert weft.add_adapters(model, rank=2, alpha=4, targets=["first", "inner.0"]) == [
        "first",
        "inner.0",
    ]
    trainable = {n for n, p in model.named_parameters() if p.requires_grad}
    assert trainable == {
        f"{path}.lora_{part}.weight" for path in ("first", "inner.0") for part in "AB"
    }
    x = weft.from_numpy(np.linspace(-1, 1, 30, dtype=np.float32).reshape(5, 6))
    before = model(x).detach().numpy()
    weights = {n: p.detach().numpy().copy() for n, p in model.named_parameters()}
    assert not weights["first.lora_B.weight"].any()
    optimizer = optim.AdamW(model.parameters(), lr=0.05)
    for _ in range(3):
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    after = {n: p.detach().numpy() for n, p in model.named_parameters()}
    assert {n for n in weights if (weights[n] != after[n]).any()} == trainable
    state = weft.adapter_state_dict(model)
    assert set(state.tensors) == trainable and state.numbers["adapters.rank"] == 2
    changed = model(x).detach().numpy()
    assert far(changed, before) > 1e-3
    weft.merge_adapters(model)
    assert far(model(x).detach().numpy(), changed) <= 1e-6
    assert len(dict(model.named_parameters())) == 5


def test_dropout_of_adapters_is_alike_on_any_mesh():
    def losses(world):
        mesh = weft.DeviceMesh(world, {"dp": world.size})
        model = Own()
        weft.add_adapters(model, rank=2, dropout=0.4, targets=["all-linear"])
        weft.fully_shard(model, mesh)
        weft.manual_seed(5)
        model.materialize()
        optimizer = optim.AdamW(model.parameters(), lr=0.05)
        x = np.linspace(-1, 1, 42, dtype=np.float32).reshape(7, 6)
        found = []
        for _ in range(4):
            loss = model(rows_of(x, mesh)).square().sum()
            found.append(loss.full_tensor().item())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return found

    alone, three = weft.run_ranks(1, losses)[0], weft.run_ranks(3, losses)[0]
    np.testing.assert_allclose(alone, three, rtol=1e-5)
