# SPDX-License-Identifier: Apache-2.0
"""Containers, and functions as modules."""

import inspect as _inspect

from weft import _weft, functional
from weft._arguments import renamed as _renamed
from weft._weft import Module, MultiheadAttention as MultiheadAttention


class ModuleList(Module):
    """Modules "0", "1", ... for a custom forward to call."""

    def __init__(self, modules=()):
        super().__init__()
        for module in modules:
            self.append(module)

    def append(self, module):
        """Adds a module at the end."""
        if not isinstance(module, Module):
            kind = type(module).__name__
            raise TypeError(f"module: item of a list is a {kind}, expected a Module")
        setattr(self, str(len(self)), module)
        return self

    def __len__(self):
        return len(self.named_children())

    def __iter__(self):
        return iter(self.children())

    def __getitem__(self, index):
        return self.children()[index]

    def __setitem__(self, index, module):
        """Another child in the place of that one."""
        setattr(self, str(range(len(self))[index]), module)


class ModuleDict(Module):
    """Modules by name, as items and as attributes, for a custom forward to call."""

    def __init__(self, modules=()):
        super().__init__()
        self.update(modules)

    def update(self, modules):
        """Adds modules: of a dict, or pairs of a name and a module."""
        for name, module in modules.items() if hasattr(modules, "items") else modules:
            self[name] = module

    def __setitem__(self, name, module):
        setattr(self, name, module)

    def __getitem__(self, name):
        child = self._member(name)
        if not isinstance(child, Module):
            raise KeyError(name)
        return child

    def __delitem__(self, name):
        self[name]
        delattr(self, name)

    def __contains__(self, name):
        return isinstance(self._member(name), Module)

    def __len__(self):
        return len(self.named_children())

    def __iter__(self):
        return iter(self.keys())

    def keys(self):
        """Returns the names."""
        return [name for name, _ in self.named_children()]

    def values(self):
        """Returns the modules."""
        return self.children()

    def items(self):
        """Returns pairs of a name and a module."""
        return self.named_children()


class Identity(Module):
    """Returns its input; takes any arguments of the layer in whose place it is."""

    def __init__(self, *arguments, **named):
        super().__init__()

    def forward(self, x):
        return x


def _of_one(name, function, text):
    """A class of modules that are a function of one tensor."""

    class OfOne(Module):
        __doc__ = text

        def forward(self, x):
            return function(x)

    _renamed(OfOne.forward, f"{name}.forward")
    return _renamed(OfOne, name)


ReLU = _of_one("ReLU", _weft.relu, "max(x, 0).")
SiLU = _of_one("SiLU", _weft.silu, "x * sigmoid(x).")
Sigmoid = _of_one("Sigmoid", _weft.sigmoid, "1 / (1 + exp(-x)).")
Tanh = _of_one("Tanh", _weft.tanh, "The hyperbolic tangent.")


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


def _loss_of(name, function, text, *ordered, **named):
    """A class of modules that compute function(input, target, **options), or of three inputs.
    `ordered` and `named` are the options that may be given by position, and by name only: pairs of
    name and default."""
    options = dict(ordered) | named
    kind_of = _inspect.Parameter
    kinds = [kind_of.POSITIONAL_OR_KEYWORD] * len(ordered) + [kind_of.KEYWORD_ONLY] * len(named)
    signature = _inspect.Signature(
        [kind_of(n, kind, default=d) for kind, (n, d) in zip(kinds, options.items())]
    )

    class Loss(Module):
        __doc__ = text

        def __init__(self, *given, **words):
            try:
                bound = signature.bind(*given, **words)
            except TypeError as error:
                raise TypeError(f"{name}: {error}") from None
            super().__init__()
            bound.apply_defaults()
            for option, value in bound.arguments.items():
                setattr(self, option, value)

        def forward(self, input, target, *more):
            return function(input, target, *more, **{n: getattr(self, n) for n in options})

    Loss.__init__.__signature__ = signature
    _renamed(Loss.__init__, f"{name}.__init__")
    _renamed(Loss.forward, f"{name}.forward")
    return _renamed(Loss, name)


