// SPDX-License-Identifier: Apache-2.0
#include "mesh/search.h"

#include <queue>
#include <unordered_map>

#include "weft/error.h"
#include "weft/extend/hash.h"

namespace weft {

namespace {

struct StateHash {
  size_t operator()(const PlanState& state) const {
    return mixed(hash_of(state.pattern), static_cast<uint64_t>(state.dtype));
  }
};

/// Predicted time, then the number of steps: of equally fast plans the shorter one is easier to
/// read.
struct Distance {
  double seconds = 0;
  int steps = 0;
  auto operator<=>(const Distance&) const = default;
};

/// Dijkstra's search over states; edges are generated as it goes.
class Search {
 public:
  explicit Search(const PlanProblem& problem)
      : problem_(problem),
        exchanges_(problem.grid.in_memory(problem.options.device) && !problem.options.collectives),
        result_bytes_(bytes_of(problem.to)) {}

  std::vector<PlanEdge> run() {
    reach(problem_.from, {}, -1, {});
    while (!queue_.empty()) {
      auto [distance, order, id] = queue_.top();
      queue_.pop();
      auto at = static_cast<size_t>(id);
      if (nodes_[at].settled) continue;
      nodes_[at].settled = true;
      if (nodes_[at].state == problem_.to) return path_to(id);
      expand(id);
    }
    fail("redistribute: memory_cap is ", problem_.options.memory_cap,
         " bytes, expected enough for one plan");
  }

 private:
  struct Node {
    PlanState state;
    Distance distance;
    int before;
    PlanEdge edge;
    bool settled = false;
  };
  struct Waiting {
    Distance distance;
    /// Ties go to the state reached first, on all ranks alike.
    int order;
    int node;
    bool operator>(const Waiting& other) const {
      if (distance != other.distance) return distance > other.distance;
      return order > other.order;
    }
  };

  int64_t bytes_of(const PlanState& state) const {
    return most_bytes(problem_.grid, problem_.shape, state);
  }

  void expand(int id) {
    const PlanState state = nodes_[static_cast<size_t>(id)].state;
    const Distance distance = nodes_[static_cast<size_t>(id)].distance;
    std::vector<PlanEdge> edges;
    add_local_edges(problem_, state, edges);
    if (exchanges_) {
      add_exchange_edges(problem_, state, edges);
    } else {
      add_collective_edges(problem_, state, edges);
    }
    for (PlanEdge& edge : edges) {
      if (peak_of(state, edge) > problem_.options.memory_cap) continue;
      PlanState to = edge.to;
      reach(to, {distance.seconds + edge.seconds, distance.steps + 1}, id, std::move(edge));
    }
  }

  /// The result is allocated from the start, and the step's input counts unless it is the source.
  int64_t peak_of(const PlanState& state, const PlanEdge& edge) const {
    int64_t before = state == problem_.from ? 0 : bytes_of(state);
    int64_t after = edge.to == problem_.to ? edge.bytes : result_bytes_ + edge.bytes;
    return before + after;
  }

  void reach(const PlanState& state, Distance distance, int before, PlanEdge edge) {
    auto [found, is_new] = ids_.try_emplace(state, static_cast<int>(nodes_.size()));
    int id = found->second;
    if (is_new) {
      nodes_.push_back({state, distance, before, std::move(edge)});
    } else {
      Node& node = nodes_[static_cast<size_t>(id)];
      if (node.settled || !(distance < node.distance)) return;
      node = {state, distance, before, std::move(edge)};
    }
    queue_.push({distance, order_++, id});
  }

  std::vector<PlanEdge> path_to(int id) const {
    std::vector<PlanEdge> path;
    for (; id > 0; id = nodes_[static_cast<size_t>(id)].before) {
      path.push_back(nodes_[static_cast<size_t>(id)].edge);
    }
    std::reverse(path.begin(), path.end());
    return path;
  }

  const PlanProblem& problem_;
  bool exchanges_;
  int64_t result_bytes_;
  std::vector<Node> nodes_;
  std::unordered_map<PlanState, int, StateHash> ids_;
  std::priority_queue<Waiting, std::vector<Waiting>, std::greater<>> queue_;
  int order_ = 0;
};

}  // namespace

std::vector<PlanEdge> cheapest_steps(const PlanProblem& problem) { return Search(problem).run(); }

}  // namespace weft
