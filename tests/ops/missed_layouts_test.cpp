// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <set>

#include "mesh/mesh_body.h"
#include "ops/engine/choose.h"
#include "ops/testing/sweep.h"
#include "weft/communicator.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/testing.h"
#include "weft/ops.h"

namespace weft {

// Layouts that a rule misses: the engine moves data between ranks, though the op, computed on each
// rank's own parts, has parts of the right result. The search knows nothing of rules. Maxima and
// minima are left out: the engine reduces them first, whatever the op.

namespace {

/// One mesh, as each of its ranks sees it.
class Ranks {
 public:
  explicit Ranks(const std::vector<MeshAxis>& axes) {
    int ranks = 1;
    for (const MeshAxis& axis : axes) ranks *= axis.size;
    for (int rank = 0; rank < ranks; ++rank) meshes_.emplace_back(fake_world(rank, ranks), axes);
  }

  int size() const { return static_cast<int>(meshes_.size()); }
  const DeviceMesh& mesh(int rank = 0) const { return meshes_[static_cast<size_t>(rank)]; }
  int axes() const { return mesh().ndim(); }

  /// A rank's part of `whole`, without a mesh.
  Tensor part(const SweepArray& whole, const Pattern& pattern, int rank) const {
    int parts = 1, index = 0;
    ReduceOp op = ReduceOp::sum;
    for (const int axis : pattern.partial_axes()) {
      op = pattern[axis].op();
      parts *= mesh(rank).axis_size(axis);
      index = index * mesh(rank).axis_size(axis) + mesh(rank).coordinate(axis);
    }
    return tensor_of(parts > 1 ? part_of(whole, op, parts, index) : whole, cpu,
                     Sharding::of(mesh(rank), pattern))
        .local();
  }

  /// The layouts of a tensor: whole, parts of each dim and of an inner factor of it, and sums.
  std::vector<Pattern> patterns(const Shape& shape, DType dtype) const {
    std::vector<Placement> placements = {Replicate()};
    for (int d = 0; d < shape.ndim(); ++d) {
      placements.push_back(Shard{d});
      for (const int64_t outer : {2, 3}) {
        if (shape[d] % outer == 0 && shape[d] > outer) placements.push_back(Shard{d, {}, outer});
      }
    }
    if (dtype != DType::boolean) placements.push_back(Partial());
    if (is_floating(dtype)) placements.push_back(Partial(ReduceOp::avg));
    std::vector<Pattern> patterns;
    const std::vector<size_t> counts(static_cast<size_t>(axes()), placements.size());
    each_combination(counts, [&](std::span<const size_t> at) {
      Pattern pattern(axes());
      for (int axis = 0; axis < axes(); ++axis) {
        pattern.set(axis, placements[at[static_cast<size_t>(axis)]]);
      }
      if (is_layout(pattern, shape)) patterns.push_back(pattern);
    });
    return patterns;
  }

  /// The layouts of results, with parts of explicit sizes on a mesh of one axis.
  std::vector<Pattern> patterns_of(const Shape& shape, DType dtype, const Tensors& locals) const {
    std::vector<Pattern> all = patterns(shape, dtype);
    for (int d = 0; d < shape.ndim() && axes() == 1; ++d) {
      std::vector<int64_t> sizes;
      for (const Tensor& local : locals) sizes.push_back(d < local.ndim() ? local.size(d) : 0);
      Pattern pattern(1);
      pattern.set(0, Shard{d, sizes});
      int64_t sum = 0;
      for (const int64_t size : sizes) sum += size;
      if (sum == shape[d]) all.push_back(pattern);
    }
    return all;
  }

 private:
  bool is_layout(const Pattern& pattern, const Shape& shape) const {
    const Axes partial = pattern.partial_axes();
    for (const int axis : partial) {
      if (pattern[axis] != pattern[partial[0]]) return false;
    }
    std::vector<int> sizes;
    for (int axis = 0; axis < axes(); ++axis) sizes.push_back(mesh().axis_size(axis));
    return factored(shape, {&pattern, 1}, sizes).has_value();
  }

