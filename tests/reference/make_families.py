# SPDX-License-Identifier: Apache-2.0
"""Makes the outside reference of weft's transformer families with Hugging Face's transformers.

    python tests/reference/make_families.py [NAME ...]     (needs torch, transformers, safetensors)

writes families/<name>.safetensors beside itself for each model below. The weights are not stored:
`weights_of` makes them from the names, and the test does the same. A file holds

    tokens         i64 [batches, rows, seq + 1]  inputs are [..., :-1], targets [..., 1:]
    logits         f32 [samples]                 of tokens[0] and the first weights
    losses         f32 [steps]                   of tokens[s % batches], before update s of AdamW
    grad.<name>    f32 [samples]                 of losses[0]
    greedy         i64 [prompt + 64]             a prompt and what the decoder continues it with

Samples are at most 61 elements at equal distances. The metadata has the text of config.json, the
shape, the center and the gradient's largest element of each parameter, and the numbers of AdamW;
buffers have no gradient. Of experts there is a tensor each.
"sinks" marks a model whose attention has sinks, which no config.json of transformers' Mistral says.
Everything is computed with double weights and stored as f32.
"""

import json
import pathlib
import sys

import numpy as np
import torch
import transformers
from transformers import masking_utils, modeling_utils
from transformers.models.gpt_oss import modeling_gpt_oss
from safetensors.torch import save_file

STEPS, BATCHES, ROWS, SEQ, SAMPLES = 20, 2, 12, 13, 61
# These are for models with experts, whose choices must not depend on rounding.
SPARSE_STEPS, SPARSE_GAP = 10, 3e-5
ADAMW = {"lr": 1e-3, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}

# Sizes that neither 3 nor 4 divide, except where heads must be equal.
LLAMA = dict(hidden_size=92, intermediate_size=67, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, head_dim=24, vocab_size=331, max_position_embeddings=80,
             bos_token_id=None, eos_token_id=None, pad_token_id=None)
NO_HEAD_DIM = {**LLAMA, "hidden_size": 96}
del NO_HEAD_DIM["head_dim"]
ENCODER = {k: v for k, v in NO_HEAD_DIM.items() if k != "num_key_value_heads"}
PAIRS = 12


def scaled(**rope):
    return {**LLAMA, "rope_parameters": {"rope_theta": 10000.0, **rope}}


SPARSE = {**LLAMA, "head_dim": 12, "hidden_size": 44, "num_experts_per_tok": 2,
          "experts_implementation": "eager"}
QWEN = {**SPARSE, "intermediate_size": 35, "moe_intermediate_size": 19, "num_experts": 5,
        "norm_topk_prob": True}
DEEPSEEK = dict(hidden_size=44, intermediate_size=35, num_hidden_layers=3, num_attention_heads=4,
                num_key_value_heads=4, vocab_size=331, max_position_embeddings=80,
                moe_intermediate_size=19, num_experts_per_tok=3, first_k_dense_replace=1,
                n_group=2, topk_group=1, routed_scaling_factor=1.5, kv_lora_rank=21,
                qk_nope_head_dim=7, qk_rope_head_dim=10, v_head_dim=9, bos_token_id=None,
                eos_token_id=None, pad_token_id=None, experts_implementation="eager")
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, mscale=1.0, mscale_all_dim=0.7,
            original_max_position_embeddings=20)

