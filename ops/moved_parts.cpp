// SPDX-License-Identifier: Apache-2.0
#include "ops/moved_parts.h"

#include <algorithm>
#include <utility>

#include "mesh/grid.h"
#include "mesh/mesh_body.h"
#include "ops/dims.h"
#include "ops/engine/backward_run.h"
#include "ops/engine/call_watch.h"
#include "ops/engine/engine.h"
#include "weft/extend/split_products.h"

namespace weft {

RowParts::RowParts(const Layout& cut, const Layout& whole, int axis, int dim, int parts)
    : dim_(dim), count_(parts) {
  const MeshGrid& grid = *cut.grid;
  const std::vector<int> members = grid.members(Axes{axis}, grid.coordinates());
  for (size_t r = 0; r < members.size(); ++r) {
    begins_.push_back(size_);
    lengths_.push_back(cut.box_of(members[r]).shape[dim]);
    size_ += lengths_.back();
    if (members[r] == grid.rank()) self_ = static_cast<int>(r);
  }
  is_even_ = std::ranges::all_of(lengths_, [&](int64_t length) { return length == lengths_[0]; });
  const Shape& local = whole.box.shape;
  for (int d = 0; d < dim; ++d) outer_ *= local[d];
  for (int d = 1; d < dim; ++d) outer_of_first_ *= local[d];
  for (int d = dim + 1; d < local.ndim() - 1; ++d) inner_ *= local[d];
  first_ = local[0];
  by_first_dim_ = dim > 0 && first_ >= parts;
}

RowParts::Range RowParts::within(int rank, int part) const {
  const int64_t length = lengths_[static_cast<size_t>(rank)];
  return by_first_dim_ ? Range{0, length} : range(length, part);
}

/// The block with a dim divided into `count` equal ranges, as two dims.
static MemoryBlock divided(MemoryBlock block, int dim, int64_t count) {
  block.shape[dim] /= count;
  block.strides.insert(dim, block.shape[dim] * block.strides[dim]);
  block.shape.insert(dim, count);
  return block;
}

void RowParts::for_blocks(
    int part, const MemoryBlock& a, const MemoryBlock& b,
    const std::function<void(const MemoryBlock&, const MemoryBlock&)>& use) const {
  if (by_first_dim_) {
    const auto [begin, end] = range(first_, part);
    return use(part_along(a, 0, begin, end), part_along(b, 0, begin, end));
  }
  const auto ranks = static_cast<int64_t>(lengths_.size());
  if (is_even_ && a.shape.ndim() < kMaxDims) {
    const auto [begin, end] = within(0, part);
    return use(part_along(divided(a, dim_, ranks), dim_ + 1, begin, end),
               part_along(divided(b, dim_, ranks), dim_ + 1, begin, end));
  }
  for (size_t r = 0; r < lengths_.size(); ++r) {
    const auto [begin, end] = within(static_cast<int>(r), part);
    use(part_along(a, dim_, begins_[r] + begin, begins_[r] + end),
        part_along(b, dim_, begins_[r] + begin, begins_[r] + end));
  }
}

std::vector<Piece> RowParts::pieces(int part, const MemoryBlock& own, const MemoryBlock& whole,
                                    bool scatters,
                                    std::vector<std::vector<int64_t>>& counts) const {
  const int64_t row = inner_ * whole.shape.back();
  Range outer{0, outer_};
  if (by_first_dim_) {
    const Range of_first = range(first_, part);
    outer = {of_first.begin * outer_of_first_, of_first.end * outer_of_first_};
  }
  const size_t ranks = lengths_.size();
  // A piece for each rank's range, or one for the ranges of all ranks if they are adjacent.
  counts.assign(by_first_dim_ ? 1 : ranks, std::vector<int64_t>(ranks));
  for (size_t r = 0; r < ranks; ++r) {
    const auto [begin, end] = within(static_cast<int>(r), part);
    counts[by_first_dim_ ? 0 : r][r] = (end - begin) * row;
  }
  std::vector<Piece> pieces;
  for (int64_t i = outer.begin; i < outer.end; ++i) {
    for (size_t p = 0; p < counts.size(); ++p) {
      const int64_t begin =
          by_first_dim_ ? 0 : begins_[p] + within(static_cast<int>(p), part).begin;
      const auto self = static_cast<size_t>(self_);
      void* here =
          element_at(own.data, (i * lengths_[self] + within(self_, part).begin) * row, own.dtype);
      void* there = element_at(whole.data, (i * size_ + begin) * row, whole.dtype);
      pieces.push_back({.send = scatters ? there : here,
                        .recv = scatters ? here : there,
                        .dtype = whole.dtype,
                        .counts = counts[p],
                        .recv_dtype = whole.dtype,
                        .device = whole.device});
    }
  }
  return pieces;
}

Ref<Layout> with_placement(const Layout& layout, int axis, const Placement& placement) {
  Pattern pattern = layout.sharding.pattern();
  pattern.set(axis, placement);
  return layout_of(Sharding::of(layout.sharding.mesh(), pattern), layout.shape, layout.dtype);
}

CutRows::CutRows(const Ref<Layout>& given, int number, int dim, int parts)
    : cut(given),
      whole(with_placement(*given, number, Replicate())),
      axis(number),
      rows(*cut, *whole, number, dim, parts),
      ranks(cut->grid->group(Axes{number})) {}

MovedParts::MovedParts(const CutRows& rows, Kind kind, Tensor own, Tensor whole)
    : rows_(rows),
      kind_(kind),
      own_(std::move(own)),
      whole_(std::move(whole)),
      counts_(static_cast<size_t>(rows_.rows.count())),
      works_(counts_.size()),
      has_started_(counts_.size()) {}

void MovedParts::start(int part, const MemoryBlock& whole) {
  const auto index = static_cast<size_t>(part);
  has_started_[index] = true;
  if (CallWatch* watch = Engine::current().watch) {
    watch->part_started({&counts_[index], part, scatters(), *rows_.cut, axis(), bytes_of(part)});
  }
  if (whole.device.kind == DeviceKind::meta) return;
  const bool scatters = kind_ == Kind::reduce_scatter;
  const std::vector<Piece> pieces =
      rows_.rows.pieces(part, own_.block(), whole, scatters, counts_[index]);
  const Stream moving = stream_for(whole.device, StreamRole::copy);
  Event::record(current_stream(whole.device)).wait(moving);
  const StreamScope scope(moving);
  works_[index] =
      scatters ? rows_.ranks.reduce_scatter(pieces, ReduceOp::sum) : rows_.ranks.all_gather(pieces);
}

void MovedParts::start_others() {
  for (int part = 0; part < rows_.rows.count(); ++part) {
    if (!has_started_[static_cast<size_t>(part)]) start(part, whole_.block());
  }
}

void MovedParts::wait(int part) {
  const auto index = static_cast<size_t>(part);
  if (CallWatch* watch = Engine::current().watch) watch->part_awaited(&counts_[index], part);
  Work& work = works_[index];
  work.wait();
  work = Work();
}

void MovedParts::wait() {
  for (int part = 0; part < rows_.rows.count(); ++part) wait(part);
}

void MovedParts::finish(const Tensor& whole) {
  whole_ = whole;
  start_others();
  wait();
}

Ref<Plan> MovedParts::plan() const {
  if (!scatters()) return plan_between(rows_.cut, rows_.whole);
  return plan_between(with_placement(*rows_.cut, rows_.axis, Partial()), rows_.cut);
}

std::string MovedParts::axis() const { return rows_.cut->grid->names({rows_.axis}); }

int64_t MovedParts::bytes_of(int part) const {
  const int64_t bytes = plan()->cost.bytes, count = rows_.rows.count();
  return bytes * (part + 1) / count - bytes * part / count;
}

void MovedParts::log(const Shape& weight) const {
  if (CallWatch* watch = Engine::current().watch) {
    for (size_t i = 0; i < counts_.size(); ++i) watch->part_ended(&counts_[i], static_cast<int>(i));
  }
  OpLog* log = Engine::current().log;
  if (!log) return;
  const Ref<Layout>& partial = layout_of(whole_);
  const Ref<Plan> plan = this->plan();
  const int count = rows_.rows.count();
  const int64_t width = whole_.shape()[whole_.ndim() - 1];
  Movement movement{.what = scatters() ? "linear, reduce-scatter" : "linear, gather",
                    .scope = Context::current().scope,
                    .backward = is_in_backward()};
  SplitMovement split{.axes = axis(), .parts = count, .bytes = plan->cost.bytes};
  for (int part = 0; part < count; ++part) {
    movement.steps.push_back({.kind = scatters() ? "reduce_scatter" : "all_gather",
                              .axes = split.axes,
                              .from = placements_in_words(plan->from->sharding),
                              .to = placements_in_words(plan->to->sharding),
                              .bytes = bytes_of(part),
                              .seconds = plan->cost.seconds / count});
  }
  log->movements.push_back(std::move(movement));
  const int64_t rows = partial->box.shape.product() / std::max<int64_t>(1, width);
  split.operations = 2 * static_cast<double>(rows) * static_cast<double>(weight.product());
  split.product_bytes = (weight.product() + rows * (weight[0] + weight[1])) *
                        static_cast<int64_t>(size_of(whole_.dtype()));
  log->splits.push_back(std::move(split));
}

}  // namespace weft
