// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "weft/error.h"
#include "weft/muon.h"

namespace weft {

namespace {

/// Items of work on ranks, and what each rank has.
struct Assignment {
  std::span<const int64_t> work;
  std::vector<int> owners;
  std::vector<int64_t> loads;

  void move(size_t item, int to) {
    loads[static_cast<size_t>(owners[item])] -= work[item];
    owners[item] = to;
    loads[static_cast<size_t>(to)] += work[item];
  }
  int most_loaded() const {
    return static_cast<int>(std::ranges::max_element(loads) - loads.begin());
  }
};

}  // namespace

/// Moves an item of the most loaded rank elsewhere, or exchanges it for a smaller one, so that both
/// ranks have less than that rank had. Returns false when nothing does.
static bool improve(Assignment& all) {
  const int from = all.most_loaded();
  const int64_t most = all.loads[static_cast<size_t>(from)];
  for (size_t i = 0; i < all.work.size(); ++i) {
    if (all.owners[i] != from) continue;
    for (int to = 0; to < static_cast<int>(all.loads.size()); ++to) {
      if (to == from || all.loads[static_cast<size_t>(to)] + all.work[i] >= most) continue;
      all.move(i, to);
      return true;
    }
    for (size_t j = 0; j < all.work.size(); ++j) {
      const int to = all.owners[j];
      const int64_t less = all.work[i] - all.work[j];
      if (to == from || less <= 0 || all.loads[static_cast<size_t>(to)] + less >= most) continue;
      all.move(i, to);
      all.move(j, from);
      return true;
    }
  }
  return false;
}

namespace {

/// Tries assignments of items, the largest first, for one whose most loaded rank has less than
/// `best` says, for a limited number of steps.
struct Search {
  std::span<const int64_t> work;
  const std::vector<size_t>& order;
  Assignment now, best;
  int64_t most;
  int steps = 20000;

  void place(size_t at) {
    if (at == order.size()) {
      best = now;
      most = *std::ranges::max_element(now.loads);
      return;
    }
    std::vector<int64_t> tried;
    const size_t item = order[at];
    for (size_t rank = 0; rank < now.loads.size() && steps > 0; ++rank) {
      const int64_t load = now.loads[rank];
      if (load + work[item] >= most || std::ranges::find(tried, load) != tried.end()) continue;
      tried.push_back(load);
      --steps;
      now.owners[item] = static_cast<int>(rank);
      now.loads[rank] += work[item];
      place(at + 1);
      now.loads[rank] = load;
    }
  }
};

}  // namespace

std::vector<int> balanced_owners(std::span<const int64_t> work, int ranks) {
  if (ranks < 1) fail("balanced_owners: number of ranks is ", ranks, ", expected at least 1");
  const auto count = static_cast<size_t>(ranks);
  Assignment all{work, std::vector<int>(work.size()), std::vector<int64_t>(count)};
  std::vector<size_t> order(work.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return work[a] > work[b]; });
  for (const size_t item : order) {
    const auto least = std::ranges::min_element(all.loads) - all.loads.begin();
    all.owners[item] = static_cast<int>(least);
    all.loads[static_cast<size_t>(least)] += work[item];
  }
  // Each exchange lowers the most loaded rank or leaves one such rank less.
  for (size_t i = 0; i < 4 * work.size() && improve(all); ++i) {
  }
  const int64_t total = std::accumulate(work.begin(), work.end(), int64_t{0});
  const int64_t most = all.loads[static_cast<size_t>(all.most_loaded())];
  const int64_t least = std::max((total + ranks - 1) / ranks, work.empty() ? 0 : work[order[0]]);
  if (static_cast<double>(most) <= 1.02 * static_cast<double>(least)) return all.owners;
  Assignment none{work, std::vector<int>(work.size()), std::vector<int64_t>(count)};
  Search search{work, order, std::move(none), std::move(all), most};
  search.place(0);
  return search.best.owners;
}

}  // namespace weft
