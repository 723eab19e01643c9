// SPDX-License-Identifier: Apache-2.0
#include "src/comm/mpi/requests.h"

#include <algorithm>

namespace weft {

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
