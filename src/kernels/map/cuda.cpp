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

void run_map(const MapCall& call) {
  const Device device = call.blocks[0]->device;
  for (int i = 0; i < call.count; ++i) {
    const MemoryBlock& block = *call.blocks[i];
    if (block.device != device) fail("map: a block is on ", block.device, ", expected ", device);
    if (i < call.results && block.shape != call.shape())
      fail("map: a result is ", block.shape, ", expected ", call.shape());
  }
  const auto& loops = call.loops.on_cuda;
  if (!loops[DType::f32] && !loops[DType::i64])
    fail("map: its functor has no kernel for a GPU, expected its file in weft_cuda_sources");
  const MapLaunch launch = loop_for(loops, call.dtype());
  const Iteration iteration("map", call.shape(), call.blocks, call.count);
  launch(call.functor, device_map(iteration, call.results), current_stream(device));
}

}  // namespace weft::cuda
