// SPDX-License-Identifier: Apache-2.0
#include "src/comm/memory/memory_transport.h"

#include <utility>

#include "src/comm/collective_parts.h"
#include "src/device/cuda/runtime.h"
#include "weft/error.h"

namespace weft {

// A round has at most two phases.
static_assert(progress_after(2 * kMostRounds) < kProgressRange);

/// The device of the blocks or pieces of a call.
template <class Parts> static Device device_of(const MemoryGroup& group, const Parts& parts) {
  const Device device = parts.empty() ? cpu : parts[0].device;
  if (device.kind == DeviceKind::cuda && group.ranks_are_processes())
    refuse_device_memory(group.name, device);
  return device;
}

static std::span<const MemoryBlock> parts_of(const Exchange& call) { return call.blocks; }
static std::span<const Piece> parts_of(const Collective& call) { return call.pieces; }
static int phases_in(const Exchange& call) { return call.phases(); }
static int phases_in(const Collective& call) { return phases_of(call.kind); }

/// Orders one rank's exchange on GPUs, where the reads are queued on streams. Where the ranks'
/// threads wait for each other, their streams wait for what the other ranks have queued by then; no
/// thread waits for a GPU. Uses the stream that was current at construction. Does nothing for host
/// memory.
class ExchangeOrder {
 public:
  /// Serves a call whose published memory is on `device`.
  ExchangeOrder(const MemoryGroup& group, int rank, uint64_t sequence, Device device)
      : group_(group), rank_(rank), sequence_(sequence), device_(device) {
    if (!is_queued()) return;
    if (cuda::is_capturing()) {
      fail(group.name,
           ": the recorded work of a graph exchanges with threads of this process, "
           "expected ranks that are processes, each with a GPU");
    }
    stream_ = current_stream(device);
  }

  /// Records that the work that makes the published memory is queued.
  void posted() { mark(0); }
  /// Makes the stream wait until the others' memory for `phase` is valid: their posts for phase 0,
  /// their reads of the previous phase otherwise. Reads of `phase` may be queued afterwards.
  void await(int phase) {
    if (!is_queued()) return;
    for (int r = 0; r < group_.size(); ++r) {
      if (r == rank_) continue;
      const SlotEvents& events = group_.events(r, sequence_);
      if (phase == 0) check_reach(r, events.device);
      cuda::wait_event(stream_, events.points[static_cast<size_t>(phase)]);
    }
  }
  /// Records that the reads of `phase` are queued.
  void finished(int phase) { mark(1 + phase); }
  /// Makes the stream wait for all ranks' reads of the last phase; later work may overwrite what
  /// this rank has published.
  void ended(int last) {
    await(1 + last);
    if (is_queued()) end_ = Event::record(stream_);
  }
  /// Makes the current stream wait for the end.
  void join() const {
    if (end_.empty()) return;
    const Stream now = current_stream(device_);
    if (now != stream_) end_.wait(now);
  }
  /// Returns true when the GPU has reached the end.
  bool is_reached() const { return end_.empty() || end_.is_reached(); }

  /// The stream on which the reads are queued.
  const Stream& stream() const { return stream_; }

 private:
  bool is_queued() const { return device_.kind == DeviceKind::cuda; }

  void mark(int point) {
    if (!is_queued()) return;
    SlotEvents& events = group_.events(rank_, sequence_);
    if (events.device != device_) {
      for (StreamEvent*& event : events.points) {
        if (event) events.former.push_back(std::exchange(event, nullptr));
      }
      events.device = device_;
    }
    StreamEvent*& event = events.points[static_cast<size_t>(point)];
    if (event) {
      cuda::record_event(event, stream_);
    } else {
      event = cuda::create_event(stream_);
    }
  }

  void check_reach(int other, Device device) const {
    if (cuda::open_memory(device_.index, device.index)) return;
    fail(group_.name, ": ", device_, " of ", group_.in_words(rank_), " cannot read ", device,
         " of ", group_.in_words(other), "; make each rank a process (weft run)");
  }

