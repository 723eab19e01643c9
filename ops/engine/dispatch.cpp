// SPDX-License-Identifier: Apache-2.0
#include "ops/engine/engine.h"

#include <algorithm>

#include "ops/engine/call_watch.h"
#include "ops/engine/copied_view.h"
#include "ops/engine/trace_recorder.h"
#include "src/kernels/copy/copy.h"
#include "weft/error.h"
#include "weft/extend/fixed_sums.h"
#include "weft/extend/hash.h"
#include "weft/extend/pattern.h"

namespace weft {

namespace {

/// The state of one op call.
struct Running {
  Running(const OpBody& body, Route& way, std::span<const Tensor> operands,
          const Attributes& attributes)
      : op(body), route(way), call(way, attributes), device(device_of(body, operands)) {}

  const OpBody& op;
  Route& route;
  UsedOperands used;
  /// Tensors made by moves, fetches and stages, and copies of operands that share memory with an
  /// operand that is changed or do not lie densely; kept alive while forward runs.
  InlineList<Tensor, 3 * kMaxOperands + kMaxResults> made;
  /// Operand 0's slice, if it is fetched from other ranks.
  const Tensor* slice = nullptr;
  /// The whole result is a view, by its form; the view that was made is of memory of this call.
  bool is_view = false, is_copied = false;
  CallBody call;
  MovedRows rows;
  Results results;
  Device device;
};

}  // namespace

static uint64_t hash_of(uint32_t op, const Dims& structure, std::span<const Tensor> operands) {
  uint64_t hash = mixed(op, static_cast<uint64_t>(structure.ndim()));
  for (int64_t value : structure) hash = mixed(hash, static_cast<uint64_t>(value));
  for (const Tensor& operand : operands) {
    hash = mixed(hash, reinterpret_cast<uintptr_t>(layout_of(operand).get()) >> 4);
  }
  return hash;
}

static bool fits(const Route& route, uint32_t op, const Dims& structure,
                 std::span<const Tensor> operands) {
  if (route.op != op || route.operands.size() != operands.size()) return false;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!(route.operands[i].given == layout_of(operands[i]))) return false;
  }
  return route.structure == structure;
}

/// Null for operands that have to join a mesh before.
static Ref<Route> route_for(Engine& engine, const OpBody& op, std::span<const Tensor> operands,
                            const Attributes& attributes) {
  if (operands.size() > kMaxOperands) {
    fail(op.spec.name, ": it has ", operands.size(), " operands, expected at most ", kMaxOperands);
  }
  for (const Tensor& operand : operands) check_tensor(op.spec.name.c_str(), operand);
  EngineStatistics& statistics = engine.statistics;
  ++statistics.calls;
  RouteTable& table = routes_for(operands);
  const uint64_t hash = hash_of(op.id, attributes.structure, operands);
  const auto is_it = [&](const Route& route) {
    return fits(route, op.id, attributes.structure, operands);
  };
  if (Route* route = table.find(hash, is_it)) {
    ++statistics.route_hits;
    return Ref<Route>(route);
  }
  if (mesh_to_join(op, operands)) return {};
  ++statistics.route_misses;
  Ref<Route> route = make_route(op, attributes, operands);
  const int64_t before = table.statistics().evictions;
  table.insert(hash, route);
  statistics.route_evictions += table.statistics().evictions - before;
  return route;
}

/// Adds the slice of operand i that the op computes on, fetched from other ranks if necessary.
static void add_fetched(Running& run, const OperandRoute& operand, const Tensor& used) {
  MemoryBlock block = used.block();
  if (operand.fetch_is_local) {
    run.call.ins.add(block.part(relative(operand.box, operand.used->box)));
    return;
  }
  Engine::current().fetched(run.op.spec.name, *operand.used, operand.fetched_bytes);
  const Tensor& slice =
      run.made.add(new_tensor(layout_of(Sharding(), operand.box.shape, used.dtype()), run.device));
  if (run.device.kind != DeviceKind::meta) {
    fetch(
        operand.used, block,
        [&](int rank) { return operand.fetched_boxes[static_cast<size_t>(rank)]; }, slice.block());
  }
  run.call.ins.add(slice.block());
  if (run.call.ins.size() == 1) run.slice = &slice;
}

