// SPDX-License-Identifier: Apache-2.0
#include "src/comm/memory/exchange_work.h"

#include <utility>

#include "src/comm/check.h"
#include "src/comm/read_collective.h"
#include "src/comm/rounds.h"
#include "src/device/cuda/runtime.h"
#include "weft/error.h"

namespace weft {

ExchangeOrder::ExchangeOrder(const MemoryGroup& group, int rank, uint64_t sequence, Device device)
    : group_(group), rank_(rank), sequence_(sequence), device_(device) {
  if (!is_queued()) return;
  if (cuda::is_capturing()) {
    fail(group.name,
         ": the recorded work of a graph exchanges with threads of this process, "
         "expected ranks that are processes, each with a GPU");
  }
  stream_ = current_stream(device);
}

void ExchangeOrder::mark(int point) {
  if (!is_queued()) return;
  SlotEvents& events = group_.events(rank_, sequence_);
  if (events.device != device_) {
    for (void*& event : events.points) {
      if (event) events.former.push_back(std::exchange(event, nullptr));
    }
    events.device = device_;
  }
  void*& event = events.points[static_cast<size_t>(point)];
  if (event) {
    cuda::record_event(event, stream_);
  } else {
    event = cuda::create_event(stream_);
  }
}

void ExchangeOrder::await(int phase) {
  if (!is_queued()) return;
  for (int r = 0; r < group_.size(); ++r) {
    if (r == rank_) continue;
    const SlotEvents& events = group_.events(r, sequence_);
    if (phase == 0) check_reach(r, events.device);
    cuda::wait_event(stream_, events.points[static_cast<size_t>(phase)]);
  }
}

void ExchangeOrder::check_reach(int other, Device device) const {
  if (cuda::open_memory(device_.index, device.index)) return;
  fail(group_.name, ": ", device_, " of ", group_.in_words(rank_), " cannot read ", device, " of ",
       group_.in_words(other), "; make each rank a process (weft run)");
}

void ExchangeOrder::posted() { mark(0); }
void ExchangeOrder::finished(int phase) { mark(1 + phase); }

void ExchangeOrder::ended(int last) {
  await(1 + last);
  if (is_queued()) end_ = Event::record(stream_);
}

void ExchangeOrder::join() const {
  if (end_.empty()) return;
  const Stream now = current_stream(device_);
  if (now != stream_) end_.wait(now);
}

/// Destroys the events of exchanges.
MemoryGroup::~MemoryGroup() {
  for (const SlotEvents& events : events_) {
    for (void* event : events.points) {
      if (event) cuda::destroy_event(event);
    }
    for (void* event : events.former) cuda::destroy_event(event);
  }
}

// A round has at most two phases.
static_assert(progress_after(2 * kMostRounds) < kProgressRange);

/// The device of the blocks or pieces of a call.
template <class Parts> static Device device_of(const MemoryGroup& group, const Parts& parts) {
  const Device device = parts.empty() ? cpu : parts[0].device;
  if (device.kind == DeviceKind::cuda && group.ranks_are_processes())
    refuse_device_memory(group.name, device);
  return device;
}

template <class Call, class Parts>
ExchangeWork::ExchangeWork(MemoryTransport& transport, const Call& call, const Parts& parts,
                           int phases, ExchangeReader* reader)
    : PendingWork(transport.group(), transport.rank(), transport.next_collective()),
      transport_(transport),
      reader_(reader),
      phases_(phases),
      slot_(group().slot(rank(), sequence())),
      publication_(group(), rank(), sequence()),
      order_(group(), rank(), sequence(), device_of(group(), parts)) {
  const Claim claim = transport_.take_claim();
  if (world().is_aborted()) refuse(call, claim);
  sign(call, claim, slot_.signature);
  post(publication_.publish(call));
  record(slot_.signature, transport_.counters());
}

ExchangeWork::ExchangeWork(MemoryTransport& transport, const Exchange& call, ExchangeReader* reader)
    : ExchangeWork(transport, call, call.blocks, call.phases(), reader) {}

ExchangeWork::ExchangeWork(MemoryTransport& transport, const Collective& call,
                           ExchangeReader* reader)
    : ExchangeWork(transport, call, call.pieces, phases_of(call.kind), reader) {}

/// Throws the failure. The slot keeps the earlier call, whose signature other ranks may be reading.
template <class Call> void ExchangeWork::refuse(const Call& call, const Claim& claim) {
  Signature own;
  sign(call, claim, own);
  record(own, transport_.counters());
  flight().failed();
  const std::string operation = weft::in_words(own);
  throw world().echo(prefix() + operation, operation, number());
}

void ExchangeWork::post(const void* shown) {
  // Stored first: a rank still comparing hashes of the slot's previous call must see that the slot
  // has moved on.
  slot_.progress.store(progress_at(0), std::memory_order_relaxed);
  slot_.hash.store(slot_.signature.hash, std::memory_order_release);
  slot_.published = shown;
  slot_.is_eager = publication_.is_eager();
  order_.posted();
  slot_.progress.store(progress_at(kPosted), std::memory_order_release);
}

bool ExchangeWork::advance() {
  while (all_have_come()) {
    if (phase_ < 0) begin_reading();
    if (phase_ + 1 >= phases_) {
      if (phases_ > 0) {
        order_.ended(phases_ - 1);
        flight().ends_on(order_.stream());
      }
      return true;
    }
    if (!read_next_phase()) return false;
    if (phase_ + 1 >= phases_ && publication_.is_eager()) {
      transport_.leave_to_readers(sequence(), reached());
      return true;
    }
  }
  return false;
}

bool ExchangeWork::all_have_come() {
  const uint64_t target = reached();
  while (seen_ < group().size()) {
    const Slot& slot = group().slot(seen_, sequence());
    if (slot.progress.load(std::memory_order_acquire) < target) return false;
    ++seen_;
  }
  return true;
}

void ExchangeWork::begin_reading() {
  compare_signatures();
  reads_rooms_ = phases_ > 0 && publication_.is_eager();
  for (int r = 0; reads_rooms_ && r < group().size(); ++r) {
    reads_rooms_ = group().slot(r, sequence()).is_eager;
  }
  flight().started();
}

void ExchangeWork::compare_signatures() {
  // All ranks compare with the first one, so that all report the same difference.
  const Slot& first = group().slot(0, sequence());
  const uint64_t expected = first.hash.load(std::memory_order_acquire);
  for (int r = 1; r < group().size(); ++r) {
    const Slot& slot = group().slot(r, sequence());
    if (slot.hash.load(std::memory_order_acquire) == expected) continue;
    // A slot that already serves a later call was found equal by the ranks that made this call.
    const uint64_t end = progress_at(kProgressRange);
    if (slot.progress.load(std::memory_order_acquire) >= end) continue;
    if (first.progress.load(std::memory_order_acquire) >= end) continue;
    fail_unequal(first.signature, r, slot.signature);
  }
}

/// Returns false when the world has been aborted, because the others' memory may be gone.
bool ExchangeWork::may_read() {
  if (reads_rooms_) return true;
  // Set before the check for an abort: a rank that gives up keeps its memory as it is while others
  // read it.
  slot_.reading.store(sequence(), std::memory_order_seq_cst);
  if (!group().world->is_aborted()) return true;
  slot_.reading.store(0, std::memory_order_release);
  return false;
}

bool ExchangeWork::read_next_phase() {
  if (!may_read()) return false;
  received(read_peers(phase_ + 1));
  ++phase_;
  order_.finished(phase_);
  if (phase_ + 1 < phases_) publication_.update(phase_ + 1);
  seen_ = 0;
  if (phase_ + 1 < phases_) wait_anew();
  slot_.progress.store(reached(), std::memory_order_release);
  return true;
}

std::span<const void* const> ExchangeWork::shown() {
  std::vector<const void*>& published = transport_.published();
  for (int r = 0; r < group().size(); ++r) {
    published[static_cast<size_t>(r)] = group().slot(r, sequence()).published;
  }
  return published;
}

void ExchangeWork::learn_rounds() { phases_ *= reader_->rounds(shown()); }

int64_t ExchangeWork::read_peers(int phase) {
  try {
    if (phase == 0) learn_rounds();
    order_.await(phase);
    if (phase == 0) flight().begins_on(order_.stream());
    const StreamScope scope(order_.stream());
    const int64_t bytes = reader_->read(phase, shown());
    slot_.reading.store(0, std::memory_order_release);
    return bytes;
  } catch (const PeerMismatch& mismatch) {
    slot_.reading.store(0, std::memory_order_release);
    fail_with(concat(title(), ": ", group().in_words(mismatch.rank), mismatch.text), mismatch.rank);
  } catch (...) {
    slot_.reading.store(0, std::memory_order_release);
    throw;
  }
}

std::vector<int> ExchangeWork::missing() const { return group().behind(sequence(), reached()); }

const char* ExchangeWork::missed(int rank) const {
  const uint64_t now = group().slot(rank, sequence()).progress.load(std::memory_order_acquire);
  return now < progress_at(kPosted) ? "call it" : "finish it";
}

std::string ExchangeWork::words() const { return weft::in_words(slot_.signature); }

void ExchangeWork::retreat() noexcept {
  for (int r = 0; r < group().size(); ++r) {
    if (r == rank()) continue;
    wait_while(r, [&] {
      return group().slot(r, sequence()).reading.load(std::memory_order_seq_cst) == sequence();
    });
  }
}

}  // namespace weft