CrossEntropyLoss = _loss_of(
    "CrossEntropyLoss",
    functional.cross_entropy,
    "(logits [..., classes], targets [...]) -> the mean of -log softmax(logits)[target]; see "
    "functional.cross_entropy.",
    ("weight", None),
    ignore_index=_weft.IGNORED_TARGET,
    reduction="mean",
    label_smoothing=0.0,
)
NLLLoss = _loss_of(
    "NLLLoss",
    functional.nll_loss,
    "(log-probabilities [..., classes], targets [...]) -> the mean of -input[target].",
    ("weight", None),
    ignore_index=_weft.IGNORED_TARGET,
    reduction="mean",
)
MSELoss = _loss_of(
    "MSELoss",
    functional.mse_loss,
    '(x, y) -> the mean of (x - y)^2, their sum, or all of them with reduction="none".',
    reduction="mean",
)
L1Loss = _loss_of("L1Loss", functional.l1_loss, "The mean of |x - y|.", reduction="mean")
SmoothL1Loss = _loss_of(
    "SmoothL1Loss",
    functional.smooth_l1_loss,
    "The mean of (x - y)^2 / (2 beta), or beyond beta of |x - y| - beta / 2.",
    reduction="mean",
    beta=1.0,
)
HuberLoss = _loss_of(
    "HuberLoss",
    functional.huber_loss,
    "The mean of (x - y)^2 / 2, or beyond delta of delta (|x - y| - delta / 2).",
    reduction="mean",
    delta=1.0,
)
BCELoss = _loss_of(
    "BCELoss",
    functional.binary_cross_entropy,
    "The mean of -(y log(x) + (1 - y) log(1 - x)).",
    ("weight", None),
    reduction="mean",
)
BCEWithLogitsLoss = _loss_of(
    "BCEWithLogitsLoss",
    functional.binary_cross_entropy_with_logits,
    "BCELoss of sigmoid(x); pos_weight multiplies the loss of positive targets.",
    ("weight", None),
    reduction="mean",
    pos_weight=None,
)
KLDivLoss = _loss_of(
    "KLDivLoss",
    functional.kl_div,
    'The mean of y (log(y) - x); reduction="batchmean" divides the sum by the size of dim 0.',
    reduction="mean",
    log_target=False,
)
MarginRankingLoss = _loss_of(
    "MarginRankingLoss",
    functional.margin_ranking_loss,
    "(x, y, target) -> the mean of max(0, -target (x - y) + margin).",
    ("margin", 0.0),
    reduction="mean",
)
HingeEmbeddingLoss = _loss_of(
    "HingeEmbeddingLoss",
    functional.hinge_embedding_loss,
    "The mean of x where the target is 1, of max(0, margin - x) where it is -1.",
    ("margin", 1.0),
    reduction="mean",
)
SoftMarginLoss = _loss_of(
    "SoftMarginLoss",
    functional.soft_margin_loss,
    "The mean of log(1 + exp(-target x)).",
    reduction="mean",
)
CosineEmbeddingLoss = _loss_of(
    "CosineEmbeddingLoss",
    functional.cosine_embedding_loss,
    "(x, y, target) -> the mean of 1 - cosine where the target is 1, else max(0, cosine - margin).",
    ("margin", 0.0),
    reduction="mean",
)
TripletMarginLoss = _loss_of(
    "TripletMarginLoss",
    functional.triplet_margin_loss,
    "(anchor, positive, negative) -> the mean of max(0, |a - p| - |a - n| + margin).",
    ("margin", 1.0),
    ("p", 2.0),
    ("eps", 1e-6),
    ("swap", False),
    reduction="mean",
)
MultiMarginLoss = _loss_of(
    "MultiMarginLoss",
    functional.multi_margin_loss,
    "(x [rows, classes], classes [rows]) -> the mean margin of the class over the others.",
    ("p", 1),
    ("margin", 1.0),
    ("weight", None),
    reduction="mean",
)
MultiLabelMarginLoss = _loss_of(
    "MultiLabelMarginLoss",
    functional.multilabel_margin_loss,
    "(x [rows, classes], labels [rows, classes], which -1 ends) -> the mean of their margins.",
    reduction="mean",
)
MultiLabelSoftMarginLoss = _loss_of(
    "MultiLabelSoftMarginLoss",
    functional.multilabel_soft_margin_loss,
    "The mean of BCEWithLogitsLoss over classes.",
    ("weight", None),
    reduction="mean",
)
PoissonNLLLoss = _loss_of(
    "PoissonNLLLoss",
    functional.poisson_nll_loss,
    "The mean of exp(x) - target x, or of x - target log(x + eps) without log_input.",
    ("log_input", True),
    ("full", False),
    eps=1e-8,
    reduction="mean",
)
GaussianNLLLoss = _loss_of(
    "GaussianNLLLoss",
    functional.gaussian_nll_loss,
    "(x, target, variance) -> the mean of (log(variance) + (x - target)^2 / variance) / 2.",
    full=False,
    eps=1e-6,
    reduction="mean",
)


def _attend(
    self,
    query,
    key,
    value,
    key_padding_mask=None,
    need_weights=False,
    attn_mask=None,
    average_attn_weights=True,
    is_causal=False,
):
    """(output, weights) as torch.nn.MultiheadAttention; the weights are None unless needed."""
    masks = key_padding_mask, attn_mask, is_causal
    outputs = self._attend(query, key, value, *masks, need_weights, average_attn_weights)
    return tuple(outputs) if need_weights else (outputs[0], None)


MultiheadAttention.__call__ = _renamed(_attend, "MultiheadAttention.__call__")
