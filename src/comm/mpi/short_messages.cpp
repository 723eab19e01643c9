// SPDX-License-Identifier: Apache-2.0
#include "src/comm/mpi/short_messages.h"

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

}  // namespace weft
