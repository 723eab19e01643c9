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
    ("weft.zeros(-1, 2)", ValueError, "empty: [-1, 2] has a negative size"),
    (
        "weft.zeros(2.5)",
        TypeError,
        "zeros: it takes (shape: tuple[int, ...], *, dtype: DType | str",
    ),
    (
        "weft.zeros((2, 'a'))",
        TypeError,
        "zeros: it takes (shape: tuple[int, ...], *, dtype: DType | str",
    ),
    (
        "weft.ones(2, dtype='float31')",
        ValueError,
        "dtype: name is \"float31\", expected f32, bf16, f16,",
    ),
    (
        "weft.ones(2, device='gpu')",
        ValueError,
        "device: there is no \"gpu\"; use cpu, meta, cuda or cuda:<index>",
    ),
    (
        "weft.ones(2, device='cuda:0')",
        ValueError,
        "device: there is no cuda:0: ",
    ),
    (
        "weft.asarray([[1, 2], [3]])",
        ValueError,
        "asarray: lengths of nested lists differ, expected equal ones",
    ),
    ("weft.asarray('text')", TypeError, "asarray: there is no tensor of a str"),
    ("weft.arange(0, 10, 0)", ValueError, "arange: the step from 0 to 10 is 0"),
    ("weft.linspace(0, 1, -2)", ValueError, "linspace: -2 numbers; at least 0"),
    ("weft.randint(5, 2, (3,))", ValueError, "randint: there is no number in [5, 2)"),
    ("weft.eye(-1)", ValueError, "empty: [-1, -1] has a negative size"),
    (
        "X + weft.ones(4, 3)",
        ValueError,
        "add: factor ...0 is 2 in operand 0 [2, 3] but 4 in operand 1",
    ),
    (
        "X @ weft.ones(2, 3)",
        ValueError,
        "matmul: factor k is 3 in operand 0 [2, 3] but 2 in operand 1",
    ),
    ("X @ 3", TypeError, "unsupported operand type(s) for @: 'weft.Tensor' and 'int'"),
    ("X + 'a'", TypeError, "unsupported operand type(s) for +: 'weft.Tensor' and 'str'"),
    ("X.sum(dim=2)", ValueError, "sum: dim 2 is not one of the 2 dims"),
    ("X.mean(dim=(0, 0))", ValueError, "mean: dim 0 of [2, 3] is given twice"),
    ("X.max(axis=5)", ValueError, "max: dim 5 is not one of the 2 dims"),
    (
        "weft.argmax(X, axis=(0, 1))",
        TypeError,
        "argmax: a tuple is given, which is no whole number",
    ),
    ("X.reshape(4, 2)", ValueError, "reshape: [4, 2] has 8 elements but the tensor [2, 3] has 6"),
    ("X.reshape(-1, -1)", ValueError, "reshape: [-1, -1] leaves two sizes open; one can be -1"),
    ("X.view(7)", ValueError, "reshape: [7] has 7 elements but the tensor [2, 3] has 6"),
    ("X.permute(0, 0)", ValueError, "permute: dim 0 is given twice"),
    ("X.permute(0)", ValueError, "permute: 1 dims are given for a tensor [2, 3] of 2"),
    ("X.transpose(0, 2)", ValueError, "transpose: dim 2 is not one of the 2 dims"),
    ("X.expand(2, 4)", ValueError, "expand: [2, 3] does not broadcast to [2, 4]"),
    ("X.squeeze(0)", ValueError, "squeeze: dim 0 of [2, 3] has 2 elements, not 1"),
    ("X.unsqueeze(5)", ValueError, "unsqueeze: dim 5 is not one of the 3 dims"),
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
        "cat: tensor 0 is [2, 3] but tensor 1 [2, 2]; they may differ in",
    ),
    ("weft.cat([])", ValueError, "cat: no tensors"),
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
    ("X[5]", IndexError, "index: 5 is out of dim 0 of [2, 3]"),
    ("X[0, 0, 0]", IndexError, "index: 3 entries for a tensor [2, 3]"),
    ("X[:, ::0]", ValueError, "slice step cannot be zero"),
    ("X['a']", IndexError, "index: it is a str, expected an int, slice, None, ..., tensor or"),
    ("X[1.5]", IndexError, "index: it is a float, expected an int, slice, None, ..., tensor"),
    (
        "X[weft.ones(3)]",
        IndexError,
        "index: dtype of the tensor [3] is f32, expected an integer or",
    ),
    (
        "X[weft.asarray([0, 7])]",
        IndexError,
        "take: index 7 is outside dim 0, which has 2 elements",
    ),
    ("X.__setitem__((0, 5), 1.0)", IndexError, "index: 5 is out of dim 1 of [2, 3]"),
    ("X.__setitem__(0, weft.ones(4))", ValueError, "expand: [4] does not broadcast to [3]"),
    (
        "X.masked_fill(weft.ones(2, 3), 0)",
        ValueError,
        "where: the condition [2, 3] is f32, not bool",
    ),
    ("weft.topk(X, 9)", ValueError, "topk: k is 9, expected 0 to 3, the size of dim 1"),
    (
        "weft.gather(X, 1, weft.ones(2, 3))",
        ValueError,
        "take_along_dim: dtype of the indices is f32, expected an integer one",
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
        "add_slices: index 9 is outside dim 1, which has 3 elements",
    ),
    (
        "leaf(2).add_(1)",
        ValueError,
        "add_: the tensor [2] is a leaf that requires a gradient, or a",
    ),
    (
        "leaf(2).sum().backward(weft.ones(3))",
        ValueError,
        "backward: the gradient of a tensor [] is [3]",
    ),
    ("leaf(2).backward()", ValueError, "backward: root 0 [2] has more than one element; give its"),
    (
        "weft.ones(2).sum().backward()",
        ValueError,
        "backward: root 0 [] depends on nothing that requires a gradient",
    ),
    ("bool(X)", ValueError, "bool: number of elements is 6, expected 1; any() and all() ask"),
    ("float(X)", ValueError, "item: number of elements is 6, expected 1"),
    ("int(weft.asarray(float('nan')))", ValueError, "cannot convert float NaN to integer"),
    ("X.item()", ValueError, "item: number of elements is 6, expected 1"),
    ("len(weft.asarray(1.0))", TypeError, "len of a tensor without dims"),
    ("list(weft.asarray(1.0))", TypeError, "a tensor without dims has nothing to go over"),
    ("range(3)[weft.asarray(1.5)]", TypeError, "a tensor of f32 is no index"),
    ("X.nothing", AttributeError, "'weft.Tensor' object has no attribute 'nothing'"),
    ("weft.no_such", AttributeError, "module 'weft' has no attribute 'no_such'"),
    ("X.numpy(3)", TypeError, "numpy: it takes (Tensor), not (3)"),
    (
        "np.asarray(leaf(2))",
        ValueError,
        "__array__: the tensor [2] requires a gradient, which would be",
    ),
    (
        "weft.from_numpy(np.array(['a']))",
        ValueError,
        "numpy: no tensor has dtype str32; there are float32, bfloat16,",
    ),
    (
        "weft.from_numpy([1, 2])",
        TypeError,
        "from_numpy: it takes (array: numpy.ndarray, *, copy: bool |",
    ),
    ("weft.from_dlpack(3)", TypeError, "from_dlpack: a int has no __dlpack__"),
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
    ("nn.Linear(0, 2)", ValueError, "linear: in must be at least 1, got 0"),
    ("nn.Linear(2)", TypeError, "Linear: it takes (in_features: int, out_features: int, bias:"),
    (
        "nn.Linear(2, 3)(weft.ones(4))",
        ValueError,
        "linear_bias: factor k is 4 in operand 0 [4] but 2 in operand 1",
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
        "embedding: id 3 is none of the 3 rows of the weight [3, 2]",
    ),
    (
        "nn.Embedding(3, 2)(weft.ones(2))",
        ValueError,
        "embedding: dtype of the ids is f32, expected an integer one",
    ),
    ("nn.Dropout(1.5)", ValueError, "dropout: probability is 1.5, expected one in [0, 1)"),
    (
        "nn.LayerNorm(4)(weft.ones(2, 3))",
        ValueError,
        "layer_norm: factor d is 3 in operand 0 [2, 3] but 4 in operand",
    ),
    ("NoSuper()", TypeError, "an object is used whose __init__ did not run; a class of one's"),
    ("NoForward()(X)", ValueError, "module: NoForward has no forward(self, ...)"),
    ("BadForward()(X)", TypeError, "BadForward: forward: it returned a str, not Tensors"),
    ("nn.Sequential(3)", TypeError, "Sequential: a int is given, which is no Module"),
    ("nn.Sequential(nn.ReLU())[4]", IndexError, "Sequential: it has no such child"),
    ("nn.ModuleList([1])", TypeError, "module: item of a list is a int, expected a Module"),
    (
        "nn.Linear(2, 2).load_state_dict({'weight': weft.ones(2, 2)})",
        ValueError,
        "load_state_dict: the dict lacks \"bias\"",
    ),
    (
        "nn.Linear(2, 2).load_state_dict({'weight': weft.ones(3, 2), 'bias': weft.ones(2)})",
        ValueError,
        "load_state_dict: tensor \"weight\" is [3, 2] f32 but [2, 2] f32",
    ),
    (
        "nn.Linear(2, 2).get_submodule('a.b')",
        ValueError,
        "module: \"a.b\": there is no \"a\" in the module",
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
        "nn.Llama('no_such_file')",
        ValueError,
        "llama config: \"no_such_file\" does not exist, expected tiny,",
    ),
    (
        "nn.init.normal_(weft.asarray([1, 2]))",
        ValueError,
        "normal_: a tensor of i64; only floating dtypes",
    ),
    (
        "F.cross_entropy(X, weft.asarray([0, 5]))",
        ValueError,
        "cross_entropy: target 5 is none of the 3 classes of logits [2,",
    ),
    (
        "F.cross_entropy(X, weft.asarray([0, 1, 2]))",
        ValueError,
        "cross_entropy: targets [3] do not fit logits [2, 3], which want",
    ),
    (
        "F.cross_entropy(X, weft.ones(2))",
        ValueError,
        "cross_entropy: dtype of the targets is f32, expected an integer one",
    ),
    ("F.mse_loss(X, weft.ones(3))", ValueError, "mse_loss: input is (2, 3) but target (3,)"),
    ("F.softmax(X, 3)", ValueError, "softmax: dim 3 is not one of the 2 dims"),
    (
        "F.gelu(X, approximate='fast')",
        ValueError,
        "gelu: approximate is 'fast', expected 'none' or 'tanh'",
    ),
    (
        "F.layer_norm(X, (4,))",
        ValueError,
        "layer_norm: normalized_shape (4,) is not the last dim of (2, 3)",
    ),
    ("F.dropout(X, 1.0)", ValueError, "dropout: the probability 1 is not in [0, 1)"),
    (
        "F.embedding(X, X)",
        ValueError,
        "embedding: dtype of the ids is f32, expected an integer one",
    ),
    (
        "F.scaled_dot_product_attention(X, X, X)",
        ValueError,
        "scaled_dot_product_attention: query is (2, 3), expected [batch,",
    ),
    ("optim.AdamW([])", ValueError, "optimizer: none of the parameters is trainable"),
    ("optim.AdamW(X)", TypeError, "parameters: item 0 is a weft.Tensor, not a Parameter or a pair"),
    (
        "optim.AdamW([X])",
        TypeError,
        "parameters: item 0 is a weft.Tensor, not a Parameter or a pair",
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
        "SGD: it takes (parameters: object, lr: float = 0.01, momentum:",
    ),
    (
        "optim.SGD(nn.Linear(2, 2).parameters()).step()",
        ValueError,
        "optimizer: parameter weight has no memory; call materialize",
    ),
    (
        "optim.SGD([{'lr': 1}])",
        TypeError,
        "parameters: group 0 is no dict with a list of parameters as",
    ),
    (
        "optim.SGD([{'params': nn.Linear(2, 2).parameters(), 'decay': 1}])",
        ValueError,
        "parameters: group 0 has the option \"decay\", which this",
    ),
    (
        "optim.lr_scheduler.StepLR(3, 2)",
        TypeError,
        "lr_scheduler: optimizer is a int, expected an Optimizer",
    ),
    (
        "optim.Optimizer(nn.Linear(2, 2).parameters(), {})",
        ValueError,
        "optimizer: the options have no \"lr\"",
    ),
    (
        "weft.nn.utils.clip_grad_norm_(nn.Linear(2, 2).parameters(), 1.0, norm_type=1)",
        ValueError,
        "clip_grad_norm_: norm_type 1 is not 2, the one there is",
    ),
    (
        "weft.run_ranks(0, lambda w: None)",
        ValueError,
        "run_ranks: the number of ranks is 0, expected 1 to 1024",
    ),
    (
        "weft.run_ranks(2, 3)",
        TypeError,
        "run_ranks: it takes (ranks: int, body: Callable, *, deadline:",
    ),
    (
        "on_ranks(lambda w, m: weft.DeviceMesh(w, {'dp': 3}))",
        ValueError,
        "mesh(dp=3) has 3 ranks but the communicator \"world\" has 2",
    ),
    ("on_ranks(lambda w, m: m['tp'])", ValueError, "mesh(dp=2): no axis is called \"tp\""),
    (
        "on_ranks(lambda w, m: weft.init_device_mesh('cpu', (2,), mesh_dim_names=('a', "
        "'b'), world=w))",
        ValueError,
        "init_device_mesh: 2 names for 1 axes",
    ),
    (
        "on_ranks(lambda w, m: weft.distribute(X, m, [weft.Shard(2)]))",
        ValueError,
        "layout: S(2) on axis \"dp\" but the shape [2, 3] has 2 dims",
    ),
    (
        "on_ranks(lambda w, m: weft.distribute(X, m, [weft.Partial()]))",
        ValueError,
        "distribute: every rank holds the whole, which is no Partial;",
    ),
    (
        "on_ranks(lambda w, m: weft.distribute(X, m, {'tp': weft.Shard(0)}))",
        ValueError,
        "mesh(dp=2): no axis is called \"tp\"",
    ),
    (
        "on_ranks(lambda w, m: weft.distribute(weft.distribute(X, m), m))",
        ValueError,
        "distribute: the tensor [2, 3] is laid out over mesh(dp=2)[R]",
    ),
    (
        "on_ranks(lambda w, m: weft.distribute(X, m, [weft.Shard(0), weft.Shard(1)]))",
        ValueError,
        "sharding: 2 placements for the 1 axis of mesh(dp=2)",
    ),
    (
        "on_ranks(lambda w, m: weft.from_local(weft.ones(2 + w.rank, 3), m, [weft.Replicate()]))",
        ValueError,
        "from_local: rank 1 holds [3, 3], expected [2, 3], its part of [2, 3] as",
    ),
    (
        "on_ranks(lambda w, m: weft.distribute(X, m, [weft.Shard(0)]) + "
        "weft.asarray([[1.0, 2, 3]]))",
        ValueError,
        "add: operand 1 [1, 3] has no mesh, expected mesh(dp=2), that of",
    ),
    (
        "on_ranks(lambda w, m: weft.distribute(X, m, [weft.Shard(0)]).numpy())",
        ValueError,
        "numpy: the tensor [2, 3] is laid out over mesh(dp=2)[S(0)];",
    ),
    (
        "on_ranks(lambda w, m: weft.distribute(X, m, "
        "[weft.Shard(0)]).redistribute([weft.Shard(7)]))",
        ValueError,
        "layout: S(7) on axis \"dp\" but the shape [2, 3] has 2 dims",
    ),
    (
        "on_ranks(lambda w, m: X.redistribute([weft.Shard(0)]))",
        ValueError,
        "redistribute: the tensor [2, 3] is not laid out over a mesh;",
    ),
    (
        "on_ranks(lambda w, m: weft.from_local(X, m, [weft.Partial('median')]))",
        ValueError,
        "Partial: \"median\" is none of sum, avg, max, min",
    ),
    ("weft.Partial('median')", ValueError, "Partial: \"median\" is none of sum, avg, max, min"),
    ("weft.Shard('a')", TypeError, "Shard: it takes (dim: int = 0), not ('a')"),
    (
        "on_ranks(lambda w, m: [weft.fully_shard(n, m) for n in [nn.Linear(2, 2)] * 2])",
        ValueError,
        "fully_shard: the module is sharded already",
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
        "fully_shard: it takes (module: Module, mesh: DeviceMesh,",
    ),
    (
        "on_ranks(lambda w, m: weft.fully_shard(nn.Linear(2, 2), m)(X))",
        ValueError,
        "linear_bias: factor k is 3 in operand 0 [2, 3] but 2 in operand",
    ),
    (
        "on_ranks(lambda w, m: weft.parallelize(nn.Sequential(nn.Linear(2, 2)), m, {'5': "
        "weft.Colwise()}))",
        ValueError,
        "parallelize: \"5\" matches no module; the closest are \"*\"",
    ),
    (
        "on_ranks(lambda w, m: weft.parallelize(nn.ReLU(), m, {'': weft.Colwise()}))",
        ValueError,
        "parallelize: \"\" is neither a Linear nor an Embedding, which",
    ),
    (
        "on_ranks(lambda w, m: weft.parallelize(nn.Linear(2, 2), m, {'': 'colwise'}))",
        TypeError,
        "parallelize: the style of '' is a str, none of Colwise,",
    ),
    (
        "weft.load('/no/such/dir', weft.TrainingState())",
        ValueError,
        "safetensors: cannot open /no/such/dir: No such file or directory",
    ),
    (
        "weft.load_hugging_face(nn.Linear(2, 2), '/no/such/dir')",
        ValueError,
        "safetensors: cannot open /no/such/dir: No such file or directory",
    ),
    (
        "weft.CheckpointSaver(3, 'x')",
        TypeError,
        "CheckpointSaver: it takes (world: Communicator, directory: str,",
    ),
    (
        "weft.list_checkpoints('/no/such/dir')",
        ValueError,
        "checkpoint: /no/such/dir: No such file or directory",
    ),
    (
        "weft.inspect_checkpoint('/no/such/dir')",
        ValueError,
        "checkpoint: /no/such/dir is no directory",
    ),
    (
        "weft.set_rng_state(3)",
        TypeError,
        "set_rng_state: it takes (state: tuple[int, int]), not (3)",
    ),
    ("weft.manual_seed('a')", TypeError, "manual_seed: it takes (seed: int), not ('a')"),
    (
        "weft.set_traffic('never')",
        ValueError,
        "traffic: \"never\" is none of allow, free_only, forbid",
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
