// SPDX-License-Identifier: Apache-2.0
#include "src/comm/tcp/meeting.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "src/comm/tcp/reception.h"
#include "src/comm/world.h"
#include "weft/error.h"

namespace weft {

/// Sends what is wrong, if anything, to a process that may have gone.
static void answer_process(int socket, const TcpMember& member, const std::string& wrong) {
  const TcpCard card = card_of(member, wrong);
  send_whole(socket, &card, sizeof card, TcpClock::now() + std::chrono::seconds(5));
}

namespace {

/// Process 0: the others come to it, learn from it where all are, and report to it that they are
/// connected, or why not; it tells all.
class TcpFirst {
 public:
  TcpFirst(const TcpMember& member, std::chrono::milliseconds deadline)
      : member_(member),
        deadline_(deadline),
        until_(TcpClock::now() + deadline),
        reception_(listen(), member.size),
        guests_(static_cast<size_t>(member.size)) {}

  TcpProcesses meet_all() {
    while (missing_ > 0 && wrong_.empty()) await_one();
    if (wrong_.empty()) send_roster();
    if (wrong_.empty()) take_reports();
    if (!wrong_.empty()) refuse_late();
    for (const TcpArrival& guest : guests_) {
      if (guest.socket.get() >= 0) answer_process(guest.socket.get(), member_, wrong_);
    }
    if (!wrong_.empty()) fail_call("connect", wrong_);
    TcpProcesses made;
    for (TcpArrival& guest : guests_) {
      const bool is_own = guest.socket.get() < 0;
      made.names.push_back(is_own ? "this process" : guest.name);
      made.texts.push_back(is_own ? member_.text.substr(0, 1000) : in_field(guest.card.text));
      made.links.push_back(std::move(guest.socket));
    }
    return made;
  }

 private:
  OwnedDescriptor listen() const {
    const TcpEndpoint& at = member_.rendezvous;
    OwnedDescriptor made = listening_socket(is_loopback(at.host) ? at.host : "", at.port);
    if (made.get() >= 0) return made;
    if (errno == EADDRINUSE) {
      fail_call("connect", "port ", at.port, " of this host is in use, expected a free one, at ",
                "which rank 0 listens; name another one for the rendezvous on all hosts");
    }
    fail_call("connect", "rank 0 cannot listen at ", at.in_words(), ": ", std::strerror(errno));
  }

  void await_one() {
    std::vector<int> sockets, ranks;
    for (size_t r = 1; r < guests_.size(); ++r) {
      if (guests_[r].socket.get() < 0) continue;
      sockets.push_back(guests_[r].socket.get());
      ranks.push_back(static_cast<int>(r));
    }
    int gone = -1;
    std::optional<TcpArrival> guest = reception_.next(std::min(until_, tells_at_), sockets, gone);
    if (gone >= 0) {
      wrong_ = concat(in_words(ranks[static_cast<size_t>(gone)]), " left before all had come");
    } else if (guest) {
      take(std::move(*guest));
    } else {
      look_at_time();
    }
  }

  /// Tells what is wrong to processes that come a moment later.
  void refuse_late() {
    const auto until = TcpClock::now() + std::chrono::milliseconds(500);
    int none = -1;
    while (missing_ > 0) {
      const std::optional<TcpArrival> guest = reception_.next(until, {}, none);
      if (!guest) return;
      answer_process(guest->socket.get(), member_, wrong_);
      --missing_;
    }
  }

  void look_at_time() {
    if (TcpClock::now() < until_) {
      warn("connect: waiting at ", member_.rendezvous.in_words(), " for ", missing_ranks());
      tells_at_ = until_;
      return;
    }
    std::vector<int> come{0};
    for (size_t r = 1; r < guests_.size(); ++r) {
      if (guests_[r].socket.get() >= 0) come.push_back(static_cast<int>(r));
    }
    wrong_ = concat(missing_ranks(), " did not come to ", member_.rendezvous.in_words(), " within ",
                    deadline_.count(),
                    " ms; arrived: ", listed(come, [&](int rank) { return in_words(rank); }),
                    refused_.empty() ? "" : "; refused: ", refused_, kAllConnect);
  }

