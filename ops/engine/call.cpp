// SPDX-License-Identifier: Apache-2.0
#include "ops/engine/call_body.h"

namespace weft {

int Call::operands() const { return body_.ins.size(); }
const MemoryBlock& Call::in(int i) const { return body_.ins[i]; }
const MemoryBlock& Call::out(int i) const {
  return i < body_.outs.size() ? body_.outs[i] : body_.ins[i];
}
const MemoryBlock& Call::stage(int i) const { return body_.stages[i]; }

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
