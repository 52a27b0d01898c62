// ApiServer is `ingot api`: a model behind an HTTP interface that clients of OpenAI's API speak.
//
//   POST /v1/completions, /v1/chat/completions   api_request.h
//   GET  /v1/models, /v1/models/NAME             the one model
//   GET  /health                                 {"status": "ok", "waiting": n, "running": n}
//
// Without a key only clients of this machine are answered: requests whose Host or Origin header is not
// is_own_host() are refused, so that no page of a browser can use the model. With a key every path but
// /health needs "Authorization: Bearer KEY".
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "ingot/api/api_engine.h"
#include "ingot/api/api_request.h"
#include "ingot/checkpoint/served_model.h"
#include "ingot/http/http_server.h"

namespace ingot {

struct ApiOptions {
  ServedOptions model;
  std::string name;           // Clients see it; empty: the model has its folder's name.
  std::string template_name;  // a known chat template; empty: the one in the model's folder
  std::string host = "127.0.0.1";
  int port = 8000;  // 0: a free one
  std::string key;  // empty: none
  int64_t slots = 4;
};

class ApiServer {
 public:
  static constexpr size_t kMaxClients = 100;  // that wait for answers; further ones get 503
  static constexpr size_t kMaxBodyBytes = 4 << 20;

  // Loads the model and listens. Throws a kUsage error if the host is not this machine's own and there is no
  // key, and the errors of ServedModel and HttpServer.
  ApiServer(const std::filesystem::path& model, const ApiOptions& options);

  std::string url() const;  // "http://127.0.0.1:8000/v1"
  const ApiModel& model() const { return model_; }
  void serve();          // answers requests until stop(), on this thread and another one
  void stop() noexcept;  // from any thread

 private:
  HttpAnswer answer(const HttpRequest& request);
  HttpAnswer complete(const HttpRequest& request, bool is_chat);
  // Returns the refusal of a client that may not ask, or nothing.
  std::optional<HttpAnswer> refusal(const HttpRequest& request) const;

  ApiOptions options_;
  ServedModel served_;
  ApiModel model_;
  HttpServer server_;
  ApiEngine engine_;
};

}  // namespace ingot
