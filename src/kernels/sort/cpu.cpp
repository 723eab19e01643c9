// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/sort/sort.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <type_traits>
#include <vector>

#include "src/base/independent.h"
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

SearchedRows::SearchedRows(const MemoryBlock& out_block, const MemoryBlock& sorted_block,
                           const MemoryBlock& values_block)
    : sorted(sorted_block, sorted_block.shape.ndim() - 1),
      values(values_block, values_block.shape.ndim()),
      out(out_block, out_block.shape.ndim()),
      values_of_row(1) {
  const bool one = sorted_block.shape.ndim() == 1;
  values_of_row = one ? std::max<int64_t>(1, values.count()) : values_block.shape.back();
  if (out.count() != values.count() || (!one && sorted.count() * values_of_row != values.count())) {
    fail("search_sorted: the values are ", values_block.shape, " for results ", out_block.shape,
         ", expected a row for each of ", sorted_block.shape);
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
    const size_t lanes = std::bit_ceil(std::max(4 * count_, size_t{kFewLanes}));
    if (selects_ && 4 * lanes <= size_) lanes_.resize(lanes);
    if (!selects_ && size_ >= kShortRow) other_.resize(size_);
  }

  /// Returns them as keys.
  const Key* operator()(const C* x) {
    selects_ ? select(x) : sort(x);
    return keys_.data();
  }

 private:
  static constexpr size_t kSpare = 64, kFewLanes = 64, kBlock = 16;
  using Order = std::conditional_t<Key::kBits == 32, uint32_t, uint64_t>;

  uint64_t order_of(C x) const { return ordered(x) ^ (descending_ ? kAll : 0); }

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

  /// Returns an order that at least k elements do not exceed: the k-th of the least orders of many
  /// parts of the row, each the elements a fixed distance apart.
  uint64_t find_bound(const C* x) {
    const size_t lanes = lanes_.size();
    if (lanes == 0 || count_ == 0) return kAll;
    Order* least = lanes_.data();
    std::fill_n(least, lanes, static_cast<Order>(kAll));
    for (size_t i = 0; i + lanes <= size_; i += lanes) {
      WEFT_INDEPENDENT
      for (size_t l = 0; l < lanes; ++l) {
        const auto order = static_cast<Order>(order_of(x[i + l]));
        least[l] = order < least[l] ? order : least[l];
      }
    }
    std::nth_element(least, least + count_ - 1, least + lanes);
    return least[count_ - 1];
  }

  /// Returns whether a block has an element whose order is at most `most`.
  bool has_any(const C* x, uint64_t most) const {
    const auto limit = static_cast<Order>(most);
    int any = 0;
    for (size_t j = 0; j < kBlock; ++j) any |= static_cast<Order>(order_of(x[j])) <= limit;
    return any != 0;
  }

  /// Collects the elements that are before the k-th of those seen so far.
  void select(const C* x) {
    const auto first = keys_.begin(), middle = first + static_cast<int64_t>(count_);
    uint64_t bound = find_bound(x);
    Key limit = bound == kAll ? Key::last() : Key::of(bound + 1, 0);
    size_t found = 0;
    for (size_t i = 0; i < size_; ++i) {
      while (i % kBlock == 0 && i + kBlock <= size_ && !has_any(x + i, bound)) i += kBlock;
      if (i == size_) break;
      const Key key = Key::of(order_of(x[i]), static_cast<int64_t>(i));
      keys_[found] = key;
      found += key < limit;
      if (found < keys_.size()) continue;
      std::nth_element(first, middle, keys_.end());
      limit = *middle;
      bound = limit.order();
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
  std::vector<Order> lanes_;
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

/// Values searched together, so that the processor waits for the memory of all at once.
static constexpr int kTogether = 16;

/// The block's elements when they are dense and of type C, else null.
template <class C> static C* dense_elements(const MemoryBlock& block) {
  return block.is_dense() && block.dtype == dtype_of<C> ? block.as<C>() : nullptr;
}

/// This is not inlined: its loops over the values then had branches.
template <class C, bool kRight>
[[gnu::noinline]] static void search_together(int64_t n, const C* sorted, const C* values,
                                              int64_t* places) {
  find_places<kRight, kTogether>(
      n, [sorted](int64_t at) { return sorted[at]; }, values, places);
}

template <class C, bool kRight>
static void search(const SearchedRows& rows, const C* values, int64_t* places) {
  parallel_for(rows.values.count(), grain_of(16), [&](int64_t begin, int64_t end) {
    RowReader<C> read(rows.sorted, rows.sorted.count());
    C value[kTogether] = {};
    int64_t place[kTogether];
    for (int64_t i = begin, n = 0; i < end; i += n) {
      const int64_t row = i / rows.values_of_row;
      n = std::min({int64_t{kTogether}, end - i, (row + 1) * rows.values_of_row - i});
      const C* sorted = read(row);
      for (int64_t j = 0; j < n; ++j)
        value[j] = values ? values[i + j] : value_of<C>(rows.values, i + j);
      search_together<C, kRight>(rows.sorted.size(), sorted, value, place);
      for (int64_t j = 0; j < n; ++j) {
        if (places) {
          places[i + j] = place[j];
        } else {
          set_value(rows.out, i + j, place[j]);
        }
      }
    }
  });
}

void search_sorted(const MemoryBlock& out, const MemoryBlock& sorted, const MemoryBlock& values,
                   bool right) {
  const SearchedRows rows(out, sorted, values);
  auto* places = dense_elements<int64_t>(out);
  visit_compute(sorted.dtype, [&]<class C>(Type<C>) {
    const C* elements = dense_elements<C>(values);
    right ? search<C, true>(rows, elements, places) : search<C, false>(rows, elements, places);
  });
}

/// Elements of a mask that one task counts, then places, and that it places at a time.
static constexpr int64_t kMaskTask = 65536, kMaskChunk = 1024;

static void place_true(int64_t* out, const bool* mask, int64_t begin, int64_t end) {
  int64_t places[kMaskChunk];
  for (int64_t first = begin; first < end; first += kMaskChunk) {
    int64_t count = 0;
    const int64_t last = std::min(end, first + kMaskChunk);
    for (int64_t i = first; i < last; ++i) {
      places[count] = i;
      count += mask[i];
    }
    out = std::copy_n(places, count, out);
  }
}

void true_places(const MemoryBlock& out, const MemoryBlock& mask) {
  const int64_t n = mask.numel(), tasks = (n + kMaskTask - 1) / kMaskTask;
  const bool* holds = mask.as<bool>();
  const auto end_of = [n](int64_t task) { return std::min(n, (task + 1) * kMaskTask); };
  std::vector<int64_t> starts(static_cast<size_t>(tasks));
  parallel_for(tasks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      int64_t count = 0;
      for (int64_t i = task * kMaskTask; i < end_of(task); ++i) count += holds[i];
      starts[static_cast<size_t>(task)] = count;
    }
  });
  const int64_t found = std::accumulate(starts.begin(), starts.end(), int64_t{0});
  std::exclusive_scan(starts.begin(), starts.end(), starts.begin(), int64_t{0});
  for (int64_t i = found; i < out.numel(); ++i) out.as<int64_t>()[i] = 0;
  parallel_for(tasks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      place_true(out.as<int64_t>() + starts[static_cast<size_t>(task)], holds, task * kMaskTask,
                 end_of(task));
    }
  });
}

}  // namespace weft::host
