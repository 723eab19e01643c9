// SPDX-License-Identifier: Apache-2.0
#include "weft/einsum.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <ostream>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "mesh/mesh_body.h"
#include "ops/composed/labelled.h"
#include "ops/engine/engine.h"
#include "ops/promotion.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/ops.h"

namespace weft {

namespace {

using Set = uint32_t;

/// The labels that the result of contracting a set of operands keeps.
std::set<char> labels_kept(const Einsum& einsum, Set set) {
  std::set<char> kept(einsum.result.begin(), einsum.result.end());
  for (size_t i = 0; i < einsum.operands.size(); ++i) {
    if (set >> i & 1) continue;
    kept.insert(einsum.operands[i].labels.begin(), einsum.operands[i].labels.end());
  }
  return kept;
}

/// A pair of sets of operands whose results are contracted.
struct PairOfSets {
  Set first, second;
};

/// A way to contract a set of operands: tensors on `meta` with the layouts that it has.
struct Way {
  Labelled made;
  std::vector<PairOfSets> pairs = {};
  double seconds = 0;
  int64_t largest = 0;

  bool is_like(const Way& other) const {
    return made.labels == other.made.labels &&
           layout_of(made.tensor) == layout_of(other.made.tensor);
  }
};

/// While one exists, what the rank's ops do is not reported or counted.
class Simulation : NotCopied {
 public:
  Simulation()
      : engine_(Engine::current()), statistics_(engine_.statistics), implicit_(engine_.implicit) {
    log_ = std::exchange(engine_.log, nullptr);
    trace_ = std::exchange(engine_.trace, nullptr);
    watch_ = std::exchange(engine_.watch, nullptr);
    kept_ = std::exchange(engine_.kept, nullptr);
  }
  ~Simulation() {
    engine_.statistics = statistics_;
    engine_.implicit = std::move(implicit_);
    engine_.log = log_, engine_.trace = trace_, engine_.watch = watch_, engine_.kept = kept_;
  }

 private:
  Engine& engine_;
  EngineStatistics statistics_;
  std::map<std::string, Engine::Moved> implicit_;
  OpLog* log_;
  TraceRecorder* trace_;
  CallWatch* watch_;
  KeptResults* kept_;
  const NoGrad no_grad_;
  const TrafficScope traffic_{Traffic::allow};
};

/// The elements of the greatest part that a rank has; from what all ranks know.
double elements_of_part(const Tensor& a) {
  double elements = static_cast<double>(a.numel());
  for (int axis = 0; a.is_sharded() && axis < a.sharding().axes(); ++axis) {
    if (a.sharding()[axis].is_shard()) elements /= a.sharding().mesh().axis_size(axis);
  }
  return elements;
}

/// The time of the products of two operands whose result is `made`, which has labels of sizes: a
/// processor multiplies and adds about as many numbers of f32 in the time in which it copies 6
/// bytes, and a GPU does.
double seconds_of_products(const Labelled& a, const Labelled& b, const Labelled& made) {
  constexpr double kProductsOfByte = 6, kSecondsPerByte = 5e-11;
  double products = static_cast<double>(a.tensor.numel()), parts = 1;
  for (const char label : b.labels) {
    if (!a.has(label)) products *= static_cast<double>(size_of_label(b, label));
  }
  double seconds = kSecondsPerByte;
  if (made.tensor.is_sharded()) {
    const Sharding& sharding = made.tensor.sharding();
    seconds = sharding.mesh().body()->grid().costs(DeviceKind::cpu).seconds_per_copied_byte;
    for (int axis = 0; axis < sharding.axes(); ++axis) {
      if (!(sharding[axis].is_replicate())) parts *= sharding.mesh().axis_size(axis);
    }
  }
  double bytes = 0;
  for (const Labelled* x : {&a, &b, &made}) {
    bytes += elements_of_part(x->tensor) * static_cast<double>(size_of(x->tensor.dtype()));
  }
  return seconds * (products / parts / kProductsOfByte + bytes);
}

std::string in_words(const Tensor& a) {
  return a.is_sharded() ? concat(a.shape(), ' ', placements_in_words(a.sharding()))
                        : concat(a.shape());
}

/// The readable labels: those of "..." are left out.
std::string shown(const std::string& labels) {
  std::string text;
  for (const char label : labels) text += label < kFirstDot + kMaxDims ? '.' : label;
  return text;
}

/// A contraction that was simulated; bytes that this rank would receive.
struct Contraction {
  Labelled result;
  double seconds = 0;
  int64_t bytes = 0;
};

Contraction simulated(const Einsum& einsum, const Labelled& a, const Labelled& b, PairOfSets pair) {
  OpLog log;
  Contraction made{contracted(a, b, labels_kept(einsum, pair.first | pair.second))};
  made.seconds = seconds_of_products(a, b, made.result);
  for (const Movement& movement : log.movements) {
    for (const MovementStep& step : movement.steps) {
      made.bytes += step.bytes, made.seconds += step.seconds;
    }
  }
  return made;
}

int64_t bytes_of_part(const Tensor& a) {
  return static_cast<int64_t>(elements_of_part(a) * static_cast<double>(size_of(a.dtype())));
}

std::vector<Labelled> on_meta(const Einsum& einsum) {
  std::vector<Labelled> made;
  for (const Labelled& operand : einsum.operands)
    made.push_back({new_tensor(layout_of(operand.tensor), meta), operand.labels});
  return made;
}

class OrderSearch {
 public:
  OrderSearch(const Einsum& einsum, std::optional<int64_t> memory)
      : einsum_(einsum), memory_(memory), count_(einsum.operands.size()) {
    for (Labelled& operand : on_meta(einsum)) operands_.push_back({std::move(operand)});
  }

