// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>
#include <memory>

#include "weft/block.h"
#include "weft/extend/ref.h"
#include "weft/sharding.h"

namespace weft {

class MeshGrid;

/// The part of a tensor that each rank holds: an immutable entry of the mesh's cache, pinned by the
/// tensors and plans that hold it and evictable otherwise. Without a sharding it describes a tensor
/// of one device.
class Layout final : public RefCounted {
 public:
  Shape shape;
  DType dtype;
  Sharding sharding;
  /// Box of this rank's part.
  Box box;
  Strides local_strides;
  /// Hash of the content; equal on all ranks, in all processes.
  uint64_t hash;

  /// Box of another rank of the root mesh.
  Box box_of(int rank) const;
  /// Bytes of this rank's part.
  int64_t local_bytes() const { return box.shape.product() * static_cast<int64_t>(size_of(dtype)); }

  static void destroy(Layout* layout);

  /// Owner of `sharding`; null without one.
  std::shared_ptr<MeshGrid> grid;
};

/// Returns the layout for that sharding, shape and dtype; without a sharding, from the calling
/// rank's own cache. std::invalid_argument when a Shard names a dim that the shape does not have.
Ref<Layout> layout_of(const Sharding& sharding, const Shape& shape, DType dtype);

/// "[4, 8] f32 mesh(dp=2, tp=2)[S(0), R]".
std::ostream& operator<<(std::ostream& out, const Layout& layout);

}  // namespace weft
