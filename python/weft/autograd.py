# SPDX-License-Identifier: Apache-2.0
"""Derivatives: gradients of gradients, products with Jacobians and Hessians, custom functions, and
checks of both."""

import contextlib

from weft import _weft
from weft._context import enable_grad, no_grad
from weft._weft import backward, grad


class _Context:
    """State that the forward and the backward of one call of a Function share."""

    def __init__(self, needs_input_grad):
        self.needs_input_grad = needs_input_grad
        self._saved, self._outputs, self._unmarked, self._versions = (), {}, (), ()
        self._materializes = True

    def save_for_backward(self, *tensors):
        """Keeps inputs and outputs for backward, where `saved_tensors` are them."""
        self._saved = tensors

    def mark_non_differentiable(self, *tensors):
        """States that no gradient flows through these outputs."""
        self._unmarked = tensors

    def set_materialize_grads(self, value):
        """States whether backward gets zeros (the default) or None where there is no gradient."""
        self._materializes = value

    @property
    def saved_tensors(self):
        for i, (x, version) in enumerate(zip(self._saved, self._versions)):
            if _version(x) != version:
                raise ValueError(
                    f"saved_tensors: tensor {i} {x.shape} was changed in place after forward, "
                    "expected its values for backward"
                )
        return tuple(
            _weft._as_output(self._outputs[id(x)], x) if id(x) in self._outputs else x
            for x in self._saved
        )


def _version(x):
    return x._version if isinstance(x, _weft.Tensor) else None


def _zeros_of(x):
    """A function that returns zeros laid out as the tensor, which it does not keep."""
    if not isinstance(x, _weft.Tensor) or not x.dtype.is_floating_point:
        return lambda: None
    shape, dtype, device = x.shape, x.dtype, x.device
    mesh, placements = (x.device_mesh, x.placements) if x.is_sharded else (None, ())

    def made():
        zeros = _weft.zeros(shape, dtype=dtype, device=device)
        if mesh is None:
            return zeros
        kept = [_weft.Replicate() if p.is_partial() else p for p in placements]
        return _weft.distribute(zeros, mesh, kept)

    return made


class Function:
    """A function with a custom gradient, as PyTorch's: derive from it, define the static methods
    `forward(ctx, *args)` and `backward(ctx, *grads)`, and call `apply`. backward returns one
    gradient, or None, for each argument. It is differentiable if it computes by ops."""

    @staticmethod
    def forward(ctx, *args):
        """Returns the output, or a tuple of them."""
        raise NotImplementedError("autograd: forward of the Function is missing, expected one")

    @staticmethod
    def backward(ctx, *grads):
        """Returns the gradient of each argument, or None, from those of the outputs."""
        raise NotImplementedError("autograd: backward of the Function is missing, expected one")

    @classmethod
    def apply(cls, *args):
        """Calls forward, and records backward for the gradient."""
        inputs = [x.tensor() if isinstance(x, _weft.Parameter) else x for x in args]
        places = [i for i, x in enumerate(inputs) if isinstance(x, _weft.Tensor)]
        needs = tuple(isinstance(x, _weft.Tensor) and x.requires_grad for x in inputs)
        ctx = _Context(needs)
        recording = _weft.is_grad_enabled() and any(needs)
        with no_grad():
            outputs = cls.forward(ctx, *inputs)
        if not recording:
            return outputs
        several = isinstance(outputs, (tuple, list))
        outputs = list(outputs) if several else [outputs]
        unmarked = {id(x) for x in ctx._unmarked}
        marked = [
            i
            for i, x in enumerate(outputs)
            if isinstance(x, _weft.Tensor) and id(x) not in unmarked
        ]
        # The returned tensors must not keep the node that keeps the context.
        plain = [outputs[i].detach() for i in marked]
        saved = {id(outputs[i]): n for n, i in enumerate(marked)}
        ctx._saved = tuple(plain[saved[id(x)]] if id(x) in saved else x for x in ctx._saved)
        ctx._outputs = {id(x): n for n, x in enumerate(plain)}
        ctx._versions = tuple(map(_version, ctx._saved))

        # Nor may backward keep the outputs.
        count, expected = len(outputs), len(args)
        zeros = [_zeros_of(x) for x in outputs]

        def backward(*grads):
            it = iter(grads)
            given = [next(it) if i in marked else None for i in range(count)]
            if ctx._materializes:
                given = [made() if x is None else x for x, made in zip(given, zeros)]
            returned = cls.backward(ctx, *given)
            returned = returned if isinstance(returned, (tuple, list)) else (returned,)
            if len(returned) != expected:
                raise ValueError(
                    f"{cls.__name__}: number of gradients that backward returned is "
                    f"{len(returned)}, expected {expected}, one an argument of forward, or None"
                )
            return [returned[i] for i in places]

        recorded = _weft._record(cls.__name__, [inputs[i] for i in places], plain, backward)
        for i, x in zip(marked, recorded):
            outputs[i] = x
        return tuple(outputs) if several else outputs[0]


