// SPDX-License-Identifier: Apache-2.0
#include "src/comm/transport.h"

#include <algorithm>
#include <array>

#include "src/comm/world.h"

namespace weft {

static constexpr std::array<std::string_view, 11> kCollectiveNames = {
    "barrier", "broadcast",  "all_gather", "reduce_scatter", "all_reduce", "gather",
    "scatter", "all_to_all", "send",       "recv",           "exchange"};

std::string_view name_of(CollectiveKind kind) {
  return kCollectiveNames[static_cast<size_t>(kind)];
}

std::shared_ptr<Transport> Transport::split(int color, int key, std::string name) {
  std::vector<std::array<int64_t, 2>> asked(static_cast<size_t>(size_));
  const auto own = static_cast<size_t>(rank_);
  asked[own] = {color, key};
  if (size_ > 1) {
    const std::vector<int64_t> counts(asked.size(), 2);
    const Piece piece{
        .send = asked[own].data(), .recv = asked.data(), .dtype = DType::i64, .counts = counts};
    run({.kind = CollectiveKind::all_gather, .pieces = {&piece, 1}});
  }
  if (color < 0) return nullptr;
  std::vector<int> ranks;
  for (int r = 0; r < size_; ++r) {
    if (asked[static_cast<size_t>(r)][0] == color) ranks.push_back(r);
  }
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
    return asked[static_cast<size_t>(a)][1] < asked[static_cast<size_t>(b)][1];
  });
  return subgroup(ranks, std::move(name));
}

void Transport::claim(uint64_t hash, std::string_view words) {
  if (claim_.hash == 0) {
    std::copy_n(words.begin(), std::min(words.size(), claim_.words.size() - 1),
                claim_.words.begin());
  }
  claim_.hash = (claim_.hash ^ hash) * 0x9e3779b97f4a7c15u | 1;
}

void Transport::exchange(const Exchange&, ExchangeReader&) {
  fail("exchange: the ranks of ", name_,
       " do not map each other's memory, expected ranks of one host");
}

Work Transport::start_exchange(const Exchange& call, std::unique_ptr<ExchangeReader> reader) {
  exchange(call, *reader);
  return {};
}

int Transport::index_among(std::span<const int> ranks) const {
  const auto own = std::find(ranks.begin(), ranks.end(), rank_);
  return own == ranks.end() ? -1 : static_cast<int>(own - ranks.begin());
}

void Transport::abort(const std::string& reason) {
  const int who = world_ranks()[static_cast<size_t>(rank_)];
  world()->abort({who, who, concat("rank ", who, " gave up: ", reason)});
}

}  // namespace weft