MODELS = {
    "llama": ("Llama", {**LLAMA, "attention_bias": True, "mlp_bias": True}),
    "llama3": ("Llama", scaled(rope_type="llama3", factor=8.0, low_freq_factor=1.0,
                               high_freq_factor=4.0, original_max_position_embeddings=32)),
    "linear": ("Llama", scaled(rope_type="linear", factor=4.0)),
    "dynamic": ("Llama", {**scaled(rope_type="dynamic", factor=10.0),
                          "max_position_embeddings": 8}),
    "yarn": ("Llama", scaled(rope_type="yarn", factor=4.0, original_max_position_embeddings=20)),
    "mistral": ("Mistral", {**LLAMA, "sliding_window": 7}),
    "qwen2": ("Qwen2", {**NO_HEAD_DIM, "tie_word_embeddings": True}),
    "qwen2_window": ("Qwen2", {**NO_HEAD_DIM, "use_sliding_window": True, "sliding_window": 5,
                               "max_window_layers": 1}),
    "qwen3": ("Qwen3", LLAMA),
    "smollm3": ("SmolLM3", {**NO_HEAD_DIM, "no_rope_layer_interval": 2}),
    "granite": ("Granite", {**NO_HEAD_DIM, "embedding_multiplier": 2.5, "logits_scaling": 1.5,
                            "residual_multiplier": 0.4, "attention_multiplier": 0.3}),
    "olmo2": ("Olmo2", NO_HEAD_DIM),
    "phi3": ("Phi3", {**NO_HEAD_DIM, "rope_parameters": {"partial_rotary_factor": 0.5}}),
    "longrope": ("Phi3", {**NO_HEAD_DIM, "original_max_position_embeddings": 8,
                          "rope_parameters": {
                              "rope_type": "longrope", "rope_theta": 10000.0,
                              "short_factor": [1.0 + 0.05 * i for i in range(PAIRS)],
                              "long_factor": [1.5 + 0.3 * i for i in range(PAIRS)]}}),
    "gemma": ("Gemma", LLAMA),
    "gemma2": ("Gemma2", {**LLAMA, "sliding_window": 6, "query_pre_attn_scalar": 20,
                          "attn_logit_softcapping": 5.0, "final_logit_softcapping": 4.0}),
    "gemma3": ("Gemma3", {**LLAMA, "sliding_window": 6, "query_pre_attn_scalar": 20,
                          "layer_types": ["sliding_attention", "full_attention",
                                          "sliding_attention"],
                          "rope_parameters": {
                              "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
                              "full_attention": {"rope_type": "linear", "rope_theta": 1e6,
                                                 "factor": 8.0}}}),
    "gpt2": ("GPT2", dict(n_embd=96, n_layer=3, n_head=4, n_inner=67, n_positions=80,
                          vocab_size=331, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                          bos_token_id=None, eos_token_id=None)),
    "gpt_neox": ("GPTNeoX", ENCODER),
    "gpt_neox_serial": ("GPTNeoX", {**ENCODER, "use_parallel_residual": False, "rotary_pct": 0.5}),
    "starcoder2": ("Starcoder2", {**NO_HEAD_DIM, "sliding_window": 9}),
    "stablelm": ("StableLm", {**NO_HEAD_DIM, "use_qkv_bias": True}),
    "bert": ("Bert", {**ENCODER, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}),
    "mixtral": ("Mixtral", {**SPARSE, "intermediate_size": 19, "num_local_experts": 5,
                            "output_router_logits": True, "router_aux_loss_coef": 0.5}),
    "qwen2_moe": ("Qwen2Moe", {**QWEN, "hidden_size": 48, "norm_topk_prob": False,
                               "shared_expert_intermediate_size": 13, "mlp_only_layers": [1]}),
    "qwen3_moe": ("Qwen3Moe", {**QWEN, "num_experts_per_tok": 3, "decoder_sparse_step": 2}),
    "deepseek_v2": ("DeepseekV2", {**DEEPSEEK, "q_lora_rank": None, "n_routed_experts": 6,
                                   "topk_method": "group_limited_greedy", "n_shared_experts": 2,
                                   # Even, because its complex numbers are views.
                                   "kv_lora_rank": 22, "qk_nope_head_dim": 8,
                                   "rope_parameters": YARN}),
    "deepseek_v3": ("DeepseekV3", {**DEEPSEEK, "q_lora_rank": 15, "n_routed_experts": 10,
                                   "n_shared_experts": 1, "attention_bias": True}),
    "modernbert": ("ModernBert", {**ENCODER, "local_attention": 6, "pad_token_id": 0}),
}
# Models that no class of transformers has: gpt_oss's attention, with sinks, in a Mistral.
WITH_SINKS = {"mistral_sinks": ("Mistral", {**LLAMA, "sliding_window": 7})}
CLASSES = {"GPT2": "GPT2LMHeadModel", "Bert": "BertForMaskedLM",
           "ModernBert": "ModernBertForMaskedLM"}