static void add_operands(Running& run, std::span<const Tensor> operands, TracedCall& traced) {
  const std::string& name = run.op.spec.name;
  if (run.route.moves) [[unlikely]] {
    check_policy(name, run.route.moves, run.route.communicates);
    if (run.route.communicates) Engine::current().required(name, run.route.bytes);
  }
  if (!run.route.cut_indices.empty()) [[unlikely]]
    check_cut_indices(run.op, run.route, operands);
  for (size_t i = 0; i < operands.size(); ++i) {
    const OperandRoute& route = run.route.operands[i];
    refresh(operands[i]);
    const Tensor* used = &operands[i];
    if (route.move) {
      if (run.route.sliced_dim >= 0 && i == static_cast<size_t>(run.op.spec.by_index->indices)) {
        check_sliced_indices(run.op, run.route, operands[i]);
      }
      used = &run.made.add(run_plan(operands[i], route.move, name));
    }
    run.used.add(used);
    if (route.fetched) {
      add_fetched(run, route, *used);
    } else {
      run.call.ins.add_made([used] { return used->body()->block(); });
    }
  }
  if (run.route.by_index) [[unlikely]]
    run.rows = move_rows(run.op, run.route, run.call);
  traced.moves(run.route.bytes + run.rows.bytes);
}

static void run_stages(Running& run) {
  for (size_t i = 0; i < run.route.stages.size(); ++i) {
    const StageRoute& stage = run.route.stages[i];
    Tensor partial = new_tensor(stage.partial, run.device);
    run.call.stages.add(partial.block());
    if (run.device.kind != DeviceKind::meta) run.op.spec.stages[i].run(Call(run.call));
    Tensor& reduced =
        run.made.add(stage.reduce ? run_plan(partial, stage.reduce, run.op.spec.name) : partial);
    run.call.stages[static_cast<int>(i)] = reduced.block();
  }
}

/// Copies of operands that do not lie densely, for an op that takes them so.
static void make_dense(Running& run) {
  for (int i = 0; i < run.call.ins.size(); ++i) {
    MemoryBlock& in = run.call.ins[i];
    if ((run.op.dense_in >> i & 1) && !in.is_dense()) {
      in = run.made.add(snapshot_of(in)).block();
    }
  }
}

/// Copies operands that were changed in a dense copy back to their memory.
static void return_writes(Running& run) {
  for (const int w : run.op.spec.writes) {
    const MemoryBlock to = run.used[w]->block();
    if (run.call.ins[w].data != to.data) copy(to, run.call.ins[w]);
  }
}

static void compute(Running& run) {
  if (run.device.kind != DeviceKind::meta) {
    if (!run.route.staged || !run.op.spec.across) return run.op.spec.forward(Call(run.call));
    run_across(run.op, run.route, run.call);
  } else {
    Engine::current().skipped(run.op, run.route, run.call);
  }
}

/// Makes result 0 of a view op from `given`, its operand; returns false when forward has to copy.
/// Over a mesh, whether the result is a view follows from the form of the whole.
static bool make_view(Running& run, const Tensor& given) {
  const Ref<Form>& form = given.body()->form;
  const bool has_form = run.route.results[0]->sharding || form;
  if (has_form) {
    if (!run.route.has_form || !same_form(run.route.form_in, form)) [[unlikely]]
      find_form(run.op, run.call.attributes, run.route, form);
    run.is_view = run.route.is_view;
    if (!run.is_view && run.op.spec.forward) return false;
  }
  std::optional<View> view = run.op.spec.view(Call(run.call));
  if (!view && run.op.spec.forward) return false;
  if (!view) fail(run.op.spec.name, ": view and forward are missing here, expected one of them");
  const Tensor& operand = run.slice ? *run.slice : *run.used[0];
  const TensorBody& body = *operand.body();
  int64_t offset = body.offset + view->offset;
  const OperandRoute& route = run.route.operands[0];
  if (route.fetched && !run.slice) {
    for (int d = 0; d < route.box.shape.ndim(); ++d) {
      offset += (route.box.offset[d] - route.used->box.offset[d]) * body.strides[d];
    }
  }
  run.results.tensors[0] = make_tensor(run.route.results[0], body.storage, offset, view->strides);
  if (has_form) {
    TensorBody& made = *run.results.tensors[0].body();
    made.form = run.route.form_out;
    run.is_copied = (route.move || run.slice) && !(body.storage == given.body()->storage);
    if (!run.is_copied) made.copied = body.copied;
  } else if (body.copied) [[unlikely]] {
    run.results.tensors[0].body()->copied = body.copied;
  }
  run.results.count = 1;
  return true;
}

