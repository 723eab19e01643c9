// SPDX-License-Identifier: Apache-2.0
#include "src/comm/memory/memory_transport.h"

#include "src/comm/memory/exchange_work.h"
#include "src/comm/memory/message_work.h"
#include "src/comm/read_collective.h"

namespace weft {

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
        ExchangeWork(transport, StoredCollective::call(), this) {}
};

class StartedExchange final : private KeptTransport, public ExchangeWork {
 public:
  StartedExchange(MemoryTransport& transport, const Exchange& call,
                  std::unique_ptr<ExchangeReader> reader)
      : KeptTransport{transport.shared_from_this()},
        ExchangeWork(transport, call, reader.get()),
        reader_(std::move(reader)) {}

 private:
  std::unique_ptr<ExchangeReader> reader_;
};

/// Waits until all ranks have read what a call published that has already ended for this rank.
class ReadersWork final : public PendingWork {
 public:
  ReadersWork(const MemoryGroup& group, int rank, uint64_t sequence, uint64_t progress)
      : PendingWork(group, rank, sequence), progress_(progress) {}

 private:
  bool advance() override { return group().all_reached(sequence(), progress_); }
  std::vector<int> missing() const override { return group().behind(sequence(), progress_); }
  const char* missed(int) const override { return "finish it"; }
  void retreat() noexcept override {}
  std::string words() const override {
    return weft::in_words(group().slot(rank(), sequence()).signature);
  }

  const uint64_t progress_;
};

MemoryTransport::MemoryTransport(std::shared_ptr<MemoryGroup> group, int rank)
    : Transport(rank, group->size(), group->name),
      group_(std::move(group)),
      published_(group_->world_ranks.size()),
      sent_(group_->world_ranks.size()) {}

uint64_t MemoryTransport::next_collective() {
  const uint64_t sequence = ++collectives_;
  if (sequence > MemoryGroup::kSlots) {
    Waitable* user = Waitable::find(*group_, sequence - MemoryGroup::kSlots);
    if (user) user->wait_quietly();
    await_readers(sequence - MemoryGroup::kSlots);
  }
  return sequence;
}

/// Other ranks are this far behind only when they have many pending calls.
void MemoryTransport::await_readers(uint64_t sequence) {
  uint64_t& progress = readers_[sequence % MemoryGroup::kSlots];
  if (progress > 0 && !group_->all_reached(sequence, progress)) {
    ReadersWork(*group_, rank_, sequence, progress).wait();
  }
  progress = 0;
}

Work MemoryTransport::start(const Collective& call) {
  if (call.kind == CollectiveKind::send) return Work(std::make_unique<SendWork>(*this, call));
  if (call.kind == CollectiveKind::recv) return Work(std::make_unique<RecvWork>(*this, call));
  return Work(std::make_unique<StartedCollective>(*this, call));
}

void MemoryTransport::run(const Collective& call) {
  if (is_message(call.kind)) return start(call).wait();
  CollectiveReader reader(call, rank_);
  ExchangeWork(*this, call, &reader).wait();
}

static void check_phases(const Exchange& call) {
  if (call.phases() >= 1 && call.phases() <= kMaxPhases) return;
  fail("exchange: number of phases is ", call.phases(), ", expected 1 to ", kMaxPhases);
}

void MemoryTransport::exchange(const Exchange& call, ExchangeReader& reader) {
  check_phases(call);
  ExchangeWork(*this, call, &reader).wait();
}

Work MemoryTransport::start_exchange(const Exchange& call, std::unique_ptr<ExchangeReader> reader) {
  check_phases(call);
  return Work(std::make_unique<StartedExchange>(*this, call, std::move(reader)));
}

std::shared_ptr<Transport> MemoryTransport::subgroup(std::span<const int> ranks, std::string name) {
  std::vector<int64_t> key{static_cast<int64_t>(group_->id)};
  std::vector<int> members;
  for (const int rank : ranks) {
    members.push_back(group_->world_rank(rank));
    key.push_back(rank);
  }
  key.push_back(subgroups_[key]++);
  return std::make_shared<MemoryTransport>(group_->world->group(key, members, name),
                                           index_among(ranks));
}

}  // namespace weft
