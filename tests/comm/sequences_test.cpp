// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <random>

#include "tests/comm/backends.h"

namespace weft {

class Sequences : public OnRanks {};
INSTANTIATE_TEST_SUITE_P(All, Sequences, on_all_ranks(), case_name);

using Counts = std::vector<int64_t>;

/// The sum of all ranks' values at index i; for bool, true if any is.
static double summed(DType dtype, int ranks, int64_t i) {
  double sum = 0;
  for (int r = 0; r < ranks; ++r) sum += value_of(dtype, r, i);
  return dtype == boolean ? std::min(sum, 1.0) : sum;
}

/// A collective of a random kind in progress, and its expected result.
class RandomCall {
 public:
  /// Draws the same numbers on all ranks.
  void start(const Communicator& group, std::mt19937& random) {
    ranks_ = group.size();
    rank_ = group.rank();
    root_ = static_cast<int>(random() % static_cast<unsigned>(ranks_));
    dtype_ = kAllDTypes[random() % std::size(kAllDTypes)];
    // Some are larger than the data sent along with a call.
    const unsigned longest = random() % 4 == 0 ? 9000 : 40;
    counts_.assign(static_cast<size_t>(ranks_), 0);
    for (int64_t& count : counts_) count = random() % 3 == 0 ? 0 : random() % longest;
    constexpr void (RandomCall::*kinds[])(const Communicator&) = {
        &RandomCall::barrier,    &RandomCall::broadcast,  &RandomCall::all_gather,
        &RandomCall::gather,     &RandomCall::scatter,    &RandomCall::reduce_scatter,
        &RandomCall::all_reduce, &RandomCall::all_to_all, &RandomCall::message};
    (this->*kinds[random() % 9])(group);
  }
  void wait() {
    work_.wait();
    other_work_.wait();
  }
  void check() const { ASSERT_EQ(got_, expected_) << name_; }

 private:
  Numbers empty() const { return Numbers(dtype_, 0); }
  int64_t own() const { return count_of(counts_, rank_); }
  int64_t before(int rank) const { return sum_of_first(counts_, rank); }
  Piece piece() {
    return {.send = sent_.data(), .recv = got_.data(), .dtype = dtype_, .counts = {}};
  }
  void prepare(const char* name, int64_t sent, Numbers expected) {
    name_ = name;
    sent_ = numbers_of(dtype_, rank_, sent);
    got_ = Numbers(dtype_, expected.size());
    expected_ = std::move(expected);
  }
  /// Numbers [begin, begin + count) of rank `from`.
  Numbers part_of(int from, int64_t begin, int64_t count) const {
    Numbers part(dtype_, count);
    for (int64_t i = 0; i < count; ++i) part.set(i, value_of(dtype_, from, begin + i));
    return part;
  }
  Numbers whole() const {
    Numbers whole(dtype_, total_of(counts_));
    int64_t at = 0;
    for (int r = 0; r < ranks_; ++r) {
      for (int64_t i = 0; i < count_of(counts_, r); ++i) whole.set(at++, value_of(dtype_, r, i));
    }
    return whole;
  }
  Numbers sums(int64_t begin, int64_t count) const {
    Numbers sums(dtype_, count);
    for (int64_t i = 0; i < count; ++i) sums.set(i, summed(dtype_, ranks_, begin + i));
    return sums;
  }

  void barrier(const Communicator& group) {
    prepare("barrier", 0, empty());
    group.barrier();
  }
  void broadcast(const Communicator& group) {
    const int64_t size = counts_[0];
    prepare("broadcast", size, part_of(root_, 0, size));
    Piece one = piece();
    one.counts = {&size, 1};
    work_ = group.broadcast({&one, 1}, root_);
  }
  void all_gather(const Communicator& group) {
    prepare("all_gather", own(), whole());
    Piece one = piece();
    one.counts = counts_;
    work_ = group.all_gather({&one, 1});
  }
  void gather(const Communicator& group) {
    prepare("gather", own(), rank_ == root_ ? whole() : empty());
    Piece one = piece();
    one.counts = counts_;
    work_ = group.gather({&one, 1}, root_);
  }
  void scatter(const Communicator& group) {
    prepare("scatter", total_of(counts_), part_of(root_, before(rank_), own()));
    Piece one = piece();
    one.counts = counts_;
    work_ = group.scatter({&one, 1}, root_);
  }
  void reduce_scatter(const Communicator& group) {
    prepare("reduce_scatter", total_of(counts_), sums(before(rank_), own()));
    Piece one = piece();
    one.counts = counts_;
    work_ = group.reduce_scatter({&one, 1}, ReduceOp::sum);
  }
  void all_reduce(const Communicator& group) {
    const int64_t size = total_of(counts_);
    prepare("all_reduce", size, sums(0, size));
    Piece one = piece();
    one.counts = {&size, 1};
    work_ = group.all_reduce({&one, 1}, ReduceOp::sum);
  }
  /// Each rank r receives counts[r] elements from each rank.
  void all_to_all(const Communicator& group) {
    Numbers expected(dtype_, own() * ranks_);
    for (int r = 0; r < ranks_; ++r) {
      for (int64_t i = 0; i < own(); ++i) {
        expected.set(r * own() + i, value_of(dtype_, r, before(rank_) + i));
      }
    }
    prepare("all_to_all", total_of(counts_), std::move(expected));
    Piece one = piece();
    one.counts = counts_;
    work_ = group.all_to_all(one, Counts(counts_.size(), own()));
  }
  /// Sends to the next rank and receives from the previous one.
  void message(const Communicator& group) {
    const int next = (rank_ + 1) % ranks_;
    const int previous = (rank_ + ranks_ - 1) % ranks_;
    if (next == rank_) return prepare("message", 0, empty());
    prepare("message", own(), part_of(previous, 0, count_of(counts_, previous)));
    other_work_ = group.send(sent_.data(), sent_.size(), dtype_, next, root_);
    work_ = group.recv(got_.data(), got_.size(), dtype_, previous, root_);
  }

  const char* name_ = "";
  int ranks_ = 1, rank_ = 0, root_ = 0;
  DType dtype_ = f32;
  Counts counts_;
  Numbers sent_{f32, 0}, got_{f32, 0}, expected_{f32, 0};
  Work work_, other_work_;
};

static void run_sequence(const std::vector<Communicator>& groups, unsigned seed) {
  std::mt19937 program(seed);
  std::mt19937 own_order(seed * 50 + static_cast<unsigned>(groups[0].rank()));
  constexpr size_t in_flight = 8;
  std::vector<RandomCall> calls(in_flight);
  for (RandomCall& call : calls) {
    call.start(groups[program() % groups.size()], program);
    if (own_order() % 3 == 0) calls[own_order() % (&call - calls.data() + 1)].wait();
  }
  std::vector<size_t> order(in_flight);
  std::iota(order.begin(), order.end(), size_t{0});
  std::shuffle(order.begin(), order.end(), own_order);
  for (const size_t i : order) calls[i].wait();
  for (const RandomCall& call : calls) call.check();
}

TEST_P(Sequences, OfAllKindsOverTwoGroups) {
  run([&](Communicator world) {
    std::vector<int> reversed(static_cast<size_t>(world.size()));
    std::iota(reversed.rbegin(), reversed.rend(), 0);
    const std::vector<Communicator> groups{world, world.subgroup(reversed, "reversed")};
    for (unsigned seed = 0; seed < 25 && !testing::Test::HasFailure(); ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      run_sequence(groups, seed);
    }
  });
}

}  // namespace weft
