// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <span>
#include <vector>

#include "ops/engine/backward_run.h"
#include "weft/extend/op.h"

namespace weft {

/// The results of one op as gradients: result r goes where edge r leads, summed to shape r.
struct DeferredProduct {
  std::vector<Node::Edge> edges = {};
  std::vector<Shape> shapes = {};
  Op op;
  Tensors operands = {};
  Attributes attributes;
};

/// Returns whether products of gradients may wait on this rank now.
bool is_deferring();
/// Returns whether a backward runs within another one: of a function that is run again, whose
/// inputs are leaves too.
bool is_nested_backward();
/// Leaves the product of `node` to a DeferredGradients, if all its edges lead to leaves that may
/// wait; returns whether it does.
bool defer(const BackwardRun& backward, const Node& node, DeferredProduct product);

/// Returns `gradient` summed over the dims that broadcasting added or stretched.
Tensor summed_to(const Tensor& gradient, const Shape& shape);

/// Computes an op whose result r is the gradient that `edge(r)` leads to, in the memory of the
/// leaf's gradient where possible; calls `give(r, gradient)` elsewhere.
template <class EdgeOf, class Give>
void pass_results(BackwardRun& backward, size_t count, const Op& op,
                  std::span<const Tensor> operands, const Attributes& attributes,
                  const EdgeOf& edge, const Give& give) {
  std::array<Place, kMaxResults> places;
  for (size_t r = 0; r < count; ++r) {
    if (edge(r).node) places[r] = backward.place_for(edge(r));
  }
  Results results =
      dispatch_into(op.shared(), operands, attributes, std::span(places.data(), count));
  for (size_t r = 0; r < count; ++r) {
    if (places[r].tensor) {
      Engine::current().reached_sink(places[r].tensor, places[r].direct);
    } else {
      give(r, results.tensors[r]);
    }
  }
}

}  // namespace weft