@contextlib.contextmanager
def detect_anomaly(model=None):
    """Raises RuntimeError at the first op of this rank in the scope that makes NaN or infinity of
    finite operands, in forward or in a gradient of any order; names it, the module of `model` and
    the rank."""
    scope = _weft._DetectAnomaly(model)
    try:
        yield
    finally:
        del scope


@contextlib.contextmanager
def shadow(model=None, *, every=1, result=1e-3, gradient=1e-3):
    """Computes one op call in `every` again on whole tensors by the op's definition, and compares
    results, and gradients with central differences. RuntimeError names the first op that is off.
    All ranks enter and leave it together. A checked call costs about five whole ones."""
    scope = _weft._ShadowScope(model, every, result, gradient)
    try:
        yield
    finally:
        del scope


def functional_call(module, parameters, args=(), kwargs=None):
    """Calls the module with the tensors of a dict in place of its parameters of these names.
    Gradients flow to the tensors."""
    values = {
        name: x._at_rest if isinstance(x, _weft.Parameter) else x for name, x in parameters.items()
    }
    args = args if isinstance(args, tuple) else (args,)
    scope = _weft._ReplacedParameters(module, values)
    try:
        return module(*args, **(kwargs or {}))
    finally:
        scope.restore()


def _like(given, results):
    return results if isinstance(given, (tuple, list)) else results[0]


def _ones_or(v, func, inputs):
    if v is not None:
        return v
    with no_grad():
        outputs = func(*inputs) if isinstance(inputs, (tuple, list)) else func(inputs)
    outputs = outputs if isinstance(outputs, (tuple, list)) else [outputs]
    return [_weft.ones_like(x) for x in outputs]


def vjp(func, inputs, v=None, create_graph=False):
    """(outputs, gradients of the outputs times v by the inputs); v is 1 for one element."""
    outputs, found = _weft._vjp(func, inputs, _ones_or(v, func, inputs), create_graph)
    return (outputs[0] if len(outputs) == 1 else outputs), _like(inputs, found)


def jvp(func, inputs, v, create_graph=False):
    """(outputs, their derivatives along v), by two backwards."""
    outputs, found = _weft._jvp(func, inputs, v, create_graph)
    return (outputs[0], found[0]) if len(outputs) == 1 else (outputs, found)


def hvp(func, inputs, v, create_graph=False):
    """(output, Hessian of the only output times v)."""
    outputs, found = _weft._hvp(func, inputs, v, create_graph)
    return outputs[0], _like(inputs, found)


def jacobian(func, inputs, create_graph=False):
    """Jacobians with the dims of an output and then those of an input; nested tuples
    [output][input] where there are several."""
    rows = [_like(inputs, row) for row in _weft._jacobian(func, inputs, create_graph)]
    return rows[0] if len(rows) == 1 else tuple(rows)


def hessian(func, inputs, create_graph=False):
    """Second derivatives of the only output; nested tuples [input][input] where there are
    several."""
    rows = [_like(inputs, row) for row in _weft._hessian(func, inputs, create_graph)]
    return _like(inputs, tuple(rows))


def _checked(name, check, func, inputs, eps, atol, rtol, raise_exception):
    wrong = check(func, inputs, eps, atol, rtol)
    if wrong and raise_exception:
        raise RuntimeError(f"{name}: {wrong}")
    return not wrong


def gradcheck(func, inputs, *, eps=1e-6, atol=1e-5, rtol=1e-3, raise_exception=True):
    """Compares gradients with central differences, for inputs of float64; RuntimeError names what
    differs first."""
    check = _weft._check_gradients
    return _checked("gradcheck", check, func, inputs, eps, atol, rtol, raise_exception)


def gradgradcheck(func, inputs, *, eps=1e-6, atol=1e-5, rtol=1e-3, raise_exception=True):
    """The same for second derivatives."""
    check = _weft._check_second_gradients
    return _checked("gradgradcheck", check, func, inputs, eps, atol, rtol, raise_exception)


__all__ = (
    "Function backward detect_anomaly enable_grad functional_call grad gradcheck gradgradcheck "
    "hessian hvp jacobian jvp no_grad shadow vjp"
).split()
