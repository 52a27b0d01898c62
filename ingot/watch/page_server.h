// PageServer is the HTTP server of `ingot serve`: the page, built into the program, and the runs' data as
// JSON and as server-sent events. It answers GET and HEAD only, never writes, and opens no file but those of
// the runs.
//
//   /  app.css  app.js  ...       the page
//   api/runs                      runs_json
//   api/events?runs=0,2           the events of an EventStream
//   api/run?run=0                 run_json
//   api/range?run=0&from=1&to=9   series_json of the steps in the range, read again; 413 if too long
//   api/params?run=0              series_json of params.jsonl
//   api/sample?run=0&file=NAME    a sample's text
//
// A request whose Host header is not is_own_host() is refused.
#pragma once

#include <string>

#include "ingot/http/http_server.h"
#include "ingot/watch/run_set.h"

namespace ingot {

class PageServer {
 public:
  // Listens on the port; 0: a free one. Throws a kUsage error if that is not possible.
  PageServer(RunSet& runs, const std::string& host, int port);

  std::string url() const;  // "http://127.0.0.1:6464/"
  int port() const { return server_.port(); }
  void serve() { server_.serve(); }         // answers requests until stop()
  void stop() noexcept { server_.stop(); }  // from any thread; before serve() too

 private:
  HttpAnswer answer(const HttpRequest& request);
  HttpAnswer answer_of_run(const HttpRequest& request, RunView& run);
  HttpAnswer events(const HttpRequest& request);

  RunSet& runs_;
  std::string host_;
  HttpServer server_;
};

}  // namespace ingot
