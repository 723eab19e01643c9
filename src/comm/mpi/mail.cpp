// SPDX-License-Identifier: Apache-2.0
#include "src/comm/mpi/mail.h"

namespace weft {

static constexpr int kMailTag = 0;

MpiMail::MpiMail(MPI_Comm comm) : comm_(comm), boxes_(new Letterbox[kBoxes]) {
  for (size_t i = 0; i < kBoxes; ++i) post_next();
}

void MpiMail::post_next() {
  check_mpi(MPI_Irecv(boxes_[front_].bytes.data(), static_cast<int>(kMpiMailBytes), MPI_BYTE,
                      MPI_ANY_SOURCE, kMailTag, comm_, &awaited_[front_]),
            "MPI_Irecv");
  front_ = (front_ + 1) % kBoxes;
}

const MpiMail::Letterbox* MpiMail::arrived() {
  int done = 0;
  MPI_Status status;
  check_mpi(MPI_Test(&awaited_[front_], &done, &status), "MPI_Test");
  if (!done) return nullptr;
  int bytes = 0;
  check_mpi(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
  from_ = status.MPI_SOURCE;
  length_ = static_cast<size_t>(bytes) - sizeof(MpiHeader);
  return &boxes_[front_];
}

std::unique_ptr<MpiMail::Letterbox> MpiMail::free_box() {
  if (free_boxes_.empty()) return std::unique_ptr<Letterbox>(new Letterbox);
  std::unique_ptr<Letterbox> box = std::move(free_boxes_.back());
  free_boxes_.pop_back();
  return box;
}

void MpiMail::send(int to, const MpiHeader& header, MpiPayload words, const MpiSegments& data) {
  std::unique_ptr<Letterbox> box = free_box();
  std::byte* at = box->bytes.data();
  const auto add = [&](const void* bytes, size_t size) {
    if (size > 0) std::memcpy(at, bytes, size);
    at += padded(static_cast<int64_t>(size));
  };
  add(&header, sizeof header);
  add(words.data(), words.size());
  for (const MpiSegment& segment : data) add(segment.data, static_cast<size_t>(segment.bytes));
  // Without data the words are not padded, so that their length is preserved.
  const auto end = data.empty() ? box->bytes.data() + sizeof header + words.size() : at;
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Isend(box->bytes.data(), static_cast<int>(end - box->bytes.data()), MPI_BYTE, to,
                      kMailTag, comm_, &request),
            "MPI_Isend");
  leaving_.push_back(request);
  leaving_boxes_.push_back(std::move(box));
}

bool MpiMail::all_left() {
  for (size_t i = 0; i < leaving_.size();) {
    int done = 0;
    check_mpi(MPI_Test(&leaving_[i], &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (!done) {
      ++i;
      continue;
    }
    free_boxes_.push_back(std::move(leaving_boxes_[i]));
    leaving_boxes_[i] = std::move(leaving_boxes_.back());
    leaving_boxes_.pop_back();
    leaving_[i] = leaving_.back();
    leaving_.pop_back();
  }
  return leaving_.empty();
}

void MpiMail::close() {
  for (MPI_Request& request : awaited_) {
    check_mpi(MPI_Cancel(&request), "MPI_Cancel");
    check_mpi(MPI_Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait");
  }
}

}  // namespace weft
