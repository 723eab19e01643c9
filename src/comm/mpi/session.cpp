// SPDX-License-Identifier: Apache-2.0
#include "src/comm/mpi/session.h"

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "src/comm/waiter.h"
#include "weft/error.h"

namespace weft {

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
  if (!rank) rank = std::getenv("PMI_RANK");
  if (!rank) rank = std::getenv("PMIX_RANK");
  end_process(concat("connect: MPI did not begin within ", deadline.count(), " ms on rank ",
                     rank ? rank : "(unknown)",
                     ": another rank did not come, or the hosts do not reach each other (mpirun "
                     "--mca btl_tcp_if_include NETWORK says by which network)",
                     kAllConnect));
}

/// Bytes of a process's text, the last of which is 0.
static constexpr int kTextBytes = 1001;

std::unique_ptr<MpiSession> MpiSession::of_job(std::string_view text,
                                               std::chrono::milliseconds deadline,
                                               EndProcess end_process) {
  const std::jthread watch(end_late_start, deadline, end_process);
  const MpiLibrary& mpi = MpiLibrary::of_job();
  int is_initialized = 0, is_finalized = 0, is_main = 0;
  mpi.check(mpi->state(&is_initialized, &is_finalized), "MPI_Initialized");
  if (is_finalized) fail_call("MPI_Finalized", "the program has finalised MPI already");
  if (!is_initialized) {
    set_knobs();
    mpi.check(mpi->init(), "MPI_Init_thread");
    MpiLevel level = MpiLevel::single;
    mpi.check(mpi->level(&level, &is_main), "MPI_Query_thread");
    if (level < MpiLevel::serialized) {
      fail_call("MPI_Init_thread", "this MPI gives thread level ", static_cast<int>(level),
                "; weft needs MPI_THREAD_SERIALIZED (2): ", mpi.in_words());
    }
  }
  auto session = std::make_unique<MpiSession>(mpi, mpi->world, text, deadline);
  session->owns_mpi_ = !is_initialized;
  return session;
}

MpiSession::MpiSession(const MpiLibrary& library, MpiHandle comm, std::string_view text,
                       std::chrono::milliseconds deadline)
    : library_(library) {
  const MpiLibrary& mpi = library_;
  int is_main = 0, is_inter = 0;
  mpi.check(mpi->level(&level_, &is_main), "MPI_Query_thread");
  // The memory that MPI writes to until a collective is complete; it outlives one that some do not
  // join.
  struct Joint {
    MpiHandle comm = 0, request = 0;
    std::string own, all;
  };
  auto joint = std::make_unique<Joint>();
  joint->request = mpi->null_request;
  const auto complete = [&] {
    try {
      await(joint->request, deadline);
    } catch (...) {
      static_cast<void>(joint.release());
      throw;
    }
  };
  mpi.check(mpi->duplicate(comm, &joint->comm, &joint->request), "MPI_Comm_idup");
  complete();
  comm_ = joint->comm;
  mpi.check(mpi->return_errors(comm_), "MPI_Comm_set_errhandler");
  mpi.check(mpi->describe(comm_, &rank_, &size_, &is_inter), "MPI_Comm_rank");
  std::string &own = joint->own, &all = joint->all;
  own = text.substr(0, kTextBytes - 1);
  own.resize(kTextBytes);
  all.resize(own.size() * static_cast<size_t>(size_));
  mpi.check(mpi->all_gather(own.data(), all.data(), kTextBytes, comm_, &joint->request),
            "MPI_Iallgather");
  complete();
  for (size_t at = 0; at < all.size(); at += own.size()) texts_.emplace_back(&all[at]);
}

MpiSession::MpiSession(const MpiLibrary& library, MpiProcesses processes)
    : library_(library),
      comm_(processes.comm),
      rank_(processes.rank),
      size_(static_cast<int>(processes.texts.size())),
      texts_(std::move(processes.texts)),
      loss_of_(std::move(processes.loss_of)),
      owns_mpi_(true) {}

