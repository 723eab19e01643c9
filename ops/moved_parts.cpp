// SPDX-License-Identifier: Apache-2.0
#include "ops/moved_parts.h"

#include <algorithm>
#include <utility>

#include "mesh/grid.h"
#include "mesh/mesh_body.h"
#include "mesh/plan.h"
#include "ops/engine/backward_run.h"
#include "ops/engine/recorder.h"
#include "ops/engine/tensor_body.h"
#include "weft/error.h"
#include "weft/extend/split_products.h"

namespace weft {

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

void MovedParts::start_all() {
  for (int part = 0; part < rows_.rows.count(); ++part) start(part, whole_.block());
}

void MovedParts::start_others() {
  for (int part = 0; part < rows_.rows.count(); ++part) {
    if (!has_started_[static_cast<size_t>(part)]) start(part, whole_.block());
  }
}

void MovedParts::wait(int part) {
  Work& work = works_[static_cast<size_t>(part)];
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

WEFT_STATIC_TLS static thread_local SplitMovementLog* split_log = nullptr;

SplitMovementLog::SplitMovementLog() {
  if (split_log) fail("split movement log: the rank has one already, expected none");
  split_log = this;
}

SplitMovementLog::~SplitMovementLog() { split_log = nullptr; }

void MovedParts::log(const Shape& weight) const {
  OpLog* log = Recorder::current().log;
  if (!log && !split_log) return;
  const bool scatters = kind_ == Kind::reduce_scatter;
  const Ref<Layout>& partial = layout_of(whole_);
  const Ref<Plan> plan =
      scatters ? plan_between(partial, rows_.cut) : plan_between(rows_.cut, partial);
  const auto count = static_cast<double>(rows_.rows.count());
  const std::string axes = rows_.cut->grid->axes()[static_cast<size_t>(rows_.axis)].name;
  const int64_t width = whole_.shape()[whole_.ndim() - 1];
  const int64_t row = width * static_cast<int64_t>(size_of(whole_.dtype()));
  Movement movement{.what = scatters ? "linear, reduce-scatter" : "linear, gather",
                    .scope = Context::current().scope,
                    .backward = is_in_backward()};
  SplitMovement split{.axes = axes, .parts = rows_.rows.count()};
  for (int part = 0; part < rows_.rows.count(); ++part) {
    const int64_t others = scatters ? rows_.rows.own_rows(part) * (rows_.ranks.size() - 1)
                                    : rows_.rows.other_rows(part);
    movement.steps.push_back(
        {.kind = scatters ? "reduce_scatter" : "all_gather",
         .axes = axes,
         .from = placements_in_words((scatters ? partial : rows_.cut)->sharding),
         .to = placements_in_words((scatters ? rows_.cut : partial)->sharding),
         .bytes = others * row,
         .seconds = plan->cost.seconds / count});
    split.bytes += others * row;
  }
  if (log) log->movements.push_back(std::move(movement));
  const int64_t rows = partial->box.shape.product() / std::max<int64_t>(1, width);
  split.operations = 2 * static_cast<double>(rows) * static_cast<double>(weight.product());
  split.product_bytes = (weight.product() + rows * (weight[0] + weight[1])) *
                        static_cast<int64_t>(size_of(whole_.dtype()));
  if (split_log) split_log->movements.push_back(std::move(split));
}

}  // namespace weft
