// SPDX-License-Identifier: Apache-2.0

#include "ops/engine/choose.h"
#include "ops/testing/sweep.h"

namespace weft {

static bool can_be_partial(DType dtype, ReduceOp op) {
  if (is_floating(dtype)) return true;
  if (op == ReduceOp::avg) return false;
  return dtype != DType::boolean || op != ReduceOp::sum;
}

static std::vector<Placement> placements_of_axis(int ndim, DType dtype) {
  std::vector<Placement> placements = {Replicate()};
  for (int d = 0; d < ndim; ++d) placements.push_back(Shard{d});
  for (ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::max, ReduceOp::min}) {
    if (can_be_partial(dtype, op)) placements.push_back(Partial{op});
  }
  return placements;
}

static bool has_two_kinds(const std::vector<Placement>& placements) {
  const Placement* partial = nullptr;
  for (const Placement& placement : placements) {
    if (!placement.is_partial()) continue;
    if (partial && !(*partial == placement)) return true;
    partial = &placement;
  }
  return false;
}

/// Also adds the reverse order of axes where several of them shard a dim.
static void add_with_orders(const DeviceMesh& mesh, const std::vector<Placement>& placements,
                            std::vector<Sharding>& shardings) {
  Placements stated{std::span<const Placement>(placements)};
  shardings.emplace_back(mesh, stated);
  for (int d = 0; d < kMaxDims; ++d) {
    std::vector<std::string> names;
    for (int axis = mesh.ndim() - 1; axis >= 0; --axis) {
      if (placements[static_cast<size_t>(axis)].is_shard(d)) names.push_back(mesh.axis_name(axis));
    }
    if (names.size() > 1) shardings.emplace_back(mesh, stated.cut_in_order(d, names));
  }
}

std::vector<Sharding> all_shardings(const DeviceMesh& mesh, int ndim, DType dtype) {
  const std::vector<Placement> choices = placements_of_axis(ndim, dtype);
  std::vector<Sharding> shardings;
  const std::vector<size_t> counts(static_cast<size_t>(mesh.ndim()), choices.size());
  each_combination(counts, [&](std::span<const size_t> at) {
    std::vector<Placement> placements;
    for (size_t choice : at) placements.push_back(choices[choice]);
    if (!has_two_kinds(placements)) add_with_orders(mesh, placements, shardings);
  });
  return shardings;
}

/// Uneven parts of `size` elements: the first third goes to the first part, what is left of it to
/// the last one, and nothing to the others.
static std::vector<int64_t> uneven_parts(int64_t size, int parts) {
  std::vector<int64_t> sizes(static_cast<size_t>(parts), 0);
  sizes.front() = size / 3;
  sizes.back() += size - size / 3;
  return sizes;
}

/// Cuts `dim` along all axes into uneven parts, divided into uneven parts, and so on.
static Sharding cut_by_all(const DeviceMesh& mesh, int dim, int64_t size) {
  Pattern pattern(mesh.ndim());
  std::vector<int64_t> outer{size};
  for (int axis = 0; axis < mesh.ndim(); ++axis) {
    std::vector<int64_t> parts;
    for (const int64_t length : outer) {
      const std::vector<int64_t> inner = uneven_parts(length, mesh.axis_size(axis));
      parts.insert(parts.end(), inner.begin(), inner.end());
    }
    pattern.set(axis, Shard{dim, parts});
    outer = parts;
  }
  return Sharding::of(mesh, pattern);
}

std::vector<Sharding> sized_shardings(const DeviceMesh& mesh, const Shape& shape, DType dtype) {
  std::vector<Sharding> shardings = {Sharding(mesh, {})};
  if (can_be_partial(dtype, ReduceOp::sum)) shardings.emplace_back(mesh, Placements{Partial()});
  for (int d = 0; d < shape.ndim(); ++d) {
    shardings.emplace_back(mesh, Placements{Shard{d}});
    shardings.push_back(cut_by_all(mesh, d, shape[d]));
    const int axis = mesh.ndim() - 1;
    Pattern last(mesh.ndim());
    std::vector<int64_t> sizes(static_cast<size_t>(mesh.axis_size(axis)), 0);
    sizes.back() = shape[d];
    if (d > 0 && axis > 0) last.set(0, Shard{0});
    last.set(axis, Shard{d, sizes});
    shardings.push_back(Sharding::of(mesh, last));
    for (int64_t outer = 2; outer < shape[d]; ++outer) {
      if (shape[d] % outer != 0) continue;
      last.set(axis, Shard{d, {}, outer});
      shardings.push_back(Sharding::of(mesh, last));
      break;
    }
  }
  return shardings;
}

