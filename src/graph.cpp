// SPDX-License-Identifier: Apache-2.0
#include "weft/graph.h"

#include "src/cuda/capture.h"
#include "src/cuda/runtime.h"
#include "weft/context.h"
#include "weft/error.h"

namespace weft {

static constexpr int kRunsBefore = 2;

static constexpr StreamRole kRoles[] = {StreamRole::compute, StreamRole::gather,
                                        StreamRole::scatter, StreamRole::copy};

Graph::Graph(Device device) : device_(device) {
  if (device.kind != DeviceKind::cuda) {
    fail("graph: a graph is of work on a GPU, not on ", device);
  }
  check_available(device);
  stream_ = {device, cuda::create_stream(device.index)};
}

Graph::~Graph() {
  let_all_wait();
  if (graph_) {
    cuda::synchronize(stream_);
    cuda::destroy_graph(graph_);
  }
  cuda::destroy_stream(device_.index, stream_.handle);
}

static constinit thread_local Graph* recording_now = nullptr;

/// Memory of this stream is used by nothing else: what the record takes and frees stays its own.
void Graph::run(const std::function<void()>& work) {
  if (recording_now) fail("graph: the recorded work runs a graph");
  wait_for_all();
  {
    const StreamScope scope(stream_);
    if (!graph_ && runs_ < kRunsBefore) {
      work();
      ++runs_;
    } else {
      if (!graph_) record(work);
      play();
    }
  }
  let_all_wait();
}

Graph* Graph::recording() { return recording_now; }

void Graph::before_each_play(std::function<void()> prepare) {
  if (recording_now != this) fail("graph: it does not record the calling thread's work now");
  preparations_.push_back(std::move(prepare));
}

void Graph::play() const {
  for (const auto& prepare : preparations_) prepare();
  cuda::play(graph_, stream_);
}

void Graph::record(const std::function<void()>& work) {
  const RandomState before = Context::current().random;
  preparations_.clear();
  cuda::begin_capture(stream_);
  recording_now = this;
  try {
    work();
    if (!(Context::current().random == before)) {
      fail("graph: the recorded work draws random numbers, which would be the same each time");
    }
  } catch (...) {
    recording_now = nullptr;
    cuda::drop_capture(stream_);
    throw;
  }
  recording_now = nullptr;
  graph_ = cuda::end_capture(stream_);
}

void Graph::wait_for_all() const {
  Event::record(current_stream(device_)).wait(stream_);
  for (const StreamRole role : kRoles) Event::record(stream_for(device_, role)).wait(stream_);
}

void Graph::let_all_wait() const {
  const Event end = Event::record(stream_);
  end.wait(current_stream(device_));
  for (const StreamRole role : kRoles) end.wait(stream_for(device_, role));
}

}  // namespace weft
