// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "mesh/layout.h"
#include "mesh/plan.h"
#include "ops/engine/binding.h"
#include "ops/engine/by_index.h"

namespace weft {

/// How one operand gets to the layout in which the op uses it.
struct OperandRoute {
  /// The given layout: part of the key.
  Ref<Layout> given;
  /// The layout in which the op uses it.
  Ref<Layout> used;
  /// The plan from `given` to `used`; null when they are equal.
  Ref<Plan> move = {};
  /// True for ~ dims: the op uses a slice of `used`, this rank's `box` (in global coordinates) out
  /// of every rank's `fetched_boxes`.
  bool fetched = false;
  bool fetch_is_local = false;
  Box box = {};
  std::vector<Box> fetched_boxes = {};
  /// Bytes of the slice that other ranks hold.
  int64_t fetched_bytes = 0;
};

struct StageRoute {
  Ref<Layout> partial;
  Ref<Layout> reduced;
  Ref<Plan> reduce;
};

/// The work of an op call for operands of given layouts: worked out once, then looked up.
struct Route final : public RefCounted {
  // The key, together with the operands' given layouts.
  uint32_t op;
  Dims structure;

  std::vector<OperandRoute> operands;
  std::vector<Ref<Layout>> results;
  std::vector<StageRoute> stages;
  /// How rows move by index; null where none do.
  std::unique_ptr<const IndexRoute> by_index;
  /// The dim that the indices of an op `by_index` name, where this rank computes with a slice of
  /// the indices that it has; otherwise -1.
  int sliced_dim = -1;
  /// An operand is redistributed or fetched, or a stage reduces.
  bool moves = false;
  /// Some of these movements cross ranks (on any rank: equal on all).
  bool communicates = false;
  bool staged = false;
  /// The axes that cut the first factor that the op is staged over, outermost first, and the dim of
  /// operand 0 that has it.
  Axes part_axes = {};
  int part_dim = -1;
  bool counts_here = true;
  /// Combinations of the indices of all factors, on this rank; 0 for an op without products.
  double combinations = 0;
  /// Bytes received from other ranks by moves, fetches and stages.
  int64_t bytes = 0;

  const OperandRoute& operand(int i) const { return operands[static_cast<size_t>(i)]; }
  const Layout& result(int i) const { return *results[static_cast<size_t>(i)]; }
  static void destroy(Route* route) { delete route; }
};

/// Works out the route of a call; throws when the operands do not fit.
Ref<Route> make_route(const OpBody& op, const Attributes& attributes,
                      std::span<const Tensor> operands);

/// The routes of one mesh, or of calls without one. Bounded and flat; the owner clears a full
/// table.
class RouteTable {
 public:
  RouteTable();
  Route* find(uint32_t op, const Dims& structure, std::span<const Tensor> operands);
  void insert(Ref<Route> route);
  bool is_full() const { return used_ * 4 >= slots_.size() * 3; }
  size_t size() const { return used_; }
  void clear();

 private:
  size_t slot_of(uint64_t hash) const { return hash & (slots_.size() - 1); }

  struct Slot {
    uint64_t hash = 0;
    Ref<Route> route;
  };
  std::vector<Slot> slots_;
  size_t used_ = 0;
};

/// Returns the table of the operands' mesh, or the calling rank's table without a mesh.
RouteTable& routes_for(std::span<const Tensor> operands);

}  // namespace weft
