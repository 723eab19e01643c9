// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/runs.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "weft/error.h"

namespace weft {

/// The dim along which the boxes have the most different starts.
static int dim_of_most_starts(const std::vector<Box>& boxes) {
  int best = -1;
  size_t most = 0;
  for (int dim = 0; dim < boxes[0].shape.ndim(); ++dim) {
    std::set<int64_t> starts;
    for (const Box& box : boxes) starts.insert(box.offset[dim]);
    if (starts.size() > most) {
      most = starts.size();
      best = dim;
    }
  }
  return best;
}

/// Sweeps along one dim, comparing only boxes that are open at the same place.
static void check_disjoint(const std::string& what, const std::vector<Box>& boxes) {
  if (boxes.size() < 2) return;
  const int dim = dim_of_most_starts(boxes);
  const auto begin = [&](const Box& box) { return dim < 0 ? 0 : box.offset[dim]; };
  const auto end = [&](const Box& box) { return dim < 0 ? 1 : box.offset[dim] + box.shape[dim]; };
  std::vector<size_t> order(boxes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return begin(boxes[a]) < begin(boxes[b]); });
  std::vector<size_t> open;
  for (size_t i : order) {
    std::erase_if(open, [&](size_t other) { return end(boxes[other]) <= begin(boxes[i]); });
    for (size_t other : open) {
      if (overlap(boxes[i], boxes[other]).shape.product() == 0) continue;
      fail("checkpoint: ", what, " is stored as ", boxes[other].shape, " at ", boxes[other].offset,
           " and ", boxes[i].shape, " at ", boxes[i].offset, ", expected each element once");
    }
    open.push_back(i);
  }
}

void check_covers_once(const std::string& what, const Box& wanted, const std::vector<Box>& boxes) {
  const int64_t all = wanted.shape.product();
  if (all == 0) return;
  std::vector<Box> filled;
  for (const Box& box : boxes) {
    if (box.shape.product() == 0) continue;
    if (!contains(wanted, box)) {
      fail("checkpoint: ", what, ": a part of ", box.shape, " at ", box.offset, " is outside of ",
           wanted.shape, " at ", wanted.offset);
    }
    filled.push_back(box);
  }
  check_disjoint(what, filled);
  int64_t covered = 0;
  for (const Box& box : filled) covered += box.shape.product();
  if (covered == all) return;
  fail("checkpoint: ", what, " has ", covered, " elements of ", wanted.shape, " at ", wanted.offset,
       " in the files, expected ", all);
}

}  // namespace weft
