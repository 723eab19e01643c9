// SPDX-License-Identifier: Apache-2.0
// Second derivatives of ops in layouts, against those on one device.
#include <algorithm>

#include "ops/engine/tensor_body.h"
#include "ops/testing/sweep.h"
#include "weft/derivatives.h"
#include "weft/error.h"
#include "weft/extend/testing.h"
#include "weft/ops.h"
#include "weft/ranks.h"

namespace weft {

namespace {

/// Coefficients of which no two are equal.
Tensor coefficients_for(const Tensor& x, size_t number) {
  const Tensor phase = cast(arange(x.numel()), f64);
  const Tensor all = reshape(cos(add(phase, static_cast<double>(number))), x.shape());
  return x.is_sharded() ? distribute(all, x.sharding().mesh(), {}) : all;
}

/// One sample of an op on one rank: the operands and then the gradient of result 0, in f64 where
/// the op takes that.
class SecondSweep {
 public:
  SecondSweep(const Op& op, const OpSample& sample, const DeviceMesh& mesh,
              const SweepOptions& options)
      : op_(op), sample_(sample), mesh_(mesh), options_(options) {
    Tensors wholes;
    for (size_t i = 0; i < sample.shapes.size(); ++i) {
      add_operand(i);
      wholes.push_back(tensor_of(given_.back()));
    }
    const NoGrad no_grad;
    const Tensor result = op.call(wholes, sample.attributes)[0];
    if (result.dtype() != f64) return;
    given_.push_back(random_array(result.shape(), f64, -2, 2, options.seed + 1));
    varies_.push_back(true);
    wholes.push_back(tensor_of(given_.back()));
    expected_ = second_of(wholes);
  }

  SweepReport run() {
    if (expected_.empty()) return std::move(report_);
    SweepCombinations combinations{{}, options_.most, options_.percent, options_.seed};
    for (const SweepArray& array : given_) {
      shardings_.push_back(all_shardings(mesh_, array.shape.ndim(), array.dtype));
      combinations.counts.push_back(shardings_.back().size());
    }
    report_.all = combinations.all();
    combinations.visit([&](std::span<const size_t> choice) { run_case(choice); });
    return std::move(report_);
  }

 private:
  void add_operand(size_t i) {
    SweepRandom random(options_.seed + i);
    SweepArray array = operand_of(sample_, i, options_.seed);
    const std::vector<DType>& dtypes = taken(op_.spec(), i).dtypes;
    const bool takes_f64 = dtypes.empty() || std::ranges::find(dtypes, f64) != dtypes.end();
    varies_.push_back(is_floating(array.dtype) && takes_f64);
    if (varies_.back()) {
      array.dtype = f64;
      for (double& value : array.values) {
        value = sample_.low + random.fraction() * (sample_.high - sample_.low);
      }
    }
    given_.push_back(std::move(array));
  }

  /// The derivatives, by all that varies, of a number that depends on all gradients of result 0;
  /// nothing if there are none.
  Tensors second_of(const Tensors& given) const {
    const ContextSetting<&Context::grad_enabled> recording(true);
    Tensors leaves, roots;
    for (size_t i = 0; i < given.size(); ++i) {
      leaves.push_back(given[i].detach());
      if (varies_[i]) roots.push_back(leaves[i].set_requires_grad());
    }
    const Tensor cotangent = leaves.back();
    leaves.pop_back();
    const Tensor result = op_.call(leaves, sample_.attributes)[0];
    if (!result.requires_grad() || result.numel() == 0) return {};
    const Tensors first =
        grad({result}, {roots.begin(), roots.end() - 1},
             {.grad_outputs = {cotangent}, .create_graph = true, .allow_unused = true});
    Tensor total;
    for (size_t i = 0; i < first.size(); ++i) {
      if (!first[i] || !first[i].requires_grad()) continue;
      const Tensor part = sum(mul(first[i], coefficients_for(first[i], i)));
      total = total ? add(total, part) : part;
    }
    if (!total) return {};
    return grad({total}, roots, {.allow_unused = true});
  }

  void run_case(std::span<const size_t> choice) {
    std::string words;
    Tensors tensors;
    for (size_t i = 0; i < choice.size(); ++i) {
      const Sharding& sharding = shardings_[i][choice[i]];
      tensors.push_back(laid_out(given_[i], sharding, cpu));
      words += concat(' ', placements_in_words(sharding));
    }
    ++report_.ran;
    std::string wrong;
    try {
      const Tensors found = second_of(tensors);
      wrong = found.size() == expected_.size() ? difference_of(found) : "has no second derivative";
    } catch (const CommError&) {
      throw;
    } catch (const std::exception& error) {
      wrong = concat("throws: ", error.what());
    }
    if (wrong.empty()) return;
    ++report_.wrong;
    if (report_.mismatches.size() >= 6) return;
    report_.mismatches.push_back(concat(op_.spec().name, " on ", mesh_, ":", words, ": ", wrong));
  }

  std::string difference_of(const Tensors& found) const {
    const NoGrad no_grad;
    for (size_t i = 0; i < found.size(); ++i) {
      // A derivative that is 0 everywhere may be missing.
      if (!found[i] && !expected_[i]) continue;
      const Tensor like = found[i] ? found[i].full_tensor() : expected_[i];
      const Tensor a = found[i] ? like : zeros_like(like);
      const Tensor b = expected_[i] ? expected_[i] : zeros_like(like);
      const std::vector<double> whole = b.to_vector<double>();
      double greatest = 1e-3;
      for (const double x : whole) greatest = std::max(greatest, std::abs(x));
      const std::string off = difference(a.to_vector<double>(), whole, greatest, 1e-6);
      if (!off.empty()) return concat("second derivative ", i, ' ', off);
    }
    return "";
  }

  const Op& op_;
  const OpSample& sample_;
  const DeviceMesh& mesh_;
  const SweepOptions& options_;
  std::vector<SweepArray> given_;
  std::vector<bool> varies_;
  Tensors expected_;
  std::vector<std::vector<Sharding>> shardings_;
  SweepReport report_;
};

}  // namespace

SweepReport sweep_second(const Op& op, const SweepOptions& options) {
  int ranks = 1;
  for (const MeshAxis& axis : options.axes) ranks *= axis.size;
  const std::vector<OpSample> samples = samples_of(op);
  std::vector<SweepReport> reports(static_cast<size_t>(ranks));
  const auto body = [&](Communicator world) {
    const DeviceMesh mesh(world, options.axes);
    SweepReport& own = reports[static_cast<size_t>(world.rank())];
    for (const OpSample& sample : samples) own += SecondSweep(op, sample, mesh, options).run();
  };
  run_ranks(ranks, body, {.deadline = std::chrono::seconds(20), .threads_per_rank = 1});
  SweepReport total;
  for (const SweepReport& report : reports) {
    if (report.wrong > total.wrong || total.ran == 0) total = report;
  }
  return total;
}

}  // namespace weft
