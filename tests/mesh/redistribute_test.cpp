// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>

#include "mesh/mesh_body.h"
#include "tests/mesh/whole.h"
#include "weft/communicator.h"
#include "weft/ranks.h"

namespace weft {

namespace {

bool is_average(const Lie& lie) { return lie.partial() && lie.partial()->op() == ReduceOp::avg; }

/// One redistribution, by exchanges or by collectives.
struct Job {
  const Lie* from;
  const Lie* to;
  Shape shape;
  DType dtype;
  PlanOptions options;
};

/// Runs jobs on all ranks of a mesh and checks every rank's result against the whole tensor.
class Jobs {
 public:
  explicit Jobs(std::vector<int> mesh) : mesh_(std::move(mesh)) {
    for (int size : mesh_) ranks_ *= size;
  }

  void add(const Job& job) { jobs_.push_back(job); }
  size_t size() const { return jobs_.size(); }

  void run_and_check() {
    results_.assign(jobs_.size(), std::vector<std::vector<double>>(static_cast<size_t>(ranks_)));
    RunOptions options;
    options.deadline = std::chrono::seconds(20);
    run_ranks(
        ranks_, [&](Communicator world) { run_all(world); }, options);
    for (size_t j = 0; j < jobs_.size() && !::testing::Test::HasFailure(); ++j) check(j);
  }

 private:
  static std::string words(const Job& job, const Plan* plan) {
    return concat(job.shape, " ", job.dtype, job.options.collectives ? " collectives" : "",
                  job.options.two_step ? " two steps " : " ", plan ? to_string(*plan) : "");
  }

  void run_all(const Communicator& world) {
    std::vector<MeshAxis> axes;
    for (size_t a = 0; a < mesh_.size(); ++a) axes.push_back({std::to_string(a), mesh_[a]});
    DeviceMesh mesh(world, axes);
    for (size_t j = 0; j < jobs_.size(); ++j) run_one(mesh, j);
  }

  void run_one(const DeviceMesh& mesh, size_t j) {
    const Job& job = jobs_[j];
    Ref<Layout> from = layout_of(job.from->on(mesh), job.shape, job.dtype);
    Ref<Layout> to = layout_of(job.to->on(mesh), job.shape, job.dtype);
    Ref<Plan> plan = plan_between(from, to, job.options);
    std::vector<double> in = source(job, mesh.rank());
    ASSERT_EQ(static_cast<int64_t>(in.size()), from->box.shape.product()) << words(job, nullptr);
    // Columns of the source are contiguous: blocks may be strided.
    std::vector<std::byte> memory(in.size() * size_of(job.dtype) + 1);
    MemoryBlock block = dense_block(memory.data(), job.dtype, from->box.shape);
    if (j % 3 == 2) block.strides = {1, from->box.shape[0]};
    int64_t columns = from->box.shape[1];
    for (size_t i = 0; i < in.size(); ++i) {
      auto at = static_cast<int64_t>(i);
      int64_t row = at / columns, column = at % columns;
      store(memory.data(), job.dtype, row * block.strides[0] + column * block.strides[1], in[i]);
    }
    auto elements = static_cast<size_t>(to->box.shape.product());
    std::vector<std::byte> out(elements * size_of(job.dtype) + 1, std::byte{0x55});
    int64_t before = mesh.body()->grid().traffic().bytes;
    weft::run(*plan, block, dense_block(out.data(), job.dtype, to->box.shape));
    EXPECT_EQ(mesh.body()->grid().traffic().bytes - before, plan->cost.bytes)
        << "rank " << mesh.rank() << ": " << words(job, plan.get());
    EXPECT_EQ(out.back(), std::byte{0x55});
    for (size_t i = 0; i < elements; ++i) {
      results_[j][static_cast<size_t>(mesh.rank())].push_back(
          load(out.data(), job.dtype, static_cast<int64_t>(i)));
    }
    check_view(*plan, block, out);
  }

  /// When the plan promises a view, checks that the view equals the copy.
  static void check_view(const Plan& plan, const MemoryBlock& in,
                         const std::vector<std::byte>& out) {
    std::optional<Box> part = local_part(plan);
    if (!part) return;
    EXPECT_TRUE(plan.is_free());
    EXPECT_EQ(part->shape, plan.to->box.shape);
    MemoryBlock view = in.part(*part);
    int64_t columns = view.shape[1];
    for (int64_t i = 0; i < view.numel(); ++i) {
      int64_t at = i / columns * view.strides[0] + i % columns * view.strides[1];
      EXPECT_EQ(load(view.data, view.dtype, at), load(out.data(), view.dtype, i));
    }
  }

