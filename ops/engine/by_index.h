// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "mesh/layout.h"
#include "ops/engine/binding.h"
#include "weft/extend/op.h"
#include "weft/storage.h"

namespace weft {

struct CallBody;
struct Route;

/// How the rows of one call move by index.
struct IndexRoute {
  ByIndex given;
  /// The dim whose rows move, of the operand that has them and of result 0.
  int dim = 0;
  /// Axes over which rows are read or sent; none where each rank keeps its part of its own rows.
  Axes over;
  /// Bytes that this rank is expected to receive.
  int64_t expected_bytes = 0;
};

/// Returns how rows move in a call of that route; null where each rank has all that it needs.
std::unique_ptr<const IndexRoute> index_route(const ByIndex& given, const Binding& binding,
                                              const Route& route);

/// Predicted time of moving the rows of dim `dim`: as if all indices named rows of other ranks.
/// `used` lays out the operand with the rows, `result` result 0. Equal on all ranks.
double predicted_rows_seconds(const ByIndex& given, int dim, const Layout& used,
                              const Layout& result);

/// Memory of the rows of a call, and the bytes that were received.
struct MovedRows {
  std::vector<Ref<Storage>> memory;
  int64_t bytes = 0;
};

/// Checks all indices that this rank has, before it computes with a slice of them: all ranks with
/// the same indices throw the same std::invalid_argument.
void check_sliced_indices(const OpBody& op, const Route& route, const Tensor& indices);

/// Moves the rows that the indices of a call name, and gives it these and indices into them.
/// std::invalid_argument on all ranks that take part when one of them has an index out of range.
MovedRows move_rows(const OpBody& op, const Route& route, CallBody& call);

// Operands whose rows do not move by index, but whose slices are fetched from other ranks.

/// Returns the slice of an operand that a slice of the result needs.
using Needs = std::function<Box(const Box& result)>;

/// Returns each rank's slice of the operand, clipped to the operand's shape.
std::vector<Box> needed_boxes(const Layout& operand, const Layout& result, const Needs& needs);

/// Returns how many elements the rank that lacks most of what it needs lacks.
int64_t most_missing(const Layout& operand, const std::vector<Box>& needed);

/// Predicted time of fetching, for the bytes of the rank that needs most from others.
double predicted_fetch_seconds(const Layout& operand, const Layout& result, const Needs& needs);

}  // namespace weft
