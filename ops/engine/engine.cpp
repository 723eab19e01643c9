// SPDX-License-Identifier: Apache-2.0
#include "ops/engine/engine.h"

#include <algorithm>

#include "ops/engine/backward_run.h"
#include "ops/engine/call_watch.h"
#include "src/comm/rank_thread.h"
#include "src/device/cuda/runtime.h"
#include "src/kernels/copy/copy.h"
#include "weft/error.h"
#include "weft/extend/op.h"
#include "weft/extend/parts.h"
#include "weft/storage.h"

namespace weft {

static Engine& made_engine(Context& context) {
  auto engine = std::make_shared<Engine>();
  context.engine = engine;
  return *engine;
}

Engine& Engine::current() {
  Context& context = Context::current();
  if (!context.engine) [[unlikely]]
    return made_engine(context);
  return *context.engine;
}

void check_policy(const std::string& what, bool moves, bool communicates) {
  const Traffic traffic = Context::current().traffic;
  if (traffic == Traffic::allow) return;
  if (!communicates && !(moves && traffic == Traffic::forbid)) return;
  fail(what, ": operands need a redistribution ", communicates ? "between" : "within",
       " ranks, expected layouts without one, as the ",
       "traffic policy demands; redistribute them explicitly");
}

/// Returns whether both have the same placements on all axes of several ranks.
static bool cuts_alike(const Sharding& a, const Sharding& b) {
  if (!a || !b) return false;
  for (int axis = 0; axis < a.axes(); ++axis) {
    if (a.mesh().axis_size(axis) > 1 && !(a[axis] == b[axis])) return false;
  }
  return true;
}

Tensor run_plan(const Tensor& tensor, const Ref<Plan>& plan, const std::string& what) {
  const RankThread::Call call(plan->to->grid ? &plan->to->grid->thread() : nullptr, what);
  Engine::current().planned(what, *plan);
  refresh(tensor);
  const TensorBody& body = *tensor.body();
  if (std::optional<Box> part = local_part(*plan)) {
    int64_t offset = body.offset;
    for (int d = 0; d < part->shape.ndim(); ++d) offset += part->offset[d] * body.strides[d];
    Tensor made = make_tensor(plan->to, body.storage, offset, body.strides);
    made.body()->copied = body.copied;
    if (cuts_alike(body.layout->sharding, plan->to->sharding)) made.body()->form = body.form;
    return made;
  }
  Tensor result = new_tensor(plan->to, tensor.device());
  if (tensor.device().kind == DeviceKind::meta) {
    // Counts the memory that the plan would take in addition to source and result.
    const int64_t beside = plan->cost.peak_bytes - static_cast<int64_t>(result.storage()->bytes());
    if (beside > 0) Storage::allocate(static_cast<size_t>(beside), meta);
  } else {
    run(*plan, tensor.block(), result.block());
  }
  return result;
}

Tensor moved_to(const Tensor& tensor, const Ref<Layout>& layout) {
  const Layout& from = *layout_of(tensor);
  refresh(tensor);
  if (&from == layout.get()) return tensor;
  if (from.sharding && from.sharding == layout->sharding && from.shape == layout->shape) {
    return tensor;
  }
  return run_plan(tensor, plan_between(layout_of(tensor), layout));
}

Tensor with_whole_cuts(const Tensor& tensor) {
  if (!tensor.is_sharded() || !tensor.sharding().has_inner()) return tensor;
  Pattern pattern = tensor.sharding().pattern();
  for (int axis = 0; axis < pattern.axes(); ++axis) {
    if (pattern[axis].outer() > 1) pattern.set(axis, Shard{pattern[axis].dim()});
  }
  return redistributed(tensor, Sharding::of(tensor.sharding().mesh(), pattern));
}

DeviceMesh mesh_to_join(const OpBody& op, std::span<const Tensor> operands) {
  DeviceMesh mesh;
  bool joins = false;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].is_sharded()) {
      mesh = operands[i].sharding().mesh();
      continue;
    }
    const bool is_written = contains(op.spec.writes, static_cast<int>(i));
    if (is_written || !operands[i].storage()->is_equal_on_ranks()) return {};
    joins = true;
  }
  return joins ? mesh : DeviceMesh();
}

Tensors joined(const OpBody& op, std::span<const Tensor> operands) {
  const DeviceMesh mesh = mesh_to_join(op, operands);
  Tensors all(operands.begin(), operands.end());
  for (Tensor& operand : all) {
    if (!operand.is_sharded()) operand = distribute(operand, mesh, {});
  }
  return all;
}

OpLog::OpLog() {
  OpLog*& log = Engine::current().log;
  if (log) fail("op log: the rank has one already, expected none");
  log = this;
}

OpLog::~OpLog() { Engine::current().log = nullptr; }

const EngineStatistics& engine_statistics() { return Engine::current().statistics; }

