// SPDX-License-Identifier: Apache-2.0
#include "data/rows/mixture.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "data/rows/order.h"
#include "weft/error.h"

namespace weft::rows {

static constexpr int64_t kMixed = 1024;
static constexpr int kShareBits = 40;

Mixture::Mixture(std::span<const double> weights, uint64_t seed) : seed_(seed) {
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  double sum = 0;
  for (const double weight : weights) {
    if (!(weight > 0) || !std::isfinite(total)) {
      fail("data: a weight of the mixture must be above 0 and finite, got ", weight);
    }
    if (weight * kMixed < total) {
      fail("data: a weight of the mixture is ", weight, ", expected at least 1/", kMixed,
           " of their sum ", total);
    }
    sum += weight;
    ends_.push_back(static_cast<uint64_t>(std::llround(std::ldexp(sum / total, kShareBits))));
  }
  if (!ends_.empty()) ends_.back() = uint64_t{1} << kShareBits;
}

int64_t Mixture::rows_before(size_t source, int64_t block) const {
  if (source == 0) return 0;
  __extension__ using Wide = unsigned __int128;
  return static_cast<int64_t>(Wide(static_cast<uint64_t>(block * kMixed)) * ends_[source - 1] >>
                              kShareBits);
}

std::vector<Mixture::Place> Mixture::places_of(int64_t block) const {
  std::vector<int64_t> firsts, numbers;
  for (size_t source = 0; source <= ends_.size(); ++source) {
    const int64_t before = rows_before(source, block);
    firsts.push_back(rows_before(source, block + 1) - before);
    if (source > 0) numbers.push_back(before - rows_before(source - 1, block));
  }
  const uint64_t key = scrambled(scrambled(~seed_) ^ static_cast<uint64_t>(block));
  std::vector<Place> places;
  for (int64_t at = 0; at < kMixed; ++at) {
    const auto after = std::ranges::upper_bound(firsts, permuted(at, kMixed, key));
    const auto source = static_cast<size_t>(after - firsts.begin()) - 1;
    places.push_back({source, numbers[source]++});
  }
  return places;
}

std::pair<size_t, int64_t> Mixture::at(int64_t index) const {
  if (ends_.size() == 1) return {0, index};
  const std::lock_guard lock(mutex_);
  if (std::exchange(block_, index / kMixed) != index / kMixed) places_ = places_of(block_);
  const Place& place = places_[static_cast<size_t>(index % kMixed)];
  return {place.source, place.number};
}

}  // namespace weft::rows
