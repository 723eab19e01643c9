// SPDX-License-Identifier: Apache-2.0
#include "mesh/mesh_body.h"
#include "ops/engine/engine.h"
#include "ops/engine/route.h"
#include "ops/engine/tensor_body.h"
#include "weft/extend/hash.h"

namespace weft {

/// A table is full at three quarters: 3,072 routes.
static constexpr size_t kRouteSlots = 4096;

RouteTable::RouteTable() : slots_(kRouteSlots) {}

static uint64_t hash_of(uint32_t op, const Dims& structure) {
  uint64_t hash = mixed(op, static_cast<uint64_t>(structure.ndim()));
  for (int64_t value : structure) hash = mixed(hash, static_cast<uint64_t>(value));
  return hash;
}

static uint64_t address(const Layout* layout) { return reinterpret_cast<uintptr_t>(layout) >> 4; }

static bool fits(const Route& route, uint32_t op, const Dims& structure,
                 std::span<const Tensor> operands) {
  if (route.op != op || route.operands.size() != operands.size()) return false;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!(route.operands[i].given == layout_of(operands[i]))) return false;
  }
  return route.structure == structure;
}

Route* RouteTable::find(uint32_t op, const Dims& structure, std::span<const Tensor> operands) {
  uint64_t hash = hash_of(op, structure);
  for (const Tensor& operand : operands) hash = mixed(hash, address(layout_of(operand).get()));
  for (size_t at = slot_of(hash); slots_[at].route; at = slot_of(at + 1)) {
    if (slots_[at].hash != hash) continue;
    Route* route = slots_[at].route.get();
    if (fits(*route, op, structure, operands)) return route;
  }
  return nullptr;
}

void RouteTable::insert(Ref<Route> route) {
  uint64_t hash = hash_of(route->op, route->structure);
  for (const OperandRoute& operand : route->operands)
    hash = mixed(hash, address(operand.given.get()));
  size_t at = slot_of(hash);
  while (slots_[at].route) at = slot_of(at + 1);
  slots_[at] = {hash, std::move(route)};
  ++used_;
}

RouteTable& routes_for(std::span<const Tensor> operands) {
  for (const Tensor& operand : operands) {
    const Sharding& sharding = layout_of(operand)->sharding;
    if (!sharding) continue;
    std::shared_ptr<RouteTable>& routes = body_of(sharding).routes;
    if (!routes) [[unlikely]]
      routes = std::make_shared<RouteTable>();
    return *routes;
  }
  return Engine::current().local_routes;
}

void RouteTable::clear() {
  for (Slot& slot : slots_) slot.route = {};
  used_ = 0;
}

}  // namespace weft
