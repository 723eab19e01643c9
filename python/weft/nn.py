# SPDX-License-Identifier: Apache-2.0
"""Modules: named parameters, named children and a forward."""

import copy

from weft import _nn_utils as utils, _weft, functional, init
from weft._array_api import asarray
from weft._members import delete_attribute, get_attribute, register_buffer, set_attribute
from weft._weft import (
    Dropout,
    Embedding,
    LayerNorm,
    Linear,
    Llama,
    LlamaConfig,
    Module,
    Parameter,
    RMSNorm,
    Sequential,
    llama_config,
)

__all__ = [
    "CrossEntropyLoss",
    "Dropout",
    "Embedding",
    "GELU",
    "Identity",
    "LayerNorm",
    "Linear",
    "Llama",
    "LlamaConfig",
    "MSELoss",
    "Module",
    "ModuleDict",
    "ModuleList",
    "Parameter",
    "Parameters",
    "RMSNorm",
    "ReLU",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Tanh",
    "functional",
    "init",
    "llama_config",
    "utils",
]


class Parameters(list):
    """Parameters in order of declaration, which know their names: optimizers take them so."""

    def __init__(self, named):
        super().__init__(parameter for _, parameter in named)
        self.named = named


def _declare(self, name, shape, init=None, dtype=_weft.float32):
    """Declares parameter `name`, without memory until it is sharded or `materialize` is called;
    init(tensor) fills a tensor of any layout with the initial values of the elements it holds."""
    self._declare(name, shape, init, dtype)
    return self._own_parameter(name)


def _named_parameters(self):
    """(name, Parameter) of every parameter once, own ones before the children's."""
    return [(names[0], parameter) for names, parameter in self._named_parameters()]


def _parameters(self):
    """Every parameter once, in order of declaration."""
    return Parameters(self.named_parameters())


def _children(self):
    """The child modules."""
    return [child for _, child in self.named_children()]


def _modules(self):
    """This module and all below it, parents first."""
    return [module for _, module in self.named_modules()]


def _state_dict(self):
    """Every parameter by its first name, as it is at rest, then every persistent buffer: detached
    tensors that alias. No traffic. Parameters without memory get it."""
    self._allocate()
    tensors = {name: t.detach() for name, t in _weft.state_dict(self).tensors.items()}
    declared = {name: tensors[name] for name, _ in self.named_parameters() if name in tensors}
    return declared | tensors


def _tensor_for(own, given):
    """What a state dict holds as a tensor, over the mesh of the receiver's where that has one."""
    if isinstance(given, (_weft.Tensor, _weft.Parameter)):
        return given
    given = asarray(given.detach() if hasattr(given, "detach") else given)
    return _weft.distribute(given, own.device_mesh) if own is not None and own.is_sharded else given


def _load_state_dict(self, state, strict=True):
    """Copies the elements of {name: Tensor} into the parameters; see weft.load_state_dict. Tensors
    of PyTorch and arrays of NumPy, whole on each rank, are taken too."""
    self._allocate()
    if not isinstance(state, _weft.StateDict):
        own = _weft.state_dict(self).tensors
        state = _weft.StateDict(
            {name: _tensor_for(own.get(name), given) for name, given in dict(state).items()}
        )
    return _weft.load_state_dict(self, state, strict=strict)


def _requires_grad_(self, requires_grad=True):
    """Freezes or thaws all parameters; before sharding."""
    for parameter in self.parameters():
        if parameter.dtype.is_floating_point:
            parameter.requires_grad = requires_grad
    return self


def _zero_grad(self, set_to_none=True):
    """Clears the gradients of all parameters."""
    if not set_to_none:
        raise ValueError(
            "zero_grad: gradients are cleared, never zeros; leave out set_to_none=False"
        )
    for parameter in self.parameters():
        parameter.clear_grad()


def _apply(self, function):
    """function(module) for all modules below, then for this one."""
    for child in self.children():
        child.apply(function)
    function(self)
    return self


def _to(self, device=None, dtype=None):
    """The module itself, with its parameters, gradients and buffers moved to `device` and the
    floating ones cast to `dtype`. ValueError for a device that this machine lacks, and for a module
    that is fully sharded."""
    if isinstance(device, _weft.DType):
        device, dtype = None, device
    if device is not None:
        self._to_device(device)
    if dtype is not None:
        self._to_dtype(dtype)
    return self


def _casting(name, dtype):
    def method(self):
        return self.to(dtype)

    method.__doc__ = f"to(weft.{dtype.name})."
    return method


def _named_buffers(self):
    """(name, tensor) of every buffer of this module and those below it."""
    return [(name, tensor) for name, tensor, _ in self._named_buffers]


def _buffers(self):
    """Every buffer of this module and those below it."""
    return [tensor for _, tensor in self.named_buffers()]


