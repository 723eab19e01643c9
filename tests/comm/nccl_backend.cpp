// SPDX-License-Identifier: Apache-2.0
#include "tests/comm/nccl_backend.h"

#ifdef WEFT_WITH_CUDA
#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "src/comm/collective_parts.h"
#include "src/comm/nccl/calls.h"
#include "src/comm/transport.h"
#include "src/device/cuda/runtime.h"
#include "weft/communicator.h"
#include "weft/context.h"
#include "weft/ranks.h"
#include "weft/storage.h"
#endif

namespace weft {

#ifdef WEFT_WITH_CUDA

namespace {

/// The GPU of this rank's process.
Device gpu() {
  const int index = launched_local_rank().rank % std::max(1, cuda::device_count());
  return {DeviceKind::cuda, static_cast<int8_t>(index)};
}

/// Host memory of one piece, and its copy on a device.
struct Staged {
  std::byte* host = nullptr;
  size_t bytes = 0;
  Ref<Storage> device = {};

  std::byte* begin() const { return host; }
  std::byte* end() const { return host + bytes; }
  void* on_device(const void* at) const {
    const auto offset = static_cast<const std::byte*>(at) - host;
    return static_cast<std::byte*>(device->data()) + offset;
  }
  void upload() {
    device = Storage::allocate(std::max<size_t>(bytes, 1), gpu());
    if (bytes > 0) cuda::send_to_device(device->data(), host, bytes, current_stream(gpu()));
  }
};

/// The staged memory that a piece sends and receives: one block if they overlap.
struct StagedPiece {
  Staged send, recv;
  bool are_one = false;

  StagedPiece(const Piece& piece, const PieceSizes& sizes) {
    auto* sent = static_cast<std::byte*>(const_cast<void*>(piece.send));
    auto* received = static_cast<std::byte*>(piece.recv);
    send = {sent, sent ? static_cast<size_t>(sizes.send) * size_of(piece.dtype) : 0};
    recv = {received, received ? static_cast<size_t>(sizes.recv) * size_of(piece.recv_dtype) : 0};
    if (send.bytes > 0 && recv.bytes > 0 && send.begin() < recv.end() &&
        recv.begin() < send.end()) {
      are_one = true;
      std::byte* end = std::max(send.end(), recv.end());
      send.host = std::min(send.begin(), recv.begin());
      send.bytes = static_cast<size_t>(end - send.host);
    }
    send.upload();
    if (!are_one) recv.upload();
  }

  Piece on_device(const Piece& piece) const {
    Piece moved = piece;
    moved.device = gpu();
    if (piece.send) moved.send = send.on_device(piece.send);
    if (piece.recv) moved.recv = (are_one ? send : recv).on_device(piece.recv);
    return moved;
  }

  void download() const {
    if (recv.bytes == 0) return;
    const Staged& from = are_one ? send : recv;
    cuda::read_from_device(recv.host, from.on_device(recv.host), recv.bytes, current_stream(gpu()));
  }
};

class StagedWork final : private StoredCollective, public Work::State {
 public:
  StagedWork(Transport& gpus, const Collective& call) : StoredCollective(call) {
    std::vector<Piece> moved;
    for (const Piece& piece : this->call().pieces) {
      PieceSizes sizes = sizes_of(call, piece, gpus.rank());
      // The root of a broadcast may have memory to receive its own data.
      if (call.kind == CollectiveKind::broadcast) sizes.recv = piece.counts[0];
      pieces_.emplace_back(piece, sizes);
      moved.push_back(pieces_.back().on_device(piece));
    }
    Collective on_device = this->call();
    on_device.pieces = moved;
    work_ = gpus.start(on_device);
  }

  void wait() override {
    work_.wait();
    for (const StagedPiece& piece : pieces_) piece.download();
    pieces_.clear();
  }
  bool test() override {
    wait();
    return true;
  }
  void drop() noexcept override {
    try {
      wait();
    } catch (const std::exception&) {  // already reported
    }
  }

 private:
  std::vector<StagedPiece> pieces_;
  Work work_;
};

class StagingTransport final : public Transport {
 public:
  explicit StagingTransport(std::shared_ptr<Transport> gpus)
      : Transport(gpus->rank(), gpus->members()), gpus_(std::move(gpus)) {}

  bool in_memory(DeviceKind kind) const override { return gpus_->in_memory(kind); }
  Work start(const Collective& call) override {
    const bool is_message = call.kind == CollectiveKind::send || call.kind == CollectiveKind::recv;
    if (is_message || call.pieces.empty()) return gpus_->start(call);
    return Work(std::make_unique<StagedWork>(*gpus_, call));
  }
  void exchange(const Exchange& call, ExchangeReader& reader) override {
    gpus_->exchange(call, reader);
  }
  std::shared_ptr<Transport> subgroup(std::span<const int> ranks, std::string name) override {
    return std::make_shared<StagingTransport>(gpus_->subgroup(ranks, std::move(name)));
  }
  void abort(const std::string& reason) override { gpus_->abort(reason); }
  const CommunicatorTraffic& traffic() const override { return gpus_->traffic(); }

 private:
  std::shared_ptr<Transport> gpus_;
};

}  // namespace

bool has_emulated_nccl() {
#ifdef WEFT_CUDA_EMULATED
  return cuda::device_count() > 0;
#else
  return false;
#endif
}

Communicator by_way_of_gpus(const Communicator& world) {
  return Communicator(std::make_shared<StagingTransport>(world.transport()));
}

void run_without_peers(int ranks, const std::function<void(Communicator)>& body,
                       const RunOptions& options) {
  run_ranks(
      ranks, [&](Communicator world) { body(Communicator(with_nccl(world.transport()))); },
      options);
}

void run_on_nccl(int ranks, const std::function<void(Communicator)>& body) {
  run_without_peers(ranks, [&](Communicator world) { body(by_way_of_gpus(world)); });
}

void run_on_nccl_in_rank_order(int ranks, const std::function<void(Communicator)>& body) {
  use_deterministic_algorithms(true);
  run_on_nccl(ranks, body);
  use_deterministic_algorithms(false);
}

#else

bool has_emulated_nccl() { return false; }
Communicator by_way_of_gpus(const Communicator& world) { return world; }
void run_on_nccl(int, const std::function<void(Communicator)>&) {}
void run_on_nccl_in_rank_order(int, const std::function<void(Communicator)>&) {}
void run_without_peers(int, const std::function<void(Communicator)>&, const RunOptions&) {}

#endif

}  // namespace weft
