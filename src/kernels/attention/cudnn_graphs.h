// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cudnn.h>

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "weft/dtype.h"

namespace cudnn_frontend::graph {
class Graph;
}

namespace weft::cuda {

/// [batch, heads, sequence, width] as cuDNN sees it.
struct GraphTensor {
  std::array<int64_t, 4> sizes;
  std::array<int64_t, 4> strides;
};

/// Identifiers of a graph's tensors when it runs; gradients are unused in forward.
enum AttentionTensor : int64_t { kQ = 1, kK, kV, kOut, kStatistics, kDout, kDq, kDk, kDv };

/// One attention as a graph: everything that its engine depends on.
struct AttentionGraphSpec {
  DType dtype;
  /// Indexed by AttentionTensor; that of the statistics is unused.
  std::array<GraphTensor, kDv + 1> tensors;
  float scale;
  bool causal;
  bool backward;
  /// Backward accumulates in a fixed order, which needs a workspace of the size of the scores.
  bool deterministic;
  /// Compute capability of the device: 90 for Hopper.
  int architecture;
};

/// True when cuDNN is to be tried: half precision, head widths that are multiples of 8 up to 128.
bool suits_cudnn(const AttentionGraphSpec& spec);

/// Loads cuDNN for the functions of its front end. std::runtime_error when it cannot be loaded.
void load_cudnn();

using GraphHandle = std::shared_ptr<cudnn_frontend::graph::Graph>;
GraphHandle attention_graph(const AttentionGraphSpec& spec);

using AttentionMemory = std::unordered_map<int64_t, void*>;

/// A graph with the best engine that cuDNN has for it.
class AttentionGraph {
 public:
  /// Builds the graph for the device of `handle`; has no engine when cuDNN has none.
  AttentionGraph(const AttentionGraphSpec& spec, cudnnHandle_t handle);
  bool has_engine() const { return graph_ != nullptr; }
  size_t workspace_bytes() const { return workspace_bytes_; }
  /// Queues it on the handle's stream. Returns false, and drops the engine, when that fails.
  bool run(cudnnHandle_t handle, AttentionMemory memory, void* workspace);

 private:
  GraphHandle graph_;
  size_t workspace_bytes_ = 0;
};

}  // namespace weft::cuda
