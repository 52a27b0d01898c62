#include "ingot/watch/page_server.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

#include "ingot/core/error.h"

#ifdef INGOT_WITH_HTTPLIB
#include <httplib.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <optional>
#include <thread>

#include "ingot/core/visible_text.h"
#include "ingot/formats/chart/chart_files.h"
#include "ingot/watch/event_stream.h"
#include "ingot/watch/page_files.h"
#include "ingot/watch/view_json.h"
#endif

namespace ingot {
namespace {

// Returns the host of "host", "host:port", "[v6]" or "[v6]:port" in lower case.
std::string host_of(std::string_view text) {
  std::string host;
  if (text.starts_with("["))
    host = text.substr(1, std::min(text.find(']'), text.size()) - 1);
  else if (std::ranges::count(text, ':') > 1)
    host = text;
  else
    host = text.substr(0, text.find(':'));
  std::ranges::transform(host, host.begin(), [](unsigned char c) { return std::tolower(c); });
  return host;
}

bool is_address(const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  return inet_pton(AF_INET, host.c_str(), bytes.data()) == 1 ||
         inet_pton(AF_INET6, host.c_str(), bytes.data()) == 1;
}

std::string machine_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "";
  return host_of(name.data());
}

}  // namespace

bool is_own_host(std::string_view host_header, std::string_view own) {
  const std::string host = host_of(host_header);
  if (host.empty()) return false;
  return is_address(host) || host == "localhost" || host == host_of(own) || host == machine_name();
}

bool is_loopback(std::string_view host) {
  const std::string name = host_of(host);
  return name == "localhost" || name == "::1" || (name.starts_with("127.") && is_address(name));
}

#ifndef INGOT_WITH_HTTPLIB

struct PageServer::Implementation {};

PageServer::PageServer(RunSet&, const std::string&, int) {
  fail(ErrorKind::kUsage,
       "this program was built without cpp-httplib, which serves the page: install libcpp-httplib-dev and "
       "build again; `ingot "
       "watch` shows runs in the terminal");
}
PageServer::~PageServer() = default;
std::string PageServer::url() const { return ""; }
void PageServer::serve() {}
void PageServer::stop() noexcept {}

#else

namespace {

using httplib::Request;
using httplib::Response;

constexpr int kMostStreams = 24;            // open pages
constexpr int kThreads = kMostStreams + 8;  // every open page takes one
constexpr size_t kMostPlots = 64;           // runs whose curves one page shows
constexpr size_t kRangeBuckets = 2000;
constexpr size_t kRangeBytes = size_t{48} << 20;   // read for a closer look
constexpr size_t kParamsBytes = size_t{64} << 20;  // read per request
constexpr auto kPoll = std::chrono::milliseconds(250);
constexpr double kKeepAlive_s = 15;

double steady_now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct PageFile {
  const char* path;
  const char* type;
  std::string_view (*text)();
};
constexpr std::array kPageFiles = {
    PageFile{"/", "text/html; charset=utf-8", page_html},
    PageFile{"/app.css", "text/css; charset=utf-8", page_style},
    PageFile{"/chart.css", "text/css; charset=utf-8", chart_style},
    PageFile{"/chart.js", "text/javascript; charset=utf-8", chart_script},
    PageFile{"/store.js", "text/javascript; charset=utf-8", page_store_script},
    PageFile{"/panels.js", "text/javascript; charset=utf-8", page_panels_script},
    PageFile{"/app.js", "text/javascript; charset=utf-8", page_app_script},
};

std::optional<size_t> whole(std::string_view text) {
  size_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || result.ec != std::errc() || result.ptr != text.data() + text.size())
    return std::nullopt;
  return value;
}