/// Links result 0 with the operand if it is a view of it, but a copy in memory.
static void link_copy(const std::shared_ptr<const OpBody>& op, const Running& run,
                      const Tensor& given, bool is_made) {
  if (is_made ? !run.is_copied : !run.is_view) return;
  const Tensor& result = run.results.tensors[0];
  result.body()->form = run.route.form_out;
  CopiedView::attach(result, given, op, run.call.attributes);
}

/// True when `from` and `to` place elements alike: no bytes move and no zeros are written.
static bool lies_alike(const Ref<Layout>& from, const Ref<Layout>& to) {
  if (from == to) return true;
  if (!(from->shape == to->shape)) return false;
  if (!from->sharding || !to->sharding) return false;
  if (from->sharding == to->sharding) return true;
  Ref<Plan> plan = plan_between(from, layout_of(to->sharding, from->shape, from->dtype));
  std::optional<Box> part = local_part(*plan);
  return part && part->shape == from->box.shape;
}

static bool is_operand(const Running& run, const MemoryBlock& block) {
  return std::ranges::any_of(run.call.ins.all(), [&](const MemoryBlock& in) {
    return block.data && (in.data == block.data || is_disturbed(in, block));
  });
}

/// True if a half-precision result may go to the place, of f32: the op honours `accumulate`,
/// because it then computes in f32.
static bool may_widen(const Running& run, const Ref<Layout>& result, size_t index,
                      const Place& place) {
  return contains(run.op.spec.accumulates, static_cast<int>(index)) && place.tensor &&
         place.tensor.dtype() == DType::f32 &&
         (result->dtype == DType::bf16 || result->dtype == DType::f16);
}

/// True if the op can write to the place itself: a dense one, unless it honours `accumulate`.
static bool writes_directly(const Running& run, const Ref<Layout>& result, size_t index,
                            const Place& place) {
  if (!place.tensor) return false;
  const bool honours = contains(run.op.spec.accumulates, static_cast<int>(index));
  if (place.accumulate && !honours) return false;
  const MemoryBlock block = place.tensor.block();
  if ((!honours && !block.is_dense()) || is_operand(run, block)) return false;
  return lies_alike(result, layout_of(place.tensor)) &&
         (result->dtype == place.tensor.dtype() || may_widen(run, result, index, place));
}

/// Makes the results, in their places; those that cannot be written there directly get scratch
/// memory.
static void make_results(Running& run, std::span<Place> places) {
  for (size_t i = 0; i < run.route.results.size(); ++i) {
    Ref<Layout> layout = run.route.results[i];
    Place* place = i < places.size() ? &places[i] : nullptr;
    const bool direct = place && writes_directly(run, layout, i, *place);
    // Ranks round alike, whether they write directly or not.
    if (place && !direct && FixedSums::current() && may_widen(run, layout, i, *place)) {
      layout = layout_of(layout->sharding, layout->shape, DType::f32);
    }
    Tensor& result = run.results.tensors[i];
    result = direct ? place->tensor : new_tensor(layout, run.device);
    run.call.outs.add_made([&] { return result.body()->block(); });
    run.call.accumulate[i] = direct && place->accumulate;
    if (place) place->direct = direct;
  }
  run.results.count = static_cast<int>(run.route.results.size());
}

/// Copies operands that are read but share memory with operands that are changed in place.
static void keep_apart(Running& run) {
  for (const int w : run.op.spec.writes) {
    for (int i = 0; i < run.call.ins.size(); ++i) {
      if (!is_disturbed(run.call.ins[i], run.call.ins[w])) continue;
      if (contains(run.op.spec.writes, i)) {
        fail(run.op.spec.name, ": operands ", w, " and ", i, " share memory, expected separate");
      }
      run.call.ins[i] = run.made.add(snapshot_of(run.call.ins[i])).block();
    }
  }
}

static void check_writes(const OpBody& op, std::span<const Tensor> operands) {
  for (int i : op.spec.writes) {
    const Tensor& written = operands[static_cast<size_t>(i)];
    if (written.body()->copied) check_changeable(op.spec.name.c_str(), written);
    if (!Context::current().grad_enabled || !written.requires_grad()) continue;
    fail(op.spec.name, ": operand ", i,
         " requires a gradient, expected none of what changes in place; use NoGrad");
  }
}

static void mark_equality(std::span<const Tensor> operands, const Results& results) {
  const auto is_equal = [](const Tensor& x) {
    return !x.is_sharded() && x.storage()->is_equal_on_ranks();
  };
  if (!std::ranges::all_of(operands, is_equal)) return;
  for (const Tensor& result : results.all()) result.storage()->mark_equal_on_ranks();
}

