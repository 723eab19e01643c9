// SPDX-License-Identifier: Apache-2.0
#include "mesh/rows.h"

#include <functional>
#include <numeric>
#include <utility>

#include "mesh/grid.h"
#include "src/kernels/copy/copy.h"
#include "src/kernels/sort/sort.h"
#include "weft/context.h"
#include "weft/error.h"

namespace weft {

/// The product of the sizes after a dim.
static int64_t inner_of(const Shape& shape, int dim) {
  return std::accumulate(shape.begin() + dim + 1, shape.end(), int64_t{1}, std::multiplies<>());
}

int64_t RowDim::lanes() const {
  Shape others = layout->box.shape;
  others[dim] = 1;
  return others.product();
}

Shape RowDim::shape_of(int64_t count) const {
  if (elements) return {count};
  Shape shape = layout->box.shape;
  shape[dim] = count;
  return shape;
}

KeyRange range_of(const RowDim& rows, const Box& box) {
  const int64_t each = rows.keys_per_index(), first = box.offset[rows.dim];
  return {first * each, (first + box.shape[rows.dim]) * each};
}

std::vector<int64_t> places_of(const RowDim& rows, KeyRange range, std::span<const int64_t> keys) {
  std::vector<int64_t> places(keys.size());
  const int64_t inner = inner_of(rows.layout->box.shape, rows.dim), each = rows.keys_per_index(),
                along = (range.last - range.first) / std::max<int64_t>(1, each);
  for (size_t i = 0; i < keys.size(); ++i) {
    const int64_t key = keys[i] - range.first;
    places[i] =
        rows.elements ? (key % each / inner * along + key / each) * inner + key % inner : key;
  }
  return places;
}

IndexBlock::IndexBlock(std::vector<int64_t> values, Device device)
    : values_(std::move(values)),
      block_(dense_block(values_.data(), DType::i64, {static_cast<int64_t>(values_.size())})) {
  if (device.kind != DeviceKind::cuda) return;
  memory_ = Storage::allocate(values_.size() * sizeof(int64_t), device);
  const MemoryBlock there = dense_block(memory_->data(), DType::i64, block_.shape, device);
  if (!values_.empty()) copy(there, block_);
  block_ = there;
}

int64_t bytes_of_rows(const RowDim& rows, int64_t count, DType dtype) {
  return rows.shape_of(count).product() * static_cast<int64_t>(size_of(dtype));
}

Axes axes_cutting(const Layout& layout, std::optional<int> dim) {
  return axes_where(layout.grid ? layout.sharding.axes() : 0, [&](int axis) {
    const Placement& at = layout.sharding[axis];
    return (dim ? at.is_shard(*dim) : at.is_shard()) && layout.grid->size(axis) > 1;
  });
}

/// Returns the positions of the keys in ascending order; of equal ones in the order given.
static std::vector<int64_t> order_of_keys(std::span<const int64_t> keys) {
  std::vector<int64_t> order(keys.size());
  std::iota(order.begin(), order.end(), 0);
  if (std::ranges::is_sorted(keys)) return order;
  const Shape shape = {static_cast<int64_t>(keys.size())};
  sort_rows(nullptr, dense_block(order.data(), DType::i64, shape),
            dense_block(const_cast<int64_t*>(keys.data()), DType::i64, shape));
  return order;
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
  const int64_t inner = inner_of(indices.shape, rows.dim), lanes = rows.lanes(),
                along = indices.shape[rows.dim];
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

void KeyedRows::make_room(const RowDim& to, int64_t count, DType dtype, Device device) {
  memory = Storage::allocate(static_cast<size_t>(bytes_of_rows(to, count, dtype)), device);
  rows = dense_block(memory->data(), dtype, to.shape_of(count), device);
}

KeyedRows combined_rows(const RowDim& to, std::span<const int64_t> keys, const MemoryBlock& values,
                        WriteMode mode) {
  DistinctKeys named = distinct(keys);
  const bool is_half = values.dtype == DType::bf16 || values.dtype == DType::f16;
  const DType dtype = mode == WriteMode::add && is_half ? DType::f32 : values.dtype;
  KeyedRows made;
  made.make_room(to, static_cast<int64_t>(named.keys.size()), dtype, values.device);
  const DenseBlock dense = DenseBlock::of(values);
  const MemoryBlock given = flat_if(to.elements, dense);
  const int dim = to.elements ? 0 : to.dim;
  const IndexBlock places(named.places, values.device);
  if (mode == WriteMode::multiply) {
    fill(made.rows, 1);
  } else if (mode != WriteMode::add) {
    take_along(made.rows, given, IndexBlock(last_of(named), values.device), dim);
  }
  if (mode != WriteMode::replace) write_along(made.rows, given, places, dim, mode);
  made.keys = std::move(named.keys);
  return made;
}

std::vector<int64_t> KeyedRows::places_in(const RowDim& to) const {
  return places_of(to, range_of(to, to.layout->box), keys);
}

void fail_together(const Communicator& group, const std::string& mistake) {
  if (Context::current().traffic == Traffic::allow) return fail_on_all_ranks(group, mistake);
  if (!mistake.empty()) fail(mistake);
}

}  // namespace weft
