// SPDX-License-Identifier: Apache-2.0
#include "cli/used_tokens.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <numeric>

#include "weft/error.h"
#include "weft/extend/hash.h"
#include "weft/ranks.h"

namespace weft::cli {

/// Steps whose rows are read again when a run is resumed.
static constexpr size_t kRecentSteps = 8;

template <class Item>
static std::vector<Item> gathered_from(const Communicator& world, const Item& own) {
  std::vector<Item> all(static_cast<size_t>(world.size()));
  const std::vector<int64_t> counts(all.size(), sizeof(Item) / sizeof(int64_t));
  const Piece piece{.send = &own, .recv = all.data(), .dtype = DType::i64, .counts = counts};
  world.all_gather({&piece, 1}).wait();
  return all;
}

static std::string steps_in_words(int64_t first, int64_t last) {
  return first == last ? concat("step ", first) : concat("steps ", first, " to ", last);
}

UsedTokens::UsedTokens(const Communicator& world, const TokenData& data, const RowRange& rows)
    : world_(world), data_(data), rows_(gathered_from(world, rows)) {
  const auto first_with = [&](const RowRange& range) {
    return static_cast<int>(std::ranges::find(rows_, range) - rows_.begin());
  };
  std::vector<RowRange> ranges = rows_;
  std::erase_if(ranges, [](const RowRange& range) { return range.count == 0; });
  std::ranges::sort(ranges);
  for (const RowRange& own : rows_) {
    same_.push_back(first_with(own));
    const auto after = std::ranges::upper_bound(ranges, own);
    const RowRange& next = after == ranges.end() ? ranges[0] : *after;
    // Threads have one copy of the data.
    const bool reads_next = launched_ranks() > 1 && own.count > 0 && next != own;
    next_.push_back(reads_next ? first_with(next) : -1);
  }
  const int next = next_[static_cast<size_t>(world.rank())];
  const int64_t count = next < 0 ? 0 : rows_[static_cast<size_t>(next)].count;
  next_ids_.resize(static_cast<size_t>(count * data.batch().seq));
  next_targets_.resize(next_ids_.size());
}

uint64_t UsedTokens::read_and_hash(int64_t step, int64_t first, std::span<int64_t> ids,
                                   std::span<int64_t> targets) const {
  if (step == 0) {
    data_.validation(first, ids, targets);
  } else {
    data_.train(step - 1, first, ids, targets);
  }
  const auto seq = static_cast<size_t>(data_.batch().seq);
  uint64_t sum = 0;
  for (size_t at = 0; at < ids.size(); at += seq, ++first) {
    // The other targets are ids as well.
    const std::array<int64_t, 3> rest{step, first, targets[at + seq - 1]};
    sum += xxh3_of(std::as_bytes(ids.subspan(at, seq)), xxh3_of(std::as_bytes(std::span(rest))));
  }
  return sum;
}

void UsedTokens::read(int64_t step, int64_t before, std::span<int64_t> ids,
                      std::span<int64_t> targets) {
  const auto rank = static_cast<size_t>(world_.rank());
  const uint64_t own = read_and_hash(step, before + rows_[rank].first, ids, targets);
  sums_.own += own;
  if (next_[rank] >= 0) {
    const int64_t first = before + rows_[static_cast<size_t>(next_[rank])].first;
    sums_.next += read_and_hash(step, first, next_ids_, next_targets_);
  }
  if (step == 0) return;
  if (step != last_step_) recent_.push_back(0);
  if (recent_.size() > kRecentSteps) recent_.pop_front();
  if (first_step_ == 0) first_step_ = step;
  last_step_ = step;
  recent_.back() += own;
  sums_.trained += own;
}

void UsedTokens::compare() {
  if (first_step_ == 0) return;
  sums_.recent = std::accumulate(recent_.begin(), recent_.end(), uint64_t{0});
  const std::vector<Sums> all = gathered_from(world_, sums_);
  recent_total_ = 0;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const int same = same_[rank], next = next_[rank], self = static_cast<int>(rank);
    const bool is_next_equal = next < 0 || all[static_cast<size_t>(next)].own == all[rank].next;
    if (!is_next_equal || all[static_cast<size_t>(same)].own != all[rank].own) {
      const int other = is_next_equal ? same : next;
      fail("train: ranks ", std::min(self, other), " and ", std::max(self, other),
           " read different tokens in ", steps_in_words(first_step_, last_step_),
           ", expected equal data on all ranks");
    }
    // Each row counts once, though ranks of tp hold the same.
    if (same != self) continue;
    total_ += all[rank].trained;
    recent_total_ += all[rank].recent;
  }
  recent_first_ = last_step_ - static_cast<int64_t>(recent_.size()) + 1;
  recent_last_ = last_step_;
  sums_ = {};
  first_step_ = 0;
}

std::map<std::string, int64_t> UsedTokens::numbers() const {
  return {{"used_tokens", std::bit_cast<int64_t>(total_)},
          {"recent_tokens", std::bit_cast<int64_t>(recent_total_)},
          {"recent_first", recent_first_},
          {"recent_last", recent_last_}};
}

void UsedTokens::resume(const std::map<std::string, int64_t>& saved, bool reads_again) {
  if (!saved.contains("run/used_tokens")) return;
  total_ = std::bit_cast<uint64_t>(saved.at("run/used_tokens"));
  recent_total_ = std::bit_cast<uint64_t>(saved.at("run/recent_tokens"));
  recent_first_ = saved.at("run/recent_first");
  recent_last_ = saved.at("run/recent_last");
  if (!reads_again || recent_last_ == 0) return;
  const auto [batch_rows, seq] = std::pair(data_.batch().rows, data_.batch().seq);
  const bool is_sane = recent_first_ > 0 && recent_last_ >= recent_first_ &&
                       recent_last_ - recent_first_ < static_cast<int64_t>(kRecentSteps) &&
                       recent_last_ < std::numeric_limits<int64_t>::max() / batch_rows;
  if (!is_sane)
    fail("--resume: the checkpoint's last steps are ", recent_first_, " to ", recent_last_,
         ", expected increasing ones");
  const int64_t rank = world_.rank(), ranks = world_.size();
  const int64_t first = batch_rows * rank / ranks, last = batch_rows * (rank + 1) / ranks;
  std::vector<int64_t> ids(static_cast<size_t>((last - first) * seq)), targets(ids.size());
  uint64_t own = 0;
  for (int64_t step = recent_first_; step <= recent_last_; ++step) {
    own += read_and_hash(step, first, ids, targets);
  }
  const std::vector<uint64_t> all = gathered_from(world_, own);
  if (std::accumulate(all.begin(), all.end(), uint64_t{0}) == recent_total_) return;
  fail("--resume: ", steps_in_words(recent_first_, recent_last_),
       " of the checkpoint used different tokens, expected those of --data; --allow-change data "
       "continues with the new data");
}

}  // namespace weft::cli