/// Gives a call of a repeated run the results that the first run kept; false if it kept none.
static bool take_kept(KeptResults& kept, Running& run) {
  for (const Tensor& result : kept.take(run.op.spec.name)) {
    Tensor& taken = run.results.tensors[static_cast<size_t>(run.results.count++)];
    taken = relabeled(result, layout_of(result));
  }
  return run.results.count > 0;
}

/// Computes the results, in their places.
static void make_and_compute(Running& run, std::span<Place> places) {
  const bool is_made_dense = run.op.dense_in && run.device.kind != DeviceKind::meta;
  if (is_made_dense) make_dense(run);
  if (!run.op.spec.writes.empty()) keep_apart(run);
  if (run.route.staged) run_stages(run);
  make_results(run, places);
  compute(run);
  if (is_made_dense) return_writes(run);
}

Results dispatch(const std::shared_ptr<const OpBody>& op, std::span<const Tensor> operands,
                 const Attributes& attributes) {
  const RankThread::Call call(thread_of(operands), op->spec.name);
  Engine& engine = Engine::current();
  TracedCall traced(engine.trace, *op, operands);
  Ref<Route> route = route_for(engine, *op, operands, attributes);
  if (!route) [[unlikely]]
    return dispatch(op, joined(*op, operands), attributes);
  check_writes(*op, operands);
  Running run(*op, *route, operands, attributes);
  add_operands(run, operands, traced);
  const bool is_made = op->spec.view && make_view(run, operands[0]);
  if (!is_made && !(engine.kept && take_kept(*engine.kept, run))) {
    make_and_compute(run, {});
    if (engine.kept) [[unlikely]]
      engine.kept->keep(op->spec.name, run.results.all());
  }
  if (op->spec.view) link_copy(op, run, operands[0], is_made);
  for (int i : op->spec.writes) changed(operands[static_cast<size_t>(i)]);
  if (Context::current().grad_enabled && op->spec.differentiable) {
    record_op(op, std::move(route), attributes, operands, run.used, run.results);
  }
  if (!operands.empty() && operands[0].body()->storage->is_equal_on_ranks()) [[unlikely]]
    mark_equality(operands, run.results);
  if (engine.watch) [[unlikely]]
    engine.watch->computed(*op, operands, attributes, run.results.all());
  return std::move(run.results);
}

static void check_place(const OpBody& op, const Ref<Layout>& result, const Place& place) {
  if (!place.tensor || result->shape == place.tensor.shape()) return;
  fail(op.spec.name, ": the destination is ", place.tensor.shape(), ", expected ", result->shape,
       ", the shape of the result");
}

static void fill_places(const Results& results, std::span<Place> places) {
  for (size_t i = 0; i < places.size(); ++i) {
    if (!places[i].tensor) continue;
    if (places[i].direct) {
      changed(places[i].tensor);
    } else {
      const Tensor& value = results.tensors[i];
      const FixedSums* sums = FixedSums::current();
      add_into(places[i].tensor, places[i].accumulate, sums ? sums->reduced(value) : value);
    }
  }
}

Results dispatch_into(const std::shared_ptr<const OpBody>& op, std::span<const Tensor> operands,
                      const Attributes& attributes, std::span<Place> places) {
  const RankThread::Call call(thread_of(operands), op->spec.name);
  NoGrad no_grad;
  Engine& engine = Engine::current();
  TracedCall traced(engine.trace, *op, operands);
  Ref<Route> route = route_for(engine, *op, operands, attributes);
  if (!route) [[unlikely]]
    return dispatch_into(op, joined(*op, operands), attributes, places);
  for (size_t i = 0; i < places.size(); ++i) check_place(*op, route->results[i], places[i]);
  check_writes(*op, operands);
  Running run(*op, *route, operands, attributes);
  add_operands(run, operands, traced);
  if (!op->spec.view || !make_view(run, operands[0])) make_and_compute(run, places);
  for (int i : op->spec.writes) changed(operands[static_cast<size_t>(i)]);
  fill_places(run.results, places);
  const auto has_place = [](const Place& place) { return bool(place.tensor); };
  if (engine.watch && std::ranges::none_of(places, has_place)) [[unlikely]]
    engine.watch->computed(*op, operands, attributes, run.results.all());
  return std::move(run.results);
}

}  // namespace weft
