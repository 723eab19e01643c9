# SPDX-License-Identifier: Apache-2.0
"""Makes a tiny model, a batch, and references for `weft check-step`: the step as transformers
computes it, and steps with a fault each.

    python tests/reference/make_check_step.py      (needs torch, transformers, safetensors)

writes check_step/ beside itself: the model's directory, batch.safetensors, right.safetensors and
<fault>.safetensors. FAULTS states the tensor that the program must name."""

import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama import modeling_llama

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "examples"))
from check_step_reference import reference_of  # noqa: E402

LAYER = "model.layers.1."
ATTENDED = "input of " + LAYER + "self_attn.o_proj"


def make_model():
    torch.manual_seed(5)
    config = LlamaConfig(
        hidden_size=8, intermediate_size=11, num_hidden_layers=3, num_attention_heads=2,
        num_key_value_heads=1, vocab_size=19, max_position_embeddings=32, rms_norm_eps=1e-5,
        rope_theta=10000.0, initializer_range=0.3, attention_bias=True, tie_word_embeddings=True,
        attn_implementation="eager", use_cache=False, bos_token_id=None, eos_token_id=None)
    model = LlamaForCausalLM(config).float()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or "bias" in name:
                parameter.add_(0.2 * torch.randn_like(parameter))
    return model.eval()


def make_batch():
    torch.manual_seed(6)
    ids = torch.randint(19, (2, 6))
    labels = ids.clone()
    labels[0, :3] = -100
    return {"ids": ids, "labels": labels}


def layer_of(model):
    return model.model.layers[1]


def wrong_eps(model):
    layer_of(model).post_attention_layernorm.variance_epsilon = 1e-3


def transposed_weight(model):
    weight = layer_of(model).self_attn.q_proj.weight
    weight.data = weight.data.t().contiguous()


def missing_bias_gradient(model):
    layer_of(model).self_attn.v_proj.bias.requires_grad_(False)


def attending(change):
    """Attention of layer 1 with other arguments."""

    def plant(model):
        attention, plain = layer_of(model).self_attn, modeling_llama.eager_attention_forward

        def attend(module, q, k, v, mask, **named):
            if module is attention:
                q, k, v, mask, named = change(q, k, v, mask, named)
            return plain(module, q, k, v, mask, **named)

        modeling_llama.eager_attention_forward = attend
        return lambda: setattr(modeling_llama, "eager_attention_forward", plain)

    return plant


def sees_the_next(q, k, v, mask, named):
    size = q.shape[2]
    allowed = torch.ones(size, size).tril(1) > 0
    return q, k, v, torch.where(allowed, 0.0, torch.finfo(q.dtype).min)[None, None], named


def other_scale(q, k, v, mask, named):
    return q, k, v, mask, named | {"scaling": named["scaling"] * 1.01}


def wrong_theta(model):
    rotary = model.model.rotary_emb
    size = model.config.hidden_size // model.config.num_attention_heads
    rotary.inv_freq = 1 / 1e5 ** (torch.arange(0, size, 2).float() / size)


def dropped_layer(model):
    del model.model.layers[2]


def wrong_tied_gradient(model):
    """The head's part is lost."""
    embedding = model.model.embed_tokens.weight
    model.lm_head.forward = lambda x: torch.nn.functional.linear(x, embedding.detach())


def wrong_shift(model):
    model.shift = 0


def wrong_activation(model):
    layer_of(model).mlp.act_fn = torch.nn.GELU(approximate="tanh")


# The fault, and what check-step must name first.
FAULTS = {
    "wrong_eps": (wrong_eps, "output of " + LAYER + "post_attention_layernorm"),
    "transposed_weight": (transposed_weight, "output of " + LAYER + "self_attn.q_proj"),
    "missing_bias_gradient": (missing_bias_gradient,
                              "gradient of " + LAYER + "self_attn.v_proj.bias"),
    "mask_off_by_one": (attending(sees_the_next), ATTENDED),
    "wrong_theta": (wrong_theta, "input of model.layers.0.self_attn.o_proj"),
    "dropped_layer": (dropped_layer, "output of model.layers.2.input_layernorm"),
    "wrong_scale": (attending(other_scale), ATTENDED),
    "wrong_tied_gradient": (wrong_tied_gradient, "gradient of model.embed_tokens.weight"),
    "wrong_shift": (wrong_shift, "loss"),
    "wrong_activation": (wrong_activation, "input of " + LAYER + "mlp.down_proj"),
}


def reference(fault=None):
    model, batch = make_model(), make_batch()
    model.shift = 1
    undo = FAULTS[fault][0](model) if fault else None

    def step():
        logits = model(input_ids=batch["ids"]).logits
        count = 6 - model.shift
        loss = torch.nn.functional.cross_entropy(
            logits[:, :count].flatten(0, 1), batch["labels"][:, model.shift:].flatten()
        )
        return logits, loss

    made = reference_of(model, step)
    if undo:
        undo()
    return made


def main():
    folder = HERE / "check_step"
    make_model().save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    save_file(make_batch(), folder / "batch.safetensors")
    save_file(reference(), folder / "right.safetensors")
    for fault in FAULTS:
        save_file(reference(fault), folder / f"{fault}.safetensors")


if __name__ == "__main__":
    main()
