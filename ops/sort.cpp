// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/sort/sort.h"

#include <algorithm>
#include <cstring>
#include <ranges>

#include "ops/dims.h"
#include "ops/promotion.h"
#include "ops/sorting.h"
#include "src/base/numeric.h"
#include "src/kernels/copy/dense.h"
#include "src/kernels/iteration/iteration.h"
#include "src/kernels/rows/rows.h"
#include "src/kernels/take/take.h"
#include "weft/extend/parts.h"
#include "weft/ops/along_dim.h"

namespace weft {

// If the dim is sharded, ranks sort their parts, find the chunk boundaries of the whole sorted
// rows in them (`SortedPart::locate`), send each part the elements of its chunk, and merge what
// they receive. Traffic: for each element that changes part its bytes and 8 for its index; for each
// row, and boundary between parts, at most 17 rounds of up to 15 counts. Memory: a few times the
// part.

// structure: DimAndFlag.

namespace {

/// Sorts rows of which this rank holds a part.
class SortAcross {
 public:
  /// Results are rows; `values` may have no data.
  SortAcross(const Parts& parts, const SortedPart& part, bool descending, const Rows& values,
             const Rows& indices)
      : parts_(parts), part_(part), descending_(descending), values_(values), indices_(indices) {}

  void run() {
    const int64_t boundaries = parts_.count() - 1;
    const int64_t together = rows_together(parts_, part_.rows(), 2 * parts_.count() * boundaries);
    for (int64_t first = 0; first < part_.rows(); first += together) {
      sort_from(first, std::min(together, part_.rows() - first));
    }
  }

 private:
  void sort_from(int64_t first, int64_t rows) {
    const int parts = parts_.count();
    const std::vector<std::vector<int64_t>> cuts = cuts_of(first, rows);
    std::vector<int64_t> bytes;
    for (size_t p = 0; p + 1 < cuts.size(); ++p) {
      int64_t elements = 0;
      for (size_t r = 0; r < cuts[p].size(); ++r) elements += cuts[p + 1][r] - cuts[p][r];
      bytes.push_back(SortedRuns::bytes_for(rows, elements, part_.dtype()));
    }
    const Parcels sent(bytes);
    for (int p = 0; p < parts; ++p) {
      const auto at = static_cast<size_t>(p);
      SortedRuns::write(sent.at(p), part_, first, cuts[at], cuts[at + 1]);
    }
    const Parcels received = parts_.exchange(sent);
    SortedRuns runs(received, parts, rows, part_.dtype(), descending_);
    for (int64_t r = first; r < first + rows; ++r) store(r, runs.next());
  }

  /// The beginnings of the chunk of each part in this rank's sorted rows, and the end.
  std::vector<std::vector<int64_t>> cuts_of(int64_t first, int64_t rows) const {
    const auto boundaries = static_cast<size_t>(parts_.count() - 1);
    std::vector<int64_t> positions;
    for (int64_t r = 0; r < rows; ++r) {
      for (int p = 1; p < parts_.count(); ++p) positions.push_back(parts_.chunk(p).offset);
    }
    const auto places = part_.locate(parts_, first, positions, static_cast<int64_t>(boundaries));
    const auto count = static_cast<size_t>(rows);
    std::vector<std::vector<int64_t>> cuts(boundaries + 2, std::vector<int64_t>(count, 0));
    cuts.back().assign(count, part_.size());
    for (size_t i = 0; i < places.size(); ++i) {
      cuts[i % boundaries + 1][i / boundaries] = places[i].before;
    }
    return cuts;
  }

  void store(int64_t row, std::span<const SortedRuns::Element> elements) const {
    const Line indices = indices_.line(row);
    for (size_t i = 0; i < elements.size(); ++i) {
      static_cast<int64_t*>(indices.data)[static_cast<int64_t>(i) * indices.stride] =
          elements[i].index;
    }
    if (!values_.data()) return;
    const Line values = values_.line(row);
    const size_t size = size_of(part_.dtype());
    for (size_t i = 0; i < elements.size(); ++i) {
      std::memcpy(static_cast<char*>(values.data) + static_cast<int64_t>(i * size) * values.stride,
                  elements[i].value, size);
    }
  }

