// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <vector>

#include "mesh/layout.h"
#include "mesh/plan.h"
#include "ops/op_body.h"

namespace weft {

/// How one operand gets to where the op computes.
struct OperandRoute {
  /// As it is given: part of the key.
  Ref<Layout> given;
  /// As it is used.
  Ref<Layout> used;
  /// What turns one into the other; none when they are one.
  Ref<Plan> move = {};
  /// A slice of `used` is taken (~ dims): this rank's, in global coordinates, and every rank's.
  bool fetched = false;
  bool fetch_is_local = false;
  Box box = {};
  std::vector<Box> fetched_boxes = {};
  /// Of the slice, what other ranks have.
  int64_t fetched_bytes = 0;
};

struct StageRoute {
  Ref<Layout> partial;
  Ref<Layout> reduced;
  Ref<Plan> reduce;
};

/// What an op call does for operands of these layouts: worked out once, then looked up.
struct Route final : public RefCounted {
  // The key.
  uint32_t op;
  Dims structure;

  std::vector<OperandRoute> operands;
  std::vector<Ref<Layout>> results;
  std::vector<StageRoute> stages;
  /// An operand is not used where it lies, or a stage reduces.
  bool moves = false;
  /// Some of that crosses ranks (on any of them: equal on all).
  bool communicates = false;
  bool staged = false;
  bool counts_here = true;
  /// Of indices of all factors, on this rank; 0 for an op without products.
  double combinations = 0;
  /// Received from other ranks by operands' moves, fetches and stages.
  int64_t bytes = 0;

  static void destroy(Route* route) { delete route; }
};

/// Works out the route of a call; throws what is wrong with its operands.
Ref<Route> make_route(const OpBody& op, const Attributes& attributes,
                      std::span<const Tensor> operands);

/// The routes of one mesh (or of unsharded calls): bounded and flat; the owner clears a full one.
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

/// The table of the operands' mesh, or the calling rank's own.
RouteTable& routes_for(std::span<const Tensor> operands);

}  // namespace weft