std::string implicit_traffic() {
  std::string lines;
  for (const auto& [name, moved] : Engine::current().implicit) {
    lines += concat(name, ": ", moved.count, " times, ", moved.bytes, " bytes\n");
  }
  return lines;
}

void Engine::gather(const Storage& storage) const {
  const auto found = gatherers.find(&storage);
  if (found != gatherers.end()) found->second();
}

void set_gatherer(const Tensor& tensor, std::function<void()> gather) {
  auto& gatherers = Engine::current().gatherers;
  gatherers.erase(tensor.storage().get());
  if (gather) gatherers.emplace(tensor.storage().get(), std::move(gather));
}

void Engine::required(const std::string& what, int64_t bytes) {
  ++statistics.implicit_redistributions;
  statistics.implicit_bytes += bytes;
  Moved& moved = implicit[what];
  ++moved.count;
  moved.bytes += bytes;
}

void Engine::exchanged(const std::string& what, const Layout& from, int64_t bytes) {
  statistics.implicit_bytes += bytes;
  implicit[what].bytes += bytes;
  fetched(what, from, bytes);
}

void Engine::reached_sink(const Tensor& contribution, bool in_place) {
  if (in_place) {
    ++statistics.gradients_in_place;
    return;
  }
  ++statistics.gradient_copies;
  statistics.gradient_copy_bytes +=
      contribution.block().numel() * static_cast<int64_t>(size_of(contribution.dtype()));
}

static Movement begun(const std::string& what) {
  return {.what = what, .scope = Context::current().scope, .backward = is_in_backward()};
}

void Engine::planned(const std::string& what, const Plan& plan) {
  if (watch) [[unlikely]]
    watch->planned(what, plan);
  if (!log || plan.is_free()) return;
  Movement movement = begun(what);
  for (const PlanStep& step : plan.steps) {
    if (step.kind == PlanStep::Kind::local) continue;
    movement.steps.push_back({.kind = std::string(name_of(step.kind)),
                              .axes = step.to->grid->names(step.axes),
                              .from = placements_in_words(step.from->sharding),
                              .to = placements_in_words(step.to->sharding),
                              .bytes = step.cost.bytes,
                              .seconds = step.cost.seconds});
  }
  log->movements.push_back(std::move(movement));
}

void Engine::fetched(const std::string& what, const Layout& from, int64_t bytes) {
  if (watch) [[unlikely]]
    watch->fetched(what, from, bytes);
  if (!log) return;
  Movement movement = begun(what);
  const std::string placements = placements_in_words(from.sharding);
  movement.steps.push_back({.kind = "exchange",
                            .axes = from.grid->names(from.grid->all_axes()),
                            .from = placements,
                            .to = placements,
                            .bytes = bytes,
                            .seconds = predicted_exchange_seconds(from.sharding.mesh(), bytes)});
  log->movements.push_back(std::move(movement));
}

static int64_t bytes_of(std::span<const MemoryBlock> blocks) {
  int64_t bytes = 0;
  for (const MemoryBlock& block : blocks) {
    bytes += block.numel() * static_cast<int64_t>(size_of(block.dtype));
  }
  return bytes;
}

void Engine::skipped(const OpBody& op, const Route& route, const CallBody& call) {
  if (!log) return;
  const DType dtype = call.ins.size() > 0 ? call.ins[0].dtype : call.outs[0].dtype;
  auto found = std::ranges::find_if(log->work, [&](const OpWork& work) {
    return work.dtype == dtype && work.op == op.spec.name;
  });
  if (found == log->work.end()) found = log->work.insert(found, {op.spec.name, dtype});
  ++found->calls;
  const int64_t bytes = bytes_of(call.ins.all()) + bytes_of(call.outs.all());
  found->bytes += bytes;
  found->largest = std::max(found->largest, bytes);
  if (op.spec.products) {
    found->operations += 2 * op.spec.products(call.attributes) * route.combinations;
  }
}

/// Returns the parts of the factor that the op is staged over.
static Parts parts_of(const Route& route) {
  const Layout& layout = *route.operands[0].used;
  MeshGrid& grid = *layout.grid;
  std::vector<Chunk> chunks;
  for (const int rank : grid.members(route.part_axes, grid.coordinates())) {
    const Box box = layout.box_of(rank);
    chunks.push_back({box.offset[route.part_dim], box.shape[route.part_dim]});
  }
  return {grid.group(route.part_axes), std::move(chunks)};
}

/// Returns memory of the host for that block: the block itself if it is on the host.
static MemoryBlock on_host(const MemoryBlock& block, std::vector<DenseMemory>& memory) {
  if (block.device.kind == DeviceKind::cpu) return block;
  return memory.emplace_back(block.shape, block.dtype, cpu).block;
}