  std::vector<double> source(const Job& job, int rank) const {
    std::vector<int> at = coordinates_at(mesh_, rank);
    std::vector<double> values;
    for (int64_t row : indices(*job.from, 0, job.shape[0], mesh_, at)) {
      for (int64_t column : indices(*job.from, 1, job.shape[1], mesh_, at)) {
        values.push_back(addend(*job.from, mesh_, at, row, column));
      }
    }
    return values;
  }

  void check(size_t j) const {
    const Job& job = jobs_[j];
    for (int rank = 0; rank < ranks_; ++rank) {
      std::vector<int> at = coordinates_at(mesh_, rank);
      size_t i = 0;
      for (int64_t row : indices(*job.to, 0, job.shape[0], mesh_, at)) {
        for (int64_t column : indices(*job.to, 1, job.shape[1], mesh_, at)) {
          ASSERT_NEAR(value_at(j, at, i++), whole_value(row, column), rounding(job))
              << "rank " << rank << ", element " << row << ", " << column << ": "
              << printed(*job.from) << " -> " << printed(*job.to) << " " << words(job, nullptr);
        }
      }
      ASSERT_EQ(results_[j][static_cast<size_t>(rank)].size(), i);
    }
  }

  /// Thirds of integers are not exact; everything else is.
  double rounding(const Job& job) const {
    bool thirds = ranks_ % 3 == 0 && (is_average(*job.from) || is_average(*job.to));
    return !thirds ? 0 : job.dtype == bf16 ? 0.2 : 1e-5;
  }

  /// The value of element i of the rank at `at`.
  double value_at(size_t j, const std::vector<int>& at, size_t i) const {
    const Lie& to = *jobs_[j].to;
    double value = 0;
    int members = 0;
    for (int rank = 0; rank < ranks_; ++rank) {
      std::vector<int> other = coordinates_at(mesh_, rank);
      bool is_member = true;
      for (size_t a = 0; a < mesh_.size(); ++a) {
        is_member = is_member && (other[a] == at[a] || to.placements[a].is_partial());
      }
      if (!is_member) continue;
      double part = results_[j][static_cast<size_t>(rank)][i];
      value = members++ == 0 ? part : combined(to.partial()->op(), value, part);
    }
    return to.partial() && to.partial()->op() == ReduceOp::avg ? value / members : value;
  }

  static std::string printed(const Lie& lie) {
    std::string text = "[";
    for (const Placement& placement : lie.placements) text += concat(placement, " ");
    return text + (lie.cuts.empty() ? "]" : "] the other order");
  }

