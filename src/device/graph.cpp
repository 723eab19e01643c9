// SPDX-License-Identifier: Apache-2.0
#include "weft/graph.h"

#include "src/device/cuda/runtime.h"
#include "src/device/memory.h"
#include "weft/context.h"
#include "weft/error.h"

namespace weft {

static constexpr int kRunsBefore = 2;

static constexpr StreamRole kRoles[] = {StreamRole::compute, StreamRole::gather,
                                        StreamRole::scatter, StreamRole::copy, StreamRole::side};

Graph::Graph(Device device) : device_(device) {
  if (device.kind != DeviceKind::cuda) {
    fail("graph: device is ", device, ", expected a GPU");
  }
  check_available(device);
  stream_ = {device, cuda::create_stream(device.index)};
}

Graph::~Graph() {
  try {
    let_all_wait();
    if (graph_) cuda::synchronize(stream_);
  } catch (...) {
    // The device has failed, which its next call reports.
  }
  if (graph_) {
    cuda::destroy_graph(graph_);
    forget_record();
  }
  cuda::destroy_stream(device_.index, stream_.handle);
}

void Graph::forget_record() noexcept {
  before_.clear();
  around_.clear();
  // Memory of another thread's heap is released when that thread ends.
  if (owner_ == std::this_thread::get_id()) Heap::current().give_up_capture(capture_);
}

WEFT_STATIC_TLS static constinit thread_local Graph* recording_now = nullptr;

void Graph::run(const std::function<void()>& work) {
  if (recording_now) fail("graph: the recorded work runs a graph, expected none");
  wait_for_all();
  try {
    const StreamScope scope(stream_);
    if (!graph_ && runs_ < kRunsBefore) {
      work();
      ++runs_;
    } else {
      if (!graph_) record(work);
      play();
    }
  } catch (...) {
    let_all_wait();  // what was queued may still use memory that is now free
    throw;
  }
  let_all_wait();
}

Graph* Graph::recording() { return recording_now; }

static void check_records(const Graph* graph) {
  if (recording_now != graph)
    fail("graph: it does not record now, expected a call within the recorded work");
}

void Graph::before_each_play(std::function<void()> prepare) {
  check_records(this);
  before_.push_back(std::move(prepare));
}

void Graph::around_each_play(std::function<void()> begin, std::function<void()> end) {
  check_records(this);
  around_.emplace_back(std::move(begin), std::move(end));
}

/// Steps that may throw come before steps that other ranks notice.
void Graph::play() const {
  for (const auto& prepare : before_) prepare();
  for (const auto& [begin, end] : around_) begin();
  cuda::play(graph_, stream_);
  for (const auto& [begin, end] : around_) end();
}

void Graph::record(const std::function<void()>& work) {
  const RandomState before = Context::current().random;
  // Memory that earlier runs freed must not enter the record, which allocates its own.
  Heap::current().release_cached();
  cuda::begin_capture(stream_);
  capture_ = cuda::capture_number();
  recording_now = this;
  try {
    work();
    if (!(Context::current().random == before)) {
      fail(
          "graph: the recorded work draws random numbers, expected none: they would be equal each "
          "time");
    }
    wait_for_roles();  // joins the streams that took part, as the end of a capture requires
    graph_ = cuda::end_capture(stream_);
  } catch (...) {
    recording_now = nullptr;
    cuda::drop_capture(stream_);
    forget_record();
    throw;
  }
  recording_now = nullptr;
}

void Graph::wait_for_all() const {
  Event::record(current_stream(device_)).wait(stream_);
  wait_for_roles();
}

void Graph::wait_for_roles() const {
  for (const StreamRole role : kRoles) Event::record(stream_for(device_, role)).wait(stream_);
}

void Graph::let_all_wait() const {
  const Event end = Event::record(stream_);
  end.wait(current_stream(device_));
  for (const StreamRole role : kRoles) end.wait(stream_for(device_, role));
}

}  // namespace weft
