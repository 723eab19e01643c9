// SPDX-License-Identifier: Apache-2.0
#include "src/comm/signature.h"

#include <algorithm>
#include <sstream>

#include "weft/error.h"
#include "weft/extend/hash.h"
#include "weft/extend/subject.h"

namespace weft {

static bool kind_has_root(CollectiveKind kind) {
  return kind == CollectiveKind::broadcast || kind == CollectiveKind::gather ||
         kind == CollectiveKind::scatter;
}

/// The counts of an all_to_all differ between ranks: the readers compare them pair by pair.
static bool counts_are_shared(CollectiveKind kind) { return kind != CollectiveKind::all_to_all; }

/// Adds what is moved, and the claim to the call that carries it.
static void add_subject(const std::optional<Claim>& claim, Signature& into) {
  into.subject[0] = '\0';
  if (const uint64_t subject = SubjectScope::current()) {
    into.hash = mixed(into.hash, subject);
    SubjectScope::write_words(into.subject.data(), into.subject.size());
  }
  if (claim) {
    into.hash = mixed(into.hash, claim->hash);
    into.claim = *claim;
  } else if (into.claim.hash != 0) {
    into.claim = {};
  }
}

void sign(const Collective& call, const std::optional<Claim>& claim, Signature& into) {
  into.kind = call.kind;
  into.op = call.op;
  into.root = call.root;
  into.tag = call.tag;
  into.pieces = static_cast<int32_t>(call.pieces.size());
  into.counts = 0;
  into.device = call.pieces.empty() ? DeviceKind::cpu : call.pieces[0].device.kind;
  const uint64_t operation = static_cast<uint64_t>(call.kind) |
                             static_cast<uint64_t>(call.op) << 8 |
                             static_cast<uint64_t>(into.device) << 16;
  uint64_t hash = mixed(operation, static_cast<uint64_t>(call.root) << 32);
  int64_t elements = 0;
  for (const Piece& piece : call.pieces) {
    hash = mixed(hash,
                 static_cast<uint64_t>(piece.dtype) << 8 | static_cast<uint64_t>(piece.recv_dtype));
    if (!counts_are_shared(call.kind)) continue;
    for (const int64_t count : piece.counts) {
      hash = mixed(hash, static_cast<uint64_t>(count));
      elements += count;
    }
    hash = mixed(hash, piece.counts.size());
  }
  into.hash = hash;
  into.elements = elements;
  add_subject(claim, into);
  if (call.pieces.empty()) return;
  const Piece& first = call.pieces[0];
  into.dtype = first.dtype;
  into.recv_dtype = first.recv_dtype;
  if (!counts_are_shared(call.kind)) return;
  into.counts = static_cast<int32_t>(first.counts.size());
  for (size_t i = 0; i < std::min(first.counts.size(), into.shown.size()); ++i) {
    into.shown[i] = first.counts[i];
  }
}

void sign(const Exchange& call, const std::optional<Claim>& claim, Signature& into) {
  into.kind = CollectiveKind::exchange;
  into.pieces = into.counts = 0;
  into.elements = 0;
  into.device = call.blocks.empty() ? DeviceKind::cpu : call.blocks[0].device.kind;
  const uint64_t kind = mixed(static_cast<uint64_t>(CollectiveKind::exchange), call.content);
  into.hash =
      mixed(mixed(kind, static_cast<uint64_t>(call.phases())), static_cast<uint64_t>(into.device));
  const size_t length = std::min(call.words.size(), into.words.size() - 1);
  std::copy_n(call.words.begin(), length, into.words.begin());
  into.words[length] = '\0';
  add_subject(claim, into);
}

Signature signature_of(const Collective& call) {
  Signature made;
  sign(call, {}, made);
  return made;
}

static void print_counts(std::ostream& out, const Signature& signature) {
  const auto shown =
      std::min<size_t>(static_cast<size_t>(signature.counts), signature.shown.size());
  out << ", [" << listed(std::span(signature.shown).first(shown))
      << (static_cast<size_t>(signature.counts) > shown ? ", ...]" : "]");
}

bool is_readable(const Signature& signature) {
  const auto ends = [](const auto& text) {
    return std::find(text.begin(), text.end(), '\0') != text.end();
  };
  return signature.kind <= CollectiveKind::exchange && signature.op <= ReduceOp::min &&
         signature.dtype <= DType::c128 && signature.recv_dtype <= DType::c128 &&
         signature.device <= DeviceKind::meta && ends(signature.words) && ends(signature.subject) &&
         ends(signature.claim.words);
}

std::string in_words(const Signature& signature) {
  std::string end = signature.device == DeviceKind::cuda ? " on cuda" : "";
  if (signature.subject[0]) end += concat(" of ", signature.subject.data());
  if (signature.kind == CollectiveKind::exchange && signature.words[0]) {
    return signature.words.data() + end;
  }
  std::ostringstream out;
  out << name_of(signature.kind) << '(';
  if (kind_has_root(signature.kind)) out << "root " << signature.root << ", ";
  if (is_reduction(signature.kind)) out << signature.op << ", ";
  if (signature.pieces > 0) {
    out << signature.dtype;
    if (signature.recv_dtype != signature.dtype) out << " -> " << signature.recv_dtype;
    if (signature.counts > 0) print_counts(out, signature);
    if (signature.pieces > 1) {
      out << "; " << signature.pieces << " pieces, " << signature.elements << " elements";
    }
  }
  if (is_message(signature.kind)) {
    out << (signature.kind == CollectiveKind::send ? ", to rank " : ", from rank ")
        << signature.root << ", tag " << signature.tag;
  }
  out << ')' << end;
  return out.str();
}

static std::string claim_in_words(const Claim& claim) {
  if (claim.hash == 0) return "nothing";
  return concat(claim.words.data(), " of values with hash ", std::hex, claim.hash);
}

std::string unequal_in_words(const std::string& first_rank, const Signature& first,
                             const std::string& other_rank, const Signature& other,
                             const char* difference) {
  const std::string one = in_words(first), two = in_words(other);
  const std::string claim = claim_in_words(first.claim), claim_two = claim_in_words(other.claim);
  const auto is_moved = [](const Signature& of) {
    return of.claim.words.data() == GroupCall::kMovedWords;
  };
  if (one == two && is_moved(first) != is_moved(other)) {
    const auto thread = [&](const Signature& of) {
      return is_moved(of) ? " on another thread" : " on its own thread";
    };
    return concat(first_rank, " called ", one, thread(first), " but ", other_rank, " called it",
                  thread(other), ", expected calls on the same thread of all ranks");
  }
  if (one != two || claim == claim_two) {
    const bool has_subject = first.subject[0] || other.subject[0];
    return concat(first_rank, " called ", one, " but ", other_rank, " called ", two,
                  one == two ? concat(' ', difference) : "",
                  has_subject ? "; call modules in the same order on all ranks" : "");
  }
  return concat(one, " found that ranks differ: ", first_rank, " called ", claim, " but ",
                other_rank, " called ", claim_two,
                "; distribute takes a tensor that all ranks hold alike, from_local(tensor, mesh, "
                "{Shard(0)}) the rows that differ between ranks");
}

std::string counts_in_words(int64_t sent, int to, int64_t expected) {
  return concat(" sends ", sent, " elements to rank ", to, ", which expects ", expected);
}

}  // namespace weft