# What the constructor of a built-in class takes.
_OPTIONS = {
    Dropout: lambda m: {"p": m.p},
    Embedding: lambda m: {"num_embeddings": m.num_embeddings, "embedding_dim": m.embedding_dim},
    LayerNorm: lambda m: {
        "normalized_shape": m.normalized_shape,
        "eps": m.eps,
        "elementwise_affine": m._own_parameter("weight") is not None,
        "bias": m._own_parameter("bias") is not None,
    },
    Linear: lambda m: {
        "in_features": m.in_features,
        "out_features": m.out_features,
        "bias": m._own_parameter("bias") is not None,
    },
    Llama: lambda m: {"config": m.config},
    RMSNorm: lambda m: {"normalized_shape": m.normalized_shape, "eps": m.eps},
    Sequential: lambda m: {},
    Module: lambda m: {},
}


def _copy_members(made, module, memo):
    """Puts copies of the members of `module` into `made`, which is new and of the same class."""
    for names, parameter in module._named_parameters():
        for name in names:
            if "." not in name and made._own_parameter(name) is None:
                made._add_parameter(name, copy.deepcopy(parameter, memo))
    for name, child in module.named_children():
        if made._child(name) is None:
            copied = copy.deepcopy(child, memo)
            made.adopt(name, copied)
            if name in module.__dict__:
                object.__setattr__(made, name, copied)
    for path, below in module.named_modules():
        target = made.get_submodule(path)
        for name, tensor, persistent in below._own_buffers:
            if all(own != name for own, _, _ in target._own_buffers):
                target._register_buffer(name, copy.deepcopy(tensor, memo), persistent)
        for names, parameter in below._named_parameters():
            for name in names:
                if "." not in name:
                    target.set_parameter(name, copy.deepcopy(parameter, memo))


def _deepcopy(self, memo):
    """A module of the same class with copies of all that it has: parameters with their gradients,
    buffers, children, hooks and attributes. Ties stay ties. ValueError for a sharded module."""
    for path, module in self.named_modules():
        if module._is_sharded:
            raise ValueError(
                f"deepcopy: module {path or type(self).__name__!r} is sharded, expected one before "
                "fully_shard and parallelize; make another one and load_state_dict() into it"
            )
    built_in = next((kind for kind in type(self).__mro__ if kind in _OPTIONS), None)
    if built_in is Module and not self._is_made_in_python:
        raise ValueError("deepcopy: the module is a part of a built-in one; copy that")
    made = type(self).__new__(type(self))
    built_in.__init__(made, **_OPTIONS[built_in](self))
    memo[id(self)] = made
    _copy_members(made, self, memo)
    for name, value in self.__dict__.items():
        if name == "_hooks":
            made._add_hooks_of(copy.deepcopy(value, memo))
        elif name not in made.__dict__:
            object.__setattr__(made, name, copy.deepcopy(value, memo))
    if not self.training:
        made.eval()
    return made


def _cpu(self):
    """to("cpu")."""
    return self.to("cpu")


def _cuda(self, device=0):
    """to("cuda:<device>")."""
    return self.to(f"cuda:{device}" if isinstance(device, int) else device)


def _to_empty(self, *, device=None):
    """materialize(device): parameters get memory, and their initial values."""
    self.materialize(device or "cpu")
    return self


def _lines(module, indent):
    children = module.named_children()
    own = ", ".join(
        f"{name}: {parameter.shape}"
        for name, parameter in module.named_parameters()
        if "." not in name
    )
    head = f"{type(module).__name__}({own}"
    if not children:
        return head + ")"
    deeper = indent + "  "
    inner = "".join(f"\n{deeper}({name}): {_lines(child, deeper)}" for name, child in children)
    return f"{head}{inner}\n{indent})"


def _repr(self):
    return _lines(self, "")


for _name, _function in {
    "__deepcopy__": _deepcopy,
    "__setattr__": set_attribute,
    "__delattr__": delete_attribute,
    "__getattr__": get_attribute,
    "__repr__": _repr,
    "apply": _apply,
    "bfloat16": _casting("bfloat16", _weft.bfloat16),
    "buffers": _buffers,
    "children": _children,
    "cpu": _cpu,
    "cuda": _cuda,
    "declare": _declare,
    "double": _casting("double", _weft.float64),
    "float": _casting("float", _weft.float32),
    "half": _casting("half", _weft.float16),
    "load_state_dict": _load_state_dict,
    "modules": _modules,
    "named_buffers": _named_buffers,
    "named_parameters": _named_parameters,
    "parameters": _parameters,
    "register_buffer": register_buffer,
    "requires_grad_": _requires_grad_,
    "state_dict": _state_dict,
    "to": _to,
    "to_empty": _to_empty,
    "zero_grad": _zero_grad,
}.items():
    _function.__name__ = _name
    _function.__qualname__ = f"Module.{_name}"
    setattr(Module, _name, _function)


def _set_item(self, index, module):
    """Another child in the place of that one."""
    setattr(self, str(range(len(self))[index]), module)


