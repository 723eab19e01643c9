// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/take/taking.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "src/base/independent.h"
#include "src/base/numeric.h"
#include "src/base/parallel.h"
#include "src/kernels/copy/copy.h"
#include "src/kernels/reduce/reduce.h"
#include "src/kernels/rows/rows.h"
#include "weft/error.h"

namespace weft {

TakenShape::TakenShape(const MemoryBlock& whole, const MemoryBlock& taken,
                       const MemoryBlock& indices, int dim)
    : size(whole.shape[dim]), n(taken.shape[dim]) {
  for (int d = 0; d < dim; ++d) outer *= taken.shape[d];
  for (int d = dim + 1; d < taken.shape.ndim(); ++d) inner *= taken.shape[d];
  slices = indices.shape.ndim() == 1 && indices.shape[0] == n;
  if (!slices && indices.shape != taken.shape) {
    fail("take: indices are ", indices.shape, ", expected ", taken.shape, " along dim ", dim);
  }
  check_indices("take", indices);
}

}  // namespace weft

namespace weft::host {

namespace {

/// Columns that one task adds.
constexpr int64_t kAddedColumns = 256;
/// Calls f(o, begin, end) on ranges of the n elements of each row: those of all rows are
/// [begin, end).
template <class F> void for_each_part(int64_t begin, int64_t end, int64_t n, const F& f) {
  while (begin < end) {
    const int64_t o = begin / n, first = begin % n, last = std::min(n, first + end - begin);
    f(o, first, last);
    begin += last - first;
  }
}

/// Calls f(o, i) for the rows of [outer, n] whose indices may be used.
template <class F> void for_each_row(const Taking& t, const F& f) {
  parallel_for(t.outer * t.n, grain_of(t.inner), [&t, &f, n = t.n](int64_t begin, int64_t end) {
    for (int64_t row = begin, o = row / n, i = row % n; row < end; ++row) {
      if (t.may_use(o, i, 0, t.inner)) f(o, i);
      if (++i < n) continue;
      i = 0;
      ++o;
    }
  });
}

/// take_elements for many rows with the same indices, which are checked and resolved once.
template <class Bits> void take_same(const Taking& t, Bits* to, const Bits* from) {
  if (!t.may_use_indices(0, t.n)) return;
  std::vector<int64_t> places(static_cast<size_t>(t.n));
  t.with_indices([&](const auto& index) {
    for (int64_t i = 0; i < t.n; ++i) places[static_cast<size_t>(i)] = index(0, i, 0);
  });
  parallel_for(t.outer, grain_of(t.n), [&](int64_t begin, int64_t end) {
    const int64_t n = t.n;
    const int64_t* place = places.data();
    for (int64_t o = begin; o < end; ++o) {
      Bits* row = to + o * n;
      const Bits* source = from + o * t.size;
      WEFT_INDEPENDENT
      for (int64_t i = 0; i < n; ++i) row[i] = source[place[i]];
    }
  });
}

/// take_elements for slices of one element. Most runs have no negative indices.
template <class Bits> void take_single_elements(const Taking& t, Bits* to, const Bits* from) {
  with_typed(t.indices, [&](const auto* data) {
    parallel_for(t.outer * t.n, kParallelGrain, [&](int64_t begin, int64_t end) {
      for_each_part(begin, end, t.n, [&](int64_t o, int64_t first, int64_t last) {
        Bits* row = to + o * t.n;
        const Bits* source = from + o * t.size;
        const auto* places = data + (t.slices ? 0 : o * t.n);
        const int64_t size = t.size;
        for (int64_t i = first, stop = i; i < last; i = stop) {
          stop = std::min(last, i + kCheckedIndices);
          if (!has_outside(places, i, stop, 0, size)) {
            WEFT_INDEPENDENT
            for (int64_t j = i; j < stop; ++j) row[j] = source[places[j]];
          } else if (t.may_use_run(o, i, stop)) {
            for (int64_t j = i; j < stop; ++j)
              row[j] = source[places[j] < 0 ? places[j] + size : places[j]];
          }
        }
      });
    });
  });
}

template <class Bits> void take_elements(const Taking& t, void* out, const void* in) {
  auto* to = static_cast<Bits*>(out);
  const auto* from = static_cast<const Bits*>(in);
  if (t.slices && t.inner == 1 && t.outer > 1) return take_same(t, to, from);
  if (t.inner == 1) return take_single_elements(t, to, from);
  t.with_indices([&](const auto& index) {
    for_each_row(t, [&](int64_t o, int64_t i) {
      Bits* row = to + (o * t.n + i) * t.inner;
      for (int64_t k = 0; k < t.inner; ++k) {
        row[k] = from[(o * t.size + index(o, i, k)) * t.inner + k];
      }
    });
  });
}

void take_slices(const Taking& t, char* out, const char* in, int64_t bytes) {
  t.with_indices([&](const auto& index) {
    for_each_row(t, [&](int64_t o, int64_t i) {
      std::memcpy(out + (o * t.n + i) * bytes, in + (o * t.size + index(o, i, 0)) * bytes,
                  static_cast<size_t>(bytes));
    });
  });
}

/// write_elements for slices of one element. The indices of short rows are checked together.
template <class C, class In, class F>
void write_single_elements(const Taking& t, C* places, const In in, const F& f) {
  const bool together = !t.slices && t.n < kCheckedIndices;
  const int64_t rows = together ? kCheckedIndices / std::max<int64_t>(1, t.n) : 1;
  t.with_indices([&](const auto& index) {
    parallel_for(t.outer, grain_of(t.n), [&](int64_t begin, int64_t end) {
      const int64_t n = t.n, size = t.size;
      for (int64_t first = begin; first < end; first += rows) {
        const int64_t last = std::min(end, first + rows);
        if (together && !t.may_use_indices(first * n, last * n)) continue;
        C* to = places + first * size;
        In from = in + first * n;
        for (int64_t o = first; o < last; ++o, to += size, from += n) {
          // Copies, which the results cannot alias.
          const auto write = [=, place = index](int64_t i, int64_t stop) {
            for (; i < stop; ++i) f(to[place(o, i, 0)], from[i]);
          };
          together ? write(0, n) : for_each_run(t, o, 0, n, write);
        }
      }
    });
  });
}

/// Calls f(to, from) for each element of `in` and its place, in the order of i. Only one thread
/// writes to any place.
template <class C, class In, class F>
void write_elements(const Taking& t, C* places, const In in, const F& f) {
  if (t.inner == 1) return write_single_elements(t, places, in, f);
  const int64_t chunks = (t.inner + kAddedColumns - 1) / kAddedColumns;
  const int64_t grain = grain_of(t.n * std::min(t.inner, kAddedColumns));
  t.with_indices([&](const auto& index) {
    parallel_for(t.outer * chunks, grain, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t o = task / chunks, first = task % chunks * kAddedColumns;
        const int64_t last = std::min(t.inner, first + kAddedColumns);
        C* to = places + o * t.size * t.inner;
        In from = in + o * t.n * t.inner;
        // Copies, which the results cannot alias.
        const auto place = index;
        const int64_t n = t.n, inner = t.inner;
        for (int64_t i = 0; i < n; ++i, from += inner) {
          if (!t.may_use(o, i, first, last)) continue;
          if (t.slices) {
            C* row = to + place(o, i, 0) * inner;
            WEFT_INDEPENDENT
            for (int64_t k = first; k < last; ++k) f(row[k], from[k]);
          } else {
            for (int64_t k = first; k < last; ++k) f(to[place(o, i, k) * inner + k], from[k]);
          }
        }
      }
    });
  });
}

