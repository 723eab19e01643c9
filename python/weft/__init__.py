# SPDX-License-Identifier: Apache-2.0
"""weft: tensors that carry their layout over a mesh of devices.

    import weft

    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": 2, "tp": 2})
        w = weft.distribute(weft.randn((512, 256)), mesh, {"tp": weft.Shard(0)})
        x = weft.distribute(weft.randn((64, 256)), mesh, {"dp": weft.Shard(0)})
        y = x @ w.T                                   # no communication
        return y.full_tensor().shape

    print(weft.run_ranks(4, body))                    # 4 ranks as threads of this process

Under `weft run -n 4 -- python script.py`, mpirun or torchrun each process is a rank:
`body(weft.connect())`.
"""

import sys as _sys

from weft import _load, _weft
from weft._weft import *
from weft._array_api import *
from weft._array_api import __array_api_version__, __array_namespace_info__
from weft._context import connect, enable_grad, no_grad, no_sync, run_world, trace, traffic
from weft._fsdp import FSDPModule, register_fsdp_forward_method
from weft._names import *
from weft._program import estimate
from weft._explain import explain
from weft._to_mesh import to_mesh
from weft import autograd, fft, linalg, nn, ops, optim, pipeline, testing, training
from weft import torch as _torch
from weft._arguments import missing_in as _missing_in
from weft._differing import FUNCTIONS as _FUNCTIONS

# Functions that the array API lacks are PyTorch's.
for _name in (
    "addcdiv addcmul amax amin atleast_1d atleast_2d atleast_3d bernoulli bucketize cov diagonal "
    "div fmax fmin fmod gather heaviside igamma igammac inner ldexp lerp log_softmax logaddexp2 "
    "logcumsumexp logsumexp mul multinomial nanmean nanquantile nansum norm quantile softmax sub "
    "transpose xlogy"
).split():
    globals()[_name] = getattr(_torch, _name)
globals().update(_FUNCTIONS)
for _place, _name in {
    _sys.modules[__name__]: "weft",
    fft: "weft.fft",
    linalg: "weft.linalg",
    nn: "weft.nn",
    nn.functional: "weft.nn.functional",
    nn.init: "weft.nn.init",
    nn.utils: "weft.nn.utils",
    optim: "weft.optim",
    optim.lr_scheduler: "weft.optim.lr_scheduler",
    _torch: "weft.torch",
}.items():
    _place.__getattr__ = _missing_in(_name)

__version__ = _weft.__version__