  std::vector<int> mesh_;
  int ranks_ = 1;
  std::vector<Job> jobs_;
  /// Indexed by job and rank.
  std::vector<std::vector<std::vector<double>>> results_;
};

/// All layouts of a 2-D tensor over `axes` axes, with both orders when two axes shard one dim.
std::vector<Lie> all_lies(size_t axes) {
  const std::vector<Placement> choices = {Replicate(),
                                          Shard(0),
                                          Shard(1),
                                          Partial(ReduceOp::sum),
                                          Partial(ReduceOp::avg),
                                          Partial(ReduceOp::max),
                                          Partial(ReduceOp::min)};
  std::vector<Lie> lies;
  std::vector<size_t> chosen(axes, 0);
  for (bool more = true; more;) {
    Lie lie;
    bool one_kind = true;
    for (size_t choice : chosen) lie.placements.push_back(choices[choice]);
    for (const Placement& placement : lie.placements) {
      one_kind = one_kind && (!placement.is_partial() || placement == *lie.partial());
    }
    if (one_kind) {
      lies.push_back(lie);
      for (int dim : {0, 1}) {
        std::vector<int> order = lie.cutting(dim);
        if (order.size() < 2) continue;
        Lie turned = lie;
        turned.cuts.push_back({order.rbegin(), order.rend()});
        lies.push_back(turned);
      }
    }
    more = false;
    for (size_t a = 0; a < axes && !more; ++a) {
      more = ++chosen[a] < choices.size();
      if (!more) chosen[a] = 0;
    }
  }
  return lies;
}

/// Under sanitizers a sample is enough.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr size_t kThinned = 23;
#else
constexpr size_t kThinned = 1;
#endif

void check_every_pair(const std::vector<int>& mesh, size_t every) {
  every *= kThinned;
  const std::vector<Shape> shapes = {{5, 7}, {3, 2}, {1, 4}, {0, 3}, {9, 1}};
  const std::vector<DType> dtypes = {f32, bf16, i64, f64};
  std::vector<Lie> lies = all_lies(mesh.size());
  Jobs jobs(mesh);
  size_t number = 0;
  for (const Lie& from : lies) {
    for (const Lie& to : lies) {
      for (size_t variant = 0; variant < 24; ++variant) {
        if (number++ % every != 0) continue;
        Job job{&from, &to, shapes[variant % shapes.size()], dtypes[variant % dtypes.size()], {}};
        job.options.collectives = number / every % 3 == 0;
        job.options.two_step = number / every % 3 == 1;
        if (job.dtype == i64 && (is_average(from) || is_average(to))) job.dtype = f32;
        jobs.add(job);
      }
    }
  }
  ASSERT_GT(jobs.size(), 1000u / kThinned);
  jobs.run_and_check();
}

/// Gives the axes marked in `sized`, and all axes that cut the same dim outside of them, explicit
/// sizes for a tensor of that shape: parts from nothing to everything.
Lie with_parts(Lie lie, const std::vector<int>& mesh, const Shape& shape, unsigned sized) {
  for (int dim = 0; dim < 2; ++dim) {
    std::vector<int64_t> outer{shape[dim]};
    for (const int axis : lie.cutting(dim)) {
      const int parts = mesh[static_cast<size_t>(axis)];
      std::vector<int64_t> inner;
      for (int64_t left : outer) {
        const auto offset = static_cast<int>(inner.size());
        for (int i = 0; i < parts; ++i) {
          const int64_t size =
              i + 1 == parts ? left : std::min<int64_t>(left, (offset + i * 2) % 4);
          inner.push_back(size);
          left -= size;
        }
      }
      if (!(sized >> axis & 1)) break;
      lie.placements[static_cast<size_t>(axis)] = Shard{dim, inner};
      outer = inner;
    }
  }
  return lie;
}

/// From and to layouts of which at least one has parts of explicit sizes.
void check_parts(const std::vector<int>& mesh, size_t every) {
  every *= kThinned;
  const std::vector<Shape> shapes = {{5, 7}, {3, 2}, {0, 3}, {9, 1}};
  std::vector<Lie> lies;
  std::vector<size_t> shape_of;
  for (const Lie& plain : all_lies(mesh.size())) {
    if (plain.partial() && plain.partial()->op() != ReduceOp::sum) continue;
    for (size_t shape = 0; shape < shapes.size(); ++shape) {
      for (unsigned sized = 0; sized < 1u << mesh.size(); ++sized) {
        lies.push_back(with_parts(plain, mesh, shapes[shape], sized));
        shape_of.push_back(shape);
      }
    }
  }
  Jobs jobs(mesh);
  size_t number = 0;
  for (size_t i = 0; i < lies.size(); ++i) {
    for (size_t j = 0; j < lies.size(); ++j) {
      if (shape_of[i] != shape_of[j] || number++ % every != 0) continue;
      Job job{&lies[i], &lies[j], shapes[shape_of[i]], number % 2 ? f32 : i64, {}};
      job.options.collectives = number / every % 3 == 0;
      job.options.two_step = number / every % 3 == 1;
      jobs.add(job);
    }
  }
  ASSERT_GT(jobs.size(), 100u / kThinned);
  jobs.run_and_check();
}

}  // namespace

TEST(Redistribute, PartsOn3Ranks) { check_parts({3}, 1); }
TEST(Redistribute, PartsOn4Ranks) { check_parts({4}, 1); }
TEST(Redistribute, PartsOn2x2Ranks) { check_parts({2, 2}, 17); }
TEST(Redistribute, PartsOn2x1x2Ranks) { check_parts({2, 1, 2}, 2003); }
TEST(Redistribute, PartsOn2x3Ranks) { check_parts({2, 3}, 41); }
TEST(Redistribute, EveryPairOn3Ranks) { check_every_pair({3}, 1); }
TEST(Redistribute, EveryPairOn4Ranks) { check_every_pair({4}, 1); }
TEST(Redistribute, EveryPairOn2x2Ranks) { check_every_pair({2, 2}, 5); }
TEST(Redistribute, SampledPairsOn2x1x2Ranks) { check_every_pair({2, 1, 2}, 211); }
TEST(Redistribute, SampledPairsOn2x3Ranks) { check_every_pair({2, 3}, 31); }
TEST(Redistribute, SampledPairsOn2x2x2Ranks) { check_every_pair({2, 2, 2}, 499); }

}  // namespace weft