template <class C, class In> void add_elements(const Taking& t, C* sums, const In in) {
  write_elements(t, sums, in, [](C& sum, auto value) { sum += static_cast<C>(value); });
}

/// One number as the elements of a block.
struct Repeated {
  int64_t value;
  Repeated operator+(int64_t) const { return *this; }
  Repeated& operator+=(int64_t) { return *this; }
  int64_t operator[](int64_t) const { return value; }
};

bool is_repeated(const MemoryBlock& block) {
  return std::all_of(block.strides.begin(), block.strides.end(), [](int64_t s) { return s == 0; });
}

/// Integer sums of a vector, which are the same in any order: each part has its own sums, if these
/// are much fewer than the elements.
template <class In> void add_integers(const Taking& t, int64_t* sums, const In in) {
  constexpr int64_t kPartElements = 1 << 17, kMostParts = 16;
  const int64_t parts = std::min(kMostParts, t.n / kPartElements);
  if (t.outer != 1 || t.inner != 1 || parts < 2 || t.size * 8 * parts > t.n) {
    return add_elements(t, sums, in);
  }
  const int64_t each = (t.n + parts - 1) / parts;
  std::vector<int64_t> own(static_cast<size_t>(parts * t.size));
  t.with_indices([&](const auto& index) {
    parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        int64_t* to = own.data() + part * t.size;
        for_each_run(t, 0, part * each, std::min(t.n, (part + 1) * each),
                     [=, place = index](int64_t i, int64_t last) {
                       for (; i < last; ++i) to[place(0, i, 0)] += in[i];
                     });
      }
    });
  });
  for (int64_t i = 0; i < parts * t.size; ++i) sums[i % t.size] += own[static_cast<size_t>(i)];
}

}  // namespace

