// SPDX-License-Identifier: Apache-2.0
#include "fsdp/runtime.h"
#include "weft/error.h"

namespace weft {

using fsdp::Runtime;

static Runtime& built_runtime(const char* what, Module& model) {
  auto attached = model.attachment<fsdp::RuntimeAttachment>();
  if (!attached) fail(what, ": the model is not sharded; call fully_shard on it first");
  const fsdp::Unit& root = attached->runtime.root();
  if (!root.is_attached() || &root.runtime() != &attached->runtime) {
    fail(what, ": the model is a part of a sharded one; give the outermost");
  }
  attached->runtime.build();
  return attached->runtime;
}

NoSync::NoSync(Module& model, bool holds) : model_(model) {
  Runtime& runtime = built_runtime("NoSync", model);
  before_ = runtime.syncs();
  if (holds) runtime.set_syncs(false);
}

NoSync::~NoSync() { model_.attachment<fsdp::RuntimeAttachment>()->runtime.set_syncs(before_); }

FullyShardBytes predicted_bytes(Module& model, int micro_steps) {
  if (micro_steps < 1) fail("predicted_bytes: ", micro_steps, " micro-steps; at least 1");
  Runtime& runtime = built_runtime("predicted_bytes", model);
  std::vector<StepKind> steps;
  for (int i = 0; i < micro_steps; ++i) {
    steps.push_back({.sync = i + 1 == micro_steps, .updated = i == 0});
  }
  const fsdp::Schedule schedule = runtime.schedule(steps);
  FullyShardBytes bytes{.buffers = schedule.buffer_bytes,
                        .received = schedule.received,
                        .by_axes = schedule.by_axes,
                        .copied = schedule.copied};
  for (const auto& unit : runtime.units()) {
    bytes.parameters += unit->slice_bytes();
    bytes.gradients += unit->gradients().bytes();
  }
  return bytes;
}

FullyShardBytes measured_bytes(Module& model) {
  Runtime& runtime = built_runtime("measured_bytes", model);
  FullyShardBytes bytes = runtime.traffic();
  for (const auto& unit : runtime.units()) {
    bytes.parameters += unit->measured_slice_bytes();
    bytes.gradients += unit->gradients().measured_bytes();
  }
  bytes.buffers = runtime.buffer_bytes();
  return bytes;
}

std::vector<ScheduledAction> schedule_of(Module& model, const StepKind& kind) {
  return built_runtime("schedule_of", model).schedule({kind}).actions;
}

std::string explain_schedule(Module& model, const StepKind& kind) {
  return built_runtime("explain_schedule", model).schedule({kind}).text();
}

}  // namespace weft
