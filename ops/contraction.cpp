// SPDX-License-Identifier: Apache-2.0
#include "ops/contraction.h"

#include <algorithm>

#include "ops/dims.h"
#include "src/kernels/copy/copy.h"
#include "src/kernels/matmul/gemm.h"
#include "src/kernels/reduce/reduce.h"
#include "weft/ops/complex.h"
#include "weft/ops/shapes.h"

namespace weft {

namespace {

using Labels = std::vector<int64_t>;

bool has(const Labels& labels, int64_t label) {
  return std::ranges::find(labels, label) != labels.end();
}

/// The labels of a call; a structure holds how many each operand has, then theirs.
struct Contracted {
  /// `batch` is in both operands and the result, `inner` in both operands only.
  Labels a, b, batch, rows, columns, inner;

  Contracted(const Labels& of_a, const Labels& of_b, const Labels& result) : a(of_a), b(of_b) {
    for (const int64_t label : a) {
      (!has(b, label) ? rows : has(result, label) ? batch : inner).push_back(label);
    }
    for (const int64_t label : b) {
      if (!has(a, label)) columns.push_back(label);
    }
  }
  static Contracted of(const Dims& s) {
    const auto first = s.begin() + 2, second = first + s[0], third = second + s[1];
    return {Labels(first, second), Labels(second, third), Labels(third, s.end())};
  }

