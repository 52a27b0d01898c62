#include "ingot/watch/page_server.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <memory>
#include <optional>
#include <vector>

#include "ingot/core/visible_text.h"
#include "ingot/formats/chart/chart_files.h"
#include "ingot/http/http_host.h"
#include "ingot/watch/event_stream.h"
#include "ingot/watch/page_files.h"
#include "ingot/watch/view_json.h"

namespace ingot {
namespace {

constexpr size_t kMaxPlots = 64;  // runs whose curves one page shows
constexpr size_t kRangeBuckets = 2000;
constexpr size_t kRangeBytes = size_t{48} << 20;   // read for a closer look
constexpr size_t kParamsBytes = size_t{64} << 20;  // read per request
constexpr double kKeepAlive_s = 15;

constexpr const char* kHeaders =
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "Cross-Origin-Resource-Policy: same-origin\r\n"
    "Cache-Control: no-store\r\n";

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
  while (!text.empty() && values.size() < kMaxPlots) {
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

HttpAnswer refusal(int status, const std::string& why) { return {.status = status, .body = why + "\n"}; }

HttpAnswer json_answer(std::string json) { return {.type = "application/json", .body = std::move(json)}; }

}  // namespace

PageServer::PageServer(RunSet& runs, const std::string& host, int port)
    : runs_(runs),
      host_(host),
      server_(host, port, kHeaders, [this](const HttpRequest& request) { return answer(request); }) {}

std::string PageServer::url() const { return http_url(host_, port()) + "/"; }

HttpAnswer PageServer::answer(const HttpRequest& request) {
  if (!is_own_host(request.header("host"), host_))
    return refusal(403, "this name is not one of the server's: open it by its address");
  if (request.method != "GET" && request.method != "HEAD")
    return {.status = 405, .body = "only GET and HEAD are answered\n", .headers = "Allow: GET, HEAD\r\n"};
  for (const PageFile& file : kPageFiles)
    if (request.path == file.path) return {.type = file.type, .body = std::string(file.text())};
  if (request.path == "/api/events") return events(request);
  if (request.path == "/api/runs") {
    runs_.refresh(0.5);
    return json_answer(runs_json(runs_));
  }
  if (!request.path.starts_with("/api/")) return refusal(404, "there is no such page");
  runs_.refresh(2);
  const std::optional<size_t> id = whole(request.parameter("run"));
  if (!id || *id >= runs_.size()) return refusal(404, "there is no such run");
  return answer_of_run(request, runs_.run(*id));
}

HttpAnswer PageServer::answer_of_run(const HttpRequest& request, RunView& run) {
  if (request.path == "/api/run") return json_answer(run_json(run));
  if (request.path == "/api/params") {
    run.refresh_params(kParamsBytes);
    return json_answer(series_json(run.params(), {}));
  }
  if (request.path == "/api/sample") {
    const std::optional<std::string> text = run.sample(request.parameter("file"));
    return text ? HttpAnswer{.body = visible_text(*text)} : refusal(404, "the run has no such sample");
  }
  if (request.path != "/api/range") return refusal(404, "there is no such page");
  const auto from = finite_number(request.parameter("from")), to = finite_number(request.parameter("to"));
  if (!from || !to || *from > *to) return refusal(400, "from and to must be numbers, from <= to");
  const std::optional<MetricsStore> store = run.read_range(*from, *to, kRangeBuckets, kRangeBytes);
  return store ? json_answer(series_json(*store, {}))
               : refusal(413, "the range is too long for a closer look");
}

HttpAnswer PageServer::events(const HttpRequest& request) {
  auto stream = std::make_shared<EventStream>(runs_, whole_list(request.parameter("runs")));
  const auto next = [stream, said_s = -1.0](double now_s, HttpStreamState& state) mutable {
    std::string text = stream->next(now_s);
    if (stream->is_behind()) state = HttpStreamState::kMore;
    if (text.empty() && now_s - said_s > kKeepAlive_s) text = ": the runs are still watched\n\n";
    if (!text.empty()) said_s = now_s;
    return text;
  };
  return {.type = "text/event-stream", .body = "", .stream = next};
}

}  // namespace ingot
