// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/attention/cudnn_graphs.h"

#include <cuda_runtime_api.h>
#include <cudnn_frontend.h>

#include <cstdlib>
#include <mutex>
#include <vector>

#include "weft/error.h"

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

constinit const LoadedLibrary kCudnn(WEFT_CUDNN_FILE, WEFT_CUDNN_DIRECTORY);
static constinit const LoadedLibrary kCompiler(WEFT_NVRTC_FILE, WEFT_NVRTC_DIRECTORY);

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

using GraphHandle = std::shared_ptr<fe::graph::Graph>;

static void name_result(const std::shared_ptr<Tensor_attributes>& result, const GraphTensor& tensor,
                        AttentionTensor name) {
  result->set_output(true)
      .set_uid(name)
      .set_dim(list_of(tensor.sizes))
      .set_stride(list_of(tensor.strides));
}

static std::shared_ptr<Tensor_attributes> input_of(fe::graph::Graph& graph,
                                                   const AttentionGraphSpec& spec,
                                                   AttentionTensor name) {
  return graph.tensor(described(spec.tensors[name], name));
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
  const auto input = [&](AttentionTensor name) { return input_of(graph, spec, name); };
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
  const auto input = [&](AttentionTensor name) { return input_of(graph, spec, name); };
  auto [dq, dk, dv] = graph.sdpa_backward(input(kQ), input(kK), input(kV), input(kOut),
                                          input(kDout), statistics, options);
  name_result(dq, spec.tensors[kDq], kDq);
  name_result(dk, spec.tensors[kDk], kDk);
  name_result(dv, spec.tensors[kDv], kDv);
}

static GraphHandle attention_graph(const AttentionGraphSpec& spec) {
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

static void check_graph(const char* call, fe::error_t error) {
  if (error.is_bad()) fail_call(call, error.get_message());
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

bool AttentionGraph::run(cudnnHandle_t handle, const AttentionMemory& memory, void* workspace) {
  AttentionMemory tensors = memory;
  if (graph_->execute(handle, tensors, workspace).is_bad()) {
    cudaGetLastError();
    graph_ = nullptr;
  }
  return has_engine();
}

/// Without the driver's library no engine can be built; cuDNN's error then names the candidates.
static int64_t engines_named_in(const std::string& text) {
  int64_t count = 0;
  for (size_t at = text.find("engineId"); at != std::string::npos;
       at = text.find("engineId", at + 1)) {
    ++count;
  }
  return count;
}

int64_t engines_for(const AttentionGraphSpec& spec, const std::string& device_properties) {
  load_cudnn();
  const GraphHandle graph = attention_graph(spec);
  auto properties = std::make_shared<fe::DeviceProperties>();
  check_graph("cudnn device properties",
              properties->deserialize({device_properties.begin(), device_properties.end()}));
  graph->set_device_properties(properties);
  check_graph("cudnn graph", graph->validate());
  check_graph("cudnn operation graph", graph->build_operation_graph());
  fe::error_t plans = graph->create_execution_plans({fe::HeurMode_t::A});
  if (plans.is_good()) return graph->get_execution_plan_count();
  const int64_t named = engines_named_in(plans.get_message());
  if (named == 0) fail_call("cudnn plans", plans.get_message());
  return named;
}

}  // namespace weft::cuda