  std::vector<DeviceMesh> meshes_;
};

/// Compares the results that ranks compute of their own parts with the parts of the whole result.
class OwnParts {
 public:
  OwnParts(const Ranks& ranks, const Op& op, const OpSample& sample, uint64_t seed)
      : ranks_(ranks), op_(op), sample_(sample) {
    Tensors wholes;
    for (size_t i = 0; i < sample.shapes.size(); ++i) {
      operands_.push_back(operand_of(sample, i, seed));
      wholes.push_back(tensor_of(operands_[i]));
    }
    for (const Tensor& result : op.call(wholes, sample.attributes)) {
      results_.push_back({result.shape(), result.dtype(), result.to_vector<double>()});
    }
  }

  bool communicates(std::span<const Pattern> layouts) const {
    Tensors operands;
    for (size_t i = 0; i < layouts.size(); ++i) {
      operands.push_back(empty(
          operands_[i].shape,
          {.dtype = operands_[i].dtype, .device = meta, .sharding = sharding_of(layouts[i])}));
    }
    return make_route(op_.body(), sample_.attributes, operands)->communicates;
  }

  /// True if each result of the ranks' own parts is laid out in some way.
  bool are_right(std::span<const Pattern> layouts) const {
    std::vector<Tensors> made(results_.size());
    try {
      for (int rank = 0; rank < ranks_.size(); ++rank) {
        Tensors parts;
        for (size_t i = 0; i < layouts.size(); ++i) {
          parts.push_back(ranks_.part(operands_[i], layouts[i], rank));
        }
        const Tensors results = op_.call(parts, sample_.attributes);
        for (size_t r = 0; r < results.size(); ++r) made[r].push_back(results[r]);
      }
    } catch (const std::exception&) {  // the parts do not fit the attributes, or each other
      return false;
    }
    for (size_t r = 0; r < results_.size(); ++r) {
      if (!has_layout(results_[r], made[r])) return false;
    }
    return true;
  }

 private:
  Sharding sharding_of(const Pattern& pattern) const {
    return Sharding::of(ranks_.mesh(), pattern);
  }

  bool has_layout(const SweepArray& whole, const Tensors& locals) const {
    for (const Pattern& pattern : ranks_.patterns_of(whole.shape, whole.dtype, locals)) {
      const bool is_it = pattern.partial_axes().empty() ? are_parts(whole, pattern, locals)
                                                        : are_terms(whole, pattern, locals);
      if (is_it) return true;
    }
    return false;
  }

  bool are_parts(const SweepArray& whole, const Pattern& pattern, const Tensors& locals) const {
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      const Tensor& local = locals[static_cast<size_t>(rank)];
      const Ref<Layout> layout =
          layout_of(Sharding::of(ranks_.mesh(rank), pattern), whole.shape, whole.dtype);
      if (!(layout->box.shape == local.shape())) return false;
      const Tensor expected = ranks_.part(whole, pattern, rank);
      if (!agrees(local.to_vector<double>(), expected.to_vector<double>(), whole)) return false;
    }
    return true;
  }

  /// Sums of the ranks along the Partial axes, for whole tensors only.
  bool are_terms(const SweepArray& whole, const Pattern& pattern, const Tensors& locals) const {
    if (pattern.partial_axes().size() != pattern.axes()) return false;
    std::vector<double> sum(whole.values.size(), 0.0);
    for (const Tensor& local : locals) {
      if (!(local.shape() == whole.shape)) return false;
      const std::vector<double> values = local.to_vector<double>();
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
    }
    const double parts = pattern[0].op() == ReduceOp::avg ? ranks_.size() : 1;
    for (double& value : sum) value /= parts;
    return agrees(sum, whole.values, whole);
  }

  static bool agrees(const std::vector<double>& actual, const std::vector<double>& expected,
                     const SweepArray& whole) {
    const double bound = is_floating(whole.dtype) ? bound_of(whole.dtype) : 0;
    return difference(actual, expected, whole.greatest(), bound).empty();
  }

  const Ranks& ranks_;
  const Op& op_;
  const OpSample& sample_;
  std::vector<SweepArray> operands_, results_;
};

/// What one op misses, by layouts of its operands in words.
class Search {
 public:
  explicit Search(const std::vector<MeshAxis>& axes) : ranks_(axes) {}

