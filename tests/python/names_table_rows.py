# SPDX-License-Identifier: Apache-2.0
"""Rows of the names table in docs/from-pytorch.md that mean the same on one process: functions of a
namespace, `weft.torch` or `torch`, by the first cell of the row."""

import copy
import pickle

import numpy as np
import weft
import weft.torch

WHOLE = np.arange(12, dtype=np.float32).reshape(4, 3)
ALIKE = {}


def alike(row):
    """A function of a namespace that is run in weft and in PyTorch."""
    return lambda function: ALIKE.setdefault(row, function)


def tensor(T, *shape, scale=1.0, offset=0.0):
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    return T.from_numpy(np.sin(values) * np.float32(scale) + np.float32(offset))


def linear(T, rows=3, columns=4):
    layer = T.nn.Linear(columns, rows)
    layer.load_state_dict({"weight": tensor(T, rows, columns), "bias": tensor(T, rows)})
    return layer


@alike("`torch.from_numpy`, `torch.from_dlpack`, `t.numpy()`")
def _(T):
    array = WHOLE.copy()
    shared = T.from_numpy(array)
    array[0, 0] = 7
    return [shared, T.from_dlpack(shared), shared.numpy()]


@alike('`t.float()`, `t.to("cpu")`, `t.cpu()`, `t.softmax(dim=0)`')
def _(T):
    x = tensor(T, 4, 3)
    return [x.double().float(), x.to("cpu"), x.cpu(), x.softmax(dim=0)]


@alike("`copy.deepcopy(t)`, `pickle.dumps(t)`")
def _(T):
    x = tensor(T, 4, 3)
    return [copy.deepcopy(x), pickle.loads(pickle.dumps(x))]


@alike("`a + b`, `a @ b`, `a.sum(dim=0)`, `a[:, 1:]`")
def _(T):
    a, b = tensor(T, 3, 3), tensor(T, 3, 3, scale=2)
    return [a + b, a @ b, a.sum(dim=0), a[:, 1:]]


@alike("`x[[0, 2]]`, `x[mask]`, `x[i, :, j]`, `x[::-1]`, `x[mask] = 0.0`")
def _(T):
    x, i, j = tensor(T, 4, 3, 2), T.tensor([3, 0]), T.tensor([1, -1])
    mask = x > 0.2
    turned = x[::-1].clone() if T is weft.torch else x.flip(0)
    made = [x[[0, 2]], x[mask], x[i, :, j], turned]
    x[mask] = 0.0
    return [*made, x]


@alike("`a += b`, `a.mul_(b)`, `p -= lr * p.grad` under `no_grad`")
def _(T):
    a, b, p = tensor(T, 3), tensor(T, 3), tensor(T, 3).requires_grad_()
    a += b
    a.mul_(b)
    (p * p).sum().backward()
    with T.no_grad():
        p -= 0.1 * p.grad
    y = tensor(T, 4)
    y[0:2] *= 3
    return [a, p, y]


@alike("`x.sum(dim=0, keepdim=True)`, `x.sum(0)`, `x.sum(axis=0)`")
def _(T):
    x = tensor(T, 3, 4)
    return [x.sum(dim=0, keepdim=True), x.sum(0), x.sum(axis=0)]


@alike("`torch.no_grad()`, `loss.backward()`, `t.grad`")
def _(T):
    t = tensor(T, 3).requires_grad_()
    loss = (t * t).sum()
    loss.backward()
    with T.no_grad():
        assert not (t * 2).requires_grad
    return [t.grad]


