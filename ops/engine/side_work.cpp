// SPDX-License-Identifier: Apache-2.0
#include <exception>
#include <utility>

#include "ops/engine/backward_run.h"
#include "ops/engine/tensor_body.h"
#include "src/device/memory.h"
#include "weft/context.h"
#include "weft/trace.h"

namespace weft {

SideWork::SideWork() : home_(Context::current().stream) {}

SideWork::~SideWork() {
  try {
    join();
  } catch (const std::exception&) {  // the device failed, as its next call reports
  }
}

void SideWork::begin(int device) {
  if (std::exchange(active_, true)) return;
  device_ = device;
  side_ = stream_for({DeviceKind::cuda, static_cast<int8_t>(device)}, StreamRole::side);
}

Event SideWork::mark() const { return Event::record(current()); }

Stream SideWork::home(Device device) const {
  const StreamScope scope(home_);
  return current_stream(device);
}

SideWork::Turn::Turn(SideWork& work, Node& node, const std::vector<Event>& awaited)
    : work_(work), was_aside_(work.is_aside_) {
  if (!work.active_) return;
  auto* leaf = dynamic_cast<LeafNode*>(&node);
  // The functions that complete a leaf queue their work where the backward began.
  work.is_aside_ = !leaf && work.runs_aside(node);
  if (work.is_aside_ != was_aside_) scope_.emplace(work.is_aside_ ? work.side_ : work.home_);
  if (leaf) std::exchange(leaf->written, {}).wait(work.current());
  for (const Event& event : awaited) event.wait(work.current());
  // Leaves may be complete long before the rest of the side stream's work.
  if (!leaf && !work.is_aside_ && !awaited.empty()) work.join();
  if (work.is_aside_ || was_aside_) work.part();
}

void SideWork::free(const Ref<Node>& node, Tensors gradients, bool retains) {
  if (!are_apart_ && !retains) return node->release();
  if (!are_apart_) return;
  if (!retains && !node->release_own(kept().tensors)) kept().nodes.push_back(node);
  for (Tensor& gradient : gradients) {
    if (gradient && !is_only_reference(gradient)) keep(std::move(gradient));
  }
}

void SideWork::join() {
  if (!are_apart_) return;
  const Stream computing = home(side_.device);
  {
    const StreamScope scope(computing);
    const TraceSpan span("wait for the side stream", -1, side_.device, TraceSpan::Time::waits);
    Event::record(side_).wait(computing);
  }
  Event::record(computing).wait(side_);
  are_apart_ = false;
  for (size_t aside = 0; aside < kept_.size(); ++aside) {
    const StreamScope scope(aside ? side_ : home_);
    const Kept freed = std::exchange(kept_[aside], {});
    for (const Ref<Node>& node : freed.nodes) node->release();
  }
}

void SideWork::finish() {
  if (!active_) return;
  are_apart_ = true;
  join();
  const StreamScope scope(home_);
  Heap::current().exchange_freed(side_);
}

}  // namespace weft