Sequential.__setitem__ = _set_item


def _as_tensor(name):
    def method(self, *arguments):
        return getattr(self.tensor(), name)(*arguments)

    method.__name__ = name
    method.__qualname__ = f"Parameter.{name}"
    return method


def _get_of_tensor(self, name):
    """What a tensor has: of that which forward computes with."""
    if name.startswith("_"):
        raise AttributeError(f"Parameter has no attribute {name!r}")
    return getattr(self.tensor(), name)


def _set_item_of(self, index, value):
    """Elements of the value at rest."""
    self._at_rest[index] = value


Parameter.__getattr__ = _get_of_tensor
Parameter.__setitem__ = _set_item_of
for _name in (
    [f"__{r}{name}__" for name in ("add", "sub", "mul", "truediv", "pow") for r in ("", "r")]
    + [f"__{name}__" for name in ("matmul", "neg", "pos", "abs", "getitem", "len", "float")]
    + [f"__{name}__" for name in ("lt", "le", "gt", "ge")]
):
    setattr(Parameter, _name, _as_tensor(_name))
# In place they change the value at rest, as optimizers do.
for _name, _method in vars(_weft.Tensor).items():
    _is_operator = _name.startswith("__i") and f"__{_name[3:]}" in vars(_weft.Tensor)
    _is_method = _name.endswith("_") and not _name.startswith("_") and _name != "requires_grad_"
    if _is_operator or _is_method:
        setattr(Parameter, _name, _method)


class ModuleList(Module):
    """Modules "0", "1", ... for a custom forward to call."""

    def __init__(self, modules=()):
        super().__init__()
        for module in modules:
            self.append(module)

    def append(self, module):
        setattr(self, str(len(self)), module)
        return self

    def __len__(self):
        return len(self.named_children())

    def __iter__(self):
        return iter(self.children())

    def __getitem__(self, index):
        return self.children()[index]

    def __setitem__(self, index, module):
        setattr(self, str(range(len(self))[index]), module)


class ModuleDict(Module):
    """Modules by name, as items and as attributes, for a custom forward to call."""

    def __init__(self, modules=()):
        super().__init__()
        self.update(modules)

    def update(self, modules):
        for name, module in modules.items() if hasattr(modules, "items") else modules:
            self[name] = module

    def __setitem__(self, name, module):
        setattr(self, name, module)

    def __getitem__(self, name):
        child = self._child(name)
        if child is None:
            raise KeyError(name)
        return child

    def __delitem__(self, name):
        self[name]
        delattr(self, name)

    def __contains__(self, name):
        return self._child(name) is not None

    def __len__(self):
        return len(self.named_children())

    def __iter__(self):
        return iter(self.keys())

    def keys(self):
        return [name for name, _ in self.named_children()]

    def values(self):
        return self.children()

    def items(self):
        return self.named_children()


class Identity(Module):
    """Returns its input; takes any arguments of the layer in whose place it is."""

    def __init__(self, *arguments, **named):
        super().__init__()

    def forward(self, x):
        return x


class _OfOne(Module):
    """A function of one tensor as a module."""

    def forward(self, x):
        return type(self)._function(x)


class ReLU(_OfOne):
    """max(x, 0)."""

    _function = staticmethod(_weft.relu)


class GELU(Module):
    """x / 2 * (1 + erf(x / sqrt(2))), or its approximation by "tanh"; see functional.gelu."""

    def __init__(self, approximate="none"):
        super().__init__()
        self.approximate = approximate

    def forward(self, x):
        return functional.gelu(x, approximate=self.approximate)


class Softmax(Module):
    """exp(x) / sum of exp(x) along `dim`."""

    def __init__(self, dim=-1):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        return functional.softmax(x, self.dim)


class SiLU(_OfOne):
    """x * sigmoid(x)."""

    _function = staticmethod(_weft.silu)


class Sigmoid(_OfOne):
    """1 / (1 + exp(-x))."""

    _function = staticmethod(_weft.sigmoid)


class Tanh(_OfOne):
    """The hyperbolic tangent."""

    _function = staticmethod(_weft.tanh)


class CrossEntropyLoss(Module):
    """(logits [..., classes], targets [...]) -> the mean of -log softmax(logits)[target]; see
    functional.cross_entropy."""

    def __init__(self, *, ignore_index=_weft.IGNORED_TARGET, reduction="mean", label_smoothing=0.0):
        super().__init__()
        self.ignore_index = ignore_index
        self.reduction = reduction
        self.label_smoothing = label_smoothing

    def forward(self, logits, targets):
        return functional.cross_entropy(
            logits,
            targets,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class MSELoss(Module):
    """(x, y) -> the mean of (x - y)^2, their sum, or all of them with reduction="none"."""

    def __init__(self, *, reduction="mean"):
        super().__init__()
        self.reduction = reduction

    def forward(self, x, y):
        return functional.mse_loss(x, y, reduction=self.reduction)