int64_t SweepCombinations::all() const {
  int64_t all = 1;
  for (size_t count : counts)
    all = std::min<int64_t>(all * static_cast<int64_t>(count), int64_t{1} << 40);
  return all;
}

static size_t next_prime(size_t n) {
  auto is_prime = [](size_t p) {
    for (size_t d = 2; d * d <= p; ++d) {
      if (p % d == 0) return false;
    }
    return p > 1;
  };
  while (!is_prime(n)) ++n;
  return n;
}

void SweepCombinations::visit(const std::function<void(std::span<const size_t>)>& visit) const {
  SweepRandom random(seed);
  auto is_chosen = [&] { return percent >= 100 || random.below(100) < percent; };
  if (all() <= most) {
    return each_combination(counts, [&](std::span<const size_t> at) {
      if (is_chosen()) visit(at);
    });
  }
  std::vector<size_t> at(counts.size(), 0);
  // Rows (a + k b) mod p: for a prime p every two columns contain every pair once.
  size_t p = next_prime(std::max(counts.size(), *std::ranges::max_element(counts)));
  const int64_t rows = static_cast<int64_t>(p * p);
  const int64_t wanted = std::min(rows, std::max<int64_t>(most, 1));
  for (size_t a = 0; a < p; ++a) {
    for (size_t b = 0; b < p; ++b) {
      if (!is_chosen() || random.below(rows) >= wanted) continue;
      for (size_t k = 0; k < at.size(); ++k) {
        size_t value = k == 0 ? a : (b + (k - 1) * a) % p;
        at[k] = value < counts[k] ? value : static_cast<size_t>(random.below(int64_t(counts[k])));
      }
      visit(at);
    }
  }
}

namespace {

/// The role of one axis in an op.
struct AxisRole {
  int factor = -1;
  int set = -1;
  ReduceOp op = ReduceOp::sum;
};

/// Derives from the rule alone for what the operands are laid out.
class RuleReader {
 public:
  RuleReader(const OpSpec& spec, const Binding& binding, std::span<const int> staged,
             std::span<const Sharding> operands)
      : spec_(spec), binding_(binding), staged_(staged), operands_(operands) {}

  SweepTraffic read() const {
    std::vector<std::vector<AxisRole>> roles;
    std::vector<size_t> counts;
    for (int axis = 0; axis < operands_[0].axes(); ++axis) {
      counts.push_back(roles.emplace_back(roles_of(axis)).size());
    }
    SweepTraffic best = SweepTraffic::any;
    std::vector<AxisRole> chosen(roles.size());
    each_combination(counts, [&](std::span<const size_t> at) {
      for (size_t axis = 0; axis < at.size(); ++axis) chosen[axis] = roles[axis][at[axis]];
      best = std::max(best, traffic_of(chosen));
    });
    return best;
  }

 private:
  bool has_fetch() const {
    return std::ranges::any_of(binding_.factors, [](const auto& factor) { return factor.fetched; });
  }

  /// Returns true when a factor is alone in all its dims; merged dims would need a comparison of
  /// their boundaries.
  bool stands_alone(int factor) const {
    for (const auto* arrays : {&binding_.operands, &binding_.results, &binding_.stages}) {
      for (const auto& array : *arrays) {
        for (const auto& dim : array) {
          if (dim.size() > 1 && contains(dim, factor)) return false;
        }
      }
    }
    return true;
  }

  std::vector<AxisRole> roles_of(int axis) const {
    std::vector<AxisRole> roles = {{}};
    for (int f = 0; f < static_cast<int>(binding_.factors.size()); ++f) {
      const auto& factor = binding_.factor(f);
      bool cuts = !factor.whole && !factor.fetched && !factor.created && !has_fetch() &&
                  !contains(staged_, f) && stands_alone(f);
      if (cuts) roles.push_back({f});
    }
    for (int s = 0; s < static_cast<int>(spec_.linear.size()); ++s) {
      for (ReduceOp op : {ReduceOp::sum, ReduceOp::avg}) roles.push_back({-1, s, op});
    }
    std::erase_if(roles, [&](const AxisRole& role) { return !lies_for(role, axis); });
    return roles;
  }

