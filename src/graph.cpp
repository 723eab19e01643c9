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

/// Memory of this stream is used by nothing else: what the record takes and frees stays its own.
void Graph::run(const std::function<void()>& work) {
  wait_for_all();
  {
    const StreamScope scope(stream_);
    if (!graph_ && runs_ < kRunsBefore) {
      work();
      ++runs_;
    } else {
      if (!graph_) record(work);
      cuda::play(graph_, stream_);
    }
  }
  let_all_wait();
}

void Graph::record(const std::function<void()>& work) {
  const RandomState before = Context::current().random;
  cuda::begin_capture(stream_);
  try {
    work();
    if (!(Context::current().random == before)) {
      fail("graph: the recorded work draws random numbers, which would be the same each time");
    }
  } catch (...) {
    cuda::drop_capture(stream_);
    throw;
  }
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