@alike("`nn.Module`, `nn.Parameter`, `nn.Sequential`, `nn.Linear`, ...")
def _(T):
    class Scaled(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = T.nn.Parameter(tensor(T, 3))

        def forward(self, x):
            return x * self.scale

    return [T.nn.Sequential(linear(T), T.nn.ReLU(), Scaled())(tensor(T, 2, 4))]


@alike("`nn.init.xavier_uniform_(layer.weight)` and others")
def _(T):
    layer = T.nn.Linear(200, 300)
    T.nn.init.xavier_uniform_(layer.weight)
    T.nn.init.constant_(layer.bias, 3.0)
    layer(tensor(T, 1, 200))
    return [float(abs(layer.weight.detach()).max() < (6 / 500) ** 0.5), layer.bias]


@alike("`torch.nn.functional`")
def _(T):
    F, x = T.nn.functional, tensor(T, 3, 4)
    return [F.relu(x), F.silu(x), F.softmax(x, dim=-1), F.mse_loss(x, x * 2)]


@alike(
    "`F.scaled_dot_product_attention(q, k, v, attn_mask, dropout_p, is_causal, scale=, "
    "enable_gqa=)`"
)
def _(T):
    attend = T.nn.functional.scaled_dot_product_attention
    q, k, v = (tensor(T, 2, 4, 3, 8, scale=s) for s in (1, 2, 3))
    few = k[:, :2]
    mask = tensor(T, 3, 3) > 0.1
    return [
        attend(q, k, v),
        attend(q, k, v, is_causal=True, scale=0.3),
        attend(q, k, v, mask, 0.0, False),
        attend(q, k, v, tensor(T, 3, 3)),
        attend(q, few, few, enable_gqa=True),
    ]


@alike("`F.cross_entropy(x, t, ignore_index=, reduction=, label_smoothing=)`")
def _(T):
    x, t, entropy = tensor(T, 3, 4), T.tensor([1, -1, 3]), T.nn.functional.cross_entropy
    return [
        entropy(x, t, ignore_index=-1),
        entropy(x, t, ignore_index=-1, reduction="sum"),
        entropy(x, T.tensor([0, 1, 3]), reduction="none", label_smoothing=0.2),
    ]


@alike("`F.layer_norm(x, shape, weight, bias, eps)`, `F.rms_norm`")
def _(T):
    F, x, w = T.nn.functional, tensor(T, 3, 4), tensor(T, 4)
    return [F.layer_norm(x, (4,), w, w, 1e-3), F.layer_norm(x, (4,)), F.rms_norm(x, (4,), w, 1e-3)]


@alike('`F.gelu(x, approximate="tanh")`')
def _(T):
    return [T.nn.functional.gelu(tensor(T, 9, scale=3), approximate="tanh")]


@alike("`nn.Linear(in, out, bias=True, device=, dtype=)`, `nn.Embedding`")
def _(T):
    layer = T.nn.Linear(400, 300, bias=True, device="cpu", dtype=T.float64)
    assert layer.weight.dtype == T.float64 and T.nn.Linear(2, 2, bias=False).bias is None
    table = T.nn.Embedding(300, 400, device="cpu")
    bounds = [float(abs(p.detach()).max() <= 1 / 20) for p in (layer.weight, layer.bias)]
    deviation = np.asarray(table.weight.detach().numpy()).std()
    return [*bounds, float(abs(deviation - 1) < 0.02), linear(T)(tensor(T, 2, 4))]


@alike("`nn.LayerNorm(shape, eps, elementwise_affine, bias)`, `nn.RMSNorm(shape, eps)`")
def _(T):
    x, norm = tensor(T, 3, 4), T.nn.LayerNorm
    made = [norm(4, 1e-3), norm((4,), 1e-3, True, False), norm(4, elementwise_affine=False)]
    return [*(layer(x) for layer in made), T.nn.RMSNorm(4, 1e-3)(x)]


@alike('`nn.ModuleList`, `nn.ModuleDict`, `nn.Identity`, `nn.GELU("tanh")`, `nn.Softmax(dim)`')
def _(T):
    layers = T.nn.ModuleList([T.nn.Identity(), T.nn.GELU("tanh")])
    named = T.nn.ModuleDict({"last": T.nn.Softmax(0)})
    x = tensor(T, 3, 4)
    for layer in layers:
        x = layer(x)
    return [named["last"](x), named.last(x), len(layers)]


@alike('`model.to("cuda")`, `model.cuda()`, `model.cpu()`')
def _(T):
    model = linear(T)
    return [model.to("cpu").weight, model.cpu().bias]


@alike("`model.to(torch.bfloat16)`, `model.half()`, `model.double()`")
def _(T):
    made = [linear(T).to(T.bfloat16), linear(T).half(), linear(T).double()]
    assert [m.weight.dtype for m in made] == [T.bfloat16, T.float16, T.float64]
    return [m.float().weight for m in made]


@alike('`self.register_buffer("mask", t, persistent=True)`, `named_buffers()`')
def _(T):
    module = T.nn.Module()
    module.register_buffer("mask", tensor(T, 3), persistent=True)
    module.register_buffer("other", tensor(T, 2), persistent=False)
    assert [name for name, _ in module.named_buffers()] == ["mask", "other"]
    assert list(module.state_dict()) == ["mask"]
    return [module.mask, module.other]


@alike("`copy.deepcopy(model)`, `copy.deepcopy((model, optimizer))`")
def _(T):
    model = linear(T)
    optimizer = T.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    model(tensor(T, 2, 4)).sum().backward()
    optimizer.step()
    twin, its = copy.deepcopy((model, optimizer))
    assert twin.weight.grad is None
    twin(tensor(T, 2, 4)).sum().backward()
    its.step()
    return [model.weight, twin.weight, copy.deepcopy(model).bias]


@alike(
    "`x.split(4, dim=2)`, `x.chunk(3)`, `x.masked_fill(mask, -1.0)`, `x.contiguous()`, "
    "`x.narrow(0, 1, 2)`"
)
def _(T):
    x = tensor(T, 4, 2, 9)
    parts = [*x.split(4, dim=2), *x.chunk(3)]
    return [*parts, x.masked_fill(x > 0, -1.0), x.transpose(0, 1).contiguous(), x.narrow(0, 1, 2)]


@alike("`torch.nn.utils.clip_grad_value_(parameters, 0.5)`")
def _(T):
    model = linear(T)
    model(tensor(T, 2, 4)).sum().backward()
    T.nn.utils.clip_grad_value_(model.parameters(), 0.5)
    return [p.grad for p in model.parameters()]


@alike("`torch.utils.checkpoint.checkpoint(f, *x)`")
def _(T):
    x = tensor(T, 3).requires_grad_()
    if T is weft.torch:
        y = weft.recompute(lambda a: a * a, x)
        weft.nn.Linear(2, 2).set_recompute()
    else:
        from torch.utils.checkpoint import checkpoint

        y = checkpoint(lambda a: a * a, x, use_reentrant=False)
    y.sum().backward()
    return [x.grad]


@alike("`model(x=x, mask=mask, scale=2)`, `self.layer = other`, `class Mine(nn.Linear)`")
def _(T):
    class Mine(T.nn.Linear):
        def forward(self, x, mask=None, scale=1):
            y = super().forward(x) * scale
            return y if mask is None else y * mask

    model = T.nn.Module()
    model.layer = Mine(4, 3)
    model.layer = Mine(4, 3)
    model.layer.load_state_dict({"weight": tensor(T, 3, 4), "bias": tensor(T, 3)})
    return [model.layer(x=tensor(T, 2, 4), mask=tensor(T, 3), scale=2)]


@alike("`register_forward_hook`, `handle.remove()`, `apply`, `to_empty`")
def _(T):
    model, seen = T.nn.Sequential(linear(T)), []
    handle = model.register_forward_hook(lambda module, given, out: out * 2)
    doubled = model(tensor(T, 2, 4))
    handle.remove()
    model.apply(lambda module: seen.append(module))
    return [doubled, model(tensor(T, 2, 4)), len(seen), len(list(model.to_empty(device="cpu")))]


def trained(T, make, **options):
    model = linear(T)
    optimizer = make(model.parameters(), **options)
    for _ in range(3):
        optimizer.zero_grad(set_to_none=True)
        model(tensor(T, 2, 4)).sum().backward()
        optimizer.step()
    return [model.weight, model.bias]


@alike("`torch.optim.AdamW`, `Adam`, `SGD`")
def _(T):
    o = T.optim
    return [*trained(T, o.AdamW, lr=0.1), *trained(T, o.Adam, lr=0.1), *trained(T, o.SGD, lr=0.1)]


@alike(
    '`AdamW([{"params": a, "weight_decay": 0}, {"params": b}])`, `optimizer.param_groups[0]["lr"]`'
)
def _(T):
    model = linear(T)
    groups = [{"params": [model.bias], "weight_decay": 0}, {"params": [model.weight]}]
    optimizer = T.optim.AdamW(groups, lr=0.1, weight_decay=0.5)
    optimizer.param_groups[0]["lr"] = 0.3
    model(tensor(T, 2, 4)).sum().backward()
    optimizer.step()
    return [model.weight, model.bias, optimizer.param_groups[0]["lr"]]


@alike("`optimizer.state_dict()`, `load_state_dict`")
def _(T):
    made = []
    for _ in range(2):
        model = linear(T)
        optimizer = T.optim.AdamW(model.parameters(), lr=0.1)
        if made:
            optimizer.load_state_dict(made[0])
        model(tensor(T, 2, 4)).sum().backward()
        optimizer.step()
        made.append(optimizer.state_dict())
    return [model.weight, sorted(made[0]["state"])]


@alike("`class Mine(torch.optim.Optimizer)`")
def _(T):
    model = linear(T)
    model(tensor(T, 2, 4)).sum().backward()
    if T is weft.torch:

        class Mine(weft.optim.Optimizer):
            def update(self, value, gradient, state, step, options):
                value -= options["lr"] * gradient

    else:
        import torch

        class Mine(torch.optim.Optimizer):
            @torch.no_grad()
            def step(self):
                for group in self.param_groups:
                    for p in group["params"]:
                        p -= group["lr"] * p.grad

    Mine(model.parameters(), {"lr": 0.1}).step()
    return [model.weight]


@alike("`optimizer.zero_grad(set_to_none=True)`")
def _(T):
    model = linear(T)
    optimizer = T.optim.SGD(model.parameters(), lr=0.1)
    model(tensor(T, 2, 4)).sum().backward()
    optimizer.zero_grad(set_to_none=True)
    return [float(model.weight.grad is None)]


@alike("`torch.optim.lr_scheduler.CosineAnnealingLR` and others")
def _(T):
    optimizer = T.optim.SGD(linear(T).parameters(), lr=1.0)
    schedulers, rates = T.optim.lr_scheduler, []
    cosine = schedulers.CosineAnnealingLR(optimizer, 5)
    for _ in range(4):
        if T is not weft.torch:
            optimizer.step()
        cosine.step()
        rates.append(optimizer.param_groups[0]["lr"])
    return rates


@alike("`clip_grad_norm_(model.parameters(), 1.0, norm_type=2.0)`")
def _(T):
    model = linear(T)
    model(tensor(T, 2, 4)).sum().backward()
    norm = T.nn.utils.clip_grad_norm_(model.parameters(), 1.0, norm_type=2.0)
    return [float(norm), *(p.grad for p in model.parameters())]
