// SPDX-License-Identifier: Apache-2.0
#include "train/host_copies.h"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <span>
#include <sstream>
#include <string_view>
#include <utility>

#include "weft/error.h"
#include "weft/extend/file.h"
#include "weft/extend/hash.h"

namespace weft {

namespace fs = std::filesystem;

static constexpr int64_t kChunk = int64_t{4} << 20;

/// The name that a file has while it is received.
static std::string name_under_way(const std::string& path) {
  const fs::path whole(path);
  return whole.parent_path() / concat('.', whole.filename().string(), ".tmp");
}

/// The step of "step-<step>-<generation>", or -1.
static int64_t step_of_name(const std::string& name) {
  constexpr std::string_view kStep = "step-";
  if (!name.starts_with(kStep)) return -1;
  return std::atoll(name.c_str() + kStep.size());
}

/// The number of files of the copy of "rank-00001-of-00004.safetensors", or 0.
static size_t files_of_copy(const std::string& name) {
  constexpr std::string_view kOf = "-of-";
  const size_t at = name.find(kOf);
  return at == name.npos ? 0 : static_cast<size_t>(std::atoll(name.c_str() + at + kOf.size()));
}

/// Calls `work` unless there is a mistake, and keeps its error as the mistake.
template <class Work> static void attempt(std::string& mistake, const Work& work) {
  if (!mistake.empty()) return;
  try {
    work();
  } catch (const CommError&) {
    throw;
  } catch (const std::exception& error) {
    mistake = error.what();
  }
}

HostCopies::HostCopies(const Communicator& world, std::string folder)
    : world_(world), folder_(std::move(folder)) {
  const auto own = static_cast<int64_t>(xxh3_of(std::as_bytes(std::span(folder_))));
  const std::vector<int64_t> folders = world.all_gather_numbers(std::span(&own, 1));
  std::map<int64_t, size_t> host_of;
  for (size_t rank = 0; rank < folders.size(); ++rank) {
    const size_t host = host_of.emplace(folders[rank], hosts_.size()).first->second;
    if (host == hosts_.size()) hosts_.emplace_back();
    if (static_cast<int>(rank) == world.rank()) {
      host_ = static_cast<int>(host);
      local_ = static_cast<int>(hosts_[host].size());
    }
    hosts_[host].push_back(static_cast<int>(rank));
  }
  for (const auto& ranks : hosts_) {
    if (ranks.size() == hosts_[0].size()) continue;
    fail("trainer: number of ranks on the host of rank ", ranks[0], " is ", ranks.size(),
         ", expected ", hosts_[0].size(), ", as on the host of rank 0, for copies in memory");
  }
}

std::string HostCopies::agreed(const std::string& mistake) const {
  const int64_t none = world_.size();
  const int64_t first =
      world_.all_reduce_number(mistake.empty() ? none : world_.rank(), ReduceOp::min);
  return first == none ? "" : world_.broadcast(mistake, static_cast<int>(first));
}

void HostCopies::exchange(const Parcel& sent, const Parcel& received, std::string& mistake) const {
  std::vector<std::byte> out(static_cast<size_t>(std::min(sent.bytes, kChunk)));
  std::vector<std::byte> in(static_cast<size_t>(std::min(received.bytes, kChunk)));
  std::optional<File> from;
  std::optional<OutputFile> to;
  if (sent.rank >= 0) attempt(mistake, [&] { from.emplace("mirror", sent.path); });
  if (received.rank >= 0) {
    attempt(mistake, [&] {
      fs::create_directories(fs::path(received.path).parent_path());
      to.emplace("mirror", name_under_way(received.path), OutputFile::Mode::replace_own);
    });
  }
  // After a mistake the bytes go on, without meaning: the other rank awaits them.
  for (int64_t at = 0; at < std::max(sent.bytes, received.bytes); at += kChunk) {
    const int64_t given = std::clamp(sent.bytes - at, int64_t{0}, kChunk);
    const int64_t taken = std::clamp(received.bytes - at, int64_t{0}, kChunk);
    Work arrival, departure;
    if (taken > 0) arrival = world_.recv(in.data(), taken, DType::u8, received.rank);
    if (given > 0) {
      attempt(mistake, [&] { from->read(at, std::span(out).first(static_cast<size_t>(given))); });
      departure = world_.send(out.data(), given, DType::u8, sent.rank);
    }
    arrival.wait();
    departure.wait();
    if (taken == 0) continue;
    attempt(mistake, [&] {
      to->write({reinterpret_cast<const char*>(in.data()), static_cast<size_t>(taken)});
    });
  }
  if (to) attempt(mistake, [&] { to->close(); });
}

/// Gives a received file its name.
static void finish_file(const std::string& path) { fs::rename(name_under_way(path), path); }

static std::string name_of_file(int rank, int ranks) {
  return formatted("rank-%05d-of-%05d.safetensors", rank, ranks);
}

std::string HostCopies::mirror(const std::string& name, const std::string& mistake) {
  std::string found = mistake;
  const auto file_of = [&](int rank) {
    return concat(path(name), '/', name_of_file(rank, world_.size()));
  };
  const std::string own = file_of(world_.rank());
  int64_t bytes = 0;
  if (hosts_.size() > 1) {
    attempt(found, [&] { bytes = static_cast<int64_t>(fs::file_size(own)); });
  }
  found = agreed(found);
  if (!found.empty() || hosts_.size() == 1) return found;
  const std::vector<int64_t> sizes = world_.all_gather_numbers(std::span(&bytes, 1));
  const size_t hosts = hosts_.size(), here = static_cast<size_t>(host_);
  const auto place = static_cast<size_t>(local_);
  const int next = hosts_[(here + 1) % hosts][place];
  const int before = hosts_[(here + hosts - 1) % hosts][place];
  const Parcel received{file_of(before), sizes[static_cast<size_t>(before)], before};
  exchange({own, bytes, next}, received, found);
  found = agreed(found);
  if (!found.empty()) return found;
  attempt(found, [&] { finish_file(received.path); });
  return agreed(found);
}

HostCopies::Files HostCopies::files_here() const {
  Files files;
  std::error_code error;
  for (const auto& copy : fs::directory_iterator(folder_, error)) {
    const std::string name = copy.path().filename().string();
    if (step_of_name(name) < 0) continue;
    std::error_code ignored;
    for (const auto& file : fs::directory_iterator(copy.path(), ignored)) {
      const std::string own = file.path().filename().string();
      // A name that begins with a dot is that of a file that was not finished.
      if (!own.starts_with('.')) {
        files[name][own] = static_cast<int64_t>(file.file_size(ignored));
      }
    }
  }
  return files;
}

std::vector<HostCopies::Files> HostCopies::files_of_hosts() const {
  std::string own;
  if (is_first()) {
    for (const auto& [name, files] : files_here()) {
      for (const auto& [file, bytes] : files) own += concat(name, ' ', file, ' ', bytes, '\n');
    }
  }
  std::vector<Files> all;
  for (const auto& ranks : hosts_) {
    std::istringstream lines(world_.broadcast(own, ranks[0]));
    all.emplace_back();
    std::string name, file;
    for (int64_t bytes = 0; lines >> name >> file >> bytes;) all.back()[name][file] = bytes;
  }
  return all;
}

std::vector<std::string> HostCopies::names() const {
  Files whole;
  for (const Files& files : files_of_hosts()) {
    for (const auto& [name, some] : files) whole[name].insert(some.begin(), some.end());
  }
  std::vector<std::string> found;
  for (const auto& [name, files] : whole) {
    if (files_of_copy(files.begin()->first) == files.size()) found.push_back(name);
  }
  std::ranges::stable_sort(
      found, [](const auto& a, const auto& b) { return step_of_name(a) > step_of_name(b); });
  return found;
}

bool HostCopies::complete(const std::string& name) {
  std::vector<Files> hosts = files_of_hosts();
  std::map<std::string, size_t> holders;
  for (size_t host = 0; host < hosts.size(); ++host) {
    for (const auto& [file, bytes] : hosts[host][name]) holders.emplace(file, host);
  }
  std::string mistake;
  std::vector<std::string> received;
  size_t place = 0;
  for (const auto& [file, holder] : holders) {
    const int64_t bytes = hosts[holder][name][file];
    // The ranks of a host share the work.
    const size_t at = place++ % hosts_[0].size();
    const int giver = hosts_[holder][at];
    for (size_t host = 0; host < hosts.size(); ++host) {
      if (hosts[host][name].contains(file)) continue;
      const int taker = hosts_[host][at];
      const Parcel parcel{concat(path(name), '/', file), bytes, taker};
      if (world_.rank() == giver) exchange(parcel, {}, mistake);
      if (world_.rank() != taker) continue;
      received.push_back(parcel.path);
      exchange({}, {parcel.path, bytes, giver}, mistake);
    }
  }
  std::string found = agreed(mistake);
  if (found.empty()) {
    attempt(mistake, [&] { std::ranges::for_each(received, finish_file); });
    found = agreed(mistake);
  }
  if (!found.empty() && world_.rank() == 0) {
    warn("the copy ", name, " in the memory of the hosts is passed over: ", found);
  }
  return found.empty();
}

void HostCopies::keep_only(const std::string& name, int64_t step) {
  if (!is_first()) return;
  std::error_code ignored;
  std::vector<fs::path> old;
  for (const auto& copy : fs::directory_iterator(folder_, ignored)) {
    const std::string other = copy.path().filename().string();
    const int64_t its = step_of_name(other);
    // The folder also holds the lease of the saver.
    if (its >= 0 && its < step && other != name) old.push_back(copy.path());
  }
  for (const fs::path& path : old) fs::remove_all(path, ignored);
}

void HostCopies::remove() {
  world_.barrier();
  std::error_code ignored;
  if (is_first()) fs::remove_all(folder_, ignored);
  world_.barrier();
}

}  // namespace weft
