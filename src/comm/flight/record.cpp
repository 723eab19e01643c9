// SPDX-License-Identifier: Apache-2.0
#include "src/comm/flight/record.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

namespace weft {

std::string_view name_of(FlightState state) {
  static constexpr std::array<std::string_view, 4> names = {"posted", "running", "done", "failed"};
  return names[static_cast<size_t>(state)];
}

std::string FlightCopy::in_words() const {
  if (!is_message(call.kind)) return weft::in_words(call);
  const Piece piece{.dtype = call.dtype, .counts = {&call.elements, 1}};
  return message_in_words(
      {.kind = call.kind, .root = call.root, .tag = call.pieces, .pieces = {&piece, 1}});
}

template <size_t N>
static void store(std::array<std::atomic<uint64_t>, N>& into, const void* from, size_t bytes) {
  std::array<uint64_t, N> words{};
  std::memcpy(words.data(), from, std::min(bytes, sizeof words));
  for (size_t i = 0; i < N; ++i) into[i].store(words[i], std::memory_order_relaxed);
}

template <size_t N> static void load(void* into, const std::array<std::atomic<uint64_t>, N>& from) {
  std::array<uint64_t, N> words;
  for (size_t i = 0; i < N; ++i) words[i] = from[i].load(std::memory_order_relaxed);
  std::memcpy(into, words.data(), sizeof words);
}

FlightOperation FlightRecord::begin(std::string_view communicator, const Signature& signature,
                                    uint64_t sequence) {
  const uint64_t number = count_.load(std::memory_order_relaxed) + 1;
  Entry& to = entry(number);
  to.number.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  to.sequence.store(sequence, std::memory_order_relaxed);
  to.posted.store(ticks_now(), std::memory_order_relaxed);
  for (auto* time : {&to.started, &to.ended, &to.bytes}) time->store(0, std::memory_order_relaxed);
  to.state.store(static_cast<uint64_t>(FlightState::posted), std::memory_order_relaxed);
  store(to.call, &signature, sizeof signature);
  // The last byte stays 0.
  store(to.communicator, communicator.data(), std::min<size_t>(communicator.size(), 31));
  to.number.store(number, std::memory_order_release);
  count_.store(number, std::memory_order_release);
  return {*this, number};
}

FlightOperation FlightRecord::begin(std::string_view communicator, const Collective& call,
                                    uint64_t sequence) {
  const Piece& piece = call.pieces[0];
  return begin(communicator,
               Signature{.kind = call.kind,
                         .dtype = piece.dtype,
                         .root = call.root,
                         .pieces = call.tag,
                         .elements = piece.counts[0]},
               sequence);
}

/// False when it is not there, or is overwritten meanwhile.
bool FlightRecord::copy(uint64_t number, FlightCopy& into) const {
  const Entry& from = entries_[number % kEntries];
  if (from.number.load(std::memory_order_acquire) != number) return false;
  const auto get = [](const auto& word) { return word.load(std::memory_order_relaxed); };
  into.number = number;
  // Before the times: an operation that is done has them all.
  into.state = static_cast<FlightState>(from.state.load(std::memory_order_acquire));
  into.sequence = get(from.sequence);
  into.posted = get(from.posted);
  into.started = get(from.started);
  into.ended = get(from.ended);
  into.bytes = get(from.bytes);
  load(&into.call, from.call);
  load(into.communicator.data(), from.communicator);
  std::atomic_thread_fence(std::memory_order_acquire);
  return get(from.number) == number;
}

void FlightRecord::tell(uint64_t number) {
  FlightCopy operation;
  if (copy(number, operation)) listener_->ended(operation);
}

std::vector<FlightCopy> FlightRecord::operations() const {
  std::vector<FlightCopy> all;
  const uint64_t last = count();
  const uint64_t first = last > kEntries ? last - kEntries + 1 : 1;
  for (uint64_t number = first; number <= last; ++number) {
    FlightCopy operation;
    if (copy(number, operation)) all.push_back(operation);
  }
  return all;
}

static nlohmann::ordered_json in_json(const FlightCopy& operation, const TickScale& scale) {
  const auto time = [&](int64_t ticks) {
    return ticks ? nlohmann::ordered_json(scale.steady(ticks)) : nlohmann::ordered_json(nullptr);
  };
  return {{"number", operation.number},         {"communicator", operation.communicator.data()},
          {"sequence", operation.sequence},     {"kind", name_of(operation.call.kind)},
          {"words", operation.in_words()},      {"state", name_of(operation.state)},
          {"bytes", operation.bytes},           {"posted", time(operation.posted)},
          {"started", time(operation.started)}, {"ended", time(operation.ended)}};
}

std::string FlightRecord::json(std::string_view reason) const {
  const std::vector<FlightCopy> all = operations();
  const TickScale scale = TickScale::measured();
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  const nlohmann::ordered_json head{
      {"weft_flight", 1},
      {"rank", rank_},
      {"ranks", ranks_},
      {"host", host.data()},
      {"process", ::getpid()},
      {"reason", reason},
      {"clock", {{"steady", scale.anchor_steady()}, {"wall", scale.anchor_wall()}}},
      {"forgotten", count() - all.size()}};
  const auto dumped = [](const nlohmann::ordered_json& json) {
    return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  };
  // A line an operation: people read it too.
  std::string text = dumped(head);
  text.back() = ',';
  text += "\n\"operations\":[";
  for (size_t i = 0; i < all.size(); ++i) {
    text += i ? ",\n" : "\n";
    text += dumped(in_json(all[i], scale));
  }
  return text + "\n]}\n";
}

}  // namespace weft
