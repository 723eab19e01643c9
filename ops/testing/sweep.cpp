// SPDX-License-Identifier: Apache-2.0
#include "weft/extend/testing.h"

#include <algorithm>
#include <cstdlib>
#include <ostream>

#include "mesh/mesh_body.h"
#include "ops/engine/engine.h"
#include "ops/engine/tensor_body.h"
#include "ops/testing/sweep.h"
#include "weft/autograd.h"
#include "weft/error.h"
#include "weft/ranks.h"

namespace weft {

static constexpr size_t kShownMismatches = 6;

static void add_mismatches(SweepReport& report, const SweepReport& other) {
  for (const std::string& mismatch : other.mismatches) {
    if (report.mismatches.size() < kShownMismatches) report.mismatches.push_back(mismatch);
  }
}

SweepReport& SweepReport::operator+=(const SweepReport& other) {
  all += other.all;
  ran += other.ran;
  gradients += other.gradients;
  free += other.free;
  refused += other.refused;
  wrong += other.wrong;
  add_mismatches(*this, other);
  return *this;
}

Tensor laid_out(const SweepArray& whole, const Sharding& sharding, Device device) {
  const DeviceMesh mesh = sharding.mesh();
  ReduceOp op = ReduceOp::sum;
  int parts = 1, index = 0;
  for (int axis = 0; axis < mesh.ndim(); ++axis) {
    if (!sharding[axis].is_partial()) continue;
    op = sharding[axis].op();
    parts *= mesh.axis_size(axis);
    index = index * mesh.axis_size(axis) + mesh.coordinate(axis);
  }
  return tensor_of(parts > 1 ? part_of(whole, op, parts, index) : whole, device, sharding);
}

int sweep_percent() {
  const char* percent = std::getenv("WEFT_SWEEP_PERCENT");
  return percent ? std::atoi(percent) : 100;
}

namespace {

/// The results of a sample on one device, which every layout must reproduce.
struct Reference {
  std::vector<SweepArray> operands;
  std::vector<SweepArray> results;
  /// Operands written in place, by their index.
  std::vector<std::pair<int, SweepArray>> written;
  /// Gradients by operand; empty for an operand without a gradient.
  std::vector<std::optional<SweepArray>> gradients;
  Tensor cotangent;
};

bool has_gradient(const Op& op) { return op.spec().backward && op.spec().differentiable; }

bool is_written(const Op& op, size_t operand) {
  return contains(op.spec().writes, static_cast<int>(operand));
}

SweepArray array_of(const Tensor& whole) {
  return {whole.shape(), whole.dtype(), whole.to_vector<double>()};
}

Reference reference_of(const Op& op, const OpSample& sample, uint64_t seed) {
  Reference reference;
  Tensors operands;
  for (size_t i = 0; i < sample.shapes.size(); ++i) {
    reference.operands.push_back(operand_of(sample, i, seed));
    operands.push_back(tensor_of(reference.operands.back()));
    if (has_gradient(op) && is_floating(operands[i].dtype())) operands[i].set_requires_grad();
  }
  Tensors results = op.call(operands, sample.attributes);
  for (const Tensor& result : results) reference.results.push_back(array_of(result));
  for (size_t i = 0; i < operands.size(); ++i) {
    SweepArray after = array_of(operands[i]);
    if (is_written(op, i)) {
      reference.written.emplace_back(static_cast<int>(i), std::move(after));
    } else if (after.values != reference.operands[i].values) {
      fail(op.spec().name, ": operand ", i,
           " was changed, expected it unchanged, because the op does not declare that");
    }
  }
  reference.gradients.resize(operands.size());
  if (!has_gradient(op) || results.empty() || !results[0].requires_grad()) return reference;
  reference.cotangent =
      tensor_of(random_array(results[0].shape(), results[0].dtype(), -2, 2, seed + 77));
  backward({results[0]}, {reference.cotangent});
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].grad()) reference.gradients[i] = array_of(operands[i].grad());
  }
  return reference;
}

/// Returns true for the layout of a leaf's gradient: S for S, R for R, P for R. Written apart from
/// the engine's own rule, which the sweep checks.
bool is_gradient_sharding(const Sharding& gradient, const Sharding& leaf) {
  for (int axis = 0; axis < leaf.axes(); ++axis) {
    const Placement expected = leaf[axis].is_partial() ? Placement(Replicate()) : leaf[axis];
    if (!(gradient[axis] == expected)) return false;
  }
  for (int d = 0; d < kMaxDims; ++d) {
    if (!(gradient.axes_cutting(d) == leaf.axes_cutting(d))) return false;
  }
  return true;
}