  const Parts& parts_;
  const SortedPart& part_;
  bool descending_;
  Rows values_, indices_;
};

}  // namespace

static void sort_across(const Call& c, const Parts& parts, const MemoryBlock* values,
                        const MemoryBlock& indices) {
  const auto [dim, descending] = unpack<DimAndFlag>(c.attributes().structure);
  const int last = indices.shape.ndim() - 1;
  const SortedPart part(with_last_dim(c.in(0), dim), descending, parts.own(), parts.own().length);
  SortAcross(parts, part, descending, values ? Rows(with_last_dim(*values, dim), last) : Rows(),
             Rows(with_last_dim(indices, dim), last))
      .run();
}

/// Results: the sorted elements and their indices, which the gradient needs.
static const Op sort_op = register_with_indices({
    .name = "sort",
    .rule_of = scan_rule<1, 2>,
    .structure = dim_and_flag("dim, whether descending"),
    .forward =
        [](const Call& c) {
          const auto [dim, descending] = unpack<DimAndFlag>(c.attributes().structure);
          const MemoryBlock values = with_last_dim(c.out(0), dim);
          sort_rows(&values, with_last_dim(c.out(1), dim), with_last_dim(c.in(0), dim), descending);
        },
    .backward =
        [](const Grad& g) {
          const int dim = unpack<DimAndFlag>(g.attributes().structure).dim;
          g.give(0, place_along_dim(g.grad(), g.out(1), dim));
        },
    .across = [](const Call& c, Parts& parts) { sort_across(c, parts, &c.out(0), c.out(1)); },
    .samples = {sample_with({{5, 7}}, {1, 0}), sample_with({{5, 3, 2}}, {0, 1}),
                sample_with({{5, 7}}, {0, 1}, {i64})},
});

static const Op argsort_op = register_op({
    .name = "argsort",
    .rule_of = scan_rule<1>,
    .structure = dim_and_flag("dim, whether descending"),
    .dtype = [](const Attributes&, std::span<const DType>, int) { return i64; },
    .forward =
        [](const Call& c) {
          const auto [dim, descending] = unpack<DimAndFlag>(c.attributes().structure);
          sort_rows(nullptr, with_last_dim(c.out(), dim), with_last_dim(c.in(0), dim), descending);
        },
    .staged_over = {"n"},
    .across = [](const Call& c, Parts& parts) { sort_across(c, parts, nullptr, c.out()); },
    .differentiable = false,
    .samples = {sample_with({{5, 7}}, {1, 0}), sample_with({{5, 3}}, {0, 1}, {i32})},
});

static Attributes sort_attributes(const char* what, const Tensor& a, int dim, bool descending) {
  return {.structure = pack_structure(DimAndFlag{checked_dim(what, a, dim), descending})};
}

Tensor sort(const Tensor& a, int dim, bool descending) {
  return sort_with_indices(a, dim, descending)[0];
}

Tensors sort_with_indices(const Tensor& a, int dim, bool descending) {
  const Attributes attributes = sort_attributes("sort", a, dim, descending);
  return call_ordered(sort_op, {a}, attributes);
}

Tensor argsort(const Tensor& a, int dim, bool descending) {
  return argsort_op({ordered_as_i64(a)}, sort_attributes("argsort", a, dim, descending));
}

namespace {

/// Sends the elements of this rank's part of the rows to the parts that their places are in: for
/// each element its bytes, and 8 for its place. Neighbours with one place are added before.
class PlaceAcross {
 public:
  PlaceAcross(const Call& c, const Parts& parts)
      : parts_(parts),
        in_(c.in(0), along_dim(c)),
        places_(c.in(1), along_dim(c)),
        out_(c.out(), along_dim(c)),
        sent_(is_floating(in_.dtype()) ? compute_dtype(in_.dtype()) : in_.dtype()),
        sent_size_(size_of(sent_)) {}

  void run(const MemoryBlock& out) const {
    const std::vector<int64_t> counts = counts_of_parts();
    Parcels places(bytes_of(counts, 8)), values(bytes_of(counts, sent_size_));
    pack(places, values);
    const Parcels to = parts_.exchange(places), what = parts_.exchange(values);
    int64_t count = 0;
    for (int p = 0; p < parts_.count(); ++p) count += to.bytes(p) / 8;
    auto* at = reinterpret_cast<int64_t*>(to.data());
    const int64_t length = parts_.own().length;
    for (int64_t i = 0; i < count; ++i) at[i] = out_.at(at[i] / length, at[i] % length);
    write_along(dense_block(out.data, out.dtype, {out.numel()}),
                dense_block(what.data(), sent_, {count}), dense_block(at, DType::i64, {count}), 0,
                WriteMode::add);
  }