std::optional<int64_t> find_outside(const MemoryBlock& ids, int64_t low, int64_t high,
                                    std::optional<int64_t> allowed) {
  check_indices("take", ids);
  const int64_t count = ids.numel();
  const Rows places(ids, ids.shape.ndim());
  std::optional<int64_t> found;
  with_typed(ids, [&](const auto* data) {
    std::atomic<bool> any = !ids.is_dense();
    parallel_for(any ? 0 : count, kParallelGrain, [&](int64_t begin, int64_t end) {
      for (int64_t first = begin; first < end; first += kCheckedIndices) {
        const int64_t last = std::min(end, first + kCheckedIndices);
        if (has_outside(data, first, last, low, high)) return any.store(true);
      }
    });
    for (int64_t i = 0; any && i < count && !found; ++i) {
      const int64_t id = data[places.at(i)];
      if ((id < low || id >= high) && id != allowed) found = id;
    }
  });
  return found;
}

static void take(const Taking& t, const MemoryBlock& out, const MemoryBlock& in) {
  if (out.numel() == 0) return;
  const auto bytes = static_cast<int64_t>(size_of(in.dtype));
  if (t.slices && t.inner > 1) {
    return take_slices(t, out.as<char>(), in.as<char>(), t.inner * bytes);
  }
  visit_moved(size_of(in.dtype), [&]<class T>(Type<T>) { take_elements<T>(t, out.data, in.data); });
}

std::optional<int64_t> take_along(const MemoryBlock& out, const MemoryBlock& in,
                                  const MemoryBlock& indices, int dim, bool checks) {
  const Taking t(in, out, indices, dim, checks);
  take(t, out, in);
  return t.mistake();
}

template <class T>
static void add_elements_of(const Taking& t, const MemoryBlock& out, const MemoryBlock& in) {
  using C = Compute<T>;
  if (out.dtype == dtype_of<C>) {
    host::fill(out, 0);
    if constexpr (std::is_same_v<T, int64_t>) {
      if (is_repeated(in)) return add_integers(t, out.as<C>(), Repeated{*in.as<T>()});
      return add_integers(t, out.as<C>(), in.as<T>());
    }
    return add_elements(t, out.as<C>(), in.as<T>());
  }
  std::vector<C> sums(static_cast<size_t>(out.numel()));
  add_elements(t, sums.data(), in.as<T>());
  host::copy(out, dense_block(sums.data(), dtype_of<C>, out.shape));
}

static void add(const Taking& t, const MemoryBlock& out, const MemoryBlock& in) {
  if (is_floating(in.dtype)) {
    return visit_floating("add_along", in.dtype,
                          [&]<class T>(Type<T>) { add_elements_of<T>(t, out, in); });
  }
  if (size_of(in.dtype) == sizeof(int64_t)) return add_elements_of<int64_t>(t, out, in);
  std::vector<int64_t> widened(static_cast<size_t>(in.numel()));
  const MemoryBlock wide = dense_block(widened.data(), DType::i64, in.shape);
  host::copy(wide, in);
  add_elements_of<int64_t>(t, out, wide);
}

/// Calls f(to, from) as write_elements does, with a function of that mode.
template <class T>
static void write_typed(const Taking& t, T* places, const T* in, WriteMode mode) {
  using C = Compute<T>;
  const auto is_nan = [](T value) { return static_cast<C>(value) != static_cast<C>(value); };
  switch (mode) {
    case WriteMode::multiply:
      return write_elements(t, places, in, [](T& place, T value) {
        place = static_cast<T>(static_cast<C>(place) * static_cast<C>(value));
      });
    case WriteMode::max:
      return write_elements(t, places, in, [&](T& place, T value) {
        if (is_nan(value) || static_cast<C>(value) > static_cast<C>(place)) place = value;
      });
    case WriteMode::min:
      return write_elements(t, places, in, [&](T& place, T value) {
        if (is_nan(value) || static_cast<C>(value) < static_cast<C>(place)) place = value;
      });
    default: return write_elements(t, places, in, [](T& place, T value) { place = value; });
  }
}

static void write_complex(const Taking& t, const MemoryBlock& out, const MemoryBlock& in,
                          WriteMode mode) {
  visit_complex(in.dtype, [&]<class T>(Type<T>) {
    if (mode == WriteMode::add) {
      host::fill(out, 0);
      add_elements(t, out.as<T>(), in.as<T>());
    } else if (mode == WriteMode::replace) {
      write_elements(t, out.as<T>(), in.as<T>(), [](T& place, T value) { place = value; });
    } else {
      refuse_complex("write_along", in.dtype);
    }
  });
}

std::optional<int64_t> write_along(const MemoryBlock& out, const MemoryBlock& in,
                                   const MemoryBlock& indices, int dim, WriteMode mode,
                                   bool checks) {
  const Taking t(out, in, indices, dim, checks);
  if (is_complex(in.dtype)) {
    write_complex(t, out, in, mode);
  } else if (mode == WriteMode::add) {
    add(t, out, in);
  } else if (mode == WriteMode::accumulate) {
    visit_compute(in.dtype, [&]<class C>(Type<C>) { add_elements(t, out.as<C>(), in.as<C>()); });
  } else {
    visit(in.dtype, [&]<class T>(Type<T>) { write_typed(t, out.as<T>(), in.as<T>(), mode); });
  }
  return t.mistake();
}

}  // namespace weft::host
