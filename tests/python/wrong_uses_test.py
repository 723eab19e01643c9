# SPDX-License-Identifier: Apache-2.0
"""184 wrong uses that a newcomer makes: each raises one true sentence."""

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


def sgd():
    return optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)


S = optim.lr_scheduler


class NoSuper(nn.Module):
    def __init__(self):
        self.layer = nn.Linear(2, 2)


class NoForward(nn.Module):
    pass


class BadForward(nn.Module):
    def forward(self, x):
        return "text"


# The words at the beginning of the sentence, by what is evaluated.
VALUE_ERRORS = {
    "weft.zeros(-1, 2)": "zeros: shape is [-1, 2], expected sizes of at least 0",
    "weft.ones(2, dtype='float31')": 'dtype: name is "float31", expected f32, bf16, f16,',
    "weft.ones(2, device='gpu')": 'device: name is "gpu", expected cpu, meta, cuda or',
    "weft.ones(2, device='cuda:0')": "device: cuda:0 does not exist: ",
    "weft.asarray([[1, 2], [3]])": "asarray: lengths of nested lists differ, expected equal ones",
    "weft.arange(0, 10, 0)": "arange: step is 0, expected another number",
    "weft.linspace(0, 1, -2)": "linspace: number of elements must be at least 0, got -2",
    "weft.randint(5, 2, (3,))": "randint: low and high are 5 and 2, expected low below high",
    "weft.eye(-1)": "eye: shape is [-1, -1], expected sizes of at least 0",
    "X + weft.ones(4, 3)": "add: factor ...0 is 4 in operand 1 [4, 3], expected 2, as in",
    "X @ weft.ones(2, 3)": "matmul: factor k is 2 in operand 1 [2, 3], expected 3, as in",
    "X.sum(dim=2)": "sum: dim is 2, expected one of the 2 dims",
    "X.mean(dim=(0, 0))": "mean: dim 0 of [2, 3] is given twice, expected once",
    "X.max(axis=5)": "max: dim is 5, expected one of the 2 dims",
    "X.reshape(4, 2)": "reshape: number of elements of [4, 2] is 8, expected 6, that",
    "X.reshape(-1, -1)": "reshape: shape is [-1, -1], expected at most one -1",
    "X.view(7)": "reshape: number of elements of [7] is 7, expected 6, that of",
    "X.permute(0, 0)": "permute: dim 0 of [2, 3] is given twice, expected once",
    "X.permute(0)": "permute: number of dims is 1, expected 2, those of [2, 3]",
    "X.transpose(0, 2)": "transpose: dim is 2, expected one of the 2 dims",
    "X.expand(2, 4)": "expand: the tensor is [2, 3], expected one that broadcasts to",
    "weft.squeeze(X, 0)": "squeeze: size of dim 0 of [2, 3] is 2, expected 1",
    "X.unsqueeze(5)": "unsqueeze: dim is 5, expected one of the 3 dims",
    "X.split(0)": "split: the size of a part is 0, expected at least 1",
    "X.split([1, 3], dim=1)": "split: sizes of the parts add up to 4, expected 3, the size of",
    "X.chunk(0)": "chunk: the number of parts is 0, expected at least 1",
    "weft.cat([X, weft.ones(2, 2)], 0)":
        "cat: tensor 1 is [2, 2], expected [2, 3], as tensor 0, except",
    "weft.cat([])": "cat: number of tensors is 0, expected at least 1",
    "weft.stack([X, weft.ones(3, 2)])": "stack: the shapes are [2, 3], [3, 2], expected equal ones",
    "X.narrow(1, 2, 2)": "narrow: start and length are 2 and 2, expected a part of dim 1",
    "X.unflatten(1, (2, 2))": "unflatten: sizes are [2, 2], expected such that their product",
    "X.flatten(1, 0)": "flatten: the last dim is 0, expected at least 1",
    "X[:, ::0]": "slice step cannot be zero",
    "X.__setitem__(0, weft.ones(4))":
        "expand: the tensor is [4], expected one that broadcasts to [3]",
    "X.masked_fill(weft.ones(2, 3), 0)":
        "where: dtype of the condition [2, 3] is f32, expected bool",
    "weft.topk(X, 9)": "topk: k is 9, expected 0 to 3, the size of dim 1",
    "weft.gather(X, 1, weft.ones(2, 3))":
        "take_along_dim: dtype of indices is f32, expected an integer one",
    "weft.einsum('ij,jk', X)": 'einsum: number of operands is 1, expected 2, those of "ij,jk"',
    "weft.einsum('ijk->i', X)": "einsum: operand 0 is [2, 3], expected 3 dims, the labels of",
    "weft.one_hot(weft.asarray([-1, 2]))": "one_hot: elements are -1 to 2, expected 0 to 2",
    "weft.one_hot(weft.asarray([1, 2]), -2)":
        "one_hot: classes is -2, expected at least 1, or -1 for the largest element + 1",
    "weft.torch.scatter_reduce(X, 0, weft.zeros(0, 3, dtype=weft.int64), X, 'max')":
        "scatter_reduce: reduce is max, expected sum, prod, mean, amax or amin",
    "weft.index_add(X, 1, weft.asarray([0, 9]), weft.ones(2, 2))":
        "index_add: index is 9, expected one of the 3 elements of dim 1",
    "leaf(2).add_(1)": "add_: the tensor [2] is a leaf that requires a gradient, or a",
    "leaf(2).sum().backward(weft.ones(3))":
        "backward: the gradient is [3], expected [], the shape of its",
    "leaf(2).backward()": "backward: number of elements of root 0 is 2, expected 1, or",
    "weft.ones(2).sum().backward()":
        "backward: root 0 [] does not require a gradient, expected one",
    "bool(X)": "bool: number of elements is 6, expected 1; any() and all() ask",
    "float(X)": "item: number of elements is 6, expected 1",
    "int(weft.asarray(float('nan')))": "cannot convert float NaN to integer",
    "X.item()": "item: number of elements is 6, expected 1",
    "np.asarray(leaf(2))": "__array__: the tensor [2] requires a gradient, expected one",
    "weft.from_numpy(np.array(['a']))": "numpy: dtype is str32, expected one of float32, bfloat16,",
    "X.to('nowhere')": 'dtype: name is "nowhere", expected f32, bf16, f16,',
    "X.to('float33')": 'dtype: name is "float33", expected f32, bf16, f16,',
    "nn.Linear(0, 2)": "linear: in must be at least 1, got 0",
    "nn.Linear(2, 3)(weft.ones(4))":
        "linear_bias: factor k is 2 in operand 1 [3, 2], expected 4, as",
    "nn.Embedding(3, 2)(weft.asarray([3]))":
        "embedding: id is 3, expected one below 3, the rows of the",
    "nn.Embedding(3, 2)(weft.ones(2))": "embedding: dtype of ids is f32, expected an integer one",
    "nn.Dropout(1.5)": "dropout: probability is 1.5, expected one in [0, 1]",
    "nn.LayerNorm(4)(weft.ones(2, 3))":
        "layer_norm: normalized_shape is [4], expected the last dims of [2, 3]",
    "NoForward()(X)": "module: NoForward has no forward, expected a class that",
    "nn.Linear(2, 2).load_state_dict({'weight': weft.ones(2, 2)})":
        'load_state_dict: the dict: it lacks "bias"',
    "nn.Linear(2, 2).load_state_dict({'weight': weft.ones(3, 2), 'bias': weft.ones(2)})":
        'load_state_dict: tensor "weight" is [3, 2] f32, expected [2,',
    "nn.Linear(2, 2).get_submodule('a.b')":
        'module: "a.b" does not exist: the module has no child "a"',
    "nn.Module().register_buffer('a.b', X)":
        'module: name of a parameter or child is "a.b", expected a',
    "nn.TransformerModel('no_such_file')":
        'model config: "no_such_file" does not exist, expected tiny,',
    "nn.init.normal_(weft.asarray([1, 2]))": "normal_: dtype is i64, expected a floating one",
    "F.cross_entropy(X, weft.asarray([0, 5]))":
        "cross_entropy: target is 5, expected one below 3, the classes",
    "F.cross_entropy(X, weft.asarray([0, 1, 2]))":
        "cross_entropy: targets are [3], expected one for each row of",
    "F.cross_entropy(X, weft.ones(2))":
        "cross_entropy: dtype of targets is f32, expected an integer one",
    "F.cross_entropy(weft.ones(2, 3, 4), weft.ones(2, 3, 4))":
        "cross_entropy: floating targets are [2, 3, 4], expected at most 2 dims, [rows, classes];",
    "F.mse_loss(X, weft.ones(3))": "mse_loss: target is [3], expected [2, 3], the shape of input",
    "F.softmax(X, 3)": "softmax: dim is 3, expected one of the 2 dims",
    "F.gelu(X, approximate='fast')": 'gelu: approximate is "fast", expected none or tanh',
    "F.layer_norm(X, (4,))": "layer_norm: normalized_shape is [4], expected the last dims of",
    "F.dropout(X, 1.5)": "dropout: probability is 1.5, expected one in [0, 1]",
    "F.embedding(X, X)": "embedding: dtype of ids is f32, expected an integer one",
    "F.scaled_dot_product_attention(X, X, X)":
        "scaled_dot_product_attention: query is [2, 3], expected",
    "optim.AdamW([])": "optimizer: number of trainable parameters is 0, expected at",
    "optim.SGD(nn.Linear(2, 2).parameters(), lr=-1)":
        "sgd: learning rate, momentum and weight decay are -1, 0 and 0,",
    "optim.AdamW(nn.Linear(2, 2).parameters(), betas=(1.5, 0.9))":
        "adamw: betas are 1.5 and 0.9, expected both in [0, 1)",
    "optim.SGD(nn.Linear(2, 2).parameters()).step()":
        "optimizer: parameter weight has no memory, expected some; call",
    "optim.SGD([{'params': nn.Linear(2, 2).parameters(), 'decay': 1}])":
        'parameters: option "decay" of group 0 does not exist in this',
    "optim.Optimizer(nn.Linear(2, 2).parameters(), {})":
        'optimizer: option "lr" is missing, expected a learning rate',
    "S.StepLR(sgd(), 0)": "lr_scheduler: step_size is 0, expected a number above 0",
    "S.CosineAnnealingLR(sgd(), 0)": "lr_scheduler: T_max is 0, expected a number above 0",
    "S.CyclicLR(sgd(), 0.1, 0.2, 0)":
        "lr_scheduler: step_size_up is 0, expected a number above 0",
    "sgd().load_state_dict({})":
        "load_state_dict: 'param_groups' is missing, expected a dict with 'state' and",
    "weft.nn.utils.clip_grad_norm_(nn.Linear(2, 2).parameters(), 1.0, norm_type='x')":
        "clip_grad_norm_: norm_type is 'x', expected a number or 'inf'",
    "weft.run_ranks(0, lambda w: None)": "run_ranks: the number of ranks is 0, expected 1 to 1024",
    "on_ranks(lambda w, m: weft.DeviceMesh(w, {'dp': 3}))":
        "mesh(dp=3): number of its ranks is 3, expected 2, those of the",
    "on_ranks(lambda w, m: m['tp'])": 'mesh(dp=2): axis "tp" does not exist',
    "on_ranks(lambda w, m: weft.init_device_mesh('cpu', (2,), mesh_dim_names=('a', 'b'), world=w))":
        "init_device_mesh: number of names is 2, expected 1, the axes",
    "on_ranks(lambda w, m: weft.distribute(X, m, [weft.Shard(2)]))":
        'layout: placement on axis "dp" is S(2), expected a dim of the',
    "on_ranks(lambda w, m: weft.distribute(X, m, [weft.Partial()]))":
        "distribute: a placement is Partial, expected Shard or",
    "on_ranks(lambda w, m: weft.distribute(X, m, {'tp': weft.Shard(0)}))":
        'mesh(dp=2): axis "tp" does not exist',
    "on_ranks(lambda w, m: weft.distribute(weft.distribute(X, m), m))":
        "distribute: the tensor [2, 3] is laid out over mesh(dp=2)[R],",
    "on_ranks(lambda w, m: weft.distribute(X, m, [weft.Shard(0), weft.Shard(1)]))":
        "sharding: number of placements is 2, expected at most 1, the",
    "on_ranks(lambda w, m: weft.from_local(weft.ones(2 + w.rank, 3), m, [weft.Replicate()]))":
        "from_local: part of rank 1 is [3, 3], expected [2, 3] of [2, 3]",
    "on_ranks(lambda w, m: weft.distribute(X, m, [weft.Shard(0)]) + weft.asarray([[1.0, 2, 3]]))":
        "add: operand 1 [1, 3] has no mesh, expected mesh(dp=2), that",
    "on_ranks(lambda w, m: weft.distribute(X, m, [weft.Shard(0)]).numpy())":
        "numpy: the tensor [2, 3] is laid out over mesh(dp=2)[S(0)],",
    "on_ranks(lambda w, m: weft.distribute(X, m, [weft.Shard(0)]).redistribute([weft.Shard(7)]))":
        'layout: placement on axis "dp" is S(7), expected a dim of the',
    "on_ranks(lambda w, m: X.redistribute([weft.Shard(0)]))":
        "redistribute: the tensor [2, 3] has no mesh, expected one over",
    "on_ranks(lambda w, m: weft.from_local(X, m, [weft.Partial('median')]))":
        'partial: reduction is "median", expected sum, avg, max or min',
    "weft.Partial('median')": 'partial: reduction is "median", expected sum, avg, max or min',
    "on_ranks(lambda w, m: [weft.fully_shard(n, m) for n in [nn.Linear(2, 2)] * 2])":
        "fully_shard: the module is sharded already, expected a call",
    "on_ranks(lambda w, m: [weft.fully_shard(n, m) for s in [nn.Sequential(nn.Linear(2, 2))] "
    "for n in (s, s[0])])":
        'fully_shard: module "0" is part of a module that is sharded',
    "on_ranks(lambda w, m: weft.fully_shard(nn.Linear(2, 2), m, strategy='zero9'))":
        'strategy: name is "zero9", expected one of full_shard, zero2,',
    "on_ranks(lambda w, m: weft.fully_shard(nn.Linear(2, 2), m, ignored=['wieght']))":
        'fully_shard: ignored parameter "wieght" does not exist',
    "on_ranks(lambda w, m: weft.fully_shard(nn.Linear(2, 2), m)(X))":
        "linear_bias: factor k is 2 in operand 1 [2, 2], expected 3, as",
    "on_ranks(lambda w, m: weft.parallelize(nn.Sequential(nn.Linear(2, 2)), m, {'5': "
    "weft.Colwise()}))":
        'parallelize: "5" matches no module, expected a path of one;',
    "on_ranks(lambda w, m: weft.parallelize(nn.ReLU(), m, {'': weft.Colwise()}))":
        'parallelize: "" is another module, expected a Linear or an',
    "weft.load('/no/such/dir', weft.TrainingState())":
        "safetensors: cannot open /no/such/dir: No such file or",
    "weft.load_hugging_face(nn.Linear(2, 2), '/no/such/dir')":
        "safetensors: cannot open /no/such/dir: No such file or",
    "weft.list_checkpoints('/no/such/dir')": "checkpoint: /no/such/dir: No such file or directory",
    "weft.inspect_checkpoint('/no/such/dir')":
        "checkpoint: /no/such/dir is missing or a file, expected a",
    "weft.set_traffic('never')": 'traffic: mode is "never", expected allow, free_only or forbid',
}
TYPE_ERRORS = {
    "weft.zeros(2.5)": "zeros: shape is 2.5, expected tuple[int, ...]",
    "weft.zeros(2, 3, foo=1)": 'zeros: argument "foo" does not exist; it takes (*args, ',
    "weft.ones(2, dtype=5)": "ones: dtype is 5, expected DType | str | None",
    "weft.tile(X, ('a',))": "tile: repetitions is a tuple, expected int | Sequence[int]",
    "weft.zeros((2, 'a'))": "zeros: shape is a tuple, expected tuple[int, ...]",
    "weft.asarray('text')": "asarray: it is a str, expected numbers, lists of them or an",
    "X @ 3": "unsupported operand type(s) for @: 'weft.Tensor' and 'int'",
    "X + 'a'": "unsupported operand type(s) for +: 'weft.Tensor' and 'str'",
    "weft.argmax(X, axis=(0, 1))": "argmax: it is a tuple, expected a whole number",
    "len(weft.asarray(1.0))": "len: the tensor has no dims, expected at least 1",
    "list(weft.asarray(1.0))": "iter: the tensor has no dims, expected at least 1",
    "range(3)[weft.asarray(1.5)]": "index: dtype of the tensor is f32, expected an integer one",
    "X.numpy(3)": "numpy: number of arguments by position is 1, expected at most",
    "weft.from_numpy([1, 2])": "from_numpy: arguments are (a list), expected (array:",
    "weft.from_dlpack(3)": "from_dlpack: source is a int, expected an object with",
    "nn.Linear(2, 2).to(3)": "to: it is a int, expected a device, a dtype or a Tensor",
    "nn.Linear(2)": "Linear: out_features is missing, expected int; it takes",
    "nn.Linear(2, 3)(np.ones((1, 2)))":
        "module: input 0 is a numpy.ndarray, expected a weft.Tensor;",
    "nn.Linear(2, 3)(1, 2)": "module: input 0 is a int, expected a weft.Tensor",
    "NoSuper()": "object: __init__ did not run, expected a class that calls",
    "BadForward()(X)": "BadForward: forward: it returned a str, expected Tensors",
    "nn.Sequential(3)": "Sequential: it is a int, expected a Module",
    "nn.ModuleList([1])": "module: item of a list is a int, expected a Module",
    "nn.Linear(2, 2).register_forward_hook(3)": "hook: it is a int, expected a function",
    "nn.Module().register_buffer('a', 3)":
        "register_buffer: 'a' is a int, expected a Tensor or None",
    "optim.AdamW(X)": "parameters: item 0 is a weft.Tensor, expected a Parameter or a",
    "optim.AdamW([X])": "parameters: item 0 is a weft.Tensor, expected a Parameter or a",
    "optim.SGD(nn.Linear(2, 2).parameters(), learning_rate=1)":
        'SGD: argument "learning_rate" does not exist; it takes',
    "optim.SGD([{'lr': 1}])": 'parameters: group 0 has no "params", expected a dict with a',
    "optim.lr_scheduler.StepLR(3, 2)": "lr_scheduler: optimizer is a int, expected an Optimizer",
    "S.MultiStepLR(sgd(), 3)": "lr_scheduler: milestones is 3, expected a list of steps",
    "S.MultiStepLR(sgd(), [1, 'a'])":
        "lr_scheduler: item 1 of milestones is 'a', expected a number",
    "S.SequentialLR(sgd(), 3, [1])":
        "lr_scheduler: schedulers of SequentialLR are 3, expected a list of them",
    "S.ChainedScheduler(3)":
        "lr_scheduler: schedulers of ChainedScheduler are 3, expected a list of them",
    "S.ReduceLROnPlateau(sgd(), factor='a')":
        "lr_scheduler: factor is 'a', expected a number",
    "S.ReduceLROnPlateau(sgd()).step()": "lr_scheduler: metrics is None, expected a number",
    "S.ExponentialLR(sgd(), 'a')": "lr_scheduler: gamma is 'a', expected a number",
    "S.CyclicLR(sgd(), 0.1, 'a')": "lr_scheduler: max_lr is 'a', expected a number",
    "S.StepLR(sgd(), 'a')": "lr_scheduler: step_size is 'a', expected a number above 0",
    "S.StepLR(sgd(), 2).load_state_dict(3)":
        "load_state_dict: the state dict is 3, expected a dict",
    "sgd().load_state_dict(None)":
        "load_state_dict: the state dict is None, expected a dict with 'state' and 'param_groups'",
    "weft.torch.can_cast(1, 2)": "can_cast: argument is 1, expected a tensor or a dtype",
    "weft.torch.result_type(X)": "result_type: missing a required argument: 'tensor2', expected",
    "X.expand_as(1)": "expand_as: other is 1, expected a Tensor",
    "X.expand_as()": "expand_as: missing a required argument: 'other', expected (input, other)",
    "X.transpose()": "transpose: dim0 is missing, expected int; it takes ",
    "weft.full((2,), 1.0, device_mesh=3)": "full: mesh is 3, expected DeviceMesh",
    "weft.run_ranks(2, 3)": "run_ranks: body is 3, expected Callable",
    "weft.Shard('a')": "Shard: dim is 'a', expected int",
    "on_ranks(lambda w, m: weft.fully_shard(nn.Linear(2, 2), 3))":
        "fully_shard: mesh is 3, expected DeviceMesh",
    "on_ranks(lambda w, m: weft.parallelize(nn.Linear(2, 2), m, {'': 'colwise'}))":
        "parallelize: the style of '' is a str, expected Colwise,",
    "weft.CheckpointSaver(3, 'x')": "CheckpointSaver: world is 3, expected Communicator",
    "weft.set_rng_state(3)": "set_rng_state: state is 3, expected tuple[int, int]",
    "weft.manual_seed('a')": "manual_seed: seed is 'a', expected int",
}
INDEX_ERRORS = {
    "X[5]": "index: it is 5, expected one of the 2 elements of dim 0 of [2,",
    "X[0, 0, 0]": "index: number of entries is 3, expected at most 2, the dims of",
    "X['a']": "index: it is a str, expected an int, slice, None, ..., tensor",
    "X[1.5]": "index: it is a float, expected an int, slice, None, ...,",
    "X[weft.ones(3)]": "index: dtype of the tensor [3] is f32, expected an integer or",
    "X[weft.asarray([0, 7])]": "take: index is 7, expected one of the 2 elements of dim 0",
    "X.__setitem__((0, 5), 1.0)": "index: it is 5, expected one of the 3 elements of dim 1 of [2,",
    "nn.Sequential(nn.ReLU())[4]": "sequential: index is 4, expected one of 1 children",
}
ATTRIBUTE_ERRORS = {
    "X.nothing": "'weft.Tensor' object has no attribute 'nothing'",
    "weft.no_such": "weft has no no_such: not offered; nearest: weft.no_sync",
    "nn.Linear(2, 2).weight.nothing": "'weft.Tensor' object has no attribute 'nothing'",
    "nn.Linear(2, 2).nothing": "Linear has no attribute 'nothing'",
}
CASES = [
    (code, kind, words)
    for kind, sentences in (
        (ValueError, VALUE_ERRORS),
        (TypeError, TYPE_ERRORS),
        (IndexError, INDEX_ERRORS),
        (AttributeError, ATTRIBUTE_ERRORS),
    )
    for code, words in sentences.items()
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("code, kind, words", CASES, ids=[code for code, _, _ in CASES])
def test_it_is_one_sentence(code, kind, words):
    with pytest.raises(kind) as raised:
        eval(code, globals())
    text = str(raised.value).split("\nraised by rank")[0]
    assert text.startswith(words)
    assert not any(mark in text for mark in ("\n", "weft._weft", "pybind", "typing.", "std::"))
