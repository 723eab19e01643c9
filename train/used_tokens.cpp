// SPDX-License-Identifier: Apache-2.0
#include "train/used_tokens.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <numeric>
#include <utility>

#include "train/option_names.h"
#include "weft/error.h"
#include "weft/extend/hash.h"
#include "weft/ranks.h"

namespace weft {

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

RowBuffer::RowBuffer(int64_t rows, int64_t sequence, bool has_segments)
    : ids_(static_cast<size_t>(rows * sequence)),
      targets_(ids_.size()),
      segments_(has_segments ? ids_.size() : 0) {}

UsedTokens::UsedTokens(const Communicator& world, const Dataset& data, const Dataset* held_out,
                       int64_t batch, const RowRange& rows)
    : world_(world),
      data_(data),
      held_out_(held_out),
      batch_(batch),
      rows_(gathered_from(world, rows)) {
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
  next_rows_ = RowBuffer(count, data.sequence(), has_segments());
}

/// The hash of a row whose targets are its ids, one place further, is that of the ids and the last
/// target.
static uint64_t hash_of_row(int64_t step, int64_t index, const RowSpans& row) {
  const std::array<int64_t, 3> rest{step, index, row.targets.back()};
  uint64_t hash = xxh3_of(std::as_bytes(std::span(rest)));
  const bool follow = std::ranges::equal(row.ids.subspan(1), row.targets.first(row.ids.size() - 1));
  if (!follow) hash = xxh3_of(std::as_bytes(row.targets), hash);
  if (!row.segments.empty()) hash = xxh3_of(std::as_bytes(row.segments), hash);
  return xxh3_of(std::as_bytes(row.ids), hash);
}

uint64_t UsedTokens::read_and_hash(int64_t step, int64_t first, const RowSpans& into) const {
  if (into.ids.empty()) return 0;
  const Dataset& rows = step == 0 ? *held_out_ : data_;
  RowSpans spans = into;
  if (!rows.has_segments()) std::ranges::fill(std::exchange(spans.segments, {}), 0);
  rows.read(step == 0 ? first : (step - 1) * batch_ + first, spans);
  const auto seq = static_cast<size_t>(data_.sequence());
  uint64_t sum = 0;
  for (size_t at = 0; at < into.ids.size(); at += seq, ++first) {
    const auto segments = into.segments.empty() ? into.segments : into.segments.subspan(at, seq);
    sum += hash_of_row(step, first,
                       {into.ids.subspan(at, seq), into.targets.subspan(at, seq), segments});
  }
  return sum;
}

void UsedTokens::read(int64_t step, int64_t before, const RowSpans& into) {
  const auto rank = static_cast<size_t>(world_.rank());
  const uint64_t own = read_and_hash(step, before + rows_[rank].first, into);
  sums_.own += own;
  if (next_[rank] >= 0) {
    const int64_t first = before + rows_[static_cast<size_t>(next_[rank])].first;
    sums_.next += read_and_hash(step, first, next_rows_.spans());
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

void UsedTokens::resume(const std::map<std::string, int64_t>& saved, bool reads_again,
                        bool are_flags) {
  if (!saved.contains("run/used_tokens")) return;
  total_ = std::bit_cast<uint64_t>(saved.at("run/used_tokens"));
  recent_total_ = std::bit_cast<uint64_t>(saved.at("run/recent_tokens"));
  recent_first_ = saved.at("run/recent_first");
  recent_last_ = saved.at("run/recent_last");
  if (!reads_again || recent_last_ == 0) return;
  const std::string resume = start_of_error("resume", are_flags);
  const bool is_sane = recent_first_ > 0 && recent_last_ >= recent_first_ &&
                       recent_last_ - recent_first_ < static_cast<int64_t>(kRecentSteps) &&
                       recent_last_ < std::numeric_limits<int64_t>::max() / batch_;
  if (!is_sane)
    fail(resume, "the checkpoint's last steps are ", recent_first_, " to ", recent_last_,
         ", expected increasing ones");
  const int64_t rank = world_.rank(), ranks = world_.size();
  const int64_t first = batch_ * rank / ranks, last = batch_ * (rank + 1) / ranks;
  RowBuffer rows(last - first, data_.sequence(), data_.has_segments());
  uint64_t own = 0;
  for (int64_t step = recent_first_; step <= recent_last_; ++step) {
    own += read_and_hash(step, first, rows.spans());
  }
  const std::vector<uint64_t> all = gathered_from(world_, own);
  if (std::accumulate(all.begin(), all.end(), uint64_t{0}) == recent_total_) return;
  fail(resume, steps_in_words(recent_first_, recent_last_),
       " of the checkpoint used different tokens, expected those of ",
       are_flags ? "--data" : "the dataset", "; ", option_name("allow_change", are_flags),
       " data continues with the new data");
}

}  // namespace weft
