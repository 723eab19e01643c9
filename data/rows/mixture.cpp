// SPDX-License-Identifier: Apache-2.0
#include "data/rows/mixture.h"

#include <algorithm>
#include <cmath>
#include <numeric>

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

std::pair<size_t, int64_t> Mixture::at(int64_t index) const {
  const int64_t block = index / kMixed, place = index % kMixed;
  std::vector<int64_t> firsts;
  for (size_t source = 0; source <= ends_.size(); ++source) {
    firsts.push_back(rows_before(source, block + 1) - rows_before(source, block));
  }
  const uint64_t key = scrambled(scrambled(~seed_) ^ static_cast<uint64_t>(block));
  const auto source_at = [&](int64_t at) {
    const int64_t number = permuted(at, kMixed, key);
    return static_cast<size_t>(std::ranges::upper_bound(firsts, number) - firsts.begin()) - 1;
  };
  const size_t source = source_at(place);
  int64_t own = rows_before(source + 1, block) - rows_before(source, block);
  for (int64_t at = 0; at < place; ++at) own += source_at(at) == source;
  return {source, own};
}

}  // namespace weft::rows