  Labels result() const {
    Labels all = batch;
    all.insert(all.end(), rows.begin(), rows.end());
    all.insert(all.end(), columns.begin(), columns.end());
    return all;
  }
  Attributes attributes() const {
    Attributes made;
    made.structure = {static_cast<int64_t>(a.size()), static_cast<int64_t>(b.size())};
    for (const Labels& labels : {a, b, result()}) {
      for (const int64_t label : labels) made.structure.push_back(label);
    }
    return made;
  }
};

bool are_distinct(Labels labels) {
  std::ranges::sort(labels);
  return std::ranges::adjacent_find(labels) == labels.end() && (labels.empty() || labels[0] >= 0);
}

bool are_contracted(const Dims& s, std::span<const Shape> shapes) {
  if (shapes.size() != 2 || s.ndim() < 2 || s[0] != shapes[0].ndim() || s[1] != shapes[1].ndim() ||
      s.ndim() < 2 + s[0] + s[1]) {
    return false;
  }
  const Contracted labels = Contracted::of(s);
  return are_distinct(labels.a) && are_distinct(labels.b) && labels.attributes().structure == s;
}

std::string array_of(const Labels& labels) {
  std::string text;
  for (const int64_t label : labels) text += dim_name(static_cast<int>(label), " f");
  return text.empty() ? array_text(text) : text.substr(1);
}

/// A block, and the memory of a copy.
struct Grouped {
  MemoryBlock block;
  Ref<Storage> memory = {};
};

/// The block with dims for `groups` of labels: those of the first, and one for each other group.
/// Copies elements where strides do not allow that.
Grouped grouped(const MemoryBlock& block, const Labels& labels,
                std::initializer_list<Labels> groups) {
  MemoryBlock ordered = block, merged = block;
  ordered.shape = merged.shape = {};
  ordered.strides = merged.strides = {};
  bool is_view = true;
  for (const Labels& group : groups) {
    int64_t size = 1, stride = 1;
    for (const int64_t label : group) {
      const auto dim = static_cast<int>(std::ranges::find(labels, label) - labels.begin());
      const int64_t own = block.shape[dim], step = block.strides[dim];
      ordered.shape.push_back(own), ordered.strides.push_back(step);
      if (&group == groups.begin()) {
        merged.shape.push_back(own), merged.strides.push_back(step);
      } else if (own != 1) {
        is_view = is_view && (size == 1 || stride == own * step);
        size *= own, stride = step;
      }
    }
    if (&group != groups.begin()) merged.shape.push_back(size), merged.strides.push_back(stride);
  }
  if (is_view) return {merged};
  const DenseMemory dense(ordered.shape, block.dtype, block.device);
  copy(dense.block, ordered);
  return {dense_block(dense.memory->data(), block.dtype, merged.shape, block.device), dense.memory};
}

void contract(const Call& c) {
  const Contracted labels = Contracted::of(c.attributes().structure);
  const Grouped a = grouped(c.in(0), labels.a, {labels.batch, labels.rows, labels.inner});
  const Grouped b = grouped(c.in(1), labels.b, {labels.batch, labels.inner, labels.columns});
  // Dense: its labels are in this order.
  const Grouped out =
      grouped(c.out(), labels.result(), {labels.batch, labels.rows, labels.columns});
  const bool is_dot = labels.rows.empty() && labels.columns.empty() && !labels.batch.empty() &&
                      (c.out().dtype == DType::f32 || c.out().dtype == DType::f64);
  if (!is_dot) return gemm(a.block, b.block, out.block);
  const auto without = [](MemoryBlock block, int dim) {
    block.shape.erase(dim), block.strides.erase(dim);
    return block;
  };
  const int rows = a.block.shape.ndim() - 2;
  const DenseBlock x = DenseBlock::of(without(a.block, rows)),
                   y = DenseBlock::of(without(b.block, rows + 1));
  dot_rows(c.out(), x, y);
}

void give_contraction(const Grad& g);

const Op contraction_op = register_op({
    .name = "contraction",
    .rule_of =
        [](const Attributes& attributes, std::span<const Shape>) {
          const Contracted labels = Contracted::of(attributes.structure);
          return Rule{array_of(labels.a) + ", " + array_of(labels.b) + " -> " +
                      array_of(labels.result())};
        },
    .complex = true,
    .structure = {"labels of operand 0, labels of operand 1, the labels of these and the result",
                  are_contracted},
    .linear = {{0}, {1}},
    .forward = contract,
    .backward = give_contraction,
    .products = [](const Attributes&) { return 1.0; },
    .samples = {sample_with({{5, 3, 2}, {3, 2, 4}}, {3, 3, 0, 1, 2, 1, 2, 3, 0, 3}),
                sample_with({{5, 3}, {2, 5, 3}}, {2, 3, 0, 1, 2, 0, 1, 0, 2}),
                sample_with({{5, 3}, {3, 5}}, {2, 2, 0, 1, 1, 0, 0}),
                sample_with({{3, 2}, {4}}, {2, 1, 0, 1, 2, 0, 1, 2})},
});

/// Sums products over the labels that `result` lacks, which is in any order.
Tensor contracted(const Tensor& a, const Labels& of_a, const Tensor& b, const Labels& of_b,
                  const Labels& result) {
  const Contracted labels(of_a, of_b, result);
  const Tensor made = contraction_op({a, b}, labels.attributes());
  const Labels found = labels.result();
  std::vector<int> order;
  for (const int64_t label : result) {
    order.push_back(static_cast<int>(std::ranges::find(found, label) - found.begin()));
  }
  return std::ranges::is_sorted(order) ? made : permute(made, order);
}

void give_contraction(const Grad& g) {
  const Contracted labels = Contracted::of(g.attributes().structure);
  const Labels result = labels.result();
  if (g.wants(0)) g.give(0, contracted(g.grad(), result, conj(g.in(1)), labels.b, labels.a));
  if (g.wants(1)) g.give(1, contracted(g.grad(), result, conj(g.in(0)), labels.a, labels.b));
}

/// Labels as numbers by their first occurrence: equal for equations that differ in letters.
Labels numbers_of(const std::string& labels, std::string& known) {
  Labels numbers;
  for (const char label : labels) {
    if (known.find(label) == known.npos) known += label;
    numbers.push_back(static_cast<int64_t>(known.find(label)));
  }
  return numbers;
}

}  // namespace

Tensor contraction(const Tensor& a, const std::string& labels_of_a, const Tensor& b,
                   const std::string& labels_of_b, const std::string& result) {
  std::string known;
  const Labels of_a = numbers_of(labels_of_a, known), of_b = numbers_of(labels_of_b, known);
  return contracted(a, of_a, b, of_b, numbers_of(result, known));
}

std::string natural_order(const std::string& labels_of_a, const std::string& labels_of_b,
                          const std::string& result) {
  std::string known, made;
  const Labels of_a = numbers_of(labels_of_a, known), of_b = numbers_of(labels_of_b, known);
  const Contracted labels(of_a, of_b, numbers_of(result, known));
  for (const int64_t label : labels.result()) made += known[static_cast<size_t>(label)];
  return made;
}

}  // namespace weft
