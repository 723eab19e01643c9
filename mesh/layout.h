// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>
#include <memory>
#include <vector>

#include "weft/block.h"
#include "weft/ref.h"
#include "weft/sharding.h"

namespace weft {

class MeshGrid;

/// Where every element of a tensor of this shape is: an immutable entry of the mesh's cache, pinned
/// by the tensors and plans that hold it and evictable otherwise. One without a sharding describes
/// a tensor of one device.
class Layout final : public RefCounted {
 public:
  Shape shape;
  DType dtype;
  Sharding sharding;
  /// This rank's part.
  Box box;
  Strides local_strides;
  /// Of the content; equal on all ranks, in all processes.
  uint64_t hash;

  /// The part of another rank of the root mesh.
  Box box_of(int rank) const;
  /// Bytes of this rank's part.
  int64_t local_bytes() const { return box.shape.product() * static_cast<int64_t>(size_of(dtype)); }

  static void destroy(Layout* layout);

  /// Where `sharding` lives; none without one.
  std::shared_ptr<MeshGrid> grid;
};

/// The layout for that sharding, shape and dtype. std::invalid_argument when a Shard names a dim
/// that the shape has not. An empty sharding gives one from the calling rank's own cache.
Ref<Layout> layout_of(const Sharding& sharding, const Shape& shape, DType dtype);

/// The part of `shape` at the mesh coordinates `coordinates` (one an axis): the one function that
/// knows what a cut is.
Box box_at(const Sharding& sharding, const Shape& shape, std::span<const int> coordinates);

/// Chunk `index` of `size` elements cut over `parts`: {offset, length}; ceil(size / parts) each,
/// the last ones fewer or none (torch.chunk).
struct Chunk {
  int64_t offset;
  int64_t length;
};
Chunk chunk_of(int64_t size, int parts, int index);

/// "[4, 8] f32 mesh(dp=2, tp=2)[S(0), R]".
std::ostream& operator<<(std::ostream& out, const Layout& layout);

}  // namespace weft
