// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/attention/call.h"

#include <cudnn.h>
#include <memory>

#include <cstring>
#include <unordered_map>
#include <vector>

#include "src/base/loaded_library.h"
#include "src/device/cuda/checked.h"
#include "src/device/cuda/library_handles.h"
#include "src/device/cuda/streams.h"
#include "src/kernels/attention/cudnn_graphs.h"
#include "weft/context.h"
#include "weft/extend/hash.h"
#include "weft/storage.h"

namespace weft::cuda {

WEFT_LOADED(kCudnn, cudnnCreate);
WEFT_LOADED(kCudnn, cudnnDestroy);
WEFT_LOADED(kCudnn, cudnnGetErrorString);
WEFT_LOADED(kCudnn, cudnnSetStream);

static void check_cudnn(const char* call, cudnnStatus_t status) {
  check_status(call, status, cudnnGetErrorString);
}

namespace {

/// Identifies a graph, as a list of numbers.
using GraphKey = std::vector<int64_t>;

struct GraphKeyHash {
  size_t operator()(const GraphKey& key) const { return xxh3_of(std::as_bytes(std::span(key))); }
};

/// The calling thread's handles and graphs, by device.
struct CudnnLibrary {
  LibraryHandles<cudnnHandle_t, cudnnCreate, cudnnDestroy, check_cudnn> handles;
  std::unordered_map<GraphKey, AttentionGraph, GraphKeyHash> graphs;

  CudnnLibrary() { load_cudnn(); }
  cudnnHandle_t handle(const Stream& stream) {
    cudnnHandle_t handle = handles.of(stream.device, "cudnnCreate");
    check_cudnn("cudnnSetStream", cudnnSetStream(handle, static_cast<cudaStream_t>(stream.handle)));
    return handle;
  }
};

CudnnLibrary& cudnn() {
  static thread_local const auto one = std::make_unique<CudnnLibrary>();
  return *one;
}

}  // namespace

static int architecture_of(Device device) {
  int major = 0, minor = 0;
  check("cudaDeviceGetAttribute",
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device.index));
  check("cudaDeviceGetAttribute",
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device.index));
  return major * 10 + minor;
}

static GraphTensor tensor_of(const MemoryBlock& block) {
  GraphTensor tensor;
  for (int d = 0; d < 4; ++d) {
    tensor.sizes[static_cast<size_t>(d)] = block.shape[d];
    tensor.strides[static_cast<size_t>(d)] = block.strides[d];
  }
  return tensor;
}

static void add_numbers(GraphKey& key, const GraphTensor& tensor) {
  key.insert(key.end(), tensor.sizes.begin(), tensor.sizes.end());
  key.insert(key.end(), tensor.strides.begin(), tensor.strides.end());
}

static GraphKey key_of(const AttentionGraphSpec& spec, Device device) {
  int32_t scale;
  std::memcpy(&scale, &spec.scale, sizeof(scale));
  GraphKey key{static_cast<int64_t>(spec.dtype),
               scale,
               spec.causal,
               spec.backward,
               spec.deterministic,
               device.index};
  for (const GraphTensor* tensor : {&spec.q, &spec.k, &spec.v, &spec.out})
    add_numbers(key, *tensor);
  if (!spec.backward) return key;
  for (const GraphTensor* tensor : {&spec.dout, &spec.dq, &spec.dk, &spec.dv}) {
    add_numbers(key, *tensor);
  }
  return key;
}

/// Returns whether a block can be read 16 bytes at a time.
static bool has_aligned_rows(const MemoryBlock& block) {
  if (!is_aligned(block.data) || block.strides[3] != 1) return false;
  return block.strides[0] % 8 == 0 && block.strides[1] % 8 == 0 && block.strides[2] % 8 == 0;
}

static AttentionGraphSpec spec_of(const AttentionSizes& sizes, const AttentionOperands& x) {
  AttentionGraphSpec spec{};
  spec.dtype = x.q.dtype;
  spec.q = tensor_of(x.q), spec.k = tensor_of(x.k);
  spec.v = tensor_of(x.v), spec.out = tensor_of(x.out);
  spec.scale = static_cast<float>(sizes.scale);
  spec.causal = sizes.causal;
  return spec;
}

/// Whether cuDNN computes the call. It reads blocks and statistics 16 bytes at a time, and is not
/// called for empty results. Its causal masks align the last query with the last key; each query
/// must see a key.
static bool is_for_cudnn(const AttentionSizes& sizes, const AttentionGraphSpec& spec,
                         const MemoryBlock& lse, std::initializer_list<const MemoryBlock*> blocks) {
  for (const MemoryBlock* block : blocks) {
    if (!has_aligned_rows(*block)) return false;
  }
  const bool some = sizes.batch * sizes.heads > 0 && sizes.queries > 0 && sizes.keys > 0;
  const bool has_mask =
      !sizes.causal || (sizes.offset == sizes.keys - sizes.queries && sizes.offset >= 0);
  return suits_cudnn(spec) && has_mask && some && lse.data && lse.is_dense() &&
         is_aligned(lse.data);
}

static AttentionGraph& built(AttentionGraphSpec spec, const Stream& stream) {
  CudnnLibrary& library = cudnn();
  const GraphKey key = key_of(spec, stream.device);
  const auto found = library.graphs.find(key);
  if (found != library.graphs.end()) return found->second;
  spec.architecture = architecture_of(stream.device);
  return library.graphs.emplace(key, AttentionGraph(spec, library.handle(stream))).first->second;
}

static bool run(const AttentionGraphSpec& spec, const Stream& stream,
                const AttentionMemory& memory) {
  AttentionGraph& graph = built(spec, stream);
  if (!graph.has_engine()) return false;
  const Ref<Storage> workspace = Storage::allocate(graph.workspace_bytes(), stream.device);
  return graph.run(cudnn().handle(stream), memory, workspace->data());
}

bool attend_by_cudnn(const AttentionSizes& sizes, const AttentionOperands& x) {
  // In decoding each call has one more key, so each would build a new graph.
  if (sizes.queries == 1) return false;
  const AttentionGraphSpec spec = spec_of(sizes, x);
  if (!is_for_cudnn(sizes, spec, x.lse, {&x.q, &x.k, &x.v, &x.out})) return false;
  return run(spec, current_stream(x.q.device),
             {{kQ, x.q.data},
              {kK, x.k.data},
              {kV, x.v.data},
              {kOut, x.out.data},
              {kStatistics, x.lse.data}});
}

bool attend_backward_by_cudnn(const AttentionSizes& sizes, const AttentionGradients& x) {
  AttentionGraphSpec spec = spec_of(sizes, x);
  if (!is_for_cudnn(sizes, spec, x.lse, {&x.q, &x.k, &x.v, &x.out, &x.dout, &x.dq, &x.dk, &x.dv}))
    return false;
  spec.backward = true;
  spec.deterministic = uses_deterministic_algorithms();
  spec.dout = tensor_of(x.dout), spec.dq = tensor_of(x.dq);
  spec.dk = tensor_of(x.dk), spec.dv = tensor_of(x.dv);
  return run(spec, current_stream(x.q.device),
             {{kQ, x.q.data},
              {kK, x.k.data},
              {kV, x.v.data},
              {kOut, x.out.data},
              {kStatistics, x.lse.data},
              {kDout, x.dout.data},
              {kDq, x.dq.data},
              {kDk, x.dk.data},
              {kDv, x.dv.data}});
}

}  // namespace weft::cuda