  Way best() {
    std::optional<Way> best = greedy_way();
    if (best) known_ = best->seconds;
    if (count_ <= kMostSearched) {
      for (Way& way : all_ways()) {
        if (!best || way.seconds < best->seconds) best = std::move(way);
      }
    }
    if (best) return *std::move(best);
    fail("einsum: memory of the least intermediate result is ", least_refused_,
         " bytes on a rank, expected at most ", *memory_);
  }

 private:
  static constexpr size_t kMostCompared = 6, kMostSearched = 9;

  /// Nothing if the result is too large, or the way takes longer than one that is known.
  std::optional<Way> joined(const Way& a, const Way& b, PairOfSets pair) {
    Way way{{}, a.pairs, a.seconds + b.seconds, std::max(a.largest, b.largest)};
    if (way.seconds > known_) return {};
    const Contraction made = simulated(einsum_, a.made, b.made, pair);
    way.made = made.result;
    way.seconds += made.seconds;
    if (way.seconds > known_) return {};
    way.pairs.insert(way.pairs.end(), b.pairs.begin(), b.pairs.end());
    way.pairs.push_back(pair);
    if (std::popcount(pair.first | pair.second) == static_cast<int>(count_)) return way;
    way.largest = std::max(way.largest, bytes_of_part(way.made.tensor));
    if (!memory_ || way.largest <= *memory_) return way;
    least_refused_ = std::min(least_refused_, way.largest);
    return {};
  }

  /// Keeps the best way to each layout; of many operands, the best one.
  void keep(std::vector<Way>& ways, Way way) const {
    for (Way& other : ways) {
      if (count_ <= kMostCompared && !other.is_like(way)) continue;
      if (way.seconds < other.seconds) other = std::move(way);
      return;
    }
    ways.push_back(std::move(way));
  }

