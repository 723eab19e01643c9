"""
weft's engine; the package `weft` shows it.
"""
from __future__ import annotations
import collections.abc
import builtins
import numpy
import typing
from weft import EighResult
from weft import FractionAndExponent
from weft import Histogram
from weft import LUFactorResult
from weft import LUResult
from weft import QRResult
from weft import SVDResult
from weft import SlogdetResult
from weft import UniqueAll
from weft import UniqueCounts
from weft import UniqueInverse
from weft import ValuesAndIndices
__all__: list[str] = ['Adam', 'AdamW', 'AdamW8bit', 'CheckpointSaver', 'Colwise', 'CommError', 'Communicator', 'DType', 'DataParallelMeshDims', 'Dataset', 'Device', 'DeviceMesh', 'Dropout', 'EighResult', 'Ema', 'Embedding', 'Event', 'ExpertParallel', 'ExpertRows', 'Experts', 'FSDPModule', 'Float8Linear', 'FractionAndExponent', 'GradientHookHandle', 'GradientReductionHandle', 'Graph', 'Histogram', 'HookHandle', 'IGNORED_TARGET', 'LUFactorResult', 'LUResult', 'Lamb', 'LatentAttention', 'LatentAttentionConfig', 'LayerNorm', 'Layouts', 'Linear', 'Lion', 'LossScaler', 'MemoryPlan', 'MixedPrecision', 'MoE', 'MoEConfig', 'Module', 'MultiheadAttention', 'Muon', 'NonFinitePolicy', 'Op', 'Optimizer', 'Parameter', 'Partial', 'Picture', 'PipelinePrediction', 'PipelineProgram', 'PipelinedTransformer', 'Placements', 'PrepareInput', 'PrepareOutput', 'QRResult', 'RMSNorm', 'Replicate', 'Router', 'RouterOptions', 'Routing', 'Rowwise', 'SGD', 'SVDResult', 'Schedule', 'SequenceParallel', 'Sequential', 'Shard', 'ShardPlacementResult', 'SkippedKeys', 'SlogdetResult', 'StateDict', 'StepReport', 'Strategy', 'Tensor', 'TextStream', 'Tokenizer', 'Trainer', 'TrainingState', 'TransformerConfig', 'TransformerModel', 'UniqueAll', 'UniqueCounts', 'UniqueInverse', 'UnshardHandle', 'ValuesAndIndices', 'WarmupCosine', 'abs', 'acos', 'acosh', 'adamw_', 'adapter_state_dict', 'add', 'add_adapters', 'add_scaled_', 'addbmm', 'addcdiv', 'addcmul', 'addmm', 'addmv', 'addr', 'all', 'all_gather_into_tensor', 'all_ops', 'all_reduce', 'allclose', 'amax', 'amin', 'angle', 'any', 'arange', 'argmax', 'argmin', 'argsort', 'argwhere', 'as_strided', 'as_strided_scatter', 'asin', 'asinh', 'astype', 'atan', 'atan2', 'atanh', 'atleast_1d', 'atleast_2d', 'atleast_3d', 'attention', 'backward', 'baddbmm', 'balance_loss', 'balanced_bias', 'bernoulli', 'bernoulli_', 'bf16', 'bfloat16', 'bincount', 'bitwise_and', 'bitwise_invert', 'bitwise_left_shift', 'bitwise_or', 'bitwise_right_shift', 'bitwise_xor', 'block_diag', 'bool', 'broadcast_arrays', 'broadcast_to', 'bucketize', 'cartesian_prod', 'cat', 'cauchy_', 'cdist', 'ceil', 'check_replicas', 'cholesky_inverse', 'cholesky_solve', 'chunk', 'clip', 'clip_grad_norm_', 'clip_grad_value_', 'clip_grads_with_norm_', 'clip_scale', 'clone', 'column_stack', 'combinations', 'combine_rows', 'concat', 'config_json', 'contiguous', 'convert_to_float8', 'copy_', 'copysign', 'corrcoef', 'cos', 'cosh', 'costly_ops', 'count_nonzero', 'cov', 'cross', 'cross_entropy', 'cross_entropy_rows', 'cummax', 'cummin', 'cumulative_prod', 'cumulative_sum', 'cumulative_trapezoid', 'deg2rad', 'device_count', 'diag', 'diag_embed', 'diagflat', 'diagonal', 'diagonal_scatter', 'diff', 'digamma', 'dispatch_rows', 'dist', 'distribute', 'divide', 'document_positions', 'dot', 'dropout', 'dsplit', 'dstack', 'dtype_named', 'einsum', 'einsum_path', 'embedding', 'empty', 'empty_like', 'engine_statistics', 'equal', 'erf', 'erfc', 'erfinv', 'exp', 'exp2', 'expand_dims', 'expert_styles', 'explain', 'explain_model', 'explain_schedule', 'expm1', 'exponential_', 'export_dcp', 'export_hugging_face', 'eye', 'f16', 'f32', 'f64', 'f8_e4m3', 'f8_e5m2', 'fake_world', 'fill', 'fill_', 'flatten', 'flip', 'fliplr', 'flipud', 'float16', 'float32', 'float64', 'float8_e4m3fn', 'float8_e5m2', 'float8_linear', 'float_power', 'floor', 'floor_divide', 'fmax', 'fmin', 'fmod', 'frac', 'frexp', 'from_dlpack', 'from_local', 'from_numpy', 'fully_shard', 'gather', 'gelu', 'gelu_tanh', 'generate', 'geometric_', 'get_num_threads', 'get_rng_state', 'get_total_norm', 'get_traffic', 'gpipe', 'grad', 'gradient_norm', 'greater', 'greater_equal', 'grouped_linear', 'grouped_matmul', 'heaviside', 'histc', 'histogram', 'hsplit', 'hstack', 'hypot', 'i0', 'i1', 'i16', 'i32', 'i64', 'i8', 'igamma', 'igammac', 'implicit_traffic', 'in_memory', 'index_add', 'index_copy', 'index_fill', 'index_put', 'index_reduce', 'index_select', 'inner', 'inspect_checkpoint', 'int16', 'int32', 'int64', 'int8', 'interleaved', 'is_grad_enabled', 'isclose', 'isfinite', 'isin', 'isinf', 'isnan', 'isneginf', 'isposinf', 'kron', 'kthvalue', 'launched_ranks', 'layer_norm', 'ldexp', 'lerp', 'less', 'less_equal', 'lgamma', 'linear', 'linear_cross_entropy', 'linspace', 'lion_', 'list_checkpoints', 'load', 'load_hugging_face', 'load_peft', 'load_state_dict', 'log', 'log10', 'log1p', 'log2', 'log_normal_', 'log_softmax', 'logaddexp', 'logaddexp2', 'logcumsumexp', 'logical_and', 'logical_not', 'logical_or', 'logical_xor', 'logit', 'logsumexp', 'manual_seed', 'masked_fill', 'masked_scatter', 'masked_select', 'matmul', 'matrix_exp', 'matrix_norm', 'matrix_transpose', 'max', 'maximum', 'mean', 'measured_bytes', 'median', 'memory_statistics', 'merge_adapters', 'meshgrid', 'min', 'minimum', 'mode', 'moveaxis', 'mse_loss', 'multinomial', 'multiply', 'mv', 'mvlgamma', 'nan_to_num', 'nanmean', 'nanmedian', 'nanquantile', 'nansum', 'narrow', 'negative', 'newest_complete_checkpoint', 'newton_schulz', 'next_probabilities', 'nextafter', 'nonzero', 'norm', 'normal', 'normal_', 'not_equal', 'on_device', 'one_forward_one_backward', 'one_hot', 'ones', 'ones_like', 'outer', 'pad', 'parallelize', 'peft_options', 'permute_dims', 'plan_memory', 'polygamma', 'positive', 'pow', 'predicted_bytes', 'prod', 'promote', 'put', 'quantile', 'quantize_base', 'rad2deg', 'rand', 'rand_like', 'randint_like', 'randn', 'randn_like', 'reciprocal', 'recompute', 'reduce_scatter_tensor', 'release_cached_memory', 'relu', 'remainder', 'renorm', 'repeat', 'reset_peak_memory', 'reshape', 'rests_on_disk', 'rms_norm', 'roll', 'rope', 'rot90', 'round', 'route_tokens', 'router_z_loss', 'rows_by_expert', 'rsqrt', 'rsub', 'run_ranks', 'save_peft', 'scale_', 'scatter', 'scatter_add', 'scatter_reduce', 'schedule_named', 'schedule_names', 'searchsorted', 'select', 'select_scatter', 'set_grad_enabled', 'set_num_threads', 'set_rng_state', 'set_traffic', 'sgd_', 'share_comm_ctx', 'sigmoid', 'sign', 'signbit', 'silu', 'sin', 'sinc', 'sinh', 'slice', 'softmax', 'sort', 'split', 'split_text_dataset', 'sqrt', 'square', 'squeeze', 'stack', 'state_dict', 'std', 'subtract', 'sum', 'sum_squares', 'summary', 'swiglu', 'take', 'take_along_axis', 'tan', 'tanh', 'tensor_split', 'tensordot', 'text_dataset', 'tile', 'topk', 'trace', 'transfer_', 'transformer_block', 'transformer_config', 'transformer_families', 'transformer_styles', 'transpose', 'trapezoid', 'tril', 'triu', 'trunc', 'u16', 'u32', 'u64', 'u8', 'uint16', 'uint32', 'uint64', 'uint8', 'unbind', 'unflatten', 'unfold', 'uniform', 'uniform_', 'unique_all', 'unique_counts', 'unique_inverse', 'unique_values', 'unsqueeze', 'unstack', 'vander', 'var', 'vecdot', 'vector_norm', 'visualize', 'vsplit', 'vstack', 'where', 'with_loss', 'with_messages', 'xlogy', 'zero_bubble', 'zeros', 'zeros_like']
class CommError(RuntimeError):
    """
    A collective that could not end: a rank threw, died, never came or called something else.
    """
    rank: int
    operation: str
    sequence: int
class DType:
    """
    The type of a tensor's elements
    """
    def __copy__(self) -> typing.Any:
        ...
    def __deepcopy__(self, arg0: typing.Any) -> typing.Any:
        ...
    def __eq__(self, arg0: typing.Any) -> builtins.bool:
        ...
    def __hash__(self) -> int:
        ...
    def __reduce__(self) -> tuple:
        ...
    def __repr__(self) -> str:
        ...
    @property
    def is_floating_point(self) -> builtins.bool:
        ...
    @property
    def itemsize(self) -> int:
        """
        Bytes of an element
        """
    @property
    def name(self) -> str:
        """
        'float32', 'bfloat16', 'float16', 'float64', 'int8' to 'int64', 'uint8' to 'uint64', 'float8_e4m3fn', 'float8_e5m2' or 'bool'
        """
class Device:
    """
    The place of memory: cpu, meta (shapes and no memory), cuda:0
    """
    def __eq__(self, arg0: typing.Any) -> builtins.bool:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, name: str) -> None:
        """
        The device of that name; ValueError for another name
        """
    def __reduce__(self) -> tuple:
        ...
    def __repr__(self) -> str:
        ...
    def __str__(self) -> str:
        ...
    @property
    def index(self) -> int:
        ...
    @property
    def type(self) -> str:
        """
        'cpu', 'meta' or 'cuda'
        """
class Replicate:
    """
    Each device along the axis holds the whole
    """
    def __eq__(self, arg0: typing.Any) -> builtins.bool:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self) -> None:
        ...
    def __reduce__(self) -> tuple:
        ...
    def __repr__(self) -> str:
        ...
    def is_partial(self) -> builtins.bool:
        ...
    def is_replicate(self) -> builtins.bool:
        ...
    def is_shard(self, dim: int | None = None) -> builtins.bool:
        """
        True when it is a Shard (of that dim)
        """
class Shard:
    """
    Each device along the axis holds one contiguous slice of dimension `dim`: ceil(size / devices) elements, the last devices fewer or none; or slices of explicit `sizes`. With `outer` above 1, the dim of n elements is seen as [outer, n / outer], and the slices are those of the second factor: a tensor [4, 6] with Shard(1) is, as [24], one with Shard(0, outer=4)
    """
    def __eq__(self, arg0: typing.Any) -> builtins.bool:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, dim: int = 0, sizes: collections.abc.Sequence[int] = [], outer: int = 1) -> None:
        """
        A dim below 0 counts from the end of whatever tensor is laid out; ValueError for one that no tensor can have. `sizes`: one per device along the axis, equal on all ranks, adding up to the dim's size; where other axes cut the dim outside of this one, as many for each of their slices, in order
        """
    def __reduce__(self) -> tuple:
        ...
    def __repr__(self) -> str:
        ...
    def is_partial(self) -> builtins.bool:
        ...
    def is_replicate(self) -> builtins.bool:
        ...
    def is_shard(self, dim: int | None = None) -> builtins.bool:
        """
        True when it is a Shard (of that dim)
        """
    @property
    def dim(self) -> int:
        ...
    @property
    def outer(self) -> int:
        """
        The elements of the dim's factors outside of the one that is cut
        """
    @property
    def sizes(self) -> tuple:
        """
        Explicit sizes of the slices; empty for slices of ceil(size / devices) elements
        """
class Partial:
    """
    Each device along the axis holds a tensor of full size; the value is their reduction: sum, avg, max or min
    """
    def __eq__(self, arg0: typing.Any) -> builtins.bool:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, reduce_op: str = 'sum') -> None:
        ...
    def __reduce__(self) -> tuple:
        ...
    def __repr__(self) -> str:
        ...
    def is_partial(self) -> builtins.bool:
        ...
    def is_replicate(self) -> builtins.bool:
        ...
    def is_shard(self, dim: int | None = None) -> builtins.bool:
        """
        True when it is a Shard (of that dim)
        """
    @property
    def reduce_op(self) -> str:
        ...
class Placements:
    """
    One placement an axis of a mesh, by position ([Shard(0), Replicate()]) or by name ({'tp': Shard(0)}); axes that are not named replicate. Wherever placements are asked for, the list or dict itself will do
    """
    def __init__(self, placements: Placements | collections.abc.Sequence[Shard | Replicate | Partial] | dict[str, Shard | Replicate | Partial]) -> None:
        ...
    def __reduce__(self) -> tuple:
        ...
    def cut_in_order(self, dim: int, axes: collections.abc.Sequence[str]) -> Placements | collections.abc.Sequence[Shard | Replicate | Partial] | dict[str, Shard | Replicate | Partial]:
        """
        The same with `dim` cut by the axes in that order, outermost first; names all the root mesh's axes that cut the dim
        """
class Communicator:
    """
    A group of ranks that call collectives together
    """
    @staticmethod
    def from_mpi(comm: typing.Any) -> Communicator:
        """
        The ranks of a communicator of mpi4py, as `connect(comm)` returns it
        """
    def __bool__(self) -> builtins.bool:
        ...
    def __copy__(self) -> typing.Any:
        ...
    def __deepcopy__(self, arg0: typing.Any) -> typing.Any:
        ...
    def __reduce_ex__(self, arg0: typing.Any) -> typing.Any:
        ...
    def __repr__(self) -> str:
        ...
    def barrier(self) -> None:
        """
        Returns when all ranks have called it
        """
    def split(self, color: int, key: int, name: str) -> Communicator:
        """
        Groups of equal `color`, ordered by (key, rank); a negative color joins none. Collective
        """
    @property
    def name(self) -> str:
        """
        'world', 'world/dp': the name in errors
        """
    @property
    def rank(self) -> int:
        """
        This rank, from 0
        """
    @property
    def size(self) -> int:
        """
        The number of ranks
        """
    @property
    def traffic(self) -> tuple[int, int]:
        """
        (bytes this rank received from others, calls it made) over this communicator
        """
class DeviceMesh:
    """
    Ranks in a grid with named axes; the last axis varies fastest. mesh['dp'] and mesh['dp', 'tp'] are views of it
    """
    def __bool__(self) -> builtins.bool:
        ...
    def __copy__(self) -> typing.Any:
        ...
    def __deepcopy__(self, arg0: typing.Any) -> typing.Any:
        ...
    def __eq__(self, arg0: typing.Any) -> builtins.bool:
        ...
    def __getitem__(self, axes: typing.Any) -> DeviceMesh:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, ranks: Communicator, axes: typing.Any, *, device_type: Device | str = ...) -> None:
        """
        Collective over the ranks, whose number must be the product of the axes' sizes: DeviceMesh(world, {'dp': 2, 'tp': 4}). ValueError for a device_type that this machine lacks
        """
    def __reduce_ex__(self, arg0: typing.Any) -> typing.Any:
        ...
    def __repr__(self) -> str:
        ...
    def communicator(self) -> Communicator:
        """
        Ranks that differ from this one in this view's axes only
        """
    def get_coordinate(self) -> list:
        """
        This rank's position along each axis
        """
    def get_group(self, mesh_dim: typing.Any = None) -> Communicator:
        """
        The ranks along an axis (name or number)
        """
    def get_local_rank(self, mesh_dim: typing.Any = None) -> int:
        """
        This rank's position along an axis (name or number)
        """
    def get_rank(self) -> int:
        """
        This rank in the root mesh's communicator
        """
    def size(self, mesh_dim: typing.Any = None) -> int:
        """
        Ranks along an axis (name or number), or all
        """
    @property
    def device_type(self) -> str:
        """
        The kind of the ranks' devices, "cpu" or "cuda": where new tensors over it are made
        """
    @property
    def mesh_dim_names(self) -> tuple:
        """
        Names of the axes
        """
    @property
    def ndim(self) -> int:
        ...
    @property
    def root(self) -> DeviceMesh:
        """
        The mesh that this one is a view of
        """
    @property
    def shape(self) -> tuple:
        """
        Sizes of the axes
        """
    @property
    def traffic(self) -> tuple[int, int]:
        """
        (bytes this rank received from others, collectives) over all of the root mesh
        """
