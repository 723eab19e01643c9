// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cudnn.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
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

/// One attention as a graph: all that its engine depends on.
struct AttentionGraphSpec {
  DType dtype;
  GraphTensor q, k, v, out;
  /// Of the gradient of out; of dq, dk and dv. Unused in forward.
  GraphTensor dout, dq, dk, dv;
  float scale;
  bool causal;
  bool backward;
  /// Backward adds up in one order, which takes it a workspace of the size of the scores.
  bool deterministic;
  /// Of the device: 90 for Hopper.
  int architecture;
};

/// What the tensors of a graph are called when it runs.
enum AttentionTensor : int64_t { kQ = 1, kK, kV, kOut, kStatistics, kDout, kDq, kDk, kDv };
using AttentionMemory = std::unordered_map<int64_t, void*>;

/// Whether cuDNN is asked at all: half precision, head widths that are multiples of 8 up to 128.
bool suits_cudnn(const AttentionGraphSpec& spec);

/// A graph with cuDNN's best engine for it.
class AttentionGraph {
 public:
  /// For the device of `handle`; without engine where cuDNN has none.
  AttentionGraph(const AttentionGraphSpec& spec, cudnnHandle_t handle);
  bool has_engine() const { return graph_ != nullptr; }
  size_t workspace_bytes() const { return workspace_bytes_; }
  /// Queues it on the handle's stream. False, and there is no engine from then on, when it fails.
  bool run(cudnnHandle_t handle, const AttentionMemory& memory, void* workspace);

 private:
  std::shared_ptr<cudnn_frontend::graph::Graph> graph_;
  size_t workspace_bytes_ = 0;
};

/// How many engines cuDNN names for the graph on a device of those properties (cuDNN's JSON), for
/// checks where no device is. std::runtime_error with cuDNN's reason when there are none.
int64_t engines_for(const AttentionGraphSpec& spec, const std::string& device_properties);

}  // namespace weft::cuda
