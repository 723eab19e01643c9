// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/communicator.h"
#include "weft/extend/disk_memory.h"
#include "weft/extend/module_sharder.h"
#include "weft/parameter.h"
#include "weft/reduce_op.h"
#include "weft/tensor.h"
#include "weft/tier.h"

// Access of optimizers to the memory of many parameters.

namespace weft {

/// Indices of tensors, in the order of their memory.
using Run = std::vector<size_t>;

/// True when, for each tensor of `run`, the local elements directly follow those of the tensor
/// before.
bool is_adjacent(const Tensors& tensors, const Run& run);

/// Splits the tensors `of` that have local elements into the longest runs that are adjacent in each
/// of `lists` and in which `may_follow`, if given, holds for neighbours.
std::vector<Run> adjacent_runs(
    const std::vector<const Tensors*>& lists, std::vector<size_t> of,
    const std::function<bool(size_t before, size_t after)>& may_follow = {});

/// Tensors on disk are adjacent if one array follows the other in a file, but are not joined by
/// `flat`. `copied_flat` copies such a run to memory, where it is joined.
Tensor copied_flat(const Tensors& tensors, const Run& run);
/// Returns the local elements of a run in one dimension, or the only tensor's part with its shape.
Tensor flat(const Tensors& tensors, const Run& run);

/// Dtype of the state of a value.
inline DType state_dtype(const Tensor& value, DType asked) {
  return value.dtype() == f64 ? f64 : asked;
}

/// A tensor for each parameter, in the layout of its value.
struct ParameterState {
  Tensors tensors;
  /// The file in which they rest, if they do.
  std::shared_ptr<DiskMemory> file = {};
  /// The files of parameters that were added later.
  std::vector<std::shared_ptr<DiskMemory>> added = {};
};
/// Makes zeros. In memory they are adjacent where the values are, on disk none is; errors name them
/// "<what> of parameter <name>".
ParameterState new_state(const Tier& tier, const std::string& what,
                         const std::vector<NamedParameter>& parameters, DType asked);

/// The runs of parameters that one call updates, for as long as they stay adjacent.
struct ParameterRuns {
  std::vector<size_t> with_gradient;
  std::vector<Run> runs;
  /// Values and gradients during a step, by parameter.
  Tensors values, gradients;
  /// Indexed by moment.
  std::vector<ParameterState> state;
  Tensor one;

  bool hold() const {
    return std::all_of(runs.begin(), runs.end(), [&](const Run& run) {
      return is_adjacent(values, run) && is_adjacent(gradients, run);
    });
  }
};

/// An array of one rank that an update reads and, if it `changes`, also writes.
struct UpdatedArray {
  Tensor array;
  bool changes;
};

/// Passes arrays with equal numbers of elements, some of which are in pinned host memory, through
/// `device` part by part, and calls `work` with the parts there (one dimension). Two parts are in
/// flight at a time; copies in and out have their own streams. Asynchronous: call `await_offloaded`
/// before the host uses the arrays. std::invalid_argument unless they are dense.
void update_offloaded(Device device, const std::vector<UpdatedArray>& arrays,
                      const std::function<void(const Tensors& parts)>& work);
void await_offloaded(Device device);

/// Passes the arrays of several updates, some of which rest on disk, through bounded buffers window
/// by window, and calls `work` with the number of the update and its parts in memory (one
/// dimension). The next window is read and the two before it are written meanwhile. The arrays of
/// an update have equal numbers of elements.
void update_through_memory(const std::vector<std::vector<UpdatedArray>>& updates,
                           const std::function<void(size_t update, const Tensors& parts)>& work);

/// The least model of the parameter and of `model`, where 0 is none.
inline uint64_t least_model(uint64_t model, const Parameter& parameter) {
  const uint64_t own = ModuleSharder::model_of(parameter);
  return own != 0 && (model == 0 || own < model) ? own : model;
}

/// Turns sums over the local elements of tensors, with any layouts and meshes, into sums over the
/// whole tensors by one all-reduce. An element that several ranks hold counts once.
class SquaresReduction {
 public:
  /// std::invalid_argument when a tensor is Partial, or when no mesh is known to contain the ranks
  /// of all others. Ranks that reduce for other models, which `model` tells apart, fail.
  SquaresReduction(const char* what, const Tensors& tensors, uint64_t model);

  /// True when this rank's part of tensor `i` counts.
  bool counts_here(size_t i) const { return counts_[i]; }
  /// Adds up the ranks' numbers in place, or takes the greatest: a dense tensor of one device, of
  /// equal size on each rank. Has no effect if no tensor is laid out over several ranks.
  void reduce(const Tensor& sums, ReduceOp op = ReduceOp::sum) const;
  void reduce_numbers(std::span<int64_t> numbers, ReduceOp op) const;

 private:
  const char* what_;
  uint64_t model_;
  /// Empty when no tensor has a sharding.
  Communicator ranks_;
  std::vector<bool> counts_;
};

}  // namespace weft