 private:
  int64_t place(int64_t row, int64_t i) const {
    const Line line = places_.line(row);
    return load_element<int64_t>(line.dtype,
                                 static_cast<const char*>(line.data) +
                                     i * line.stride * static_cast<int64_t>(size_of(line.dtype)));
  }

  int part_of(int64_t place) const {
    if (place < 0 || place >= parts_.size()) {
      fail("place_along_dim: a place is ", place, ", expected 0 to ", parts_.size() - 1);
    }
    return *std::ranges::partition_point(std::views::iota(0, parts_.count()), [&](int part) {
      return parts_.chunk(part).offset + parts_.chunk(part).length <= place;
    });
  }

  /// Returns the end of the run of elements from `i` on that have one place.
  int64_t end_of_run(int64_t row, int64_t i) const {
    const int64_t at = place(row, i);
    while (++i < in_.size() && place(row, i) == at) continue;
    return i;
  }

  std::vector<int64_t> counts_of_parts() const {
    std::vector<int64_t> counts(static_cast<size_t>(parts_.count()), 0);
    for (int64_t r = 0; r < in_.count(); ++r) {
      for (int64_t i = 0; i < in_.size(); i = end_of_run(r, i)) {
        ++counts[static_cast<size_t>(part_of(place(r, i)))];
      }
    }
    return counts;
  }

  static std::vector<int64_t> bytes_of(std::vector<int64_t> counts, size_t size) {
    for (int64_t& count : counts) count *= static_cast<int64_t>(size);
    return counts;
  }

  /// Writes the sum of a row's elements [begin, end).
  template <class C>
  void write_sum(std::byte* to, const Line& line, int64_t begin, int64_t end) const {
    const auto* data = static_cast<const char*>(line.data);
    const int64_t step = line.stride * static_cast<int64_t>(size_of(line.dtype));
    C sum = load_element<C>(line.dtype, data + begin * step);
    for (int64_t i = begin + 1; i < end; ++i) sum += load_element<C>(line.dtype, data + i * step);
    store_element<C>(sent_, to, sum);
  }

  void pack(const Parcels& places, const Parcels& values) const {
    std::vector<int64_t*> next;
    std::vector<std::byte*> next_value;
    for (int p = 0; p < parts_.count(); ++p) {
      next.push_back(reinterpret_cast<int64_t*>(places.at(p)));
      next_value.push_back(values.at(p));
    }
    for (int64_t r = 0; r < in_.count(); ++r) {
      const Line line = in_.line(r);
      for (int64_t i = 0, end = 0; i < in_.size(); i = end) {
        end = end_of_run(r, i);
        const int part = part_of(place(r, i));
        const Chunk& chunk = parts_.chunk(part);
        *next[static_cast<size_t>(part)]++ = r * chunk.length + place(r, i) - chunk.offset;
        std::byte*& to = next_value[static_cast<size_t>(part)];
        is_floating(sent_) ? write_sum<double>(to, line, i, end)
                           : write_sum<int64_t>(to, line, i, end);
        to += sent_size_;
      }
    }
  }

  const Parts& parts_;
  Rows in_, places_, out_;
  /// Sums of halves are sent in f32.
  DType sent_;
  size_t sent_size_;
};

}  // namespace

static const Op place_along_dim_op = register_op({
    .name = "place_along_dim",
    .rule_of = scan_rule<2>,
    .structure = one_dim(),
    .linear = {{0}},
    .forward =
        [](const Call& c) {
          write_along(c.out(), DenseBlock::of(c.in(0)), DenseBlock::of(c.in(1)), along_dim(c),
                      WriteMode::add);
        },
    .backward =
        [](const Grad& g) {
          g.give(0, take_along_dim(g.grad(), g.in(1), static_cast<int>(g.attribute(0))));
        },
    .staged_over = {"n"},
    .across = [](const Call& c, Parts& parts) { PlaceAcross(c, parts).run(c.out()); },
    .saves_in = std::vector<int>{1},
    .samples = {sample_of_indices({{5, 7}, {5, 7}}, {.structure = {1}}, {f32, i64}, 7),
                sample_of_indices({{5, 2}, {5, 2}}, {.structure = {0}}, {f32, i64}, 5)},
});

Tensor place_along_dim(const Tensor& a, const Tensor& places, int dim) {
  return place_along_dim_op({a, places}, {.structure = {checked_dim("place_along_dim", a, dim)}});
}

}  // namespace weft
