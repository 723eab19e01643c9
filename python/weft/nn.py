# SPDX-License-Identifier: Apache-2.0
"""Modules: named parameters, named children and a forward."""

from weft import _arguments, _array_api, _members, _nn_utils, _weft
from weft import functional as functional, init as init
from weft._image_layers import LAYERS as _LAYERS
from weft._layers import *
from weft._weft import Dropout as Dropout, Embedding as Embedding, Experts as Experts
from weft._weft import Float8Linear as Float8Linear, LatentAttention as LatentAttention
from weft._weft import LatentAttentionConfig as LatentAttentionConfig, LayerNorm as LayerNorm
from weft._weft import Linear as Linear, MoE as MoE, MoEConfig as MoEConfig, Module as Module
from weft._weft import Parameter as Parameter, RMSNorm as RMSNorm, Router as Router
from weft._weft import RouterOptions as RouterOptions, Sequential as Sequential
from weft._weft import TransformerConfig as TransformerConfig
from weft._weft import TransformerModel as TransformerModel, config_json as config_json
from weft._weft import convert_to_float8 as convert_to_float8
from weft._weft import transformer_block as transformer_block
from weft._weft import transformer_config as transformer_config
from weft._weft import transformer_families as transformer_families

utils = _nn_utils
globals().update(_LAYERS)


class Parameters(list):
    """Parameters in order of declaration, which know their names: optimizers take them so."""

    def __init__(self, named):
        super().__init__(parameter for _, parameter in named)
        self.named = named


def _tensor_for(own, given):
    """The tensor of an entry of a state dict, over the receiver's mesh where that has one."""
    if isinstance(given, (_weft.Tensor, _weft.Parameter)):
        return given
    given = _array_api.asarray(given.detach() if hasattr(given, "detach") else given)
    return _weft.distribute(given, own.device_mesh) if own is not None and own.is_sharded else given


def _declared_names(module):
    """The names of all parameters in order of declaration, tied ones each time."""
    names, waiting = [], [("", module)]
    while waiting:
        prefix, each = waiting.pop()
        names += [prefix + name for name, _ in each._own_parameters]
        waiting += [(f"{prefix}{name}.", child) for name, child in each.named_children()[::-1]]
    return names


def _casting(dtype):
    def method(self):
        return self.to(dtype)

    method.__doc__ = f"to(weft.{dtype.name})."
    return method


def _lines(module, indent):
    """The children, the shapes and layouts of the own parameters, and the strategy."""
    children = module.named_children()
    own = [
        f"{name}: {parameter.shape}{_weft._layout_of(parameter)}"
        for name, parameter in module.named_parameters()
        if "." not in name
    ]
    own += filter(None, [_weft._strategy_of(module)])
    head = f"{type(module).__name__}({', '.join(own)}"
    if not children:
        return head + ")"
    deeper = indent + "  "
    inner = "".join(f"\n{deeper}({name}): {_lines(child, deeper)}" for name, child in children)
    return f"{head}{inner}\n{indent})"


