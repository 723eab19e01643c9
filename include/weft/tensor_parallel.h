// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "weft/export.h"
#include "weft/extend/op_log.h"
#include "weft/mesh.h"
#include "weft/module.h"
#include "weft/placement.h"
#include "weft/transformer.h"

namespace weft {

// A style states the layouts of one module along the tensor-parallel axis of a mesh: those of its
// parameters, inputs and outputs. Layouts along other axes are unchanged.

/// The placement along the axis that a tensor is redistributed to; nullopt leaves the tensor as it
/// is.
using AxisLayout = std::optional<Placement>;

/// Shards a Linear along its outputs (weight and bias S(0)), an Embedding along its width (weight
/// S(1)). The input is replicated; the output is sharded along its last dim.
struct Colwise {
  AxisLayout output = {};
  /// Number of heads in the outputs, which stay whole: if the ranks do not divide them, the first
  /// ranks have one more. 0: any cut.
  int64_t heads = 0;
  /// More than 1, for a Linear: an input that is sharded along another dim than the last is
  /// gathered in so many parts, and the product begins with the parts that have arrived. Linears of
  /// one parent that are called with the same input gather it once. At most 16.
  int parts = 1;
  /// If the ranks do not divide the heads, each rank has all of them, as of keys that several
  /// queries share.
  bool shares_heads = false;
};

/// Shards a Linear along its inputs (weight S(1), bias replicated), an Embedding along its
/// vocabulary (weight S(0)). The input is sharded along its last dim (ids: replicated). The output
/// is a Partial, which is redistributed to `output`; Shard(1) leaves each rank a part of the
/// sequence.
struct Rowwise {
  AxisLayout output = Replicate();
  /// Number of heads in the inputs, which stay whole.
  int64_t heads = 0;
  /// More than 1, for a Linear with output Shard(d): the product is computed in so many parts, and
  /// each is reduced and scattered while the next one is computed. At most 16.
  int parts = 1;
};

/// Replicates the parameters and shards the input along `dim`: each rank applies norms and dropout
/// of [batch, sequence, width] to a part of the sequence.
struct SequenceParallel {
  int dim = 1;
};

/// Gives each rank of the axis its own experts: all parameters of an Experts, or of another module
/// with parameters stacked by expert, are S(0). Inputs and outputs stay as they are: tokens may be
/// sharded along the axis too, and travel to their experts. Other styles along another axis may cut
/// the experts themselves (call `parallelize` for each axis).
struct ExpertParallel {};

/// Redistributes inputs, by number, to these layouts. Their gradients are redistributed back to the
/// layouts that the inputs had.
struct PrepareInput {
  std::vector<AxisLayout> inputs;
};

/// Redistributes outputs, by number, to these layouts.
struct PrepareOutput {
  std::vector<AxisLayout> outputs;
};

/// States all layouts, for custom modules: own parameters by name (others are replicated), inputs
/// and outputs by number. The other styles are short forms of this one.
struct Layouts {
  std::vector<std::pair<std::string, Placement>> parameters = {};
  std::vector<AxisLayout> inputs = {};
  std::vector<AxisLayout> outputs = {};
};

using Style = std::variant<Colwise, Rowwise, SequenceParallel, ExpertParallel, PrepareInput,
                           PrepareOutput, Layouts>;

/// The style of the modules at a dotted path, in which `*`, `?` and `[...]` match within one name
/// as in a shell: "model.layers.*.mlp.up_proj". Several entries may match one module; "" is the
/// root module.
struct ModuleStyle {
  std::string path;
  Style style;
};

/// Lays out all parameters of `module` over the root mesh of `axis`, a view of one axis
/// (`mesh["tp"]`): as the styles state along that axis, replicated along the others. From then on,
/// calls redistribute inputs and outputs to the styles' layouts. Parameters may be declared only,
/// or have values, which must be equal on all ranks. Inputs must be laid out over the root mesh,
/// e.g. a batch as {{"dp", Shard(0)}}. Call it before `fully_shard`.
///
/// std::invalid_argument names the module, and nothing is changed, when a path matches none (with
/// paths that are close), the heads do not divide a module's width, a style does not fit its module
/// or another style of it, products cannot be split, or a parameter is sharded already.
WEFT_API void parallelize(Module& module, const DeviceMesh& axis,
                          const std::vector<ModuleStyle>& styles);

struct TransformerStyleOptions {
  /// Each rank has only a part of the sequence between the matrix products: the same traffic, less
  /// memory, and norms are not computed by every rank.
  bool sequence_parallel = false;
  /// More than 1, with `sequence_parallel`: the products of attention and feed-forward are split
  /// into so many parts, whose gathers and reductions overlap with them ("async tensor
  /// parallelism").
  int parts = 1;
};

/// Returns the styles of a transformer: embedding, head and loss sharded over the vocabulary
/// (logits stay sharded), attention by heads, the feed-forward along its width. A tied head is
/// sharded like the embedding.
WEFT_API std::vector<ModuleStyle> transformer_styles(const TransformerConfig& config,
                                                     const TransformerStyleOptions& options = {});

/// Returns the styles that give each rank of an axis its own experts of all layers of a
/// TransformerModel. Call `parallelize` with them, then with those of tensor parallelism.
WEFT_API std::vector<ModuleStyle> expert_styles();

/// One collective of a training step: a step of a redistribution.
struct PlannedCollective {
  /// The module whose forward, or whose gradient, runs it.
  std::string module;
  bool backward = false;
  /// The op that requires it, "redistribute", or "backward" for a parameter's gradient.
  std::string op;
  MovementStep step;
};

/// Returns the collectives of one training step of a parallelized model, in order. Runs `loss` and
/// its backward without memory: the parameters are on `meta` meanwhile, and so must be the tensors
/// that `loss` passes to the model. Communicates nothing, so it works on `fake_world`. A model that
/// is fully sharded too must be on `meta` itself (`materialize(meta)`); `explain_schedule` lists
/// the collectives of `fully_shard`'s schedule.
WEFT_API std::vector<PlannedCollective> planned_collectives(Module& model,
                                                            const std::function<Tensor()>& loss);

/// Returns the same as text, by layer; consecutive equal layers are listed once.
WEFT_API std::string explain(Module& model, const std::function<Tensor()>& loss);

}  // namespace weft
