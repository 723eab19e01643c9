// SPDX-License-Identifier: Apache-2.0
#include "src/comm/nccl/calls.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/comm/flight/record.h"
#include "src/device/cuda/runtime.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/graph.h"

namespace weft {

namespace {

/// A queued call, which is already ordered in its stream.
class NcclWork final : public Work::State {
 public:
  NcclWork(std::shared_ptr<Transport> host, std::shared_ptr<NcclLane> lane, NcclCallName call,
           const Stream& stream, Event event, std::optional<FlightOperation> flight)
      : host_transport_(std::move(host)),
        lane_(std::move(lane)),
        call_(std::move(call)),
        stream_(stream),
        event_(std::move(event)),
        is_recorded_(!flight),
        flight_(flight.value_or(FlightOperation())),
        exceptions_(std::uncaught_exceptions()) {}

  void wait() override {
    lane_->check(call_);
    if (is_joined_) return;
    join();
    flight_.ended();
  }

  bool test() override {
    lane_->check(call_);
    return event_.is_reached();
  }

  void drop() noexcept override {
    if (is_joined_) return;
    try {
      if (!is_recorded_ && std::uncaught_exceptions() > exceptions_)
        host_transport_->abort(call_.title());
      join();
      flight_.ended();
    } catch (const std::exception&) {  // a device error, which its next call reports
      flight_.failed();
    }
  }

 private:
  /// Makes the current stream wait for the call.
  void join() {
    is_joined_ = true;
    const Stream now = current_stream(stream_.device);
    if (now.handle != stream_.handle) event_.wait(now);
  }

  const std::shared_ptr<Transport> host_transport_;
  const std::shared_ptr<NcclLane> lane_;
  const NcclCallName call_;
  const Stream stream_;
  const Event event_;
  /// Recorded in a graph: not in progress itself.
  const bool is_recorded_;
  FlightOperation flight_;
  const int exceptions_;
  bool is_joined_ = false;
};

Device device_of(const Collective& call) {
  const Device device = call.pieces[0].device;
  for (const Piece& piece : call.pieces) {
    if (piece.device == device) continue;
    fail(name_of(call.kind), ": a piece is on ", piece.device, ", expected ", device,
         ", the device of the first one");
  }
  return device;
}

/// Encodes how a call is carried out, which must be the same on all ranks.
uint64_t variant_of(int role, bool is_recorded) {
  return static_cast<uint64_t>(role) << 2 | (is_recorded ? 2 : 0) |
         (uses_deterministic_algorithms() ? 1 : 0);
}

/// A call recorded in a graph.
struct RecordedCall {
  NcclCallName call;
  /// How it is carried out, for NcclAgreement.
  uint64_t variant = 0;
  std::shared_ptr<NcclLane> lane;
  /// Bytes received from other ranks per replay.
  int64_t bytes = 0;
};

class NcclTransport;

/// The calls of a group in one graph, in order. Each replay starts them anew: they are numbered,
/// compared between ranks, counted and watched.
struct RecordedCalls {
  /// Must outlive its lanes.
  std::shared_ptr<NcclTransport> group;
  uint64_t capture = 0;
  std::vector<RecordedCall> calls = {};
  /// Flight records of the calls in progress.
  std::vector<FlightOperation> flights = {};

  /// The end of a replay: its calls are done when the stream reaches this point.
  void queued(Device device) {
    const Event event = Event::record(current_stream(device));
    for (const RecordedCall& call : calls) call.lane->queued(event);
    for (FlightOperation& flight : flights) flight.ended();
  }
};

/// One rank's end of a group whose GPU memory is exchanged by NCCL: communicators, one per role of
/// the current stream, created at the first call on it. Calls are queued on the current stream; the
/// host waits for the other ranks at the first call of a role, at every 64th and at each
/// all_to_all. Calls recorded in a graph are repeated by each replay.
class NcclTransport final : public Transport {
 public:
  /// `host` is the group's end for host memory; it must have a world. `pair`: its members, with
  /// names, if it is a group for messages.
  explicit NcclTransport(std::shared_ptr<Transport> host, std::shared_ptr<const Members> pair = {})
      : Transport(host->rank(), pair ? pair : host->members()), host_transport_(std::move(host)) {}

