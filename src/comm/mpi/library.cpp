// SPDX-License-Identifier: Apache-2.0
#include "src/comm/mpi/library.h"

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "src/comm/waiter.h"
#include "src/comm/world.h"

namespace weft {

constinit const LoadedLibrary kMpiLibrary(WEFT_MPI_FILE, WEFT_MPI_DIRECTORY, true);

/// Sets variables that Open MPI reads at startup, unless the user has set them.
static void set_knobs() {
  // With single copy, a receiver reads the sender's memory even after the sender has aborted.
  setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
  // The default is 4 KiB, which would split a short message in two.
  setenv("OMPI_MCA_btl_vader_eager_limit", "16384", 0);
  const char* local_ranks = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  if (local_ranks && std::atoi(local_ranks) > available_cores()) {
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
  }
}

static void end_late_start(const std::stop_token& stop, std::chrono::milliseconds deadline,
                           EndProcess end_process) {
  if (stops_within(stop, deadline)) return;
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (!rank) rank = std::getenv("PMIX_RANK");
  end_process(concat("connect: MPI did not begin within ", deadline.count(), " ms on rank ",
                     rank ? rank : "(unknown)",
                     ": another rank did not come, or the hosts do not reach each other (mpirun "
                     "--mca btl_tcp_if_include NETWORK says by which network)",
                     kAllConnect));
}

/// Bytes of a process's text, the last of which is 0.
static constexpr int kMpiTextBytes = 1001;

MpiSession::MpiSession(std::string_view text, std::chrono::milliseconds deadline,
                       EndProcess end_process) {
  const std::jthread watch(end_late_start, deadline, end_process);
  int finalized = 0;
  check_mpi(MPI_Finalized(&finalized), "MPI_Finalized");
  if (finalized) fail_call("MPI_Finalized", "the program has finalised MPI already");
  int initialized = 0;
  int level = MPI_THREAD_SINGLE;
  check_mpi(MPI_Initialized(&initialized), "MPI_Initialized");
  if (initialized) {
    check_mpi(MPI_Query_thread(&level), "MPI_Query_thread");
    if (level < MPI_THREAD_MULTIPLE) {
      fail_call("MPI_Query_thread", "the program initialised MPI with thread level ", level,
                "; weft, whose thread calls MPI too, needs MPI_THREAD_MULTIPLE (",
                MPI_THREAD_MULTIPLE, ')');
    }
  } else {
    set_knobs();
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread");
    owns_mpi_ = true;
    if (level < MPI_THREAD_SERIALIZED) {
      fail_call("MPI_Init_thread", "this MPI gives thread level ", level,
                "; weft needs MPI_THREAD_SERIALIZED (", MPI_THREAD_SERIALIZED, ')');
    }
  }
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "MPI_Comm_dup");
  check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
  std::string own(text.substr(0, kMpiTextBytes - 1)), all;
  own.resize(kMpiTextBytes);
  all.resize(own.size() * static_cast<size_t>(size_));
  check_mpi(MPI_Allgather(own.data(), kMpiTextBytes, MPI_BYTE, all.data(), kMpiTextBytes, MPI_BYTE,
                          comm_),
            "MPI_Allgather");
  for (size_t at = 0; at < all.size(); at += own.size()) texts_.emplace_back(&all[at]);
}

int MpiSession::greatest_tag() const {
  int* tag = nullptr;
  int found = 0;
  check_mpi(MPI_Comm_get_attr(comm_, MPI_TAG_UB, &tag, &found), "MPI_Comm_get_attr");
  return found ? *tag : 32767;  // the standard's minimum
}

void MpiSession::end() {
  check_mpi(MPI_Comm_free(&comm_), "MPI_Comm_free");
  if (owns_mpi_) check_mpi(MPI_Finalize(), "MPI_Finalize");
}

static constexpr int kMessageTag = 0;

MpiShortMessages::MpiShortMessages(MPI_Comm comm) : comm_(comm), buffers_(new Buffer[kBuffers]) {
  for (size_t i = 0; i < kBuffers; ++i) post_next();
}