class _Methods:
    """Members that modules have in addition to the methods of the compiled class."""

    __deepcopy__ = _members.deepcopy
    __setattr__ = _members.set_attribute
    __delattr__ = _members.delete_attribute
    __getattr__ = _members.get_attribute
    register_buffer = _members.register_buffer

    def declare(self, name, shape, init=None, dtype=_weft.float32):
        """Declares parameter `name`, without memory until it is sharded or `materialize` is called;
        init(tensor) fills a tensor of any layout with the initial values of the elements it
        holds."""
        self._declare(name, shape, init, dtype)
        return self._member(name)

    def named_parameters(self):
        """(name, Parameter) of every parameter once, own ones before the children's."""
        return [(names[0], parameter) for names, parameter in self._named_parameters()]

    def parameters(self):
        """Every parameter once, in order of declaration."""
        return Parameters(self.named_parameters())

    def children(self):
        """The child modules."""
        return [child for _, child in self.named_children()]

    def modules(self):
        """This module and all below it, parents first."""
        return [module for _, module in self.named_modules()]

    def state_dict(self):
        """Every parameter by all its names, as it is at rest, then every persistent buffer:
        detached tensors that alias, also those of tied names. No traffic. Parameters without memory
        get it."""
        self._allocate()
        tensors = {name: t.detach() for name, t in _weft.state_dict(self).tensors.items()}
        first = {name: names[0] for names, _ in self._named_parameters() for name in names}
        state = {name: tensors.pop(name) for name in list(tensors) if name not in first}
        declared = [name for name in _declared_names(self) if name in first]
        return {name: tensors[first[name]] for name in (*declared, *first)} | state

    def load_state_dict(self, state, strict=True):
        """Copies the elements of {name: Tensor} into the parameters; see weft.load_state_dict.
        Tensors of PyTorch and arrays of NumPy, whole on each rank, are taken too."""
        self._allocate()
        if not isinstance(state, _weft.StateDict):
            own = _weft.state_dict(self).tensors
            state = _weft.StateDict(
                {name: _tensor_for(own.get(name), given) for name, given in dict(state).items()}
            )
        return _weft.load_state_dict(self, state, strict=strict)

    def requires_grad_(self, requires_grad=True):
        """Freezes or thaws all parameters; of a sharded model between steps, without gradients."""
        for parameter in self.parameters():
            if parameter.dtype.is_floating_point:
                parameter.requires_grad = requires_grad
        return self

    def zero_grad(self, set_to_none=True):
        """Clears the gradients of all parameters."""
        if not set_to_none:
            raise ValueError(
                "zero_grad: set_to_none is False, expected True; gradients are cleared, "
                "not filled with 0"
            )
        for parameter in self.parameters():
            parameter.clear_grad()

    def add_hooks(self, *, before=None, after=None) -> _weft.HookHandle:
        """before(*inputs) and after(*outputs) run around forward; what they return passes on
        instead, None leaves it. Gives a handle, whose remove() takes them away."""
        return self._add_hooks(before, after, False)

    def register_forward_pre_hook(self, hook) -> _weft.HookHandle:
        """hook(module, inputs) runs before forward; what it returns (a tuple, or one tensor) goes
        in instead, None leaves the inputs. Gives a handle with remove()."""
        return self._add_hooks(hook, None, True)

    def register_forward_hook(self, hook) -> _weft.HookHandle:
        """hook(module, inputs, output) runs after forward, with what forward was given; what it
        returns comes out instead, None leaves the output. Gives a handle with remove()."""
        return self._add_hooks(None, hook, True)

    def apply(self, function):
        """function(module) for all modules below, then for this one."""
        for child in self.children():
            child.apply(function)
        function(self)
        return self

    def to(self, device=None, dtype=None):
        """The module itself, with its parameters, gradients and buffers moved to `device` and the
        floating ones cast to `dtype`; those of a tensor may be given. ValueError for a device that
        this machine lacks, and for a module that is fully sharded."""
        if isinstance(device, _weft.DType):
            device, dtype = None, device
        elif isinstance(device, _weft.Tensor):
            device, dtype = device.device, device.dtype
        elif not isinstance(device, (str, _weft.Device, type(None))):
            kind = type(device).__name__
            raise TypeError(f"to: it is a {kind}, expected a device, a dtype or a Tensor")
        if device is not None:
            self._to_device(device)
        if dtype is not None:
            self._to_dtype(dtype)
        return self

    def named_buffers(self):
        """(name, tensor) of every buffer of this module and those below it."""
        return [(name, tensor) for name, tensor, _ in self._named_buffers]

    def buffers(self):
        """Every buffer of this module and those below it."""
        return [tensor for _, tensor in self.named_buffers()]

    def cpu(self):
        """to("cpu")."""
        return self.to("cpu")

    def cuda(self, device=0):
        """to("cuda:<device>")."""
        return self.to(f"cuda:{device}" if isinstance(device, int) else device)

    def to_empty(self, *, device=None):
        """materialize(device): parameters get memory, and their initial values."""
        self.materialize(device or "cpu")
        return self

    def __repr__(self):
        return _lines(self, "")

    bfloat16 = _casting(_weft.bfloat16)
    double = _casting(_weft.float64)
    float = _casting(_weft.float32)
    half = _casting(_weft.float16)


for _name, _function in vars(_Methods).items():
    if callable(_function):
        setattr(Module, _name, _arguments.renamed(_function, f"Module.{_name}"))


Sequential.__setitem__ = ModuleList.__setitem__


def _as_tensor(name):
    def method(self, *arguments):
        return getattr(self.tensor(), name)(*arguments)

    return _arguments.renamed(method, f"Parameter.{name}")


def _get_of_tensor(self, name):
    """Returns an attribute of the tensor that forward computes with."""
    if name.startswith("_"):
        raise AttributeError(f"Parameter has no attribute {name!r}")
    return getattr(self.tensor(), name)


def _set_item_of(self, index, value):
    """Elements of the value at rest."""
    self._at_rest[index] = value


def _hook_gradient(self, hook):
    """Calls hook(leaf) after a backward has added to the gradient of the parameter at rest."""
    return self._at_rest.register_post_accumulate_grad_hook(hook)


Parameter.__getattr__ = _get_of_tensor
Parameter.register_post_accumulate_grad_hook = _hook_gradient
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
