// SPDX-License-Identifier: Apache-2.0
#include "src/comm/flight/record.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "weft/error.h"

namespace weft {

std::string_view name_of(FlightState state) {
  static constexpr std::array<std::string_view, 4> names = {"posted", "running", "done", "failed"};
  return names[static_cast<size_t>(state)];
}

static bool is_message(CollectiveKind kind) {
  return kind == CollectiveKind::send || kind == CollectiveKind::recv;
}

std::string FlightCopy::in_words() const {
  if (is_message(kind)) {
    const int64_t count = elements;
    const Piece piece{.dtype = dtype, .counts = {&count, 1}};
    Collective call{.kind = kind, .root = root, .tag = pieces};
    call.pieces = {&piece, 1};
    return message_in_words(call);
  }
  Signature signature{.kind = kind,
                      .op = op,
                      .dtype = dtype,
                      .recv_dtype = recv_dtype,
                      .root = root,
                      .pieces = pieces,
                      .counts = counts,
                      .elements = elements};
  if (kind == CollectiveKind::exchange) {
    std::memcpy(signature.words.data(), text.data(), signature.words.size() - 1);
  } else {
    std::memcpy(signature.shown.data(), text.data(), sizeof signature.shown);
  }
  return weft::in_words(signature);
}

static uint64_t packed(CollectiveKind kind, ReduceOp op, DType dtype, DType recv_dtype) {
  return static_cast<uint64_t>(kind) | static_cast<uint64_t>(op) << 8 |
         static_cast<uint64_t>(dtype) << 16 | static_cast<uint64_t>(recv_dtype) << 24;
}

static uint64_t packed(int32_t first, int32_t second) {
  return static_cast<uint32_t>(first) | static_cast<uint64_t>(static_cast<uint32_t>(second)) << 32;
}

template <size_t N>
static void store(std::array<std::atomic<uint64_t>, N>& into, const void* from, size_t bytes) {
  std::array<uint64_t, N> words{};
  std::memcpy(words.data(), from, std::min(bytes, sizeof words));
  for (size_t i = 0; i < N; ++i) into[i].store(words[i], std::memory_order_relaxed);
}

template <class Entry>
static void begin_entry(Entry& entry, std::string_view communicator, uint64_t sequence) {
  entry.number.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  entry.sequence.store(sequence, std::memory_order_relaxed);
  entry.posted.store(ticks_now(), std::memory_order_relaxed);
  for (auto* time : {&entry.started, &entry.ended, &entry.bytes}) {
    time->store(0, std::memory_order_relaxed);
  }
  entry.state.store(static_cast<uint64_t>(FlightState::posted), std::memory_order_relaxed);
  // The last byte stays 0.
  store(entry.communicator, communicator.data(), std::min<size_t>(communicator.size(), 31));
}

FlightOperation FlightRecord::begin(std::string_view communicator, const Signature& signature,
                                    uint64_t sequence) {
  const uint64_t number = count_.load(std::memory_order_relaxed) + 1;
  Entry& to = entry(number);
  begin_entry(to, communicator, sequence);
  to.elements.store(signature.elements, std::memory_order_relaxed);
  to.what.store(packed(signature.kind, signature.op, signature.dtype, signature.recv_dtype),
                std::memory_order_relaxed);
  to.who.store(packed(signature.root, signature.pieces), std::memory_order_relaxed);
  to.counts.store(static_cast<uint32_t>(signature.counts), std::memory_order_relaxed);
  if (signature.kind == CollectiveKind::exchange) {
    store(to.text, signature.words.data(), signature.words.size());
  } else {
    store(to.text, signature.shown.data(), sizeof signature.shown);
  }
  to.number.store(number, std::memory_order_release);
  count_.store(number, std::memory_order_release);
  return {*this, number};
}

FlightOperation FlightRecord::begin_message(std::string_view communicator, const Collective& call,
                                            uint64_t sequence) {
  const uint64_t number = count_.load(std::memory_order_relaxed) + 1;
  Entry& to = entry(number);
  begin_entry(to, communicator, sequence);
  const DType dtype = call.pieces[0].dtype;
  to.elements.store(call.pieces[0].counts[0], std::memory_order_relaxed);
  to.what.store(packed(call.kind, call.op, dtype, dtype), std::memory_order_relaxed);
  to.who.store(packed(call.root, call.tag), std::memory_order_relaxed);
  to.counts.store(0, std::memory_order_relaxed);
  to.number.store(number, std::memory_order_release);
  count_.store(number, std::memory_order_release);
  return {*this, number};
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
  into.elements = get(from.elements);
  const uint64_t what = get(from.what), who = get(from.who);
  into.kind = static_cast<CollectiveKind>(what & 0xff);
  into.op = static_cast<ReduceOp>(what >> 8 & 0xff);
  into.dtype = static_cast<DType>(what >> 16 & 0xff);
  into.recv_dtype = static_cast<DType>(what >> 24 & 0xff);
  into.root = static_cast<int32_t>(static_cast<uint32_t>(who));
  into.pieces = static_cast<int32_t>(who >> 32);
  into.counts = static_cast<int32_t>(get(from.counts));
  for (size_t i = 0; i < into.text.size(); ++i) into.text[i] = get(from.text[i]);
  std::array<uint64_t, 4> name;
  for (size_t i = 0; i < name.size(); ++i) name[i] = get(from.communicator[i]);
  std::memcpy(into.communicator.data(), name.data(), sizeof name);
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
          {"sequence", operation.sequence},     {"kind", name_of(operation.kind)},
          {"words", operation.in_words()},      {"state", name_of(operation.state)},
          {"bytes", operation.bytes},           {"posted", time(operation.posted)},
          {"started", time(operation.started)}, {"ended", time(operation.ended)}};
}

std::string FlightRecord::json(std::string_view reason) const {
  const std::vector<FlightCopy> all = operations();
  const TickScale scale = TickScale::measured();
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  nlohmann::ordered_json record{
      {"weft_flight", 1},
      {"rank", rank_},
      {"ranks", ranks_},
      {"host", host.data()},
      {"process", ::getpid()},
      {"reason", reason},
      {"clock", {{"steady", scale.anchor_steady()}, {"wall", scale.anchor_wall()}}},
      {"forgotten", count() - all.size()},
      {"operations", nlohmann::ordered_json::array()}};
  for (const FlightCopy& operation : all) {
    record["operations"].push_back(in_json(operation, scale));
  }
  // A line an operation: people read it too.
  std::string text;
  nlohmann::ordered_json operations;
  operations.swap(record["operations"]);
  record.erase("operations");
  const auto dumped = [](const nlohmann::ordered_json& json) {
    return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  };
  text = dumped(record);
  text.back() = ',';
  text += "\n\"operations\":[";
  for (size_t i = 0; i < operations.size(); ++i) {
    text += i ? ",\n" : "\n";
    text += dumped(operations[i]);
  }
  return text + "\n]}\n";
}

}  // namespace weft