  void claim(uint64_t hash, std::string_view words) override {
    host_transport_->claim(hash, words);
  }
  std::optional<Claim> take_claim() override { return host_transport_->take_claim(); }
  bool in_memory(DeviceKind kind) const override {
    return kind != DeviceKind::cuda && host_transport_->in_memory(kind);
  }
  /// All pieces must be on one GPU, or none. Messages between two ranks' GPUs are received in the
  /// order in which they were sent; tags are ignored.
  Work start(const Collective& call) override {
    if (!is_on_gpu(call)) return host_transport_->start(call);
    return (is_message(call.kind) ? pair_with(call.root) : *this).start_here(call);
  }
  void run(const Collective& call) override {
    if (!is_on_gpu(call)) return host_transport_->run(call);
    start(call).wait();
  }
  void exchange(const Exchange& call, ExchangeReader& reader) override {
    host_transport_->exchange(call, reader);
  }
  std::shared_ptr<Transport> subgroup(std::span<const int> ranks, std::string name) override {
    return std::make_shared<NcclTransport>(host_transport_->subgroup(ranks, std::move(name)));
  }
  void abort(const std::string& reason) override { host_transport_->abort(reason); }
  void count(bool calls) override { host_transport_->count(calls); }
  const CommunicatorTraffic& traffic() const override {
    sum_ = host_transport_->traffic();
    add_gpu_traffic(sum_);
    return sum_;
  }

 private:
  static bool is_on_gpu(const Collective& call) {
    return !call.pieces.empty() && call.pieces[0].device.kind == DeviceKind::cuda;
  }

  /// Adds the calls made and the bytes received so far on GPUs.
  void add_gpu_traffic(CommunicatorTraffic& sum) const {
    sum.bytes += traffic_.bytes;
    sum.collectives += static_cast<int64_t>(calls_);
    for (const auto& [other, pair] : pairs_) pair->add_gpu_traffic(sum);
  }

  /// Returns the group of this rank and `other`, for messages; errors name them as this group does.
  NcclTransport& pair_with(int other) {
    if (const auto found = pairs_.find(other); found != pairs_.end()) return *found->second;
    const std::array<int, 2> ranks{std::min(rank_, other), std::max(rank_, other)};
    auto host = host_transport_->subgroup(ranks, concat(name(), '/', ranks[0], "-", ranks[1]));
    const auto members = std::make_shared<Members>(*host->members());
    for (const int rank : ranks) members->names.push_back(members_->in_words(rank));
    auto pair = std::make_shared<NcclTransport>(std::move(host), members);
    return *pairs_.emplace(other, std::move(pair)).first->second;
  }

  Work start_here(const Collective& call) {
    if (Graph* graph = Graph::recording()) return record(call, *graph);
    const Stream stream = current_stream(device_of(call));
    const int role = cuda::role_of(stream);
    const NcclCallName name = named(call, ++calls_);
    if (!control_) {
      std::vector<int> all(static_cast<size_t>(size_));
      std::iota(all.begin(), all.end(), 0);
      control_ = host_transport_->subgroup(all, members_->name + "/nccl");
      agreement_.emplace(members_, control_);
    }
    agreement_->add(name, variant_of(role, false));
    compare_counts(call, name);
    const std::shared_ptr<NcclLane> lane = lane_for(stream, role, name);
    lane->begin(name);
    FlightOperation flight = observed(name, received_by(call));
    flight.begins_on(stream);
    queue(call, name, *lane, stream);
    flight.ends_on(stream);
    const Event event = Event::record(stream);
    lane->queued(event);
    return Work(std::make_unique<NcclWork>(host_transport_, lane, name, stream, event, flight));
  }

  Work record(const Collective& call, Graph& graph) {
    const Stream stream = current_stream(device_of(call));
    if (stream.device != graph.device()) {
      fail("graph: ", name(), " exchanges memory on ", stream.device, ", expected ", graph.device(),
           ", whose work is recorded");
    }
    const int role = cuda::role_of(stream);
    const auto found = lanes_.find({stream.device.index, role});
    if (found == lanes_.end()) {
      fail(name(),
           ": the recorded work of a graph makes a new kind of exchange, expected those of its run "
           "before the record");
    }
    const std::shared_ptr<NcclLane>& lane = found->second;
    const std::shared_ptr<RecordedCalls> recorded = recorded_by(graph);
    const NcclCallName name = named(call, calls_ + recorded->calls.size() + 1);
    compare_counts(call, name);
    lane->outlives_calls();
    queue(call, name, *lane, stream);
    recorded->calls.push_back({name, variant_of(role, true), lane, received_by(call)});
    const Event event = Event::record(stream);
    return Work(
        std::make_unique<NcclWork>(host_transport_, lane, name, stream, event, std::nullopt));
  }