void MpiShortMessages::post_next() {
  check_mpi(MPI_Irecv(buffers_[front_].bytes.data(), static_cast<int>(kMpiMessageBytes), MPI_BYTE,
                      MPI_ANY_SOURCE, kMessageTag, comm_, &awaited_[front_]),
            "MPI_Irecv");
  front_ = (front_ + 1) % kBuffers;
}

const MpiShortMessages::Buffer* MpiShortMessages::arrived() {
  int done = 0;
  MPI_Status status;
  check_mpi(MPI_Test(&awaited_[front_], &done, &status), "MPI_Test");
  if (!done) return nullptr;
  int bytes = 0;
  check_mpi(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
  from_ = status.MPI_SOURCE;
  length_ = static_cast<size_t>(bytes) - sizeof(MpiHeader);
  return &buffers_[front_];
}

std::unique_ptr<MpiShortMessages::Buffer> MpiShortMessages::free_buffer() {
  if (free_buffers_.empty()) return std::unique_ptr<Buffer>(new Buffer);
  std::unique_ptr<Buffer> buffer = std::move(free_buffers_.back());
  free_buffers_.pop_back();
  return buffer;
}

void MpiShortMessages::send(int to, const MpiHeader& header, MpiPayload words,
                            const MpiSegments& data) {
  std::unique_ptr<Buffer> buffer = free_buffer();
  std::byte* at = buffer->bytes.data();
  const auto add = [&](const void* bytes, size_t size) {
    if (size > 0) std::memcpy(at, bytes, size);
    at += padded(static_cast<int64_t>(size));
  };
  add(&header, sizeof header);
  add(words.data(), words.size());
  for (const MpiSegment& segment : data) add(segment.data, static_cast<size_t>(segment.bytes));
  // Without data the words are not padded, so that their length is preserved.
  const auto end = data.empty() ? buffer->bytes.data() + sizeof header + words.size() : at;
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Isend(buffer->bytes.data(), static_cast<int>(end - buffer->bytes.data()), MPI_BYTE,
                      to, kMessageTag, comm_, &request),
            "MPI_Isend");
  leaving_.push_back(request);
  leaving_buffers_.push_back(std::move(buffer));
}

bool MpiShortMessages::all_sent() {
  for (size_t i = 0; i < leaving_.size();) {
    int done = 0;
    check_mpi(MPI_Test(&leaving_[i], &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (!done) {
      ++i;
      continue;
    }
    free_buffers_.push_back(std::move(leaving_buffers_[i]));
    leaving_buffers_[i] = std::move(leaving_buffers_.back());
    leaving_buffers_.pop_back();
    leaving_[i] = leaving_.back();
    leaving_.pop_back();
  }
  return leaving_.empty();
}

void MpiShortMessages::close() {
  for (MPI_Request& request : awaited_) {
    check_mpi(MPI_Cancel(&request), "MPI_Cancel");
    check_mpi(MPI_Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait");
  }
}

void MpiBulk::start(const MpiTransfer& transfer, MpiWork& owner, uint64_t token) {
  const auto [sends, segment, peer, tag] = transfer;
  const auto bytes = static_cast<int>(segment.bytes);
  MPI_Request request = MPI_REQUEST_NULL;
  if (sends) {
    check_mpi(MPI_Isend(segment.data, bytes, MPI_BYTE, peer, tag, comm_, &request), "MPI_Isend");
  } else {
    check_mpi(MPI_Irecv(segment.data, bytes, MPI_BYTE, peer, tag, comm_, &request), "MPI_Irecv");
  }
  requests_.push_back(request);
  owners_.push_back({&owner, token});
}

void MpiBulk::take_ended() {
  if (requests_.empty()) return;
  indices_.resize(requests_.size());
  int count = 0;
  check_mpi(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count,
                         indices_.data(), MPI_STATUSES_IGNORE),
            "MPI_Testsome");
  if (count <= 0) return;
  // Reports transfers in the order in which they were started; compaction below keeps that order.
  std::sort(indices_.begin(), indices_.begin() + count);
  for (int i = 0; i < count; ++i) {
    ended_.push_back(owners_[static_cast<size_t>(indices_[static_cast<size_t>(i)])]);
  }
  size_t kept = 0;
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    requests_[kept] = requests_[i];
    owners_[kept++] = owners_[i];
  }
  requests_.resize(kept);
  owners_.resize(kept);
}

}  // namespace weft
