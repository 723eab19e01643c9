// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "weft/optimizers.h"

namespace weft {

/// The dependence of Muon's rate on the shape [a, b] of a matrix: times sqrt(max(1, a / b)), times
/// 0.2 sqrt(max(a, b)), with which the rates of AdamW fit (Liu et al., 2025), or times sqrt(a / b).
enum class MuonRate : uint8_t { original, match_rms_adamw, spectral_unclamped };

/// True when a parameter is a matrix that Muon is for: of two dims, and neither an embedding nor a
/// head, by the words "embed", "wte", "wpe", "head" and "output.weight" in its name.
WEFT_API bool is_hidden_matrix(const NamedParameter& named);

struct WEFT_API MuonOptions {
  double learning_rate = 1e-3;
  double weight_decay = 0.1;
  double momentum = 0.95;
  bool nesterov = true;
  double eps = 1e-7;
  /// Steps of the Newton-Schulz iteration, whose polynomial is a x + b x^3 + c x^5.
  double steps = 5;
  std::array<double, 3> coefficients{3.4445, -4.7750, 2.0315};
  MuonRate rate = MuonRate::original;
  /// Dtype of the iteration, and of the matrices that travel for it.
  DType iterates_in = bf16;
  /// The parameters that get AdamW's step with `beta1`, `beta2`, `adam_eps` and the same rate and
  /// decay are those for which this is false: `is_hidden_matrix` unless given.
  DecayPredicate is_matrix = {};
  double beta1 = 0.9, beta2 = 0.95;
  double adam_eps = 1e-8;
  /// All parameters unless given.
  DecayPredicate decays = {};
};

/// Momentum that is orthogonalized by a Newton-Schulz iteration (Jordan et al., 2024), as
/// torch.optim.Muon computes it; AdamW for all but the matrices. Each matrix travels to one rank of
/// its mesh, which iterates, and back: ranks share the work evenly, and none does it twice. Each
/// step has two redistributions for all matrices of equal shape and layout, through memory for
/// their momentum. State: "m" and, of AdamW's parameters, "v", in the layouts of the parameters.
class WEFT_API Muon final : public GroupedOptimizer<Muon, MuonOptions> {
 public:
  explicit Muon(std::vector<NamedParameter> parameters, MuonOptions options = {})
      : Muon({ParameterGroup<MuonOptions>{std::move(parameters), options}}, options) {}
  /// `iterates_in` must be equal in all groups. std::invalid_argument for a parameter that is said
  /// to be a matrix and has another number of dims than 2.
  explicit Muon(std::vector<ParameterGroup<MuonOptions>> groups, MuonOptions defaults = {});
  std::string_view name() const override { return "muon"; }
  std::vector<std::string> moments() const override { return {"m", "v"}; }
  void add_group(ParameterGroup<MuonOptions> group);
  bool is_matrix(size_t parameter) const { return matrices_[parameter]; }
  /// The rank of the parameter's mesh that iterates for it, as of the last step; -1 for none.
  const std::vector<int>& owners() const { return owners_; }

 protected:
  void update(const Update& update) override;
  void update_all(std::span<const Update> updates) override;
  int kind_of(size_t parameter) const override;
  std::optional<StateSpec> state_spec(size_t parameter, size_t moment) const override;

 private:
  friend class Optimizer;
  friend class GroupedOptimizer<Muon, MuonOptions>;
  Muon(const Muon& other, const std::vector<ParameterPtr>& parameters)
      : GroupedOptimizer(other, parameters), matrices_(other.matrices_) {}
  void find_matrices();
  Tensor direction(size_t parameter, const Tensor& gradient_scale);
  Tensor orthogonalized(size_t parameter, const Tensor& direction) const;
  void take(size_t parameter, const Tensor& direction);
  void update_here(size_t parameter, const Tensor& gradient_scale);
  void update_together(const std::vector<size_t>& stack, const Tensor& gradient_scale);
  std::vector<std::vector<size_t>> stacks_of(const std::vector<size_t>& matrices);

  std::vector<bool> matrices_;
  std::vector<int> owners_;
};

WEFT_API std::vector<Hyperparameter> hyperparameters(MuonOptions& options);

/// Orthogonalizes a matrix of one rank: x = m / |m|, then `steps` times x = a x + (b x x^T + c (x
/// x^T)^2) x, of its transpose if it has more rows than columns. The result has the dtype of m.
WEFT_API Tensor newton_schulz(const Tensor& m, int64_t steps = 5,
                              const std::array<double, 3>& coefficients = {3.4445, -4.7750, 2.0315},
                              double eps = 1e-7);
/// Products of numbers that one step of that costs.
WEFT_API int64_t newton_schulz_work(int64_t rows, int64_t columns);

/// Assigns items of work to `ranks` ranks so that the most that one rank has is small: the largest
/// item first, to the rank with least, then exchanges while they help, then, unless that is within
/// 2 % of the best that could be, a limited search. The same on all ranks.
WEFT_API std::vector<int> balanced_owners(std::span<const int64_t> work, int ranks);

}  // namespace weft
