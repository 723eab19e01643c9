# SPDX-License-Identifier: Apache-2.0
"""Makes the outside reference of weft's MoE and LatentAttention with the blocks of transformers.

    python tests/reference/make_moe.py        (needs torch, transformers, safetensors)

writes to tests/reference/moe, for each block below, its random weights under the names of Hugging
Face's files (<name>.safetensors, a tensor an expert) and <name>.reference.safetensors:

    x, y         f32 [batch, sequence, dim]   input and output
    dy           f32 [batch, sequence, dim]   the gradient of y
    grad.x       f32 [batch, sequence, dim]
    grad.<name>  f32, the gradient of that weight; those of experts are stacked

Sums are computed in double, except the routers' inner f32 casts.
"""

import pathlib

import torch
from safetensors.torch import save_file
from transformers import (DeepseekV2Config, DeepseekV3Config, MixtralConfig, Qwen2MoeConfig,
                          Qwen3MoeConfig)
from transformers.models.deepseek_v2.modeling_deepseek_v2 import DeepseekV2Moe
from transformers.models.deepseek_v3.modeling_deepseek_v3 import (DeepseekV3Attention,
                                                                  DeepseekV3MoE,
                                                                  DeepseekV3RotaryEmbedding)
from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock
from transformers.models.qwen2_moe.modeling_qwen2_moe import Qwen2MoeSparseMoeBlock
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock

BATCH, SEQ, DIM, WIDTH = 5, 3, 12, 7
SHARED = dict(hidden_size=DIM, hidden_act="silu", num_attention_heads=4,
              experts_implementation="eager")

BLOCKS = {
    "mixtral": lambda: MixtralSparseMoeBlock(MixtralConfig(
        **SHARED, intermediate_size=WIDTH, num_local_experts=5, num_experts_per_tok=2)),
    "qwen2_moe": lambda: Qwen2MoeSparseMoeBlock(Qwen2MoeConfig(
        **SHARED, moe_intermediate_size=WIDTH, num_experts=5, num_experts_per_tok=3,
        norm_topk_prob=False, shared_expert_intermediate_size=11)),
    "qwen3_moe": lambda: Qwen3MoeSparseMoeBlock(Qwen3MoeConfig(
        **SHARED, moe_intermediate_size=WIDTH, num_experts=5, num_experts_per_tok=3,
        norm_topk_prob=True)),
    "deepseek_v2": lambda: DeepseekV2Moe(DeepseekV2Config(
        **SHARED, moe_intermediate_size=WIDTH, n_routed_experts=6, num_experts_per_tok=2,
        n_shared_experts=2, n_group=3, topk_group=2, topk_method="group_limited_greedy",
        routed_scaling_factor=2.5)),
    "deepseek_v3": lambda: DeepseekV3MoE(DeepseekV3Config(
        **SHARED, moe_intermediate_size=WIDTH, n_routed_experts=6, num_experts_per_tok=3,
        n_shared_experts=1, n_group=3, topk_group=2, routed_scaling_factor=2.5)),
}


def parts_of(name, tensor):
    """The tensors of Hugging Face's names and of weft's, which a fused parameter holds."""
    if name == "experts.gate_up_proj":
        gate, up = tensor.chunk(2, dim=1)
        return {"experts.gate_proj": gate, "experts.up_proj": up}
    return {name: tensor}


def by_expert(name, tensor):
    if name.startswith("experts."):
        leaf = name.removeprefix("experts.")
        return {f"experts.{e}.{leaf}.weight": part for e, part in enumerate(tensor)}
    return {name: tensor}


def as_file(tensors):
    return {name: t.detach().float().contiguous() for name, t in tensors.items()}


def make(name, seed):
    torch.manual_seed(seed)
    block = BLOCKS[name]()
    for key, tensor in block.state_dict().items():
        tensor.copy_(torch.randn_like(tensor) * (0.1 if "bias" in key else 0.4))
    weights = {}
    for key, tensor in block.state_dict().items():
        for part, value in parts_of(key, tensor).items():
            weights |= by_expert(part, value)
    x, dy = torch.randn(BATCH, SEQ, DIM), torch.randn(BATCH, SEQ, DIM)
    block = block.double()
    wide = x.double().requires_grad_()
    y = block(wide)
    y.backward(dy.double())
    values = {"x": x, "dy": dy, "y": y, "grad.x": wide.grad}
    for key, parameter in block.named_parameters():
        for part, value in parts_of(key, parameter.grad).items():
            values["grad." + part] = value
    folder = pathlib.Path(__file__).parent / "moe"
    save_file(as_file(weights), folder / f"{name}.safetensors")
    save_file(as_file(values), folder / f"{name}.reference.safetensors")


def make_attention(name, seed, q_lora_rank):
    torch.manual_seed(seed)
    config = DeepseekV3Config(
        hidden_size=DIM, num_attention_heads=4, num_key_value_heads=4, q_lora_rank=q_lora_rank,
        kv_lora_rank=9, qk_nope_head_dim=5, qk_rope_head_dim=6, v_head_dim=7,
        attn_implementation="eager", rope_parameters={"rope_type": "default", "rope_theta": 100.0})
    block = DeepseekV3Attention(config, 0)
    rotary = DeepseekV3RotaryEmbedding(config)
    for tensor in block.state_dict().values():
        tensor.copy_(torch.randn_like(tensor) * 0.4 + (tensor.ndim == 1))
    weights = dict(block.state_dict())
    x, dy = torch.randn(BATCH, 8, DIM), torch.randn(BATCH, 8, DIM)
    block = block.double()
    wide = x.double().requires_grad_()
    cos, sin = rotary(x.float(), torch.arange(8)[None])
    mask = torch.full((8, 8), float("-inf"), dtype=torch.double).triu(1)[None, None]
    y, _ = block(wide, (cos.double(), sin.double()), mask)
    y.backward(dy.double())
    values = {"x": x, "dy": dy, "y": y, "grad.x": wide.grad}
    values |= {"grad." + key: p.grad for key, p in block.named_parameters()}
    folder = pathlib.Path(__file__).parent / "moe"
    save_file(as_file(weights), folder / f"{name}.safetensors")
    save_file(as_file(values), folder / f"{name}.reference.safetensors")


for seed, name in enumerate(BLOCKS):
    make(name, seed)
make_attention("latent_attention", 10, q_lora_rank=7)
make_attention("latent_attention_v2_lite", 11, q_lora_rank=None)