  /// "rank 2, rank 3 (of host 1)".
  std::string missing_ranks() const {
    std::vector<std::string> words;
    for (int r = 1; r < member_.size; ++r) {
      if (guests_[static_cast<size_t>(r)].socket.get() >= 0) continue;
      const bool has_host = member_.local_size > 0 && member_.local_size < member_.size;
      words.push_back(
          concat("rank ", r, has_host ? concat(" (of host ", r / member_.local_size, ")") : ""));
    }
    return listed(words);
  }

  /// "rank 2 (10.0.0.3)".
  std::string in_words(int rank) const {
    return rank == 0 ? "rank 0"
                     : concat("rank ", rank, " (", guests_[static_cast<size_t>(rank)].name, ")");
  }

  void take(TcpArrival guest) {
    const TcpCard& card = guest.card;
    const std::string who = concat("rank ", card.rank, " (", guest.name, ")");
    // Another job may have been started by mistake; this one goes on.
    const std::string wrong = wrong_with(guest, who);
    if (!wrong.empty()) {
      answer_process(guest.socket.get(), member_, wrong);
      if (wrong != refused_) warn("connect: refused: ", wrong);
      refused_ = wrong;
      return;
    }
    set_connection_options(guest.socket.get(), member_.timeout);
    guests_[static_cast<size_t>(card.rank)] = std::move(guest);
    --missing_;
  }

  std::string wrong_with(const TcpArrival& guest, const std::string& who) const {
    const TcpCard& card = guest.card;
    if (card.version != TcpCard().version) {
      return concat("the protocol of a process (", guest.name, ") is version ", card.version,
                    ", expected ", TcpCard().version, ", that of rank 0; all ranks run one build");
    }
    if (card.job != card_of(member_, "").job) {
      return concat("the job at ", member_.rendezvous.in_words(), " is ", in_quotes(member_.job),
                    ", expected ", in_quotes(in_field(card.address)), ", that of ", who);
    }
    if (card.size != member_.size) {
      return concat("the number of ranks is ", card.size, " on ", who, ", expected ", member_.size,
                    ", that of rank 0");
    }
    if (card.rank < 1 || card.rank >= member_.size) {
      return concat("the rank of a process (", guest.name, ") is ", card.rank, ", expected 1 to ",
                    member_.size - 1);
    }
    const TcpArrival& other = guests_[static_cast<size_t>(card.rank)];
    if (other.socket.get() < 0) return "";
    return concat("two processes are rank ", card.rank, " (", other.name, " and ", guest.name,
                  "), expected one");
  }

  void send_roster() {
    TcpCard own = card_of(member_, member_.text.substr(0, 1000));
    if (::getrandom(&own.secret, sizeof own.secret, 0) != sizeof own.secret) {
      fail_call("getrandom", std::strerror(errno));
    }
    std::vector<TcpCard> roster{own};
    for (size_t r = 1; r < guests_.size(); ++r) {
      put_in_field(guests_[r].card.address, guests_[r].name);
      roster.push_back(guests_[r].card);
    }
    for (size_t r = 1; r < guests_.size(); ++r) {
      const int socket = guests_[r].socket.get();
      answer_process(socket, member_, "");
      send_whole(socket, roster.data(), roster.size() * sizeof(TcpCard),
                 TcpClock::now() + std::chrono::seconds(30));
    }
  }

  /// Waits until all have reported, or one that it could not connect.
  void take_reports() {
    const auto until = TcpClock::now() + deadline_ + std::chrono::seconds(1);
    std::vector<pollfd> waiting;
    for (const TcpArrival& guest : guests_) waiting.push_back({guest.socket.get(), POLLIN, 0});
    for (int left = member_.size - 1; left > 0 && wrong_.empty();) {
      const int ready = ::poll(waiting.data(), waiting.size(), 1000);
      if (ready <= 0 && TcpClock::now() > until) wrong_ = not_reported(waiting);
      for (size_t r = 1; ready > 0 && r < waiting.size() && wrong_.empty(); ++r) {
        if (waiting[r].revents == 0) continue;
        wrong_ = report_of(r, until);
        waiting[r].fd = -1;
        --left;
      }
    }
  }

