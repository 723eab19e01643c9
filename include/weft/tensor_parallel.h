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
#include "weft/llama.h"
#include "weft/mesh.h"
#include "weft/module.h"
#include "weft/movements.h"
#include "weft/placement.h"

namespace weft {

// A style says how one module lies along the tensor-parallel axis of a mesh. It is layouts and
// nothing else: of the module's parameters, and of what goes in and comes out. Other axes stay as
// they are.

/// What a tensor is brought to along the axis; nothing: it stays as it comes.
using AxisLayout = std::optional<Placement>;

/// A Linear cut along its outputs (weight and bias S(0)), an Embedding along its width (weight
/// S(1)). The input, whole or brought to be, gives an output that is cut along its last dim.
struct Colwise {
  AxisLayout output = {};
  /// The outputs are so many heads that stay whole: the ranks must divide them. 0: any cut.
  int64_t heads = 0;
};

/// A Linear cut along its inputs (weight S(1), bias whole), an Embedding along its vocabulary
/// (weight S(0)). The input, cut along its last dim or brought to be (ids: whole), gives addends of
/// the output, which are added up to `output`; Shard(1) leaves each rank a part of the sequence.
struct Rowwise {
  AxisLayout output = Replicate();
  /// The inputs are so many heads that stay whole.
  int64_t heads = 0;
};

/// Whole parameters, and an input that is cut along `dim`: norms and dropout of
/// [batch, sequence, width] on a part of the sequence each.
struct SequenceParallel {
  int dim = 1;
};

/// Inputs by number are brought to these; the gradients that they get from within are brought back
/// to the layouts in which they came.
struct PrepareInput {
  std::vector<AxisLayout> inputs;
};

/// Outputs by number are brought to these.
struct PrepareOutput {
  std::vector<AxisLayout> outputs;
};

/// What the others are short for: own parameters by name (those that are not named are whole),
/// inputs and outputs by number. For modules of one's own.
struct Layouts {
  std::vector<std::pair<std::string, Placement>> parameters = {};
  std::vector<AxisLayout> inputs = {};
  std::vector<AxisLayout> outputs = {};
};

using Style =
    std::variant<Colwise, Rowwise, SequenceParallel, PrepareInput, PrepareOutput, Layouts>;

/// The style of the modules at a dotted path, in which `*` stands for any part of one name:
/// "model.layers.*.mlp.up_proj". Several entries may name one module; "" is the outermost.
struct ModuleStyle {
  std::string path;
  Style style;
};

/// Lays out all parameters of `module` over the root mesh of `axis`, a view of one axis
/// (`mesh["tp"]`): as the styles say along that axis, whole along the others; and brings inputs and
/// outputs to the styles' layouts from now on. Parameters may be declared or have their values,
/// equal on all ranks. Inputs must be laid out over the root mesh, a batch for example as
/// {{"dp", Shard(0)}}. Call it before `fully_shard`.
///
/// Nothing is changed, and std::invalid_argument names the module, when a path matches none (with
/// paths that are close), heads are not divided by the ranks, a style does not fit its module or
/// another style of it, or a parameter is sharded already.
WEFT_API void parallelize(Module& module, const DeviceMesh& axis,
                          const std::vector<ModuleStyle>& styles);

struct LlamaStyleOptions {
  /// Between the matrix products each rank has a part of the sequence instead of all of it: as much
  /// traffic, less memory, norms computed once.
  bool sequence_parallel = false;
};

/// The Llama's styles: embedding, head and loss cut over the vocabulary (logits stay so), attention
/// by heads, the feed-forward along its width. A tied head is cut as the embedding is.
WEFT_API std::vector<ModuleStyle> llama_styles(const LlamaConfig& config,
                                               const LlamaStyleOptions& options = {});

/// One collective of a training step: a step of a redistribution.
struct PlannedCollective {
  /// The module in whose forward, or in whose gradient, it is.
  std::string module;
  bool backward = false;
  /// What asked for it: an op, "redistribute", or "backward" for a parameter's gradient.
  std::string op;
  MovementStep step;
};

/// The collectives of one training step of a parallelized model, in their order, found by running
/// `loss` and its backward without memory: its parameters are on `meta` meanwhile, and so must be
/// the tensors that `loss` gives the model. Nothing is communicated, so that it works on
/// `fake_world`. A model that is fully sharded too must be without memory itself
/// (`materialize(meta)`); what `fully_shard` moves by its schedule is in `explain_schedule`.
WEFT_API std::vector<PlannedCollective> planned_collectives(Module& model,
                                                            const std::function<Tensor()>& loss);

/// The same in words, by layer; layers that are alike are listed once.
WEFT_API std::string explain(Module& model, const std::function<Tensor()>& loss);

}  // namespace weft
