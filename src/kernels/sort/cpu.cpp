// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/sort/sort.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "src/base/parallel.h"
#include "src/kernels/rows/rows.h"
#include "src/kernels/sort/ordered.h"
#include "weft/error.h"

namespace weft {

SortedRows::SortedRows(const MemoryBlock* values_block, const MemoryBlock& indices_block,
                       const MemoryBlock& in_block)
    : in(in_block, in_block.shape.ndim() - 1),
      values(values_block ? Rows(*values_block, in_block.shape.ndim() - 1) : Rows()),
      indices(indices_block, in_block.shape.ndim() - 1) {
  if (values_block) check_rows("sort_rows", values, indices);
  if (in.count() != indices.count() || indices.size() > in.size()) {
    fail("sort_rows: results are ", indices_block.shape, ", expected those of ", in_block.shape);
  }
}

}  // namespace weft

namespace weft::host {

/// Compares elements a and b of a row: NaN is the greatest; equal elements keep their order.
template <class C>
struct ComesBefore {
  const C* x;
  bool descending;

  bool less(C a, C b) const { return a < b || (a == a && b != b); }
  bool operator()(int64_t a, int64_t b) const {
    const C first = x[a], second = x[b];
    if (descending ? less(second, first) : less(first, second)) return true;
    if (descending ? less(first, second) : less(second, first)) return false;
    return a < b;
  }
};

/// Stable radix sort by the upper 32 bits. `other` is scratch of the same size.
static void sort_keys(std::vector<uint64_t>& keys, std::vector<uint64_t>& other) {
  constexpr int kBytes = 4, kValues = 256;
  std::array<std::array<size_t, kValues>, kBytes> starts{};
  const auto byte_of = [](uint64_t key, int byte) { return key >> (32 + 8 * byte) & 0xff; };
  for (uint64_t key : keys) {
    for (int byte = 0; byte < kBytes; ++byte) ++starts[byte][byte_of(key, byte)];
  }
  for (int byte = 0; byte < kBytes; ++byte) {
    auto& places = starts[byte];
    if (places[byte_of(keys[0], byte)] == keys.size()) continue;  // all keys have the same byte
    std::exclusive_scan(places.begin(), places.end(), places.begin(), size_t{0});
    for (uint64_t key : keys) other[places[byte_of(key, byte)]++] = key;
    keys.swap(other);
  }
}

/// Rows shorter than this sort faster by comparisons than by radix sort.
static constexpr size_t kShortRow = 64;

/// Writes the first k indices of a row's sorted elements to `order`.
template <class C>
class RowOrder {
 public:
  RowOrder(int64_t n, bool descending) : order(static_cast<size_t>(n)), descending_(descending) {
    by_keys_ = std::is_same_v<C, float> && order.size() >= kShortRow && n <= 0xffffffff;
    if (by_keys_) keys_.resize(order.size()), other_.resize(order.size());
  }

  void sort(const C* x, int64_t k) {
    if (by_keys_) return sort_by_keys(x);
    std::iota(order.begin(), order.end(), int64_t{0});
    const ComesBefore<C> before{x, descending_};
    if (k == static_cast<int64_t>(order.size())) {
      std::sort(order.begin(), order.end(), before);
    } else {
      std::partial_sort(order.begin(), order.begin() + k, order.end(), before);
    }
  }

  std::vector<int64_t> order;

 private:
  /// For floats, packs the value and the index into one integer.
  void sort_by_keys(const C* x) {
    for (size_t i = 0; i < keys_.size(); ++i) {
      const auto bits = static_cast<uint32_t>(ordered(static_cast<float>(x[i])));
      keys_[i] = static_cast<uint64_t>(descending_ ? ~bits : bits) << 32 | i;
    }
    sort_keys(keys_, other_);
    for (size_t i = 0; i < keys_.size(); ++i) {
      order[i] = static_cast<int64_t>(keys_[i] & 0xffffffffu);
    }
  }

  bool descending_, by_keys_;
  std::vector<uint64_t> keys_, other_;
};

template <class C>
static void sort_rows_as(const SortedRows& rows, bool descending, int64_t offset) {
  const auto& [in, values, indices] = rows;
  const int64_t n = in.size(), k = indices.size();
  parallel_for(in.count(), grain_of(n * 16), [&](int64_t begin, int64_t end) {
    RowReader<C> read(in, end);
    RowWriter<C> write(values, end);
    RowWriter<int64_t> write_indices(indices, end);
    RowOrder<C> row(n, descending);
    const std::vector<int64_t>& order = row.order;
    for (int64_t r = begin; r < end; ++r) {
      const C* x = read(r);
      row.sort(x, k);
      int64_t* index = write_indices.begin(r);
      for (int64_t i = 0; i < k; ++i) index[i] = order[static_cast<size_t>(i)] + offset;
      write_indices.end();
      if (!values.data()) continue;
      C* sorted = write.begin(r);
      for (int64_t i = 0; i < k; ++i) sorted[i] = x[order[static_cast<size_t>(i)]];
      write.end();
    }
  });
}

void sort_rows(const MemoryBlock* values, const MemoryBlock& indices, const MemoryBlock& in,
               bool descending, int64_t offset) {
  const SortedRows rows(values, indices, in);
  visit_compute(in.dtype, [&](auto type) {
    sort_rows_as<typename decltype(type)::type>(rows, descending, offset);
  });
}

}  // namespace weft::host
