// SPDX-License-Identifier: Apache-2.0
#include "ops/engine/call_body.h"

#include "mesh/mesh_body.h"
#include "ops/engine/recorder.h"
#include "src/device/cuda/runtime.h"
#include "src/kernels/copy/copy.h"
#include "weft/error.h"
#include "weft/extend/parts.h"

namespace weft {

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
static MemoryBlock on_host(const MemoryBlock& block, std::vector<Ref<Storage>>& memory) {
  if (block.device.kind == DeviceKind::cpu) return block;
  const auto bytes = static_cast<size_t>(block.numel()) * size_of(block.dtype);
  memory.push_back(Storage::allocate(bytes));
  return dense_block(memory.back()->data(), block.dtype, block.shape);
}

void run_across(const OpBody& op, const Route& route, const CallBody& call) {
  if (cuda::kWithCuda && cuda::is_capturing()) {
    fail(op.spec.name,
         ": parts of a dim exchange data in a recorded graph, expected a call outside ",
         "of it: the host reads them");
  }
  std::vector<Ref<Storage>> memory;
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
  Recorder::current().exchanged(op.spec.name, *route.operands[0].used, parts.received());
}

}  // namespace weft