/// The sweep of one sample on one rank.
class SampleSweep {
 public:
  SampleSweep(const Op& op, size_t number, const OpSample& sample, const DeviceMesh& mesh,
              const SweepOptions& options, bool sized)
      : op_(op),
        number_(number),
        sample_(sample),
        mesh_(mesh),
        options_(options),
        reference_(reference_of(op, sample, options.seed)) {
    const ParsedRule rule = rule_for(op.body(), sample.attributes, sample.shapes);
    binding_ = bind_rule(op.spec().name, rule, sample.shapes);
    staged_ = rule.staged;
    for (size_t i = 0; i < sample.shapes.size(); ++i) {
      const SweepArray& whole = reference_.operands[i];
      shardings_.push_back(sized ? sized_shardings(mesh, whole.shape, whole.dtype)
                                 : all_shardings(mesh, whole.shape.ndim(), whole.dtype));
      tensors_.emplace_back();
      for (const Sharding& sharding : shardings_[i]) {
        tensors_[i].push_back(laid_out(whole, sharding, options_.device));
      }
    }
  }

  SweepReport run() {
    SweepCombinations combinations{{}, options_.most, options_.percent, options_.seed};
    for (const auto& choices : shardings_) combinations.counts.push_back(choices.size());
    report_.all = combinations.all();
    combinations.visit([&](std::span<const size_t> choice) { run_case(choice); });
    return std::move(report_);
  }

 private:
  void run_case(std::span<const size_t> choice) {
    given_.clear();
    for (size_t i = 0; i < choice.size(); ++i) given_.push_back(shardings_[i][choice[i]]);
    ++report_.ran;
    case_is_wrong_ = false;
    try {
      SweepTraffic traffic = traffic_by_rule(op_.spec(), binding_, staged_, given_);
      run_forward(operands_of(choice), traffic);
      if (reference_.cotangent) run_gradient(operands_of(choice));
    } catch (const CommError&) {
      throw;
    } catch (const std::exception& error) {
      if (is_refusal(error.what())) {
        ++report_.refused;
      } else {
        mismatch(concat("throws: ", error.what()));
      }
    }
  }

  /// An operand that is changed in place keeps its layout, which makes some layouts impossible.
  bool is_refusal(const std::string& message) const {
    if (op_.spec().writes.empty()) return false;
    if (message.find("expected ones that it can change in place") == std::string::npos)
      return false;
    for (int i : op_.spec().writes) {
      const Sharding& sharding = given_[static_cast<size_t>(i)];
      if (sharding.has_partial() || cuts_whole_dim(static_cast<size_t>(i))) return true;
      if (sharding != given_[static_cast<size_t>(op_.spec().writes[0])]) return true;
    }
    return false;
  }

  /// Returns whether an axis cuts a dim of an operand that the rule needs whole on each device.
  bool cuts_whole_dim(size_t operand) const {
    return std::ranges::any_of(given_[operand].placements(), [&](const Placement& placement) {
      if (!placement.is_shard()) return false;
      const auto& factors = binding_.operands[operand][static_cast<size_t>(placement.dim())];
      return std::ranges::any_of(factors, [&](int i) { return binding_.factor(i).whole; });
    });
  }

  Tensors operands_of(std::span<const size_t> choice) const {
    Tensors operands;
    for (size_t i = 0; i < choice.size(); ++i) {
      const Tensor& tensor = tensors_[i][choice[i]];
      operands.push_back(is_written(op_, i)
                             ? laid_out(reference_.operands[i], tensor.sharding(), options_.device)
                             : tensor.detach());
    }
    return operands;
  }

  void run_forward(const Tensors& operands, SweepTraffic traffic) {
    NoGrad no_grad;
    TrafficScope scope(traffic == SweepTraffic::any    ? Traffic::allow
                       : traffic == SweepTraffic::none ? Traffic::free_only
                                                       : Traffic::forbid);
    const int64_t before = mesh_.body()->grid().traffic().bytes;
    Tensors results = op_.call(operands, sample_.attributes);
    if (traffic != SweepTraffic::any) {
      ++report_.free;
      int64_t moved = mesh_.body()->grid().traffic().bytes - before;
      if (moved) mismatch(concat("moves ", moved, " bytes; the rule needs none"));
    }
    if (results.size() != reference_.results.size()) {
      return mismatch(concat("gives ", results.size(), " results"));
    }
    for (size_t i = 0; i < results.size(); ++i) {
      compare(concat("result ", i), results[i], reference_.results[i]);
    }
    for (const auto& [i, expected] : reference_.written) {
      compare(concat("written operand ", i), operands[static_cast<size_t>(i)], expected);
    }
  }

  void run_gradient(Tensors operands) {
    ++report_.gradients;
    for (Tensor& operand : operands) {
      if (is_floating(operand.dtype())) operand.set_requires_grad();
    }
    Tensors results = op_.call(operands, sample_.attributes);
    backward({results[0]}, {distribute(reference_.cotangent.to(options_.device), mesh_, {})});
    for (size_t i = 0; i < operands.size(); ++i) {
      const Tensor gradient = operands[i].grad();
      const auto& expected = reference_.gradients[i];
      if (expected.has_value() != static_cast<bool>(gradient)) {
        mismatch(
            concat("gradient ", i, expected ? " does not come" : " comes, unlike one device's"));
      } else if (expected) {
        if (!is_gradient_sharding(gradient.sharding(), given_[i])) {
          mismatch(concat("gradient ", i, " is laid out as ", gradient.sharding()));
        }
        compare(concat("gradient ", i), gradient, *expected);
      }
    }
  }

