// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "src/comm/transport.h"

namespace weft {

/// A transport whose ranks do not see each other's memory: another one's collectives, without its
/// exchanges. Plans and fetches then send what they would read.
class ByMessages final : public Transport {
 public:
  explicit ByMessages(std::shared_ptr<Transport> inner)
      : Transport(inner->rank(), inner->members()), inner_(std::move(inner)) {}

  const CommunicatorTraffic& traffic() const override { return inner_->traffic(); }
  void claim(uint64_t hash, std::string_view words) override { inner_->claim(hash, words); }
  std::optional<Claim> take_claim() override { return inner_->take_claim(); }
  bool in_memory(DeviceKind) const override { return false; }
  Work start(const Collective& call) override { return inner_->start(call); }
  void run(const Collective& call) override { inner_->run(call); }
  std::shared_ptr<Transport> split(int color, int key, std::string name) override {
    return wrapped(inner_->split(color, key, std::move(name)));
  }
  std::shared_ptr<Transport> subgroup(std::span<const int> ranks, std::string name) override {
    return wrapped(inner_->subgroup(ranks, std::move(name)));
  }
  void abort(const std::string& reason) override { inner_->abort(reason); }

 private:
  static std::shared_ptr<Transport> wrapped(std::shared_ptr<Transport> inner) {
    return inner ? std::make_shared<ByMessages>(std::move(inner)) : nullptr;
  }

  std::shared_ptr<Transport> inner_;
};

}  // namespace weft
