// SPDX-License-Identifier: Apache-2.0
#include "ops/engine/route.h"

#include <algorithm>

#include "mesh/rows.h"
#include "ops/engine/choose.h"
#include "ops/engine/engine.h"
#include "ops/engine/tensor_body.h"
#include "weft/error.h"
#include "weft/extend/pattern.h"

namespace weft {

/// Reduces the sizes of factors to those that this part shows.
static void see_factors(std::span<const Binding::BoundDim> dims, const Shape& local,
                        std::vector<int64_t>& sizes) {
  for (size_t d = 0; d < dims.size(); ++d) {
    // Only the first factor of merged dims can be cut; the others are whole.
    if (dims[d].empty()) continue;
    int64_t& size = sizes[static_cast<size_t>(dims[d][0])];
    int64_t inner = 1;
    for (size_t f = 1; f < dims[d].size(); ++f) inner *= sizes[static_cast<size_t>(dims[d][f])];
    size = std::min(size, local[static_cast<int>(d)] / std::max<int64_t>(1, inner));
  }
}

/// The number of combinations of the indices of all factors on this rank.
static double factor_combinations(const Binding& binding, const Route& route) {
  std::vector<int64_t> sizes;
  for (const auto& factor : binding.factors) sizes.push_back(factor.size);
  for (size_t i = 0; i < route.operands.size(); ++i) {
    see_factors(binding.operands[i], route.operands[i].used->box.shape, sizes);
  }
  for (size_t i = 0; i < route.results.size(); ++i) {
    see_factors(binding.results[i], route.results[i]->box.shape, sizes);
  }
  double product = 1;
  for (int64_t size : sizes) product *= static_cast<double>(std::max<int64_t>(0, size));
  return product;
}

namespace {

/// Works out the route of one call.
class Router {
 public:
  Router(const OpBody& op, const Attributes& attributes, std::span<const Tensor> operands)
      : op_(op), attributes_(attributes), route_(new Route) {
    route_->op = op.id;
    route_->structure = attributes.structure;
    for (const Tensor& operand : operands) {
      layouts_.push_back(layout_of(operand));
      shapes_.push_back(operand.shape());
      dtypes_.push_back(operand.dtype());
    }
  }

  Ref<Route> make() {
    check_structure();
    check_dtypes();
    DeviceMesh mesh = common_mesh();
    const ParsedRule rule = rule_for(op_, attributes_, shapes_);
    binding_ = bind_rule(op_.spec.name, rule, shapes_);
    if (binding_.results.size() > kMaxResults) {
      fail(op_.spec.name, ": number of results is ", binding_.results.size(), ", expected at most ",
           kMaxResults);
    }
    for (size_t i = 0; i < binding_.results.size(); ++i) result_dtypes_.push_back(result_dtype(i));
    mesh ? lay_out_over(mesh, rule) : lay_out_here();
    if (op_.spec.products) route_->combinations = factor_combinations(binding_, *route_);
    return route_;
  }

 private:
  void check_structure() const {
    const Structure& taken = op_.spec.structure;
    if (!taken.fits) return;
    if (shapes_.empty()) fail(op_.spec.name, ": number of operands is 0, expected at least 1");
    if (taken.fits(attributes_.structure, shapes_)) return;
    fail(op_.spec.name, ": structure is ", attributes_.structure, ", expected ", taken.names,
         " for operands ", listed(shapes_));
  }

  void check_dtypes() const {
    for (size_t i = 0; i < dtypes_.size(); ++i) {
      const std::vector<DType>& dtypes = taken(op_.spec, i).dtypes;
      if (dtypes.empty() && is_float8(dtypes_[i]) && !op_.spec.moves && !op_.spec.view) {
        fail(op_.spec.name, ": operand ", i, ' ', shapes_[i], " is ", dtypes_[i],
             ", expected a dtype with arithmetic; cast it first");
      }
      if (dtypes.empty() && is_complex(dtypes_[i])) check_takes_complex(i);
      if (dtypes.empty() || std::ranges::find(dtypes, dtypes_[i]) != dtypes.end()) continue;
      fail(op_.spec.name, ": operand ", i, ' ', shapes_[i], " is ", dtypes_[i], ", expected ",
           listed(dtypes, {}, " or "), "; cast it, or let the op say that it takes ", dtypes_[i]);
    }
  }

  void check_takes_complex(size_t i) const {
    const std::optional<bool>& takes = op_.spec.complex;
    if (takes.value_or(op_.spec.moves || op_.spec.view)) return;
    fail(op_.spec.name, ": operand ", i, ' ', shapes_[i], " is ", dtypes_[i],
         ", expected a real dtype; ",
         takes ? "complex numbers have no order" : "the op has no complex kernel");
  }

