// SPDX-License-Identifier: Apache-2.0
#include "weft/warnings.h"

#include <memory>
#include <mutex>
#include <utility>

namespace weft {

static std::mutex handler_mutex;
/// Never destroyed: threads may warn while the process exits.
static auto& warning_handler = *new std::shared_ptr<const WarningHandler>;

WarningHandler set_warning_handler(WarningHandler handler) {
  std::shared_ptr<const WarningHandler> next;
  if (handler) next = std::make_shared<const WarningHandler>(std::move(handler));
  const std::lock_guard lock(handler_mutex);
  const auto before = std::exchange(warning_handler, std::move(next));
  return before ? *before : WarningHandler();
}

void give_warning(const std::string& sentence) {
  std::shared_ptr<const WarningHandler> handler;
  {
    const std::lock_guard lock(handler_mutex);
    handler = warning_handler;
  }
  if (handler) (*handler)(sentence);
}

}  // namespace weft