  std::string not_reported(const std::vector<pollfd>& waiting) const {
    std::vector<int> ranks;
    for (size_t r = 1; r < waiting.size(); ++r) {
      if (waiting[r].fd >= 0) ranks.push_back(static_cast<int>(r));
    }
    return concat(listed(ranks, [&](int rank) { return in_words(rank); }),
                  " did not report within ", deadline_.count(), " ms whether all reach it");
  }

  std::string report_of(size_t rank, TcpClock::time_point until) const {
    TcpCard report;
    const bool came = receive_whole(guests_[rank].socket.get(), &report, sizeof report, until);
    if (came && report.is_of_weft()) return in_field(report.text);
    return concat(in_words(static_cast<int>(rank)), " left before all were connected");
  }

  const TcpMember& member_;
  const std::chrono::milliseconds deadline_;
  const TcpClock::time_point until_;
  /// Time at which it prints which processes are missing.
  TcpClock::time_point tells_at_ = TcpClock::now() + std::chrono::seconds(5);
  TcpReception reception_;
  /// By rank; without a socket: missing.
  std::vector<TcpArrival> guests_;
  int missing_ = member_.size - 1;
  std::string wrong_;
  /// The reason for which the last process was refused.
  std::string refused_;
};

/// A process that comes to process 0.
class TcpGuest {
 public:
  TcpGuest(const TcpMember& member, std::chrono::milliseconds deadline)
      : member_(member), deadline_(deadline), until_(TcpClock::now() + deadline) {}

  TcpProcesses meet_all() {
    OwnedDescriptor first = connected_to_first();
    set_connection_options(first.get(), member_.timeout);
    const std::string own = own_address(first.get());
    const bool is_local = is_loopback(member_.rendezvous.host);
    OwnedDescriptor listener = listening_socket(is_local ? own : "", 0);
    if (listener.get() < 0) fail_call("listen", std::strerror(errno));
    TcpReception reception(std::move(listener), member_.size);
    TcpCard card = card_of(member_, member_.text.substr(0, 1000));
    card.port = reception.port();
    put_in_field(card.address, member_.job);  // for errors
    send_whole(first.get(), &card, sizeof card, until_);
    // Process 0 has the same deadline, and names the missing ranks.
    receive_answer(first.get(), until_ + std::chrono::seconds(2));
    std::vector<TcpCard> roster(static_cast<size_t>(member_.size));
    if (!receive_whole(first.get(), roster.data(), roster.size() * sizeof(TcpCard), until_)) {
      fail_unanswered(until_);
    }
    made_.links.resize(roster.size());
    made_.links[0] = std::move(first);
    const auto until = TcpClock::now() + deadline_;
    std::string wrong = connect_to_lower(roster);
    if (wrong.empty()) wrong = await_higher(reception, roster[0].secret, until);
    if (!decided_) answer_process(made_.links[0].get(), member_, wrong);
    receive_answer(made_.links[0].get(), until + std::chrono::seconds(2));
    for (const TcpCard& one : roster) {
      made_.names.push_back(one.rank == 0 ? peer_address(made_.links[0].get())
                                          : in_field(one.address));
      made_.texts.push_back(in_field(one.text));
    }
    return std::move(made_);
  }

 private:
  std::string first_in_words() const { return concat("rank 0 at ", member_.rendezvous.in_words()); }