/// Completes a collective of MPI that all processes call.
void MpiSession::await(MpiHandle& request, std::chrono::milliseconds deadline) const {
  const bool all_came = wait_until(20, deadline, [&] {
    int is_done = 0;
    library_.check(library_->test(&request, &is_done, nullptr), "MPI_Test");
    return is_done != 0;
  });
  if (all_came) return;
  fail_call("connect", "within ", deadline.count(),
            " ms not all processes of the MPI communicator called connect: ", library_.in_words());
}

int MpiSession::greatest_tag() const {
  int tag = 0;
  library_.check(library_->greatest_tag(comm_, &tag), "MPI_Comm_get_attr");
  return tag;
}

void MpiSession::end() {
  int is_initialized = 0, is_finalized = 0;
  library_.check(library_->state(&is_initialized, &is_finalized), "MPI_Finalized");
  if (is_finalized) return;  // by the program
  library_.check(library_->free(&comm_), "MPI_Comm_free");
  if (owns_mpi_) library_.check(library_->finalize(), "MPI_Finalize");
}

static constexpr int kMessageTag = 0;

MpiShortMessages::MpiShortMessages(const MpiSession& session)
    : mpi_(session.library()), comm_(session.comm()), buffers_(new Buffer[kBuffers]) {
  for (size_t i = 0; i < kBuffers; ++i) post_next();
}

void MpiShortMessages::post_next() {
  mpi_.check(mpi_->receive(buffers_[front_].bytes.data(), static_cast<int>(kMpiMessageBytes), -1,
                           kMessageTag, comm_, &awaited_[front_]),
             "MPI_Irecv");
  front_ = (front_ + 1) % kBuffers;
}

const MpiShortMessages::Buffer* MpiShortMessages::arrived() {
  int done = 0;
  MpiArrival arrival{};
  mpi_.check(mpi_->test(&awaited_[front_], &done, &arrival), "MPI_Test");
  if (!done) return nullptr;
  from_ = arrival.from;
  if (arrival.bytes < static_cast<int>(sizeof(MpiHeader))) fail_malformed(from_);
  length_ = static_cast<size_t>(arrival.bytes) - sizeof(MpiHeader);
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
  MpiHandle request = mpi_->null_request;
  mpi_.check(mpi_->send(buffer->bytes.data(), static_cast<int>(end - buffer->bytes.data()), to,
                        kMessageTag, comm_, &request),
             "MPI_Isend");
  leaving_.push_back(request);
  leaving_buffers_.push_back(std::move(buffer));
}

bool MpiShortMessages::all_sent() {
  for (size_t i = 0; i < leaving_.size();) {
    int done = 0;
    mpi_.check(mpi_->test(&leaving_[i], &done, nullptr), "MPI_Test");
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
  for (MpiHandle& request : awaited_) mpi_.check(mpi_->cancel(&request), "MPI_Cancel");
}

void MpiBulk::start(const MpiTransfer& transfer, MpiWork& owner, uint64_t token) {
  const auto [sends, segment, peer, tag] = transfer;
  const auto bytes = static_cast<int>(segment.bytes);
  MpiHandle request = mpi_->null_request;
  if (sends) {
    mpi_.check(mpi_->send(segment.data, bytes, peer, tag, comm_, &request), "MPI_Isend");
  } else {
    mpi_.check(mpi_->receive(segment.data, bytes, peer, tag, comm_, &request), "MPI_Irecv");
  }
  requests_.push_back(request);
  owners_.push_back({&owner, token});
}

void MpiBulk::take_ended() {
  if (requests_.empty()) return;
  indices_.resize(requests_.size());
  int count = 0;
  mpi_.check(mpi_->test_some(static_cast<int>(requests_.size()), requests_.data(), &count,
                             indices_.data()),
             "MPI_Testsome");
  if (count <= 0) return;
  // Reports transfers in the order in which they were started; compaction below keeps that order.
  std::sort(indices_.begin(), indices_.begin() + count);
  for (int i = 0; i < count; ++i) {
    ended_.push_back(owners_[static_cast<size_t>(indices_[static_cast<size_t>(i)])]);
  }
  size_t kept = 0;
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == mpi_->null_request) continue;
    requests_[kept] = requests_[i];
    owners_[kept++] = owners_[i];
  }
  requests_.resize(kept);
  owners_.resize(kept);
}

}  // namespace weft