  int dim_of(size_t operand, int factor) const {
    return Binding::dim_of(binding_.operands[operand], factor);
  }

  /// Returns true for a factor that no result and not this operand has, but one of the operand's
  /// linear companions: the operand counts once.
  bool is_addend(size_t operand, int factor) const {
    const auto has = [&](const auto& array) { return Binding::has(array, factor); };
    if (std::ranges::any_of(binding_.results, has)) return false;
    const auto operand_has = [&](int i) {
      return i < std::ssize(operands_) && has(binding_.operands[static_cast<size_t>(i)]);
    };
    return std::ranges::any_of(spec_.linear, [&](const auto& set) {
      return contains(set, static_cast<int>(operand)) && std::ranges::any_of(set, operand_has);
    });
  }

  Placement used(const AxisRole& role, size_t operand) const {
    if (role.set >= 0) {
      bool linear =
          contains(spec_.linear[static_cast<size_t>(role.set)], static_cast<int>(operand));
      return linear ? Placement(Partial{role.op}) : Placement(Replicate());
    }
    if (role.factor < 0) return Replicate();
    int dim = dim_of(operand, role.factor);
    if (dim >= 0) return Shard{dim};
    return is_addend(operand, role.factor) ? Placement(Partial{ReduceOp::sum})
                                           : Placement(Replicate());
  }

  /// The operands are in the layouts that the role uses, or replicated where it uses a term of a
  /// sum (or, on a mesh of one axis, a slice).
  bool lies_for(const AxisRole& role, int axis) const {
    for (size_t i = 0; i < operands_.size(); ++i) {
      const Placement& given = operands_[i][axis];
      Placement wanted = used(role, i);
      bool one_axis = operands_[0].axes() == 1;
      bool is_pinned = contains(spec_.writes, static_cast<int>(i));
      bool made_here = given.is_replicate() && !is_pinned && (wanted.is_partial() || one_axis);
      if (!(given == wanted) && !made_here) return false;
    }
    return true;
  }

  SweepTraffic traffic_of(std::span<const AxisRole> roles) const {
    bool untouched = true;
    for (size_t i = 0; i < operands_.size(); ++i) {
      std::vector<Placement> placements;
      for (size_t axis = 0; axis < roles.size(); ++axis) {
        placements.push_back(used(roles[axis], i));
        untouched = untouched && placements.back() == operands_[i][static_cast<int>(axis)];
      }
      if (has_two_kinds(placements)) return SweepTraffic::any;
    }
    if (!orders_agree(roles) || !results_agree(roles)) return SweepTraffic::any;
    return untouched ? SweepTraffic::untouched : SweepTraffic::none;
  }

  bool results_agree(std::span<const AxisRole> roles) const {
    for (const auto& array : binding_.results) {
      std::vector<Placement> placements;
      for (const AxisRole& role : roles) {
        if (role.set >= 0) {
          placements.push_back(Partial{role.op});
        } else if (role.factor >= 0 && !Binding::has(array, role.factor)) {
          placements.push_back(Partial{binding_.factor(role.factor).reduce});
        }
      }
      if (has_two_kinds(placements)) return false;
    }
    return true;
  }

  /// The axes that shard one factor do so in the same order in all operands that have it.
  bool orders_agree(std::span<const AxisRole> roles) const {
    for (int f = 0; f < static_cast<int>(binding_.factors.size()); ++f) {
      auto cutting =
          std::ranges::count_if(roles, [&](const AxisRole& role) { return role.factor == f; });
      if (cutting < 2) continue;
      Axes first;
      for (size_t i = 0; i < operands_.size(); ++i) {
        int dim = dim_of(i, f);
        if (dim < 0) continue;
        const Axes order = operands_[i].axes_cutting(dim);
        if (first.empty()) first = order;
        if (!(order == first)) return false;
      }
    }
    return true;
  }

  const OpSpec& spec_;
  const Binding& binding_;
  std::span<const int> staged_;
  std::span<const Sharding> operands_;
};

}  // namespace

SweepTraffic traffic_by_rule(const OpSpec& spec, const Binding& binding,
                             std::span<const int> staged, std::span<const Sharding> operands) {
  if (operands.empty()) return SweepTraffic::any;
  return RuleReader(spec, binding, staged, operands).read();
}

}  // namespace weft