  void search(const Op& op, int64_t most, std::map<std::string, std::set<std::string>>& missed) {
    for (const OpSample& sample : samples_of(op)) {
      const OwnParts parts(ranks_, op, sample, 7), others(ranks_, op, sample, 8);
      std::vector<std::vector<Pattern>> layouts;
      SweepCombinations combinations{.counts = {}, .most = most};
      for (size_t i = 0; i < sample.shapes.size(); ++i) {
        const DType dtype = i < sample.dtypes.size() ? sample.dtypes[i] : DType::f32;
        layouts.push_back(ranks_.patterns(sample.shapes[i], dtype));
        combinations.counts.push_back(layouts.back().size());
      }
      if (layouts.empty()) continue;
      combinations.visit([&](std::span<const size_t> at) {
        std::vector<Pattern> chosen;
        for (size_t i = 0; i < at.size(); ++i) chosen.push_back(layouts[i][at[i]]);
        ++tried_;
        if (!parts.communicates(chosen)) return;
        ++moving_;
        // Two sets of values, so that results are not right by chance.
        if (!parts.are_right(chosen) || !others.are_right(chosen)) return;
        missed[op.spec().name].insert(in_words(sample, chosen));
      });
    }
  }

  int64_t tried() const { return tried_; }
  int64_t moving() const { return moving_; }

 private:
  std::string in_words(const OpSample& sample, std::span<const Pattern> layouts) const {
    std::string text;
    for (size_t i = 0; i < layouts.size(); ++i) {
      text += concat(i ? ", " : "", sample.shapes[i],
                     placements_in_words(Sharding::of(ranks_.mesh(), layouts[i])));
    }
    return text;
  }

  Ranks ranks_;
  int64_t tried_ = 0, moving_ = 0;
};

/// Ops whose file states why they miss layouts, in a comment that begins "Missed layouts:".
const std::set<std::string> kWithReason = {"convolution",
                                           "convolution_to_filter",
                                           "convolution_to_image",
                                           "add_along_dim",
                                           "add_slices",
                                           "attention",
                                           "combine_rows",
                                           "dispatch_rows",
                                           "embedding_backward",
                                           "grouped_matmul",
                                           "layer_norm",
                                           "grouped_weight_gradient",
                                           "layer_norm_backward",
                                           "rms_norm",
                                           "cross_entropy_backward",
                                           "rms_norm_backward",
                                           "softmax_backward",
                                           "log_softmax_backward",
                                           "swiglu_backward",
                                           "logsumexp_backward",
                                           "multiply_along_dim",
                                           "put_slices",
                                           "rope_by_frequencies"};

/// Ops whose results of these samples are right by chance: values are finite and never equal, parts
/// of sums have the sign of the sum, matrices are diagonal or of one element, and neighbours of
/// numbers are within the tolerance.
const std::set<std::string> kByChance = {"bitwise_left_shift",
                                         "convert",
                                         "dot_rows",
                                         "equal",
                                         "isfinite",
                                         "isinf",
                                         "isnan",
                                         "lerp",
                                         "logical_not",
                                         "maximum",
                                         "minimum",
                                         "nan_to_num",
                                         "nansum",
                                         "nextafter",
                                         "not_equal",
                                         "pow_number",
                                         "searchsorted",
                                         "solve_triangle",
                                         "symmetric_eigen",
                                         "symmetric_eigenvalues",
                                         "xlogy",
                                         "all",
                                         "any"};

void expect_none_missed(const std::vector<MeshAxis>& axes, int64_t most) {
  NoGrad no_grad;
  Search search(axes);
  std::map<std::string, std::set<std::string>> missed;
  for (const Op& op : all_ops()) {
    if (op.spec().writes.empty()) search.search(op, most, missed);
  }
  std::cout << "missed layouts: " << search.tried() << " combinations, of which " << search.moving()
            << " move data\n";
  for (const auto& [op, layouts] : missed) {
    if (kWithReason.contains(op) || kByChance.contains(op)) continue;
    ADD_FAILURE() << op << " misses " << layouts.size() << " layouts:\n  "
                  << listed(layouts, {}, "\n  ").substr(0, 1500);
  }
  if (sweep_percent() < 100) return;
  for (const std::string& op : kWithReason) {
    EXPECT_TRUE(axes.size() > 1 || missed.contains(op)) << op << " misses none";
  }
}

}  // namespace

TEST(MissedLayouts, OnOneAxis) { expect_none_missed({{"a", 3}}, sweep_percent() > 2 ? 4000 : 40); }
TEST(MissedLayouts, OnTwoAxes) {
  expect_none_missed({{"a", 2}, {"b", 2}}, sweep_percent() > 2 ? 3000 : 4);
}

}  // namespace weft
