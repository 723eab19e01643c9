// SPDX-License-Identifier: Apache-2.0
#include "src/comm/nccl/nccl_transport.h"

#include "weft/error.h"

namespace weft {

NcclTransport::NcclTransport(std::shared_ptr<Transport> host)
    : Transport(host->rank(), host->size(), host->name()),
      host_transport_(std::move(host)),
      group_(std::make_shared<NcclGroup>(host_transport_)) {}

static bool is_on_gpu(const Collective& call) {
  return !call.pieces.empty() && call.pieces[0].device.kind == DeviceKind::cuda;
}

Work NcclTransport::start(const Collective& call) {
  if (!is_on_gpu(call)) return host_transport_->start(call);
  return group_->start(call);
}

void NcclTransport::run(const Collective& call) {
  if (!is_on_gpu(call)) return host_transport_->run(call);
  start(call).wait();
}

void NcclTransport::exchange(const Exchange& call, ExchangeReader& reader) {
  host_transport_->exchange(call, reader);
}

Work NcclTransport::start_exchange(const Exchange& call, std::unique_ptr<ExchangeReader> reader) {
  return host_transport_->start_exchange(call, std::move(reader));
}

std::shared_ptr<Transport> NcclTransport::subgroup(std::span<const int> ranks, std::string name) {
  return std::make_shared<NcclTransport>(host_transport_->subgroup(ranks, std::move(name)));
}

const CommunicatorTraffic& NcclTransport::traffic() const {
  sum_ = host_transport_->traffic();
  sum_.bytes += group_->received();
  sum_.collectives += group_->calls();
  return sum_;
}

std::shared_ptr<Transport> with_nccl(std::shared_ptr<Transport> host) {
  if (!nccl::is_present()) return host;
  return std::make_shared<NcclTransport>(std::move(host));
}

}  // namespace weft
