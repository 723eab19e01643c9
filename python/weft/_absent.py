# SPDX-License-Identifier: Apache-2.0
"""Names of PyTorch and NumPy that weft does not offer, and what comes nearest: what AttributeError
says, and the table "Not offered" of docs/from-pytorch.md. Imported when a name is missing."""

import difflib
import fnmatch
import functools

# Patterns of names (without the namespace, or with it), by what comes nearest.
NEAREST = {
    "LazyConv* conv_tbc *convolution*": "nn.Conv1d to nn.ConvTranspose3d",
    "LPPool* lp_pool* FractionalMax* fractional_max* MaxUnpool* max_unpool*": (
        "nn.MaxPool1d to nn.AdaptiveAvgPool3d"
    ),
    "Upsampl* interpolate upsample* *grid_sample* affine_grid*": (
        "nn.functional.conv_transpose2d, reshape"
    ),
    "*Pixel* *Shuffle": "nn.functional.pixel_shuffle, nn.functional.channel_shuffle",
    "SyncBatchNorm LazyBatchNorm* LazyInstanceNorm* *batch_norm*": (
        "nn.BatchNorm1d to nn.BatchNorm3d, whose statistics are those of the whole sharded batch"
    ),
    "*Response* *LRN2d native_*norm": (
        "nn.functional.local_response_norm, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm"
    ),
    "Lazy*": "the same layer with its sizes",
    "RNN* LSTM* GRU* rnn_* lstm* gru*": "nn.TransformerModel",
    "Transformer* multi_head_attention_forward": "nn.MultiheadAttention, nn.TransformerModel",
    "NLLLoss2d *CrossEntropyLoss *_cross_entropy* ctc_loss CTCLoss": (
        "nn.functional.cross_entropy, whose targets may be probabilities"
    ),
    "*Loss *_loss": "nn.functional.mse_loss, or the formula in functions of weft.torch",
    "ELU CELU SELU *ReLU* Hard* Soft* Mish GLU PReLU Threshold Tanhshrink LogSigmoid LogSoftmax "
    "*relu*_ *elu_ threshold_ rrelu": (
        "the functions of the same names: nn.functional.elu, nn.functional.softplus, ..."
    ),
    "*Dropout* *dropout*": "nn.Dropout",
    "*Pad1d *Pad2d *Pad3d": "nn.functional.pad",
    "CosineSimilarity PairwiseDistance": (
        "nn.functional.cosine_similarity, nn.functional.pairwise_distance"
    ),
    "EmbeddingBag": "nn.functional.embedding_bag",
    "Flatten Unflatten": "flatten and unflatten",
    "ParameterList ParameterDict Buffer*": "nn.ModuleList, nn.Module.register_buffer",
    "DataParallel DistributedDataParallel parallel": 'fully_shard(model, strategy="ddp")',
    "eig eigvals symeig": "linalg.eig, linalg.eigvals; linalg.eigh of symmetric matrices",
    "ldl_* geqrf orgqr ormqr householder_product": "linalg.lu_factor, linalg.qr",
    "*lowrank lobpcg": "linalg.svd, linalg.eigh",
    "linalg.matrix_sqrth": "linalg.eigh",
    "vecmat matvec": "matmul",
    "*stft cfloat cdouble chalf *_conj": "complex64, complex128, conj, fft.rfft of frames",
    "*sparse* to_mkldnn coalesce *quantize* q_* qint* quint*": "dense tensors",
    "save load savez* serialization": "state_dict, CheckpointSaver, safetensors files",
    "compile jit fx export": "the same code without it",
    "autocast* amp GradScaler": "MixedPrecision in fully_shard",
    "autograd": "backward, recompute, Op for a custom gradient",
    "cuda mps mtia xpu accelerator": 'Device("cuda:0"), device_count("cuda"), synchronize',
    "distributed *process_group": "connect, DeviceMesh, fully_shard, parallelize",
    "DataLoader Dataset utils.data": "distribute(batch, mesh, placements) of NumPy arrays",
    "profiler": "trace",
    "random": "rand, randn, randint, manual_seed",
    "ndarray array asanyarray ascontiguousarray frombuffer from_file *Tensor *Storage": (
        "tensor, asarray, from_numpy"
    ),
    "get_default_* set_default_*": "the arguments dtype and device",
    "optim.lr_scheduler.*": (
        "optim.lr_scheduler.LambdaLR, or a class of optim.lr_scheduler.LRScheduler"
    ),
    "optim.* *_optimizer": "optim.AdamW, optim.Adam, optim.SGD, or a class of optim.Optimizer",
    "is_floating_point is_complex is_signed": "Tensor.dtype, isdtype",
    "get_device": "Tensor.device",
    "poly* percentile nanpercentile digitize": "quantile, bucketize",
}
# Namespaces that are searched for names of a similar spelling.
_PLACES = ("torch", "nn", "nn.functional", "nn.init", "linalg", "optim", "optim.lr_scheduler")


def _names():
    """{name: names with their namespaces} of what is offered."""
    import weft

    found = {}
    for path in ("", *_PLACES, "Tensor"):
        place = functools.reduce(getattr, path.split(".") if path else [], weft)
        for name in dir(place):
            if not name.startswith("_"):
                found.setdefault(name, []).append(f"weft.{path}.{name}".replace("..", "."))
    return found


def _shown(where, name, offered):
    """The name with its namespace, which is `where` if that has it."""
    own = f"{where}.{name}"
    return own if own in offered[name] else offered[name][0]


@functools.lru_cache(None)
def nearest(where, name):
    """Returns the nearest names to one that the namespace lacks; "" for none."""
    offered = _names()
    if any(not path.startswith("weft.Tensor.") for path in offered.get(name, ())):
        return _shown(where, name, offered)
    if name.endswith("_") and name[:-1] in offered:
        return f"x[...] = {name[:-1]}(x)"
    qualified = f"{where}.{name}".removeprefix("weft.")
    for patterns, text in NEAREST.items():
        if any(fnmatch.fnmatchcase(x, p) for p in patterns.split() for x in (name, qualified)):
            return text
    if name in offered:  # only as a method
        return _shown(where, name, offered)
    alike = difflib.get_close_matches(name, offered, 3, 0.7)
    return ", ".join(_shown(where, one, offered) for one in alike)


def refuse(where, name):
    """AttributeError for a name that the namespace `where` lacks."""
    near = nearest(where, name)
    raise AttributeError(f"{where} has no {name}: not offered" + (near and f"; nearest: {near}"))


def table():
    """The table of docs/from-pytorch.md."""
    rows = (
        f"| {' '.join(f'`{name}`' for name in names.split())} | {text} |"
        for names, text in NEAREST.items()
    )
    return "\n".join(["| names | nearest |", "|---|---|", *rows]) + "\n"