  /// Compares this rank's part for shards and replicas, the full tensor for partial sums.
  void compare(const std::string& what, const Tensor& actual, const SweepArray& whole) {
    if (!(actual.shape() == whole.shape) || actual.dtype() != whole.dtype || !actual.is_sharded()) {
      return mismatch(concat(what, " is ", actual.shape(), " ", actual.dtype(), " instead of ",
                             whole.shape, " ", whole.dtype));
    }
    NoGrad no_grad;
    TrafficScope scope(Traffic::allow);
    const bool terms = actual.sharding().has_partial() || actual.sharding().has_inner();
    const Tensor seen = terms ? actual.full_tensor() : actual;
    const double bound = std::max(bound_of(whole.dtype), bound_of_operands());
    std::string off = difference(seen.to_vector<double>(),
                                 terms ? whole.values : elements_of(whole, actual.box()),
                                 whole.greatest(), is_floating(whole.dtype) ? bound : 0);
    if (!off.empty())
      mismatch(concat(what, " ", placements_in_words(actual.sharding()), ": ", off));
  }

  /// The error of a sum of bf16 terms is that of bf16, whatever the result's dtype.
  double bound_of_operands() const {
    double bound = 0;
    for (const auto* arrays : {&reference_.operands, &reference_.results}) {
      for (const SweepArray& array : *arrays) bound = std::max(bound, bound_of(array.dtype));
    }
    return bound;
  }

  void mismatch(const std::string& what) {
    if (!case_is_wrong_) ++report_.wrong;
    case_is_wrong_ = true;
    if (report_.mismatches.size() >= kShownMismatches) return;
    std::string text =
        concat(op_.spec().name, " sample ", number_, " on rank ", mesh_.rank(), " of ", mesh_, ":");
    for (size_t i = 0; i < given_.size(); ++i) text += concat(' ', placements_in_words(given_[i]));
    report_.mismatches.push_back(text + ": " + what);
  }

  const Op& op_;
  const size_t number_;
  const OpSample& sample_;
  const DeviceMesh& mesh_;
  const SweepOptions& options_;
  const Reference reference_;
  Binding binding_;
  std::vector<int> staged_;
  std::vector<std::vector<Sharding>> shardings_;
  std::vector<Tensors> tensors_;
  /// The running case.
  std::vector<Sharding> given_;
  bool case_is_wrong_ = false;
  SweepReport report_;
};

}  // namespace

/// A sample that fails on one device counts as one mismatch.
static SweepReport swept(const Op& op, size_t number, const OpSample& sample,
                         const DeviceMesh& mesh, const SweepOptions& options) {
  try {
    SweepReport report = SampleSweep(op, number, sample, mesh, options, false).run();
    SweepOptions few = options;
    few.most = std::min<int64_t>(options.most, 200);
    report += SampleSweep(op, number, sample, mesh, few, true).run();
    return report;
  } catch (const std::invalid_argument& error) {
    SweepReport report;
    report.ran = report.wrong = 1;
    report.mismatches = {concat(op.spec().name, " sample ", number, ": ", error.what())};
    return report;
  }
}

SweepReport sweep(const Op& op) {
  const auto samples = static_cast<int64_t>(std::max<size_t>(1, op.spec().samples.size()));
  const int percent = sweep_percent();
  const SweepOptions meshes[] = {{{{"a", 4}}, 20'000, percent, 1},
                                 {{{"a", 2}, {"b", 2}}, 20'000 / samples, percent, 2},
                                 {{{"a", 3}}, 200, percent, 3},
                                 {{{"a", 2}, {"b", 1}, {"c", 2}}, 200, percent, 4}};
  SweepReport total;
  for (const SweepOptions& options : meshes) total += sweep(op, options);
  return total;
}

std::ostream& operator<<(std::ostream& out, const SweepReport& report) {
  out << report.ran << " of " << report.all << " combinations, " << report.gradients
      << " with gradients, " << report.free << " free by rule, " << report.refused << " refused, "
      << report.wrong << " wrong";
  for (const std::string& mismatch : report.mismatches) out << '\n' << mismatch;
  return out;
}

SweepReport sweep(const Op& op, const SweepOptions& options) {
  int ranks = 1;
  for (const MeshAxis& axis : options.axes) ranks *= axis.size;
  const std::vector<OpSample> samples = samples_of(op);
  std::vector<SweepReport> reports(static_cast<size_t>(ranks));
  auto body = [&](Communicator world) {
    DeviceMesh mesh(world, options.axes);
    SweepReport& mine = reports[static_cast<size_t>(world.rank())];
    for (size_t i = 0; i < samples.size(); ++i) mine += swept(op, i, samples[i], mesh, options);
  };
  run_ranks(ranks, body, {.deadline = std::chrono::seconds(20), .threads_per_rank = 1});
  SweepReport total = reports[0];
  for (size_t rank = 1; rank < reports.size(); ++rank) {
    total.wrong = std::max(total.wrong, reports[rank].wrong);
    add_mismatches(total, reports[rank]);
  }
  return total;
}

}  // namespace weft
