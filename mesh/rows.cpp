// SPDX-License-Identifier: Apache-2.0
#include "mesh/rows.h"

#include "mesh/row_ranks.h"
#include "weft/error.h"

namespace weft {

int64_t RowDim::lanes() const {
  int64_t lanes = 1;
  for (int d = 0; d < layout->shape.ndim(); ++d) lanes *= d == dim ? 1 : layout->box.shape[d];
  return lanes;
}

Shape RowDim::shape_of(int64_t count) const {
  if (elements) return {count};
  Shape shape = layout->box.shape;
  shape[dim] = count;
  return shape;
}

Axes axes_cutting(const Layout& layout, int dim) {
  Axes axes;
  for (int axis = 0; layout.grid && axis < layout.sharding.axes(); ++axis) {
    if (layout.sharding[axis].is_shard(dim) && layout.grid->size(axis) > 1) axes.push_back(axis);
  }
  return axes;
}

DistinctKeys distinct(std::span<const int64_t> keys) {
  DistinctKeys made;
  made.places.resize(keys.size());
  const std::vector<int64_t> order = order_of_keys(keys);
  for (const int64_t at : order) {
    const int64_t key = keys[static_cast<size_t>(at)];
    if (made.keys.empty() || made.keys.back() != key) made.keys.push_back(key);
    made.places[static_cast<size_t>(at)] = static_cast<int64_t>(made.keys.size()) - 1;
  }
  return made;
}

std::vector<int64_t> keys_of(const RowDim& rows, const MemoryBlock& indices, std::string& mistake,
                             bool from_end) {
  const int64_t size = rows.layout->shape[rows.dim], count = indices.numel();
  std::vector<int64_t> keys(static_cast<size_t>(count));
  if (count > 0) copy(dense_block(keys.data(), DType::i64, indices.shape), indices);
  for (int64_t& key : keys) {
    if (key < (from_end ? -size : 0) || key >= size) {
      mistake =
          concat("index is ", key, ", expected one of the ", size, " elements of dim ", rows.dim);
      return {};
    }
    key += key < 0 ? size : 0;
  }
  if (!rows.elements) return keys;
  int64_t inner = 1;
  for (int d = rows.dim + 1; d < indices.shape.ndim(); ++d) inner *= indices.shape[d];
  const int64_t lanes = rows.lanes(), along = indices.shape[rows.dim];
  for (int64_t i = 0; i < count; ++i) {
    int64_t& key = keys[static_cast<size_t>(i)];
    key = key * lanes + i / (along * inner) * inner + i % inner;
  }
  return keys;
}

/// For each key, the position of the last row that is written to it.
static std::vector<int64_t> last_of(const DistinctKeys& named) {
  std::vector<int64_t> last(named.keys.size());
  for (size_t i = 0; i < named.places.size(); ++i) {
    last[static_cast<size_t>(named.places[i])] = static_cast<int64_t>(i);
  }
  return last;
}

CombinedRows combined_rows(const RowDim& to, std::span<const int64_t> keys,
                           const MemoryBlock& values, WriteMode mode) {
  DistinctKeys named = distinct(keys);
  const bool is_half = values.dtype == DType::bf16 || values.dtype == DType::f16;
  const DType dtype = mode == WriteMode::add && is_half ? DType::f32 : values.dtype;
  const Shape shape = to.shape_of(static_cast<int64_t>(named.keys.size()));
  CombinedRows made;
  made.memory =
      Storage::allocate(static_cast<size_t>(shape.product()) * size_of(dtype), values.device);
  made.rows = dense_block(made.memory->data(), dtype, shape, values.device);
  const DenseBlock dense = DenseBlock::of(values);
  const MemoryBlock given = flat_if(to.elements, dense);
  const int dim = to.elements ? 0 : to.dim;
  const IndexBlock places(named.places, values.device);
  if (mode == WriteMode::add) {
    add_along(made.rows, given, places, dim);
  } else if (mode == WriteMode::multiply) {
    fill(made.rows, 1);
    write_along(made.rows, given, places, dim, mode);
  } else {
    take_along(made.rows, given, IndexBlock(last_of(named), values.device), dim);
    if (mode != WriteMode::replace) write_along(made.rows, given, places, dim, mode);
  }
  made.keys = std::move(named.keys);
  return made;
}

std::vector<int64_t> ReceivedRows::places_in(const RowDim& to) const {
  return places_of(to, range_of(to, to.layout->box), keys);
}

}  // namespace weft
