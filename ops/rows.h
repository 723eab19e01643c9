// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "src/kernels/reduce/reduce.h"
#include "src/kernels/softmax/softmax.h"
#include "weft/extend/op.h"
#include "weft/ops/networks.h"
#include "weft/ops/shapes.h"

namespace weft {

// Shared by ops on rows (along operand 0's last dim).

inline int last_dim(const Call& c) { return c.in(0).shape.ndim() - 1; }

/// Stage 0: each row's largest, or smallest, element.
inline Stage row_extreme_stage(bool greatest = true) {
  return {.result = "...",
          .reduce = greatest ? ReduceOp::max : ReduceOp::min,
          .run = [kind = greatest ? Reduction::max : Reduction::min](const Call& c) {
            reduce(kind, c.stage(0), c.in(0), {last_dim(c)});
          }};
}

/// Returns a stage that sums over a rank's part of each row.
inline Stage row_sum_stage(std::function<void(const Call&)> run) {
  return {.result = "...", .reduce = ReduceOp::sum, .run = std::move(run)};
}

/// Stage 1: each row's sum of exp(x - max).
inline Stage row_sum_exp_stage() {
  return row_sum_stage(
      [](const Call& c) { row_sum_exp(c.stage(1), c.in(0), last_dim(c), c.stage(0)); });
}

/// The dtype of sums over rows: f64 for f64, f32 otherwise.
inline DType row_dtype(const Attributes&, std::span<const DType> operands, int) {
  return operands[0] == DType::f64 ? DType::f64 : DType::f32;
}

/// Returns a view with `dim`, which is not negative, moved to the end.
inline Tensor with_last(const Tensor& a, int dim) {
  return dim == a.ndim() - 1 ? a : moveaxis(a, {dim}, {-1});
}

/// Checks ids over a mesh before an op sees this rank's slice of them: all ranks throw where one
/// has a mistake. `find` returns that of this rank's part, or "". False for other ids.
bool check_ids_on_all_ranks(const Tensor& ids, const std::function<std::string()>& find);

/// Throws std::invalid_argument "what: ..." for options that do not fit that many classes.
void check_loss_options(const char* what, const CrossEntropyOptions& options, int64_t classes);

/// Reduces the losses of rows with these classes as targets.
Tensor reduced_loss(const Tensor& rows, const Tensor& targets, const CrossEntropyOptions& options);

}  // namespace weft
