# SPDX-License-Identifier: Apache-2.0
"""Writes second_derivatives.json: PyTorch's losses of programs that differentiate gradients, in
float64 on one process. Values come from formulas, so that any library can start from the same.

    python tests/reference/make_second_derivatives.py

Needs torch."""

import json
import math
import pathlib

import numpy
import torch


def values(shape, seed, scale=0.5):
    """Numbers that depend on their position and the seed only."""
    count = math.prod(shape)
    return (scale * numpy.sin(numpy.arange(count) * 0.73 + seed * 1.37)).reshape(shape)


def mlp(sizes, seed):
    layers = []
    for i, (a, b) in enumerate(zip(sizes, sizes[1:])):
        layers += [torch.nn.Linear(a, b, dtype=torch.float64), torch.nn.Tanh()]
        with torch.no_grad():
            layers[-2].weight.copy_(torch.tensor(values((b, a), seed + 2 * i)))
            layers[-2].bias.copy_(torch.tensor(values((b,), seed + 2 * i + 1, 0.1)))
    return torch.nn.Sequential(*layers[:-1])


def descend(params, rate):
    with torch.no_grad():
        for p in params:
            p -= rate * p.grad
            p.grad = None


def wgan(steps):
    critic, losses = mlp((6, 16, 16, 1), 1), []
    for step in range(steps):
        real, fake = (torch.tensor(values((8, 6), 10 * step + k, 1.0)) for k in (3, 4))
        x = (0.3 * real + 0.7 * fake).requires_grad_()
        (slope,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
        penalty = ((slope.square().sum(1).sqrt() - 1) ** 2).mean()
        loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
        loss.backward()
        descend(critic.parameters(), 0.02)
        losses.append(loss.item())
    return losses


def maml(steps):
    model, losses = mlp((2, 16, 1), 2), []
    for step in range(steps):
        tasks = [torch.tensor(values((8, 2), 7 * step + k, 1.0)) for k in (0, 1)]
        wanted = [(x.sum(1, keepdim=True) * (1 + 0.1 * (step % 5))).sin() for x in tasks]
        names = dict(model.named_parameters())
        inner = (model(tasks[0]) - wanted[0]).square().mean()
        slopes = torch.autograd.grad(inner, list(names.values()), create_graph=True)
        adapted = {n: p - 0.1 * g for (n, p), g in zip(names.items(), slopes)}
        outer = torch.func.functional_call(model, adapted, (tasks[1],))
        loss = (outer - wanted[1]).square().mean()
        loss.backward()
        descend(model.parameters(), 0.05)
        losses.append(loss.item())
    return losses


def helmholtz(steps):
    """u'' + u = f on [-1, 1] with u = sin(pi x): the loss, and in the end the error of u."""
    model, losses = mlp((1, 16, 16, 1), 3), []
    points = torch.linspace(-1, 1, 32, dtype=torch.float64)[:, None]
    for _ in range(steps):
        x = points.clone().requires_grad_()
        u = model(x)
        (first,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
        wanted = (1 - math.pi**2) * (math.pi * x.detach()).sin()
        loss = (second + u - wanted).square().mean() + u[0].square().sum() + u[-1].square().sum()
        loss.backward()
        descend(model.parameters(), 1e-3)
        losses.append(loss.item())
    error = (model(points) - (math.pi * points).sin()).abs().max().item()
    return losses + [error]


def llama():
    """Parameters of a Llama of 2 layers, 4 heads and 2 of keys, by Hugging Face's names."""
    shapes = {"model.embed_tokens.weight": (32, 16), "lm_head.weight": (32, 16)}
    shapes["model.norm.weight"] = (16,)
    for i in range(2):
        name = f"model.layers.{i}."
        for part, shape in {"q": (16, 16), "k": (8, 16), "v": (8, 16), "o": (16, 16)}.items():
            shapes[f"{name}self_attn.{part}_proj.weight"] = shape
        for part, shape in {"gate": (24, 16), "up": (24, 16), "down": (16, 24)}.items():
            shapes[f"{name}mlp.{part}_proj.weight"] = shape
        shapes[name + "input_layernorm.weight"] = (16,)
        shapes[name + "post_attention_layernorm.weight"] = (16,)
    params = {}
    for i, name in enumerate(sorted(shapes)):
        shape = shapes[name]
        start = values(shape, i, 0.3) + (1 if len(shape) == 1 else 0)
        params[name] = torch.tensor(start).requires_grad_()
    return params


def normed(x, weight):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * weight


def rotated(x):
    """Rotary positions of [batch, heads, sequence, d], halves of d as pairs."""
    d = x.shape[-1]
    rates = 10000.0 ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    angles = torch.outer(torch.arange(x.shape[2], dtype=torch.float64), rates)
    a, b = x.chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def llama_loss(params, step):
    ids = torch.tensor((numpy.arange(4 * 9) * 7 + step * 5) % 32).reshape(4, 9)
    x = params["model.embed_tokens.weight"][ids[:, :-1]]
    hidden = torch.ones(8, 8, dtype=torch.bool).triu(1)
    for i in range(2):
        p = {n.split(f"layers.{i}.")[1]: v for n, v in params.items() if f"layers.{i}." in n}
        y = normed(x, p["input_layernorm.weight"])
        q, k, v = (
            (y @ p[f"self_attn.{n}_proj.weight"].T).reshape(4, 8, -1, 4).transpose(1, 2)
            for n in "qkv"
        )
        q, k, v = rotated(q), rotated(k).repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        scores = (q @ k.transpose(-1, -2) / 2).masked_fill(hidden, -math.inf)
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(4, 8, 16)
        x = x + mixed @ p["self_attn.o_proj.weight"].T
        y = normed(x, p["post_attention_layernorm.weight"])
        gate, up = (y @ p[f"mlp.{n}_proj.weight"].T for n in ("gate", "up"))
        x = x + (torch.nn.functional.silu(gate) * up) @ p["mlp.down_proj.weight"].T
    logits = normed(x, params["model.norm.weight"]) @ params["lm_head.weight"].T
    return torch.nn.functional.cross_entropy(logits.reshape(-1, 32), ids[:, 1:].reshape(-1))


def transformer(steps):
    """The Hessian times a vector, as norms of its parts by parameter, in order of the names; then
    losses of training with a penalty on the gradient."""
    model = llama()
    params = [model[name] for name in sorted(model)]
    along = [torch.tensor(values(tuple(p.shape), 50 + i)) for i, p in enumerate(params)]
    slopes = torch.autograd.grad(llama_loss(model, 0), params, create_graph=True)
    products = torch.autograd.grad(slopes, params, along)
    numbers = [p.norm().item() for p in products]
    for step in range(steps):
        loss = llama_loss(model, step)
        slopes = torch.autograd.grad(loss, params, create_graph=True)
        total = loss + 0.1 * sum(g.square().sum() for g in slopes)
        total.backward()
        descend(params, 0.002)
        numbers.append(total.item())
    return numbers


if __name__ == "__main__":
    torch.set_num_threads(1)
    written = {
        "torch": torch.__version__,
        "wgan": wgan(200),
        "maml": maml(200),
        "helmholtz": helmholtz(200),
        "transformer": transformer(20),
    }
    path = pathlib.Path(__file__).with_name("second_derivatives.json")
    path.write_text(json.dumps(written, indent=0) + "\n")
