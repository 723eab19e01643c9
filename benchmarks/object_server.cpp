// SPDX-License-Identifier: Apache-2.0

// A fast S3 server in memory for benchmarks/object_store.py: it checks nothing, hashes nothing and
// has a thread for each connection, so that its clients are what is measured. It prints its port
// and the environment of clients, as tests/support/s3_server.py does.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using Bytes = std::shared_ptr<std::vector<char>>;
using Fields = std::map<std::string, std::string>;

namespace {

struct Object {
  std::vector<Bytes> parts = {};
  size_t size = 0;
  std::string etag = {};
};

struct Request {
  std::string method, key;
  Fields query, headers;
  Bytes body;
};

struct Answer {
  int status = 200;
  std::string headers = {}, text = {};
  /// Parts of an object: bytes, where they begin, and how many.
  std::vector<std::pair<Bytes, std::pair<size_t, size_t>>> data = {};
};

}  // namespace

static std::mutex mutex;
static std::map<std::string, Object> objects;
static std::map<std::string, std::map<int, Bytes>> uploads;
static int64_t numbers = 0;

static std::string unescaped(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      out += static_cast<char>(std::strtol(text.substr(i + 1, 2).c_str(), nullptr, 16));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

static void put(const std::string& key, std::vector<Bytes> parts, const std::string& etag) {
  Object object{std::move(parts), 0, etag};
  for (const Bytes& part : object.parts) object.size += part->size();
  objects[key] = std::move(object);
}

static std::string listing(const Request& request) {
  const std::string bucket = request.key.substr(0, request.key.find('/', 1)) + "/";
  const auto value = [&](const char* name) {
    const auto found = request.query.find(name);
    return found == request.query.end() ? std::string() : found->second;
  };
  const std::string prefix = bucket + value("prefix");
  std::string text, last;
  for (const auto& [key, object] : objects) {
    if (!key.starts_with(prefix)) continue;
    const size_t end = value("delimiter").empty() ? key.npos : key.find('/', prefix.size());
    const std::string shown =
        key.substr(bucket.size(), end == key.npos ? end : end + 1 - bucket.size());
    if (end == key.npos) {
      text += "<Contents><Key>" + shown +
              "</Key><LastModified>2026-01-01T00:00:00Z</LastModified>" + "<Size>" +
              std::to_string(object.size) + "</Size></Contents>";
    } else if (shown != last) {
      text += "<CommonPrefixes><Prefix>" + shown + "</Prefix></CommonPrefixes>";
      last = shown;
    }
  }
  return text;
}

static Answer get(const Request& request) {
  const auto found = objects.find(request.key);
  if (found == objects.end()) return {404, "", "<Error><Code>NoSuchKey</Code></Error>"};
  const Object& object = found->second;
  Answer answer{200, "ETag: " + object.etag + "\r\n"};
  size_t first = 0, end = object.size;
  if (const auto range = request.headers.find("range"); range != request.headers.end()) {
    size_t last = 0;
    if (std::sscanf(range->second.c_str(), "bytes=%zu-%zu", &first, &last) == 2) {
      end = std::min(end, last + 1);
    }
    answer.status = 206;
    answer.headers += "Content-Range: bytes " + std::to_string(first) + "-" +
                      std::to_string(end - 1) + "/" + std::to_string(object.size) + "\r\n";
  }
  size_t at = 0;
  for (const Bytes& part : object.parts) {
    const size_t from = std::max(first, at), to = std::min(end, at + part->size());
    if (from < to) answer.data.push_back({part, {from - at, to - from}});
    at += part->size();
  }
  return answer;
}

static Answer served(const Request& request) {
  const std::lock_guard lock(mutex);
  const std::string number = std::to_string(++numbers), etag = '"' + number + '"';
  const auto upload = request.query.find("uploadId");
  const bool is_put = request.method == "PUT", is_post = request.method == "POST";
  if (request.key == "/_control") {
    objects.clear();
    return {200, "", "{}"};
  }
  if (upload != request.query.end() && is_put) {
    uploads[upload->second][std::atoi(request.query.at("partNumber").c_str())] = request.body;
    return {200, "ETag: " + etag + "\r\n"};
  }
  if (upload != request.query.end() && is_post) {
    std::vector<Bytes> parts;
    for (const auto& [position, part] : uploads[upload->second]) parts.push_back(part);
    put(request.key, std::move(parts), etag);
    uploads.erase(upload->second);
    return {200, "", "<CompleteMultipartUploadResult></CompleteMultipartUploadResult>"};
  }
  if (is_post) return {200, "", "<UploadId>" + number + "</UploadId>"};
  if (is_put && request.headers.contains("if-none-match") && objects.contains(request.key)) {
    return {412};
  }
  if (is_put && request.headers.contains("if-match") &&
      objects[request.key].etag != request.headers.at("if-match")) {
    return {412};
  }
  if (is_put) {
    put(request.key, {request.body}, etag);
    return {200, "ETag: " + etag + "\r\n"};
  }
  if (request.method == "DELETE") return objects.erase(request.key), Answer{204};
  if (request.query.contains("uploads")) {
    return {200, "", "<ListMultipartUploadsResult></ListMultipartUploadsResult>"};
  }
  if (request.query.contains("list-type")) {
    return {200, "", "<ListBucketResult>" + listing(request) + "</ListBucketResult>"};
  }
  return get(request);
}

static bool write_all(int socket, const char* bytes, size_t count) {
  while (count > 0) {
    const ssize_t written = write(socket, bytes, count);
    if (written <= 0) return false;
    bytes += written;
    count -= static_cast<size_t>(written);
  }
  return true;
}

/// Reads more; false at the end of the connection.
static bool read_more(int socket, std::string& text) {
  char bytes[1 << 16];
  const ssize_t count = read(socket, bytes, sizeof bytes);
  if (count > 0) text.append(bytes, static_cast<size_t>(count));
  return count > 0;
}

/// Reads a request; `rest` are bytes that were read before, and those of the next one.
static std::optional<Request> next_request(int socket, std::string& rest) {
  size_t end;
  while ((end = rest.find("\r\n\r\n")) == rest.npos) {
    if (!read_more(socket, rest)) return {};
  }
  const std::string head = rest.substr(0, end + 2);
  rest.erase(0, end + 4);
  Request request;
  size_t line = head.find("\r\n");
  const size_t space = head.find(' '), target_end = head.find(' ', space + 1);
  request.method = head.substr(0, space);
  const std::string target = head.substr(space + 1, target_end - space - 1);
  const size_t mark = std::min(target.find('?'), target.size());
  request.key = unescaped(target.substr(0, mark));
  for (size_t at = mark + 1; at < target.size();) {
    const size_t next = std::min(target.find('&', at), target.size());
    const std::string pair = target.substr(at, next - at);
    const size_t equals = std::min(pair.find('='), pair.size());
    request.query[pair.substr(0, equals)] =
        equals < pair.size() ? unescaped(pair.substr(equals + 1)) : "";
    at = next + 1;
  }
  for (size_t begin = line + 2; begin < head.size(); begin = line + 2) {
    line = head.find("\r\n", begin);
    const size_t colon = head.find(':', begin), value = head.find_first_not_of(' ', colon + 1);
    std::string name = head.substr(begin, colon - begin);
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    request.headers[name] = head.substr(value, line - value);
  }
  const auto length = request.headers.find("content-length");
  const size_t bytes =
      length == request.headers.end() ? 0 : std::strtoull(length->second.c_str(), nullptr, 10);
  request.body = std::make_shared<std::vector<char>>(bytes);
  size_t have = std::min(bytes, rest.size());
  std::copy_n(rest.begin(), have, request.body->begin());
  rest.erase(0, have);
  while (have < bytes) {
    const ssize_t count = read(socket, request.body->data() + have, bytes - have);
    if (count <= 0) return {};
    have += static_cast<size_t>(count);
  }
  return request;
}

static void serve(int socket) {
  const int one = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  std::string rest;
  bool is_open = true;
  while (is_open) {
    const std::optional<Request> request = next_request(socket, rest);
    if (!request) break;
    const Answer answer = served(*request);
    size_t bytes = answer.text.size();
    for (const auto& [part, range] : answer.data) bytes += range.second;
    std::string head = "HTTP/1.1 " + std::to_string(answer.status) + " -\r\n" + answer.headers;
    if (answer.status != 204) head += "Content-Length: " + std::to_string(bytes) + "\r\n";
    head += "\r\n" + answer.text;
    is_open = write_all(socket, head.data(), head.size());
    for (const auto& [part, range] : answer.data) {
      is_open = is_open && write_all(socket, part->data() + range.first, range.second);
    }
  }
  close(socket);
}

int main() {
  std::signal(SIGPIPE, SIG_IGN);
  const int server = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(server, generic, length) != 0 || listen(server, 128) != 0 ||
      getsockname(server, generic, &length) != 0) {
    std::perror("object_server");
    return 1;
  }
  const int port = ntohs(address.sin_port);
  std::printf(
      "port %d {\"AWS_ACCESS_KEY_ID\": \"key\", \"AWS_SECRET_ACCESS_KEY\": \"secret\", "
      "\"AWS_REGION\": \"us-east-1\", \"AWS_ENDPOINT_URL\": \"http://127.0.0.1:%d\"}\n",
      port, port);
  std::fflush(stdout);
  for (;;) {
    const int connection = accept(server, nullptr, nullptr);
    if (connection >= 0) std::thread(serve, connection).detach();
  }
}
