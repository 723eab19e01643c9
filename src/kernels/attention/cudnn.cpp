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

static GraphKey key_of(const AttentionGraphSpec& spec, Device device) {
  int32_t scale;
  std::memcpy(&scale, &spec.scale, sizeof(scale));
  GraphKey key{static_cast<int64_t>(spec.dtype),
               scale,
               spec.causal,
               spec.backward,
               spec.deterministic,
               device.index};
  for (int64_t name = kQ; name <= (spec.backward ? kDv : kOut); ++name) {
    const GraphTensor& tensor = spec.tensors[static_cast<size_t>(name)];
    key.insert(key.end(), tensor.sizes.begin(), tensor.sizes.end());
    key.insert(key.end(), tensor.strides.begin(), tensor.strides.end());
  }
  return key;
}

/// Returns whether a block can be read 16 bytes at a time.
static bool has_aligned_rows(const MemoryBlock& block) {
  if (!is_aligned(block.data) || block.strides[3] != 1) return false;
  return block.strides[0] % 8 == 0 && block.strides[1] % 8 == 0 && block.strides[2] % 8 == 0;
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

/// Queues the graph of these blocks, if cuDNN computes it. It reads blocks and statistics 16 bytes
/// at a time, and is not called for empty results. Its causal masks align the last query with the
/// last key; each query must see a key.
static bool attend_by_graph(
    const AttentionSizes& sizes, const AttentionOperands& x, bool backward,
    std::initializer_list<std::pair<AttentionTensor, const MemoryBlock*>> blocks) {
  AttentionGraphSpec spec{.dtype = x.q.dtype,
                          .tensors = {},
                          .scale = static_cast<float>(sizes.scale),
                          .causal = sizes.causal,
                          .backward = backward,
                          .deterministic = backward && uses_deterministic_algorithms(),
                          .architecture = 0};
  for (const auto& [name, block] : blocks) {
    if (!has_aligned_rows(*block)) return false;
    spec.tensors[name] = tensor_of(*block);
  }
  const bool some = sizes.batch * sizes.heads > 0 && sizes.queries > 0 && sizes.keys > 0;
  const bool has_mask =
      !sizes.causal || (sizes.offset == sizes.keys - sizes.queries && sizes.offset >= 0);
  const bool has_lse = x.lse.data && x.lse.is_dense() && is_aligned(x.lse.data);
  if (!suits_cudnn(spec) || !has_mask || !some || !has_lse) return false;
  AttentionMemory memory{{kStatistics, x.lse.data}};
  for (const auto& [name, block] : blocks) memory.emplace(name, block->data);
  return run(spec, current_stream(x.q.device), memory);
}

bool attend_by_cudnn(const AttentionSizes& sizes, const AttentionOperands& x) {
  // In decoding each call has one more key, so each would build a new graph.
  if (sizes.queries == 1) return false;
  return attend_by_graph(sizes, x, false, {{kQ, &x.q}, {kK, &x.k}, {kV, &x.v}, {kOut, &x.out}});
}

bool attend_backward_by_cudnn(const AttentionSizes& sizes, const AttentionGradients& x) {
  return attend_by_graph(sizes, x, true,
                         {{kQ, &x.q},
                          {kK, &x.k},
                          {kV, &x.v},
                          {kOut, &x.out},
                          {kDout, &x.dout},
                          {kDq, &x.dq},
                          {kDk, &x.dk},
                          {kDv, &x.dv}});
}

}  // namespace weft::cuda