  std::shared_ptr<RecordedCalls> recorded_by(Graph& graph) {
    const uint64_t capture = cuda::capture_number();
    std::shared_ptr<RecordedCalls> recorded = recorded_.lock();
    if (recorded && recorded->capture == capture) return recorded;
    recorded = std::make_shared<RecordedCalls>(
        RecordedCalls{std::static_pointer_cast<NcclTransport>(shared_from_this()), capture});
    recorded_ = recorded;
    graph.around_each_play([recorded] { recorded->group->begin_again(*recorded); },
                           [recorded, device = graph.device()] { recorded->queued(device); });
    return recorded;
  }

  void begin_again(RecordedCalls& graph) {
    graph.flights.clear();
    const uint64_t last = calls_ + graph.calls.size();
    for (RecordedCall& call : graph.calls) {
      call.call.number = ++calls_;
      call.call.last_of_graph = last;
      agreement_->add(call.call, call.variant);
      call.lane->begin(call.call);
      graph.flights.push_back(observed(call.call, call.bytes));
    }
  }

  int64_t received_by(const Collective& call) const { return received_bytes(call, rank_, size_); }

  /// Counts a call in which this rank receives `bytes`, and adds it to the rank's flight record, if
  /// it keeps one.
  FlightOperation observed(const NcclCallName& call, int64_t bytes) {
    traffic_.bytes += bytes;
    FlightRecord* const record = Context::current().flight.get();
    if (!record) return {};
    FlightOperation flight = record->begin(name(), call.signature, call.number);
    flight.started();
    flight.received(bytes);
    return flight;
  }

  NcclCallName named(const Collective& call, uint64_t number) const {
    NcclCallName named{name(), number};
    const bool is_sent = is_message(call.kind);
    sign(call, is_sent ? std::nullopt : host_transport_->take_claim(), named.signature);
    // Both ends of a message have the same signature.
    if (is_sent) {
      named.signature.hash = static_cast<uint64_t>(call.pieces[0].dtype) ^
                             static_cast<uint64_t>(call.pieces[0].counts[0]) << 8;
    }
    return named;
  }

  std::shared_ptr<NcclLane> lane_for(const Stream& stream, int role, const NcclCallName& call) {
    const std::pair<int, int> key{stream.device.index, role};
    if (const auto found = lanes_.find(key); found != lanes_.end()) return found->second;
    nccl::UniqueId id{};
    if (control_->rank() == 0) id = nccl::new_id();
    const int64_t count = id.size();
    const Piece piece{
        .send = id.data(), .recv = id.data(), .dtype = DType::u8, .counts = {&count, 1}};
    control_->run({.kind = CollectiveKind::broadcast, .pieces = {&piece, 1}});
    auto lane = std::make_shared<NcclLane>(members_, rank_, id, stream.device, call);
    return lanes_.emplace(key, std::move(lane)).first->second;
  }

  /// When the two ranks of a pair differ, NCCL would hang or read wrong elements.
  void compare_counts(const Collective& call, const NcclCallName& name) {
    if (call.kind != CollectiveKind::all_to_all) return;
    agreement_->compare_counts(name, call.pieces[0].counts, call.recv_counts);
  }

  void queue(const Collective& call, const NcclCallName& name, NcclLane& lane,
             const Stream& stream) {
    const bool in_rank_order = uses_deterministic_algorithms();
    const NcclProgram program = program_of(call, rank_, size_, in_rank_order);
    for (const NcclRound& round : program.rounds) {
      lane.queue(name, round.moves, stream);
      for (const NcclStep& step : round.steps) run_step(step);
    }
  }

  const std::shared_ptr<Transport> host_transport_;
  /// A group of the same ranks, for host messages about their GPUs.
  std::shared_ptr<Transport> control_;
  std::optional<NcclAgreement> agreement_;
  uint64_t calls_ = 0;
  /// Keyed by device and role.
  std::map<std::pair<int, int>, std::shared_ptr<NcclLane>> lanes_;
  std::map<int, std::shared_ptr<NcclTransport>> pairs_;
  /// The calls of the current or last recording.
  std::weak_ptr<RecordedCalls> recorded_;
  mutable CommunicatorTraffic sum_;
};

}  // namespace

std::shared_ptr<Transport> with_nccl(std::shared_ptr<Transport> host) {
  if (!nccl::is_present()) return host;
  return std::make_shared<NcclTransport>(std::move(host));
}

}  // namespace weft
