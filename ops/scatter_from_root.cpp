// SPDX-License-Identifier: Apache-2.0
#include "mesh/layout.h"
#include "ops/engine/tensor_body.h"
#include "src/kernels/copy/copy.h"
#include "weft/error.h"

namespace weft {

/// Broadcasts from root whether it has a tensor, and its dtype, shape and requires_grad.
static std::vector<int64_t> broadcast_header(const Tensor& whole, const Communicator& ranks,
                                             int root) {
  std::vector<int64_t> header(kMaxDims + 4);
  if (ranks.rank() == root && whole && !whole.is_sharded()) {
    header[0] = 1;
    header[1] = static_cast<int64_t>(whole.dtype());
    header[2] = whole.ndim();
    for (int d = 0; d < whole.ndim(); ++d) header[static_cast<size_t>(d) + 4] = whole.size(d);
    header[3] = whole.requires_grad();
  }
  std::vector<int64_t> count{static_cast<int64_t>(header.size())};
  Piece piece{header.data(), header.data(), DType::i64, count};
  ranks.broadcast(std::span(&piece, 1), root).wait();
  return header;
}

Tensor scatter(const Tensor& whole, const DeviceMesh& mesh, const Placements& placements,
               int root) {
  if (!mesh) fail("scatter: this rank is not in the mesh, expected one of its ranks");
  Communicator ranks = mesh.root().communicator();
  if (root < 0 || root >= ranks.size()) {
    fail("scatter: root is ", root, ", expected one of the ", ranks.size(), " ranks");
  }
  std::vector<int64_t> header = broadcast_header(whole, ranks, root);
  if (!header[0])
    fail("scatter: tensor of root ", root, " is empty or over a mesh, expected one of one device");
  Shape shape(std::span<const int64_t>(header).subspan(4, static_cast<size_t>(header[2])));
  check_sizes("scatter", placements, shape);
  Sharding sharding(mesh, placements, shape.ndim());
  if (sharding.has_partial())
    fail("scatter: a placement is Partial, expected Shard or Replicate; use from_local");
  Ref<Layout> layout = layout_of(sharding, shape, static_cast<DType>(header[1]));
  Tensor result = new_tensor(layout, cpu);
  // Root packs the parts in rank order: one scatter with exact counts.
  std::vector<int64_t> counts;
  int64_t total = 0;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    counts.push_back(layout->box_of(rank).shape.product());
    total += counts.back();
  }
  Tensor packed;
  if (ranks.rank() == root) {
    packed = new_tensor(layout_of(Sharding(), {total}, layout->dtype), cpu);
    char* at = packed.block().as<char>();
    for (int rank = 0; rank < ranks.size(); ++rank) {
      Box box = layout->box_of(rank);
      copy(dense_block(at, layout->dtype, box.shape), whole.block().part(box));
      at += box.shape.product() * static_cast<int64_t>(size_of(layout->dtype));
    }
  }
  Piece piece{packed ? packed.block().data : nullptr, result.block().data, layout->dtype, counts};
  ranks.scatter(std::span(&piece, 1), root).wait();
  if (header[3]) result.set_requires_grad();
  return result;
}

}  // namespace weft
