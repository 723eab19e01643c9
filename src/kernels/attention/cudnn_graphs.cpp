// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/attention/cudnn_graphs.h"

#include <cuda_runtime_api.h>
#include <cudnn_frontend.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "src/base/loaded_library.h"
#include "src/device/cuda/checked.h"
#include "src/device/cuda/runtime.h"
#include "src/kernels/attention/call.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/hash.h"
#include "weft/storage.h"

/// The front end's functions call cuDNN by it.
namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;
}

namespace weft::cuda {

namespace fe = cudnn_frontend;
using fe::graph::Tensor_attributes;

static constexpr int64_t kMostWidth = 128;
/// Bytes per call; weft's custom kernels need no workspace.
static constexpr int64_t kMostWorkspace = int64_t{2} << 30;

static constinit const LoadedLibrary kCudnn(WEFT_CUDNN_FILE, WEFT_CUDNN_DIRECTORY);
static constinit const LoadedLibrary kCompiler(WEFT_NVRTC_FILE, WEFT_NVRTC_DIRECTORY);
WEFT_LOADED(kCudnn, cudnnCreate);
WEFT_LOADED(kCudnn, cudnnDestroy);
WEFT_LOADED(kCudnn, cudnnGetErrorString);
WEFT_LOADED(kCudnn, cudnnSetStream);

static void check_cudnn(const char* call, cudnnStatus_t status) {
  check_status(call, status, cudnnGetErrorString);
}

void load_cudnn() {
  static std::once_flag once;
  std::call_once(once, [] {
    // cuDNN loads the compiler by its name, from wherever the process has it.
    kCompiler.handle();
    cudnn_frontend::cudnn_dlhandle = kCudnn.handle();
    // Otherwise the front end looks for runtimes of other versions too, and warns.
    ::setenv("CUDNN_FRONTEND_CUDART_LIB_NAME",
             concat("libcudart.so.", CUDART_VERSION / 1000).c_str(), 0);
  });
}

bool suits_cudnn(const AttentionGraphSpec& spec) {
  const int64_t width = spec.tensors[kQ].sizes[3];
  const bool half = spec.dtype == DType::bf16 || spec.dtype == DType::f16;
  return half && width % 8 == 0 && width <= kMostWidth;
}

static std::vector<int64_t> list_of(const std::array<int64_t, 4>& numbers) {
  return {numbers.begin(), numbers.end()};
}

static Tensor_attributes described(const GraphTensor& tensor, AttentionTensor name) {
  return Tensor_attributes()
      .set_uid(name)
      .set_dim(list_of(tensor.sizes))
      .set_stride(list_of(tensor.strides));
}

/// One logsumexp per query: [batch, heads, sequence, 1], dense.
static GraphTensor statistics_of(const AttentionGraphSpec& spec) {
  const auto& [batch, heads, queries, width] = spec.tensors[kQ].sizes;
  return {{batch, heads, queries, 1}, {heads * queries, queries, 1, 1}};
}

static void name_result(const std::shared_ptr<Tensor_attributes>& result, const GraphTensor& tensor,
                        AttentionTensor name) {
  result->set_output(true)
      .set_uid(name)
      .set_dim(list_of(tensor.sizes))
      .set_stride(list_of(tensor.strides));
}

/// Aligns causal masks with the last query and the last key.
template <class Options> static void mask(Options& options, const AttentionGraphSpec& spec) {
  if (!spec.causal) return;
  options.set_diagonal_band_right_bound(0).set_diagonal_alignment(
      spec.tensors[kQ].sizes[2] == spec.tensors[kK].sizes[2]
          ? fe::DiagonalAlignment_t::TOP_LEFT
          : fe::DiagonalAlignment_t::BOTTOM_RIGHT);
}

static void add_forward(fe::graph::Graph& graph, const AttentionGraphSpec& spec) {
  auto options = fe::graph::SDPA_attributes().set_generate_stats(true).set_attn_scale(spec.scale);
  mask(options, spec);
  const auto input = [&](AttentionTensor name) {
    return graph.tensor(described(spec.tensors[name], name));
  };
  auto [out, statistics] = graph.sdpa(input(kQ), input(kK), input(kV), options);
  name_result(out, spec.tensors[kOut], kOut);
  name_result(statistics, statistics_of(spec), kStatistics);
  statistics->set_data_type(fe::DataType_t::FLOAT);
}

static void add_backward(fe::graph::Graph& graph, const AttentionGraphSpec& spec) {
  auto options = fe::graph::SDPA_backward_attributes()
                     .set_attn_scale(spec.scale)
                     .set_deterministic_algorithm(spec.deterministic);
  mask(options, spec);
  auto statistics = graph.tensor(
      described(statistics_of(spec), kStatistics).set_data_type(fe::DataType_t::FLOAT));
  const auto input = [&](AttentionTensor name) {
    return graph.tensor(described(spec.tensors[name], name));
  };
  auto [dq, dk, dv] = graph.sdpa_backward(input(kQ), input(kK), input(kV), input(kOut),
                                          input(kDout), statistics, options);
  name_result(dq, spec.tensors[kDq], kDq);
  name_result(dk, spec.tensors[kDk], kDk);
  name_result(dv, spec.tensors[kDv], kDv);
}

GraphHandle attention_graph(const AttentionGraphSpec& spec) {
  auto graph = std::make_shared<fe::graph::Graph>();
  graph
      ->set_io_data_type(spec.dtype == DType::bf16 ? fe::DataType_t::BFLOAT16
                                                   : fe::DataType_t::HALF)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT)
      .set_sm_version(spec.architecture);
  spec.backward ? add_backward(*graph, spec) : add_forward(*graph, spec);
  return graph;
}

AttentionGraph::AttentionGraph(const AttentionGraphSpec& spec, cudnnHandle_t handle) {
  GraphHandle graph = attention_graph(spec);
  int64_t bytes = 0;
  const bool is_built = graph->build(handle, {fe::HeurMode_t::A}).is_good() &&
                        graph->get_workspace_size(bytes).is_good();
  cudaGetLastError();  // clears errors of the attempt, so that the next launch does not report them
  if (!is_built || bytes > kMostWorkspace) return;
  workspace_bytes_ = static_cast<size_t>(bytes);
  graph_ = std::move(graph);
}

bool AttentionGraph::run(cudnnHandle_t handle, AttentionMemory memory, void* workspace) {
  if (graph_->execute(handle, memory, workspace).is_bad()) {
    cudaGetLastError();
    graph_ = nullptr;
  }
  return has_engine();
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
    check_cudnn("cudnnSetStream", cudnnSetStream(handle, handle_of(stream)));
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

/// Returns false when cuDNN does not compute it.
static bool run(const AttentionGraphSpec& spec, const Stream& stream, AttentionMemory memory) {
  AttentionGraph& graph = built(spec, stream);
  if (!graph.has_engine()) return false;
  const Ref<Storage> workspace = Storage::allocate(graph.workspace_bytes(), stream.device);
  return graph.run(cudnn().handle(stream), std::move(memory), workspace->data());
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
  return run(spec, current_stream(x.q.device), std::move(memory));
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
