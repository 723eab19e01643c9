// SPDX-License-Identifier: Apache-2.0
#include "src/comm/nccl/agreement.h"

#include <algorithm>

#include "weft/extend/hash.h"

namespace weft {

void NcclAgreement::add(const NcclCallName& call, uint64_t variant) {
  last_ = call.number;
  hash_ = mixed(mixed(hash_, call.signature.hash), variant);
  hashes_[call.number % kCalls] = hash_;
  calls_[call.number % kCalls] = call;
  if (call.number == 1 || call.number % kCalls == 0) compare();
}

std::vector<uint64_t> NcclAgreement::gathered(std::span<const uint64_t> own) const {
  const auto ranks = static_cast<size_t>(host_transport_->size());
  std::vector<uint64_t> all(ranks * own.size());
  const std::vector<int64_t> counts(ranks, static_cast<int64_t>(own.size()));
  const Piece piece{.send = own.data(), .recv = all.data(), .dtype = DType::i64, .counts = counts};
  host_transport_->run({.kind = CollectiveKind::all_gather, .pieces = {&piece, 1}});
  return all;
}

void NcclAgreement::fail(const NcclCallName& call, int at_fault, const std::string& text) {
  const int world_rank = host_transport_->world_ranks()[static_cast<size_t>(at_fault)];
  const int found_by = host_transport_->world_ranks()[static_cast<size_t>(host_transport_->rank())];
  throw host_transport_->world()->abort_for_call({found_by, world_rank, text},
                                                 in_words(call.signature), call.number);
}

void NcclAgreement::compare_counts(const NcclCallName& call, std::span<const int64_t> sent,
                                   std::span<const int64_t> expected) {
  // A rank that made another call compares no counts, but its next comparison meets this one.
  compare();
  std::vector<uint64_t> own(sent.begin(), sent.end());
  own.insert(own.end(), expected.begin(), expected.end());
  const std::vector<uint64_t> all = gathered(own);
  const size_t ranks = sent.size();
  for (size_t from = 0; from < ranks; ++from) {
    for (size_t to = 0; to < ranks; ++to) {
      const uint64_t sends = all[from * 2 * ranks + to];
      const uint64_t expects = all[to * 2 * ranks + ranks + from];
      if (sends == expects) continue;
      fail(call, static_cast<int>(from),
           concat(call.title(), ": rank ", from,
                  counts_in_words(static_cast<int64_t>(sends), static_cast<int>(to),
                                  static_cast<int64_t>(expects))));
    }
  }
}

void NcclAgreement::compare() {
  const std::vector<uint64_t> all = gathered({&hash_, 1});
  if (std::any_of(all.begin(), all.end(), [&](uint64_t one) { return one != all[0]; })) {
    fail_diverged();
  }
}

void NcclAgreement::fail_diverged() {
  const std::vector<uint64_t> all = gathered(hashes_), lasts = gathered({&last_, 1});
  const auto ranks = static_cast<uint64_t>(host_transport_->size());
  const auto [least, most] = std::minmax_element(lasts.begin(), lasts.end());
  const uint64_t first = *most < kCalls ? 1 : *most - kCalls + 1;
  for (uint64_t number = first; number <= *least; ++number) {
    const uint64_t place = number % kCalls;
    for (uint64_t r = 1; r < ranks; ++r) {
      if (all[r * kCalls + place] == all[place]) continue;
      const NcclCallName& call = calls_[place];
      const std::string own = in_words_with_claim(call.signature);
      const Communicator host(host_transport_);
      const std::string zero = host.broadcast(own, 0);
      const std::string other = host.broadcast(own, static_cast<int>(r));
      fail(call, static_cast<int>(r),
           concat(call.group, ": nccl call number ", number, ": ",
                  unequal_in_words("rank 0", zero, concat("rank ", r), other,
                                   "on another stream or in another way")));
    }
  }
  throw CommError(concat(host_transport_->name(), ": ranks differ in what they called before"), -1,
                  "", last_);
}

}  // namespace weft
