// SPDX-License-Identifier: Apache-2.0
#include "weft/trace.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "ops/engine/backward_run.h"
#include "ops/engine/engine.h"
#include "ops/engine/trace_recorder.h"
#include "src/base/trace_file.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/file.h"
#include "weft/extend/module_trace.h"
#include "weft/storage.h"

namespace weft {

/// Lanes of a trace: ops and spans, then collectives (several lanes if they overlap), then GPU
/// streams.
static constexpr int kOpsLane = 0, kFirstCollectivesLane = 1, kFirstStreamLane = 1000;

bool TraceRecorder::has_room() {
  if (events() < most_) return true;
  ++dropped_;
  return false;
}

/// "shapes", "bytes" of the local elements, and "module" as members of a JSON object.
const std::string* TraceRecorder::described(const void* module, std::span<const Tensor> tensors) {
  std::string shapes;
  int64_t bytes = 0;
  for (const Tensor& tensor : tensors) {
    if (!tensor) continue;
    bytes += layout_of(tensor)->box.shape.product() * static_cast<int64_t>(size_of(tensor.dtype()));
    shapes += concat(shapes.empty() ? "" : ", ", tensor.dtype(), ' ', tensor.shape());
  }
  std::string members = concat("\"shapes\":", json_quoted(shapes), ",\"bytes\":", bytes);
  if (const auto path = of_module_.find(module); path != of_module_.end()) {
    members += concat(",\"module\":", json_quoted(*path->second));
  }
  return kept(members);
}

void TraceRecorder::name_module(const void* module, const std::string& path) {
  of_module_[module] = kept(path);
}

void TraceRecorder::add_module(const void* module, int64_t begin, std::span<const Tensor> inputs) {
  const int64_t end = ticks_now();
  const auto name = of_module_.find(module);
  if (name == of_module_.end() || !has_room()) return;
  timed_.push_back({begin, end, name->second, true, false, -1, described(nullptr, inputs)});
  memory_.push_back({end, memory_statistics(DeviceKind::cpu).total.current,
                     memory_statistics(DeviceKind::cuda).total.current});
}

void TraceRecorder::add_op(const OpBody& op, int64_t begin, int64_t bytes,
                           std::span<const Tensor> operands) {
  const int64_t end = ticks_now();
  if (!has_room()) return;
  timed_.push_back({begin, end, kept(op.spec.name), false, is_in_backward(), bytes,
                    described(Context::current().scope, operands)});
}

void TraceRecorder::add_span(const char* name, int64_t begin, int64_t number) {
  const int64_t end = ticks_now();
  if (!has_room()) return;
  timed_.push_back({begin, end, kept(name), true, false, number});
}

void TraceRecorder::add_stream_span(const char* name, const StreamTimes::Mark& begin, bool waits,
                                    int64_t number) {
  if (!has_room()) return;
  streams_.add(begin, waits ? StreamWork::wait : StreamWork::span,
               number < 0 ? std::string(name) : concat(name, ' ', number));
}

StreamTimes::Mark TraceRecorder::mark(const Stream& stream) {
  return events() < most_ ? streams_.mark(stream) : StreamTimes::Mark();
}

void TraceRecorder::ended(const FlightCopy& operation) {
  begun_.erase(operation.number);
  if (const auto queued = queued_.find(operation.number); queued != queued_.end()) {
    streams_.rename(queued->second, concat(name_of(operation.call.kind), ' ',
                                           operation.communicator.data(), ' ', operation.sequence));
    queued_.erase(queued);
  }
  if (has_room()) collectives_.push_back(operation);
}

void TraceRecorder::begins_on(uint64_t operation, const Stream& stream) {
  const StreamTimes::Mark begin = mark(stream);
  if (begin.time) begun_[operation] = begin;
}

void TraceRecorder::ends_on(uint64_t operation) {
  const auto begun = begun_.find(operation);
  if (begun == begun_.end()) return;
  if (has_room()) {
    queued_[operation] = streams_.add(begun->second, StreamWork::collective, "collective");
  }
  begun_.erase(begun);
}

/// Stops recording on the calling rank.
static void detach(TraceRecorder* recorder) {
  Engine& observed = Engine::current();
  if (observed.trace != recorder) return;
  observed.trace = nullptr;
  Context::current().flight->set_listener(nullptr);
}

TraceScope::TraceScope(int64_t most_events) {
  if (most_events < 1) fail("trace: room for events must be at least 1, got ", most_events);
  Engine& observed = Engine::current();
  if (observed.trace) fail("trace: the rank has one already, expected none");
  recorder_ = std::make_unique<TraceRecorder>(most_events);
  Context& context = Context::current();
  // The record stays with the rank: operations in flight when the trace ends still refer to it.
  if (!context.flight) context.flight = std::make_shared<FlightRecord>(0, 1);
  context.flight->set_listener(recorder_.get());
  observed.trace = recorder_.get();
}

TraceScope::~TraceScope() { detach(recorder_.get()); }

int64_t TraceScope::events() const { return recorder_->events(); }
int64_t TraceScope::dropped() const { return recorder_->dropped(); }

struct TraceSpan::OnStream {
  StreamTimes::Mark begin;
};

TraceSpan::TraceSpan(const char* name, int64_t number, Device device, Time time)
    : recorder_(Engine::current().trace), name_(name), number_(number), begin_(0), time_(time) {
  if (recorder_) {
    begin_ = ticks_now();
    if (device.kind == DeviceKind::cuda) {
      const StreamTimes::Mark begin = recorder_->mark(current_stream(device));
      if (begin.time) on_stream_ = std::make_unique<OnStream>(OnStream{begin});
    }
  }
  number < 0 ? cuda::begin_range(name) : cuda::begin_range(name, number);
}

TraceSpan::~TraceSpan() {
  cuda::end_range();
  // Skipped if the trace has ended meanwhile.
  if (!recorder_ || recorder_ != Engine::current().trace) return;
  recorder_->add_span(name_, begin_, number_);
  try {
    if (on_stream_) {
      recorder_->add_stream_span(name_, on_stream_->begin, time_ == Time::waits, number_);
    }
  } catch (const std::exception&) {  // a device error, which the next CUDA call reports
  }
}

bool ModuleTrace::is_active() { return Engine::current().trace != nullptr; }

bool ModuleTrace::has_name(const void* module) { return Engine::current().trace->has_name(module); }

void ModuleTrace::set_name(const void* module, const std::string& path) {
  Engine::current().trace->name_module(module, path);
}

ModuleTrace::ModuleTrace(const void* module, std::span<const Tensor> inputs)
    : module_(module), inputs_(inputs), begin_(ticks_now()) {}

ModuleTrace::~ModuleTrace() {
  if (TraceRecorder* trace = Engine::current().trace) trace->add_module(module_, begin_, inputs_);
}

TraceOverlap TraceScope::overlap(const char* span) const {
  std::vector<std::pair<int64_t, int64_t>> within;
  for (const TraceRecorder::Event& event : recorder_->timed()) {
    if (event.is_span && *event.name == span) {
      within.emplace_back(event.begin, event.end);
    }
  }
  if (within.size() > 1) within.erase(within.begin());
  TraceOverlap overlap{.spans = static_cast<int64_t>(within.size())};
  if (within.empty()) return overlap;
  std::vector<StreamStretch> stretches = recorder_->streams().stretches();
  std::erase_if(stretches, [&](const StreamStretch& stretch) {
    return std::ranges::none_of(within, [&](const auto& times) {
      return times.first <= stretch.queued && stretch.queued <= times.second;
    });
  });
  const CommunicationTime time = communication_time(stretches);
  const double scale = 1e-9 / static_cast<double>(overlap.spans);
  overlap.communication = scale * static_cast<double>(time.all);
  overlap.exposed = scale * static_cast<double>(time.exposed);
  return overlap;
}

void TraceScope::note(const std::string& name, double value) {
  if (value - value != 0) fail("trace: note ", name, " is ", value, ", expected a finite number");
  notes_ += concat(',', json_quoted(name), ':', value);
}

static void write_timed(const TraceRecorder& recorder, const TickScale& scale,
                        TraceEvents& events) {
  for (const TraceRecorder::Event& event : recorder.timed()) {
    const TraceTimes times{scale.steady(event.begin), scale.steady(event.end)};
    const std::string& name = *event.name;
    if (event.is_span) {
      const bool is_numbered = event.number >= 0;
      events.add(kOpsLane, event.detail ? "span,module" : "span",
                 is_numbered ? concat(name, ' ', event.number) : name, times,
                 event.detail ? *event.detail : "");
    } else {
      events.add(kOpsLane, event.backward ? "op,backward" : "op", name, times,
                 concat("\"bytes_moved\":", event.number, ',', *event.detail));
    }
  }
}

static void write_memory(const TraceRecorder& recorder, const TickScale& scale,
                         TraceEvents& events) {
  for (const TraceRecorder::MemorySample& sample : recorder.memory()) {
    events.add_counter("memory", scale.steady(sample.time),
                       concat("\"cpu\":", sample.cpu, ",\"cuda\":", sample.cuda));
  }
}

static void write_collectives(const TraceRecorder& recorder, const TickScale& scale,
                              TraceEvents& events) {
  std::vector<TraceCollective> all;
  for (const FlightCopy& one : recorder.collectives()) {
    const int64_t posted = scale.steady(one.posted);
    all.push_back({.kind = std::string(name_of(one.call.kind)),
                   .communicator = one.communicator.data(),
                   .words = one.in_words(),
                   .state = std::string(name_of(one.state)),
                   .sequence = one.sequence,
                   .bytes = one.bytes,
                   .times = {posted, scale.steady(one.ended)},
                   .waited = one.started ? scale.steady(one.started) - posted : -1});
  }
  events.add_collectives(kFirstCollectivesLane, all);
}

static std::string name_of_stream(const StreamStretch& stretch) {
  static constexpr const char* kNames[] = {"compute", "gather", "scatter", "copy", "side", "graph"};
  static_assert(std::size(kNames) == kStreamRoles + 1);
  return concat("cuda:", stretch.device, ' ', kNames[stretch.role]);
}

static void write_stretches(const TraceRecorder& recorder, TraceEvents& events) {
  std::set<int> named;
  for (const StreamStretch& stretch : recorder.streams().stretches()) {
    static constexpr const char* kCategories[] = {"gpu,span", "gpu,wait", "gpu,collective"};
    const int lane = kFirstStreamLane + stretch.device * (kStreamRoles + 1) + stretch.role;
    if (named.insert(lane).second) events.name_lane(lane, name_of_stream(stretch));
    events.add(lane, kCategories[static_cast<size_t>(stretch.work)], stretch.name,
               {stretch.begin, stretch.end}, "");
  }
}

/// `origin`: wall time in nanoseconds from which the times in the file count.
static std::string rank_part(const TraceRecorder& recorder, int rank, const TickScale& scale,
                             int64_t origin) {
  // Events are in the steady clock's time.
  TraceEvents events(rank, origin + scale.anchor_steady() - scale.anchor_wall());
  const int64_t dropped = recorder.dropped();
  events.name_process(dropped ? concat(dropped, " later events dropped") : "");
  events.name_lane(kOpsLane, "ops");
  write_timed(recorder, scale, events);
  write_memory(recorder, scale, events);
  write_collectives(recorder, scale, events);
  write_stretches(recorder, events);
  return events.text();
}

static int64_t first_time(const TraceRecorder& recorder, const TickScale& scale) {
  int64_t first = scale.anchor_steady();
  for (const auto& event : recorder.timed()) first = std::min(first, scale.steady(event.begin));
  for (const auto& one : recorder.collectives()) first = std::min(first, scale.steady(one.posted));
  return first + scale.anchor_wall() - scale.anchor_steady();
}

namespace {

/// The trace file, on rank 0.
class TraceFile {
 public:
  TraceFile(const std::string& path, std::string notes) : notes_(std::move(notes)) {
    attempt([&] {
      file_.emplace("trace", path, OutputFile::Mode::replace);
      file_->write(kTraceHead);
    });
  }
  void add(int rank, const std::string& part, int64_t dropped) {
    attempt([&] {
      if (rank) file_->write(kTraceComma);
      file_->write(part);
    });
    dropped_ += concat(rank ? "," : "", "\"rank ", rank, "\":", dropped);
  }
  /// Throws only after all ranks have sent their parts, so that none waits for rank 0.
  void finish() {
    attempt([&] {
      file_->write(trace_tail(concat("\"dropped_events\":{", dropped_, "}", notes_)));
      file_->close();
    });
    if (!wrong_.empty()) throw_runtime_error(wrong_);
  }