  std::vector<Way> all_ways() {
    const Set all = (Set{1} << count_) - 1;
    std::vector<std::vector<Way>> ways(all + 1);
    for (size_t i = 0; i < count_; ++i) ways[Set{1} << i] = {operands_[i]};
    for (Set set = 1; set <= all; ++set) {
      if (std::popcount(set) < 2) continue;
      const Set lowest = set & (~set + 1);
      for (Set first = (set - 1) & set; first > 0; first = (first - 1) & set) {
        if (!(first & lowest)) continue;
        for (const Way& a : ways[first]) {
          for (const Way& b : ways[set ^ first]) {
            if (auto way = joined(a, b, {first, set ^ first})) keep(ways[set], *std::move(way));
          }
        }
      }
    }
    return ways[all];
  }

  /// Contracts the pair of least time first, and so on; nothing if a result is too large.
  std::optional<Way> greedy_way() {
    std::vector<std::pair<Set, Way>> left;
    for (size_t i = 0; i < count_; ++i) left.emplace_back(Set{1} << i, operands_[i]);
    while (left.size() > 1) {
      std::optional<Way> best;
      double least = 0;
      size_t at = 0, other = 0;
      for (size_t i = 0; i < left.size(); ++i) {
        for (size_t j = i + 1; j < left.size(); ++j) {
          auto way = joined(left[i].second, left[j].second, {left[i].first, left[j].first});
          if (!way) continue;
          const double own = way->seconds - left[i].second.seconds - left[j].second.seconds;
          if (best && own >= least) continue;
          best = std::move(way), least = own, at = i, other = j;
        }
      }
      if (!best) return {};
      left[at] = {left[at].first | left[other].first, *std::move(best)};
      left.erase(left.begin() + static_cast<std::ptrdiff_t>(other));
    }
    return left[0].second;
  }