// Returns the whole numbers of a list "0,2"; other words are left out.
std::vector<size_t> whole_list(std::string_view text) {
  std::vector<size_t> values;
  while (!text.empty() && values.size() < kMostPlots) {
    const size_t end = std::min(text.find(','), text.size());
    if (const auto value = whole(text.substr(0, end))) values.push_back(*value);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return values;
}

std::optional<double> finite_number(const std::string& text) {
  double value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || result.ptr != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

void refuse(Response& answer, int status, const std::string& why) {
  answer.status = status;
  answer.set_content(why + "\n", "text/plain; charset=utf-8");
}

void send_json(Response& answer, std::string json) {
  answer.set_content(std::move(json), "application/json");
}

}  // namespace

struct PageServer::Implementation {
  Implementation(RunSet& all, std::string given_host) : runs(all), host(std::move(given_host)) {}

  void answer(const Request& request, Response& response);
  void answer_api(const Request& request, Response& response);
  void send_events(const Request& request, Response& response);
  // Returns the run of the parameter "run"; null, with an answer, if there is none.
  RunView* run_of(const Request& request, Response& response);

  RunSet& runs;
  std::string host;
  int port = 0;
  httplib::Server server;
  std::atomic<int> streams = 0;
  std::mutex mutex;
  std::condition_variable woken;
  std::atomic<bool> is_stopped = false, is_over = false;
};

PageServer::PageServer(RunSet& runs, const std::string& host, int port)
    : implementation_(std::make_unique<Implementation>(runs, host)) {
  Implementation& all = *implementation_;
  httplib::Server& server = all.server;
  // httplib's own options let two programs listen on one port.
  server.set_socket_options([](int fd) {
    const int yes = 1;
    ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  server.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
  server.set_keep_alive_timeout(1);
  server.set_read_timeout(5);
  server.set_write_timeout(10);
  server.set_payload_max_length(4096);
  server.set_default_headers({{"Content-Security-Policy",
                               "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
                               "connect-src 'self'; img-src data:; "
                               "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
                              {"X-Content-Type-Options", "nosniff"},
                              {"Referrer-Policy", "no-referrer"},
                              {"Cross-Origin-Resource-Policy", "same-origin"},
                              {"Cache-Control", "no-store"}});
  server.set_pre_routing_handler([&all](const Request& request, Response& response) {
    try {
      all.answer(request, response);
    } catch (const std::exception& error) {
      refuse(response, 500, visible_text(error.what()));
    }
    return httplib::Server::HandlerResponse::Handled;
  });
  errno = 0;
  all.port = port == 0 ? server.bind_to_any_port(host) : server.bind_to_port(host, port) ? port : -1;
  if (all.port > 0) return;
  const std::string why = errno != 0 ? std::strerror(errno) : "the host is unknown";
  fail(ErrorKind::kUsage,
       "cannot listen on port {} of {}: {}; choose another --port (0: a free one) or --host", port,
       visible_line(host), why);
}

PageServer::~PageServer() = default;

std::string PageServer::url() const {
  const std::string& host = implementation_->host;
  const bool is_v6 = host.find(':') != std::string::npos && !host.starts_with("[");
  return fmt::format("http://{}{}{}:{}/", is_v6 ? "[" : "", host, is_v6 ? "]" : "", implementation_->port);
}

void PageServer::serve() {
  if (!implementation_->is_stopped) implementation_->server.listen_after_bind();
  implementation_->is_over = true;
}

void PageServer::stop() noexcept {
  Implementation& all = *implementation_;
  all.is_stopped = true;
  all.woken.notify_all();
  // A server that is about to listen cannot be stopped yet.
  while (!all.is_over && !all.server.is_running()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  all.server.stop();
}

void PageServer::Implementation::answer(const Request& request, Response& response) {
  response.status = 200;
  if (!is_own_host(request.get_header_value("Host"), host))
    return refuse(response, 403, "this name is not one of the server's: open it by its address");
  if (request.method != "GET" && request.method != "HEAD") {
    response.set_header("Allow", "GET, HEAD");
    return refuse(response, 405, "only GET and HEAD are answered");
  }
  for (const PageFile& file : kPageFiles)
    if (request.path == file.path) {
      const std::string_view text = file.text();
      return response.set_content(text.data(), text.size(), file.type);
    }
  answer_api(request, response);
}

void PageServer::Implementation::answer_api(const Request& request, Response& response) {
  if (request.path == "/api/events") return send_events(request, response);
  const auto lock = runs.lock();
  if (request.path == "/api/runs") {
    runs.refresh(0.5);
    return send_json(response, runs_json(runs));
  }
  constexpr std::array kOfRun = {"/api/run", "/api/range", "/api/params", "/api/sample"};
  if (std::ranges::find(kOfRun, request.path) == kOfRun.end())
    return refuse(response, 404, "there is no such page");
  RunView* run = run_of(request, response);
  if (!run) return;
  if (request.path == "/api/run") return send_json(response, run_json(*run));
  if (request.path == "/api/params") {
    run->refresh_params(kParamsBytes);
    return send_json(response, series_json(run->params(), {}));
  }
  if (request.path == "/api/sample") {
    const std::optional<std::string> text = run->sample(request.get_param_value("file"));
    if (!text) return refuse(response, 404, "the run has no such sample");
    return response.set_content(visible_text(*text), "text/plain; charset=utf-8");
  }
  const auto from = finite_number(request.get_param_value("from")),
             to = finite_number(request.get_param_value("to"));
  if (!from || !to || *from > *to) return refuse(response, 400, "from and to must be numbers, from <= to");
  const std::optional<MetricsStore> store = run->read_range(*from, *to, kRangeBuckets, kRangeBytes);
  if (!store) return refuse(response, 413, "the range is too long for a closer look");
  send_json(response, series_json(*store, {}));
}

RunView* PageServer::Implementation::run_of(const Request& request, Response& response) {
  runs.refresh(2);
  const std::optional<size_t> id = whole(request.get_param_value("run"));
  if (id && *id < runs.size()) return &runs.run(*id);
  refuse(response, 404, "there is no such run");
  return nullptr;
}

void PageServer::Implementation::send_events(const Request& request, Response& response) {
  if (streams.fetch_add(1) >= kMostStreams) {
    streams.fetch_sub(1);
    return refuse(response, 503, "too many pages are open; close some");
  }
  auto stream = std::make_shared<EventStream>(runs, whole_list(request.get_param_value("runs")));
  auto said_s = std::make_shared<double>(steady_now_s());
  response.set_chunked_content_provider(
      "text/event-stream",
      [this, stream, said_s](size_t, httplib::DataSink& sink) {
        if (is_stopped || !sink.is_writable()) return false;
        const double now_s = steady_now_s();
        std::string text = stream->next(now_s);
        if (text.empty() && now_s - *said_s > kKeepAlive_s) text = ": the runs are still watched\n\n";
        if (!text.empty()) {
          *said_s = now_s;
          return sink.write(text.data(), text.size());
        }
        if (stream->is_behind()) return true;
        std::unique_lock lock(mutex);
        woken.wait_for(lock, kPoll, [this] { return is_stopped.load(); });
        return true;
      },
      [this](bool) { streams.fetch_sub(1); });
}

#endif

}  // namespace ingot
