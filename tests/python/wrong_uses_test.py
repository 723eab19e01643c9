# SPDX-License-Identifier: Apache-2.0
"""155 wrong uses that a newcomer makes: each raises one true sentence."""

import numpy as np
import pytest
import weft
from weft import nn, optim
from weft.nn import functional as F

X = weft.ones(2, 3)


def leaf(*shape):
    return weft.ones(*shape).requires_grad_()


def on_ranks(body):
    """Runs body(world, mesh) on two ranks."""
    weft.run_ranks(2, lambda world: body(world, weft.DeviceMesh(world, {"dp": 2})), deadline=10)


class NoSuper(nn.Module):
    def __init__(self):
        self.layer = nn.Linear(2, 2)


class NoForward(nn.Module):
    pass


class BadForward(nn.Module):
    def forward(self, x):
        return "text"


# What is evaluated, what it raises, and the words at the beginning of the sentence.
CASES = [
    ("weft.zeros(-1, 2)", ValueError, "zeros: shape is [-1, 2], expected sizes of at least 0"),
    ("weft.zeros(2.5)", TypeError, "zeros: shape is 2.5, expected tuple[int, ...]"),
    ("weft.zeros((2, 'a'))", TypeError, "zeros: shape is a tuple, expected tuple[int, ...]"),
    (
        "weft.ones(2, dtype='float31')",
        ValueError,
        "dtype: name is \"float31\", expected f32, bf16, f16,",
    ),
    (
        "weft.ones(2, device='gpu')",
        ValueError,
        "device: name is \"gpu\", expected cpu, meta, cuda or",
    ),
    (
        "weft.ones(2, device='cuda:0')",
        ValueError,
        "device: cuda:0 does not exist: ",
    ),
    (
        "weft.asarray([[1, 2], [3]])",
        ValueError,
        "asarray: lengths of nested lists differ, expected equal ones",
    ),
    (
        "weft.asarray('text')",
        TypeError,
        "asarray: it is a str, expected numbers, lists of them or an",
    ),
    ("weft.arange(0, 10, 0)", ValueError, "arange: step is 0, expected another number"),
    (
        "weft.linspace(0, 1, -2)",
        ValueError,
        "linspace: number of elements must be at least 0, got -2",
    ),
    (
        "weft.randint(5, 2, (3,))",
        ValueError,
        "randint: low and high are 5 and 2, expected low below high",
    ),
    ("weft.eye(-1)", ValueError, "eye: shape is [-1, -1], expected sizes of at least 0"),
    (
        "X + weft.ones(4, 3)",
        ValueError,
        "add: factor ...0 is 4 in operand 1 [4, 3], expected 2, as in",
    ),
    (
        "X @ weft.ones(2, 3)",
        ValueError,
        "matmul: factor k is 2 in operand 1 [2, 3], expected 3, as in",
    ),
    ("X @ 3", TypeError, "unsupported operand type(s) for @: 'weft.Tensor' and 'int'"),
    ("X + 'a'", TypeError, "unsupported operand type(s) for +: 'weft.Tensor' and 'str'"),
    ("X.sum(dim=2)", ValueError, "sum: dim is 2, expected one of the 2 dims"),
    ("X.mean(dim=(0, 0))", ValueError, "mean: dim 0 of [2, 3] is given twice, expected once"),
    ("X.max(axis=5)", ValueError, "max: dim is 5, expected one of the 2 dims"),
    ("weft.argmax(X, axis=(0, 1))", TypeError, "argmax: it is a tuple, expected a whole number"),
    ("X.reshape(4, 2)", ValueError, "reshape: number of elements of [4, 2] is 8, expected 6, that"),
    ("X.reshape(-1, -1)", ValueError, "reshape: shape is [-1, -1], expected at most one -1"),
    ("X.view(7)", ValueError, "reshape: number of elements of [7] is 7, expected 6, that of"),
    ("X.permute(0, 0)", ValueError, "permute: dim 0 is given twice, expected once"),
    ("X.permute(0)", ValueError, "permute: number of dims is 1, expected 2, those of [2, 3]"),
    ("X.transpose(0, 2)", ValueError, "transpose: dim is 2, expected one of the 2 dims"),
    ("X.expand(2, 4)", ValueError, "expand: the tensor is [2, 3], expected one that broadcasts to"),
    ("X.squeeze(0)", ValueError, "squeeze: size of dim 0 of [2, 3] is 2, expected 1"),
    ("X.unsqueeze(5)", ValueError, "unsqueeze: dim is 5, expected one of the 3 dims"),
    ("X.split(0)", ValueError, "split: the size of a part is 0, expected at least 1"),
    (
        "X.split([1, 3], dim=1)",
        ValueError,
        "split: sizes of the parts add up to 4, expected 3, the size of",
    ),
    ("X.chunk(0)", ValueError, "chunk: the number of parts is 0, expected at least 1"),
    (
        "weft.cat([X, weft.ones(2, 2)], 0)",
        ValueError,
        "cat: tensor 1 is [2, 2], expected [2, 3], as tensor 0, except",
    ),
    ("weft.cat([])", ValueError, "cat: number of tensors is 0, expected at least 1"),
    (
        "weft.stack([X, weft.ones(3, 2)])",
        ValueError,
        "stack: the shapes are [2, 3], [3, 2], expected equal ones",
    ),
    (
        "X.narrow(1, 2, 2)",
        ValueError,
        "narrow: start and length are 2 and 2, expected a part of dim 1",
    ),
    (
        "X.unflatten(1, (2, 2))",
        ValueError,
        "unflatten: sizes are [2, 2], expected such that their product",
    ),
    ("X.flatten(1, 0)", ValueError, "flatten: the last dim is 0, expected at least 1"),
    ("X[5]", IndexError, "index: it is 5, expected one of the 2 elements of dim 0 of [2,"),
    ("X[0, 0, 0]", IndexError, "index: number of entries is 3, expected at most 2, the dims of"),
    ("X[:, ::0]", ValueError, "slice step cannot be zero"),
    ("X['a']", IndexError, "index: it is a str, expected an int, slice, None, ..., tensor"),
    ("X[1.5]", IndexError, "index: it is a float, expected an int, slice, None, ...,"),
    (
        "X[weft.ones(3)]",
        IndexError,
        "index: dtype of the tensor [3] is f32, expected an integer or",
    ),
    (
        "X[weft.asarray([0, 7])]",
        IndexError,
        "take: index is 7, expected one of the 2 elements of dim 0",
    ),
    (
        "X.__setitem__((0, 5), 1.0)",
        IndexError,
        "index: it is 5, expected one of the 3 elements of dim 1 of [2,",
    ),
    (
        "X.__setitem__(0, weft.ones(4))",
        ValueError,
        "expand: the tensor is [4], expected one that broadcasts to [3]",
    ),
    (
        "X.masked_fill(weft.ones(2, 3), 0)",
        ValueError,
        "where: dtype of the condition [2, 3] is f32, expected bool",
    ),
    ("weft.topk(X, 9)", ValueError, "topk: k is 9, expected 0 to 3, the size of dim 1"),
    (
        "weft.gather(X, 1, weft.ones(2, 3))",
        ValueError,
        "take_along_dim: dtype of indices is f32, expected an integer one",
    ),
    (
        "weft.einsum('ij,jk', X)",
        ValueError,
        "einsum: number of operands is 1, expected 2, those of \"ij,jk\"",
    ),
    (
        "weft.einsum('ijk->i', X)",
        ValueError,
        "einsum: operand 0 is [2, 3], expected 3 dims, the labels of",
    ),
    (
        "weft.one_hot(weft.asarray([-1, 2]))",
        ValueError,
        "one_hot: elements are -1 to 2, expected 0 to 2",
    ),
    (
        "weft.index_add(X, 1, weft.asarray([0, 9]), weft.ones(2, 2))",
        ValueError,
        "add_slices: index is 9, expected one of the 3 elements of dim 1",
    ),
    (
        "leaf(2).add_(1)",
        ValueError,
        "add_: the tensor [2] is a leaf that requires a gradient, or a",
    ),
    (
        "leaf(2).sum().backward(weft.ones(3))",
        ValueError,
        "backward: the gradient is [3], expected [], the shape of its",
    ),
    (
        "leaf(2).backward()",
        ValueError,
        "backward: number of elements of root 0 is 2, expected 1, or",
    ),
    (
        "weft.ones(2).sum().backward()",
        ValueError,
        "backward: root 0 [] does not require a gradient, expected one",
    ),
    ("bool(X)", ValueError, "bool: number of elements is 6, expected 1; any() and all() ask"),
    ("float(X)", ValueError, "item: number of elements is 6, expected 1"),
    ("int(weft.asarray(float('nan')))", ValueError, "cannot convert float NaN to integer"),
    ("X.item()", ValueError, "item: number of elements is 6, expected 1"),
    ("len(weft.asarray(1.0))", TypeError, "len: the tensor has no dims, expected at least 1"),
    ("list(weft.asarray(1.0))", TypeError, "iter: the tensor has no dims, expected at least 1"),
    (
        "range(3)[weft.asarray(1.5)]",
        TypeError,
        "index: dtype of the tensor is f32, expected an integer one",
    ),
    ("X.nothing", AttributeError, "'weft.Tensor' object has no attribute 'nothing'"),
    ("weft.no_such", AttributeError, "module 'weft' has no attribute 'no_such'"),
    ("X.numpy(3)", TypeError, "numpy: number of arguments by position is 1, expected at most"),
    (
        "np.asarray(leaf(2))",
        ValueError,
        "__array__: the tensor [2] requires a gradient, expected one",
    ),
    (
        "weft.from_numpy(np.array(['a']))",
        ValueError,
        "numpy: dtype is str32, expected one of float32, bfloat16,",
    ),
    ("weft.from_numpy([1, 2])", TypeError, "from_numpy: arguments are (a list), expected (array:"),
    ("weft.from_dlpack(3)", TypeError, "from_dlpack: source is a int, expected an object with"),
    (
        "X.to('nowhere')",
        ValueError,
        "dtype: name is \"nowhere\", expected f32, bf16, f16,",
    ),
    (
        "X.to('float33')",
        ValueError,
        "dtype: name is \"float33\", expected f32, bf16, f16,",
    ),
    ("nn.Linear(2, 2).to(3)", TypeError, "to: it is a int, expected a device, a dtype or a Tensor"),
    ("nn.Linear(0, 2)", ValueError, "linear: in must be at least 1, got 0"),
    ("nn.Linear(2)", TypeError, "Linear: out_features is missing, expected int; it takes"),
    (
        "nn.Linear(2, 3)(weft.ones(4))",
        ValueError,
        "linear_bias: factor k is 2 in operand 1 [3, 2], expected 4, as",
    ),
    (
        "nn.Linear(2, 3)(np.ones((1, 2)))",
        TypeError,
        "module: input 0 is a numpy.ndarray, expected a weft.Tensor;",
    ),
    ("nn.Linear(2, 3)(1, 2)", TypeError, "module: input 0 is a int, expected a weft.Tensor"),
    (
        "nn.Embedding(3, 2)(weft.asarray([3]))",
        ValueError,
        "embedding: id is 3, expected one below 3, the rows of the",
    ),
    (
        "nn.Embedding(3, 2)(weft.ones(2))",
        ValueError,
        "embedding: dtype of ids is f32, expected an integer one",
    ),
    ("nn.Dropout(1.5)", ValueError, "dropout: probability is 1.5, expected one in [0, 1)"),
    (
        "nn.LayerNorm(4)(weft.ones(2, 3))",
        ValueError,
        "layer_norm: factor d is 4 in operand 1 [4], expected 3, as in",
    ),
    ("NoSuper()", TypeError, "object: __init__ did not run, expected a class that calls"),
    ("NoForward()(X)", ValueError, "module: NoForward has no forward, expected a class that"),
    ("BadForward()(X)", TypeError, "BadForward: forward: it returned a str, expected Tensors"),
    ("nn.Sequential(3)", TypeError, "Sequential: it is a int, expected a Module"),
    (
        "nn.Sequential(nn.ReLU())[4]",
        IndexError,
        "sequential: index is 4, expected one of 1 children",
    ),
    ("nn.ModuleList([1])", TypeError, "module: item of a list is a int, expected a Module"),
    (
        "nn.Linear(2, 2).load_state_dict({'weight': weft.ones(2, 2)})",
        ValueError,
        "load_state_dict: the dict: it lacks \"bias\"",
    ),
    (
        "nn.Linear(2, 2).load_state_dict({'weight': weft.ones(3, 2), 'bias': weft.ones(2)})",
        ValueError,
        "load_state_dict: tensor \"weight\" is [3, 2] f32, expected [2,",
    ),
    (
        "nn.Linear(2, 2).get_submodule('a.b')",
        ValueError,
        "module: \"a.b\" does not exist: the module has no child \"a\"",
    ),
    (
        "nn.Linear(2, 2).weight.nothing",
        AttributeError,
        "'weft.Tensor' object has no attribute 'nothing'",
    ),
    ("nn.Linear(2, 2).nothing", AttributeError, "Linear has no attribute 'nothing'"),
    (
        "nn.Linear(2, 2).register_forward_hook(3)",
        TypeError,
        "hook: it is a int, expected a function",
    ),
    (
        "nn.Module().register_buffer('a.b', X)",
        ValueError,
        "module: name of a parameter or child is \"a.b\", expected a",
    ),
    (
        "nn.Module().register_buffer('a', 3)",
        TypeError,
        "register_buffer: 'a' is a int, expected a Tensor or None",
    ),
    (
        "nn.TransformerModel('no_such_file')",
        ValueError,
        "model config: \"no_such_file\" does not exist, expected tiny,",
    ),
    (
        "nn.init.normal_(weft.asarray([1, 2]))",
        ValueError,
        "normal_: dtype is i64, expected a floating one",
    ),
    (
        "F.cross_entropy(X, weft.asarray([0, 5]))",
        ValueError,
        "cross_entropy: target is 5, expected one below 3, the classes",
    ),
    (
        "F.cross_entropy(X, weft.asarray([0, 1, 2]))",
        ValueError,
        "cross_entropy: targets are [3], expected one for each row of",
    ),
    (
        "F.cross_entropy(X, weft.ones(2))",
        ValueError,
        "cross_entropy: dtype of targets is f32, expected an integer one",
    ),
    (
        "F.mse_loss(X, weft.ones(3))",
        ValueError,
        "mse_loss: target is [3], expected [2, 3], the shape of input",
    ),
    ("F.softmax(X, 3)", ValueError, "softmax: dim is 3, expected one of the 2 dims"),
    (
        "F.gelu(X, approximate='fast')",
        ValueError,
        'gelu: approximate is "fast", expected none or tanh',
    ),
    (
        "F.layer_norm(X, (4,))",
        ValueError,
        "layer_norm: normalized_shape is (4,), expected (3,), the last",
    ),
    ("F.dropout(X, 1.0)", ValueError, "dropout: probability is 1, expected one in [0, 1)"),
    (
        "F.embedding(X, X)",
        ValueError,
        "embedding: dtype of ids is f32, expected an integer one",
    ),
    (
        "F.scaled_dot_product_attention(X, X, X)",
        ValueError,
        "scaled_dot_product_attention: query is [2, 3], expected",
    ),
    ("optim.AdamW([])", ValueError, "optimizer: number of trainable parameters is 0, expected at"),
    ("optim.AdamW(X)", TypeError, "parameters: item 0 is a weft.Tensor, expected a Parameter or a"),
    (
        "optim.AdamW([X])",
        TypeError,
        "parameters: item 0 is a weft.Tensor, expected a Parameter or a",
    ),
    (
        "optim.SGD(nn.Linear(2, 2).parameters(), lr=-1)",
        ValueError,
        "sgd: learning rate, momentum and weight decay are -1, 0 and 0,",
    ),
    (
        "optim.AdamW(nn.Linear(2, 2).parameters(), betas=(1.5, 0.9))",
        ValueError,
        "adamw: betas are 1.5 and 0.9, expected both in [0, 1)",
    ),
    (
        "optim.SGD(nn.Linear(2, 2).parameters(), learning_rate=1)",
        TypeError,
        "SGD: argument \"learning_rate\" does not exist; it takes",
    ),
    (
        "optim.SGD(nn.Linear(2, 2).parameters()).step()",
        ValueError,
        "optimizer: parameter weight has no memory, expected some; call",
    ),
    (
        "optim.SGD([{'lr': 1}])",
        TypeError,
        "parameters: group 0 has no \"params\", expected a dict with a",
    ),
    (
        "optim.SGD([{'params': nn.Linear(2, 2).parameters(), 'decay': 1}])",
        ValueError,
        "parameters: option \"decay\" of group 0 does not exist in this",
    ),
    (
        "optim.lr_scheduler.StepLR(3, 2)",
        TypeError,
        "lr_scheduler: optimizer is a int, expected an Optimizer",
    ),
    (
        "optim.Optimizer(nn.Linear(2, 2).parameters(), {})",
        ValueError,
        "optimizer: option \"lr\" is missing, expected a learning rate",
    ),
    (
        "weft.nn.utils.clip_grad_norm_(nn.Linear(2, 2).parameters(), 1.0, norm_type=1)",
        ValueError,
        "clip_grad_norm_: norm_type is 1, expected 2",
    ),
    (
        "weft.run_ranks(0, lambda w: None)",
        ValueError,
        "run_ranks: the number of ranks is 0, expected 1 to 1024",
    ),
    ("weft.run_ranks(2, 3)", TypeError, "run_ranks: body is 3, expected Callable"),
    (
        "on_ranks(lambda w, m: weft.DeviceMesh(w, {'dp': 3}))",
        ValueError,
        "mesh(dp=3): number of its ranks is 3, expected 2, those of the",
    ),
    ("on_ranks(lambda w, m: m['tp'])", ValueError, "mesh(dp=2): axis \"tp\" does not exist"),
    (
        "on_ranks(lambda w, m: weft.init_device_mesh('cpu', (2,), mesh_dim_names=('a', 'b'), "
        "world=w))",
        ValueError,
        "init_device_mesh: number of names is 2, expected 1, the axes",
    ),
    (
        "on_ranks(lambda w, m: weft.distribute(X, m, [weft.Shard(2)]))",
        ValueError,
        "layout: placement on axis \"dp\" is S(2), expected a dim of the",
    ),
    (
        "on_ranks(lambda w, m: weft.distribute(X, m, [weft.Partial()]))",
        ValueError,
        "distribute: a placement is Partial, expected Shard or",
    ),
    (
        "on_ranks(lambda w, m: weft.distribute(X, m, {'tp': weft.Shard(0)}))",
        ValueError,
        "mesh(dp=2): axis \"tp\" does not exist",
    ),
    (
        "on_ranks(lambda w, m: weft.distribute(weft.distribute(X, m), m))",
        ValueError,
        "distribute: the tensor [2, 3] is laid out over mesh(dp=2)[R],",
    ),
    (
        "on_ranks(lambda w, m: weft.distribute(X, m, [weft.Shard(0), weft.Shard(1)]))",
        ValueError,
        "sharding: number of placements is 2, expected at most 1, the",
    ),
    (
        "on_ranks(lambda w, m: weft.from_local(weft.ones(2 + w.rank, 3), m, [weft.Replicate()]))",
        ValueError,
        "from_local: part of rank 1 is [3, 3], expected [2, 3] of [2, 3]",
    ),
    (
        "on_ranks(lambda w, m: weft.distribute(X, m, [weft.Shard(0)]) + weft.asarray([[1.0, "
        "2, 3]]))",
        ValueError,
        "add: operand 1 [1, 3] has no mesh, expected mesh(dp=2), that",
    ),
    (
        "on_ranks(lambda w, m: weft.distribute(X, m, [weft.Shard(0)]).numpy())",
        ValueError,
        "numpy: the tensor [2, 3] is laid out over mesh(dp=2)[S(0)],",
    ),
    (
        "on_ranks(lambda w, m: weft.distribute(X, m, "
        "[weft.Shard(0)]).redistribute([weft.Shard(7)]))",
        ValueError,
        "layout: placement on axis \"dp\" is S(7), expected a dim of the",
    ),
    (
        "on_ranks(lambda w, m: X.redistribute([weft.Shard(0)]))",
        ValueError,
        "redistribute: the tensor [2, 3] has no mesh, expected one over",
    ),
    (
        "on_ranks(lambda w, m: weft.from_local(X, m, [weft.Partial('median')]))",
        ValueError,
        "partial: reduction is \"median\", expected sum, avg, max or min",
    ),
    (
        "weft.Partial('median')",
        ValueError,
        "partial: reduction is \"median\", expected sum, avg, max or min",
    ),
    ("weft.Shard('a')", TypeError, "Shard: dim is 'a', expected int"),
    (
        "on_ranks(lambda w, m: [weft.fully_shard(n, m) for n in [nn.Linear(2, 2)] * 2])",
        ValueError,
        "fully_shard: the module is sharded already, expected a call",
    ),
    (
        "on_ranks(lambda w, m: weft.fully_shard(nn.Linear(2, 2), m, strategy='zero9'))",
        ValueError,
        "strategy: name is \"zero9\", expected one of full_shard, zero2,",
    ),
    (
        "on_ranks(lambda w, m: weft.fully_shard(nn.Linear(2, 2), m, ignored=['wieght']))",
        ValueError,
        "fully_shard: ignored parameter \"wieght\" does not exist",
    ),
    (
        "on_ranks(lambda w, m: weft.fully_shard(nn.Linear(2, 2), 3))",
        TypeError,
        "fully_shard: mesh is 3, expected DeviceMesh",
    ),
    (
        "on_ranks(lambda w, m: weft.fully_shard(nn.Linear(2, 2), m)(X))",
        ValueError,
        "linear_bias: factor k is 2 in operand 1 [2, 2], expected 3, as",
    ),
    (
        "on_ranks(lambda w, m: weft.parallelize(nn.Sequential(nn.Linear(2, 2)), m, {'5': "
        "weft.Colwise()}))",
        ValueError,
        "parallelize: \"5\" matches no module, expected a path of one;",
    ),
    (
        "on_ranks(lambda w, m: weft.parallelize(nn.ReLU(), m, {'': weft.Colwise()}))",
        ValueError,
        "parallelize: \"\" is another module, expected a Linear or an",
    ),
    (
        "on_ranks(lambda w, m: weft.parallelize(nn.Linear(2, 2), m, {'': 'colwise'}))",
        TypeError,
        "parallelize: the style of '' is a str, expected Colwise,",
    ),
    (
        "weft.load('/no/such/dir', weft.TrainingState())",
        ValueError,
        "safetensors: cannot open /no/such/dir: No such file or",
    ),
    (
        "weft.load_hugging_face(nn.Linear(2, 2), '/no/such/dir')",
        ValueError,
        "safetensors: cannot open /no/such/dir: No such file or",
    ),
    (
        "weft.CheckpointSaver(3, 'x')",
        TypeError,
        "CheckpointSaver: world is 3, expected Communicator",
    ),
    (
        "weft.list_checkpoints('/no/such/dir')",
        ValueError,
        "checkpoint: /no/such/dir: No such file or directory",
    ),
    (
        "weft.inspect_checkpoint('/no/such/dir')",
        ValueError,
        "checkpoint: /no/such/dir is missing or a file, expected a",
    ),
    ("weft.set_rng_state(3)", TypeError, "set_rng_state: state is 3, expected tuple[int, int]"),
    ("weft.manual_seed('a')", TypeError, "manual_seed: seed is 'a', expected int"),
    (
        "weft.set_traffic('never')",
        ValueError,
        "traffic: mode is \"never\", expected allow, free_only or forbid",
    ),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("code, kind, words", CASES, ids=[code for code, _, _ in CASES])
def test_it_is_one_sentence(code, kind, words):
    with pytest.raises(kind) as raised:
        eval(code, globals())
    text = str(raised.value).split("\nraised by rank")[0]
    assert text.startswith(words)
    assert not any(mark in text for mark in ("\n", "weft._weft", "pybind", "typing.", "std::"))