def fnv(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def weights_of(name, shape, center):
    """center + 0.25 u, with u uniform in [-1, 1) by splitmix64 of the name and the index."""
    with np.errstate(over="ignore"):
        index = np.arange(int(np.prod(shape)), dtype=np.uint64)
        z = index * np.uint64(0x9E3779B97F4A7C15) + np.uint64(fnv(name))
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        u = ((z ^ (z >> np.uint64(31))) >> np.uint64(40)).astype(np.float64) / 2**23 - 1
    return (center + 0.25 * u).astype(np.float32).reshape(shape)


def file_parts(name, tensor, kind):
    """The tensors of the files, which have one for each expert."""
    if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
        return {name.replace("mlp.gate", "block_sparse_moe.gate") if kind == "Mixtral" else name:
                tensor}
    base, leaf = name.rsplit(".", 1)
    leaves = {leaf: tensor}
    if leaf == "gate_up_proj":
        leaves = dict(zip(("gate_proj", "up_proj"), tensor.chunk(2, dim=1)))
    if kind == "Mixtral":
        base = base.replace("mlp", "block_sparse_moe")
        names = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
        leaves = {names[n]: t for n, t in leaves.items()}
    return {f"{base}.{e}.{n}.weight": part for n, t in leaves.items() for e, part in enumerate(t)}


def center_of(name, kind):
    is_norm = any(part in name for part in ("norm", "Norm", "ln_")) and name.endswith("weight")
    return 1.0 if is_norm and not kind.startswith("Gemma") else 0.0


def add_sinks(model):
    """Each attention gets sinks, and computes as gpt_oss's does."""
    attend = modeling_gpt_oss.eager_attention_forward
    modeling_utils.ALL_ATTENTION_FUNCTIONS.register("sinks", attend)
    masking_utils.ALL_MASK_ATTENTION_FUNCTIONS.register("sinks", masking_utils.eager_mask)
    for layer in model.model.layers:
        heads = model.config.num_attention_heads
        layer.self_attn.sinks = torch.nn.Parameter(torch.empty(heads))
    model.config._attn_implementation = "sinks"


def make_model(name):
    kind, options = (MODELS | WITH_SINKS)[name]
    config_class = {"Gemma3": "Gemma3TextConfig"}.get(kind, kind + "Config")
    config = getattr(transformers, config_class)(**options)
    config._attn_implementation = "eager"
    model = getattr(transformers, CLASSES.get(kind, kind + "ForCausalLM"))(config).float()
    if name in WITH_SINKS:
        add_sinks(model)
    with torch.no_grad():
        for n, p in contents_of(model):
            for part, t in file_parts(n, p, kind).items():
                t.copy_(torch.from_numpy(weights_of(part, tuple(t.shape), center_of(part, kind))))
    return model


def contents_of(model):
    """Parameters, and the buffers that files have."""
    saved = model.state_dict()
    return [*model.named_parameters(), *((n, b) for n, b in model.named_buffers() if n in saved)]


def loss_of(model, batch):
    out = model(input_ids=batch[:, :-1])
    loss = torch.nn.functional.cross_entropy(out.logits.flatten(0, 1), batch[:, 1:].flatten())
    if getattr(model.config, "output_router_logits", False):
        loss = loss + model.config.router_aux_loss_coef * out.aux_loss
    return out.logits, loss


def gaps_of(model):
    """A list that collects, of each call of a router, the smallest distance between the scores of
    the last expert chosen and the first one that is not, and between groups alike."""
    gaps = []

    def least(scores, k):
        if k < scores.shape[-1]:
            top = scores.topk(k + 1, dim=-1).values
            gaps.append((top[..., k - 1] - top[..., k]).min().item())

    def hook(router, inputs, outputs):
        logits, k = outputs[0].detach().double(), router.top_k
        bias = getattr(router, "e_score_correction_bias", None)
        scores = logits.softmax(-1) if bias is None else logits.sigmoid() + bias.double()
        groups = getattr(router, "num_group", None) or 1
        if groups > 1:
            parts = scores.view(len(scores), groups, -1)
            of_group = parts.topk(1 if bias is None else 2, dim=-1).values.sum(-1)
            least(of_group, router.topk_group)
            chosen = of_group.topk(router.topk_group, dim=-1).indices
            kept = torch.zeros_like(of_group).scatter_(1, chosen, 1.0).unsqueeze(-1) > 0
            scores = torch.where(kept, parts, -10.0).flatten(1)
        least(scores, k)

    for name, module in model.named_modules():
        if name.endswith("mlp.gate"):
            module.register_forward_hook(hook)
    return gaps


def sampled(tensor):
    flat = tensor.detach().flatten()
    return flat[:: max(1, -(-flat.numel() // SAMPLES))].float().clone()


def greedy(model, prompt):
    """The tokens, and the smallest distance between the likeliest two."""
    made = model.generate(prompt[None], attention_mask=torch.ones_like(prompt[None]),
                          max_new_tokens=64, min_new_tokens=64, do_sample=False,
                          output_logits=True, return_dict_in_generate=True)
    gaps = [torch.topk(step[0], 2).values for step in made.logits]
    return made.sequences[0], min((a - b).item() for a, b in gaps)


def reference(name, tokens):
    model = make_model(name).double().eval()
    kind = (MODELS | WITH_SINKS)[name][0]
    gaps = gaps_of(model)
    is_sparse = any(n.endswith("mlp.gate") for n, _ in model.named_modules())
    values, losses = {"tokens": tokens}, []
    optimizer = torch.optim.AdamW(model.parameters(), **ADAMW)
    parameters = {}
    for step in range(SPARSE_STEPS if is_sparse else STEPS):
        optimizer.zero_grad()
        logits, loss = loss_of(model, tokens[step % BATCHES])
        loss.backward()
        losses.append(loss.detach())
        if step == 0:
            values["logits"] = sampled(logits)
            for name_of_all, p in contents_of(model):
                whole = p if p.grad is None else p.grad
                for n, part in file_parts(name_of_all, whole, kind).items():
                    parameters[n] = {"shape": list(part.shape), "center": center_of(n, kind)}
                    if p.grad is None:
                        continue
                    values[f"grad.{n}"] = sampled(part)
                    parameters[n]["largest"] = part.abs().max().item()
            parameters["logits"] = {"largest": logits.abs().max().item()}
        optimizer.step()
    values["losses"] = torch.stack(losses).float()
    if gaps and min(gaps) < SPARSE_GAP:
        return None
    if kind not in ("Bert", "ModernBert"):
        for seed in range(40):
            torch.manual_seed(seed)
            # A separate model: transformers keeps the stretched frequencies of "dynamic".
            # "longrope" changes its frequencies after 8 tokens.
            prompt = torch.randint(331, (5 if name == "longrope" else 10,))
            found, gap = greedy(make_model(name).double().eval(), prompt)
            if gap > 1e-3:
                break
        assert gap > 1e-3, gap
        values["greedy"] = found
    config = json.loads(model.config.to_json_string())
    config["architectures"] = [type(model).__name__]
    config.pop("transformers_version")
    return values, {"config": json.dumps(config), "parameters": json.dumps(parameters)}


def main():
    folder = pathlib.Path(__file__).parent / "families"
    folder.mkdir(exist_ok=True)
    for name in sys.argv[1:] or MODELS | WITH_SINKS:
        for seed in range(len(name), len(name) + 200):
            torch.manual_seed(seed)
            tokens = torch.randint(331, (BATCHES, ROWS, SEQ + 1))
            made = reference(name, tokens)
            if made:
                break
        values, metadata = made
        numbers = {"lr": ADAMW["lr"], "beta1": ADAMW["betas"][0], "beta2": ADAMW["betas"][1],
                   "eps": ADAMW["eps"], "weight_decay": ADAMW["weight_decay"]}
        metadata |= {n: str(v) for n, v in numbers.items()}
        if name in WITH_SINKS:
            metadata["sinks"] = "true"
        save_file({n: v.contiguous() for n, v in values.items()},
                  folder / f"{name}.safetensors", metadata)
        losses = values["losses"]
        print(name, "loss", losses[0].item(), "->", losses[-1].item(), flush=True)


if __name__ == "__main__":
    main()
