// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/map/map.h"

#include "src/kernels/iteration/iteration.h"
#include "weft/error.h"

namespace weft::cuda {

static DeviceMap device_map(const Iteration& loops, int results) {
  DeviceMap map{};
  map.ndim = loops.ndim();
  map.elements = loops.inner() * loops.outer();
  map.results = results;
  map.count = loops.count();
  map.dtype = loops.block(0).dtype;
  map.uniform = true;
  for (int d = 0; d < map.ndim; ++d) map.sizes[d] = loops.size(d);
  for (int s = 0; s < map.count; ++s) {
    const MemoryBlock& block = loops.block(s);
    map.sides[s].data = block.data;
    map.sides[s].dtype = block.dtype;
    for (int d = 0; d < map.ndim; ++d) map.sides[s].strides[d] = loops.stride(s, d);
    map.uniform &= block.dtype == map.dtype && loops.is_dense(s) && is_aligned(block.data);
  }
  return map;
}

void run_map(const char* what, const MapLoops& loops, const void* functor,
             const MemoryBlock* const* outs, int results, const MemoryBlock* const* ins,
             int operands) {
  const MemoryBlock* blocks[kMaxMapSides];
  for (int i = 0; i < results; ++i) blocks[i] = outs[i];
  for (int i = 0; i < operands; ++i) blocks[results + i] = ins[i];
  const Device device = outs[0]->device;
  for (int i = 0; i < results + operands; ++i) {
    if (blocks[i]->device != device)
      fail(what, ": a block is on ", blocks[i]->device, ", expected ", device);
    if (i < results && blocks[i]->shape != outs[0]->shape)
      fail(what, ": a result is ", blocks[i]->shape, ", expected ", outs[0]->shape);
  }
  if (!loops.on_cuda[DType::f32] && !loops.on_cuda[DType::i64])
    fail(what, ": its functor has no kernel for a GPU, expected its file in weft_cuda_sources");
  const MapLaunch launch = loop_for(what, loops.on_cuda, map_dtype(ins, operands, *outs[0]));
  const Iteration iteration(what, outs[0]->shape, blocks, results + operands);
  launch(functor, device_map(iteration, results), current_stream(device));
}

}  // namespace weft::cuda