  OwnedDescriptor connected_to_first() const {
    std::string why = "no answer";
    // One rank of a host tells.
    const bool is_first_here = member_.local_size == 0 || member_.rank % member_.local_size == 0;
    auto tells_at = is_first_here ? TcpClock::now() + std::chrono::seconds(5) : until_;
    while (true) {
      const auto now = TcpClock::now();
      OwnedDescriptor made = connected_socket(member_.rendezvous,
                                              std::min(until_, now + std::chrono::seconds(3)), why);
      if (made.get() >= 0) return made;
      if (TcpClock::now() >= until_) {
        fail_call("connect", first_in_words(), " did not answer rank ", member_.rank, " within ",
                  deadline_.count(), " ms: ", why, kAllConnect);
      }
      if (now >= tells_at) {
        warn("connect: rank ", member_.rank, " is waiting for ", first_in_words(), ": ", why);
        tells_at = until_;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  [[noreturn]] void fail_unanswered(TcpClock::time_point until) const {
    if (TcpClock::now() >= until) {
      fail_call("connect", first_in_words(), " accepted the connection of rank ", member_.rank,
                " but did not answer within ", deadline_.count(), " ms");
    }
    fail_call("connect", first_in_words(), " ended the connection of rank ", member_.rank,
              " before all had come");
  }

  /// Throws what an answer of process 0 says is wrong.
  void receive_answer(int socket, TcpClock::time_point until) const {
    TcpCard card;
    if (!receive_whole(socket, &card, sizeof card, until)) fail_unanswered(until);
    if (!card.is_of_weft()) {
      fail_call("connect", first_in_words(),
                " answers in another protocol, expected a rank of weft");
    }
    if (card.text[0] != '\0') fail_call("connect", in_field(card.text));
  }

  /// Connects to the ranks between 0 and this one; returns what is wrong.
  std::string connect_to_lower(const std::vector<TcpCard>& roster) {
    const std::string first = peer_address(made_.links[0].get());
    const auto until = TcpClock::now() + std::min(deadline_, kLongestWay);
    for (size_t r = 1; r < static_cast<size_t>(member_.rank); ++r) {
      TcpEndpoint to{in_field(roster[r].address), static_cast<uint16_t>(roster[r].port)};
      // A process of rank 0's host, which came to it by an address that only that host has.
      if (is_loopback(to.host) && !is_loopback(first)) to.host = first;
      std::string why;
      OwnedDescriptor made = connected_socket(to, until, why);
      if (made.get() < 0) {
        return concat("rank ", member_.rank, " cannot reach rank ", r, " at ", to.in_words(), ": ",
                      why, "; each host must reach all ports of the others");
      }
      set_connection_options(made.get(), member_.timeout);
      TcpCard card = card_of(member_, "");
      card.secret = roster[0].secret;
      send_whole(made.get(), &card, sizeof card, until);
      made_.links[r] = std::move(made);
    }
    return "";
  }

  /// Accepts the ranks after this one; returns what is wrong.
  std::string await_higher(TcpReception& reception, uint64_t secret, TcpClock::time_point until) {
    const int first = made_.links[0].get();
    for (int missing = member_.size - 1 - member_.rank; missing > 0;) {
      int decision = -1;
      std::optional<TcpArrival> guest = reception.next(until, {&first, 1}, decision);
      decided_ = decision >= 0;
      if (decided_) return "";
      if (!guest) return not_reached();
      const int rank = guest->card.rank;
      const bool is_awaited = guest->card.secret == secret && rank > member_.rank &&
                              rank < member_.size &&
                              made_.links[static_cast<size_t>(rank)].get() < 0;
      if (!is_awaited) continue;
      set_connection_options(guest->socket.get(), member_.timeout);
      made_.links[static_cast<size_t>(rank)] = std::move(guest->socket);
      --missing;
    }
    return "";
  }

  /// "rank 1 was not reached by rank 2, rank 3 within 500 ms".
  std::string not_reached() const {
    std::vector<int> ranks;
    for (int r = member_.rank + 1; r < member_.size; ++r) {
      if (made_.links[static_cast<size_t>(r)].get() < 0) ranks.push_back(r);
    }
    return concat("rank ", member_.rank, " was not reached by ",
                  listed(ranks, [](int rank) { return concat("rank ", rank); }), " within ",
                  deadline_.count(), " ms");
  }

  static constexpr std::chrono::milliseconds kLongestWay{20'000};

  const TcpMember& member_;
  const std::chrono::milliseconds deadline_;
  const TcpClock::time_point until_;
  TcpProcesses made_;
  /// Process 0 has answered before this one has reported.
  bool decided_ = false;
};

}  // namespace

TcpProcesses meet_by_tcp(const TcpMember& member, std::chrono::milliseconds deadline) {
  if (member.rank == 0) return TcpFirst(member, deadline).meet_all();
  return TcpGuest(member, deadline).meet_all();
}

}  // namespace weft