  const Einsum& einsum_;
  const std::optional<int64_t> memory_;
  const size_t count_;
  std::vector<Way> operands_;
  int64_t least_refused_ = std::numeric_limits<int64_t>::max();
  double known_ = std::numeric_limits<double>::infinity();
};

/// All that an order depends on: equal on all ranks.
std::string description_of(const Einsum& einsum, std::optional<int64_t> memory) {
  std::string text = concat(einsum.equation, ' ', memory.value_or(-1));
  for (const Labelled& operand : einsum.operands) {
    const Tensor& x = operand.tensor;
    text += concat(' ', x.dtype(), in_words(x));
    if (!x.is_sharded()) continue;
    const DeviceMesh mesh = x.sharding().mesh();
    const MeshGrid& grid = mesh.body()->grid();
    const CostModel& costs = grid.costs(DeviceKind::cpu);
    for (int axis = 0; axis < mesh.ndim(); ++axis)
      text += concat(' ', mesh.axis_size(axis), grid.crosses_hosts(Axes{axis}) ? "x" : "");
    for (const double cost : {costs.within_host.seconds_per_byte,
                              costs.across_hosts.seconds_per_byte, costs.seconds_per_copied_byte}) {
      text += concat(' ', cost);
    }
  }
  return text;
}

std::vector<PairOfSets> best_pairs(const Einsum& einsum, std::optional<int64_t> memory) {
  if (einsum.operands.size() > 32)
    fail("einsum: number of operands is ", einsum.operands.size(), ", expected at most 32");
  constexpr size_t kMostKept = 256;
  using Known = std::unordered_map<std::string, std::vector<PairOfSets>>;
  thread_local const auto kept = std::make_unique<Known>();
  Known& known = *kept;
  const std::string description = description_of(einsum, memory);
  const auto found = known.find(description);
  if (found != known.end()) return found->second;
  const Simulation simulation;
  std::vector<PairOfSets> pairs = OrderSearch(einsum, memory).best().pairs;
  if (known.size() >= kMostKept) known.clear();
  known[description] = pairs;
  return pairs;
}

Tensor run(const Einsum& einsum, const std::vector<PairOfSets>& pairs) {
  std::map<Set, Labelled> made;
  for (size_t i = 0; i < einsum.operands.size(); ++i) made[Set{1} << i] = einsum.operands[i];
  for (const auto& [first, second] : pairs) {
    made[first | second] =
        contracted(made[first], made[second], labels_kept(einsum, first | second));
    made.erase(first), made.erase(second);
  }
  const Labelled whole = summed(made.begin()->second, {einsum.result.begin(), einsum.result.end()});
  std::vector<int> order;
  for (const char label : einsum.result) {
    order.push_back(static_cast<int>(whole.labels.find(label)));
  }
  return permute(whole.tensor, order);
}

/// The operands in the dtype that all promote to; bool as i32.
Tensors in_one_dtype(const Tensors& operands, DType& dtype) {
  for (const Tensor& operand : operands) {
    check_tensor("einsum", operand);
    dtype = &operand == &operands[0] ? operand.dtype() : promote(dtype, operand.dtype());
  }
  Tensors made;
  for (const Tensor& operand : operands)
    made.push_back(as_dtype(operand, dtype == DType::boolean ? DType::i32 : dtype));
  return made;
}

}  // namespace

Tensor einsum(std::string_view equation, const Tensors& operands, std::optional<int64_t> memory) {
  DType dtype{};
  const Einsum given = parsed_einsum(equation, in_one_dtype(operands, dtype));
  std::vector<PairOfSets> pairs;
  if (given.operands.size() == 2) pairs = {{1, 2}};
  if (given.operands.size() > 2) pairs = best_pairs(given, memory);
  return as_dtype(run(given, pairs), dtype);
}

Tensor einsum(std::string_view equation, const Tensors& operands) {
  return einsum(equation, operands, {});
}

EinsumPath einsum_path(std::string_view equation, const Tensors& operands,
                       std::optional<int64_t> memory) {
  DType dtype{};
  const Einsum given = parsed_einsum(equation, in_one_dtype(operands, dtype));
  EinsumPath path;
  path.equation = given.equation;
  const std::vector<PairOfSets> pairs = best_pairs(given, memory);
  const Simulation simulation;
  std::vector<std::pair<Set, Labelled>> left;
  for (Labelled& operand : on_meta(given))
    left.emplace_back(Set{1} << left.size(), std::move(operand));
  for (const PairOfSets pair : pairs) {
    const auto index = [&](Set set) {
      return std::ranges::find(left, set, &std::pair<Set, Labelled>::first) - left.begin();
    };
    const auto first = index(pair.first), second = index(pair.second);
    const Labelled a = left[static_cast<size_t>(first)].second,
                   b = left[static_cast<size_t>(second)].second;
    const Contraction made = simulated(given, a, b, pair);
    path.steps.push_back(
        {static_cast<int>(std::min(first, second)), static_cast<int>(std::max(first, second)),
         concat(shown(a.labels), ',', shown(b.labels), "->", shown(made.result.labels)),
         concat(in_words(a.tensor), " x ", in_words(b.tensor), " -> ",
                in_words(made.result.tensor)),
         made.bytes, made.seconds});
    path.bytes += made.bytes, path.seconds += made.seconds;
    left.erase(left.begin() + std::max(first, second));
    left.erase(left.begin() + std::min(first, second));
    left.emplace_back(pair.first | pair.second, made.result);
    if (left.size() > 1)
      path.intermediate_bytes =
          std::max(path.intermediate_bytes, bytes_of_part(made.result.tensor));
  }
  return path;
}

std::ostream& operator<<(std::ostream& out, const EinsumPath& path) {
  out << "einsum " << path.equation << ": " << path.bytes << " bytes received, " << path.seconds
      << " s predicted, intermediate results of at most " << path.intermediate_bytes << " bytes\n";
  for (const EinsumStep& step : path.steps) {
    out << "  (" << step.first << ", " << step.second << ") " << step.equation << "  "
        << step.layouts << "  " << step.bytes << " bytes, " << step.seconds << " s\n";
  }
  return out;
}

}  // namespace weft
