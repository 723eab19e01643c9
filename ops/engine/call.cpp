// SPDX-License-Identifier: Apache-2.0
#include "ops/engine/call_body.h"
#include "weft/error.h"

namespace weft {

Device device_of(const OpBody& op, std::span<const Tensor> operands) {
  Device device = operands.empty() ? cpu : operands[0].device();
  for (size_t i = 1; i < operands.size(); ++i) {
    if (operands[i].device() == device) continue;
    const bool lacks_memory =
        (device.kind == DeviceKind::meta) != (operands[i].device().kind == DeviceKind::meta);
    fail(op.spec.name, ": operand ", i, " is on ", operands[i].device(), ", expected ", device,
         ", as operand 0",
         lacks_memory ? "; a parameter has no memory before materialize() or a call of its module"
                      : "");
  }
  return device;
}

int Call::operands() const { return body_.ins.size(); }
const MemoryBlock& Call::in(int i) const { return body_.ins[i]; }
const MemoryBlock& Call::out(int i) const {
  return i < body_.outs.size() ? body_.outs[i] : body_.ins[i];
}
const MemoryBlock& Call::stage(int i) const { return body_.stages[i]; }
const Box& Call::stage_box(int i) const {
  return body_.route.stages[static_cast<size_t>(i)].partial->box;
}

const Shape& Call::in_shape(int i) const {
  return body_.route.operands[static_cast<size_t>(i)].used->shape;
}
const Shape& Call::out_shape(int i) const {
  return body_.route.results[static_cast<size_t>(i)]->shape;
}
const Box& Call::in_box(int i) const { return body_.route.operands[static_cast<size_t>(i)].box; }
const Box& Call::out_box(int i) const { return body_.route.results[static_cast<size_t>(i)]->box; }

const Attributes& Call::attributes() const { return body_.attributes; }
bool Call::accumulate(int i) const { return body_.accumulate[static_cast<size_t>(i)]; }
bool Call::counts_here() const { return body_.route.counts_here; }
bool Call::staged() const { return body_.route.staged; }

}  // namespace weft
