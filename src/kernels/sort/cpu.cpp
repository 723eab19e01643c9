// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/sort/sort.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <vector>

#include "src/base/parallel.h"
#include "weft/error.h"

namespace weft {

SortedRows::SortedRows(const MemoryBlock* values_block, const MemoryBlock& indices_block,
                       const MemoryBlock& in_block)
    : in(last_rows(in_block)),
      values(values_block ? last_rows(*values_block) : Rows()),
      indices(last_rows(indices_block)) {
  if (values_block) check_rows("sort_rows", values, indices);
  if (in.count() != indices.count() || indices.size() > in.size()) {
    fail("sort_rows: results are ", indices_block.shape, ", expected those of ", in_block.shape);
  }
}

}  // namespace weft

namespace weft::host {

/// Stable radix sort by the bytes that orders up to `greatest` have. `other` is scratch of the same
/// size.
template <class Key>
static void sort_keys(std::vector<Key>& keys, std::vector<Key>& other, uint64_t greatest) {
  constexpr int kValues = 256;
  std::array<std::array<size_t, kValues>, Key::kBits / 8> starts{};
  const int bytes = (64 - std::countl_zero(greatest) + 7) / 8;
  const auto byte_of = [](const Key& key, int byte) { return key.order() >> 8 * byte & 0xff; };
  for (const Key& key : keys) {
    for (int byte = 0; byte < bytes; ++byte) ++starts[byte][byte_of(key, byte)];
  }
  for (int byte = 0; byte < bytes; ++byte) {
    auto& places = starts[byte];
    if (places[byte_of(keys[0], byte)] == keys.size()) continue;  // all keys have the same byte
    std::exclusive_scan(places.begin(), places.end(), places.begin(), size_t{0});
    for (const Key& key : keys) other[places[byte_of(key, byte)]++] = key;
    keys.swap(other);
  }
}

/// Rows shorter than this sort faster by comparisons than by radix sort.
static constexpr size_t kShortRow = 64;
/// Up to this part of a row is selected without sorting the row.
static constexpr size_t kSelectedPart = 8;

/// The first k elements of a row in order.
template <class C, class Key> class RowOrder {
 public:
  RowOrder(int64_t n, int64_t k, bool descending)
      : size_(static_cast<size_t>(n)), count_(static_cast<size_t>(k)), descending_(descending) {
    selects_ = count_ <= size_ / kSelectedPart;
    keys_.resize(selects_ ? 2 * count_ + kSpare : size_);
    if (!selects_ && size_ >= kShortRow) other_.resize(size_);
  }

  /// Returns them as keys.
  const Key* operator()(const C* x) {
    selects_ ? select(x) : sort(x);
    return keys_.data();
  }

 private:
  static constexpr size_t kSpare = 64;

  uint64_t order_of(C x) const { return descending_ ? ~ordered(x) & kAll : ordered(x); }

  void sort(const C* x) {
    uint64_t least = kAll, greatest = 0;
    for (size_t i = 0; i < size_; ++i) {
      const uint64_t order = order_of(x[i]);
      least = std::min(least, order);
      greatest = std::max(greatest, order);
    }
    for (size_t i = 0; i < size_; ++i)
      keys_[i] = Key::of(order_of(x[i]) - least, static_cast<int64_t>(i));
    if (other_.empty()) return std::sort(keys_.begin(), keys_.end());
    sort_keys(keys_, other_, greatest - least);
  }

  /// Collects the elements that are before the k-th of those seen so far.
  void select(const C* x) {
    const auto first = keys_.begin(), middle = first + static_cast<int64_t>(count_);
    Key limit = Key::last();
    size_t found = 0;
    for (size_t i = 0; i < size_; ++i) {
      const Key key = Key::of(order_of(x[i]), static_cast<int64_t>(i));
      keys_[found] = key;
      found += key < limit;
      if (found < keys_.size()) continue;
      std::nth_element(first, middle, keys_.end());
      limit = *middle;
      found = count_;
    }
    const auto end = first + static_cast<int64_t>(found);
    if (middle < end) std::nth_element(first, middle, end);
    std::sort(first, middle);
  }

  static constexpr uint64_t kAll = ~uint64_t{0} >> (64 - Key::kBits);
  size_t size_, count_;
  bool descending_, selects_;
  std::vector<Key> keys_, other_;
};

template <class C, class Key>
static void sort_rows_by(const SortedRows& rows, bool descending, int64_t offset) {
  const auto& [in, values, indices] = rows;
  const int64_t n = in.size(), k = indices.size();
  parallel_for(in.count(), grain_of(n * 16), [&](int64_t begin, int64_t end) {
    RowReader<C> read(in, end);
    RowWriter<C> write(values, end);
    RowWriter<int64_t> write_indices(indices, end);
    RowOrder<C, Key> sorted(n, k, descending);
    for (int64_t r = begin; r < end; ++r) {
      const C* x = read(r);
      const Key* order = sorted(x);
      int64_t* index = write_indices.begin(r);
      for (int64_t i = 0; i < k; ++i) index[i] = order[i].index() + offset;
      write_indices.end();
      if (!values.data()) continue;
      C* value = write.begin(r);
      for (int64_t i = 0; i < k; ++i) value[i] = x[order[i].index()];
      write.end();
    }
  });
}

void sort_rows(const MemoryBlock* values, const MemoryBlock& indices, const MemoryBlock& in,
               bool descending, int64_t offset) {
  const SortedRows rows(values, indices, in);
  visit_compute(in.dtype, [&]<class C>(Type<C>) {
    visit_keys<C>(rows.in.size(),
                  [&]<class Key>(Type<Key>) { sort_rows_by<C, Key>(rows, descending, offset); });
  });
}

}  // namespace weft::host