class Tensor:
    """
    An n-dimensional array, on one device or laid out over a mesh of them. A handle: copies share the elements
    """
    __array_ufunc__ = None
    def abs(self) -> Tensor:
        """
        |x|, element by element
        
        Rule: ... -> ...
        """
    def absolute(self, *args, **kwargs):
        """
        abs(x: Tensor) -> Tensor
        
        |x|, element by element
        
        Rule: ... -> ...
        """
    def acos(self) -> Tensor:
        """
        The angle in [0, pi] whose cosine is x
        
        Rule: ... -> ...
        """
    def acosh(self) -> Tensor:
        """
        The inverse of cosh; NaN below 1
        
        Rule: ... -> ...
        """
    def add(self, other: Tensor | builtins.float, *, alpha: builtins.float = 1) -> Tensor:
        """
        input + alpha * other; as `weft.add`
        """
    def add_scaled_(self, other: Tensor, scale: Tensor, factor: builtins.float = 1.0) -> typing.Any:
        """
        x += other * scale * factor in place, where scale has one element
        
        Rule: ..., ..., . ->
        """
    def addbmm(self, batch1: Tensor, batch2: Tensor, *, beta: builtins.float = 1, alpha: builtins.float = 1) -> Tensor:
        """
        beta * x + alpha * the sum of batch1 @ batch2 over the batch
        """
    def addcdiv(self, tensor1: Tensor, tensor2: Tensor, *, value: builtins.float = 1) -> Tensor:
        """
        x + value * tensor1 / tensor2
        """
    def addcmul(self, tensor1: Tensor, tensor2: Tensor, *, value: builtins.float = 1) -> Tensor:
        """
        x + value * tensor1 * tensor2
        """
    def addmm(self, mat1: Tensor, mat2: Tensor, *, beta: builtins.float = 1, alpha: builtins.float = 1) -> Tensor:
        """
        beta * x + alpha * (mat1 @ mat2)
        """
    def addmv(self, mat: Tensor, vec: Tensor, *, beta: builtins.float = 1, alpha: builtins.float = 1) -> Tensor:
        """
        beta * x + alpha * (mat @ vec)
        """
    def addr(self, vec1: Tensor, vec2: Tensor, *, beta: builtins.float = 1, alpha: builtins.float = 1) -> Tensor:
        """
        beta * x + alpha * outer(vec1, vec2)
        """
    def alias_copy(self, *args, **kwargs):
        """
        clone(x: Tensor) -> Tensor
        
        The same elements in new memory, in the same layout
        
        Rule: ... -> ...
        """
    def all(self, dim: builtins.int | collections.abc.Sequence[builtins.int] | None = None, keepdim: builtins.bool = False) -> Tensor:
        """
        True where all elements along `dim` are not zero: bool; true of none
        
        Rule: d0:min d1  -> d1    (by its attributes; this one of [5, 7])
        """
    def allclose(self, x2: Tensor, rtol: builtins.float = 1e-05, atol: builtins.float = 1e-08, equal_nan: builtins.bool = False) -> builtins.bool:
        """
        True when all elements are close; one number, equal on all ranks
        """
    def amax(self, dim: builtins.int | collections.abc.Sequence[builtins.int] | None = None, keepdim: builtins.bool = False) -> Tensor:
        """
        The largest element along `dim`; NaN where one is
        
        Rule: d0:max d1  -> d1    (by its attributes; this one of [5, 7])
        """
    def amin(self, dim: builtins.int | collections.abc.Sequence[builtins.int] | None = None, keepdim: builtins.bool = False) -> Tensor:
        """
        The smallest element along `dim`; NaN where one is
        
        Rule: d0:min d1  -> d1    (by its attributes; this one of [5, 7])
        """
    def aminmax(self, *given, **named):
        """
        (amin, amax).
        """
    def angle(self) -> Tensor:
        """
        0 for positive x, pi for negative ones
        
        Rule: ..., ..., ... -> ...
        """
    def any(self, dim: builtins.int | collections.abc.Sequence[builtins.int] | None = None, keepdim: builtins.bool = False) -> Tensor:
        """
        True where any element along `dim` is not zero: bool; false of none
        
        Rule: d0:max d1  -> d1    (by its attributes; this one of [5, 7])
        """
    def arccos(self, *args, **kwargs):
        """
        acos(x: Tensor) -> Tensor
        
        The angle in [0, pi] whose cosine is x
        
        Rule: ... -> ...
        """
    def arccosh(self, *args, **kwargs):
        """
        acosh(x: Tensor) -> Tensor
        
        The inverse of cosh; NaN below 1
        
        Rule: ... -> ...
        """
    def arcsin(self, *args, **kwargs):
        """
        asin(x: Tensor) -> Tensor
        
        The angle in [-pi/2, pi/2] whose sine is x
        
        Rule: ... -> ...
        """
    def arcsinh(self, *args, **kwargs):
        """
        asinh(x: Tensor) -> Tensor
        
        The inverse of sinh
        
        Rule: ... -> ...
        """
    def arctan(self, *args, **kwargs):
        """
        atan(x: Tensor) -> Tensor
        
        The angle in [-pi/2, pi/2] whose tangent is x
        
        Rule: ... -> ...
        """
    def arctan2(self, *args, **kwargs):
        """
        atan2(x1: Tensor | float, x2: Tensor | float) -> Tensor
        
        The angle of the point (x2, x1) in [-pi, pi]
        
        Rule: ..., ... -> ...
        """
    def arctanh(self, *args, **kwargs):
        """
        atanh(x: Tensor) -> Tensor
        
        The inverse of tanh; NaN beyond 1
        
        Rule: ... -> ...
        """
    def argmax(self, dim: builtins.int | None = None, keepdim: builtins.bool = False) -> Tensor:
        """
        The index (int64) of the first largest element, of the flattened tensor or along `dim`
        """
    def argmin(self, dim: builtins.int | None = None, keepdim: builtins.bool = False) -> Tensor:
        """
        The index (int64) of the first least element, of the flattened tensor or along `dim`
        """
    def argsort(self, *given, **named):
        """
        The indices that sort; 0 for a tensor without dims.
        """
    def argwhere(self) -> Tensor:
        """
        The indices of the nonzero elements: [n, dims]
        """
    def as_strided(self, size: tuple[builtins.int, ...], stride: collections.abc.Sequence[builtins.int], storage_offset: builtins.int = 0) -> Tensor:
        """
        A copy whose element (i, j, ..) is element storage_offset + i * stride[0] + j * stride[1] + .. of the flattened x
        """
    def as_strided_copy(self, *args, **kwargs):
        """
        as_strided(x: Tensor, size: tuple[int, ...], stride: collections.abc.Sequence[int], storage_offset: int = 0) -> Tensor
        
        A copy whose element (i, j, ..) is element storage_offset + i * stride[0] + j * stride[1] + .. of the flattened x
        """
    def as_strided_scatter(self, src: Tensor, size: tuple[builtins.int, ...], stride: collections.abc.Sequence[builtins.int], storage_offset: builtins.int = 0) -> Tensor:
        """
        x with the elements of as_strided replaced by src
        """
    def asin(self) -> Tensor:
        """
        The angle in [-pi/2, pi/2] whose sine is x
        
        Rule: ... -> ...
        """
    def asinh(self) -> Tensor:
        """
        The inverse of sinh
        
        Rule: ... -> ...
        """
    def astype(self, dtype: DType | str, *, copy: builtins.bool = True, device: Device | str | None = None) -> Tensor:
        """
        The values of x as `dtype`; floating to integer rounds towards zero. Returns x itself when it already has that dtype and `copy` is False; ValueError for another device
        
        Rule: ... -> ...
        """
    def atan(self) -> Tensor:
        """
        The angle in [-pi/2, pi/2] whose tangent is x
        
        Rule: ... -> ...
        """
    def atan2(self, x2: Tensor | builtins.float) -> Tensor:
        """
        The angle of the point (x2, x1) in [-pi, pi]
        
        Rule: ..., ... -> ...
        """
    def atanh(self) -> Tensor:
        """
        The inverse of tanh; NaN beyond 1
        
        Rule: ... -> ...
        """
    def atleast_1d(self, *tensors):
        """
        atleast_1d(x: Tensor) -> Tensor
        
        x with at least 1 dim
        """
    def atleast_2d(self, *tensors):
        """
        atleast_2d(x: Tensor) -> Tensor
        
        x with at least 2 dims
        """
    def atleast_3d(self, *tensors):
        """
        atleast_3d(x: Tensor) -> Tensor
        
        x with at least 3 dims
        """
    def baddbmm(self, batch1: Tensor, batch2: Tensor, *, beta: builtins.float = 1, alpha: builtins.float = 1) -> Tensor:
        """
        beta * x + alpha * (batch1 @ batch2)
        """
    def bernoulli(self, *given, **named):
        """
        1 with the probability that the element, or p, is; else 0.
        """
    def bernoulli_(self, p: builtins.float = 0.5) -> typing.Any:
        """
        Draws 1 with probability p, else 0
        """
    def bincount(self, weights: Tensor | None = None, minlength: builtins.int = 0) -> Tensor:
        """
        Counts of the numbers from 0 on, or sums of the `weights` of their elements
        """
    def bitwise_and(self, x2: Tensor | builtins.float) -> Tensor:
        """
        x1 & x2, of integers and bool
        
        Rule: ..., ... -> ...
        """
    def bitwise_invert(self) -> Tensor:
        """
        ~x, of integers and bool
        
        Rule: ... -> ...
        """
    def bitwise_left_shift(self, x2: Tensor | builtins.float) -> Tensor:
        """
        x1 << x2, of integers
        
        Rule: ..., ... -> ...
        """
    def bitwise_not(self, *args, **kwargs):
        """
        bitwise_invert(x: Tensor) -> Tensor
        
        ~x, of integers and bool
        
        Rule: ... -> ...
        """
    def bitwise_or(self, x2: Tensor | builtins.float) -> Tensor:
        """
        x1 | x2, of integers and bool
        
        Rule: ..., ... -> ...
        """
    def bitwise_right_shift(self, x2: Tensor | builtins.float) -> Tensor:
        """
        x1 >> x2, of integers
        
        Rule: ..., ... -> ...
        """
    def bitwise_xor(self, x2: Tensor | builtins.float) -> Tensor:
        """
        x1 ^ x2, of integers and bool
        
        Rule: ..., ... -> ...
        """
    def bmm(self, *args, **kwargs):
        """
        matmul(x1: Tensor, x2: Tensor) -> Tensor
        
        x1 [..., m, k] times x2 [..., k, n]: [..., m, n]; leading dims broadcast, transposed views are free. A vector [k] is a row, or a column, whose dim of size 1 is left out again. ValueError names the sizes that do not fit
        
        Rule: ... m k, ... k n -> ... m n
        """
    def broadcast_to(self, shape: tuple[builtins.int, ...]) -> Tensor:
        """
        Dims of size 1, and new leading ones, repeated to `shape`; no copy
        
        Rule: d0 [one1]  -> d0 +d1    (by its attributes; this one of [5, 1])
        """
    def bucketize(self, *given, **named):
        """
        searchsorted(boundaries, input).
        """
    def cauchy_(self, median: builtins.float = 0.0, sigma: builtins.float = 1.0) -> typing.Any:
        """
        Draws of a Cauchy distribution
        """
    def cdist(self, x2: Tensor, p: builtins.float = 2.0, compute_mode: typing.Any = None) -> Tensor:
        """
        p-norms of the differences between rows: [..., n, m]
        """
    def ceil(self) -> Tensor:
        """
        The integer above x; the dtype stays
        
        Rule: ... -> ...
        """
    def cholesky(self, *given, **named):
        """
        linalg.cholesky.
        """
    def chunk(self, chunks: builtins.int, dim: builtins.int = 0) -> tuple:
        """
        At most `chunks` parts along `dim`, of ceil(size / chunks) elements, the last of fewer
        """
    def clamp(self, *args, **kwargs):
        """
        clip(x: Tensor, min: object = None, max: object = None) -> Tensor
        
        x limited to [min, max] (tensors or numbers that broadcast, or None). ValueError for numbers that exclude all values of an integer dtype
        """
    def clamp_max(self, *given, **named):
        """
        Elements above `max` become max.
        """
    def clamp_min(self, *given, **named):
        """
        Elements below `min` become min.
        """
    def clip(self, min: typing.Any = None, max: typing.Any = None) -> Tensor:
        """
        x limited to [min, max] (tensors or numbers that broadcast, or None). ValueError for numbers that exclude all values of an integer dtype
        """
    def clip_(self, *args, **kwargs):
        """
        clamp_(self: object, min: Tensor | float | None = None, max: Tensor | float | None = None) -> object
        
        Elements below min become min, those above max become max, in place
        """
    def clone(self) -> Tensor:
        """
        The same elements in new memory, in the same layout
        
        Rule: ... -> ...
        """
    def combinations(self, r: builtins.int = 2, with_replacement: builtins.bool = False) -> Tensor:
        """
        All subsets of r elements of a vector: a row each; with_replacement lets elements repeat
        """
    def conj(self, *given, **named):
        """
        The complex conjugates: x itself, because no dtype is complex.
        """
    def conj_physical(self, *args, **kwargs):
        """
        clone(x: Tensor) -> Tensor
        
        The same elements in new memory, in the same layout
        
        Rule: ... -> ...
        """
    def constant_pad_nd(self, pad: collections.abc.Sequence[builtins.int], value: builtins.float = 0.0) -> Tensor:
        """
        pad[0] elements `value` before and pad[1] behind the last dim, [2] and [3] at the one before it, and so on; negative numbers cut
        """
    def copy_(self, source: Tensor) -> typing.Any:
        """
        Copies the elements of `source`, broadcast to the shape of `to`, to the memory of `to`
        """
    def copysign(self, x2: Tensor | builtins.float) -> Tensor:
        """
        |x1| with the sign of x2
        
        Rule: ..., ... -> ...
        """
    def corrcoef(self) -> Tensor:
        """
        Correlations of the rows of a matrix
        """
    def cos(self) -> Tensor:
        """
        The cosine of x, in radians
        
        Rule: ... -> ...
        """
    def cosh(self) -> Tensor:
        """
        The hyperbolic cosine of x
        
        Rule: ... -> ...
        """
    def count_nonzero(self, dim: builtins.int | collections.abc.Sequence[builtins.int] | None = None, keepdim: builtins.bool = False) -> Tensor:
        """
        The number of nonzero elements along `dim`: int64
        
        Rule: d0 d1  -> d1    (by its attributes; this one of [5, 7])
        """
    def cov(self, *given, **named):
        """
        Covariances of the rows of a matrix [variables, observations], which may have weights.
        """
    def cross(self, x2: Tensor, *, axis: builtins.int = -1) -> Tensor:
        """
        The cross product of vectors of 3 along `axis`, counted from the end; the other dims broadcast. ValueError when that dim of one is not 3
        """
    def cummax(self, axis: builtins.int) -> typing.Any:
        """
        The largest of all elements up to each along `axis`, and its last index; from a NaN on, NaN: (values, indices)
        """
    def cummin(self, axis: builtins.int) -> typing.Any:
        """
        The smallest of all elements up to each along `axis`, and its last index; from a NaN on, NaN: (values, indices)
        """
    def cumprod(self, dim: builtins.int, *, dtype: DType | str | None = None) -> Tensor:
        """
        The product of all elements up to each along `dim`, as `dtype`
        """
    def cumsum(self, dim: builtins.int, *, dtype: DType | str | None = None) -> Tensor:
        """
        The sum of all elements up to each along `dim`, as `dtype`
        """
    def cumulative_prod(self, axis: builtins.int | None = None, *, dtype: DType | str | None = None, include_initial: builtins.bool = False) -> Tensor:
        """
        Products of the elements up to each along `axis`, which only a tensor of one dim can leave out; integers in int64 unless `dtype` is given. `include_initial`: a 1 first
        
        Rule: d0 n -> d0 n    (by its attributes; this one of [5, 7])
        """
    def cumulative_sum(self, axis: builtins.int | None = None, *, dtype: DType | str | None = None, include_initial: builtins.bool = False) -> Tensor:
        """
        Sums of the elements up to each along `axis`, which only a tensor of one dim can leave out; integers in int64 unless `dtype` is given. `include_initial`: a 0 first
        
        Rule: d0 n -> d0 n    (by its attributes; this one of [5, 7])
        """
    def deg2rad(self) -> Tensor:
        """
        Degrees as radians
        
        Rule: ..., ... -> ...
        """
    def det(self) -> Tensor:
        """
        The determinant
        """
    def diag(self, diagonal: builtins.int = 0) -> Tensor:
        """
        A vector as a diagonal of a matrix, or a diagonal of a matrix as a vector
        """
    def diag_embed(self, offset: builtins.int = 0, dim1: builtins.int = -2, dim2: builtins.int = -1) -> Tensor:
        """
        The last dim as diagonal `offset` of two dims of a tensor of zeros
        """
    def diagflat(self, offset: builtins.int = 0) -> Tensor:
        """
        All elements as a diagonal of a matrix
        """
    def diagonal(self, offset: builtins.int = 0, dim1: builtins.int = 0, dim2: builtins.int = 1) -> Tensor:
        """
        Elements (i, i + offset) of two dims, the first two unless given
        """
    def diagonal_copy(self, *given, **named):
        """
        diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor
        
        Elements (i, i + offset) of two dims, the first two unless given
        """
    def diagonal_scatter(self, src: Tensor, offset: builtins.int = 0, dim1: builtins.int = 0, dim2: builtins.int = 1) -> Tensor:
        """
        x with a diagonal replaced by src
        """
    def diff(self, *given, **named):
        """
        Differences of neighbours along `dim`, n times.
        """
    def digamma(self) -> Tensor:
        """
        The derivative of lgamma
        
        Rule: ... -> ...
        """
    def dispatch_rows(self, rows: ExpertRows) -> Tensor:
        """
        The rows of x [tokens, d] that the ranks compute: [rows, d]
        """
    def dist(self, other: Tensor, p: builtins.float = 2.0) -> Tensor:
        """
        The p-norm of x - other
        """
    def div(self, *given, **named):
        """
        The quotient; rounding_mode "floor" or "trunc" rounds it.
        """
    def divide(self, *given, **named):
        """
        The quotient; rounding_mode "floor" or "trunc" rounds it.
        """
    def dot(self, tensor: Tensor) -> Tensor:
        """
        The sum of products of two vectors
        """
    def dropout(self, p: builtins.float) -> Tensor:
        """
        x with elements zeroed with probability p in [0, 1] and the others divided by 1 - p; equal for any layout of x
        
        Rule: ... -> ...
        """
    def dsplit(self, indices_or_sections: builtins.int | collections.abc.Sequence[builtins.int]) -> tuple:
        """
        Equal parts along dim 2; or that end before these
        """
    def eq(self, *args, **kwargs):
        """
        equal(x1: Tensor | float, x2: Tensor | float) -> Tensor
        
        x1 == x2, element by element, as bool
        
        Rule: ..., ... -> ...
        """
    def equal(self, other: Tensor) -> builtins.bool:
        """
        True when both have the same shape and elements: one bool, equal on all ranks
        """
    def erf(self) -> Tensor:
        """
        The error function of x
        
        Rule: ... -> ...
        """
    def erfc(self) -> Tensor:
        """
        1 - erf(x), accurate for large x
        
        Rule: ... -> ...
        """
    def erfinv(self) -> Tensor:
        """
        The inverse of erf; NaN outside [-1, 1]
        
        Rule: ... -> ...
        """
    def exp(self) -> Tensor:
        """
        e to the power of x
        
        Rule: ... -> ...
        """
    def exp2(self) -> Tensor:
        """
        2 to the power x
        
        Rule: ..., ... -> ...
        """
    def expand_as(self, *given, **named):
        """
        Expanded to the shape of the other.
        """
    def expand_dims(self, axis: builtins.int = 0) -> Tensor:
        """
        Inserts a dim of size 1 at `axis`; a view. IndexError when axis is out of range
        """
    def explain(self, placements: Placements | collections.abc.Sequence[Shard | Replicate | Partial] | dict[str, Shard | Replicate | Partial]) -> str:
        """
        The plan of `redistribute`: steps, bytes, predicted time, peak memory
        """
    def expm1(self) -> Tensor:
        """
        exp(x) - 1, exact for small x
        
        Rule: ... -> ...
        """
    def exponential_(self, lambd: builtins.float = 1.0) -> typing.Any:
        """
        Draws of the density lambd exp(-lambd x)
        """
    def fill(self, value: Tensor | builtins.float) -> Tensor:
        """
        All elements `value`, in shape, dtype and layout of x
        """
    def fill_(self, value: Tensor | builtins.float) -> typing.Any:
        """
        Sets all elements in place
        """
    def fix(self, *args, **kwargs):
        """
        trunc(x: Tensor) -> Tensor
        
        The integer of x towards 0; the dtype stays
        
        Rule: ... -> ...
        """
    def flatten(self, start_dim: builtins.int = 0, end_dim: builtins.int = -1) -> Tensor:
        """
        Dims start_dim to end_dim as one dim
        """
    def fliplr(self) -> Tensor:
        """
        Dim 1 reversed
        """
    def flipud(self) -> Tensor:
        """
        Dim 0 reversed
        """
    def float8_linear(self, weight: Tensor) -> Tensor:
        """
        x [..., k] times the transpose of weight [n, k], each divided by its greatest magnitude / 448 and rounded to float8_e4m3fn; gradients are rounded to float8_e5m2. Sums are float32. The greatest magnitudes are those of the whole tensors, however these are sharded
        """
    def float_power(self, x2: Tensor | builtins.float) -> Tensor:
        """
        x1 to the power x2, in float64
        
        Rule: ..., ... -> ...
        """
    def floor(self) -> Tensor:
        """
        The integer below x; the dtype stays
        
        Rule: ... -> ...
        """
    def floor_divide(self, x2: Tensor | builtins.float) -> Tensor:
        """
        x1 // x2; integers by 0 give 0
        
        Rule: ..., ... -> ...
        """
    def fmax(self, x2: Tensor | builtins.float) -> Tensor:
        """
        The larger of both; where one is NaN, the other
        
        Rule: ..., ... -> ...
        """
    def fmin(self, x2: Tensor | builtins.float) -> Tensor:
        """
        The smaller of both; where one is NaN, the other
        
        Rule: ..., ... -> ...
        """
    def fmod(self, x2: Tensor | builtins.float) -> Tensor:
        """
        x1 - trunc(x1 / x2) * x2, which has the sign of x1
        
        Rule: ..., ... -> ...
        """
    def frac(self) -> Tensor:
        """
        x - trunc(x)
        
        Rule: ..., ... -> ...
        """
    def frexp(self) -> typing.Any:
        """
        (mantissa, exponent): x is mantissa * 2^exponent, with a mantissa in [0.5, 1)
        """
    def frobenius_norm(self, *given, **named):
        """
        The root of the sum of squares over dims.
        """
    def from_dlpack(self, *, device: Device | str | None = None, copy: builtins.bool | None = None) -> Tensor:
        """
        A tensor over the memory of whatever speaks DLPack (torch, NumPy, JAX), copied if its elements have gaps. copy=True always copies; copy=False raises ValueError where a copy is needed
        """
    @staticmethod
    def from_local(local_tensor, device_mesh, placements, *, run_check = False, shape = None, stride = None):
        """
        from_local: a sharded tensor whose parts are `local_tensor`. The ranks exchange their sizes
            unless the whole's `shape` is given.
        """
    def gather(self, *given, **named):
        """
        Element index[.., i, ..] along `dim` for each element of `index`.
        """
    def ge(self, *args, **kwargs):
        """
        greater_equal(x1: Tensor | float, x2: Tensor | float) -> Tensor
        
        x1 >= x2, element by element, as bool
        
        Rule: ..., ... -> ...
        """
    def gelu(self, *, approximate: str = 'none') -> Tensor:
        """
        x / 2 * (1 + erf(x / sqrt(2))), or with approximate='tanh' x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))
        
        Rule: ... -> ...
        """
    def gelu_tanh(self) -> Tensor:
        """
        gelu's approximation by tanh
        
        Rule: ... -> ...
        """
    def geometric_(self, p: builtins.float) -> typing.Any:
        """
        Draws numbers of trials up to the first success, of probability p
        """
    def ger(self, *args, **kwargs):
        """
        outer(x1: Tensor, x2: Tensor) -> Tensor
        
        x1 [m] times x2 [n]: [m, n]. ValueError when one has not one dim
        """
    def gradient(self, *given, **named):
        """
        Estimates of the derivatives along the dims: a list of tensors.
        """
    def greater(self, x2: Tensor | builtins.float) -> Tensor:
        """
        x1 > x2, element by element, as bool
        
        Rule: ..., ... -> ...
        """
    def greater_equal(self, x2: Tensor | builtins.float) -> Tensor:
        """
        x1 >= x2, element by element, as bool
        
        Rule: ..., ... -> ...
        """
    def grouped_linear(self, weights: Tensor, counts: Tensor) -> Tensor:
        """
        grouped_matmul with the transposes of weights [experts, n, k]
        """
    def grouped_matmul(self, weights: Tensor, counts: Tensor) -> Tensor:
        """
        Multiplies rows x [rows, k], sorted by expert, by their expert's matrix of weights [experts, k, n]: [rows, n]. counts [groups, experts] states the rows of each
        """
    def gt(self, *args, **kwargs):
        """
        greater(x1: Tensor | float, x2: Tensor | float) -> Tensor
        
        x1 > x2, element by element, as bool
        
        Rule: ..., ... -> ...
        """
    def heaviside(self, x2: Tensor | builtins.float) -> Tensor:
        """
        0 for negative x1, 1 for positive x1, x2 for 0
        
        Rule: ..., ..., ... -> ...
        """
    def histc(self, bins: builtins.int = 100, min: builtins.float = 0.0, max: builtins.float = 0.0) -> Tensor:
        """
        Counts the elements in each of `bins` equal intervals from min to max; of all elements if these are equal
        """
    def histogram(self, bins: builtins.int | Tensor, *, range: collections.abc.Sequence[builtins.float] | None = None, weight: Tensor | None = None, density: builtins.bool = False) -> typing.Any:
        """
        (hist, bin_edges): the number of elements between edges, which `bins` counts or is
        """
    def hsplit(self, indices_or_sections: builtins.int | collections.abc.Sequence[builtins.int]) -> tuple:
        """
        Equal parts along dim 1, of a vector along 0; or that end before these
        """
    def hypot(self, x2: Tensor | builtins.float) -> Tensor:
        """
        sqrt(x1^2 + x2^2), without overflow on the way
        
        Rule: ..., ... -> ...
        """
    def i0(self) -> Tensor:
        """
        The modified Bessel function of the first kind of order 0
        
        Rule: ... -> ...
        """
    def i1(self) -> Tensor:
        """
        The modified Bessel function of the first kind of order 1
        
        Rule: ... -> ...
        """
    def igamma(self, x2: Tensor | builtins.float) -> Tensor:
        """
        The regularised lower incomplete gamma function of x1 from 0 to x2
        
        Rule: ..., ... -> ...
        """
    def igammac(self, x2: Tensor | builtins.float) -> Tensor:
        """
        1 - igamma(x1, x2)
        
        Rule: ..., ... -> ...
        """
    def index_add(self, dim: builtins.int, index: Tensor, source: Tensor, *, alpha: builtins.float = 1) -> Tensor:
        """
        x with slice i of alpha * source added to slice index[i] of `dim`
        """
    def index_copy(self, dim: builtins.int, index: Tensor, source: Tensor) -> Tensor:
        """
        x with slice index[i] of `dim` replaced by slice i of `source`
        """
    def index_fill(self, dim: builtins.int, index: Tensor, value: Tensor | builtins.float) -> Tensor:
        """
        x with the slices `index` of `dim` filled with `value`
        """
    def index_put(self, indices: collections.abc.Sequence[Tensor | None], values: Tensor | builtins.float, accumulate: builtins.bool = False) -> Tensor:
        """
        x with the elements at `indices`, a tensor or None for each dim, replaced by `values`, or added
        """
    def index_reduce(self, dim: builtins.int, index: Tensor, source: Tensor, reduce: str, *, include_self: builtins.bool = True) -> Tensor:
        """
        The same for slices of `dim`, as index_add
        """
    def index_select(self, dim: builtins.int, index: Tensor) -> Tensor:
        """
        The slices of `dim` at `index` [n]
        """
    def inner(self, x2: Tensor | builtins.float) -> Tensor:
        """
        Sums of products over the last dims
        
        Rule: ..., ... -> ...
        """
    def inverse(self, *given, **named):
        """
        linalg.inv.
        """
    def isclose(self, x2: Tensor, rtol: builtins.float = 1e-05, atol: builtins.float = 1e-08, equal_nan: builtins.bool = False) -> Tensor:
        """
        |x1 - x2| <= atol + rtol * |x2|, or equal: bool
        """
    def isfinite(self) -> Tensor:
        """
        True where x is neither infinite nor NaN: bool
        
        Rule: ... -> ...
        """
    def isinf(self) -> Tensor:
        """
        True where x is infinite: bool
        
        Rule: ... -> ...
        """
    def isnan(self) -> Tensor:
        """
        True where x is NaN: bool
        
        Rule: ... -> ...
        """
    def isneginf(self) -> Tensor:
        """
        True where x is -inf: bool
        
        Rule: ... -> ...
        """
    def isposinf(self) -> Tensor:
        """
        True where x is inf: bool
        
        Rule: ... -> ...
        """
    def isreal(self, *given, **named):
        """
        True for every element: there are no complex dtypes.
        """
    def kron(self, x2: Tensor | builtins.float) -> Tensor:
        """
        The Kronecker product
        
        Rule: ..., ... -> ...
        """
    def kthvalue(self, k: builtins.int, axis: builtins.int = -1, keepdims: builtins.bool = False) -> typing.Any:
        """
        The k-th smallest element along `axis`, counted from 1: (values, indices)
        """
    def layer_norm(self, weight: Tensor | None = None, bias: Tensor | None = None, eps: builtins.float = 1e-05) -> Tensor:
        """
        (x - mean) / sqrt(variance + eps) * weight [d] + bias [d], along the last dim; ones and zeros if None
        
        Rule: ... d, d, d -> ... d
        """
    def ldexp(self, x2: Tensor | builtins.float) -> Tensor:
        """
        x1 * 2^x2
        
        Rule: ..., ... -> ...
        """
    def le(self, *args, **kwargs):
        """
        less_equal(x1: Tensor | float, x2: Tensor | float) -> Tensor
        
        x1 <= x2, element by element, as bool
        
        Rule: ..., ... -> ...
        """
    def lerp(self, end: Tensor, weight: Tensor | builtins.float) -> Tensor:
        """
        x + weight * (end - x)
        """
    def less(self, x2: Tensor | builtins.float) -> Tensor:
        """
        x1 < x2, element by element, as bool
        
        Rule: ..., ... -> ...
        """
    def less_equal(self, x2: Tensor | builtins.float) -> Tensor:
        """
        x1 <= x2, element by element, as bool
        
        Rule: ..., ... -> ...
        """
    def lgamma(self) -> Tensor:
        """
        log |gamma(x)|
        
        Rule: ... -> ...
        """
    def linear(self, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """
        x [..., k] times the transpose of weight [n, k] (+ bias [n]): [..., n]
        
        Rule: ... k, n k -> ... n
        """
    def linear_cross_entropy(self, weight: Tensor, targets: Tensor, *, bias: Tensor | None = None, softcap: builtins.float = 0.0, multiplier: builtins.float = 1.0, class_weight: Tensor | None = None, label_smoothing: builtins.float = 0.0, ignore_index: builtins.int = -100, z_loss: builtins.float = 0.0, reduction: str = 'mean', whole_up_to: builtins.int = 4194304) -> Tensor:
        """
        cross_entropy of the logits multiplier * x weight^T + bias, for x [..., d], weight [classes, d] and targets [...], without storing the logits: parts of them are computed, and again in backward. softcap: they become softcap * tanh(logits / softcap). The other options are those of cross_entropy. Logits of at most whole_up_to elements a rank are made whole, which saves computing them again
        
        Layout rule: v [d], ... [d], ... -> ...
        """
    def log(self) -> Tensor:
        """
        The natural logarithm of x
        
        Rule: ... -> ...
        """
    def log10(self) -> Tensor:
        """
        The logarithm of x to base 10
        
        Rule: ... -> ...
        """
    def log1p(self) -> Tensor:
        """
        log(1 + x), exact for small x
        
        Rule: ... -> ...
        """
    def log2(self) -> Tensor:
        """
        The logarithm of x to base 2
        
        Rule: ... -> ...
        """
    def log_normal_(self, mean: builtins.float = 1.0, std: builtins.float = 2.0) -> typing.Any:
        """
        Draws exp of normal values
        """
    def log_softmax(self, dim: builtins.int = -1, *, dtype: DType | str | None = None) -> Tensor:
        """
        The logarithm of softmax, as `dtype`
        
        Rule: ... v -> ... v
        """
    def logaddexp(self, x2: Tensor | builtins.float) -> Tensor:
        """
        log(exp(x1) + exp(x2)), without overflow on the way
        
        Rule: ..., ... -> ...
        """
    def logaddexp2(self, x2: Tensor | builtins.float) -> Tensor:
        """
        log2(2^x1 + 2^x2)
        
        Rule: ..., ... -> ...
        """
    def logcumsumexp(self, *given, **named):
        """
        log(sum(exp)) of all elements up to each; a tensor without dims stays.
        """
    def logdet(self, *given, **named):
        """
        The logarithm of the determinant: NaN for a negative one, -inf for 0.
        """
    def logical_and(self, x2: Tensor | builtins.float) -> Tensor:
        """
        True where neither is zero: bool
        
        Rule: ..., ... -> ...
        """
    def logical_not(self) -> Tensor:
        """
        True where x is zero: bool
        
        Rule: ... -> ...
        """
    def logical_or(self, x2: Tensor | builtins.float) -> Tensor:
        """
        True where one is not zero: bool
        
        Rule: ..., ... -> ...
        """
    def logical_xor(self, x2: Tensor | builtins.float) -> Tensor:
        """
        True where just one is not zero: bool
        
        Rule: ..., ... -> ...
        """
    def logit(self, eps: builtins.float | None = None) -> Tensor:
        """
        log(x / (1 - x)); with `eps`, of x limited to [eps, 1 - eps]
        """
    def logsumexp(self, dim: builtins.int | collections.abc.Sequence[builtins.int] = (), keepdim: builtins.bool = False) -> Tensor:
        """
        log of the sum of exp along one dim or several, or of all elements
        """
    def lt(self, *args, **kwargs):
        """
        less(x1: Tensor | float, x2: Tensor | float) -> Tensor
        
        x1 < x2, element by element, as bool
        
        Rule: ..., ... -> ...
        """
    def masked_fill(self, mask: Tensor, value: Tensor | builtins.float) -> Tensor:
        """
        `value`, in the dtype of x, where `mask` (bool) holds, and x elsewhere
        """
    def masked_scatter(self, mask: Tensor, source: Tensor) -> Tensor:
        """
        x with the elements where `mask` (bool) holds replaced by those of `source`, in order
        """
    def masked_select(self, mask: Tensor) -> Tensor:
        """
        The elements where `mask` (bool) holds, in row-major order: [n]
        """
    def matmul(self, x2: Tensor) -> Tensor:
        """
        x1 [..., m, k] times x2 [..., k, n]: [..., m, n]; leading dims broadcast, transposed views are free. A vector [k] is a row, or a column, whose dim of size 1 is left out again. ValueError names the sizes that do not fit
        
        Rule: ... m k, ... k n -> ... m n
        """
    def matrix_exp(self) -> Tensor:
        """
        The sum of x^k / k! of square matrices
        
        Rule: ... m k, ... k n -> ... m n
        """
    def matrix_norm(self, *, keepdims: builtins.bool = False, ord: typing.Any = 'fro') -> Tensor:
        """
        Norms of the matrices in the last two dims: "fro", the root of the sum of squares; 1 and -1, the largest and smallest sum of magnitudes of a column; inf and -inf, of a row; 2 and -2, the largest and smallest singular value; "nuc", their sum
        """
    def matrix_power(self, n: builtins.int) -> Tensor:
        """
        The n-th power of matrices; that of the inverse for n < 0
        """
    def matrix_transpose(self) -> Tensor:
        """
        x [..., m, n] as [..., n, m]; a view. ValueError for fewer than two dims
        """
    def max(self, dim: Tensor | builtins.int | collections.abc.Sequence[builtins.int] | None = None, keepdim: builtins.bool = False, *, other: Tensor | None = None) -> typing.Any:
        """
        max(x); max(x, dim) as (values, indices); or of two tensors
        """
    def maximum(self, x2: Tensor | builtins.float) -> Tensor:
        """
        The larger of x1 and x2, element by element
        
        Rule: ..., ... -> ...
        """
    def mean(self, dim: builtins.int | collections.abc.Sequence[builtins.int] | None = None, keepdim: builtins.bool = False, *, dtype: DType | str | None = None) -> Tensor:
        """
        The mean along `dim`, of elements as `dtype`
        
        Rule: d0 d1  -> d1    (by its attributes; this one of [5, 7])
        """
    def median(self, axis: builtins.int | None = None, keepdims: builtins.bool = False) -> typing.Any:
        """
        The lower of the two middle elements, NaN where there is one; along `axis` (values, indices)
        """
    def min(self, dim: Tensor | builtins.int | collections.abc.Sequence[builtins.int] | None = None, keepdim: builtins.bool = False, *, other: Tensor | None = None) -> typing.Any:
        """
        min(x); min(x, dim) as (values, indices); or of two tensors
        """
    def minimum(self, x2: Tensor | builtins.float) -> Tensor:
        """
        The smaller of x1 and x2, element by element
        
        Rule: ..., ... -> ...
        """
    def mm(self, *args, **kwargs):
        """
        matmul(x1: Tensor, x2: Tensor) -> Tensor
        
        x1 [..., m, k] times x2 [..., k, n]: [..., m, n]; leading dims broadcast, transposed views are free. A vector [k] is a row, or a column, whose dim of size 1 is left out again. ValueError names the sizes that do not fit
        
        Rule: ... m k, ... k n -> ... m n
        """
    def mode(self, axis: builtins.int = -1, keepdims: builtins.bool = False) -> typing.Any:
        """
        The smallest of the most frequent elements along `axis`, and its last index
        """
    def moveaxis(self, source: builtins.int | collections.abc.Sequence[builtins.int], destination: builtins.int | collections.abc.Sequence[builtins.int]) -> Tensor:
        """
        Moves the dims `source` (one or several) to the places `destination`; the others keep their order. A view. ValueError when their numbers differ or one is given twice
        """
    def movedim(self, *args, **kwargs):
        """
        moveaxis(x: Tensor, source: int | collections.abc.Sequence[int], destination: int | collections.abc.Sequence[int]) -> Tensor
        
        Moves the dims `source` (one or several) to the places `destination`; the others keep their order. A view. ValueError when their numbers differ or one is given twice
        """
    def mse_loss(self, target: Tensor, *, reduction: str = 'mean') -> Tensor:
        """
        (input - target)^2 element by element, of equal shapes: with reduction 'mean' its mean, 'sum' its sum, 'none' all of it
        """
    def msort(self, *given, **named):
        """
        Sorted along dim 0.
        """
    def mul(self, *args, **kwargs):
        """
        multiply(x1: Tensor | float, x2: Tensor | float) -> Tensor
        
        x1 * x2; shapes broadcast, dtypes promote
        
        Rule: ..., ... -> ...
        """
    def multinomial(self, *given, generator = None, **named):
        """
        multinomial(x: Tensor, num_samples: int, replacement: bool = False) -> Tensor
        
        num_samples indices of the last dim, drawn in proportion to the elements
        """
    def multiply(self, x2: Tensor | builtins.float) -> Tensor:
        """
        x1 * x2; shapes broadcast, dtypes promote
        
        Rule: ..., ... -> ...
        """
    def mv(self, vec: Tensor) -> Tensor:
        """
        A matrix times a vector
        """
    def mvlgamma(self, p: builtins.int) -> Tensor:
        """
        The logarithm of the gamma function of p dims
        """
    def nan_to_num(self, nan: builtins.float = 0.0, posinf: builtins.float | None = None, neginf: builtins.float | None = None) -> Tensor:
        """
        x with NaN, inf and -inf replaced; None means the largest and smallest number
        """
    def nanmean(self, dim: builtins.int | collections.abc.Sequence[builtins.int] | None = None, keepdim: builtins.bool = False, *, dtype: DType | str | None = None) -> Tensor:
        """
        The mean of the elements along `dim` that are not NaN
        
        Rule: d0 d1  -> d1    (by its attributes; this one of [5, 7])
        """
    def nanmedian(self, axis: builtins.int | None = None, keepdims: builtins.bool = False) -> typing.Any:
        """
        The lower of the two middle elements that are not NaN; along `axis` (values, indices)
        """
    def nanquantile(self, *given, **named):
        """
        weft.nanquantile; q may be a tensor too.
        """
    def nansum(self, dim: builtins.int | collections.abc.Sequence[builtins.int] | None = None, keepdim: builtins.bool = False, *, dtype: DType | str | None = None) -> Tensor:
        """
        The sum of the elements along `dim` that are not NaN
        
        Rule: d0 d1  -> d1    (by its attributes; this one of [5, 7])
        """
    def narrow(self, dim: builtins.int, start: builtins.int, length: builtins.int) -> Tensor:
        """
        `length` elements along `dim` from `start` on
        """
    def narrow_copy(self, *given, **named):
        """
        narrow(x: Tensor, dim: int, start: int, length: int) -> Tensor
        
        `length` elements along `dim` from `start` on
        """
    def ne(self, *args, **kwargs):
        """
        not_equal(x1: Tensor | float, x2: Tensor | float) -> Tensor
        
        x1 != x2, element by element, as bool
        
        Rule: ..., ... -> ...
        """
    def neg(self, *args, **kwargs):
        """
        negative(x: Tensor) -> Tensor
        
        -x
        
        Rule: ... -> ...
        """
    def negative(self) -> Tensor:
        """
        -x
        
        Rule: ... -> ...
        """
    def new_empty(self, *given, **named):
        """
        weft.empty in the dtype and on the device of input.
        """
    def new_empty_strided(self, *given, **named):
        """
        New dense memory of that size; the strides have no effect.
        """
    def new_full(self, *given, **named):
        """
        weft.full in the dtype and on the device of input.
        """
    def new_ones(self, *given, **named):
        """
        weft.ones in the dtype and on the device of input.
        """
    def new_zeros(self, *given, **named):
        """
        weft.zeros in the dtype and on the device of input.
        """
    def nextafter(self, x2: Tensor | builtins.float) -> Tensor:
        """
        The number next to x1 on the way to x2
        
        Rule: ..., ... -> ...
        """
    def nonzero(self, *given, **named):
        """
        The indices of the nonzero elements: [n, dims], or a tensor for each dim.
        """
    def nonzero_static(self, *, size: builtins.int, fill_value: builtins.int = -1) -> Tensor:
        """
        The first `size` rows of nonzero, with rows of fill_value where there are fewer
        """
    def norm(self, *given, **named):
        """
        The p-norm of all elements, or along dims.
        """
    def normal_(self, mean: builtins.float = 0.0, std: builtins.float = 1.0) -> typing.Any:
        """
        Draws all elements anew, of a normal distribution
        """
    def not_equal(self, x2: Tensor | builtins.float) -> Tensor:
        """
        x1 != x2, element by element, as bool
        
        Rule: ..., ... -> ...
        """
    def nuclear_norm(self, *given, **named):
        """
        The sum of singular values.
        """
    def on_device(self, device: Device | str) -> Tensor:
        """
        The same layout with this rank's part on `device`; x itself when it is on `device`
        """
    def one_hot(self, num_classes: builtins.int = -1) -> Tensor:
        """
        x [...] as rows [..., classes] that are 1 at the element's number, else 0: int64
        """
    def outer(self, x2: Tensor) -> Tensor:
        """
        x1 [m] times x2 [n]: [m, n]. ValueError when one has not one dim
        """
    def pad(self, dim: builtins.int, before: builtins.int, after: builtins.int) -> Tensor:
        """
        `before` and `after` zeros more along `dim`
        
        Rule: ~d0 d1 -> +n0 d1    (by its attributes; this one of [7, 5])
        """
    def permute_copy(self, *given, **named):
        """
        permute_dims(x: Tensor, axes: collections.abc.Sequence[int] | int) -> Tensor
        
        Dim i of the result is dim axes[i] of x; a view
        
        Rule: d0 d1  -> d1 d0    (by its attributes; this one of [5, 7])
        """
    def permute_dims(self, axes: collections.abc.Sequence[builtins.int] | builtins.int) -> Tensor:
        """
        Dim i of the result is dim axes[i] of x; a view
        
        Rule: d0 d1  -> d1 d0    (by its attributes; this one of [5, 7])
        """
    def pinverse(self, *given, **named):
        """
        linalg.pinv.
        """
    def positive(self) -> Tensor:
        """
        +x: x itself
        """
    def pow(self, x2: Tensor | builtins.float) -> Tensor:
        """
        x1 ** x2. Integers wrap, and a negative exponent gives the integer part
        
        Rule: ..., ... -> ...
        """
    def prod(self, dim: builtins.int | collections.abc.Sequence[builtins.int] | None = None, keepdim: builtins.bool = False, *, dtype: DType | str | None = None) -> Tensor:
        """
        The product along `dim`, of elements as `dtype`; of integers in int64
        
        Rule: [d0] d1  -> d1    (by its attributes; this one of [5, 7])
        """
    def put(self, index: Tensor, source: Tensor, accumulate: builtins.bool = False) -> Tensor:
        """
        x with the elements at `index` of the flattened tensor replaced by those of `source`, or added
        """
    def qr(self, *given, **named):
        """
        linalg.qr; of square Q with some=False.
        """
    def quantile(self, *given, **named):
        """
        weft.quantile; q may be a tensor too.
        """
    def rad2deg(self) -> Tensor:
        """
        Radians as degrees
        
        Rule: ..., ... -> ...
        """
    def ravel(self, *given, **named):
        """
        All elements in one dim.
        """
    def real(self, *given, **named):
        """
        The complex conjugates: x itself, because no dtype is complex.
        """
    def reciprocal(self) -> Tensor:
        """
        1 / x for each element; float32 for integers
        
        Rule: ..., ... -> ...
        """
    def relu(self) -> Tensor:
        """
        max(x, 0); its gradient at 0 is 0
        
        Rule: ... -> ...
        """
    def remainder(self, x2: Tensor | builtins.float) -> Tensor:
        """
        x1 % x2, with the sign of x2; integers by 0 give 0
        
        Rule: ..., ... -> ...
        """
    def renorm(self, p: builtins.float, dim: builtins.int, maxnorm: builtins.float) -> Tensor:
        """
        The slices of `dim` whose p-norm is above maxnorm, scaled to it
        """
    def repeat(self, *given, **named):
        """
        Repeated as a whole, dims[i] times along dim i.
        """
    def repeat_interleave(self, *given, **named):
        """
        Each element of `dim` (of the flattened tensor without one) repeated.
        """
    def reshape_as(self, *given, **named):
        """
        Reshaped to the shape of the other.
        """
    def resolve_conj(self, *given, **named):
        """
        The complex conjugates: x itself, because no dtype is complex.
        """
    def resolve_neg(self, *given, **named):
        """
        The complex conjugates: x itself, because no dtype is complex.
        """
    def rms_norm(self, weight: Tensor | None = None, eps: builtins.float = 1e-05) -> Tensor:
        """
        x / sqrt(mean of x^2 along the last dim + eps) * weight [d], ones if None
        
        Rule: ... d, d -> ... d
        """
    def roll(self, shifts: builtins.int | collections.abc.Sequence[builtins.int], dims: builtins.int | collections.abc.Sequence[builtins.int] | None = ()) -> Tensor:
        """
        Moves the elements along `dims`, or the flattened tensor without dims
        """
    def rope(self, theta: builtins.float = 10000.0, position: builtins.int | Tensor = 0) -> Tensor:
        """
        Rotary position embedding of x [batch, sequence, heads, d] in Hugging Face's 'rotate half' convention; positions start at `position`, or are that tensor of integers [batch, sequence]
        
        Rule: b s h [d] -> b s h [d]
        """
    def rot90(self, k: builtins.int = 1, dims: collections.abc.Sequence[builtins.int] = [0, 1]) -> Tensor:
        """
        Turns the plane of two dims by 90 degrees k times, from the first to the second
        """
    def round(self, *, decimals: builtins.int = 0) -> Tensor:
        """
        Rounds to the nearest number with so many decimals; halves to even
        """
    def rsqrt(self) -> Tensor:
        """
        1 / sqrt(x)
        
        Rule: ... -> ...
        """
    def rsub(self, other: Tensor | builtins.float, *, alpha: builtins.float = 1) -> Tensor:
        """
        other - alpha * x
        """
    def scale_(self, factor: Tensor) -> typing.Any:
        """
        x *= factor, of one element, in place
        
        Rule: ..., . ->
        """
    def scatter(self, *given, **named):
        """
        src[.., i, ..] in the place of element index[.., i, ..] along `dim`; the last of equal
            indices stays. reduce="add" adds, "multiply" multiplies.
        """
    def scatter_add(self, dim: builtins.int, index: Tensor, src: Tensor) -> Tensor:
        """
        x with src[.., i, ..] added to element index[.., i, ..] along `dim`
        """
    def scatter_reduce(self, dim: builtins.int, index: Tensor, src: Tensor, reduce: str, *, include_self: builtins.bool = True) -> Tensor:
        """
        x with element index[.., i, ..] along `dim` combined with src[.., i, ..]: the sum, prod, mean, amax or amin of them; of x too if include_self
        """
    def select(self, dim: builtins.int, index: builtins.int) -> Tensor:
        """
        Element `index` of `dim`, which the result lacks
        """
    def select_scatter(self, src: Tensor, dim: builtins.int, index: builtins.int) -> Tensor:
        """
        x with element `index` of `dim` replaced by src
        """
    def sgn(self, *args, **kwargs):
        """
        sign(x: Tensor) -> Tensor
        
        -1, 0 or 1; NaN for NaN
        
        Rule: ... -> ...
        """
    def sigmoid(self) -> Tensor:
        """
        1 / (1 + exp(-x))
        
        Rule: ... -> ...
        """
    def sign(self) -> Tensor:
        """
        -1, 0 or 1; NaN for NaN
        
        Rule: ... -> ...
        """
    def signbit(self) -> Tensor:
        """
        True where the sign is negative, also of -0 and NaN: bool
        
        Rule: ... -> ...
        """
    def silu(self) -> Tensor:
        """
        x * sigmoid(x)
        
        Rule: ... -> ...
        """
    def sin(self) -> Tensor:
        """
        The sine of x, in radians
        
        Rule: ... -> ...
        """
    def sinc(self) -> Tensor:
        """
        sin(pi x) / (pi x), 1 at 0
        
        Rule: ... -> ...
        """
    def sinh(self) -> Tensor:
        """
        The hyperbolic sine of x
        
        Rule: ... -> ...
        """
    def slice(self, dim: builtins.int = 0, start: builtins.int | None = None, end: builtins.int | None = None, step: builtins.int = 1) -> Tensor:
        """
        Elements start, start + step, ... before end of `dim`
        """
    def slice_scatter(self, *given, **named):
        """
        Elements start, start + step, ... before end of `dim` replaced by src.
        """
    def slogdet(self) -> typing.Any:
        """
        The sign of the determinant, and the logarithm of its magnitude
        """
    def softmax(self, dim: builtins.int = -1, *, dtype: DType | str | None = None) -> Tensor:
        """
        exp(x) / sum of exp(x) along `dim`, as `dtype`
        
        Rule: ... v -> ... v
        """
    def sort(self, *given, **named):
        """
        (values, indices), always stable.
        """
    @typing.overload
    def split(self, split_size_or_sections: builtins.int, dim: builtins.int = 0) -> tuple:
        """
        Parts along `dim` of that size, the last of fewer; or of these sizes
        """
    @typing.overload
    def split(self, split_size_or_sections: collections.abc.Sequence[builtins.int], dim: builtins.int = 0) -> tuple:
        ...
    def sqrt(self) -> Tensor:
        """
        The square root of x
        
        Rule: ... -> ...
        """
    def square(self) -> Tensor:
        """
        x * x
        
        Rule: ... -> ...
        """
    def squeeze(self, dim: builtins.int | collections.abc.Sequence[builtins.int] | None = None) -> Tensor:
        """
        Removes the dims of size 1, or those of `dim` that have it
        """
    def squeeze_copy(self, *given, **named):
        """
        squeeze(input: Tensor, dim: int | collections.abc.Sequence[int] | None = None) -> Tensor
        
        Removes the dims of size 1, or those of `dim` that have it
        """
    def std(self, *given, **named):
        """
        weft.std with correction=1.
        """
    def std_mean(self, *given, **named):
        """
        (std, mean).
        """
    def sub(self, *args, **kwargs):
        """
        subtract(input: Tensor | float, other: Tensor | float, *, alpha: float = 1) -> Tensor
        
        input - alpha * other; as `weft.subtract`
        """
    def subtract(self, other: Tensor | builtins.float, *, alpha: builtins.float = 1) -> Tensor:
        """
        input - alpha * other; as `weft.subtract`
        """
    def sum(self, dim: builtins.int | collections.abc.Sequence[builtins.int] | None = None, keepdim: builtins.bool = False, *, dtype: DType | str | None = None) -> Tensor:
        """
        The sum along `dim`, of elements as `dtype`; of integers in int64
        
        Rule: d0 d1  -> d1    (by its attributes; this one of [5, 7])
        """
    def sum_squares(self, axis: builtins.int | collections.abc.Sequence[builtins.int] | None = None, keepdims: builtins.bool = False) -> Tensor:
        """
        The sum of squares over `axis`, as float32
        
        Rule: d0 d1  -> d1    (by its attributes; this one of [5, 7])
        """
    def sum_to_size(self, *given, **named):
        """
        Summed over the dims that broadcasting from `size` would repeat.
        """
    def svd(self, *given, **named):
        """
        (U, S, V), where linalg.svd returns V transposed; U and V are zeros with compute_uv=False.
        """
    def swapaxes(self, *given, **named):
        """
        Two dims exchanged; a tensor without dims as it is.
        """
    def swapdims(self, *given, **named):
        """
        Two dims exchanged; a tensor without dims as it is.
        """
    @staticmethod
    def t(input):
        """
        A matrix transposed; other tensors of at most one dim as they are.
        """
    def t_copy(self, *given, **named):
        """
        A matrix transposed; other tensors of at most one dim as they are.
        """
    def take(self, index: Tensor) -> Tensor:
        """
        Elements of the flattened tensor
        """
    def take_along_axis(self, indices: Tensor, axis: builtins.int = -1) -> Tensor:
        """
        Element indices[.., i, ..] of `axis` for each element of `indices`, which has as many dims as x; the other dims broadcast. ValueError names an index out of bounds
        
        Rule: ~n d1 , i d1 -> i d1    (by its attributes; this one of [7, 3], [5, 3])
        """
    def take_along_dim(self, *given, **named):
        """
        Elements `indices` along `dim`; of the flattened tensor without a dim.
        """
    def tan(self) -> Tensor:
        """
        The tangent of x, in radians
        
        Rule: ... -> ...
        """
    def tanh(self) -> Tensor:
        """
        The hyperbolic tangent of x
        
        Rule: ... -> ...
        """
    @typing.overload
    def tensor_split(self, indices_or_sections: builtins.int, dim: builtins.int = 0) -> tuple:
        """
        Parts along `dim` whose sizes differ by at most 1; or that end before these indices
        """
    @typing.overload
    def tensor_split(self, indices_or_sections: collections.abc.Sequence[builtins.int], dim: builtins.int = 0) -> tuple:
        ...
    def tile(self, *given, **named):
        """
        Repeated as a whole, dims[i] times along dim i.
        """
    def topk(self, k: builtins.int, axis: builtins.int = -1, largest: builtins.bool = True, sorted: builtins.bool = True) -> typing.Any:
        """
        The k largest, or smallest, elements along `axis`, always in order: (values, indices)
        """
    def trace(self, *given, **named):
        """
        The sum of the diagonal of a matrix.
        """
    def transpose(self, *given, **named):
        """
        Two dims exchanged; a tensor without dims as it is.
        """
    def transpose_copy(self, *given, **named):
        """
        Two dims exchanged; a tensor without dims as it is.
        """
    def tril(self, k: builtins.int = 0) -> Tensor:
        """
        x with zeros above diagonal `k` of its last two dims
        
        Rule: ... m n -> ... m n
        """
    def triu(self, k: builtins.int = 0) -> Tensor:
        """
        x with zeros below diagonal `k` of its last two dims
        
        Rule: ... m n -> ... m n
        """
    def true_divide(self, *args, **kwargs):
        """
        divide(x1: Tensor | float, x2: Tensor | float) -> Tensor
        
        x1 / x2, floating; shapes broadcast, dtypes promote
        
        Rule: ..., ... -> ...
        """
    def trunc(self) -> Tensor:
        """
        The integer of x towards 0; the dtype stays
        
        Rule: ... -> ...
        """
    def unbind(self, dim: builtins.int = 0) -> tuple:
        """
        The slices of `dim`, which do not have that dim
        """
    def unbind_copy(self, *given, **named):
        """
        unbind(x: Tensor, dim: int = 0) -> tuple
        
        The slices of `dim`, which do not have that dim
        """
    def unflatten(self, dim: builtins.int, sizes: collections.abc.Sequence[builtins.int]) -> Tensor:
        """
        Dim `dim` as dims of `sizes`, of which one may be -1
        """
    def unfold(self, dimension: builtins.int, size: builtins.int, step: builtins.int) -> Tensor:
        """
        Windows of `size` elements along a dim, `step` apart, in a new last dim
        """
    def unfold_copy(self, *given, **named):
        """
        unfold(x: Tensor, dimension: int, size: int, step: int) -> Tensor
        
        Windows of `size` elements along a dim, `step` apart, in a new last dim
        """
    def uniform_(self, low: builtins.float = 0.0, high: builtins.float = 1.0) -> typing.Any:
        """
        Draws all elements anew, evenly in [low, high)
        """
    def unique(self, *given, **named):
        """
        The distinct elements in ascending order, and what else is asked for.
        """
    def unique_all(self) -> typing.Any:
        """
        The distinct elements in order, the first index of each in the flattened tensor, the index of each element of x among them, and their counts. NaNs are all distinct
        """
    def unique_consecutive(self, *given, **named):
        """
        Elements, or slices of `dim`, without their direct repetitions, and what else is asked
            for.
        """
    def unique_counts(self) -> typing.Any:
        """
        The distinct elements of x in order, and their counts. NaNs are all distinct
        """
    def unique_inverse(self) -> typing.Any:
        """
        The distinct elements of x in order, and the index of each element of x among them. NaNs are all distinct
        """
    def unique_values(self) -> Tensor:
        """
        The distinct elements of x in order: [n]. NaNs are all distinct
        """
    def unsafe_chunk(self, *args, **kwargs):
        """
        chunk(x: Tensor, chunks: int, dim: int = 0) -> tuple
        
        At most `chunks` parts along `dim`, of ceil(size / chunks) elements, the last of fewer
        """
    def unsqueeze(self, dim: builtins.int) -> Tensor:
        """
        Adds a dim of size 1 before dim `dim`; a view
        
        Rule: f0 f1 f2  -> f0 (f1 f2 )    (by its attributes; this one of [5, 6, 7])
        """
    def unsqueeze_copy(self, *given, **named):
        """
        unsqueeze(x: Tensor, dim: int) -> Tensor
        
        Adds a dim of size 1 before dim `dim`; a view
        
        Rule: f0 f1 f2  -> f0 (f1 f2 )    (by its attributes; this one of [5, 6, 7])
        """
    def unstack(self, axis: builtins.int = 0) -> tuple:
        """
        A tuple of the slices of `axis`, which do not have that dim
        """
    def vander(self, N: builtins.int = -1, increasing: builtins.bool = False) -> Tensor:
        """
        Powers of a vector as columns
        """
    def var(self, *given, **named):
        """
        weft.var with correction=1.
        """
    def var_mean(self, *given, **named):
        """
        (var, mean).
        """
    def vdot(self, *args, **kwargs):
        """
        dot(x: Tensor, tensor: Tensor) -> Tensor
        
        The sum of products of two vectors
        """
    def vecdot(self, x2: Tensor, *, axis: builtins.int = -1) -> Tensor:
        """
        Sums products along `axis`, counted from the end; the other dims broadcast. ValueError when the sizes of that dim differ
        """
    def vector_norm(self, *, axis: builtins.int | collections.abc.Sequence[builtins.int] | None = None, keepdims: builtins.bool = False, ord: builtins.float = 2.0) -> Tensor:
        """
        The ord-th root of the sum over `axis` (all dims unless given) of magnitudes to that power; inf and -inf the largest and smallest magnitude, 0 the number of nonzero elements. Integers are converted to float32. The gradient of zeros is 0
        """
    def view_as(self, *given, **named):
        """
        Reshaped to the shape of the other.
        """
    def vsplit(self, indices_or_sections: builtins.int | collections.abc.Sequence[builtins.int]) -> tuple:
        """
        Equal parts along dim 0; or that end before these
        """
    def with_loss(self, loss: Tensor, scale: builtins.float = 1.0) -> Tensor:
        """
        x, whose backward also sends the gradient `scale` to `loss`
        """
    def xlogy(self, x2: Tensor | builtins.float) -> Tensor:
        """
        x1 * log(x2), but 0 where x1 is 0 and x2 is not NaN
        
        Rule: ..., ... -> ...
        """
    def __abs__(self) -> Tensor:
        ...
    def __add__(self, arg0: Tensor | builtins.float) -> Tensor:
        ...
    def __and__(self, arg0: Tensor | builtins.float) -> Tensor:
        ...
    def __array__(self, dtype: typing.Any = None, copy: typing.Any = None) -> typing.Any:
        ...
    def __array_namespace__(self, *, api_version = None):
        """
        The namespace of functions for this tensor: the module weft. ValueError for a version of the
            standard that it does not follow.
        """
    def __bool__(self) -> builtins.bool:
        ...
    def __copy__(self) -> Tensor:
        ...
    def __deepcopy__(self, arg0: typing.Any) -> Tensor:
        ...
    def __dlpack__(self, *, stream: typing.Any = None, max_version: typing.Any = None, dl_device: typing.Any = None, copy: builtins.bool | None = None) -> typing.Any:
        ...
    def __dlpack_device__(self) -> tuple[builtins.int, builtins.int]:
        ...
    def __eq__(self, arg0: Tensor | builtins.float) -> Tensor:
        ...
    def __float__(self) -> builtins.float:
        ...
    def __floordiv__(self, arg0: Tensor | builtins.float) -> Tensor:
        ...
    def __format__(self, arg0: str) -> str:
        ...
    def __ge__(self, arg0: Tensor | builtins.float) -> Tensor:
        ...
    def __getitem__(self, index: typing.Any) -> Tensor:
        ...
    def __gt__(self, arg0: Tensor | builtins.float) -> Tensor:
        ...
    def __hash__(self) -> builtins.int:
        ...
    def __iadd__(self, arg0: Tensor | builtins.float) -> typing.Any:
        ...
    def __iand__(self, arg0: Tensor | builtins.float) -> typing.Any:
        ...
    def __ifloordiv__(self, arg0: Tensor | builtins.float) -> typing.Any:
        ...
    def __ilshift__(self, arg0: Tensor | builtins.float) -> typing.Any:
        ...
    def __imod__(self, arg0: Tensor | builtins.float) -> typing.Any:
        ...
    def __imul__(self, arg0: Tensor | builtins.float) -> typing.Any:
        ...
    def __index__(self) -> builtins.int:
        ...
    def __init__(self, parameter: Parameter) -> None:
        """
        The tensor a parameter computes with. Others are made by weft.tensor, weft.asarray, weft.zeros, ...
        """
    def __int__(self) -> builtins.int:
        ...
    def __invert__(self) -> Tensor:
        ...
    def __ior__(self, arg0: Tensor | builtins.float) -> typing.Any:
        ...
    def __ipow__(self, arg0: Tensor | builtins.float) -> typing.Any:
        ...
    def __irshift__(self, arg0: Tensor | builtins.float) -> typing.Any:
        ...
    def __isub__(self, arg0: Tensor | builtins.float) -> typing.Any:
        ...
    def __iter__(self) -> collections.abc.Iterator:
        ...
    def __itruediv__(self, arg0: Tensor | builtins.float) -> typing.Any:
        ...
    def __ixor__(self, arg0: Tensor | builtins.float) -> typing.Any:
        ...
    def __le__(self, arg0: Tensor | builtins.float) -> Tensor:
        ...
    def __len__(self) -> builtins.int:
        ...
    def __lshift__(self, arg0: Tensor | builtins.float) -> Tensor:
        ...
    def __lt__(self, arg0: Tensor | builtins.float) -> Tensor:
        ...
    def __matmul__(self, arg0: Tensor) -> Tensor:
        ...
    def __mod__(self, arg0: Tensor | builtins.float) -> Tensor:
        ...
    def __mul__(self, arg0: Tensor | builtins.float) -> Tensor:
        ...
    def __ne__(self, arg0: Tensor | builtins.float) -> Tensor:
        ...
    def __neg__(self) -> Tensor:
        ...
    def __or__(self, arg0: Tensor | builtins.float) -> Tensor:
        ...
    def __pos__(self) -> Tensor:
        ...
    def __pow__(self, arg0: Tensor | builtins.float) -> Tensor:
        ...
    def __radd__(self, arg0: Tensor | builtins.float) -> Tensor:
        ...
    def __rand__(self, arg0: Tensor | builtins.float) -> Tensor:
        ...
    def __reduce_ex__(self, arg0: typing.Any) -> tuple:
        ...
    def __repr__(self) -> str:
        ...
    def __rfloordiv__(self, arg0: Tensor | builtins.float) -> Tensor:
        ...
    def __rlshift__(self, arg0: Tensor | builtins.float) -> Tensor:
        ...
    def __rmatmul__(self, arg0: Tensor) -> Tensor:
        ...
    def __rmod__(self, arg0: Tensor | builtins.float) -> Tensor:
        ...
    def __rmul__(self, arg0: Tensor | builtins.float) -> Tensor:
        ...
    def __ror__(self, arg0: Tensor | builtins.float) -> Tensor:
        ...
    def __rpow__(self, arg0: Tensor | builtins.float) -> Tensor:
        ...
    def __rrshift__(self, arg0: Tensor | builtins.float) -> Tensor:
        ...
    def __rshift__(self, arg0: Tensor | builtins.float) -> Tensor:
        ...
    def __rsub__(self, arg0: Tensor | builtins.float) -> Tensor:
        ...
    def __rtruediv__(self, arg0: Tensor | builtins.float) -> Tensor:
        ...
    def __rxor__(self, arg0: Tensor | builtins.float) -> Tensor:
        ...
    def __setitem__(self, index: typing.Any, value: typing.Any) -> None:
        ...
    def __sub__(self, arg0: Tensor | builtins.float) -> Tensor:
        ...
    def __truediv__(self, arg0: Tensor | builtins.float) -> Tensor:
        ...
    def __xor__(self, arg0: Tensor | builtins.float) -> Tensor:
        ...
    def abs_(self) -> typing.Any:
        """
        Every element becomes the function of itself, in place
        """
    def add_(self, other: Tensor | builtins.float, *, alpha: Tensor | builtins.float = 1) -> typing.Any:
        """
        Changes it in place, with other * alpha; see the operator
        """
    def addcdiv_(self, tensor1: Tensor, tensor2: Tensor, *, value: builtins.float = 1) -> typing.Any:
        """
        Adds value * tensor1 / tensor2 in place
        """
    def addcmul_(self, tensor1: Tensor, tensor2: Tensor, *, value: builtins.float = 1) -> typing.Any:
        """
        Adds value * tensor1 * tensor2 in place
        """
    def addmm_(self, *given, **named):
        """
        The tensor becomes what `addmm` of it gives.
        """
    def backward(self, gradient: Tensor | None = None, retain_graph: builtins.bool | None = None, create_graph: builtins.bool = False, inputs: typing.Any = None) -> None:
        """
        Gradients of all leaves this tensor depends on, or of the inputs given; it has one element unless its gradient is given
        """
    def bfloat16(self, memory_format = None):
        """
        to(weft.bfloat16).
        """
    def bitwise_and_(self, other: Tensor | builtins.float) -> typing.Any:
        """
        The operator, or the function, in place
        """
    def bitwise_left_shift_(self, other: Tensor | builtins.float) -> typing.Any:
        """
        The operator, or the function, in place
        """
    def bitwise_or_(self, other: Tensor | builtins.float) -> typing.Any:
        """
        The operator, or the function, in place
        """
    def bitwise_right_shift_(self, other: Tensor | builtins.float) -> typing.Any:
        """
        The operator, or the function, in place
        """
    def bitwise_xor_(self, other: Tensor | builtins.float) -> typing.Any:
        """
        The operator, or the function, in place
        """
    def bool(self, memory_format = None):
        """
        to(weft.bool).
        """
    def boxes(self) -> list[tuple[tuple[builtins.int, ...], tuple[builtins.int, ...]]]:
        """
        (offset, shape) of each rank's part, by rank of the root mesh
        """
    def byte(self, memory_format = None):
        """
        to(weft.uint8).
        """
    def ceil_(self) -> typing.Any:
        """
        Every element becomes the function of itself, in place
        """
    def char(self, memory_format = None):
        """
        to(weft.int8).
        """
    def clamp_(self, min: Tensor | builtins.float | None = None, max: Tensor | builtins.float | None = None) -> typing.Any:
        """
        Elements below min become min, those above max become max, in place
        """
    def contiguous(self):
        """
        The tensor itself if its elements are dense in row-major order; otherwise a copy that is.
        """
    def cpu(self):
        """
        to("cpu").
        """
    def cuda(self, device = 0):
        """
        to("cuda:<device>").
        """
    def cumprod_(self, *given, **named):
        """
        The tensor becomes what `cumprod` of it gives.
        """
    def cumsum_(self, *given, **named):
        """
        The tensor becomes what `cumsum` of it gives.
        """
    def detach(self) -> Tensor:
        """
        The same elements, not recorded
        """
    def detach_(self) -> Tensor:
        """
        Disconnects the tensor from what computed it
        """
    def dim(self) -> builtins.int:
        ...
    def div_(self, other: Tensor | builtins.float) -> typing.Any:
        """
        The operator, or the function, in place
        """
    def double(self, memory_format = None):
        """
        to(weft.float64).
        """
    def exp_(self) -> typing.Any:
        """
        Every element becomes the function of itself, in place
        """
    def expand(self, *args) -> Tensor:
        """
        Dims of size 1 repeated to the shape; -1 keeps a size; no copy
        """
    def flip(self, *args, axis: builtins.int | collections.abc.Sequence[builtins.int] | None = None) -> Tensor:
        """
        The elements of the dims given, or of all, reversed
        """
    def float(self, memory_format = None):
        """
        to(weft.float32).
        """
    def floor_(self) -> typing.Any:
        """
        Every element becomes the function of itself, in place
        """
    def floor_divide_(self, other: Tensor | builtins.float) -> typing.Any:
        """
        The operator, or the function, in place
        """
    def full_tensor(self) -> Tensor:
        """
        The whole on each rank, as a tensor of one device
        """
    def half(self, memory_format = None):
        """
        to(weft.float16).
        """
    def index_add_(self, *given, **named):
        """
        The tensor becomes what `index_add` of it gives.
        """
    def index_copy_(self, *given, **named):
        """
        The tensor becomes what `index_copy` of it gives.
        """
    def index_fill_(self, *given, **named):
        """
        The tensor becomes what `index_fill` of it gives.
        """
    def index_put_(self, *given, **named):
        """
        The tensor becomes what `index_put` of it gives.
        """
    def index_reduce_(self, *given, **named):
        """
        The tensor becomes what `index_reduce` of it gives.
        """
    def int(self, memory_format = None):
        """
        to(weft.int32).
        """
    def item(self) -> typing.Any:
        """
        The one element, whole on this rank, as a Python number
        """
    def lerp_(self, end: Tensor, weight: Tensor | builtins.float) -> typing.Any:
        """
        Adds weight * (end - self) in place
        """
    def local(self) -> Tensor:
        """
        This rank's part, sharing memory; not recorded for backward
        """
    def log_(self) -> typing.Any:
        """
        Every element becomes the function of itself, in place
        """
    def long(self, memory_format = None):
        """
        to(weft.int64).
        """
    def masked_fill_(self, *given, **named):
        """
        The tensor becomes what `masked_fill` of it gives.
        """
    def masked_scatter_(self, *given, **named):
        """
        The tensor becomes what `masked_scatter` of it gives.
        """
    def maximum_(self, other: Tensor | builtins.float) -> typing.Any:
        """
        The operator, or the function, in place
        """
    def minimum_(self, other: Tensor | builtins.float) -> typing.Any:
        """
        The operator, or the function, in place
        """
    def mul_(self, other: Tensor | builtins.float) -> typing.Any:
        """
        The operator, or the function, in place
        """
    def neg_(self) -> typing.Any:
        """
        Every element becomes the function of itself, in place
        """
    def numel(self) -> builtins.int:
        """
        Elements of the whole tensor
        """
    def numpy(self) -> numpy.ndarray:
        """
        The elements as a NumPy array that shares memory, read-only for a view that is held as a copy; ValueError for a sharded tensor, one that requires a gradient, and bfloat16; float8 needs ml_dtypes
        """
    def permute(self, *args) -> Tensor:
        """
        Dim i of the result is dim dims[i]; a view
        """
    def pow_(self, other: Tensor | builtins.float) -> typing.Any:
        """
        The operator, or the function, in place
        """
    def random_(self, low = 0, high = None, *, generator = None):
        """
        Draws integers in [low, high), in [0, low) without high, in place.
        """
    def redistribute(self, device_mesh: typing.Any = None, placements: typing.Any = None, *, async_op: builtins.bool = False) -> Tensor:
        """
        The same values in another layout; runs the plan that `explain` prints. redistribute(placements) or redistribute(device_mesh, placements). It has ended when it returns, with async_op or without
        """
    def register_hook(self, hook: collections.abc.Callable) -> GradientHookHandle:
        """
        Calls hook(gradient) in each backward with the complete gradient of the tensor; a tensor that it returns takes its place
        """
    def register_post_accumulate_grad_hook(self, hook: collections.abc.Callable) -> GradientHookHandle:
        """
        Calls hook(leaf) after a backward has added to the grad of the leaf
        """
    def relu_(self) -> typing.Any:
        """
        Every element becomes the function of itself, in place
        """
    def remainder_(self, other: Tensor | builtins.float) -> typing.Any:
        """
        The operator, or the function, in place
        """
    def requires_grad_(self, requires_grad: builtins.bool = True) -> Tensor:
        """
        Marks a leaf whose gradient backward computes; ValueError for a result of an op
        """
    def reshape(self, *args) -> Tensor:
        """
        The same elements in row-major order; one size may be -1
        """
    def retain_grad(self) -> None:
        """
        Makes backward keep the gradient of a result as its grad
        """
    def round_(self, *given, **named):
        """
        The tensor becomes what `round` of it gives.
        """
    def rsqrt_(self) -> typing.Any:
        """
        Every element becomes the function of itself, in place
        """
    def scatter_(self, *given, **named):
        """
        The tensor becomes what `scatter` of it gives.
        """
    def scatter_add_(self, *given, **named):
        """
        The tensor becomes what `scatter_add` of it gives.
        """
    def scatter_reduce_(self, *given, **named):
        """
        The tensor becomes what `scatter_reduce` of it gives.
        """
    def short(self, memory_format = None):
        """
        to(weft.int16).
        """
    def sigmoid_(self) -> typing.Any:
        """
        Every element becomes the function of itself, in place
        """
    def sign_(self) -> typing.Any:
        """
        Every element becomes the function of itself, in place
        """
    def silu_(self) -> typing.Any:
        """
        Every element becomes the function of itself, in place
        """
    def sqrt_(self) -> typing.Any:
        """
        Every element becomes the function of itself, in place
        """
    def square_(self) -> typing.Any:
        """
        Every element becomes the function of itself, in place
        """
    def sub_(self, other: Tensor | builtins.float, *, alpha: Tensor | builtins.float = 1) -> typing.Any:
        """
        Changes it in place, with other * alpha; see the operator
        """
    def tanh_(self) -> typing.Any:
        """
        Every element becomes the function of itself, in place
        """
    def to(self, *given, dtype = None, device = None, copy = False, non_blocking = False, memory_format = None):
        """
        The same values as another dtype or on another device: to(dtype), to("cuda"),
            to("cpu", dtype), to(other), which is as the other tensor; behind these non_blocking and copy.
            ValueError for a device that is not there.
        """
    def to_device(self, device, *, stream = None):
        """
        The same values on `device`; the tensor itself when it is already there. ValueError when
            there is no such device.
        """
    def to_local(self, *, grad_placements: Placements | collections.abc.Sequence[Shard | Replicate | Partial] | dict[str, Shard | Replicate | Partial] | None = None) -> Tensor:
        """
        This rank's part, recorded for backward; grad_placements states what the parts of the gradient are where the tensor is Replicate or Partial (there they must be given)
        """
    def tolist(self) -> typing.Any:
        """
        The elements as nested lists of Python numbers
        """
    def tril_(self, *given, **named):
        """
        The tensor becomes what `tril` of it gives.
        """
    def triu_(self, *given, **named):
        """
        The tensor becomes what `triu` of it gives.
        """
    def trunc_(self) -> typing.Any:
        """
        Every element becomes the function of itself, in place
        """
    def view(self, *args) -> Tensor:
        """
        Does what reshape does: a view where memory allows
        """
    def zero_(self) -> typing.Any:
        """
        Every element becomes the function of itself, in place
        """
    @property
    def H(self):
        """
        mT: there are no complex dtypes.
        """
    @property
    def T(self) -> Tensor:
        """
        t()
        """
    @property
    def _version(self) -> builtins.int:
        """
        How often its elements, or others of the same memory, have changed in place
        """
    @property
    def box(self) -> tuple[tuple[builtins.int, ...], tuple[builtins.int, ...]]:
        """
        (offset, shape): which elements of the whole this rank's part holds
        """
    @property
    def device(self) -> Device | str:
        ...
    @property
    def device_mesh(self) -> DeviceMesh | None:
        """
        The root mesh it is laid out over; None for a tensor of one device
        """
    @property
    def dtype(self) -> DType | str:
        ...
    @property
    def grad(self) -> Tensor | None:
        """
        The gradient of a leaf after backward; None before
        """
    @grad.setter
    def grad(self, arg1: Tensor | None) -> None:
        ...
    @property
    def grad_fn(self) -> str | None:
        """
        The name of what computed the tensor, for backward; None for a leaf
        """
    @property
    def is_leaf(self) -> builtins.bool:
        ...
    @property
    def is_sharded(self) -> builtins.bool:
        """
        True when it is laid out over a mesh
        """
    @property
    def mH(self):
        """
        mT: there are no complex dtypes.
        """
    @property
    def mT(self) -> Tensor:
        """
        The last two dims exchanged; a view
        """
    @property
    def ndim(self) -> builtins.int:
        """
        Dims of the whole tensor
        """
    @property
    def placements(self) -> tuple:
        """
        A placement for each axis of the mesh
        """
    @property
    def requires_grad(self) -> builtins.bool:
        """
        True when backward computes its gradient
        """
    @requires_grad.setter
    def requires_grad(self, arg1: builtins.bool) -> None:
        ...
    @property
    def shape(self) -> tuple[builtins.int, ...]:
        """
        Shape of the whole tensor
        """
    @property
    def size(self):
        """
        Elements of the whole tensor; size() is the shape, size(dim) one of its sizes
        """
class _TraceScope:
    def __init__(self, most_events: int) -> None:
        ...
    def write(self, world: Communicator, path: str) -> None:
        ...
class Parameter:
    """
    A named slot of a module. What lies in it may be exchanged (sharded, gathered, loaded); where a Tensor is asked for it stands for what forward computes with
    """
    def clip_(self, *args, **kwargs):
        """
        clamp_(self: object, min: Tensor | float | None = None, max: Tensor | float | None = None) -> object
        
        Elements below min become min, those above max become max, in place
        """
    def copy_(self, source: Tensor) -> typing.Any:
        """
        Copies the elements of `source`, broadcast to the shape of `to`, to the memory of `to`
        """
    def fill_(self, value: Tensor | float) -> typing.Any:
        """
        Sets all elements in place
        """
    def normal_(self, mean: float = 0.0, std: float = 1.0) -> typing.Any:
        """
        Draws all elements anew, of a normal distribution
        """
    def uniform_(self, low: float = 0.0, high: float = 1.0) -> typing.Any:
        """
        Draws all elements anew, evenly in [low, high)
        """
    def __abs__(self, *arguments):
        ...
    def __add__(self, *arguments):
        ...
    def __bool__(self) -> builtins.bool:
        ...
    def __deepcopy__(self, arg0: dict) -> typing.Any:
        ...
    def __float__(self, *arguments):
        ...
    def __ge__(self, *arguments):
        ...
    def __getattr__(self, name):
        """
        Returns an attribute of the tensor that forward computes with.
        """
    def __getitem__(self, *arguments):
        ...
    def __gt__(self, *arguments):
        ...
    def __iadd__(self, arg0: Tensor | float) -> typing.Any:
        ...
    def __iand__(self, arg0: Tensor | float) -> typing.Any:
        ...
    def __ifloordiv__(self, arg0: Tensor | float) -> typing.Any:
        ...
    def __ilshift__(self, arg0: Tensor | float) -> typing.Any:
        ...
    def __imod__(self, arg0: Tensor | float) -> typing.Any:
        ...
    def __imul__(self, arg0: Tensor | float) -> typing.Any:
        ...
    def __init__(self, values: Tensor, requires_grad: builtins.bool = True) -> None:
        ...
    def __ior__(self, arg0: Tensor | float) -> typing.Any:
        ...
    def __ipow__(self, arg0: Tensor | float) -> typing.Any:
        ...
    def __irshift__(self, arg0: Tensor | float) -> typing.Any:
        ...
    def __isub__(self, arg0: Tensor | float) -> typing.Any:
        ...
    def __itruediv__(self, arg0: Tensor | float) -> typing.Any:
        ...
    def __ixor__(self, arg0: Tensor | float) -> typing.Any:
        ...
    def __le__(self, *arguments):
        ...
    def __len__(self, *arguments):
        ...
    def __lt__(self, *arguments):
        ...
    def __matmul__(self, *arguments):
        ...
    def __mul__(self, *arguments):
        ...
    def __neg__(self, *arguments):
        ...
    def __pos__(self, *arguments):
        ...
    def __pow__(self, *arguments):
        ...
    def __radd__(self, *arguments):
        ...
    def __reduce_ex__(self, arg0: typing.Any) -> typing.Any:
        ...
    def __repr__(self) -> str:
        ...
    def __rmul__(self, *arguments):
        ...
    def __rpow__(self, *arguments):
        ...
    def __rsub__(self, *arguments):
        ...
    def __rtruediv__(self, *arguments):
        ...
    def __setitem__(self, index, value):
        """
        Elements of the value at rest.
        """
    def __sub__(self, *arguments):
        ...
    def __truediv__(self, *arguments):
        ...
    def abs_(self) -> typing.Any:
        """
        Every element becomes the function of itself, in place
        """
    def add_(self, other: Tensor | float, *, alpha: Tensor | float = 1) -> typing.Any:
        """
        Changes it in place, with other * alpha; see the operator
        """
    def addcdiv_(self, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> typing.Any:
        """
        Adds value * tensor1 / tensor2 in place
        """
    def addcmul_(self, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> typing.Any:
        """
        Adds value * tensor1 * tensor2 in place
        """
    def bitwise_and_(self, other: Tensor | float) -> typing.Any:
        """
        The operator, or the function, in place
        """
    def bitwise_left_shift_(self, other: Tensor | float) -> typing.Any:
        """
        The operator, or the function, in place
        """
    def bitwise_or_(self, other: Tensor | float) -> typing.Any:
        """
        The operator, or the function, in place
        """
    def bitwise_right_shift_(self, other: Tensor | float) -> typing.Any:
        """
        The operator, or the function, in place
        """
    def bitwise_xor_(self, other: Tensor | float) -> typing.Any:
        """
        The operator, or the function, in place
        """
    def ceil_(self) -> typing.Any:
        """
        Every element becomes the function of itself, in place
        """
    def clamp_(self, min: Tensor | float | None = None, max: Tensor | float | None = None) -> typing.Any:
        """
        Elements below min become min, those above max become max, in place
        """
    def clear_grad(self) -> None:
        ...
    def detach_(self: Tensor) -> Tensor:
        """
        Disconnects the tensor from what computed it
        """
    def div_(self, other: Tensor | float) -> typing.Any:
        """
        The operator, or the function, in place
        """
    def exp_(self) -> typing.Any:
        """
        Every element becomes the function of itself, in place
        """
    def floor_(self) -> typing.Any:
        """
        Every element becomes the function of itself, in place
        """
    def floor_divide_(self, other: Tensor | float) -> typing.Any:
        """
        The operator, or the function, in place
        """
    def lerp_(self, end: Tensor, weight: Tensor | float) -> typing.Any:
        """
        Adds weight * (end - self) in place
        """
    def log_(self) -> typing.Any:
        """
        Every element becomes the function of itself, in place
        """
    def materialize(self, device: Device | str = ...) -> None:
        """
        Gives it memory and its initial values; nothing the second time
        """
    def maximum_(self, other: Tensor | float) -> typing.Any:
        """
        The operator, or the function, in place
        """
    def minimum_(self, other: Tensor | float) -> typing.Any:
        """
        The operator, or the function, in place
        """
    def mul_(self, other: Tensor | float) -> typing.Any:
        """
        The operator, or the function, in place
        """
    def neg_(self) -> typing.Any:
        """
        Every element becomes the function of itself, in place
        """
    def numel(self) -> int:
        ...
    def pow_(self, other: Tensor | float) -> typing.Any:
        """
        The operator, or the function, in place
        """
    def register_post_accumulate_grad_hook(self, hook):
        """
        Calls hook(leaf) after a backward has added to the gradient of the parameter at rest.
        """
    def relu_(self) -> typing.Any:
        """
        Every element becomes the function of itself, in place
        """
    def remainder_(self, other: Tensor | float) -> typing.Any:
        """
        The operator, or the function, in place
        """
    def requires_grad_(self, requires_grad: builtins.bool = True) -> Parameter:
        ...
    def round_(self) -> typing.Any:
        """
        Every element becomes the function of itself, in place
        """
    def rsqrt_(self) -> typing.Any:
        """
        Every element becomes the function of itself, in place
        """
    def set_init(self, init: collections.abc.Callable) -> None:
        """
        init(tensor) fills a tensor of any layout with the initial values, when it is materialized
        """
    def set_value(self, value: Tensor) -> None:
        """
        Exchanges what lies in the slot; the shape stays
        """
    def sigmoid_(self) -> typing.Any:
        """
        Every element becomes the function of itself, in place
        """
    def sign_(self) -> typing.Any:
        """
        Every element becomes the function of itself, in place
        """
    def silu_(self) -> typing.Any:
        """
        Every element becomes the function of itself, in place
        """
    def sqrt_(self) -> typing.Any:
        """
        Every element becomes the function of itself, in place
        """
    def square_(self) -> typing.Any:
        """
        Every element becomes the function of itself, in place
        """
    def sub_(self, other: Tensor | float, *, alpha: Tensor | float = 1) -> typing.Any:
        """
        Changes it in place, with other * alpha; see the operator
        """
    def tanh_(self) -> typing.Any:
        """
        Every element becomes the function of itself, in place
        """
    def tensor(self) -> Tensor:
        """
        The tensor that forward computes with
        """
    def trunc_(self) -> typing.Any:
        """
        Every element becomes the function of itself, in place
        """
    def zero_(self) -> typing.Any:
        """
        Every element becomes the function of itself, in place
        """
    @property
    def _at_rest(self) -> Tensor:
        """
        The leaf that data detaches
        """
    @property
    def data(self) -> Tensor:
        """
        The value at rest, which optimizers change, not recorded. Setting it exchanges what is in the slot, as set_value
        """
    @data.setter
    def data(self, arg1: Tensor) -> None:
        ...
    @property
    def dtype(self) -> DType | str:
        ...
    @property
    def grad(self) -> Tensor | None:
        """
        Gradient of the value, in its layout; None before backward
        """
    @grad.setter
    def grad(self, arg1: Tensor | None) -> None:
        ...
    @property
    def is_materialized(self) -> builtins.bool:
        ...
    @property
    def ndim(self) -> int:
        ...
    @property
    def requires_grad(self) -> builtins.bool:
        """
        Freezes or thaws it; of a sharded model between steps
        """
    @requires_grad.setter
    def requires_grad(self, arg1: builtins.bool) -> None:
        ...
    @property
    def shape(self) -> tuple[int, ...]:
        ...
    @property
    def size(self) -> int:
        ...
class HookHandle:
    """
    A handle of hooks that a module was given
    """
    def remove(self) -> None:
        """
        They run no more; nothing the second time
        """
class Module:
    """
    A part of a model: named parameters, named children, and forward(self, *tensors), which a call runs with the hooks around it. Parameters and modules assigned to attributes are its own
    """
    def __call__(self, *args, **kwargs) -> typing.Any:
        """
        forward with the hooks around it: a tensor, or a tuple where there are several. A forward written in Python takes keywords, None, numbers and strings too; hooks see the tensors, in the order of forward's parameters
        """
    def __deepcopy__(self, memo):
        """
        A module of the same class with copies of all that it has: parameters (without their
            gradients, as in PyTorch), buffers, children, hooks and attributes. Ties stay ties. ValueError
            for a sharded module, and for one of a built-in class that is not in _OPTIONS.
        """
    def __delattr__(self, name):
        """
        Own members too.
        """
    def __getattr__(self, name):
        """
        Own parameters, children and buffers, which are no attributes; None for a weight or bias that
            a layer was made without.
        """
    def __init__(self) -> None:
        ...
    def __reduce_ex__(self, arg0: typing.Any) -> typing.Any:
        ...
    def __repr__(self):
        ...
    def __setattr__(self, name, value):
        """
        Parameters and modules become the module's own, in the place of what was; None and the rest
            are plain attributes.
        """
    def _add_hooks(self, before: typing.Any, after: typing.Any, of_module: builtins.bool) -> HookHandle:
        ...
    def _allocate(self) -> None:
        ...
    def _declare(self, name: str, shape: tuple[int, ...], init: typing.Any = None, dtype: DType | str = ...) -> Parameter:
        ...
    def _member(self, name: str) -> typing.Any:
        ...
    def _named_parameters(self) -> list[tuple[list[str], Parameter]]:
        ...
    def _put(self, name: str, member: typing.Any) -> None:
        ...
    def _register_buffer(self, name: str, tensor: Tensor, persistent: builtins.bool) -> None:
        ...
    def _remove(self, name: str) -> builtins.bool:
        ...
    def _set_buffer(self, name: str, tensor: Tensor) -> None:
        ...
    def _to_device(self, device: Device | str) -> None:
        ...
    def _to_dtype(self, dtype: DType | str) -> None:
        ...
    def add_hooks(self, *, before = None, after = None) -> HookHandle:
        """
        before(*inputs) and after(*outputs) run around forward; what they return passes on
                instead, None leaves it. Gives a handle, whose remove() takes them away.
        """
    def adopt(self, name: str, child: Module) -> None:
        """
        Adds a child module
        """
    def apply(self, function):
        """
        function(module) for all modules below, then for this one.
        """
    def bfloat16(self):
        """
        to(weft.bfloat16).
        """
    def buffers(self):
        """
        Every buffer of this module and those below it.
        """
    def children(self):
        """
        The child modules.
        """
    def cpu(self):
        """
        to("cpu").
        """
    def cuda(self, device = 0):
        """
        to("cuda:<device>").
        """
    def declare(self, name, shape, init = None, dtype = ...):
        """
        Declares parameter `name`, without memory until it is sharded or `materialize` is called;
                init(tensor) fills a tensor of any layout with the initial values of the elements it
                holds.
        """
    def double(self):
        """
        to(weft.float64).
        """
    def eval(self) -> Module:
        """
        train(False): `Dropout` passes everything
        """
    def finalize_backward(self, *, async_op: builtins.bool = False) -> GradientReductionHandle | None:
        """
        Completes the reductions of the backwards before. `async_op` gives a handle; gradients cannot be read before its wait()
        """
    def float(self):
        """
        to(weft.float32).
        """
    def get_pending_gradients(self, *, recurse: typing.Any = True) -> None:
        """
        ValueError: grad shows a sum that was not reduced yet, as Partial
        """
    def get_submodule(self, path: str) -> Module:
        """
        The module at a dotted path; ValueError names the first part that does not exist
        """
    def half(self):
        """
        to(weft.float16).
        """
    def load_state_dict(self, state, strict = True):
        """
        Copies the elements of {name: Tensor} into the parameters; see weft.load_state_dict.
                Tensors of PyTorch and arrays of NumPy, whole on each rank, are taken too.
        """
    def materialize(self, device: Device | str = ...) -> None:
        """
        Gives every declared parameter memory and its initial values: equal bits for any sharding. Call it on all ranks alike
        """
    def modules(self):
        """
        This module and all below it, parents first.
        """
    def named_buffers(self):
        """
        (name, tensor) of every buffer of this module and those below it.
        """
    def named_children(self) -> list[tuple[str, Module]]:
        """
        (name, module) of each child
        """
    def named_modules(self) -> list[tuple[str, Module]]:
        """
        (path, module) of this module ('') and all below it, parents first
        """
    def named_parameters(self):
        """
        (name, Parameter) of every parameter once, own ones before the children's.
        """
    def offload_activations(self, tier: builtins.bool | str) -> None:
        """
        Sets where recomputation keeps what it saves for backward, below this module too: "disk:DIR" (files without a name), True (the host), False. The same bits
        """
    def parameters(self):
        """
        Every parameter once, in order of declaration.
        """
    def register_buffer(self, name, tensor, persistent = True):
        """
        Adds a tensor that is not trained, as an attribute: it moves with the module and, if
            `persistent`, is in its state_dict. `fully_shard` and `parallelize` replicate it over the mesh.
            None reserves the name only.
        """
    def register_forward_hook(self, hook) -> HookHandle:
        """
        hook(module, inputs, output) runs after forward, with what forward was given; what it
                returns comes out instead, None leaves the output. Gives a handle with remove().
        """
    def register_forward_pre_hook(self, hook) -> HookHandle:
        """
        hook(module, inputs) runs before forward; what it returns (a tuple, or one tensor) goes
                in instead, None leaves the inputs. Gives a handle with remove().
        """
    def requires_grad_(self, requires_grad = True):
        """
        Freezes or thaws all parameters; of a sharded model between steps, without gradients.
        """
    def reset_iter_state(self) -> None:
        """
        Call it on the outermost module after an exception in forward or backward: ends what is under way, reshards, and clears all gradients
        """
    def reshard(self) -> None:
        """
        Frees the unsharded parameters, also those that the strategy keeps
        """
    def set_all_gather_layout(self, layout: typing.Any) -> None:
        """
        ValueError: gathers write parameters in place
        """
    def set_all_reduce_hook(self, hook: typing.Any, *, stream: typing.Any = None) -> None:
        """
        hook(gradients) gets the reduced gradients of a step as a flat tensor, and may change it in place, before they are added to those of earlier steps. None removes it
        """
    def set_allocate_memory_from_process_group_for_comm(self, enable: typing.Any) -> None:
        """
        ValueError: collectives read and write parameters and gradients in place, without staging
        """
    def set_custom_all_gather(self, comm: typing.Any) -> None:
        """
        comm(output_tensor, input_tensor, group, counts) gathers in place of weft, once for each parameter: flat tensors, and how many elements each rank sends. None restores weft's
        """
    def set_custom_reduce_scatter(self, comm: typing.Any) -> None:
        """
        comm(output_tensor, input_tensor, group, counts) reduces in place of weft, once for each gradient: flat tensors, and how many elements each rank gets. None restores weft's
        """
    def set_force_sum_reduction_for_comms(self, enable: builtins.bool) -> None:
        """
        True holds always; ValueError for False
        """
    def set_gradient_divide_factor(self, factor: float) -> None:
        """
        The module's own gradients are divided by it after their reduction. 1 gives the gradients of the loss over the whole batch
        """
    def set_is_last_backward(self, is_last_backward: builtins.bool) -> None:
        """
        False: the end of a backward leaves reductions under way, and gradients cannot be read until the last backward
        """
    def set_keep_unsharded_storage(self, keep: builtins.bool, *, recurse: builtins.bool = True) -> None:
        """
        True: resharding keeps the memory, at the same address, for the next unshard
        """
    def set_manual_backward_finalization(self, enabled: builtins.bool) -> None:
        """
        Set on the outermost module. True: no backward ends the step, finalize_backward() does
        """
    def set_modules_to_backward_prefetch(self, modules: collections.abc.Iterable) -> None:
        """
        The modules to unshard early at this one's backward; [] for the recorded order
        """
    def set_modules_to_forward_prefetch(self, modules: collections.abc.Iterable) -> None:
        """
        The modules to unshard early at this one's forward; [] for the recorded order
        """
    def set_parameter(self, name: str, parameter: Parameter) -> None:
        """
        Lets own parameter `name` be `parameter`: a tie
        """
    def set_post_optim_event(self, event: Event) -> None:
        """
        The next unshard after an update waits for this Event in place of the current stream
        """
    def set_recompute(self, recompute: builtins.bool = True, kept: collections.abc.Sequence[str] = []) -> None:
        """
        Activation checkpointing: forward saves its inputs only and runs again in backward. `kept` names ops whose results are saved too, such as costly_ops()
        """
    def set_reduce_scatter_divide_factor(self, factor: float) -> None:
        """
        set_gradient_divide_factor
        """
    def set_reduce_scatter_input_fn(self, function: typing.Any) -> None:
        """
        ValueError: gradients are written where they are sent from
        """
    def set_reduce_scatter_max_input_buffers(self, max_input_buffers: typing.Any, *, recurse: builtins.bool = True) -> None:
        """
        ValueError: gradients are written where they are sent from, and predicted_bytes reports the buffers
        """
    def set_reduce_scatter_unused_params(self, reduce_scatter_unused_params: builtins.bool, *, recurse: builtins.bool = True) -> None:
        """
        True holds always; ValueError for False
        """
    def set_requires_all_reduce(self, requires_all_reduce: builtins.bool, *, recurse: builtins.bool = True) -> None:
        """
        False: as in no_sync, the reductions of the last micro-step wait
        """
    def set_requires_gradient_sync(self, requires_gradient_sync: builtins.bool, *, recurse: builtins.bool = True) -> None:
        """
        False: backwards reduce nothing, and add unsharded gradients
        """
    def set_reshard_after_backward(self, reshard_after_backward: builtins.bool, *, recurse: builtins.bool = True) -> None:
        """
        False: parameters stay unsharded after backward, until they change or reshard()
        """
    def set_reshard_after_forward(self, reshard_after_forward: typing.Any, recurse: builtins.bool = True) -> None:
        """
        Replaces the option of fully_shard, also for the outermost module and in evaluation
        """
    def set_separate_reduce_scatter_group(self, enable: typing.Any = True, *, recurse: builtins.bool = True) -> None:
        """
        ValueError: gathers and reductions run on two streams over the communicators of the mesh's axes
        """
    def set_symm_mem_for_comm(self, backend: typing.Any = 'NCCL') -> None:
        """
        ValueError: collectives read and write parameters and gradients in place, without staging
        """
    def set_unshard_in_backward(self, unshard_in_backward: builtins.bool) -> None:
        """
        False: backward does not unshard, and raises where it reads a parameter
        """
    def state_dict(self):
        """
        Every parameter by all its names, as it is at rest, then every persistent buffer:
                detached tensors that alias, also those of tied names. No traffic. Parameters without memory
                get it.
        """
    def synchronize_gradients(self, *, recurse: typing.Any = True) -> None:
        """
        ValueError: the backward after set_requires_gradient_sync(True) reduces what earlier ones kept
        """
    def to(self, device = None, dtype = None):
        """
        The module itself, with its parameters, gradients and buffers moved to `device` and the
                floating ones cast to `dtype`; those of a tensor may be given. ValueError for a device that
                this machine lacks, and for a module that is fully sharded.
        """
    def to_empty(self, *, device = None):
        """
        materialize(device): parameters get memory, and their initial values.
        """
    def train(self, mode: builtins.bool = True) -> Module:
        """
        Sets the mode of this module and all below it
        """
    def unshard(self, async_op: builtins.bool = False) -> UnshardHandle | None:
        """
        Gathers the module's parameters, without those of modules below; the next forward finds them unsharded. `async_op` gives a handle, whose wait() returns when they are there
        """
    def zero_grad(self, set_to_none = True):
        """
        Clears the gradients of all parameters.
        """
    @property
    def _is_free_to_change(self) -> builtins.bool:
        ...
    @property
    def _is_made_in_python(self) -> builtins.bool:
        ...
    @property
    def _is_sharded(self) -> builtins.bool:
        ...
    @property
    def _named_buffers(self) -> list[tuple[str, Tensor, builtins.bool]]:
        ...
    @property
    def _own_buffers(self) -> list[tuple[str, Tensor, builtins.bool]]:
        ...
    @property
    def _own_parameters(self) -> list[tuple[str, Parameter]]:
        ...
    @property
    def training(self) -> builtins.bool:
        ...
class Op:
    """
    An operation, built in or one's own. Call it with tensors, and with `structure` (dims, flags and sizes, which take part in the choice of layouts) and `values` (scalars) as its kernel takes them
    """
    def __call__(self, *args, structure: tuple[int, ...] = (), values: collections.abc.Sequence[float] = []) -> typing.Any:
        """
        The result, or a tuple where there are several. ValueError when operands do not fit the rule
        """
    def __init__(self, name: str, rule: str, forward: collections.abc.Callable, backward: typing.Any = None, *, linear: collections.abc.Sequence[collections.abc.Sequence[int]] = [], dtype: DType | str | None = None, saves_outputs: builtins.bool = False, dtypes: collections.abc.Sequence[DType | str] = [], differentiable: builtins.bool | None = None, samples: collections.abc.Sequence[collections.abc.Sequence[tuple[int, ...]]] = [], positions: collections.abc.Sequence[str] | None = None) -> None:
        """
        A custom op. `rule` is in factor notation ('... m k, ... k n -> ... m n'). forward(call, *operands) computes one device's part: it gets new NumPy arrays (bfloat16 as float32) and returns one array a result, of the shapes that call.result_shapes says. `call` also has structure, values, operand_boxes and result_boxes ((offset, shape) of this part in the whole), operand_wholes, result_wholes (shapes) and counts_here (False where a number added must not count, being added on another rank). backward(call, *gradients) gets the results' gradients as Tensors (None where nothing depends on one) and returns one Tensor or None an operand; `call` has operands, results (with saves_outputs), structure and values. `linear`: sets of operands in which it is jointly linear. `dtype`: of the results; that of operand 0 unless given. `dtypes`: those that operands may have; any unless given. Without backward a gradient that reaches the op raises a ValueError; with differentiable=False it stops there, as it does at results of integers. `samples`: operand shapes of the calls that weft.testing runs. `positions`: the factors along which forward reads positions, all unless given; along others, operands may have cuts of inner factors (Shard.outer)
        """
    def __repr__(self) -> str:
        ...
    @property
    def differentiable(self) -> builtins.bool:
        ...
    @property
    def gradient_order(self) -> str:
        """
        The order of its derivatives: 'any order', or 'none' where no gradient flows
        """
    @property
    def gradient_reason(self) -> str:
        """
        Why it has no gradient, and so no second one; '' where it has
        """
    @property
    def has_definition(self) -> builtins.bool:
        """
        True when it states its meaning in simpler ops: second derivatives are computed from that
        """
    @property
    def linear(self) -> list[list[int]]:
        """
        Sets of operands in which it is jointly linear: Partial passes there
        """
    @property
    def name(self) -> str:
        ...
    @property
    def rule(self) -> str:
        """
        The relation between the dims of operands and results
        """
    @property
    def samples(self) -> list:
        """
        Calls that it is tested with: (shapes, dtypes, structure, values, (low, high) of the elements)
        """
    @property
    def staged(self) -> list[str]:
        """
        Factors over which ranks exchange small results, or parts, when they are cut
        """
    @property
    def structure(self) -> str:
        """
        Names of the numbers of its `structure`, in order; '' for an op that says nothing
        """
class ExpertRows:
    """
    The rows that ranks compute for their experts: one for each choice of each token that is not dropped, sorted by group of ranks, expert and token
    """
    @property
    def choices(self) -> Tensor:
        """
        [rows] int64: which of its choices
        """
    @property
    def counts(self) -> Tensor:
        """
        [groups, experts] int64, equal on all ranks: the rows of each expert
        """
    @property
    def dropped(self) -> int:
        """
        The choices beyond the capacity
        """
    @property
    def tokens(self) -> Tensor:
        """
        [rows] int64: the token of each row
        """
class RouterOptions:
    """
    The rule from a router's logits to choices and weights. `scores`: 'softmax' or 'sigmoid'; `normalize`: weights sum to `scale`; choices come from the best `top_groups` of `groups` groups of experts, by `group_score`: 'best' expert, or the sum of the 'best_two'
    """
    __hash__: typing.ClassVar[None] = None
    group_score: str
    groups: int
    normalize: bool
    scale: float
    scores: str
    top_groups: int
    top_k: int
    def __eq__(self, arg0: RouterOptions) -> builtins.bool:
        ...
    def __init__(self, *, top_k: int = 2, scores: str = 'softmax', normalize: builtins.bool = True, scale: float = 1.0, groups: int = 1, top_groups: int = 1, group_score: str = 'best') -> None:
        ...
class Routing:
    """
    The choices of a router
    """
    @property
    def experts(self) -> Tensor:
        """
        [tokens, k] int64
        """
    @property
    def scores(self) -> Tensor:
        """
        [tokens, experts]
        """
    @property
    def weights(self) -> Tensor:
        """
        [tokens, k]
        """
class GradientHookHandle:
    """
    Removes the hook that was registered
    """
    def remove(self) -> None:
        ...
class Picture:
    """
    The part that each rank holds: str() is the text, `svg` the picture, which notebooks show; save(path) writes it
    """
    def __repr__(self) -> str:
        ...
    def _repr_svg_(self) -> str:
        ...
    def save(self, path):
        """
        Writes the picture to an .svg file.
        """
    @property
    def svg(self) -> str:
        """
        The text of an SVG file
        """
class Linear(Module):
    """
    [..., in] -> [..., out]: x weight^T (+ bias). Parameters: weight [out, in] and bias [out], uniform in +-1 / sqrt(in); with `std`, the weight is normal and the bias 0
    """
    def __init__(self, in_features: int, out_features: int, bias: builtins.bool = True, std: float | None = None, device: Device | str | None = None, dtype: DType | str | None = None) -> None:
        ...
    def forward(self, *args) -> typing.Any:
        """
        Runs a call without the hooks around it
        """
    @property
    def float8(self) -> builtins.bool:
        """
        True when products are computed by float8_linear
        """
    @float8.setter
    def float8(self, arg1: builtins.bool) -> None:
        ...
    @property
    def in_features(self) -> int:
        ...
    @property
    def out_features(self) -> int:
        ...
class Float8Linear(Linear):
    """
    A Linear whose products, and those of its gradients, are computed in 8 bits with dynamic scales: float8_linear
    """
    def __init__(self, in_features: int, out_features: int, bias: builtins.bool = True, std: float | None = None, device: Device | str | None = None, dtype: DType | str | None = None) -> None:
        ...
    def forward(self, *args) -> typing.Any:
        """
        Runs a call without the hooks around it
        """
class Embedding(Module):
    """
    ids [...] -> [..., dim]. Parameter: weight [vocabulary, dim], normal with `std`. Row `padding_idx` begins as zeros and gets no gradient from here. ValueError for a `max_norm`, `scale_grad_by_freq` and `sparse`
    """
    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, max_norm: typing.Any = None, norm_type: float = 2.0, scale_grad_by_freq: builtins.bool = False, sparse: builtins.bool = False, *, std: float = 1.0, device: Device | str | None = None, dtype: DType | str | None = None) -> None:
        ...
    def forward(self, *args) -> typing.Any:
        """
        Runs a call without the hooks around it
        """
    @property
    def embedding_dim(self) -> int:
        ...
    @property
    def num_embeddings(self) -> int:
        ...
    @property
    def padding_idx(self) -> int | None:
        ...
class RMSNorm(Module):
    """
    rms_norm along the last dims, of the sizes normalized_shape. Parameter: weight, ones
    """
    def __init__(self, normalized_shape: int | collections.abc.Sequence[int], eps: float = 1e-05, device: Device | str | None = None, dtype: DType | str | None = None) -> None:
        ...
    def forward(self, *args) -> typing.Any:
        """
        Runs a call without the hooks around it
        """
    @property
    def eps(self) -> float:
        ...
    @property
    def normalized_shape(self) -> tuple[int, ...]:
        ...
class LayerNorm(Module):
    """
    layer_norm along the last dims, of the sizes normalized_shape. Parameters: weight, ones; bias, zeros; neither without elementwise_affine
    """
    def __init__(self, normalized_shape: int | collections.abc.Sequence[int], eps: float = 1e-05, elementwise_affine: builtins.bool = True, bias: builtins.bool = True, device: Device | str | None = None, dtype: DType | str | None = None) -> None:
        ...
    def forward(self, *args) -> typing.Any:
        """
        Runs a call without the hooks around it
        """
    @property
    def eps(self) -> float:
        ...
    @property
    def normalized_shape(self) -> tuple[int, ...]:
        ...
class Dropout(Module):
    """
    `dropout` while training, what it gets otherwise
    """
    def __init__(self, p: float = 0.5) -> None:
        """
        ValueError when p is not in [0, 1]
        """
    def forward(self, *args) -> typing.Any:
        """
        Runs a call without the hooks around it
        """
    @property
    def p(self) -> float:
        ...
class Sequential(Module):
    """
    Children '0', '1', ..., each called with what the one before gave
    """
    def __getitem__(self, arg0: int) -> Module:
        ...
    def __init__(self, *args) -> None:
        ...
    def __len__(self) -> int:
        ...
    def __setitem__(self, index, module):
        """
        Another child in the place of that one.
        """
    def append(self, module: Module) -> None:
        """
        Adds a child at the end
        """
    def forward(self, *args) -> typing.Any:
        """
        Runs a call without the hooks around it
        """
class MultiheadAttention(Module):
    """
    torch.nn.MultiheadAttention, with its parameters' names: (query, key, value) -> (output, weights). The weights are None unless need_weights=True, which is not the default. Inputs are [sequence, batch, dim], or [batch, sequence, dim] with batch_first. A query without keys gives zeros
    """
    def __call__(self, query, key, value, key_padding_mask = None, need_weights = False, attn_mask = None, average_attn_weights = True, is_causal = False):
        """
        (output, weights) as torch.nn.MultiheadAttention; the weights are None unless needed.
        """
    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: builtins.bool = True, kdim: int | None = None, vdim: int | None = None, batch_first: builtins.bool = False) -> None:
        ...
    def _attend(self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None, attn_mask: Tensor | None, is_causal: builtins.bool, weights: builtins.bool, averaged: builtins.bool) -> list[Tensor]:
        """
        Computes a call: returns the output and, with `weights`, the probabilities
        """
    def forward(self, *args) -> typing.Any:
        """
        Runs a call without the hooks around it
        """
    @property
    def batch_first(self) -> builtins.bool:
        ...
    @property
    def embed_dim(self) -> int:
        ...
    @property
    def num_heads(self) -> int:
        ...
class LatentAttentionConfig:
    """
    Sizes of multi-head latent attention, with the names of DeepSeek's config.json; q_lora_rank 0: queries are computed from the input; scale 0: 1 / sqrt(d)
    """
    bias: bool
    dim: int
    dropout: float
    heads: int
    kv_lora_rank: int
    norm_eps: float
    q_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    rope_interleave: bool
    rope_theta: float
    scale: float
    std: float | None
    v_head_dim: int
    def __init__(self, *, dim: int, heads: int, q_lora_rank: int = 0, kv_lora_rank: int, qk_nope_head_dim: int, qk_rope_head_dim: int, v_head_dim: int, rope_theta: float = 10000.0, rope_interleave: builtins.bool = True, norm_eps: float = 1e-06, scale: float = 0.0, std: float | None = None, bias: builtins.bool = False, dropout: float = 0.0) -> None:
        ...
class LatentAttention(Module):
    """
    Causal multi-head latent attention of DeepSeek-V2 and V3: [batch, sequence, dim] -> the same. Children have Hugging Face's names
    """
    def __init__(self, config: LatentAttentionConfig) -> None:
        ...
    def forward(self, *args) -> typing.Any:
        """
        Runs a call without the hooks around it
        """
    @property
    def config(self) -> LatentAttentionConfig:
        ...
class MoEConfig:
    """
    Sizes and numbers of a mixture of experts, as of Mixtral, Qwen-MoE and DeepSeek. `shared_width`: width of the expert that computes all tokens; `f32_logits`: the router computes in f32 where tokens have a smaller dtype; the coefficients multiply the losses that backward adds; `chunks`: parts of the sequences computed one after the other
    """
    balance_bias: bool
    balance_coefficient: float
    capacity_factor: float | None
    chunks: int
    dim: int
    experts: int
    f32_logits: bool
    shared_gate: bool
    shared_name: str
    shared_width: int
    std: float | None
    width: int
    z_coefficient: float
    def __init__(self, *, dim: int, width: int, experts: int, router: RouterOptions | None = None, f32_logits: builtins.bool = False, balance_bias: builtins.bool = False, shared_width: int = 0, shared_gate: builtins.bool = False, shared_name: str = 'shared_experts', balance_coefficient: float = 0.0, z_coefficient: float = 0.0, capacity_factor: float | None = None, std: float | None = None, chunks: int = 1) -> None:
        ...
    @property
    def router(self) -> RouterOptions:
        ...
class Router(Module):
    """
    x [tokens, dim] -> weights, experts [tokens, k], scores and logits [tokens, experts]. Parameter: weight [experts, dim]
    """
    def forward(self, *args) -> typing.Any:
        """
        Runs a call without the hooks around it
        """
class Experts(Module):
    """
    x [tokens, dim], weights and experts [tokens, k] -> [tokens, dim] and counts [groups, experts]. Parameters: gate_proj, up_proj [experts, width, dim] and down_proj [experts, dim, width]
    """
    def forward(self, *args) -> typing.Any:
        """
        Runs a call without the hooks around it
        """
class MoE(Module):
    """
    [..., dim] -> [..., dim]: experts chosen by token. Children: gate, experts, and the shared expert
    """
    def __init__(self, config: MoEConfig) -> None:
        ...
    def forward(self, *args) -> typing.Any:
        """
        Runs a call without the hooks around it
        """
    def update_balance(self, rate: float = 0.001) -> None:
        """
        Moves the bias towards an even load, and forgets the load; after the optimizer's step
        """
    @property
    def balance_loss(self) -> Tensor | None:
        """
        That of the last call, without its coefficient
        """
    @property
    def config(self) -> MoEConfig:
        ...
    @property
    def dropped(self) -> int:
        """
        Choices dropped in the same calls
        """
    @property
    def load(self) -> Tensor | None:
        """
        [experts]: rows that each expert computed since update_balance, on all ranks
        """
    @property
    def z_loss(self) -> Tensor | None:
        """
        That of the last call, without its coefficient
        """
class TransformerConfig:
    """
    Sizes and choices of a TransformerModel; the defaults are those of a Llama
    """
    __hash__: typing.ClassVar[None] = None
    activation: str
    attention_dropout: float
    attention_scale: float
    attention_softcap: float
    balance_coefficient: float
    balance_loss: bool
    causal: bool
    dim: int
    embedding_dropout: float
    embedding_norm: bool
    embedding_scale: float
    expert_chunks: int
    expert_ffn: int
    expert_groups: int
    experts: int
    experts_per_token: int
    f32_router: bool
    family: str
    ffn: int
    final_norm: bool
    first_norm: bool
    gated: bool
    head: str
    head_activation: str
    head_bias: bool
    head_dim: int
    heads: int
    kv_heads: int
    kv_lora_rank: int
    layers: int
    learned_positions: bool
    local_rope_theta: float
    logit_divisor: float
    logit_softcap: float
    max_sequence: int
    mlp_bias: bool
    nope_head_dim: int
    norm: str
    norm_bias: bool
    norm_eps: float
    norm_place: str
    normalized_weights: bool
    output_bias: bool
    padding: int | None
    parallel_residual: bool
    q_lora_rank: int
    qkv_bias: bool
    query_norm: str
    residual_dropout: float
    residual_scale: float
    rope_interleave: bool
    rope_theta: float
    rotary_fraction: float
    routed_scale: float
    shared_ffn: int
    shared_gate: bool
    sigmoid_router: bool
    sinks: bool
    std: float
    tied: bool
    token_types: int
    top_groups: int
    transform_bias: bool
    value_head_dim: int
    vocabulary: int
    window: int
    def __eq__(self, arg0: TransformerConfig) -> builtins.bool:
        ...
    def __init__(self, *, dim: int, layers: int, heads: int, kv_heads: int, ffn: int, vocabulary: int, head_dim: int = 0, max_sequence: int = 2048, rope_theta: float = 10000.0, norm_eps: float = 1e-05, tied: builtins.bool = False, std: float = 0.02) -> None:
        """
        head_dim 0 means dim / heads
        """
    @property
    def dense(self) -> list[builtins.bool]:
        ...
    @dense.setter
    def dense(self, arg1: collections.abc.Sequence[builtins.bool]) -> None:
        ...
    @property
    def unrotated(self) -> list[builtins.bool]:
        ...
    @unrotated.setter
    def unrotated(self, arg1: collections.abc.Sequence[builtins.bool]) -> None:
        ...
    @property
    def windowed(self) -> list[builtins.bool]:
        ...
    @windowed.setter
    def windowed(self, arg1: collections.abc.Sequence[builtins.bool]) -> None:
        ...
class TransformerModel(Module):
    """
    A transformer as its config states, of any family; parameters are named as in Hugging Face's Llama. {ids [batch, sequence]} -> logits [batch, sequence, vocabulary]; a decoder also takes segments, integers (alike) that number the documents of packed rows; an encoder also takes a mask and token types, and without a head gives hidden states [batch, sequence, dim] and, with a pooler, the pooled first token [batch, dim]
    """
    @typing.overload
    def __init__(self, config: TransformerConfig) -> None:
        ...
    @typing.overload
    def __init__(self, source: str) -> None:
        ...
    def blocks(self: Module) -> list[Module]:
        """
        The decoder layers, first to last
        """
    def forward(self, *args) -> typing.Any:
        """
        Runs a call without the hooks around it
        """
    def loss(self, ids: Tensor, targets: Tensor, segments: Tensor | None = None, *, reduction: str = 'mean', divisor: float = 0.0) -> Tensor:
        """
        Mean cross entropy of the logits of ids [batch, sequence] against targets (alike); those that are -100 do not count. `segments`, integers (alike), number the documents that rows are packed with: tokens attend to their own document, whose positions start at 0. `reduction` is 'mean', 'sum' (with the balance loss times the number of targets) or 'none' (the tokens' losses); `divisor` divides the sum, 0 does not
        """
    def units(self: Module) -> list[list[Module]]:
        """
        The lists of modules to pass to fully_shard, before the whole model: each block, the token embedding, and the final norm with the head; of a tied model the blocks only
        """
    @property
    def config(self) -> TransformerConfig:
        ...
class Optimizer:
    """
    Changes parameters by their gradients. It holds their slots, so they may be sharded, gathered or loaded meanwhile. A class derived from it defines update(value, gradient, state, step, options), which changes `value` and the tensors of `state`, zeros at first, in place. Each is the flat part of one or several parameters that this rank holds; `step` counts from 1, and `options` is a dict of the numbers of their group
    """
    _note_names: typing.ClassVar[list] = ['initial_lr', 'max_lr', 'min_lr', 'base_momentum', 'max_momentum']
    @staticmethod
    def _take_state(arg0: collections.abc.Sequence[tuple[Tensor, Tensor]]) -> None:
        ...
    def __deepcopy__(self, memo):
        """
        A copy with its own state, which updates copies of the parameters: those of `memo`, as in
            deepcopy((model, optimizer)), or new ones.
        """
    def __init__(self, parameters: typing.Any, options: collections.abc.Mapping[str, float], *, moments: collections.abc.Sequence[str] = []) -> None:
        """
        parameters: as AdamW takes them. options: numbers by name, with an "lr"; groups may have others of these names. moments: the names of the tensors in `state`
        """
    def __reduce_ex__(self, arg0: typing.Any) -> typing.Any:
        ...
    def __repr__(self):
        """
        Prints like PyTorch's: the options of each group, and its number of parameters.
        """
    def _copy_for(self, parameters: collections.abc.Sequence[Parameter]) -> Optimizer:
        ...
    def _group_numbers(self, arg0: int) -> dict:
        ...
    def _group_parameters(self, arg0: int) -> list:
        ...
    def _set(self, arg0: int, arg1: str, arg2: float) -> None:
        ...
    def _set_steps(self, arg0: int, arg1: int) -> None:
        ...
    def add_param_group(self, param_group: dict) -> None:
        """
        Adds a group, a dict with "params" and the options that differ from those that the optimizer was made with; between steps too
        """
    def load_state_dict(self, state_dict):
        """
        Takes what `state_dict()` returned, or that of the same optimizer of PyTorch: whole tensors,
            each cut as the parameter is. Parameters are matched by the order of the groups, or by their
            names if the dict has names.
        """
    def state(self, parameter: int) -> list[Tensor]:
        """
        The state of parameter number `parameter`, in its layout: a tensor for each of `moments`. Change them in place only
        """
    def state_dict(self):
        """
        {"state": {number: {"step": ..., moment: tensor}}, "param_groups": [...]}, as PyTorch's.
        
            Parameters are numbered in the order of the groups, as are those of `names`.
            `weft.state_dict(optimizer)` has names instead, and is what checkpoints contain.
            
        """
    def step(self, gradient_scale: Tensor | None = None) -> None:
        """
        One update by the gradients times the one element of gradient_scale (clip_scale gives one). Parameters without a gradient stay; ValueError when none has one
        """
    def steps(self, parameter: int) -> int:
        """
        The number of updates of parameter number `parameter`
        """
    def zero_grad(self, set_to_none: builtins.bool = True) -> None:
        """
        Clears the gradients of its parameters
        """
    @property
    def _group_count(self) -> int:
        ...
    @property
    def _parameters(self) -> list[Parameter]:
        ...
    @property
    def lr(self) -> float:
        """
        The learning rate of the first group; setting it sets that of all
        """
    @lr.setter
    def lr(self, arg1: float) -> None:
        ...
    @property
    def moments(self) -> list[str]:
        """
        Names of the state of each
        """
    @property
    def names(self) -> list[str]:
        """
        Names of the trainable parameters it was given
        """
    @property
    def param_groups(self):
        """
        The groups of parameters, as PyTorch's: mappings whose numbers can be set.
        """
class AdamW(Optimizer):
    """
    Adam with decoupled weight decay (Loshchilov and Hutter, 2019)
    """
    def __init__(self, parameters: typing.Any, lr: float = 0.001, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-08, weight_decay: float = 0.01, *, decays: typing.Any = None, moments: DType | str = ..., offload: builtins.bool | str = False) -> None:
        """
        parameters: a module, its named_parameters() or parameters(), or a list of groups, dicts with "params" and the options that differ from those given here. decays(name, parameter) returns whether weight decay applies (to all unless given). moments: the dtype of m and v. offload: True keeps them in pinned memory of the host, "disk:DIR" in files without a name in DIR
        """
    def add_param_group(self, param_group: dict) -> None:
        """
        Adds a group, a dict with "params" and the options that differ from those that the optimizer was made with; between steps too
        """
class Adam(Optimizer):
    """
    Adam (Kingma and Ba, 2015), whose weight decay is part of the gradient
    """
    def __init__(self, parameters: typing.Any, lr: float = 0.001, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-08, weight_decay: float = 0.0, *, decays: typing.Any = None, moments: DType | str = ..., offload: builtins.bool | str = False) -> None:
        """
        The arguments are those of AdamW
        """
    def add_param_group(self, param_group: dict) -> None:
        """
        Adds a group, a dict with "params" and the options that differ from those that the optimizer was made with; between steps too
        """
class AdamW8bit(Optimizer):
    """
    AdamW whose moments have 8 bits an element and a scale for 128 elements of a row; their bits do not depend on the layout
    """
    def __init__(self, parameters: typing.Any, lr: float = 0.001, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-08, weight_decay: float = 0.01, *, decays: typing.Any = None, least_elements: float = 4096.0) -> None:
        """
        The arguments are those of AdamW. least_elements: smaller parameters, and vectors, have moments of float32
        """
    def add_param_group(self, param_group: dict) -> None:
        """
        Adds a group, a dict with "params" and the options that differ from those that the optimizer was made with; between steps too
        """
class Lamb(Optimizer):
    """
    Layer-wise adapted Adam (You et al., 2020)
    """
    def __init__(self, parameters: typing.Any, lr: float = 0.001, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-06, weight_decay: float = 0.01, *, decays: typing.Any = None, offload: builtins.bool | str = False) -> None:
        ...
    def add_param_group(self, param_group: dict) -> None:
        """
        Adds a group, a dict with "params" and the options that differ from those that the optimizer was made with; between steps too
        """
class Lion(Optimizer):
    """
    Evolved sign momentum (Chen et al., 2023): steps by signs, one moment
    """
    def __init__(self, parameters: typing.Any, lr: float = 0.0001, betas: tuple[float, float] = (0.9, 0.99), weight_decay: float = 0.0, *, decays: typing.Any = None, moments: DType | str = ..., offload: builtins.bool | str = False) -> None:
        """
        The arguments are those of AdamW; rates are 3 to 10 times smaller
        """
    def add_param_group(self, param_group: dict) -> None:
        """
        Adds a group, a dict with "params" and the options that differ from those that the optimizer was made with; between steps too
        """
class SGD(Optimizer):
    """
    Stochastic gradient descent, with momentum
    """
    def __init__(self, parameters: typing.Any, lr: float = 0.01, momentum: float = 0.0, weight_decay: float = 0.0, nesterov: builtins.bool = False, *, decays: typing.Any = None, offload: builtins.bool | str = False) -> None:
        ...
    def add_param_group(self, param_group: dict) -> None:
        """
        Adds a group, a dict with "params" and the options that differ from those that the optimizer was made with; between steps too
        """
class Muon(Optimizer):
    """
    Momentum orthogonalized by a Newton-Schulz iteration (Jordan et al., 2024), as torch.optim.Muon; AdamW for what is no matrix inside the model. Each matrix is iterated by one rank of its mesh
    """
    def __init__(self, parameters: typing.Any, lr: float = 0.001, weight_decay: float = 0.1, momentum: float = 0.95, nesterov: builtins.bool = True, ns_coefficients: typing.Annotated[collections.abc.Sequence[float], "FixedSize(3)"] = [3.4445, -4.775, 2.0315], eps: float = 1e-07, ns_steps: float = 5.0, adjust_lr_fn: str | None = None, *, ns_dtype: DType | str = ..., is_matrix: typing.Any = None, betas: tuple[float, float] = (0.9, 0.95), adam_eps: float = 1e-08, decays: typing.Any = None) -> None:
        """
        parameters and decays as in AdamW. adjust_lr_fn: 'original', 'match_rms_adamw', with which rates of AdamW fit, or 'spectral_unclamped'. ns_dtype: of the iteration and of what travels for it. is_matrix(name, parameter): False for those of 2 dims that AdamW updates with betas and adam_eps (embeddings and heads, by their names, unless given)
        """
    def add_param_group(self, param_group: dict) -> None:
        """
        Adds a group, a dict with "params" and the options that differ from those that the optimizer was made with; between steps too
        """
class Ema:
    """
    Averages of parameters over the steps of a run: average = decay * average + (1 - decay) * parameter; the first update copies. In float32, laid out as the parameters
    """
    decay: float
    def __init__(self, parameters: typing.Any, decay: float = 0.999) -> None:
        """
        parameters: a module, its named_parameters() or parameters()
        """
    def applied(self) -> _AppliedEma:
        """
        `with ema.applied():` the parameters are their averages inside
        """
    def update(self) -> None:
        """
        Takes the parameters as they are now, after an optimizer's step
        """
    @property
    def averages(self) -> list[Tensor]:
        """
        Averages in the order of `names`
        """
    @property
    def names(self) -> list[str]:
        """
        Names of the parameters
        """
    @property
    def updates(self) -> int:
        """
        Number of updates
        """
class _AppliedEma:
    def __enter__(self) -> None:
        ...
    def __exit__(self, *args) -> None:
        ...
class LossScaler:
    """
    Scales a loss so that gradients of float16 neither vanish nor overflow; GradScaler has PyTorch's methods
    """
    def __init__(self, init_scale: float = 65536.0, growth_factor: float = 2.0, backoff_factor: float = 0.5, growth_interval: int = 2000, enabled: builtins.bool = True) -> None:
        ...
    def _set(self, arg0: float, arg1: int) -> None:
        ...
    def get_scale(self) -> float:
        ...
    def scale(self, loss: Tensor) -> Tensor:
        ...
    def step(self, optimizer: Optimizer, norm: Tensor, clip: Tensor | None = None) -> builtins.bool:
        """
        The optimizer's step with the gradients divided by the scale, and times clip, unless norm, that of the scaled gradients, is infinite or NaN; changes the scale. Returns whether there was a step
        """
    def unscaled(self, norm: Tensor) -> Tensor:
        ...
    def update(self, is_finite: builtins.bool) -> None:
        ...
    @property
    def _options(self) -> tuple[float, float, int, builtins.bool]:
        ...
    @property
    def growth_tracker(self) -> int:
        ...
class NonFinitePolicy:
    """
    Skips and counts steps whose gradients are not finite, and stops after several in a row
    """
    def __init__(self, stop_after: int = 10) -> None:
        """
        0: never
        """
    def admits(self, norm: float) -> builtins.bool:
        """
        Returns whether to make a step with this norm of the gradients; RuntimeError at the last of stop_after in a row that are not finite
        """
    @property
    def in_a_row(self) -> int:
        ...
    @property
    def skipped(self) -> int:
        ...
class Schedule:
    """
    A learning rate by step, counted from 0
    """
    def __call__(self, step: int) -> float:
        ...
class WarmupCosine:
    """
    A learning rate by step, counted from 0: it grows evenly to `peak`, reached after `warmup` steps, and falls along half a cosine to `floor`, reached at step `total` and kept
    """
    floor: float
    peak: float
    total: int
    warmup: int
    def __call__(self, step: int) -> float:
        """
        ValueError for a negative step or a warm-up longer than the whole
        """
    def __init__(self, peak: float, warmup: int, total: int, floor: float = 0.0) -> None:
        ...
class Strategy:
    """
    Layouts of parameters, gradients between micro-steps and the optimizer's state along each axis of a mesh: a row (parameter, gradient, state) an axis, or one for all axes. By name: full_shard, zero2, zero1, ddp, hsdp
    """
    @staticmethod
    def named(name: str) -> Strategy:
        """
        ValueError lists the names
        """
    def __init__(self, name: str, rows: collections.abc.Sequence[tuple[Shard | Replicate | Partial, Shard | Replicate | Partial, Shard | Replicate | Partial]]) -> None:
        ...
    @property
    def name(self) -> str:
        ...
    @property
    def rows(self) -> list[tuple[Shard | Replicate | Partial, Shard | Replicate | Partial, Shard | Replicate | Partial]]:
        ...
class MixedPrecision:
    """
    Dtypes of floating parameters by what they are for: `storage` of what the optimizer changes, `compute`, `gather` and `reduce` on the wire, `accumulate` of reduced gradients, `buffers` of ignored parameters, `inputs` and `outputs` of the module. None leaves each as it is
    """
    accumulate: DType | str | None
    buffers: DType | str | None
    compute: DType | str | None
    gather: DType | str | None
    inputs: DType | str | None
    outputs: DType | str | None
    reduce: DType | str | None
    storage: DType | str | None
    def __init__(self, compute: DType | str | None = None, reduce: DType | str | None = None, *, gather: DType | str | None = None, storage: DType | str | None = None, accumulate: DType | str | None = None, buffers: DType | str | None = None, inputs: DType | str | None = None, outputs: DType | str | None = None) -> None:
        ...
class ShardPlacementResult:
    """
    The sharding of a parameter: a Shard, and a mesh and its strategy if they are not those of the module
    """
    def __init__(self, placement: Shard | Replicate | Partial | None = None, mesh: DeviceMesh | None = None, strategy: typing.Any = None) -> None:
        ...
class DataParallelMeshDims:
    """
    The axes of a mesh over which fully_shard shards parameters, and those over which it replicates them
    """
    def __init__(self, shard: typing.Any = None, replicate: typing.Any = None) -> None:
        ...
    @property
    def replicate(self) -> list[str]:
        ...
    @property
    def shard(self) -> list[str]:
        ...
class _NoSync:
    def __init__(self, model: Module, holds: builtins.bool) -> None:
        ...
class _ReplacedParameters:
    def __init__(self, module: Module, values: collections.abc.Mapping[str, Tensor]) -> None:
        ...
    def restore(self) -> None:
        ...
class _WatchScope:
    pass
class _DetectAnomaly(_WatchScope):
    def __init__(self, model: Module) -> None:
        ...
class _ShadowScope(_WatchScope):
    def __init__(self, model: Module, every: int, result: float, gradient: float) -> None:
        ...
class MemoryPlan:
    """
    The fastest choice whose predicted peak fits a budget
    """
    def __str__(self) -> str:
        ...
    def apply(self, model: typing.Any, blocks: collections.abc.Iterable, mesh: DeviceMesh, *, strategy: str = 'full_shard', mp_policy: MixedPrecision | None = None) -> typing.Any:
        """
        Sets what the blocks save, and shards them and the model. Gives the model
        """
    @property
    def allowed(self) -> int:
        """
        The bytes of the budget
        """
    @property
    def blocks(self) -> list[str]:
        """
        Tensors that each block saves: full (its inputs), attention, op (products too) or none (everything), with +offload behind it where that rests on disk
        """
    @property
    def fine_units(self) -> builtins.bool:
        """
        True when attention and feed-forward of a block are sharded apart
        """
    @property
    def peak(self) -> int:
        """
        The most bytes that a step takes
        """
    @property
    def seconds(self) -> float:
        """
        The predicted time of a step
        """
    @property
    def state(self) -> typing.Any:
        """
        Memory tier of the optimizer's state, as AdamW's `offload` takes it
        """
class UnshardHandle:
    """
    An unshard that was started
    """
    def wait(self) -> None:
        """
        Returns when the parameters are there
        """
class GradientReductionHandle:
    """
    The reductions that finalize_backward started
    """
    def wait(self) -> None:
        """
        Ends the step: gradients can be read. RuntimeError after reset_iter_state
        """
class Event:
    """
    A point in a stream's work
    """
    def __init__(self) -> None:
        ...
    def query(self) -> builtins.bool:
        """
        True when it is reached
        """
    def record(self, device: Device | str = ...) -> None:
        """
        Marks what the current stream of `device` has been given so far
        """
    def synchronize(self) -> None:
        """
        Returns when the point is reached
        """
class FSDPModule:
    """
    A module that was given to `fully_shard`
    """
    def finalize_backward(self: Module, *, async_op: builtins.bool = False) -> GradientReductionHandle | None:
        """
        Completes the reductions of the backwards before. `async_op` gives a handle; gradients cannot be read before its wait()
        """
    def get_pending_gradients(self: Module, *, recurse: typing.Any = True) -> None:
        """
        ValueError: grad shows a sum that was not reduced yet, as Partial
        """
    def reset_iter_state(self: Module) -> None:
        """
        Call it on the outermost module after an exception in forward or backward: ends what is under way, reshards, and clears all gradients
        """
    def reshard(self: Module) -> None:
        """
        Frees the unsharded parameters, also those that the strategy keeps
        """
    def set_all_gather_layout(self: Module, layout: typing.Any) -> None:
        """
        ValueError: gathers write parameters in place
        """
    def set_all_reduce_hook(self: Module, hook: typing.Any, *, stream: typing.Any = None) -> None:
        """
        hook(gradients) gets the reduced gradients of a step as a flat tensor, and may change it in place, before they are added to those of earlier steps. None removes it
        """
    def set_allocate_memory_from_process_group_for_comm(self: Module, enable: typing.Any) -> None:
        """
        ValueError: collectives read and write parameters and gradients in place, without staging
        """
    def set_custom_all_gather(self: Module, comm: typing.Any) -> None:
        """
        comm(output_tensor, input_tensor, group, counts) gathers in place of weft, once for each parameter: flat tensors, and how many elements each rank sends. None restores weft's
        """
    def set_custom_reduce_scatter(self: Module, comm: typing.Any) -> None:
        """
        comm(output_tensor, input_tensor, group, counts) reduces in place of weft, once for each gradient: flat tensors, and how many elements each rank gets. None restores weft's
        """
    def set_force_sum_reduction_for_comms(self: Module, enable: builtins.bool) -> None:
        """
        True holds always; ValueError for False
        """
    def set_gradient_divide_factor(self: Module, factor: float) -> None:
        """
        The module's own gradients are divided by it after their reduction. 1 gives the gradients of the loss over the whole batch
        """
    def set_is_last_backward(self: Module, is_last_backward: builtins.bool) -> None:
        """
        False: the end of a backward leaves reductions under way, and gradients cannot be read until the last backward
        """
    def set_keep_unsharded_storage(self: Module, keep: builtins.bool, *, recurse: builtins.bool = True) -> None:
        """
        True: resharding keeps the memory, at the same address, for the next unshard
        """
    def set_manual_backward_finalization(self: Module, enabled: builtins.bool) -> None:
        """
        Set on the outermost module. True: no backward ends the step, finalize_backward() does
        """
    def set_modules_to_backward_prefetch(self: Module, modules: collections.abc.Iterable) -> None:
        """
        The modules to unshard early at this one's backward; [] for the recorded order
        """
    def set_modules_to_forward_prefetch(self: Module, modules: collections.abc.Iterable) -> None:
        """
        The modules to unshard early at this one's forward; [] for the recorded order
        """
    def set_post_optim_event(self: Module, event: Event) -> None:
        """
        The next unshard after an update waits for this Event in place of the current stream
        """
    def set_reduce_scatter_divide_factor(self: Module, factor: float) -> None:
        """
        set_gradient_divide_factor
        """
    def set_reduce_scatter_input_fn(self: Module, function: typing.Any) -> None:
        """
        ValueError: gradients are written where they are sent from
        """
    def set_reduce_scatter_max_input_buffers(self: Module, max_input_buffers: typing.Any, *, recurse: builtins.bool = True) -> None:
        """
        ValueError: gradients are written where they are sent from, and predicted_bytes reports the buffers
        """
    def set_reduce_scatter_unused_params(self: Module, reduce_scatter_unused_params: builtins.bool, *, recurse: builtins.bool = True) -> None:
        """
        True holds always; ValueError for False
        """
    def set_requires_all_reduce(self: Module, requires_all_reduce: builtins.bool, *, recurse: builtins.bool = True) -> None:
        """
        False: as in no_sync, the reductions of the last micro-step wait
        """
    def set_requires_gradient_sync(self: Module, requires_gradient_sync: builtins.bool, *, recurse: builtins.bool = True) -> None:
        """
        False: backwards reduce nothing, and add unsharded gradients
        """
    def set_reshard_after_backward(self: Module, reshard_after_backward: builtins.bool, *, recurse: builtins.bool = True) -> None:
        """
        False: parameters stay unsharded after backward, until they change or reshard()
        """
    def set_reshard_after_forward(self: Module, reshard_after_forward: typing.Any, recurse: builtins.bool = True) -> None:
        """
        Replaces the option of fully_shard, also for the outermost module and in evaluation
        """
    def set_separate_reduce_scatter_group(self: Module, enable: typing.Any = True, *, recurse: builtins.bool = True) -> None:
        """
        ValueError: gathers and reductions run on two streams over the communicators of the mesh's axes
        """
    def set_symm_mem_for_comm(self: Module, backend: typing.Any = 'NCCL') -> None:
        """
        ValueError: collectives read and write parameters and gradients in place, without staging
        """
    def set_unshard_in_backward(self: Module, unshard_in_backward: builtins.bool) -> None:
        """
        False: backward does not unshard, and raises where it reads a parameter
        """
    def synchronize_gradients(self: Module, *, recurse: typing.Any = True) -> None:
        """
        ValueError: the backward after set_requires_gradient_sync(True) reduces what earlier ones kept
        """
    def unshard(self: Module, async_op: builtins.bool = False) -> UnshardHandle | None:
        """
        Gathers the module's parameters, without those of modules below; the next forward finds them unsharded. `async_op` gives a handle, whose wait() returns when they are there
        """
class Colwise:
    """
    A Linear cut along its outputs, an Embedding along its width: the output is cut along its last dim, or brought to `output_layouts`. `heads`: so many heads stay whole. `parts`: the product begins with parts of a gathered input while others arrive
    """
    heads: int
    output_layouts: Shard | Replicate | Partial | None
    parts: int
    def __init__(self, *, output_layouts: Shard | Replicate | Partial | None = None, heads: int = 0, parts: int = 1) -> None:
        ...
class Rowwise:
    """
    A Linear cut along its inputs, an Embedding along its vocabulary: addends of the output are added up to `output_layouts`. `parts`: one part of the product is summed and scattered while the next one is computed
    """
    heads: int
    output_layouts: Shard | Replicate | Partial | None
    parts: int
    def __init__(self, *, output_layouts: Shard | Replicate | Partial | None = ..., heads: int = 0, parts: int = 1) -> None:
        ...
class SequenceParallel:
    """
    Whole parameters, and an input cut along dim `sequence_dim`
    """
    sequence_dim: int
    def __init__(self, *, sequence_dim: int = 1) -> None:
        ...
class ExpertParallel:
    """
    Separate experts for each rank: parameters stacked by expert are cut along dim 0, and tokens travel to their experts
    """
    def __init__(self) -> None:
        ...
class PrepareInput:
    """
    Inputs by number are brought to these layouts
    """
    def __init__(self, input_layouts: collections.abc.Sequence[Shard | Replicate | Partial | None]) -> None:
        ...
    @property
    def input_layouts(self) -> list[Shard | Replicate | Partial | None]:
        ...
    @input_layouts.setter
    def input_layouts(self, arg1: collections.abc.Sequence[Shard | Replicate | Partial | None]) -> None:
        ...
class PrepareOutput:
    """
    Outputs by number are brought to these layouts
    """
    def __init__(self, output_layouts: collections.abc.Sequence[Shard | Replicate | Partial | None]) -> None:
        ...
    @property
    def output_layouts(self) -> list[Shard | Replicate | Partial | None]:
        ...
    @output_layouts.setter
    def output_layouts(self, arg1: collections.abc.Sequence[Shard | Replicate | Partial | None]) -> None:
        ...
class Layouts:
    """
    Own parameters by name, inputs and outputs by number: a style for modules of one's own
    """
    def __init__(self, *, parameters: collections.abc.Mapping[str, Shard | Replicate | Partial] = {}, inputs: collections.abc.Sequence[Shard | Replicate | Partial | None] = [], outputs: collections.abc.Sequence[Shard | Replicate | Partial | None] = []) -> None:
        ...
    @property
    def inputs(self) -> list[Shard | Replicate | Partial | None]:
        ...
    @inputs.setter
    def inputs(self, arg1: collections.abc.Sequence[Shard | Replicate | Partial | None]) -> None:
        ...
    @property
    def outputs(self) -> list[Shard | Replicate | Partial | None]:
        ...
    @outputs.setter
    def outputs(self, arg1: collections.abc.Sequence[Shard | Replicate | Partial | None]) -> None:
        ...
class StateDict:
    """
    The state of an object, by name: `tensors`, which share their elements with it, each in its layout, and whole `numbers`, equal on all ranks
    """
    def __init__(self, tensors: collections.abc.Mapping[str, Tensor] = {}, numbers: collections.abc.Mapping[str, int] = {}) -> None:
        ...
    def __repr__(self) -> str:
        ...
    @property
    def numbers(self) -> dict[str, int]:
        ...
    @numbers.setter
    def numbers(self, arg0: collections.abc.Mapping[str, int]) -> None:
        ...
    @property
    def tensors(self) -> dict[str, Tensor]:
        ...
class SkippedKeys:
    """
    Keys that were not loaded
    """
    def __iter__(self) -> collections.abc.Iterator:
        ...
    def __repr__(self) -> str:
        ...
    @property
    def missing(self) -> list[str]:
        """
        The receiver has them, the dict does not
        """
    @property
    def missing_keys(self) -> list[str]:
        """
        Equal to `missing`
        """
    @property
    def unexpected(self) -> list[str]:
        """
        The dict has them, the receiver does not
        """
    @property
    def unexpected_keys(self) -> list[str]:
        """
        Equal to `unexpected`
        """
class TrainingState:
    """
    State saved and loaded together, part by part: models, optimizers, tensors, and numbers. Keys are '<part>/<key>'
    """
    def __init__(self) -> None:
        ...
    def __repr__(self) -> str:
        ...
    @typing.overload
    def add(self, name: str, part: Module) -> None:
        """
        ValueError when there is a part of that name, or it has a slash
        """
    @typing.overload
    def add(self, name: str, part: Optimizer) -> None:
        ...
    @typing.overload
    def add(self, name: str, part: Ema) -> None:
        ...
    @typing.overload
    def add(self, name: str, part: LossScaler) -> None:
        ...
    @typing.overload
    def add(self, name: str, part: NonFinitePolicy) -> None:
        ...
    @typing.overload
    def add(self, name: str, part: Tensor) -> None:
        ...
    @typing.overload
    def add(self, name: str, part: typing.Any) -> None:
        """
        Also a GradScaler, a scheduler of lr_scheduler, or any object with state_dict() and load_state_dict() of numbers, texts, lists and dicts, equal on all ranks
        """
    def add_adapters(self, name: str, part: Module) -> None:
        """
        Adds only the adapters of a module; ValueError at a load when rank or alpha differ
        """
    def add_numbers(self, name: str, give: collections.abc.Callable, take: collections.abc.Callable, *, takes_any: builtins.bool = False) -> None:
        """
        Whole numbers by name, equal on all ranks: give() returns them as a dict, take(dict) gets them back after a load; with takes_any whatever their names are in the checkpoint
        """
    def add_random(self, name: str = 'random') -> None:
        """
        The state of this rank's random numbers
        """
    def state_dict(self) -> StateDict:
        ...
class CheckpointSaver:
    """
    Saves states of a run to '<directory>/step-<step>-<generation>/', a file a rank. A save makes no collective and overwrites nothing
    """
    def __init__(self, world: Communicator, directory: str, *, keep: int = 0, continues: builtins.bool = False, resumed_step: int = -1, async_bytes: int = -1, refuse_non_finite: builtins.bool = False, lease_seconds: float = 60.0) -> None:
        """
        Collective over all ranks that hold the state. keep: complete checkpoints of this run to keep next to the newest, 0 for all. continues: those that exist are this run's too; of those after resumed_step, which it passed over, none counts towards keep (-1: the step before the first that is saved). refuse_non_finite: a save raises RuntimeError, naming the tensor, when an element of this rank's part is NaN or infinite; without, it is saved and marked. lease_seconds: how long another job waits for a sign of life of this saver before it takes the directory over. A problem that does not make a save fail is a warning
        """
    @typing.overload
    def save(self, step: int, state: TrainingState) -> str:
        """
        Writes this rank's part; call it on all ranks. Gives the checkpoint's path when this rank's file is on the disk, where it survives a crash. The files of other ranks may be missing still, and readers pass over the checkpoint until all are there: wait_all
        """
    @typing.overload
    def save(self, step: int, state: StateDict) -> str:
        ...
    @typing.overload
    def save_async(self, step: int, state: TrainingState) -> str:
        """
        Returns as soon as the elements are copied, and writes them meanwhile; what goes wrong is raised by the next call
        """
    @typing.overload
    def save_async(self, step: int, state: StateDict) -> str:
        ...
    def wait(self) -> None:
        """
        Waits until nothing is under way
        """
    def wait_all(self, timeout: float = 600.0) -> str:
        """
        Waits until this rank's save is done and the files of all ranks of that step are there, by looking into the directory: no collective, so that any of the ranks may call it. Returns the checkpoint's path, which is complete. timeout: seconds, after which RuntimeError names the missing files
        """
    @property
    def generation(self) -> str:
        ...
    @property
    def is_saving(self) -> builtins.bool:
        ...
class Tokenizer:
    """
    Turns text into token ids and back, as a model's tokenizer.json or tokenizer.model describes it; ids and texts equal those of the packages tokenizers and sentencepiece
    """
    @staticmethod
    def chat_templates() -> list[str]:
        """
        The names of all chat templates
        """
    @staticmethod
    def from_directory(path: str) -> Tokenizer:
        """
        Reads a model's directory: tokenizer.json or tokenizer.model, and the files next to it. ValueError names the file and what is wrong
        """
    @staticmethod
    def from_file(path: str) -> Tokenizer:
        """
        Reads a tokenizer.json or a model of SentencePiece
        """
    def __init__(self, *args, **kwargs) -> None:
        """
        TypeError: see from_directory and from_file
        """
    def __len__(self) -> int:
        ...
    def apply_chat_template(self, conversation: typing.Any, tools: typing.Any = None, documents: typing.Any = None, chat_template: str | None = None, add_generation_prompt: builtins.bool = False, tokenize: builtins.bool = True, **kwargs) -> typing.Any:
        """
        Returns, as transformers, the ids of a conversation, a list of dicts of any fields, in the form of the chat template, or its text without `tokenize`. chat_template: a name or Jinja text. Further keywords are variables of the template
        """
    def chat(self, messages: collections.abc.Sequence[typing.Any], *, generation_prompt: builtins.bool = True, date: str = '', thinking: builtins.bool = True) -> str:
        """
        A conversation as the text that the model was trained on. messages: dicts with role and content, or pairs. Encode it with add_special=False
        """
    def decode(self, ids: collections.abc.Sequence[int], *, skip_special: builtins.bool = True) -> str:
        """
        The text of tokens. skip_special: without special tokens
        """
    def encode(self, text: str, *, add_special: builtins.bool = True) -> list[int]:
        """
        The ids of a text (str or bytes; what is not UTF-8 is read as U+FFFD). add_special: with the tokens that the model expects around a text
        """
    def id(self, token: str) -> int | None:
        """
        The id of a token, or None
        """
    def is_special(self, id: int) -> builtins.bool:
        """
        True when decode leaves the token out
        """
    def token(self, id: int) -> str:
        """
        The token of an id as the file has it
        """
    def with_chat_template(self, name: str) -> Tokenizer:
        """
        The same tokenizer with another chat template: one of chat_templates(), one of the model's, or a Jinja text
        """
    @property
    def bos(self) -> int | None:
        """
        The id of the token that begins a text
        """
    @property
    def chat_template(self) -> str:
        """
        The name of the chat template, `default` for the model's; empty when there is none
        """
    @property
    def end_ids(self) -> list[int]:
        """
        The ids that end a generated text
        """
    @property
    def eos(self) -> int | None:
        """
        The id of the token that ends a text
        """
class TextStream:
    """
    Makes text from a stream of tokens; no character is cut
    """
    def __init__(self, tokenizer: Tokenizer, *, skip_special: builtins.bool = True) -> None:
        ...
    def finish(self) -> str:
        """
        The text of an incomplete character at the end
        """
    def push(self, id: int) -> str:
        """
        The text that the token completes
        """
class Dataset:
    """
    Rows of tokens to train on, without an end: what a row holds follows from its index
    """
    def __len__(self) -> int:
        """
        The rows of an epoch
        """
    def description(self) -> str:
        """
        Describes in words what the rows are made of
        """
    def read(self, first: int, count: int = 1) -> tuple:
        """
        Arrays [count, sequence] of ids, targets (-100 where they do not count) and, if has_segments, segments (the number of each token's document in its row) of the rows from `first` on
        """
    @property
    def has_segments(self) -> builtins.bool:
        """
        True when rows hold several documents
        """
    @property
    def sequence(self) -> int:
        """
        Tokens of a row
        """
    @property
    def tokens(self) -> int:
        """
        Tokens that the rows are made of; 0: unknown
        """
class Graph:
    """
    Work of one GPU that is recorded once and then played: one call of the host instead of one a kernel. It reads and writes the same memory each time: fill tensors in place (copy_) before it runs. Belongs to its thread.
    """
    def __init__(self, device: Device | str) -> None:
        ...
    def run(self, work: collections.abc.Callable) -> None:
        """
        Calls `work` twice as it is, then to record it; from then on plays the record instead, which keeps `work`: leave what its variables name as it is. It neither copies between the host and the GPU nor draws random numbers, and ids are not checked in the record. Ranks exchange in it only as processes with a GPU each; all of them record and play the same.
        """
    @property
    def device(self) -> Device | str:
        ...
    @property
    def is_recorded(self) -> builtins.bool:
        ...
class StepReport:
    """
    Figures of one step of a Trainer
    """
    @property
    def gradient_norm(self) -> float:
        """
        Before clipping
        """
    @property
    def learning_rate(self) -> float:
        """
        The rate of the first group
        """
    @property
    def learning_rates(self) -> list[float]:
        """
        The rates of all groups, where they differ
        """
    @property
    def loss(self) -> float:
        """
        The mean of the targets that count; NaN without any
        """
    @property
    def loss_scale(self) -> float | None:
        """
        The factor of the loss in backward of a float16 model, else None
        """
    @property
    def seconds(self) -> float:
        """
        Since the first step began
        """
    @property
    def skipped(self) -> str:
        """
        Reason why the step left the weights as they are; '' where it updated them
        """
    @property
    def step(self) -> int:
        """
        Counted from 1
        """
    @property
    def tokens_per_second(self) -> float:
        """
        Without padding
        """
    @property
    def validation_loss(self) -> float | None:
        ...
class Trainer:
    """
    Trains a model: reads rows, accumulates gradients, clips them, updates, validates, reports, saves and resumes. One a rank; calls are collective over the mesh
    """
    def __init__(self, model: Module, data: typing.Any, optimizer: typing.Any, mesh: DeviceMesh, loss: typing.Any = None, *, batch: int = 16, accumulate: int = 1, steps: int = 100, clip: float = 1.0, clip_value: float = 0.0, ema: float = 0.0, schedule: typing.Any = None, device: Device | str = ..., validation: typing.Any = None, validate_every: int = 0, validation_batches: int = 0, on_non_finite: str = 'stop', spike: float = 0.0, on_spike: str = 'stop', loss_scale: float = 65536.0, most_skipped: int = 10, patience: int = 0, keep_best: builtins.bool = False, model_files: str = '', metrics: collections.abc.Sequence[str] = [], save: str = '', save_every: int = 0, keep: int = 3, resume: str = '', allow_change: collections.abc.Sequence[str] = [], heeds_signals: builtins.bool = False, tell: typing.Any = None, on_step: typing.Any = None, on_evaluation: typing.Any = None, on_save: typing.Any = None) -> None:
        """
        The model has memory and its final layout: load weights, then shard, then make the optimizer. data: a Dataset; or rows, as a sequence, as a function of an index, or as an object with read(first, count). A row is an array of ids, one more than a row has targets, or a tuple of ids, targets (-100: does not count) and, for packed documents, segments. batch: rows of a step over all ranks, which all axes of `mesh` cut (pass a view, mesh['dp'], where other axes hold the same rows). loss(ids, targets) gives the mean of the targets that count; without, the model is a TransformerModel. schedule(steps done) gives the learning rate; groups with different rates have their own where it is highest, and a part of it elsewhere. clip: the largest norm of the gradients; clip_value: the largest magnitude of an element. ema: the decay of an average of the parameters, which is saved as the part 'ema' and evaluated. save: a folder for checkpoints. resume: a folder to go on from, where there is a checkpoint; on any number of ranks. tell(line), on rank 0; on_step(StepReport), on_evaluation(step, loss) and on_save(path), on all ranks. spike: a loss above so many times the median of the last 32 is a spike. patience: validations in a row without a lower loss that end the run. keep_best: saves to the folder best of `save`, too
        """
    def evaluate(self) -> float:
        """
        The mean loss of the rows to validate on
        """
    def resume(self) -> int:
        """
        Compares ranks, takes up the checkpoint that `resume` names, and returns the steps done
        """
    def run(self) -> builtins.bool:
        """
        Resumes and runs the remaining steps. False when a signal or stop() ended it before
        """
    def stop(self) -> None:
        """
        The run ends, and is saved, after the step under way, whichever rank calls it
        """
    @property
    def step(self) -> int:
        """
        Steps done
        """
class PipelinePrediction:
    """
    Time and memory that a program needs
    """
    @property
    def bubble(self) -> float:
        """
        The part of all ranks' time in which they do not compute
        """
    @property
    def held(self) -> list[int]:
        """
        By rank: the most microbatches whose activations it holds at a time
        """
    @property
    def seconds(self) -> float:
        """
        Until the last rank has ended
        """
class PipelineProgram:
    """
    The steps of all ranks along a pipeline axis in one training step: made by gpipe and others, then checked, printed, and run. str() is a line a rank: F, B, I and W compute, > sends, < receives, R reduces
    """
    def __repr__(self) -> str:
        ...
    def check(self, activation_bytes: collections.abc.Sequence[int] = (), budget: int = 0) -> None:
        """
        ValueError names the first defect: a missing or repeated step, a wrong order or scale, a deadlock; or, with the bytes of one microbatch's activations in each stage, a rank that holds more than `budget` bytes
        """
    def predict(self, forward: float = 1.0, backward_input: float = 1.0, backward_weight: float = 1.0, message: float = 0.0, stages: collections.abc.Sequence[float] = ()) -> PipelinePrediction:
        """
        When it ends, and how much of the time ranks wait, for seconds of the steps of one microbatch; `stages` multiplies them stage by stage
        """
    def visualize(self, forward: float = 1.0, backward_input: float = 1.0, backward_weight: float = 1.0, message: float = 0.0, stages: collections.abc.Sequence[float] = ()) -> Picture:
        """
        A Picture of the program over time, one row a rank
        """
    @property
    def microbatches(self) -> int:
        ...
    @property
    def name(self) -> str:
        ...
    @property
    def rank_of_stage(self) -> list[int]:
        """
        The rank that holds each stage
        """
    @property
    def ranks(self) -> int:
        ...
    @property
    def stages(self) -> int:
        ...
    @property
    def steps(self) -> list[list[tuple[str, int, int]]]:
        """
        By rank: tuples of what a step does, its stage and its microbatch
        """
class PipelinedTransformer:
    """
    A decoder whose blocks are cut into the stages of a pipeline along the axis pp of a mesh, by predicted cost. Cut its stages by parallelize and fully_shard over stage_mesh, then call materialize. Calls are collective over the mesh
    """
    def __init__(self, mesh: DeviceMesh, config: TransformerConfig, program: PipelineProgram, sequence: int, ends: collections.abc.Sequence[int] = []) -> None:
        ...
    def add_to(self, state: TrainingState, optimizer: Optimizer) -> None:
        """
        Adds the parts 'model' and 'optimizer' of all stages, by the names in the whole model, to a TrainingState: it can be resumed with other stages, or without
        """
    def clip_grad_norm(self, max_norm: float) -> float:
        """
        Scales the gradients of all stages so that their norm is at most `max_norm`; gives the norm
        """
    def differentiate(self, batches: collections.abc.Sequence[tuple[Tensor, Tensor]], weights: collections.abc.Sequence[float]) -> list[float]:
        """
        Leaves the gradients of the sum of each micro-batch's mean loss times its weight, and gives these products. Batches are pairs of ids and targets over `mesh` or `stage_mesh`
        """
    def evaluate(self, batches: collections.abc.Sequence[tuple[Tensor, Tensor]], weights: collections.abc.Sequence[float]) -> list[float]:
        """
        The same without gradients
        """
    def materialize(self, device: Device | str = 'cpu') -> None:
        """
        Allocates parameters and sets their initial values
        """
    def named_parameters(self) -> list[tuple[str, Parameter]]:
        """
        Parameters of this rank's stages, by their names in the whole model
        """
    @property
    def ends(self) -> list[int]:
        """
        The end of each stage's blocks
        """
    @property
    def mesh(self) -> DeviceMesh:
        ...
    @property
    def stage_mesh(self) -> DeviceMesh:
        """
        The ranks of this rank's stages
        """
    @property
    def stages(self) -> list[Module]:
        """
        The models of this rank's stages, first to last
        """
def _abort(world: Communicator, why: str) -> None:
    ...
def _as_output(i: int, value: Tensor) -> Tensor:
    ...
def _by_dims(arg0: typing.Any, arg1: str) -> typing.Any:
    ...
def _call_as_forward(arg0: Module, arg1: collections.abc.Callable, *args, **kwargs) -> typing.Any:
    ...
def _check_embedding_options(arg0: typing.Any, arg1: builtins.bool, arg2: builtins.bool) -> None:
    ...
def _check_gradients(function: collections.abc.Callable, inputs: typing.Any, eps: float, atol: float, rtol: float) -> str:
    ...
def _check_second_gradients(function: collections.abc.Callable, inputs: typing.Any, eps: float, atol: float, rtol: float) -> str:
    ...
def _config_numbers(config: TransformerConfig) -> dict[str, int]:
    ...
def _connect(deadline: float = 600.0, threads_per_rank: int = 0, seed: int = 0) -> Communicator:
    ...
def _connect_mpi(comm: typing.Any, deadline: float = 600.0, threads_per_rank: int = 0, seed: int = 0) -> Communicator:
    ...
def _embedding_bag(weight: Tensor, ids: Tensor, offsets: Tensor | None, mode: str, scales: Tensor | None) -> Tensor:
    """
    Reduced rows of a table, by bag
    """
def _full(shape: tuple[int, ...], fill_value: Tensor | float, *, dtype: DType | str | None = None, device: Device | str | None = None, mesh: DeviceMesh | None = None, placements: Placements | collections.abc.Sequence[Shard | Replicate | Partial] | dict[str, Shard | Replicate | Partial] | None = None, requires_grad: builtins.bool = False) -> Tensor:
    """
    All elements `fill_value`
    """
def _gradcheck(op: Op, seed: int) -> tuple[builtins.bool, str]:
    ...
def _gradient(x: Tensor, spacing: collections.abc.Sequence[Tensor | float], dims: collections.abc.Sequence[int], edge_order: int) -> tuple:
    ...
def _have_same_choices(saved: collections.abc.Mapping[str, int], numbers: collections.abc.Mapping[str, int]) -> builtins.bool:
    ...
def _hessian(function: collections.abc.Callable, inputs: typing.Any, create_graph: builtins.bool) -> list[tuple]:
    ...
def _hvp(function: collections.abc.Callable, inputs: typing.Any, v: typing.Any, create_graph: builtins.bool) -> tuple:
    ...
def _is_fully_sharded(module: Module) -> builtins.bool:
    ...
def _jacobian(function: collections.abc.Callable, inputs: typing.Any, create_graph: builtins.bool) -> list[tuple]:
    ...
def _jvp(function: collections.abc.Callable, inputs: typing.Any, v: typing.Any, create_graph: builtins.bool) -> tuple:
    ...
def _layout_of(parameter: Parameter) -> str:
    ...
def _method(arg0: typing.Any) -> typing.Any:
    ...
@typing.overload
def _normal(mean: Tensor | float, std: Tensor) -> Tensor:
    ...
@typing.overload
def _normal(mean: Tensor, std: float) -> Tensor:
    ...
def _placements(placements: Placements | collections.abc.Sequence[Shard | Replicate | Partial] | dict[str, Shard | Replicate | Partial], orders: collections.abc.Sequence[tuple[int, collections.abc.Sequence[str]]]) -> Placements | collections.abc.Sequence[Shard | Replicate | Partial] | dict[str, Shard | Replicate | Partial]:
    ...
def _randint(shape: tuple[int, ...], low: int, high: int, *, dtype: DType | str | None = None, device: Device | str | None = None, mesh: DeviceMesh | None = None, placements: Placements | collections.abc.Sequence[Shard | Replicate | Partial] | dict[str, Shard | Replicate | Partial] | None = None, requires_grad: builtins.bool = False) -> Tensor:
    """
    Integers in [low, high)
    """
def _random_(x: typing.Any, low: int, high: int) -> typing.Any:
    """
    Draws integers in [low, high)
    """
def _record(name: str, inputs: collections.abc.Sequence[Tensor], outputs: collections.abc.Sequence[Tensor], backward: collections.abc.Callable) -> tuple:
    ...
def _rounded_quotient(x: Tensor, other: Tensor | float, rounding_mode: str) -> Tensor:
    ...
def _scatter_along(x: Tensor, dim: int, index: Tensor, src: Tensor | float) -> Tensor:
    ...
def _slice_scatter(x: Tensor, src: Tensor, dim: int, start: int, stop: int, step: int) -> Tensor:
    ...
def _sort_along(x: Tensor, axis: int = -1, descending: builtins.bool = False) -> typing.Any:
    ...
def _strategy_of(module: Module) -> str:
    ...
def _sweep(op: Op, axes: collections.abc.Sequence[tuple[str, int]], most: int, percent: int, seed: int) -> tuple[builtins.bool, str]:
    ...
def _tensor_of_bytes(values: bytes, dtype: DType | str, shape: tuple[int, ...], requires_grad: builtins.bool) -> Tensor:
    ...
def _tensordot(x1: Tensor, x2: Tensor, dims_of_x1: collections.abc.Sequence[int], dims_of_x2: collections.abc.Sequence[int]) -> Tensor:
    ...
def _unique_consecutive(x: Tensor, dim: int | None) -> tuple[Tensor, Tensor, Tensor]:
    ...
def _vjp(function: collections.abc.Callable, inputs: typing.Any, v: typing.Any, create_graph: builtins.bool) -> tuple:
    ...
def _weighted_cov(x: Tensor, correction: float, fweights: Tensor | None, aweights: Tensor | None) -> Tensor:
    ...
def abs(x: Tensor) -> Tensor:
    """
    |x|, element by element
    
    Rule: ... -> ...
    """
def acos(x: Tensor) -> Tensor:
    """
    The angle in [0, pi] whose cosine is x
    
    Rule: ... -> ...
    """
def acosh(x: Tensor) -> Tensor:
    """
    The inverse of cosh; NaN below 1
    
    Rule: ... -> ...
    """
def adamw_(parameter: typing.Any, m: Tensor, v: Tensor, gradient: Tensor, gradient_scale: Tensor, *, lr: float = 0.001, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-08, weight_decay: float = 0.01, step: int = 1) -> None:
    """
    One AdamW step (Loshchilov and Hutter, 2019), in place on parameter, m and v; the gradient counts times the one element of gradient_scale
    
    Rule: ..., ..., ..., ..., . ->
    """
def adapter_state_dict(model: Module) -> StateDict:
    """
    The parameters of the adapters by their names in the model; its tensors alias. No traffic
    """
def add(x1: Tensor | float, x2: Tensor | float) -> Tensor:
    """
    x1 + x2; shapes broadcast from the right, dtypes promote
    
    Rule: ..., ... -> ...
    """
def add_adapters(model: Module, *, rank: int = 8, alpha: float = 16.0, dropout: float = 0.0, rslora: builtins.bool = False, targets: collections.abc.Sequence[str] | None = None) -> list[str]:
    """
    Freezes all parameters and adds a low-rank adapter (LoRA) to each Linear that `targets` name by the last parts of its path (None: q_proj and v_proj; ['all-linear']: all but the head). Its output becomes W x + alpha / rank B A dropout(x), with rslora alpha / sqrt(rank); A and B are its children 'lora_A' and 'lora_B'. Gives the paths. Call it before parallelize, fully_shard and before an optimizer is made
    """
def add_scaled_(x: typing.Any, other: Tensor, scale: Tensor, factor: float = 1.0) -> typing.Any:
    """
    x += other * scale * factor in place, where scale has one element
    
    Rule: ..., ..., . ->
    """
def addbmm(x: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """
    beta * x + alpha * the sum of batch1 @ batch2 over the batch
    """
def addcdiv(x: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """
    x + value * tensor1 / tensor2
    """
def addcmul(x: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """
    x + value * tensor1 * tensor2
    """
def addmm(x: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """
    beta * x + alpha * (mat1 @ mat2)
    """
def addmv(x: Tensor, mat: Tensor, vec: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """
    beta * x + alpha * (mat @ vec)
    """
def addr(x: Tensor, vec1: Tensor, vec2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """
    beta * x + alpha * outer(vec1, vec2)
    """
def all(x: Tensor, axis: int | collections.abc.Sequence[int] | None = None, keepdims: builtins.bool = False) -> Tensor:
    """
    True where all elements over `axis` are not zero: bool; true of none
    
    Rule: d0:min d1  -> d1    (by its attributes; this one of [5, 7])
    """
def all_gather_into_tensor(output_tensor: Tensor, input_tensor: Tensor, group: Communicator, counts: collections.abc.Sequence[int] | None = None) -> None:
    """
    Writes the parts of the group's ranks, of `counts` elements (equal ones by default), one after the other into `output_tensor`
    """
def all_ops() -> list[Op]:
    """
    The built-in ops
    """
def all_reduce(tensor: Tensor, group: Communicator) -> None:
    """
    Replaces the elements of a tensor of one device by their sums over the group's ranks
    """
def allclose(x1: Tensor, x2: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: builtins.bool = False) -> builtins.bool:
    """
    True when all elements are close; one number, equal on all ranks
    """
def amax(x: Tensor, axis: int | collections.abc.Sequence[int] | None = None, keepdims: builtins.bool = False) -> Tensor:
    """
    max
    
    Rule: d0:max d1  -> d1    (by its attributes; this one of [5, 7])
    """
def amin(x: Tensor, axis: int | collections.abc.Sequence[int] | None = None, keepdims: builtins.bool = False) -> Tensor:
    """
    min
    
    Rule: d0:min d1  -> d1    (by its attributes; this one of [5, 7])
    """
def angle(x: Tensor) -> Tensor:
    """
    0 for positive x, pi for negative ones
    
    Rule: ..., ..., ... -> ...
    """
def any(x: Tensor, axis: int | collections.abc.Sequence[int] | None = None, keepdims: builtins.bool = False) -> Tensor:
    """
    True where any element over `axis` is not zero: bool; false of none
    
    Rule: d0:max d1  -> d1    (by its attributes; this one of [5, 7])
    """
def arange(start: Tensor | float, stop: Tensor | float | None = None, step: Tensor | float = 1, *, dtype: DType | str | None = None, device: Device | str | None = None, mesh: DeviceMesh | None = None, placements: Placements | collections.abc.Sequence[Shard | Replicate | Partial] | dict[str, Shard | Replicate | Partial] | None = None, requires_grad: builtins.bool = False) -> Tensor:
    """
    start, start + step, ... before stop, or 0, 1, ... before the only number; int64 for ints, otherwise float32. ValueError when step is 0
    """
def argmax(x: Tensor, axis: typing.Any = None, keepdims: builtins.bool = False) -> Tensor:
    """
    The index (int64, of the whole tensor) of the first largest element along `axis`
    
    Rule: ... v -> ...
    """
def argmin(x: Tensor, axis: typing.Any = None, keepdims: builtins.bool = False) -> Tensor:
    """
    The index (int64, of the whole tensor) of the first least element along `axis`
    
    Rule: ... v -> ...
    """
def argsort(x: Tensor, axis: int = -1, descending: builtins.bool = False, stable: builtins.bool = True) -> Tensor:
    """
    The indices (int64) along `axis` with which take_along_axis returns the result of `sort`; always stable
    """
def argwhere(x: Tensor) -> Tensor:
    """
    The indices of the nonzero elements: [n, dims]
    """
def as_strided(x: Tensor, size: tuple[int, ...], stride: collections.abc.Sequence[int], storage_offset: int = 0) -> Tensor:
    """
    A copy whose element (i, j, ..) is element storage_offset + i * stride[0] + j * stride[1] + .. of the flattened x
    """
def as_strided_scatter(x: Tensor, src: Tensor, size: tuple[int, ...], stride: collections.abc.Sequence[int], storage_offset: int = 0) -> Tensor:
    """
    x with the elements of as_strided replaced by src
    """
def asin(x: Tensor) -> Tensor:
    """
    The angle in [-pi/2, pi/2] whose sine is x
    
    Rule: ... -> ...
    """
def asinh(x: Tensor) -> Tensor:
    """
    The inverse of sinh
    
    Rule: ... -> ...
    """
def astype(x: Tensor, dtype: DType | str, *, copy: builtins.bool = True, device: Device | str | None = None) -> Tensor:
    """
    The values of x as `dtype`; floating to integer rounds towards zero. Returns x itself when it already has that dtype and `copy` is False; ValueError for another device
    
    Rule: ... -> ...
    """
def atan(x: Tensor) -> Tensor:
    """
    The angle in [-pi/2, pi/2] whose tangent is x
    
    Rule: ... -> ...
    """
def atan2(x1: Tensor | float, x2: Tensor | float) -> Tensor:
    """
    The angle of the point (x2, x1) in [-pi, pi]
    
    Rule: ..., ... -> ...
    """
def atanh(x: Tensor) -> Tensor:
    """
    The inverse of tanh; NaN beyond 1
    
    Rule: ... -> ...
    """
def atleast_1d(x: Tensor) -> Tensor:
    """
    x with at least 1 dim
    """
def atleast_2d(x: Tensor) -> Tensor:
    """
    x with at least 2 dims
    """
def atleast_3d(x: Tensor) -> Tensor:
    """
    x with at least 3 dims
    """
def attention(q: Tensor, k: Tensor, v: Tensor, causal: builtins.bool = True, scale: float = 0.0, *, window: int = 0, softcap: float = 0.0, mask: Tensor | None = None, sinks: Tensor | None = None, segments: Tensor | None = None, alibi: Tensor | None = None, dropout: float = 0.0) -> Tensor:
    """
    softmax(q k^T * scale) v by heads, for q [batch, s, heads, d], k and v [batch, t, kv heads, d] (heads a multiple of kv heads): [batch, s, heads, d]. Query i has position t - s + i. causal: it attends to positions up to its own. scale: 0 means 1 / sqrt(d). window: it attends to keys less than `window` positions away. softcap: scores become softcap * tanh(score / softcap). mask: bool (True: attends) or floating (added), broadcast to [batch, heads, s, t]. sinks [heads]: one more logit in each row's softmax, without a value. segments: integers [batch, t], ids of packed documents; a query attends to its own document. alibi: slopes [heads]; slope * distance is subtracted. dropout: the probability of leaving out a key. A query that attends to no key gives zeros. Memory grows with the sequence, not with its square. Gradients: q, k, v, a floating mask, sinks
    
    Layout rule: b s (g r) [d], b [t] g [d], b [t] g [d] -> b s (g r) [d]
    """
def backward(roots: typing.Any, gradients: typing.Any = None, retain_graph: builtins.bool | None = None, create_graph: builtins.bool = False, inputs: typing.Any = None) -> None:
    """
    Gradients of all leaves that `roots` depend on, or of the inputs given, given the roots' gradients (None: one)
    """
def baddbmm(x: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """
    beta * x + alpha * (batch1 @ batch2)
    """
def balance_loss(routing: Routing) -> Tensor:
    """
    experts * sum over experts of (choices / tokens) * (mean score), of Switch Transformers
    """
def balanced_bias(bias: Tensor, counts: Tensor, rate: float) -> Tensor:
    """
    bias plus `rate` for experts with fewer rows than the mean of counts [.., experts], minus `rate` for those with more
    """
@typing.overload
def bernoulli(x: Tensor) -> Tensor:
    """
    1 with the probability that the element, or p, is; else 0
    """
@typing.overload
def bernoulli(x: Tensor, p: float) -> Tensor:
    ...
def bernoulli_(x: typing.Any, p: float = 0.5) -> typing.Any:
    """
    Draws 1 with probability p, else 0
    """
def bincount(x: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """
    Counts of the numbers from 0 on, or sums of the `weights` of their elements
    """
def bitwise_and(x1: Tensor | float, x2: Tensor | float) -> Tensor:
    """
    x1 & x2, of integers and bool
    
    Rule: ..., ... -> ...
    """
def bitwise_invert(x: Tensor) -> Tensor:
    """
    ~x, of integers and bool
    
    Rule: ... -> ...
    """
def bitwise_left_shift(x1: Tensor | float, x2: Tensor | float) -> Tensor:
    """
    x1 << x2, of integers
    
    Rule: ..., ... -> ...
    """
def bitwise_or(x1: Tensor | float, x2: Tensor | float) -> Tensor:
    """
    x1 | x2, of integers and bool
    
    Rule: ..., ... -> ...
    """
def bitwise_right_shift(x1: Tensor | float, x2: Tensor | float) -> Tensor:
    """
    x1 >> x2, of integers
    
    Rule: ..., ... -> ...
    """
def bitwise_xor(x1: Tensor | float, x2: Tensor | float) -> Tensor:
    """
    x1 ^ x2, of integers and bool
    
    Rule: ..., ... -> ...
    """
def block_diag(*args) -> Tensor:
    """
    Matrices along the diagonal of one
    """
def broadcast_arrays(*args) -> list[Tensor]:
    """
    The tensors as a list, each broadcast to the shape that all of them fit; no copies. ValueError when they fit none
    """
def broadcast_to(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """
    Dims of size 1, and new leading ones, repeated to `shape`; no copy
    
    Rule: d0 [one1]  -> d0 +d1    (by its attributes; this one of [5, 1])
    """
def bucketize(x: Tensor, boundaries: Tensor, right: builtins.bool = False) -> Tensor:
    """
    searchsorted(boundaries, x)
    """
def cartesian_prod(*args) -> Tensor:
    """
    All combinations of an element of each: a row each
    """
def cat(tensors: collections.abc.Sequence[Tensor], dim: int = 0) -> Tensor:
    """
    One after the other along `dim`; the other dims are equal
    
    Rule: ~p0 d1 , ~p1 d1 -> +n d1    (by its attributes; this one of [5, 3], [2, 3])
    """
def cauchy_(x: typing.Any, median: float = 0.0, sigma: float = 1.0) -> typing.Any:
    """
    Draws of a Cauchy distribution
    """
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: typing.Any = None) -> Tensor:
    """
    p-norms of the differences between rows: [..., n, m]
    """
def ceil(x: Tensor) -> Tensor:
    """
    The integer above x; the dtype stays
    
    Rule: ... -> ...
    """
def check_replicas(module: Module) -> None:
    """
    Compares by hash the parameters that several ranks of a mesh hold alike. ValueError, on all ranks, names the first that differs and two ranks. Call it on all ranks
    """
def cholesky_inverse(L: Tensor, upper: builtins.bool = False) -> Tensor:
    """
    The inverse of L @ L.mT, or with `upper`, L.mT @ L
    """
def cholesky_solve(B: Tensor, L: Tensor, upper: builtins.bool = False) -> Tensor:
    """
    Solves A @ X = B by the factor L of A = L @ L.mT, or with `upper`, L.mT @ L
    """
def chunk(x: Tensor, chunks: int, dim: int = 0) -> tuple:
    """
    At most `chunks` parts along `dim`, of ceil(size / chunks) elements, the last of fewer
    """
def clip(x: Tensor, min: typing.Any = None, max: typing.Any = None) -> Tensor:
    """
    x limited to [min, max] (tensors or numbers that broadcast, or None). ValueError for numbers that exclude all values of an integer dtype
    """
def clip_grad_norm_(parameters: typing.Any, max_norm: float, norm_type: typing.Any = 2.0, error_if_nonfinite: builtins.bool = False, foreach: typing.Any = None) -> float:
    """
    Scales all gradients so that their norm is at most max_norm; gives the norm before: that of the gradients whatever their layouts and meshes. One all-reduce. norm_type: above 0, inf for the greatest element. RuntimeError, when asked for, where the norm is no finite number
    """
def clip_grad_value_(parameters: typing.Any, clip_value: float, foreach: typing.Any = None) -> None:
    """
    Limits every element of the gradients to [-clip_value, clip_value]. No traffic
    """
def clip_grads_with_norm_(parameters: typing.Any, max_norm: float, total_norm: Tensor, foreach: typing.Any = None) -> None:
    """
    Scales all gradients so that their norm, which is `total_norm`, is at most max_norm
    """
def clip_scale(norm: Tensor, max_norm: float) -> Tensor:
    """
    min(1, max_norm / (norm + 1e-6)): what Optimizer.step takes, so that clipping is no pass over the gradients
    """
def clone(x: Tensor) -> Tensor:
    """
    The same elements in new memory, in the same layout
    
    Rule: ... -> ...
    """
def column_stack(tensors: collections.abc.Sequence[Tensor]) -> Tensor:
    """
    Joins along dim 1; vectors are columns
    """
def combinations(x: Tensor, r: int = 2, with_replacement: builtins.bool = False) -> Tensor:
    """
    All subsets of r elements of a vector: a row each; with_replacement lets elements repeat
    """
def combine_rows(computed: Tensor, rows: ExpertRows, weights: Tensor) -> Tensor:
    """
    Sums the rows of each token, times weights [tokens, k] of its choices: [tokens, d]
    """
def concat(arrays: collections.abc.Sequence[Tensor], axis: typing.Any = 0) -> Tensor:
    """
    One after the other along `axis`; the other dims are equal. None: flattened before
    
    Rule: ~p0 d1 , ~p1 d1 -> +n d1    (by its attributes; this one of [5, 3], [2, 3])
    """
def config_json(config: TransformerConfig, dtype: str = '') -> str:
    """
    The text of the config.json from which transformer_config reads the same
    """
def contiguous(x: Tensor) -> Tensor:
    """
    x itself if its elements are dense in memory, in row-major order; otherwise a copy
    """
def convert_to_float8(model: Module, filter: typing.Any = None) -> int:
    """
    Lets each Linear of the model, or those for which filter(layer, path) is true, compute by float8_linear; their parameters stay as they are. Gives their number
    """
def copy_(to: typing.Any, source: Tensor) -> typing.Any:
    """
    Copies the elements of `source`, broadcast to the shape of `to`, to the memory of `to`
    """
def copysign(x1: Tensor | float, x2: Tensor | float) -> Tensor:
    """
    |x1| with the sign of x2
    
    Rule: ..., ... -> ...
    """
def corrcoef(x: Tensor) -> Tensor:
    """
    Correlations of the rows of a matrix
    """
def cos(x: Tensor) -> Tensor:
    """
    The cosine of x, in radians
    
    Rule: ... -> ...
    """
def cosh(x: Tensor) -> Tensor:
    """
    The hyperbolic cosine of x
    
    Rule: ... -> ...
    """
def costly_ops() -> list[str]:
    """
    Names of the ops that compute matrix products and attention, to be kept by a recomputation
    """
def count_nonzero(x: Tensor, axis: int | collections.abc.Sequence[int] | None = None, keepdims: builtins.bool = False) -> Tensor:
    """
    The number of nonzero elements (NaN included) over `axis`, all dims by default; int64
    
    Rule: d0 d1  -> d1    (by its attributes; this one of [5, 7])
    """
def cov(x: Tensor, *, correction: float = 1.0) -> Tensor:
    """
    Covariances of the rows of a matrix [variables, observations]
    """
def cross(x1: Tensor, x2: Tensor, *, axis: int = -1) -> Tensor:
    """
    The cross product of vectors of 3 along `axis`, counted from the end; the other dims broadcast. ValueError when that dim of one is not 3
    """
def cross_entropy(logits: Tensor, targets: Tensor, *, weight: Tensor | None = None, label_smoothing: float = 0.0, ignore_index: int = -100, z_loss: float = 0.0, reduction: str = 'mean') -> Tensor:
    """
    Cross-entropy of logits [..., vocabulary]: the mean over the rows that count of -log softmax(logits)[target]. targets [...] are classes (int32 or int64), or ignore_index for a row that does not count; ValueError names another. Floating targets of the logits' shape are probabilities. weight [vocabulary]: weights of the classes. label_smoothing: the share of the target that all classes have evenly. z_loss: the factor of logsumexp(logits)^2, which is added. reduction: 'mean', 'sum' or 'none'
    
    Rule: ... v, ... -> ..., ...
    """
def cross_entropy_rows(logits: Tensor, targets: Tensor) -> Tensor:
    """
    The same a row: [...], 0 where the row does not count
    
    Rule: ... v, ... -> ..., ...
    """
def cummax(x: Tensor, axis: int) -> typing.Any:
    """
    The largest of all elements up to each along `axis`, and its last index; from a NaN on, NaN: (values, indices)
    """
def cummin(x: Tensor, axis: int) -> typing.Any:
    """
    The smallest of all elements up to each along `axis`, and its last index; from a NaN on, NaN: (values, indices)
    """
def cumulative_prod(x: Tensor, axis: int | None = None, *, dtype: DType | str | None = None, include_initial: builtins.bool = False) -> Tensor:
    """
    Products of the elements up to each along `axis`, which only a tensor of one dim can leave out; integers in int64 unless `dtype` is given. `include_initial`: a 1 first
    
    Rule: d0 n -> d0 n    (by its attributes; this one of [5, 7])
    """
def cumulative_sum(x: Tensor, axis: int | None = None, *, dtype: DType | str | None = None, include_initial: builtins.bool = False) -> Tensor:
    """
    Sums of the elements up to each along `axis`, which only a tensor of one dim can leave out; integers in int64 unless `dtype` is given. `include_initial`: a 0 first
    
    Rule: d0 n -> d0 n    (by its attributes; this one of [5, 7])
    """
def cumulative_trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float = 1.0, dim: int = -1) -> Tensor:
    """
    Integrals along `dim` up to each point but the first
    """
def deg2rad(x: Tensor) -> Tensor:
    """
    Degrees as radians
    
    Rule: ..., ... -> ...
    """
def device_count(device: Device | str = ...) -> int:
    """
    Devices of that kind which this process can use; 0 GPUs where there are none, or no CUDA
    """
def diag(x: Tensor, diagonal: int = 0) -> Tensor:
    """
    A vector as a diagonal of a matrix, or a diagonal of a matrix as a vector
    """
def diag_embed(x: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """
    The last dim as diagonal `offset` of two dims of a tensor of zeros
    """
def diagflat(x: Tensor, offset: int = 0) -> Tensor:
    """
    All elements as a diagonal of a matrix
    """
def diagonal(x: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """
    Elements (i, i + offset) of two dims, as a new last dim
    """
def diagonal_scatter(x: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """
    x with a diagonal replaced by src
    """
def diff(x: Tensor, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None, append: Tensor | None = None) -> Tensor:
    """
    Differences of neighbours along `axis`, `n` times, with `prepend` before and `append` behind it; for bool, whether they differ. ValueError when n is negative
    """
def digamma(x: Tensor) -> Tensor:
    """
    The derivative of lgamma
    
    Rule: ... -> ...
    """
def dispatch_rows(x: Tensor, rows: ExpertRows) -> Tensor:
    """
    The rows of x [tokens, d] that the ranks compute: [rows, d]
    """
def dist(x: Tensor, other: Tensor, p: float = 2.0) -> Tensor:
    """
    The p-norm of x - other
    """
def distribute(whole: Tensor, mesh: DeviceMesh, placements: Placements | collections.abc.Sequence[Shard | Replicate | Partial] | dict[str, Shard | Replicate | Partial] = None) -> Tensor:
    """
    Slices locally what each rank already holds whole
    """
def divide(x1: Tensor | float, x2: Tensor | float) -> Tensor:
    """
    x1 / x2, floating; shapes broadcast, dtypes promote
    
    Rule: ..., ... -> ...
    """
def document_positions(segments: Tensor) -> Tensor:
    """
    The position of each token within its document, int64 [batch, sequence], counted from 0 where the number in `segments` (integers [batch, sequence]) changes
    """
def dot(x: Tensor, tensor: Tensor) -> Tensor:
    """
    The sum of products of two vectors
    """
def dropout(x: Tensor, p: float) -> Tensor:
    """
    x with elements zeroed with probability p in [0, 1] and the others divided by 1 - p; equal for any layout of x
    
    Rule: ... -> ...
    """
def dsplit(x: Tensor, indices_or_sections: int | collections.abc.Sequence[int]) -> tuple:
    """
    Equal parts along dim 2; or that end before these
    """
def dstack(tensors: collections.abc.Sequence[Tensor]) -> Tensor:
    """
    Joins along dim 2
    """
def dtype_named(name: DType | str) -> DType | str:
    """
    The dtype of a name, short or long; ValueError lists the names there are
    """
def einsum(equation: str, *args, memory: int | None = None) -> Tensor:
    """
    Sums of products over the labels that the result lacks: einsum("bij,bjk->bik", x, y). Operands are contracted in the order of einsum_path
    """
def einsum_path(equation: str, *args, memory: int | None = None) -> tuple[list, str]:
    """
    (path, text): the order in which einsum contracts the operands, as numpy.einsum_path, and what it predicts. It is the order of least time over the mesh among those whose intermediate results take at most `memory` bytes of a rank each; ValueError if none does
    """
def embedding(weight: Tensor, ids: Tensor, padding_idx: int | None = None) -> Tensor:
    """
    Rows `ids` [...] (int32 or int64) of weight [vocabulary, d]: [..., d]. The gradient gets nothing from ids of row `padding_idx`, which counts from the end if it is negative. ValueError names an id that is no row
    
    Rule: v d, ... -> ... d
    """
def empty(*args, shape: tuple[int, ...] = (), dtype: DType | str | None = None, device: Device | str | None = None, mesh: DeviceMesh | None = None, placements: Placements | collections.abc.Sequence[Shard | Replicate | Partial] | dict[str, Shard | Replicate | Partial] | None = None, requires_grad: builtins.bool = False) -> Tensor:
    """
    Uninitialized memory of `shape`; float32 by default
    """
def empty_like(x: Tensor, *, dtype: DType | str | None = None, device: Device | str | None = None, requires_grad: builtins.bool = False) -> Tensor:
    """
    New memory with the shape, layout and dtype of x; zeros where x is sharded
    """
def engine_statistics() -> dict:
    """
    Counts of the calling rank's engine since the rank began: calls, routes found and made, gradients written in place and copied, implicit redistributions and their bytes
    """
def equal(x1: Tensor | float, x2: Tensor | float) -> Tensor:
    """
    x1 == x2, element by element, as bool
    
    Rule: ..., ... -> ...
    """
def erf(x: Tensor) -> Tensor:
    """
    The error function of x
    
    Rule: ... -> ...
    """
def erfc(x: Tensor) -> Tensor:
    """
    1 - erf(x), accurate for large x
    
    Rule: ... -> ...
    """
def erfinv(x: Tensor) -> Tensor:
    """
    The inverse of erf; NaN outside [-1, 1]
    
    Rule: ... -> ...
    """
def exp(x: Tensor) -> Tensor:
    """
    e to the power of x
    
    Rule: ... -> ...
    """
def exp2(x: Tensor) -> Tensor:
    """
    2 to the power x
    
    Rule: ..., ... -> ...
    """
def expand_dims(x: Tensor, axis: int = 0) -> Tensor:
    """
    Inserts a dim of size 1 at `axis`; a view. IndexError when axis is out of range
    """
def expert_styles() -> dict:
    """
    The plan that gives each rank of an axis its own experts of all layers of a TransformerModel; apply it before transformer_styles
    """
def explain(tensor: Tensor, placements: Placements | collections.abc.Sequence[Shard | Replicate | Partial] | dict[str, Shard | Replicate | Partial]) -> str:
    """
    The plan of `redistribute`: steps, bytes, predicted time, peak memory
    """
def explain_model(model: Module, loss: collections.abc.Callable) -> str:
    """
    The collectives of one training step of a parallelized model, by layer, found by running loss() and its backward on device meta, where its tensors must be. Nothing is communicated
    """
def explain_schedule(model: Module, *, training: builtins.bool = True, sync: builtins.bool = True, updated: builtins.bool = True) -> str:
    """
    Lists what is gathered, computed, freed and reduced, and when, a line each
    """
def expm1(x: Tensor) -> Tensor:
    """
    exp(x) - 1, exact for small x
    
    Rule: ... -> ...
    """
def exponential_(x: typing.Any, lambd: float = 1.0) -> typing.Any:
    """
    Draws of the density lambd exp(-lambd x)
    """
def export_dcp(checkpoint: str, directory: str) -> None:
    """
    Writes a checkpoint as a directory that torch.distributed.checkpoint.load reads, tensors bit for bit and optimizers as get_optimizer_state_dict gives them. One rank calls it. ValueError when the directory has a .metadata already or an optimizer has moments that PyTorch lacks
    """
def export_hugging_face(checkpoint: str, directory: str, world: Communicator, *, prefix: str = 'model/', file_bytes: int = 5368709120, config: TransformerConfig | None = None, files: str | None = None) -> None:
    """
    Writes a checkpoint as a Hugging Face model: the tensors in the form of its family, config.json, and the tokenizer and generation_config.json of the Hugging Face model in the folder `files`. Collective over `world`: each rank writes its share to its place in the final files. Without `config` and `files` they are those that `weft train` or `weft ckpt import` kept with the checkpoint; where it kept none, only tensors are written, under their names
    """
def eye(n_rows: int, n_cols: int | None = None, *, k: int = 0, dtype: DType | str | None = None, device: Device | str | None = None, mesh: DeviceMesh | None = None, placements: Placements | collections.abc.Sequence[Shard | Replicate | Partial] | dict[str, Shard | Replicate | Partial] | None = None, requires_grad: builtins.bool = False) -> Tensor:
    """
    [n_rows, n_cols] of zeros, with ones where column - row is k
    """
def fake_world(rank: int, size: int, ranks_per_host: int = 8, in_memory: builtins.bool = True) -> Communicator:
    """
    A communicator of `size` ranks of which only `rank` exists: collectives move nothing but count the bytes that would come. For planning on clusters you do not have
    """
def fill(x: Tensor, value: Tensor | float) -> Tensor:
    """
    All elements `value`, in shape, dtype and layout of x
    """
def fill_(x: typing.Any, value: Tensor | float) -> typing.Any:
    """
    Sets all elements in place
    """
def flatten(x: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """
    Dims start_dim to end_dim as one dim
    """
def flip(x: Tensor, axis: int | collections.abc.Sequence[int] | None = None) -> Tensor:
    """
    The elements of `axis` (all dims unless given) in reverse order
    
    Rule: ~d0 d1 -> +n0 d1    (by its attributes; this one of [5, 7])
    """
def fliplr(x: Tensor) -> Tensor:
    """
    Dim 1 reversed
    """
def flipud(x: Tensor) -> Tensor:
    """
    Dim 0 reversed
    """
def float8_linear(x: Tensor, weight: Tensor) -> Tensor:
    """
    x [..., k] times the transpose of weight [n, k], each divided by its greatest magnitude / 448 and rounded to float8_e4m3fn; gradients are rounded to float8_e5m2. Sums are float32. The greatest magnitudes are those of the whole tensors, however these are sharded
    """
def float_power(x1: Tensor | float, x2: Tensor | float) -> Tensor:
    """
    x1 to the power x2, in float64
    
    Rule: ..., ... -> ...
    """
def floor(x: Tensor) -> Tensor:
    """
    The integer below x; the dtype stays
    
    Rule: ... -> ...
    """
def floor_divide(x1: Tensor | float, x2: Tensor | float) -> Tensor:
    """
    x1 // x2; integers by 0 give 0
    
    Rule: ..., ... -> ...
    """
def fmax(x1: Tensor | float, x2: Tensor | float) -> Tensor:
    """
    The larger of both; where one is NaN, the other
    
    Rule: ..., ... -> ...
    """
def fmin(x1: Tensor | float, x2: Tensor | float) -> Tensor:
    """
    The smaller of both; where one is NaN, the other
    
    Rule: ..., ... -> ...
    """
def fmod(x1: Tensor | float, x2: Tensor | float) -> Tensor:
    """
    x1 - trunc(x1 / x2) * x2, which has the sign of x1
    
    Rule: ..., ... -> ...
    """
def frac(x: Tensor) -> Tensor:
    """
    x - trunc(x)
    
    Rule: ..., ... -> ...
    """
def frexp(x: Tensor) -> typing.Any:
    """
    (mantissa, exponent): x is mantissa * 2^exponent, with a mantissa in [0.5, 1)
    """
def from_dlpack(x: typing.Any, *, device: Device | str | None = None, copy: builtins.bool | None = None) -> Tensor:
    """
    A tensor over the memory of whatever speaks DLPack (torch, NumPy, JAX), copied if its elements have gaps. copy=True always copies; copy=False raises ValueError where a copy is needed
    """
def from_local(local: Tensor, mesh: DeviceMesh, placements: Placements | collections.abc.Sequence[Shard | Replicate | Partial] | dict[str, Shard | Replicate | Partial], *, shape: tuple[int, ...] | None = None) -> Tensor:
    """
    A sharded tensor whose parts are `local`. The ranks exchange their sizes unless the whole's `shape` is given; they must be those of a cut of their sum
    """
def from_numpy(array: numpy.ndarray, *, copy: builtins.bool | None = None) -> Tensor:
    """
    A tensor over the memory of a NumPy array; copied where it is read only or has gaps. copy=False makes that a ValueError
    """
def fully_shard(module: typing.Any, mesh: DeviceMesh, strategy: typing.Any = 'full_shard', *, reshard_after_forward: typing.Any = True, mp_policy: MixedPrecision | None = None, prefetch: int = 1, ignored: collections.abc.Sequence[str] = [], shard_dim: typing.Any = None, bucket_bytes: int = 26214400, gradient_divide_factor: float = 1.0, offload: collections.abc.Sequence[str] = [], shard_placement_fn: typing.Any = None, ignored_params: typing.Any = None, dp_mesh_dims: DataParallelMeshDims | None = None, extension: typing.Any = None, quantized_gather: DType | str | None = None, quantized_gradients: DType | str | None = None, quantization_block: int = 256, error_feedback: builtins.bool = False, quantized_within: str | None = None, expert_axis: str | None = None) -> typing.Any:
    """
    Shards the module's parameters over the axes of `mesh`: whole when used, a slice at rest. Shard the parts first, then the whole model. The batch is sharded over these axes too, and the loss is a mean over all of it. A list of modules is one group. `strategy` is a name (full_shard, zero2, zero1, ddp, hsdp) or a Strategy; `mp_policy` a MixedPrecision; reshard_after_forward may name an axis, or a number of ranks. `offload` names what rests in pinned memory of the host: "parameters", "gradients", and between forward and backward "activations", which recomputation saves; "parameters=disk:DIR" rest in files without a name. shard_placement_fn(parameter) gives a Shard, a ShardPlacementResult or None. extension(name, parameter) gives an object whose fsdp_pre_all_gather(slice) returns what is sent, and whose fsdp_post_all_gather(received, out) writes a rank's part. quantized_gather (int8, float8_e4m3fn) and quantized_gradients (int8, bfloat16) are what gathers and reduce-scatters send, 8 bits with a scale for each quantization_block elements; error_feedback adds what gradients lost to the next ones. quantized_within is the axis within a host, over which codes move apart from the other axes ("": they do not; None: if it is predicted to be faster). expert_axis is the axis of `mesh` that cuts experts too (expert_styles): they are sharded over the others only. ValueError, with nothing changed, when the strategy does not fit. Gives the module
    """
def gather(x: Tensor, axis: int, index: Tensor) -> Tensor:
    """
    Element index[.., i, ..] along `axis` for each element of `index`, whose other dims may be smaller than those of x
    """
def gelu(x: Tensor, *, approximate: str = 'none') -> Tensor:
    """
    x / 2 * (1 + erf(x / sqrt(2))), or with approximate='tanh' x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))
    
    Rule: ... -> ...
    """
def gelu_tanh(x: Tensor) -> Tensor:
    """
    gelu's approximation by tanh
    
    Rule: ... -> ...
    """
def generate(model: TransformerModel, prompt: typing.Any, *, mesh: DeviceMesh, tokenizer: Tokenizer | None = None, stops: collections.abc.Sequence[str] = [], use: typing.Any = None, add_special: builtins.bool = True, tokens: int = 200, temperature: float = 0.7, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0, repetition_penalty: float = 1.0, seed: int | collections.abc.Sequence[int] = 0, end_ids: collections.abc.Sequence[int] = [], batch: int = 16) -> typing.Any:
    """
    Continues a prompt, a str with a tokenizer or a list of ids, or a list of prompts together, at most `batch` at once. Returns the text that a tokenizer makes of the tokens, or the ids; for a list of prompts a list. seed: a number, or a list of one for each prompt; prompt i draws with seed + i. use: a function that gets each part of the text as it is complete, for a list of prompts (number of the prompt, part). add_special: as in encode, False for a text of chat. Collective over the mesh
    """
def geometric_(x: typing.Any, p: float) -> typing.Any:
    """
    Draws numbers of trials up to the first success, of probability p
    """
def get_num_threads() -> int:
    """
    Threads that this rank's kernels may use
    """
def get_rng_state() -> tuple[int, int]:
    """
    (seed, stream): all the state of this rank's random numbers
    """
def get_total_norm(tensors: Tensor | collections.abc.Sequence[Tensor], norm_type: typing.Any = 2.0, error_if_nonfinite: builtins.bool = False, foreach: typing.Any = None) -> Tensor:
    """
    The norm of all elements of the tensors together; see gradient_norm
    """
def get_traffic() -> str:
    """
    'allow', 'free_only' or 'forbid': which implicit traffic ops of this rank may cause
    """
def gpipe(ranks: int, microbatches: int) -> PipelineProgram:
    """
    All forwards, then all backwards
    """
def grad(outputs: typing.Any, inputs: typing.Any, grad_outputs: typing.Any = None, retain_graph: builtins.bool | None = None, create_graph: builtins.bool = False, allow_unused: builtins.bool = False) -> tuple:
    """
    The gradients of the outputs by the inputs, which are tensors or parameters, in their layout and dtype; adds to the grad of none. create_graph records how they are computed, so that they can be differentiated; retain_graph (then true) keeps what backward needs for another one; allow_unused gives None for an input that no output depends on
    """
def gradient_norm(parameters: typing.Any, norm_type: typing.Any = 2.0) -> Tensor:
    """
    The norm of all gradients together, whatever their layouts and meshes: one element, float32, equal on each rank. One all-reduce
    """
def greater(x1: Tensor | float, x2: Tensor | float) -> Tensor:
    """
    x1 > x2, element by element, as bool
    
    Rule: ..., ... -> ...
    """
def greater_equal(x1: Tensor | float, x2: Tensor | float) -> Tensor:
    """
    x1 >= x2, element by element, as bool
    
    Rule: ..., ... -> ...
    """
def grouped_linear(x: Tensor, weights: Tensor, counts: Tensor) -> Tensor:
    """
    grouped_matmul with the transposes of weights [experts, n, k]
    """
def grouped_matmul(x: Tensor, weights: Tensor, counts: Tensor) -> Tensor:
    """
    Multiplies rows x [rows, k], sorted by expert, by their expert's matrix of weights [experts, k, n]: [rows, n]. counts [groups, experts] states the rows of each
    """
def heaviside(x1: Tensor | float, x2: Tensor | float) -> Tensor:
    """
    0 for negative x1, 1 for positive x1, x2 for 0
    
    Rule: ..., ..., ... -> ...
    """
def histc(x: Tensor, bins: int = 100, min: float = 0.0, max: float = 0.0) -> Tensor:
    """
    Counts the elements in each of `bins` equal intervals from min to max; of all elements if these are equal
    """
def histogram(x: Tensor, bins: int | Tensor, *, range: collections.abc.Sequence[float] | None = None, weight: Tensor | None = None, density: builtins.bool = False) -> typing.Any:
    """
    (hist, bin_edges): the number of elements between edges, which `bins` counts or is
    """
def hsplit(x: Tensor, indices_or_sections: int | collections.abc.Sequence[int]) -> tuple:
    """
    Equal parts along dim 1, of a vector along 0; or that end before these
    """
def hstack(tensors: collections.abc.Sequence[Tensor]) -> Tensor:
    """
    Joins along dim 1, vectors along dim 0
    """
def hypot(x1: Tensor | float, x2: Tensor | float) -> Tensor:
    """
    sqrt(x1^2 + x2^2), without overflow on the way
    
    Rule: ..., ... -> ...
    """
def i0(x: Tensor) -> Tensor:
    """
    The modified Bessel function of the first kind of order 0
    
    Rule: ... -> ...
    """
def i1(x: Tensor) -> Tensor:
    """
    The modified Bessel function of the first kind of order 1
    
    Rule: ... -> ...
    """
def igamma(x1: Tensor | float, x2: Tensor | float) -> Tensor:
    """
    The regularised lower incomplete gamma function of x1 from 0 to x2
    
    Rule: ..., ... -> ...
    """
def igammac(x1: Tensor | float, x2: Tensor | float) -> Tensor:
    """
    1 - igamma(x1, x2)
    
    Rule: ..., ... -> ...
    """
def implicit_traffic() -> str:
    """
    Implicit traffic of the calling rank by op, as lines 'op: count, bytes'
    """
def in_memory(tensor: Tensor) -> Tensor:
    """
    The tensor, or a copy in memory of one that rests on disk
    """
def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    """
    x with slice i of alpha * source added to slice index[i] of `dim`
    """
def index_copy(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """
    x with slice index[i] of `dim` replaced by slice i of `source`
    """
def index_fill(x: Tensor, dim: int, index: Tensor, value: Tensor | float) -> Tensor:
    """
    x with the slices `index` of `dim` filled with `value`
    """
def index_put(x: Tensor, indices: collections.abc.Sequence[Tensor | None], values: Tensor | float, accumulate: builtins.bool = False) -> Tensor:
    """
    x with the elements at `indices`, a tensor or None for each dim, replaced by `values`, or added
    """
def index_reduce(x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: builtins.bool = True) -> Tensor:
    """
    The same for slices of `dim`, as index_add
    """
def index_select(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """
    The slices of `dim` at `index` [n]
    """
def inner(x1: Tensor | float, x2: Tensor | float) -> Tensor:
    """
    Sums of products over the last dims
    
    Rule: ..., ... -> ...
    """
def inspect_checkpoint(path: str, *, data: builtins.bool = True, threads: int = 1) -> dict:
    """
    A report on a checkpoint: verdict (COMPLETE, INCOMPLETE, MIXED or CORRUPT), reason, and where; non_finite: elements that are NaN or infinite, -1 when they were not counted. data=False looks at names, sizes and headers only
    """
def interleaved(ranks: int, microbatches: int, chunks: int = 2) -> PipelineProgram:
    """
    1F1B with `chunks` stages a rank: the bubble is as many times smaller
    """
def is_grad_enabled() -> builtins.bool:
    """
    True when ops of this rank are recorded for backward
    """
def isclose(x1: Tensor, x2: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: builtins.bool = False) -> Tensor:
    """
    |x1 - x2| <= atol + rtol * |x2|, or equal: bool
    """
def isfinite(x: Tensor) -> Tensor:
    """
    True where x is neither infinite nor NaN: bool
    
    Rule: ... -> ...
    """
def isin(elements: Tensor, test_elements: Tensor) -> Tensor:
    """
    True where the element is one of test_elements: bool
    """
def isinf(x: Tensor) -> Tensor:
    """
    True where x is infinite: bool
    
    Rule: ... -> ...
    """
def isnan(x: Tensor) -> Tensor:
    """
    True where x is NaN: bool
    
    Rule: ... -> ...
    """
def isneginf(x: Tensor) -> Tensor:
    """
    True where x is -inf: bool
    
    Rule: ... -> ...
    """
def isposinf(x: Tensor) -> Tensor:
    """
    True where x is inf: bool
    
    Rule: ... -> ...
    """
def kron(x1: Tensor | float, x2: Tensor | float) -> Tensor:
    """
    The Kronecker product
    
    Rule: ..., ... -> ...
    """
def kthvalue(x: Tensor, k: int, axis: int = -1, keepdims: builtins.bool = False) -> typing.Any:
    """
    The k-th smallest element along `axis`, counted from 1: (values, indices)
    """
def launched_ranks() -> int:
    """
    Ranks of the job that this process is one rank of (weft run, mpirun, torchrun, srun); 1 for a process that is alone
    """
def layer_norm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-05) -> Tensor:
    """
    (x - mean) / sqrt(variance + eps) * weight [d] + bias [d], along the last dim; ones and zeros if None
    
    Rule: ... d, d, d -> ... d
    """
def ldexp(x1: Tensor | float, x2: Tensor | float) -> Tensor:
    """
    x1 * 2^x2
    
    Rule: ..., ... -> ...
    """
def lerp(x: Tensor, end: Tensor, weight: Tensor | float) -> Tensor:
    """
    x + weight * (end - x)
    """
def less(x1: Tensor | float, x2: Tensor | float) -> Tensor:
    """
    x1 < x2, element by element, as bool
    
    Rule: ..., ... -> ...
    """
def less_equal(x1: Tensor | float, x2: Tensor | float) -> Tensor:
    """
    x1 <= x2, element by element, as bool
    
    Rule: ..., ... -> ...
    """
def lgamma(x: Tensor) -> Tensor:
    """
    log |gamma(x)|
    
    Rule: ... -> ...
    """
def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """
    x [..., k] times the transpose of weight [n, k] (+ bias [n]): [..., n]
    
    Rule: ... k, n k -> ... n
    """
def linear_cross_entropy(x: Tensor, weight: Tensor, targets: Tensor, *, bias: Tensor | None = None, softcap: float = 0.0, multiplier: float = 1.0, class_weight: Tensor | None = None, label_smoothing: float = 0.0, ignore_index: int = -100, z_loss: float = 0.0, reduction: str = 'mean', whole_up_to: int = 4194304) -> Tensor:
    """
    cross_entropy of the logits multiplier * x weight^T + bias, for x [..., d], weight [classes, d] and targets [...], without storing the logits: parts of them are computed, and again in backward. softcap: they become softcap * tanh(logits / softcap). The other options are those of cross_entropy. Logits of at most whole_up_to elements a rank are made whole, which saves computing them again
    
    Layout rule: v [d], ... [d], ... -> ...
    """
def linspace(start: float, stop: float, num: int, *, endpoint: builtins.bool = True, dtype: DType | str | None = None, device: Device | str | None = None, mesh: DeviceMesh | None = None, placements: Placements | collections.abc.Sequence[Shard | Replicate | Partial] | dict[str, Shard | Replicate | Partial] | None = None, requires_grad: builtins.bool = False) -> Tensor:
    """
    `num` evenly spaced numbers from start to stop, which is included with `endpoint`; float32 by default. ValueError when num is negative
    """
def lion_(parameter: typing.Any, m: Tensor, gradient: Tensor, gradient_scale: Tensor, *, lr: float = 0.0001, betas: tuple[float, float] = (0.9, 0.99), weight_decay: float = 0.0) -> None:
    """
    One Lion step (Chen et al., 2023), in place on parameter and m; the gradient counts times the one element of gradient_scale
    
    Rule: ..., ..., ..., . ->
    """
def list_checkpoints(directory: str) -> list[str]:
    """
    Newest first
    """
@typing.overload
def load(path: str, into: TrainingState) -> None:
    """
    Fills the tensors, wherever and however they lie, and the numbers, from a checkpoint of weft's or PyTorch's, or a model in safetensors form. Each rank reads what holds its own elements and checks it; no communication. Of a run's directory it takes the newest complete checkpoint, which the first rank of the tensors' mesh chooses: all its ranks must then call it. ValueError names file, tensor and block
    """
@typing.overload
def load(path: str, into: StateDict) -> None:
    ...
def load_hugging_face(model: Module, path: str, strict: builtins.bool = True) -> SkippedKeys:
    """
    Fills the parameters with the tensors of a .safetensors file, an index of several, or a Hugging Face directory. Each rank reads the elements that it holds; no communication. ValueError, before anything is read, names what is missing or does not fit. strict=False loads what both have, for a model with adapters, and gives the names of the others
    """
def load_peft(model: Module, directory: str) -> None:
    """
    Fills the adapters from such files; a model without adapters gets those of the files. ValueError, before anything is changed, names what does not fit
    """
@typing.overload
def load_state_dict(part: Ema, state: StateDict) -> None:
    ...
@typing.overload
def load_state_dict(part: Module, state: StateDict, *, strict: builtins.bool = True) -> SkippedKeys:
    """
    Copies the elements into a module or an optimizer; they move where the layouts differ. ValueError, before anything is changed, names keys that are missing or unexpected, and shapes that do not fit. strict=False loads what both have and gives the others
    """
@typing.overload
def load_state_dict(part: Optimizer, state: StateDict, *, strict: builtins.bool = True) -> SkippedKeys:
    """
    Copies the elements into a module or an optimizer; they move where the layouts differ. ValueError, before anything is changed, names keys that are missing or unexpected, and shapes that do not fit. strict=False loads what both have and gives the others
    """
def log(x: Tensor) -> Tensor:
    """
    The natural logarithm of x
    
    Rule: ... -> ...
    """
def log10(x: Tensor) -> Tensor:
    """
    The logarithm of x to base 10
    
    Rule: ... -> ...
    """
def log1p(x: Tensor) -> Tensor:
    """
    log(1 + x), exact for small x
    
    Rule: ... -> ...
    """
def log2(x: Tensor) -> Tensor:
    """
    The logarithm of x to base 2
    
    Rule: ... -> ...
    """
def log_normal_(x: typing.Any, mean: float = 1.0, std: float = 2.0) -> typing.Any:
    """
    Draws exp of normal values
    """
def log_softmax(x: Tensor, dim: int = -1) -> Tensor:
    """
    The logarithm of softmax(x), along `dim`
    
    Rule: ... v -> ... v
    """
def logaddexp(x1: Tensor | float, x2: Tensor | float) -> Tensor:
    """
    log(exp(x1) + exp(x2)), without overflow on the way
    
    Rule: ..., ... -> ...
    """
def logaddexp2(x1: Tensor | float, x2: Tensor | float) -> Tensor:
    """
    log2(2^x1 + 2^x2)
    
    Rule: ..., ... -> ...
    """
def logcumsumexp(x: Tensor, axis: int) -> Tensor:
    """
    log(sum(exp)) of all elements up to each along `axis`
    """
def logical_and(x1: Tensor | float, x2: Tensor | float) -> Tensor:
    """
    True where neither is zero: bool
    
    Rule: ..., ... -> ...
    """
def logical_not(x: Tensor) -> Tensor:
    """
    True where x is zero: bool
    
    Rule: ... -> ...
    """
def logical_or(x1: Tensor | float, x2: Tensor | float) -> Tensor:
    """
    True where one is not zero: bool
    
    Rule: ..., ... -> ...
    """
def logical_xor(x1: Tensor | float, x2: Tensor | float) -> Tensor:
    """
    True where just one is not zero: bool
    
    Rule: ..., ... -> ...
    """
def logit(x: Tensor, eps: float | None = None) -> Tensor:
    """
    log(x / (1 - x)); with `eps`, of x limited to [eps, 1 - eps]
    """
def logsumexp(x: Tensor, axis: typing.Any = None, keepdims: builtins.bool = False) -> Tensor:
    """
    log of the sum of exp along `axis`
    
    Rule: ... v -> ...
    """
def manual_seed(seed: int) -> None:
    """
    Random numbers of this rank start again from `seed`; call it with one seed on all ranks
    """
def masked_fill(x: Tensor, mask: Tensor, value: Tensor | float) -> Tensor:
    """
    `value`, in the dtype of x, where `mask` (bool) holds, and x elsewhere
    """
def masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """
    x with the elements where `mask` (bool) holds replaced by those of `source`, in order
    """
def masked_select(x: Tensor, mask: Tensor) -> Tensor:
    """
    The elements where `mask` (bool) holds, in row-major order: [n]
    """
def matmul(x1: Tensor, x2: Tensor) -> Tensor:
    """
    x1 [..., m, k] times x2 [..., k, n]: [..., m, n]; leading dims broadcast, transposed views are free. A vector [k] is a row, or a column, whose dim of size 1 is left out again. ValueError names the sizes that do not fit
    
    Rule: ... m k, ... k n -> ... m n
    """
def matrix_exp(x: Tensor) -> Tensor:
    """
    The sum of x^k / k! of square matrices
    
    Rule: ... m k, ... k n -> ... m n
    """
def matrix_norm(x: Tensor, *, keepdims: builtins.bool = False, ord: typing.Any = 'fro') -> Tensor:
    """
    Norms of the matrices in the last two dims: "fro", the root of the sum of squares; 1 and -1, the largest and smallest sum of magnitudes of a column; inf and -inf, of a row; 2 and -2, the largest and smallest singular value; "nuc", their sum
    """
def matrix_transpose(x: Tensor) -> Tensor:
    """
    x [..., m, n] as [..., n, m]; a view. ValueError for fewer than two dims
    """
def max(x: Tensor, axis: int | collections.abc.Sequence[int] | None = None, keepdims: builtins.bool = False) -> Tensor:
    """
    The largest element over `axis` (all dims unless given); NaN where one is
    
    Rule: d0:max d1  -> d1    (by its attributes; this one of [5, 7])
    """
def maximum(x1: Tensor | float, x2: Tensor | float) -> Tensor:
    """
    The larger of x1 and x2, element by element
    
    Rule: ..., ... -> ...
    """
def mean(x: Tensor, axis: int | collections.abc.Sequence[int] | None = None, keepdims: builtins.bool = False) -> Tensor:
    """
    The mean over `axis` (all dims unless given); of integers in float32
    
    Rule: d0 d1  -> d1    (by its attributes; this one of [5, 7])
    """
def measured_bytes(model: Module) -> dict:
    """
    The measured bytes: the most since the model was sharded, and the traffic
    """
def median(x: Tensor, axis: int | None = None, keepdims: builtins.bool = False) -> typing.Any:
    """
    The lower of the two middle elements, NaN where there is one; along `axis` (values, indices)
    """
def memory_statistics(device: Device | str = ...) -> dict:
    """
    Bytes of the calling rank by purpose (parameters, gradients, optimizer, activations, gathered, other), current and peak; `meta` memory is counted as if it were there
    """
def merge_adapters(model: Module) -> None:
    """
    Adds the product of each adapter to the weight of its Linear and removes the adapters; the parameters stay frozen
    """
def meshgrid(*args, indexing: str = 'xy') -> list[Tensor]:
    """
    A list of tensors, one for each of the given [n0], [n1], ..., with the coordinates of a grid [n0, n1, ...], or [n1, n0, ...] when `indexing` is "xy". ValueError for another indexing, and for tensors that do not have one dim
    """
def min(x: Tensor, axis: int | collections.abc.Sequence[int] | None = None, keepdims: builtins.bool = False) -> Tensor:
    """
    The smallest element over `axis` (all dims unless given); NaN where one is
    
    Rule: d0:min d1  -> d1    (by its attributes; this one of [5, 7])
    """
def minimum(x1: Tensor | float, x2: Tensor | float) -> Tensor:
    """
    The smaller of x1 and x2, element by element
    
    Rule: ..., ... -> ...
    """
def mode(x: Tensor, axis: int = -1, keepdims: builtins.bool = False) -> typing.Any:
    """
    The smallest of the most frequent elements along `axis`, and its last index
    """
def moveaxis(x: Tensor, source: int | collections.abc.Sequence[int], destination: int | collections.abc.Sequence[int]) -> Tensor:
    """
    Moves the dims `source` (one or several) to the places `destination`; the others keep their order. A view. ValueError when their numbers differ or one is given twice
    """
def mse_loss(input: Tensor, target: Tensor, *, reduction: str = 'mean') -> Tensor:
    """
    (input - target)^2 element by element, of equal shapes: with reduction 'mean' its mean, 'sum' its sum, 'none' all of it
    """
def multinomial(x: Tensor, num_samples: int, replacement: builtins.bool = False) -> Tensor:
    """
    num_samples indices of the last dim, drawn in proportion to the elements
    """
def multiply(x1: Tensor | float, x2: Tensor | float) -> Tensor:
    """
    x1 * x2; shapes broadcast, dtypes promote
    
    Rule: ..., ... -> ...
    """
def mv(x: Tensor, vec: Tensor) -> Tensor:
    """
    A matrix times a vector
    """
def mvlgamma(x: Tensor, p: int) -> Tensor:
    """
    The logarithm of the gamma function of p dims
    """
def nan_to_num(x: Tensor, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    """
    x with NaN, inf and -inf replaced; None means the largest and smallest number
    """
def nanmean(x: Tensor, axis: int | collections.abc.Sequence[int] | None = None, keepdims: builtins.bool = False) -> Tensor:
    """
    The mean over `axis` of the elements that are not NaN
    
    Rule: d0 d1  -> d1    (by its attributes; this one of [5, 7])
    """
def nanmedian(x: Tensor, axis: int | None = None, keepdims: builtins.bool = False) -> typing.Any:
    """
    The lower of the two middle elements that are not NaN; along `axis` (values, indices)
    """
def nanquantile(x: Tensor, q: float | collections.abc.Sequence[float], axis: int | None = None, keepdims: builtins.bool = False, *, interpolation: str = 'linear') -> Tensor:
    """
    Quantile q in [0, 1] along `axis`, or of all elements, of those that are not NaN; see `quantile`
    """
def nansum(x: Tensor, axis: int | collections.abc.Sequence[int] | None = None, keepdims: builtins.bool = False) -> Tensor:
    """
    The sum over `axis` of the elements that are not NaN
    
    Rule: d0 d1  -> d1    (by its attributes; this one of [5, 7])
    """
def narrow(x: Tensor, dim: int, start: int, length: int) -> Tensor:
    """
    `length` elements along `dim` from `start` on
    """
def negative(x: Tensor) -> Tensor:
    """
    -x
    
    Rule: ... -> ...
    """
def newest_complete_checkpoint(directory: str, world: Communicator | None = None) -> str:
    """
    Uses names, sizes and headers; '' if there is none. With `world` all its ranks, which call it together, get what the first one finds: each might find another one while a job saves
    """
def newton_schulz(m: Tensor, steps: int = 5, coefficients: typing.Annotated[collections.abc.Sequence[float], "FixedSize(3)"] = [3.4445, -4.775, 2.0315], eps: float = 1e-07) -> Tensor:
    """
    Orthogonalizes a matrix of one rank as a step of Muon does
    """
def next_probabilities(logits: collections.abc.Sequence[float], seen: collections.abc.Sequence[int] = [], *, temperature: float = 0.7, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0, repetition_penalty: float = 1.0) -> list[float]:
    """
    The probability of each token after the options are applied, in transformers' order: repetition penalty, temperature, top-k, top-p, min-p
    """
def nextafter(x1: Tensor | float, x2: Tensor | float) -> Tensor:
    """
    The number next to x1 on the way to x2
    
    Rule: ..., ... -> ...
    """
def nonzero(x: Tensor) -> tuple:
    """
    The indices of the nonzero elements: an int64 tensor [n] for each dim. ValueError for a tensor without dims
    """
def norm(x: Tensor, axis: int | collections.abc.Sequence[int] | None = None, keepdims: builtins.bool = False) -> Tensor:
    """
    sqrt of the sum of squares over `axis`
    
    Rule: d0 d1  -> d1    (by its attributes; this one of [5, 7])
    """
def normal(shape: tuple[int, ...], mean: float = 0.0, std: float = 1.0, *, dtype: DType | str | None = None, device: Device | str | None = None, mesh: DeviceMesh | None = None, placements: Placements | collections.abc.Sequence[Shard | Replicate | Partial] | dict[str, Shard | Replicate | Partial] | None = None, requires_grad: builtins.bool = False) -> Tensor:
    """
    Draws of a normal distribution, from the rank's random state: equal bits for any mesh
    """
def normal_(x: typing.Any, mean: float = 0.0, std: float = 1.0) -> typing.Any:
    """
    Draws all elements anew, of a normal distribution
    """
def not_equal(x1: Tensor | float, x2: Tensor | float) -> Tensor:
    """
    x1 != x2, element by element, as bool
    
    Rule: ..., ... -> ...
    """
def on_device(x: Tensor, device: Device | str) -> Tensor:
    """
    The same layout with this rank's part on `device`; x itself when it is on `device`
    """
def one_forward_one_backward(ranks: int, microbatches: int) -> PipelineProgram:
    """
    1F1B: rank r holds the activations of at most ranks - r microbatches
    """
def one_hot(x: Tensor, num_classes: int = -1) -> Tensor:
    """
    x [...] as rows [..., classes] that are 1 at the element's number, else 0: int64
    """
def ones(*args, shape: tuple[int, ...] = (), dtype: DType | str | None = None, device: Device | str | None = None, mesh: DeviceMesh | None = None, placements: Placements | collections.abc.Sequence[Shard | Replicate | Partial] | dict[str, Shard | Replicate | Partial] | None = None, requires_grad: builtins.bool = False) -> Tensor:
    """
    Ones of `shape`, float32 by default; with `mesh` each rank makes its part
    """
def ones_like(x: Tensor, *, dtype: DType | str | None = None, device: Device | str | None = None, requires_grad: builtins.bool = False) -> Tensor:
    """
    Ones with the shape, layout and dtype of x
    """
def outer(x1: Tensor, x2: Tensor) -> Tensor:
    """
    x1 [m] times x2 [n]: [m, n]. ValueError when one has not one dim
    """
def pad(x: Tensor, dim: int, before: int, after: int) -> Tensor:
    """
    `before` and `after` zeros more along `dim`
    
    Rule: ~d0 d1 -> +n0 d1    (by its attributes; this one of [7, 5])
    """
def parallelize(module: Module, mesh: DeviceMesh, plan: dict) -> Module:
    """
    Lays out the module's parameters along `mesh`, a view of one axis (mesh['tp']), as the plan says, {path: style or list of styles} with * for any part of one name; whole along other axes. Inputs must be laid out over the root mesh. Call it before fully_shard. ValueError, with nothing changed, for a path that matches nothing, heads that are not divided, or a style that does not fit its module. Gives the module
    """
def peft_options(model: Module, directory: str) -> dict:
    """
    The options of the adapters in such files, as add_adapters takes them before a model is sharded: rank, alpha, dropout, rslora and targets, which are paths in the model
    """
def permute_dims(x: Tensor, axes: collections.abc.Sequence[int] | int) -> Tensor:
    """
    Dim i of the result is dim axes[i] of x; a view
    
    Rule: d0 d1  -> d1 d0    (by its attributes; this one of [5, 7])
    """
def plan_memory(build: collections.abc.Callable, mesh: DeviceMesh, memory: int, *, directory: str = '', micro_steps: int = 1, strategy: str = 'full_shard', mp_policy: MixedPrecision | None = None, optimizer: str = 'adamw') -> MemoryPlan:
    """
    Chooses what blocks save for backward, whether parameters stay gathered, how many units are gathered early, whether the parts of blocks are units and, with a directory, what rests on disk there, so that a training step with `optimizer` takes at most `memory` bytes of each rank. build(mesh) gives a model over a mesh like `mesh.root()`, its blocks in the order of forward, and a function that runs forward and backward of one micro-step on device "meta"; it is called several times. ValueError with the least that would fit where nothing does. Computed without communication; ranks that call it alike choose alike
    """
def polygamma(n: int, x: Tensor) -> Tensor:
    """
    The n-th derivative of digamma
    """
def positive(x: Tensor) -> Tensor:
    """
    +x: x itself
    """
def pow(x1: Tensor | float, x2: Tensor | float) -> Tensor:
    """
    x1 ** x2. Integers wrap, and a negative exponent gives the integer part
    
    Rule: ..., ... -> ...
    """
def predicted_bytes(model: Module, micro_steps: int = 1) -> dict:
    """
    Bytes that sharding will own on this rank and receive in a step, by arithmetic
    """
def prod(x: Tensor, axis: int | collections.abc.Sequence[int] | None = None, keepdims: builtins.bool = False, *, dtype: DType | str | None = None) -> Tensor:
    """
    The product over `axis` (all dims unless given), of elements as `dtype`; integers and bool multiply in int64, without sign in uint64, unless it is given
    
    Rule: [d0] d1  -> d1    (by its attributes; this one of [5, 7])
    """
def promote(a: DType | str, b: DType | str) -> DType | str:
    """
    The dtype that holds both, as in the Python array API; integer with float gives the float
    """
def put(x: Tensor, index: Tensor, source: Tensor, accumulate: builtins.bool = False) -> Tensor:
    """
    x with the elements at `index` of the flattened tensor replaced by those of `source`, or added
    """
def quantile(x: Tensor, q: float | collections.abc.Sequence[float], axis: int | None = None, keepdims: builtins.bool = False, *, interpolation: str = 'linear') -> Tensor:
    """
    Quantile q in [0, 1] along `axis`, or of all elements; NaN where there is one. Several q make a first dim. `interpolation`: 'linear', 'lower', 'higher', 'nearest' or 'midpoint'
    """
def quantize_base(model: Module, bits: int) -> list[str]:
    """
    Stores the weight of each Linear but the head, and of adapters, in 8 or 4 bits, in blocks of 64 elements of a row that have a scale each. They are not trained any more. Gives the paths. Call it before parallelize and fully_shard
    """
def rad2deg(x: Tensor) -> Tensor:
    """
    Radians as degrees
    
    Rule: ..., ... -> ...
    """
def rand(*args, shape: tuple[int, ...] = (), dtype: DType | str | None = None, device: Device | str | None = None, mesh: DeviceMesh | None = None, placements: Placements | collections.abc.Sequence[Shard | Replicate | Partial] | dict[str, Shard | Replicate | Partial] | None = None, requires_grad: builtins.bool = False) -> Tensor:
    """
    Even draws from [0, 1); equal bits for any mesh
    """
def rand_like(x: Tensor, *, dtype: DType | str | None = None, device: Device | str | None = None, requires_grad: builtins.bool = False) -> Tensor:
    """
    Uniform in [0, 1), in shape, dtype and layout of x
    
    Rule: ..., ... -> ...
    """
def randint_like(x: Tensor, low: int, high: int, *, dtype: DType | str | None = None, device: Device | str | None = None, requires_grad: builtins.bool = False) -> Tensor:
    """
    Integers in [low, high), in shape and layout of x
    """
def randn(*args, shape: tuple[int, ...] = (), dtype: DType | str | None = None, device: Device | str | None = None, mesh: DeviceMesh | None = None, placements: Placements | collections.abc.Sequence[Shard | Replicate | Partial] | dict[str, Shard | Replicate | Partial] | None = None, requires_grad: builtins.bool = False) -> Tensor:
    """
    Standard normal draws; equal bits for any mesh
    """
def randn_like(x: Tensor, *, dtype: DType | str | None = None, device: Device | str | None = None, requires_grad: builtins.bool = False) -> Tensor:
    """
    Standard normal, in shape, dtype and layout of x
    
    Rule: ..., ... -> ...
    """
def reciprocal(x: Tensor) -> Tensor:
    """
    1 / x for each element; float32 for integers
    
    Rule: ..., ... -> ...
    """
def recompute(function: collections.abc.Callable, *args, kept: collections.abc.Sequence[str] = [], offload: builtins.bool | str = False) -> typing.Any:
    """
    Runs function(*tensors) without recording it, and again, recorded, in backward: memory for time. Random numbers are equal in both runs. `kept` names ops whose results are saved and not computed again. `offload`: as Module.offload_activations
    """
def reduce_scatter_tensor(output_tensor: Tensor, input_tensor: Tensor, group: Communicator, counts: collections.abc.Sequence[int] | None = None) -> None:
    """
    Writes this rank's part, of `counts` elements (equal ones by default), of the sum over the group's ranks into `output_tensor`
    """
def release_cached_memory() -> None:
    """
    Gives cached memory of the calling rank back to the system
    """
def relu(x: Tensor) -> Tensor:
    """
    max(x, 0); its gradient at 0 is 0
    
    Rule: ... -> ...
    """
def remainder(x1: Tensor | float, x2: Tensor | float) -> Tensor:
    """
    x1 % x2, with the sign of x2; integers by 0 give 0
    
    Rule: ..., ... -> ...
    """
def renorm(x: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """
    The slices of `dim` whose p-norm is above maxnorm, scaled to it
    """
def repeat(x: Tensor, repeats: Tensor | int, axis: int | None = None) -> Tensor:
    """
    Repeats each element of `axis` (of the flattened tensor when None) `repeats` times: an int, or a tensor of one count each, which every rank reads. ValueError for negative counts
    """
def reset_peak_memory(device: Device | str = ...) -> None:
    """
    Peaks start again from the current bytes
    """
def reshape(x: Tensor, shape: tuple[int, ...], *, copy: builtins.bool | None = None) -> Tensor:
    """
    The same elements in row-major order as `shape`, of whose sizes one may be -1; a view where memory allows. copy=True always copies; copy=False never, but raises ValueError
    
    Rule: f0 f1 f2  -> f0 (f1 f2 )    (by its attributes; this one of [5, 6, 7])
    """
def rests_on_disk(tensor: Tensor) -> builtins.bool:
    """
    True when the elements of this rank rest in a file (offload="disk:DIR")
    """
def rms_norm(x: Tensor, weight: Tensor | None = None, eps: float = 1e-05) -> Tensor:
    """
    x / sqrt(mean of x^2 along the last dim + eps) * weight [d], ones if None
    
    Rule: ... d, d -> ... d
    """
def roll(x: Tensor, shift: int | collections.abc.Sequence[int], axis: int | collections.abc.Sequence[int] | None = None) -> Tensor:
    """
    Moves the elements by `shift` along `axis`, from the end to the front; several shifts for several axes; over the flattened tensor when axis is None. ValueError when their numbers differ
    """
def rope(x: Tensor, theta: float = 10000.0, position: int | Tensor = 0) -> Tensor:
    """
    Rotary position embedding of x [batch, sequence, heads, d] in Hugging Face's 'rotate half' convention; positions start at `position`, or are that tensor of integers [batch, sequence]
    
    Rule: b s h [d] -> b s h [d]
    """
def rot90(x: Tensor, k: int = 1, dims: collections.abc.Sequence[int] = [0, 1]) -> Tensor:
    """
    Turns the plane of two dims by 90 degrees k times, from the first to the second
    """
def round(x: Tensor) -> Tensor:
    """
    The nearest integer, halves to the even one; the dtype stays
    
    Rule: ... -> ...
    """
def route_tokens(logits: Tensor, options: RouterOptions | None = None, bias: Tensor | None = None) -> Routing:
    """
    Chooses experts by logits [tokens, experts], in float32; `bias` is added to the scores for the choice only
    """
def router_z_loss(logits: Tensor) -> Tensor:
    """
    The mean over tokens of logsumexp(logits)^2
    """
def rows_by_expert(experts: Tensor, weights: Tensor, capacity_factor: float | None = None, imbalance: float = 1.0) -> ExpertRows:
    """
    Sorts the choices of tokens, experts [tokens, k], for stacked weights [experts, ...]: each rank gets the rows of its own experts. With a capacity_factor, an expert computes at most ceil(factor * choices of the group / experts) rows of a group. On device meta choices are spread evenly, but the first ranks have `imbalance` times the mean
    """
def rsqrt(x: Tensor) -> Tensor:
    """
    1 / sqrt(x)
    
    Rule: ... -> ...
    """
def rsub(x: Tensor, other: Tensor | float, *, alpha: float = 1) -> Tensor:
    """
    other - alpha * x
    """
def run_ranks(ranks: int, body: collections.abc.Callable, *, deadline: float = 600.0, threads_per_rank: int = 0, seed: int = 0, checks_equality: builtins.bool | None = None) -> list:
    """
    Calls body(world) on `ranks` threads of this process, each a rank, and returns what they returned, by rank. When one raises, the others end too and its exception is raised here; so at Ctrl-C. Waits for other ranks end after `deadline` seconds with a CommError. threads_per_rank 0 shares the machine's cores evenly. checks_equality: whether tensors given to distribute are compared between ranks; None compares a sample of the first ones
    """
def save_peft(model: Module, directory: str, *, base_model: str = '', task: str = 'CAUSAL_LM', world: Communicator | None = None) -> None:
    """
    Writes the adapters as adapter_model.safetensors and adapter_config.json of the PEFT library. All ranks of a sharded model, or of `world`, call it, and the first one writes. base_model: the directory or the hub's name of the model that they belong to
    """
def scale_(x: typing.Any, factor: Tensor) -> typing.Any:
    """
    x *= factor, of one element, in place
    
    Rule: ..., . ->
    """
def scatter(whole: Tensor | None, mesh: DeviceMesh, placements: Placements | collections.abc.Sequence[Shard | Replicate | Partial] | dict[str, Shard | Replicate | Partial], root: int = 0) -> Tensor:
    """
    Sends root's `whole` to the ranks of the mesh; other ranks give None, or any. Not recorded: a leaf on all ranks where root's requires a gradient
    """
def scatter_add(x: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """
    x with src[.., i, ..] added to element index[.., i, ..] along `dim`
    """
def scatter_reduce(x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: builtins.bool = True) -> Tensor:
    """
    x with element index[.., i, ..] along `dim` combined with src[.., i, ..]: the sum, prod, mean, amax or amin of them; of x too if include_self
    """
def schedule_named(name: str, peak: float = 0.001, warmup: int = 0, total: int = 1, floor: float = 0.0, *, from_zero: builtins.bool = True, cosine_cycles: float = 0.5, restarts: int = 1, power: float = 1.0, decay: int = 0, decay_type: str = 'cosine', timescale: int = 0, rising: float = 0.3, first_divisor: float = 25.0, last_divisor: float = 10000.0) -> Schedule:
    """
    The schedule of that name (see schedule_names()), with the rates of transformers.get_scheduler: warm-up to `peak`, then a fall to `floor` at step `total`. from_zero=False: the first rate is peak / warmup, not 0
    """
def schedule_names() -> list[str]:
    """
    The names that schedule_named takes
    """
def searchsorted(x1: Tensor, x2: Tensor, *, side: str = 'left', sorter: Tensor | None = None) -> Tensor:
    """
    The positions at which the elements of x2 would be inserted into the sorted x1 [n] (sorted by the indices `sorter` if given), before or after equal elements by `side`: int64, with the shape of x2. x1 [.., n] has a row for each row of x2 [.., m]
    """
def select(x: Tensor, dim: int, index: int) -> Tensor:
    """
    Element `index` of `dim`, which the result lacks
    """
def select_scatter(x: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """
    x with element `index` of `dim` replaced by src
    """
def set_grad_enabled(enabled: builtins.bool) -> builtins.bool:
    """
    Gives what was in force before; `with weft.no_grad():` is a scope of it
    """
def set_num_threads(threads: int) -> None:
    """
    Sets how many threads this rank's kernels use, 1 to 1024
    """
def set_rng_state(state: tuple[int, int]) -> None:
    """
    Lets them go on from a state that get_rng_state gave
    """
def set_traffic(policy: str) -> str:
    """
    Gives what was in force before; `with weft.traffic(...)` is a scope of it
    """
def sgd_(parameter: typing.Any, velocity: Tensor, gradient: Tensor, gradient_scale: Tensor, lr: float, momentum: float = 0.0, weight_decay: float = 0.0) -> None:
    """
    velocity = momentum * velocity + gradient * gradient_scale + weight_decay * parameter; parameter -= lr * velocity, in place
    
    Rule: ..., ..., ..., . ->
    """
def share_comm_ctx(modules: collections.abc.Iterable) -> None:
    """
    Lets sharded models, e.g. the stages of a pipeline, use the same buffers and streams. Each is the outermost sharded module of its model
    """
def sigmoid(x: Tensor) -> Tensor:
    """
    1 / (1 + exp(-x))
    
    Rule: ... -> ...
    """
def sign(x: Tensor) -> Tensor:
    """
    -1, 0 or 1; NaN for NaN
    
    Rule: ... -> ...
    """
def signbit(x: Tensor) -> Tensor:
    """
    True where the sign is negative, also of -0 and NaN: bool
    
    Rule: ... -> ...
    """
def silu(x: Tensor) -> Tensor:
    """
    x * sigmoid(x)
    
    Rule: ... -> ...
    """
def sin(x: Tensor) -> Tensor:
    """
    The sine of x, in radians
    
    Rule: ... -> ...
    """
def sinc(x: Tensor) -> Tensor:
    """
    sin(pi x) / (pi x), 1 at 0
    
    Rule: ... -> ...
    """
def sinh(x: Tensor) -> Tensor:
    """
    The hyperbolic sine of x
    
    Rule: ... -> ...
    """
def slice(x: Tensor, dim: int, start: int, stop: int, step: int = 1) -> Tensor:
    """
    Elements start, start + step, ... below stop of `dim`; negative start and stop count from the end
    
    Rule: ~d0 d1 -> +n0 d1    (by its attributes; this one of [7, 5])
    """
def softmax(x: Tensor, dim: int = -1) -> Tensor:
    """
    exp(x) / sum of exp(x) along `dim`
    
    Rule: ... v -> ... v
    """
def sort(x: Tensor, axis: int = -1, descending: builtins.bool = False, stable: builtins.bool = True) -> Tensor:
    """
    The elements sorted along `axis`, always stably; NaN is the greatest value
    
    Rule: d0 n -> d0 n , d0 n    (by its attributes; this one of [5, 7])
    """
@typing.overload
def split(x: Tensor, split_size_or_sections: int, dim: int = 0) -> tuple:
    """
    Parts along `dim` of that size, the last of fewer; or of these sizes
    """
@typing.overload
def split(x: Tensor, split_size_or_sections: collections.abc.Sequence[int], dim: int = 0) -> tuple:
    ...
def split_text_dataset(paths: str | collections.abc.Sequence[str], batch: int, *, sequence: int, tokenizer: Tokenizer | None = None, seed: int = 0, vocabulary: int = 0, field: str = '', loss: str = 'automatic', pack: builtins.bool = False, long_documents: str = 'split', weights: collections.abc.Sequence[float] = [], cache: str = '', bytes: builtins.bool = False, threads: int = 0) -> tuple[Dataset, Dataset]:
    """
    The same, and a dataset of rows held out: a twentieth, at least 1 row and at most 16 batches of `batch` rows. Returns both
    """
def sqrt(x: Tensor) -> Tensor:
    """
    The square root of x
    
    Rule: ... -> ...
    """
def square(x: Tensor) -> Tensor:
    """
    x * x
    
    Rule: ... -> ...
    """
def squeeze(x: Tensor, axis: int | collections.abc.Sequence[int] | None = None) -> Tensor:
    """
    Removes the dims of size 1 that `axis` names, or all of them; a view
    
    Rule: f0 f1 f2  -> f0 (f1 f2 )    (by its attributes; this one of [5, 6, 7])
    """
def stack(arrays: collections.abc.Sequence[Tensor], axis: int = 0) -> Tensor:
    """
    Joins tensors of one shape along a new dim `axis`. ValueError when shapes differ or there are none
    """
@typing.overload
def state_dict(part: Module) -> StateDict:
    """
    The state of a module or an optimizer; its tensors alias. No traffic
    """
@typing.overload
def state_dict(part: Optimizer) -> StateDict:
    ...
@typing.overload
def state_dict(part: Ema) -> StateDict:
    ...
def std(x: Tensor, axis: int | collections.abc.Sequence[int] | None = None, *, correction: float = 0.0, keepdims: builtins.bool = False) -> Tensor:
    """
    The standard deviation over `axis` (all dims unless given), the square root of `var`; of integers in float32. The gradient of equal elements is 0
    """
def subtract(x1: Tensor | float, x2: Tensor | float) -> Tensor:
    """
    x1 - x2; shapes broadcast, dtypes promote
    
    Rule: ..., ... -> ...
    """
def sum(x: Tensor, axis: int | collections.abc.Sequence[int] | None = None, keepdims: builtins.bool = False, *, dtype: DType | str | None = None) -> Tensor:
    """
    The sum over `axis` (all dims unless given), of elements as `dtype`; integers and bool sum up in int64, without sign in uint64, unless it is given
    
    Rule: d0 d1  -> d1    (by its attributes; this one of [5, 7])
    """
def sum_squares(x: Tensor, axis: int | collections.abc.Sequence[int] | None = None, keepdims: builtins.bool = False) -> Tensor:
    """
    The sum of squares over `axis`, as float32
    
    Rule: d0 d1  -> d1    (by its attributes; this one of [5, 7])
    """
def summary(module: Module) -> str:
    """
    A table of the parameters: name, shape, dtype, elements, trained, layout, bytes on this rank; equal ones of numbered modules share a line
    """
def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """
    silu(gate) * up, of equal shapes
    
    Rule: ..., ... -> ...
    """
def take(x: Tensor, indices: Tensor, axis: int | None = None) -> Tensor:
    """
    Slices `indices` [n] of `axis`, which is required unless x has one dim; negative indices count from the end. ValueError names an index out of bounds
    
    Rule: ~n d1 , i-> i d1    (by its attributes; this one of [7, 3], [5])
    """
def take_along_axis(x: Tensor, indices: Tensor, axis: int = -1) -> Tensor:
    """
    Element indices[.., i, ..] of `axis` for each element of `indices`, which has as many dims as x; the other dims broadcast. ValueError names an index out of bounds
    
    Rule: ~n d1 , i d1 -> i d1    (by its attributes; this one of [7, 3], [5, 3])
    """
def tan(x: Tensor) -> Tensor:
    """
    The tangent of x, in radians
    
    Rule: ... -> ...
    """
def tanh(x: Tensor) -> Tensor:
    """
    The hyperbolic tangent of x
    
    Rule: ... -> ...
    """
@typing.overload
def tensor_split(x: Tensor, indices_or_sections: int, dim: int = 0) -> tuple:
    """
    Parts along `dim` whose sizes differ by at most 1; or that end before these indices
    """
@typing.overload
def tensor_split(x: Tensor, indices_or_sections: collections.abc.Sequence[int], dim: int = 0) -> tuple:
    ...
def tensordot(x1: Tensor, x2: Tensor, axes: int | tuple[int | collections.abc.Sequence[int], int | collections.abc.Sequence[int]] = 2) -> Tensor:
    """
    Sums products of x1 and x2 over the last `axes` dims of x1 and the first of x2, or over pairs of dims (dims of x1, dims of x2). The result has the other dims of x1, then those of x2. ValueError names sizes that differ
    """
def text_dataset(paths: str | collections.abc.Sequence[str], *, sequence: int, tokenizer: Tokenizer | None = None, seed: int = 0, vocabulary: int = 0, field: str = '', loss: str = 'automatic', pack: builtins.bool = False, long_documents: str = 'split', weights: collections.abc.Sequence[float] = [], cache: str = '', bytes: builtins.bool = False, threads: int = 0) -> Dataset:
    """
    Rows of files of text, of lines of JSON (.jsonl) with texts (`text`, or `field`) or conversations (`messages`, or `prompt` and `completion`), or of token files (.bin), shuffled anew each epoch. paths: one or several files or directories. tokenizer: turns text into tokens; without one bytes are the tokens. loss: the tokens that count, by default the assistant's in conversations and all others. pack: several documents in a row, with segments. long_documents: what becomes of a document that is longer than a row: several rows, its first row, or none. weights: the share of the rows that each path has. cache: a folder that keeps tokens for the next run. ValueError names a file or line that is wrong
    """
def tile(x: Tensor, repetitions: int | collections.abc.Sequence[int]) -> Tensor:
    """
    Repeats the whole tensor repetitions[i] times along dim i, counted from the last one. ValueError for a negative number
    """
def topk(x: Tensor, k: int, axis: int = -1, largest: builtins.bool = True, sorted: builtins.bool = True) -> typing.Any:
    """
    The k largest, or smallest, elements along `axis`, always in order: (values, indices)
    """
def trace(x: Tensor, *, offset: int = 0, dtype: DType | str | None = None) -> Tensor:
    """
    The sum of elements (i, i + offset) of the last two dims; integers in int64 unless `dtype` is given. ValueError when x has fewer than two dims
    """
def transfer_(to: Tensor, source: Tensor) -> None:
    """
    copy_ between a GPU and pinned memory of the host (what `offload` keeps there) that is queued only: the host's is read or written when the GPU's stream comes to it
    """
def transformer_block(config: TransformerConfig, layer: int = 0) -> Module:
    """
    One block, for models with other inputs and outputs than TransformerModel: hidden states [batch, sequence, dim], and the mask of an encoder or the segments of packed rows, to hidden states
    """
def transformer_config(source: str) -> TransformerConfig:
    """
    `source` is 'tiny', 'small', a Hugging Face config.json or a directory that holds one. ValueError names the file, the key and what is wrong
    """
def transformer_families() -> list[str]:
    """
    The values of "model_type" in config.json that are known
    """
def transformer_styles(config: TransformerConfig, *, sequence_parallel: builtins.bool = False, parts: int = 1) -> dict:
    """
    The plan of a TransformerModel: embedding, head and loss cut over the vocabulary, attention by heads, the feed-forward along its width. `parts`: products are split so that gathers and reductions overlap with them
    """
def transpose(x: Tensor, dim0: int, dim1: int) -> Tensor:
    """
    Exchanges two dims; a view
    
    Rule: d0 d1  -> d1 d0    (by its attributes; this one of [5, 7])
    """
def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float = 1.0, dim: int = -1) -> Tensor:
    """
    The integral along `dim` by the trapezoidal rule, of values at x or dx apart
    """
def tril(x: Tensor, k: int = 0) -> Tensor:
    """
    x with zeros above diagonal `k` of its last two dims
    
    Rule: ... m n -> ... m n
    """
def triu(x: Tensor, k: int = 0) -> Tensor:
    """
    x with zeros below diagonal `k` of its last two dims
    
    Rule: ... m n -> ... m n
    """
def trunc(x: Tensor) -> Tensor:
    """
    The integer of x towards 0; the dtype stays
    
    Rule: ... -> ...
    """
def unbind(x: Tensor, dim: int = 0) -> tuple:
    """
    The slices of `dim`, which do not have that dim
    """
def unflatten(x: Tensor, dim: int, sizes: collections.abc.Sequence[int]) -> Tensor:
    """
    Dim `dim` as dims of `sizes`, of which one may be -1
    """
def unfold(x: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """
    Windows of `size` elements along a dim, `step` apart, in a new last dim
    """
def uniform(shape: tuple[int, ...], low: float = 0.0, high: float = 1.0, *, dtype: DType | str | None = None, device: Device | str | None = None, mesh: DeviceMesh | None = None, placements: Placements | collections.abc.Sequence[Shard | Replicate | Partial] | dict[str, Shard | Replicate | Partial] | None = None, requires_grad: builtins.bool = False) -> Tensor:
    """
    Evenly in [low, high), from the rank's random state: equal bits for any mesh
    """
def uniform_(x: typing.Any, low: float = 0.0, high: float = 1.0) -> typing.Any:
    """
    Draws all elements anew, evenly in [low, high)
    """
def unique_all(x: Tensor) -> typing.Any:
    """
    The distinct elements in order, the first index of each in the flattened tensor, the index of each element of x among them, and their counts. NaNs are all distinct
    """
def unique_counts(x: Tensor) -> typing.Any:
    """
    The distinct elements of x in order, and their counts. NaNs are all distinct
    """
def unique_inverse(x: Tensor) -> typing.Any:
    """
    The distinct elements of x in order, and the index of each element of x among them. NaNs are all distinct
    """
def unique_values(x: Tensor) -> Tensor:
    """
    The distinct elements of x in order: [n]. NaNs are all distinct
    """
def unsqueeze(x: Tensor, dim: int) -> Tensor:
    """
    Adds a dim of size 1 before dim `dim`; a view
    
    Rule: f0 f1 f2  -> f0 (f1 f2 )    (by its attributes; this one of [5, 6, 7])
    """
def unstack(x: Tensor, axis: int = 0) -> tuple:
    """
    A tuple of the slices of `axis`, which do not have that dim
    """
def vander(x: Tensor, N: int = -1, increasing: builtins.bool = False) -> Tensor:
    """
    Powers of a vector as columns
    """
def var(x: Tensor, axis: int | collections.abc.Sequence[int] | None = None, *, correction: float = 0.0, keepdims: builtins.bool = False) -> Tensor:
    """
    The variance over `axis` (all dims unless given): squares of the differences from the mean, summed and divided by their number - correction; of integers in float32
    """
def vecdot(x1: Tensor, x2: Tensor, *, axis: int = -1) -> Tensor:
    """
    Sums products along `axis`, counted from the end; the other dims broadcast. ValueError when the sizes of that dim differ
    """
def vector_norm(x: Tensor, *, axis: int | collections.abc.Sequence[int] | None = None, keepdims: builtins.bool = False, ord: float = 2.0) -> Tensor:
    """
    The ord-th root of the sum over `axis` (all dims unless given) of magnitudes to that power; inf and -inf the largest and smallest magnitude, 0 the number of nonzero elements. Integers are converted to float32. The gradient of zeros is 0
    """
def visualize(tensor: Tensor, placements: Placements | collections.abc.Sequence[Shard | Replicate | Partial] | dict[str, Shard | Replicate | Partial] | None = None) -> Picture:
    """
    The part of a tensor on each rank, as a Picture. With `placements`, also the plan of tensor.redistribute(placements) and which rank holds which part after it. No communication
    """
def vsplit(x: Tensor, indices_or_sections: int | collections.abc.Sequence[int]) -> tuple:
    """
    Equal parts along dim 0; or that end before these
    """
def vstack(tensors: collections.abc.Sequence[Tensor]) -> Tensor:
    """
    Joins along dim 0; vectors are rows
    """
def where(condition: Tensor, x1: Tensor | float, x2: Tensor | float) -> Tensor:
    """
    x1 where `condition` (bool) holds, x2 elsewhere
    
    Rule: ..., ..., ... -> ...
    """
def with_loss(x: Tensor, loss: Tensor, scale: float = 1.0) -> Tensor:
    """
    x, whose backward also sends the gradient `scale` to `loss`
    """
def with_messages(name: str, microbatches: int, rank_of_stage: collections.abc.Sequence[int], table: collections.abc.Sequence[collections.abc.Sequence[tuple[str, int, int]]]) -> PipelineProgram:
    """
    A program of a table by rank of computing steps, tuples ('forward', 'backward', 'backward_input' or 'backward_weight', stage, microbatch): adds messages and reductions
    """
def xlogy(x1: Tensor | float, x2: Tensor | float) -> Tensor:
    """
    x1 * log(x2), but 0 where x1 is 0 and x2 is not NaN
    
    Rule: ..., ... -> ...
    """
def zero_bubble(ranks: int, microbatches: int) -> PipelineProgram:
    """
    ZB-H1: gradients of weights fill the bubble of 1F1B
    """
def zeros(*args, shape: tuple[int, ...] = (), dtype: DType | str | None = None, device: Device | str | None = None, mesh: DeviceMesh | None = None, placements: Placements | collections.abc.Sequence[Shard | Replicate | Partial] | dict[str, Shard | Replicate | Partial] | None = None, requires_grad: builtins.bool = False) -> Tensor:
    """
    Zeros of `shape`, float32 by default; with `mesh` each rank makes its part
    """
def zeros_like(x: Tensor, *, dtype: DType | str | None = None, device: Device | str | None = None, requires_grad: builtins.bool = False) -> Tensor:
    """
    Zeros with the shape, layout and dtype of x
    """
IGNORED_TARGET: int = -100
_METHODS: tuple = ('abs', 'add', 'addcdiv', 'addcmul', 'addmm', 'all', 'allclose', 'amax', 'amin', 'any', 'argmax', 'argmin', 'astype', 'baddbmm', 'ceil', 'chunk', 'clone', 'contiguous', 'copy_', 'cos', 'cummax', 'cummin', 'diag', 'divide', 'dot', 'erf', 'exp', 'exp2', 'explain', 'fill_', 'flatten', 'floor', 'fmod', 'frac', 'gather', 'index_add', 'index_copy', 'index_fill', 'index_reduce', 'index_select', 'isclose', 'isfinite', 'isinf', 'isnan', 'kthvalue', 'lerp', 'log', 'log_softmax', 'logcumsumexp', 'logit', 'logsumexp', 'masked_fill', 'masked_select', 'matmul', 'max', 'mean', 'median', 'min', 'multiply', 'mv', 'nan_to_num', 'nanmean', 'nanmedian', 'nansum', 'narrow', 'norm', 'normal_', 'pow', 'prod', 'relu', 'round', 'rsqrt', 'scatter_add', 'scatter_reduce', 'select', 'sigmoid', 'silu', 'sin', 'softmax', 'split', 'sqrt', 'square', 'squeeze', 'subtract', 'sum', 'tanh', 'tensor_split', 'topk', 'transpose', 'tril', 'triu', 'unbind', 'unflatten', 'unfold', 'uniform_', 'unsqueeze')
_WORDS: tuple = (['axis', 'dim', 'axes', 'dims'], ['keepdims', 'keepdim'], ['k', 'diagonal'], ['shift', 'shifts'], ['x', 'x1', 'input'], ['x2', 'other'], ['arrays', 'tensors'], ['stop', 'end'], ['num', 'steps'], ['shape', 'size'], ['mesh', 'device_mesh'])
__version__: str
bf16: DType
bfloat16: DType
bool: DType
f16: DType
f32: DType
f64: DType
f8_e4m3: DType
f8_e5m2: DType
float16: DType
float32: DType
float64: DType
float8_e4m3fn: DType
float8_e5m2: DType
i16: DType
i32: DType
i64: DType
i8: DType
int16: DType
int32: DType
int64: DType
int8: DType
u16: DType
u32: DType
u64: DType
u8: DType
uint16: DType
uint32: DType
uint64: DType
uint8: DType
def _torch_add(input: Tensor | float, other: Tensor | float, *, alpha: float = 1) -> Tensor:
    """
    input + alpha * other; as `weft.add`
    """
def _torch_subtract(input: Tensor | float, other: Tensor | float, *, alpha: float = 1) -> Tensor:
    """
    input - alpha * other; as `weft.subtract`
    """
def _init_constant_(tensor: typing.Any, val: float) -> typing.Any:
    """
    Fills with `val`
    """
def _init_normal_(tensor: typing.Any, mean: float = 0.0, std: float = 1.0) -> typing.Any:
    """
    Fills from a normal distribution
    """
def _init_uniform_(tensor: typing.Any, a: float = 0.0, b: float = 1.0) -> typing.Any:
    """
    Fills from a uniform distribution on [a, b)
    """
def _init_xavier_uniform_(tensor: typing.Any, gain: float = 1.0) -> typing.Any:
    """
    Fills uniformly within +-gain * sqrt(6 / (inputs + outputs)) (Glorot and Bengio, 2010)
    """
def _init_xavier_normal_(tensor: typing.Any, gain: float = 1.0) -> typing.Any:
    """
    Fills from a normal distribution of deviation gain * sqrt(2 / (inputs + outputs))
    """
def _init_kaiming_uniform_(tensor: typing.Any, a: float = 0.0, mode: str = 'fan_in', nonlinearity: str = 'leaky_relu') -> typing.Any:
    """
    Fills uniformly within +-sqrt(3) deviations of kaiming_normal_ (He et al., 2015)
    """
def _init_kaiming_normal_(tensor: typing.Any, a: float = 0.0, mode: str = 'fan_in', nonlinearity: str = 'leaky_relu') -> typing.Any:
    """
    Normal, of deviation gain / sqrt(inputs), or gain / sqrt(outputs) (He et al., 2015)
    """
def _init_calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """
    The factor that keeps deviations constant through a nonlinearity
    """
def _torch_cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None = None, *, ignore_index: int = -100, reduction: str = 'mean', label_smoothing: float = 0.0) -> Tensor:
    """
    Of logits [..., classes], or where only that fits [rows, classes, ...], against classes [...] or, of logits [rows, classes] or [classes], probabilities of their shape; rows whose target is `ignore_index` do not count. weight: weights of the classes. label_smoothing: the share of the target that all classes have evenly
    """
def _torch_linear_cross_entropy(input: Tensor, linear_weight: Tensor, target: Tensor, *, linear_bias: Tensor | None = None, weight: Tensor | None = None, reduction: str = 'mean', ignore_index: int = -100, label_smoothing: float = 0.0) -> Tensor:
    """
    cross_entropy of the logits input linear_weight^T + linear_bias, which are never stored: of input [..., d], linear_weight [classes, d] and target [...]
    """
def _torch_layer_norm(input: Tensor, normalized_shape: int | collections.abc.Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-05) -> Tensor:
    """
    (x - mean) / sqrt(variance + eps) * weight + bias along the last dims, whose sizes are normalized_shape; without a weight 1, without a bias 0
    """
def _torch_rms_norm(input: Tensor, normalized_shape: int | collections.abc.Sequence[int], weight: Tensor | None = None, eps: float = 1e-05) -> Tensor:
    """
    x / sqrt(mean of x^2 + eps) * weight along the last dims, whose sizes are normalized_shape; without a weight 1
    """
def _torch_scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0, is_causal: builtins.bool = False, *, scale: float | None = None, enable_gqa: builtins.bool = False) -> Tensor:
    """
    softmax(q k^T * scale) v of [batch, heads, sequence, d]; key and value may have fewer heads, each of which serves as many query heads, with enable_gqa or without. attn_mask: bool (False hides a key), or numbers that are added. `weft.attention` takes [batch, sequence, heads, d] and more options
    """
def _torch_roll(input: Tensor, shifts: int | collections.abc.Sequence[int], dims: int | collections.abc.Sequence[int] | None = ()) -> Tensor:
    """
    Moves the elements along `dims`, or the flattened tensor without dims
    """
def _torch_constant_pad_nd(input: Tensor, pad: collections.abc.Sequence[int], value: float = 0.0) -> Tensor:
    """
    pad[0] elements `value` before and pad[1] behind the last dim, [2] and [3] at the one before it, and so on; negative numbers cut
    """
def _torch_all(input: Tensor, dim: int | collections.abc.Sequence[int] | None = None, keepdim: builtins.bool = False) -> Tensor:
    """
    True where all elements along `dim` are not zero: bool; true of none
    
    Rule: d0:min d1  -> d1    (by its attributes; this one of [5, 7])
    """
def _torch_any(input: Tensor, dim: int | collections.abc.Sequence[int] | None = None, keepdim: builtins.bool = False) -> Tensor:
    """
    True where any element along `dim` is not zero: bool; false of none
    
    Rule: d0:max d1  -> d1    (by its attributes; this one of [5, 7])
    """
def _torch_amax(input: Tensor, dim: int | collections.abc.Sequence[int] | None = None, keepdim: builtins.bool = False) -> Tensor:
    """
    The largest element along `dim`; NaN where one is
    
    Rule: d0:max d1  -> d1    (by its attributes; this one of [5, 7])
    """
def _torch_amin(input: Tensor, dim: int | collections.abc.Sequence[int] | None = None, keepdim: builtins.bool = False) -> Tensor:
    """
    The smallest element along `dim`; NaN where one is
    
    Rule: d0:min d1  -> d1    (by its attributes; this one of [5, 7])
    """
def _torch_count_nonzero(input: Tensor, dim: int | collections.abc.Sequence[int] | None = None, keepdim: builtins.bool = False) -> Tensor:
    """
    The number of nonzero elements along `dim`: int64
    
    Rule: d0 d1  -> d1    (by its attributes; this one of [5, 7])
    """
def _torch_mean(input: Tensor, dim: int | collections.abc.Sequence[int] | None = None, keepdim: builtins.bool = False, *, dtype: DType | str | None = None) -> Tensor:
    """
    The mean along `dim`, of elements as `dtype`
    
    Rule: d0 d1  -> d1    (by its attributes; this one of [5, 7])
    """
def _torch_nanmean(input: Tensor, dim: int | collections.abc.Sequence[int] | None = None, keepdim: builtins.bool = False, *, dtype: DType | str | None = None) -> Tensor:
    """
    The mean of the elements along `dim` that are not NaN
    
    Rule: d0 d1  -> d1    (by its attributes; this one of [5, 7])
    """
def _torch_sum(input: Tensor, dim: int | collections.abc.Sequence[int] | None = None, keepdim: builtins.bool = False, *, dtype: DType | str | None = None) -> Tensor:
    """
    The sum along `dim`, of elements as `dtype`; of integers in int64
    
    Rule: d0 d1  -> d1    (by its attributes; this one of [5, 7])
    """
def _torch_prod(input: Tensor, dim: int | collections.abc.Sequence[int] | None = None, keepdim: builtins.bool = False, *, dtype: DType | str | None = None) -> Tensor:
    """
    The product along `dim`, of elements as `dtype`; of integers in int64
    
    Rule: [d0] d1  -> d1    (by its attributes; this one of [5, 7])
    """
def _torch_nansum(input: Tensor, dim: int | collections.abc.Sequence[int] | None = None, keepdim: builtins.bool = False, *, dtype: DType | str | None = None) -> Tensor:
    """
    The sum of the elements along `dim` that are not NaN
    
    Rule: d0 d1  -> d1    (by its attributes; this one of [5, 7])
    """
def _torch_softmax(input: Tensor, dim: int = -1, *, dtype: DType | str | None = None) -> Tensor:
    """
    exp(x) / sum of exp(x) along `dim`, as `dtype`
    
    Rule: ... v -> ... v
    """
def _torch_log_softmax(input: Tensor, dim: int = -1, *, dtype: DType | str | None = None) -> Tensor:
    """
    The logarithm of softmax, as `dtype`
    
    Rule: ... v -> ... v
    """
def _torch_cumsum(input: Tensor, dim: int, *, dtype: DType | str | None = None) -> Tensor:
    """
    The sum of all elements up to each along `dim`, as `dtype`
    """
def _torch_cumprod(input: Tensor, dim: int, *, dtype: DType | str | None = None) -> Tensor:
    """
    The product of all elements up to each along `dim`, as `dtype`
    """
def _torch_max(input: Tensor, dim: Tensor | int | collections.abc.Sequence[int] | None = None, keepdim: builtins.bool = False, *, other: Tensor | None = None) -> typing.Any:
    """
    max(x); max(x, dim) as (values, indices); or of two tensors
    """
def _torch_min(input: Tensor, dim: Tensor | int | collections.abc.Sequence[int] | None = None, keepdim: builtins.bool = False, *, other: Tensor | None = None) -> typing.Any:
    """
    min(x); min(x, dim) as (values, indices); or of two tensors
    """
def _torch_argmax(input: Tensor, dim: int | None = None, keepdim: builtins.bool = False) -> Tensor:
    """
    The index (int64) of the first largest element, of the flattened tensor or along `dim`
    """
def _torch_argmin(input: Tensor, dim: int | None = None, keepdim: builtins.bool = False) -> Tensor:
    """
    The index (int64) of the first least element, of the flattened tensor or along `dim`
    """
def _torch_logsumexp(input: Tensor, dim: int | collections.abc.Sequence[int] = (), keepdim: builtins.bool = False) -> Tensor:
    """
    log of the sum of exp along one dim or several, or of all elements
    """
def _torch_cat(tensors: collections.abc.Sequence[Tensor], dim: int = 0) -> Tensor:
    """
    Joined along a dim; empty tensors of one dim are left out
    """
def _torch_diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """
    Elements (i, i + offset) of two dims, the first two unless given
    """
def _torch_equal(input: Tensor, other: Tensor) -> builtins.bool:
    """
    True when both have the same shape and elements: one bool, equal on all ranks
    """
def _torch_nonzero_static(input: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """
    The first `size` rows of nonzero, with rows of fill_value where there are fewer
    """
def _torch_slice(input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Tensor:
    """
    Elements start, start + step, ... before end of `dim`
    """
def _torch_squeeze(input: Tensor, dim: int | collections.abc.Sequence[int] | None = None) -> Tensor:
    """
    Removes the dims of size 1, or those of `dim` that have it
    """
def _torch_take(input: Tensor, index: Tensor) -> Tensor:
    """
    Elements of the flattened tensor
    """
def _torch_round(input: Tensor, *, decimals: int = 0) -> Tensor:
    """
    Rounds to the nearest number with so many decimals; halves to even
    """
def _linalg_cholesky(x: Tensor, *, upper: builtins.bool = False) -> Tensor:
    """
    L with L @ L.mT = x for positive definite matrices, of which the lower triangle is read; with `upper`, U with U.mT @ U = x, by the upper triangle. ValueError for others, on all ranks
    """
def _linalg_cholesky_ex(x: Tensor, *, upper: builtins.bool = False) -> typing.Any:
    """
    The factor and info, which is not 0 for a matrix that is not positive definite
    """
def _linalg_lu(x: Tensor) -> typing.Any:
    """
    x = P @ L @ U: a permutation, a lower triangle with ones on its diagonal, an upper triangle
    """
def _linalg_lu_factor(x: Tensor) -> typing.Any:
    """
    L (without its diagonal of ones) and U in one matrix, and pivots (int32): row i was exchanged with row pivots[i], counted from 1
    """
def _linalg_lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, adjoint: builtins.bool = False) -> Tensor:
    """
    Solves A @ X = B, or A.mT @ X = B, by the result of lu_factor(A)
    """
def _linalg_qr(x: Tensor, *, mode: str = 'reduced') -> typing.Any:
    """
    x = Q @ R with orthonormal columns of Q: [m, k] for 'reduced', [m, m] for 'complete'
    """
def _linalg_svd(x: Tensor, *, full_matrices: builtins.bool = True) -> typing.Any:
    """
    x = U @ diag(S) @ Vh with S in descending order; U and Vh are square unless full_matrices=False
    """
def _linalg_svdvals(x: Tensor) -> Tensor:
    """
    Singular values in descending order
    """
def _linalg_eigh(x: Tensor, upper: builtins.bool = False) -> typing.Any:
    """
    Eigenvalues, ascending, and eigenvectors (columns) of symmetric matrices, of which one triangle is read
    """
def _linalg_eigvalsh(x: Tensor, upper: builtins.bool = False) -> Tensor:
    """
    Eigenvalues of symmetric matrices, ascending
    """
def _linalg_pinv(x: Tensor, rtol: Tensor | float | None = None, atol: Tensor | float | None = None) -> Tensor:
    """
    The pseudo-inverse. Singular values of at most atol, or rtol (max(m, n) eps unless one of both is given) times the greatest one, count as 0
    """
def _linalg_lstsq(x1: Tensor, x2: Tensor, rtol: Tensor | float | None = None) -> Tensor:
    """
    The X of least norm among those with the least norm of x1 @ X - x2
    """
def _linalg_matrix_rank(x: Tensor, rtol: Tensor | float | None = None, atol: Tensor | float | None = None) -> Tensor:
    """
    The number (int64) of singular values that do not count as 0, as in pinv
    """
def _linalg_cond(x: Tensor, p: float = 2.0) -> Tensor:
    """
    The condition number: the matrix norm of order p times that of the inverse
    """
def _linalg_nuclear_norm(x: Tensor, keepdims: builtins.bool = False) -> Tensor:
    """
    The sum of singular values
    """
def _linalg_solve(x1: Tensor, x2: Tensor, *, left: builtins.bool = True) -> Tensor:
    """
    X with x1 @ X = x2, or X @ x1 = x2 with left=False; x2 of one dim is one vector. ValueError for a singular matrix, on all ranks
    """
def _linalg_solve_triangular(x1: Tensor, x2: Tensor, *, upper: builtins.bool, left: builtins.bool = True, unitriangular: builtins.bool = False) -> Tensor:
    """
    X with T @ X = x2, or X @ T = x2 with left=False, for a triangle T of x1, whose diagonal counts as 1 with unitriangular=True
    """
def _linalg_inv(x: Tensor) -> Tensor:
    """
    The inverse. ValueError for a singular matrix
    """
def _linalg_inv_ex(x: Tensor) -> typing.Any:
    """
    The inverse, and info: not 0 for a singular matrix
    """
def _linalg_det(x: Tensor) -> Tensor:
    """
    The determinant
    """
def _linalg_slogdet(x: Tensor) -> typing.Any:
    """
    The sign of the determinant, and the logarithm of its magnitude
    """
def _linalg_matrix_power(x: Tensor, n: int) -> Tensor:
    """
    The n-th power of matrices; that of the inverse for n < 0
    """
def _linalg_multi_dot(tensors: collections.abc.Sequence[Tensor]) -> Tensor:
    """
    The product of matrices (the first and the last may be vectors) in the order with the fewest multiplications
    """
def _torch_l1_loss(input: Tensor, target: Tensor, reduction: str = 'mean') -> Tensor:
    """
    |input - target|: its mean, its sum, or for reduction 'none' all of it
    """
def _torch_smooth_l1_loss(input: Tensor, target: Tensor, reduction: str = 'mean', beta: float = 1.0) -> Tensor:
    """
    (input - target)^2 / (2 beta) where the distance is below beta, elsewhere the distance - beta / 2
    """
def _torch_huber_loss(input: Tensor, target: Tensor, reduction: str = 'mean', delta: float = 1.0) -> Tensor:
    """
    (input - target)^2 / 2 where the distance is below delta, elsewhere delta * (distance - delta / 2)
    """
def _torch_kl_div(input: Tensor, target: Tensor, reduction: str = 'mean', log_target: builtins.bool = False) -> Tensor:
    """
    target * (log(target) - input); 'batchmean' divides the sum by the size of dim 0
    """
def _torch_margin_ranking_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = 'mean') -> Tensor:
    """
    max(0, -target (input1 - input2) + margin)
    """
def _torch_hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, reduction: str = 'mean') -> Tensor:
    """
    input where target is 1, max(0, margin - input) where it is -1
    """
def _torch_soft_margin_loss(input: Tensor, target: Tensor, reduction: str = 'mean') -> Tensor:
    """
    log(1 + exp(-target input)), of targets 1 and -1
    """
def _torch_cosine_embedding_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = 'mean') -> Tensor:
    """
    Of the cosine along the last dim: 1 - cosine where target is 1, max(0, cosine - margin) where it is -1
    """
def _torch_triplet_margin_loss(anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2.0, eps: float = 1e-06, swap: builtins.bool = False, reduction: str = 'mean') -> Tensor:
    """
    max(0, |anchor - positive| - |anchor - negative| + margin), norms along the last dim
    """
def _torch_multi_margin_loss(input: Tensor, target: Tensor, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, reduction: str = 'mean') -> Tensor:
    """
    The sum over other classes of max(0, margin - input[target] + input)^p over their number
    """
def _torch_multilabel_margin_loss(input: Tensor, target: Tensor, reduction: str = 'mean') -> Tensor:
    """
    The margins of labels over others; target [rows, classes] lists labels, then -1
    """
def _torch_multilabel_soft_margin_loss(input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = 'mean') -> Tensor:
    """
    The mean over classes of binary_cross_entropy_with_logits
    """
def _torch_poisson_nll_loss(input: Tensor, target: Tensor, log_input: builtins.bool = True, full: builtins.bool = False, eps: float = 1e-08, reduction: str = 'mean') -> Tensor:
    """
    exp(input) - target input, or input - target log(input + eps); full: with Stirling's term
    """
def _torch_gaussian_nll_loss(input: Tensor, target: Tensor, var: Tensor, full: builtins.bool = False, eps: float = 1e-06, reduction: str = 'mean') -> Tensor:
    """
    (log(var) + (input - target)^2 / var) / 2; full: plus log(2 pi) / 2
    """
def _torch_nll_loss(input: Tensor, target: Tensor, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = 'mean') -> Tensor:
    """
    -input[target] of log-probabilities [..., classes] and classes [...]
    """
def _torch_binary_cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = 'mean') -> Tensor:
    """
    -(target * log(input) + (1 - target) * log(1 - input)), where a logarithm is at least -100
    """
def _torch_binary_cross_entropy_with_logits(input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = 'mean', pos_weight: Tensor | None = None) -> Tensor:
    """
    binary_cross_entropy of sigmoid(input); pos_weight multiplies the loss of positive targets
    """