void run_across(const OpBody& op, const Route& route, const CallBody& call) {
  if (cuda::kWithCuda && cuda::is_capturing()) {
    fail(op.spec.name,
         ": parts of a dim exchange data in a recorded graph, expected a call outside ",
         "of it: the host reads them");
  }
  std::vector<DenseMemory> memory;
  CallBody host(route, call.attributes);
  for (const MemoryBlock& in : call.ins.all()) {
    const MemoryBlock& block = host.ins.add(on_host(in, memory));
    if (block.data != in.data) copy(block, in);
  }
  for (const MemoryBlock& out : call.outs.all()) host.outs.add(on_host(out, memory));
  Parts parts = parts_of(route);
  op.spec.across(Call(host), parts);
  for (int i = 0; i < call.outs.size(); ++i) {
    if (host.outs[i].data != call.outs.all()[static_cast<size_t>(i)].data) {
      copy(call.outs.all()[static_cast<size_t>(i)], host.outs[i]);
    }
  }
  Engine::current().exchanged(op.spec.name, *route.operands[0].used, parts.received());
}

KeptResults::KeptResults(std::vector<std::string> ops) : ops_(std::move(ops)) {
  for (const std::string& name : ops_) {
    const auto& known = all_ops();
    const auto found =
        std::ranges::find_if(known, [&](const Op& op) { return op.spec().name == name; });
    if (found == known.end()) {
      fail("recompute: a kept op is ", in_quotes(name),
           ", expected the name of one, as \"linear\"");
    }
    if (!found->spec().writes.empty()) {
      fail("recompute: kept op ", in_quotes(name),
           " changes its operands, expected one that makes results");
    }
  }
}

KeptResults::Scope::Scope(KeptResults* results, Run run)
    : before_(std::exchange(Engine::current().kept, results)),
      run_before_(results ? results->run_ : Run::first) {
  if (!results) return;
  results->run_ = run;
  results->next_ = 0;
}

KeptResults::Scope::~Scope() {
  KeptResults* results = std::exchange(Engine::current().kept, before_);
  if (results) results->run_ = run_before_;
}

bool KeptResults::concerns(const std::string& op, Run run) const {
  return run_ == run && std::ranges::find(ops_, op) != ops_.end();
}

void KeptResults::keep(const std::string& op, std::span<const Tensor> results) {
  if (!concerns(op, Run::first)) return;
  Kept kept{op, {results.begin(), results.end()}, {}};
  for (const Tensor& result : kept.results) kept.versions.push_back(result.storage()->version());
  kept_.push_back(std::move(kept));
}

Tensors KeptResults::take(const std::string& op) {
  if (!concerns(op, Run::repeated)) return {};
  if (next_ >= kept_.size() || kept_[next_].op != op || kept_[next_].results.empty()) {
    const bool known = next_ < kept_.size();
    fail("recompute: call ", next_, " of a kept op is of ", op, " in backward, expected ",
         known ? kept_[next_].op : std::string("none"), ", as in forward");
  }
  Kept& kept = kept_[next_++];
  kept.check_versions();
  return std::exchange(kept.results, {});
}

void KeptResults::Kept::check_versions() const {
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].storage()->version() == versions[i]) continue;
    fail("recompute: kept result ", i, " of ", op, " ", results[i].shape(),
         " was changed in place after forward, expected the same values in backward");
  }
}

Tensors KeptResults::release() {
  Tensors all;
  for (Kept& kept : kept_) {
    kept.check_versions();
    for (Tensor& result : kept.results) all.push_back(std::exchange(result, {}));
  }
  return all;
}

void KeptResults::restore(Tensors results) {
  auto next = results.begin();
  for (Kept& kept : kept_) {
    for (size_t i = 0; i < kept.results.size(); ++i) {
      kept.results[i] = std::move(*next++);
      kept.versions[i] = kept.results[i].storage()->version();
    }
  }
}

/// True if `from` has sums over ranks that `to` does not have.
static bool reduces(const Sharding& from, const Sharding& to) {
  if (!from || !from.has_partial()) return false;
  for (int axis = 0; axis < from.mesh().ndim(); ++axis) {
    if (from[axis].is_partial() && !to[axis].is_partial()) return true;
  }
  return false;
}

void add_into(const Tensor& destination, bool accumulate, const Tensor& value) {
  const Ref<Layout>& to = layout_of(destination);
  // Sums across ranks are as exact as those of the destination.
  const bool widens =
      size_of(to->dtype) > size_of(value.dtype()) && reduces(value.sharding(), to->sharding);
  const Tensor addend = widens ? value.to(to->dtype) : value;
  Tensor moved = moved_to(addend, layout_of(to->sharding, addend.shape(), addend.dtype()));
  if (destination.device().kind == DeviceKind::meta) return;
  if (accumulate) {
    weft::accumulate(destination.block(), moved.block());
  } else {
    copy(destination.block(), moved.block());
  }
  changed(destination);
}

RankThread* thread_of(std::span<const Tensor> operands) {
  for (const Tensor& operand : operands) {
    if (operand && layout_of(operand)->grid) return &layout_of(operand)->grid->thread();
  }
  return nullptr;
}

}  // namespace weft