 private:
  /// Does nothing after a failure, and keeps its text.
  template <class Work> void attempt(const Work& work) {
    if (!wrong_.empty()) return;
    try {
      work();
    } catch (const std::exception& error) {
      wrong_ = error.what();
    }
  }

  std::string notes_;
  std::optional<OutputFile> file_;
  std::string wrong_;
  std::string dropped_;
};

}  // namespace

void TraceScope::write(const Communicator& world, const std::string& path) {
  detach(recorder_.get());
  const TickScale scale = TickScale::measured();
  const int64_t origin = world.all_reduce_number(first_time(*recorder_, scale), ReduceOp::min);
  std::string part = rank_part(*recorder_, world.rank(), scale, origin);
  std::array<int64_t, 2> head{static_cast<int64_t>(part.size()), recorder_->dropped()};
  const auto& [bytes, dropped] = head;
  if (world.rank() != 0) {
    world.send(head.data(), 2, i64, 0).wait();
    return world.send(part.data(), bytes, u8, 0).wait();
  }
  TraceFile file(path, notes_);
  file.add(0, part, dropped);
  for (int rank = 1; rank < world.size(); ++rank) {
    world.recv(head.data(), 2, i64, rank).wait();
    part.resize(static_cast<size_t>(bytes));
    world.recv(part.data(), bytes, u8, rank).wait();
    file.add(rank, part, dropped);
  }
  file.finish();
}

}  // namespace weft