  DeviceMesh common_mesh() const {
    size_t first = 0;
    while (first < layouts_.size() && !layouts_[first]->sharding) ++first;
    if (first == layouts_.size()) return {};
    DeviceMesh mesh = layouts_[first]->sharding.mesh();
    for (size_t i = 0; i < layouts_.size(); ++i) {
      const Sharding& sharding = layouts_[i]->sharding;
      if (!sharding) {
        fail(op_.spec.name, ": operand ", i, " ", shapes_[i], " has no mesh, expected ", mesh,
             ", that of operand ", first, " ", shapes_[first],
             "; from_local(operand, mesh, {Shard(0)}) makes it of rows that differ between ranks, "
             "distribute(operand, mesh, {}) of values that are equal on all");
      }
      if (!(sharding.mesh() == mesh)) {
        fail(op_.spec.name, ": operand ", i, " is laid out over ", sharding.mesh(), ", expected ",
             mesh, ", as operand ", first);
      }
    }
    return mesh;
  }

  DType result_dtype(size_t i) const {
    if (op_.spec.dtype) return op_.spec.dtype(attributes_, dtypes_, static_cast<int>(i));
    return dtypes_.empty() ? DType::f32 : dtypes_[0];
  }

  Needs needs_of(int operand) const {
    return [this, operand](const Box& box) {
      return op_.spec.needs(attributes_, operand, shapes_, box);
    };
  }

  DType stage_dtype(size_t i) const {
    if (op_.spec.stages[i].index || !is_floating(dtypes_[0])) return DType::i64;
    return dtypes_[0] == DType::f64 ? DType::f64 : DType::f32;
  }

  void lay_out_here() {
    for (size_t i = 0; i < binding_.results.size(); ++i) add_result(i, Sharding());
    for (size_t i = 0; i < layouts_.size(); ++i) add_operand(i, layouts_[i]);
  }

  void lay_out_over(const DeviceMesh& mesh, const ParsedRule& rule) {
    const auto needs = [this](int operand) { return needs_of(operand); };
    const Choice choice = choose_layouts(
        {op_.spec, binding_, layouts_, result_dtypes_, rule.staged, rule.joined, needs}, mesh);
    for (size_t i = 0; i < choice.results.size(); ++i) add_result(i, choice.results[i]);
    for (size_t i = 0; i < layouts_.size(); ++i) {
      add_operand(i, layout_of(choice.operands[i], shapes_[i], dtypes_[i]));
    }
    if (op_.spec.by_index) add_index_route(rule.joined.first < 0);
    if (choice.staged) add_stages(mesh, choice, rule.staged[0]);
    if (!route_->results.empty()) route_->counts_here = counts_here(route_->results[0]->sharding);
  }

  void add_result(size_t i, const Sharding& sharding) {
    route_->results.push_back(layout_of(sharding, binding_.result_shapes[i], result_dtypes_[i]));
  }

  void add_operand(size_t i, Ref<Layout> used) {
    // Layouts of a mesh whose tables are made again are other objects.
    if (used->sharding == layouts_[i]->sharding) used = layouts_[i];
    OperandRoute operand{layouts_[i], std::move(used)};
    operand.box = operand.used->box;
    if (!(operand.given == operand.used)) {
      operand.move = plan_between(operand.given, operand.used);
      route_->bytes += operand.move->cost.bytes;
      route_->moves = route_->moves || !operand.move->steps.empty();
      route_->communicates = route_->communicates || !operand.move->is_free();
    }
    if (is_fetched(binding_, i) && !op_.spec.by_index) add_fetch(i, operand);
    route_->operands.push_back(std::move(operand));
  }

  void add_fetch(size_t i, OperandRoute& operand) {
    operand.fetched = true;
    operand.fetched_boxes = needed_boxes(
        *operand.used, follows_operand(binding_, i) ? *route_->operands[0].used : route_->written(),
        needs_of(static_cast<int>(i)));
    operand.fetch_is_local = most_missing(*operand.used, operand.fetched_boxes) == 0;
    const int rank = operand.used->grid ? operand.used->grid->rank() : 0;
    operand.box = operand.fetched_boxes[static_cast<size_t>(rank)];
    if (operand.fetch_is_local) return;
    int64_t own = overlap(operand.box, operand.used->box).shape.product();
    int64_t missing = operand.box.shape.product() - own;
    operand.fetched_bytes = missing * static_cast<int64_t>(size_of(dtypes_[i]));
    route_->bytes += operand.fetched_bytes;
    route_->moves = route_->communicates = true;
  }

