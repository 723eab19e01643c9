// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>

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
  /// By AttentionTensor; that of the statistics is unused.
  std::array<GraphTensor, kDv + 1> tensors;
  float scale;
  bool causal;
  bool backward;
  /// Backward accumulates in a fixed order, which needs a workspace of the size of the scores.
  bool deterministic;
  /// Compute capability of the device: 90 for Hopper.
  int architecture;
};

/// Whether to try cuDNN: half precision, head widths that are multiples of 8 up to 128.
bool suits_cudnn(const AttentionGraphSpec& spec);

/// Loads cuDNN for the functions of its front end. std::runtime_error when it cannot be loaded.
void load_cudnn();

using GraphHandle = std::shared_ptr<cudnn_frontend::graph::Graph>;
GraphHandle attention_graph(const AttentionGraphSpec& spec);

}  // namespace weft::cuda
