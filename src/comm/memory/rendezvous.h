// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "src/device/shared_memory.h"

namespace weft {

/// The processes of one host that belong to one job.
struct HostMembers {
  /// Equal for the processes of a job, and for no others of the user.
  std::string key;
  /// This process's number among them, and how many they are.
  int index = 0;
  int count = 1;
  /// Equal in all of them, or they refuse each other.
  std::string build;
};

/// Memory that the processes of a host have in common, mapped at the same addresses in each.
struct HostMemory {
  std::shared_ptr<SharedMemory> segment;
  /// One for each process.
  std::vector<std::shared_ptr<SharedMemory>> heaps;
};

/// Meets the other processes over a socket without a file, and hands the memory round. Processes of
/// other users are not let in, and cannot stop a meeting by taking its name: process 0 draws a part
/// of it, and the others find it in the system's list of sockets. std::runtime_error naming those
/// that did not come in time, and a process of another build; both end it in all processes.
HostMemory meet(const HostMembers& members, size_t segment_bytes,
                std::chrono::milliseconds deadline);

/// 64 random bits as 16 hexadecimal digits.
std::string random_digits();

}  // namespace weft