  /// `may_be_wrong`: the indices are the user's, not those that experts' rows were counted by.
  void add_index_route(bool may_be_wrong) {
    const int rows = op_.spec.by_index->rows;
    if (!is_fetched(binding_, static_cast<size_t>(rows))) {
      fail(op_.spec.name, ": rule has no ~ dim in operand ", rows, ", expected one for by_index");
    }
    const ByIndex& by_index = *op_.spec.by_index;
    const OperandRoute& indices = route_->operand(by_index.indices);
    route_->indexed_dim = fetched_dim(binding_, static_cast<size_t>(rows));
    if (indices.move && indices.move->is_free()) route_->sliced_dim = route_->indexed_dim;
    // Addends come from gradients, whose indices were checked when they were first used.
    const bool is_read = by_index.into < 0 || by_index.written != ByIndex::Written::add;
    const bool is_partial = indices.given->grid && indices.given->sharding.has_partial();
    if (may_be_wrong && by_index.from_end && is_read && !is_partial) {
      route_->cut_indices = axes_cutting(*indices.given);
    }
    route_->by_index = index_route(*op_.spec.by_index, binding_, *route_);
    if (!route_->by_index || route_->by_index->over.empty()) return;
    route_->moves = route_->communicates = true;
  }

  void add_stages(const DeviceMesh& mesh, const Choice& choice, int factor) {
    route_->staged = true;
    find_parts(choice, factor);
    if (op_.spec.across) route_->moves = route_->communicates = true;
    for (size_t i = 0; i < op_.spec.stages.size(); ++i) {
      StageRoute stage = op_.spec.stages[i].gathered ? gathered_stage(mesh, choice, i)
                                                     : reduced_stage(mesh, choice, i);
      if (!(stage.partial == stage.reduced)) {
        stage.reduce = plan_between(stage.partial, stage.reduced);
        route_->bytes += stage.reduce->cost.bytes;
        route_->moves = route_->communicates = true;
      }
      route_->stages.push_back(std::move(stage));
    }
  }

  /// Finds the axes that cut the factor in operand 0.
  void find_parts(const Choice& choice, int factor) {
    const Binding::BoundArray& dims = binding_.operands[0];
    for (size_t d = 0; d < dims.size(); ++d) {
      if (dims[d].empty() || dims[d][0] != factor) continue;
      route_->part_dim = static_cast<int>(d);
      route_->part_axes = choice.operands[0].pattern().cutting(route_->part_dim);
    }
  }

  StageRoute reduced_stage(const DeviceMesh& mesh, const Choice& choice, size_t i) const {
    const Shape& shape = binding_.stage_shapes[i];
    return {layout_of(partial_over_cuts(mesh, choice, i), shape, stage_dtype(i)),
            layout_of(choice.stages[i], shape, stage_dtype(i)),
            {}};
  }

  /// The stage's shape with a leading dim that has one element per part, cut as the factor is.
  StageRoute gathered_stage(const DeviceMesh& mesh, const Choice& choice, size_t i) const {
    const Pattern& given = choice.stages[i].pattern();
    Pattern whole(mesh.ndim());
    for (int axis = 0; axis < mesh.ndim(); ++axis) {
      if (!given[axis].is_shard()) whole.set(axis, given[axis]);
    }
    for (int d = 0; d < binding_.stage_shapes[i].ndim(); ++d) cut_like(whole, d + 1, given, d);
    Pattern cut = whole;
    int64_t parts = 1;
    for (const int axis : route_->part_axes) {
      cut.set(axis, Shard{0});
      parts *= mesh.axis_size(axis);
    }
    Shape shape = binding_.stage_shapes[i];
    shape.insert(0, parts);
    const DType dtype = stage_dtype(i) == DType::f32 ? DType::f64 : stage_dtype(i);
    return {layout_of(Sharding::of(mesh, cut), shape, dtype),
            layout_of(Sharding::of(mesh, whole), shape, dtype),
            {}};
  }

  /// A stage's result is Partial on the axes that cut a factor of operand 0 that the stage lacks.
  Sharding partial_over_cuts(const DeviceMesh& mesh, const Choice& choice, size_t stage) const {
    Pattern pattern = choice.stages[stage].pattern();
    for (int axis = 0; axis < mesh.ndim(); ++axis) {
      if (!choice.operands[0][axis].is_shard() || !pattern[axis].is_replicate()) continue;
      pattern.set(axis, Partial{op_.spec.stages[stage].reduce});
    }
    return Sharding::of(mesh, pattern);
  }

  const OpBody& op_;
  const Attributes& attributes_;
  Ref<Route> route_;
  std::vector<Ref<Layout>> layouts_;
  std::vector<Shape> shapes_;
  std::vector<DType> dtypes_;
  std::vector<DType> result_dtypes_;
  Binding binding_;
};

}  // namespace

Ref<Route> make_route(const OpBody& op, const Attributes& attributes,
                      std::span<const Tensor> operands) {
  return Router(op, attributes, operands).make();
}

RouteTable& routes_for(std::span<const Tensor> operands) {
  for (const Tensor& operand : operands) {
    const Sharding& sharding = layout_of(operand)->sharding;
    if (!sharding) continue;
    std::shared_ptr<RouteTable>& routes = body_of(sharding).routes;
    if (!routes) [[unlikely]]
      routes = std::make_shared<RouteTable>(kRouteCapacity);
    return *routes;
  }
  return Engine::current().local_routes;
}

}  // namespace weft
