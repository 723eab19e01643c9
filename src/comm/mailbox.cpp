// SPDX-License-Identifier: Apache-2.0
#include "src/comm/mailbox.h"

#include <algorithm>

namespace weft {

Letter* Mailbox::take(int from, int tag) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(letters_.begin(), letters_.end(), [&](const Letter* letter) {
    return letter->from == from && letter->tag == tag;
  });
  if (found == letters_.end()) return nullptr;
  Letter* letter = *found;
  letters_.erase(found);
  return letter;
}

bool Mailbox::withdraw(const Letter& letter) {
  const std::lock_guard lock(mutex_);
  return std::erase(letters_, &letter) > 0;
}

}  // namespace weft