  const MemoryGroup& group_;
  const int rank_;
  const uint64_t sequence_;
  const Device device_;
  Stream stream_;
  Event end_;
};

/// A pending exchange in memory, which every collective is: each rank publishes what the others
/// read, and when all have published, reads what it needs, phase by phase.
class ExchangeWork : public PendingWork {
 public:
  /// Publishes at once, unless the world is aborted. `reader` is used until the work is done.
  template <class Call>
  ExchangeWork(MemoryTransport& transport, const Call& call, ExchangeReader& reader)
      : PendingWork(transport.group(), transport.rank(), transport.next_collective()),
        transport_(transport),
        reader_(reader),
        phases_(phases_in(call)),
        slot_(group().slot(rank(), sequence())),
        publication_(group(), rank(), sequence()),
        order_(group(), rank(), sequence(), device_of(group(), parts_of(call))) {
    const std::optional<Claim> claim = transport_.take_claim();
    if (world().is_aborted()) refuse(call, claim);
    sign(call, claim, slot_.signature);
    post(publication_.publish(call));
    record(slot_.signature, transport_.counters());
  }

 private:
  bool advance() final {
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

  std::vector<int> missing() const final { return group().behind(sequence(), reached()); }

  const char* missed(int rank) const final {
    const uint64_t now = group().slot(rank, sequence()).progress.load(std::memory_order_acquire);
    return now < progress_at(kCallPosted) ? "call it" : "finish it";
  }

  std::string words() const final { return weft::in_words(slot_.signature); }
  void joined() final { order_.join(); }
  bool is_complete() const final { return order_.is_reached(); }

  void await_release() noexcept final {
    for (int r = 0; r < group().size(); ++r) {
      if (r == rank()) continue;
      wait_while(r, [&] {
        return group().slot(r, sequence()).reading.load(std::memory_order_seq_cst) == sequence();
      });
    }
  }

  /// Throws the failure. The slot keeps the earlier call, whose signature other ranks may be
  /// reading.
  template <class Call>
  [[noreturn]] void refuse(const Call& call, const std::optional<Claim>& claim) {
    Signature own;
    sign(call, claim, own);
    record(own, transport_.counters());
    flight().failed();
    const std::string operation = weft::in_words(own);
    throw world().echo(prefix() + operation, operation, number());
  }

  uint64_t progress_at(uint64_t within) const { return sequence() * kProgressRange + within; }
  /// This rank's progress, which all ranks must reach before it continues.
  uint64_t reached() const {
    return progress_at(phase_ < 0 ? kCallPosted : progress_after(phase_));
  }

  void post(const void* shown) {
    // Stored first: a rank still comparing hashes of the slot's previous call must see that the
    // slot has moved on.
    slot_.progress.store(progress_at(0), std::memory_order_relaxed);
    slot_.hash.store(slot_.signature.hash, std::memory_order_release);
    slot_.published = shown;
    slot_.is_eager = publication_.is_eager();
    order_.posted();
    slot_.progress.store(progress_at(kCallPosted), std::memory_order_release);
  }

  bool all_have_come() {
    const uint64_t target = reached();
    while (seen_ < group().size()) {
      const Slot& slot = group().slot(seen_, sequence());
      if (slot.progress.load(std::memory_order_acquire) < target) return false;
      ++seen_;
    }
    return true;
  }

  void begin_reading() {
    compare_signatures();
    reads_eager_buffers_ = phases_ > 0 && publication_.is_eager();
    for (int r = 0; reads_eager_buffers_ && r < group().size(); ++r) {
      reads_eager_buffers_ = group().slot(r, sequence()).is_eager;
    }
    flight().started();
  }

  void compare_signatures() {
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
  bool may_read() {
    if (reads_eager_buffers_) return true;
    // Set before the check for an abort: a rank that gives up keeps its memory as it is while
    // others read it.
    slot_.reading.store(sequence(), std::memory_order_seq_cst);
    if (!group().world->is_aborted()) return true;
    slot_.reading.store(0, std::memory_order_release);
    return false;
  }

  bool read_next_phase() {
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

  /// The published pointer of each rank.
  std::span<const void* const> shown() {
    std::vector<const void*>& published = transport_.published();
    for (int r = 0; r < group().size(); ++r) {
      published[static_cast<size_t>(r)] = group().slot(r, sequence()).published;
    }
    return published;
  }

  int64_t read_peers(int phase) {
    try {
      // The rounds are known once all ranks have published.
      if (phase == 0) phases_ *= reader_.rounds(shown());
      order_.await(phase);
      if (phase == 0) flight().begins_on(order_.stream());
      const StreamScope scope(order_.stream());
      const int64_t bytes = reader_.read(phase, shown());
      slot_.reading.store(0, std::memory_order_release);
      return bytes;
    } catch (const PeerMismatch& mismatch) {
      slot_.reading.store(0, std::memory_order_release);
      fail_with(concat(title(), ": ", group().in_words(mismatch.rank), mismatch.text),
                mismatch.rank);
    } catch (...) {
      slot_.reading.store(0, std::memory_order_release);
      throw;
    }
  }

  MemoryTransport& transport_;
  ExchangeReader& reader_;
  /// The phases of one round; once these are known, of all rounds.
  int phases_;
  /// The last phase that this rank has finished; -1: it has only published.
  int phase_ = -1;
  /// All ranks have published eagerly.
  bool reads_eager_buffers_ = false;
  /// The ranks below this one have `reached` it.
  int seen_ = 0;
  Slot& slot_;
  Publication publication_;
  ExchangeOrder order_;
};

/// Keeps a transport alive. As the first base it is destroyed after all else of an object.
struct KeptTransport {
  std::shared_ptr<Transport> kept;
};

/// A collective that runs while the caller continues.
class StartedCollective final : private KeptTransport,
                                private StoredCollective,
                                private CollectiveReader,
                                public ExchangeWork {
 public:
  StartedCollective(MemoryTransport& transport, const Collective& call)
      : KeptTransport{transport.shared_from_this()},
        StoredCollective(call),
        CollectiveReader(StoredCollective::call(), transport.rank()),
        ExchangeWork(transport, StoredCollective::call(), *this) {}
};

/// Waits until all ranks have read what a call published that has already ended for this rank.
class ReadersWork final : public PendingWork {
 public:
  ReadersWork(const MemoryGroup& group, int rank, uint64_t sequence, uint64_t progress)
      : PendingWork(group, rank, sequence), progress_(progress) {}

 private:
  bool advance() override { return missing().empty(); }
  std::vector<int> missing() const override { return group().behind(sequence(), progress_); }
  const char* missed(int) const override { return "finish it"; }
  void await_release() noexcept override {}
  std::string words() const override {
    return weft::in_words(group().slot(rank(), sequence()).signature);
  }

  const uint64_t progress_;
};

/// Destroys the events of exchanges.
MemoryGroup::~MemoryGroup() {
  for (const SlotEvents& events : events_) {
    for (StreamEvent* event : events.points) {
      if (event) cuda::destroy_event(event);
    }
    for (StreamEvent* event : events.former) cuda::destroy_event(event);
  }
}

MemoryTransport::MemoryTransport(const std::shared_ptr<MemoryGroup>& group, int rank)
    : Transport(rank, group),
      group_(*group),
      published_(group_.world_ranks.size()),
      sent_(group_.world_ranks.size()) {}

uint64_t MemoryTransport::next_collective() {
  const uint64_t sequence = ++collectives_;
  if (sequence > MemoryGroup::kSlots) {
    Waitable* user = Waitable::find(group_, sequence - MemoryGroup::kSlots);
    if (user) user->wait_quietly();
    await_readers(sequence - MemoryGroup::kSlots);
  }
  return sequence;
}

/// Other ranks are this far behind only when they have many pending calls.
void MemoryTransport::await_readers(uint64_t sequence) {
  uint64_t& progress = readers_[sequence % MemoryGroup::kSlots];
  if (progress > 0 && !group_.behind(sequence, progress).empty()) {
    ReadersWork(group_, rank_, sequence, progress).wait();
  }
  progress = 0;
}

Work MemoryTransport::start(const Collective& call) {
  if (is_message(call.kind)) return start_message(*this, call);
  return Work(std::make_unique<StartedCollective>(*this, call));
}

void MemoryTransport::run(const Collective& call) {
  if (is_message(call.kind)) return start(call).wait();
  CollectiveReader reader(call, rank_);
  ExchangeWork(*this, call, reader).wait();
}

void MemoryTransport::exchange(const Exchange& call, ExchangeReader& reader) {
  if (call.phases() < 1 || call.phases() > kMaxPhases) {
    fail("exchange: number of phases is ", call.phases(), ", expected 1 to ", kMaxPhases);
  }
  ExchangeWork(*this, call, reader).wait();
}

std::shared_ptr<Transport> MemoryTransport::subgroup(std::span<const int> ranks, std::string name) {
  return std::make_shared<MemoryTransport>(world()->group(subgroup_of(ranks, std::move(name))),
                                           index_among(ranks));
}

}  // namespace weft
