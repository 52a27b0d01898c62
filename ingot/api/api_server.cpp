#include "ingot/api/api_server.h"

#include <fmt/core.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <thread>
#include <utility>

#include "ingot/api/completion.h"
#include "ingot/core/error.h"
#include "ingot/core/visible_text.h"
#include "ingot/http/http_host.h"

namespace ingot {
namespace {

using nlohmann::ordered_json;

constexpr const char* kHeaders = "X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n";

// Compares in a time that depends on the lengths alone.
bool are_equal(std::string_view a, std::string_view b) {
  unsigned differing = a.size() != b.size();
  for (size_t i = 0; i < a.size() && i < b.size(); ++i)
    differing |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  return differing == 0;
}

HttpAnswer json_answer(const ordered_json& json) {
  return {.type = "application/json",
          .body = json.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n"};
}

HttpAnswer wrong_method(const char* allowed) {
  HttpAnswer answer = api_refusal(405, fmt::format("only {} is answered here", allowed));
  answer.headers = fmt::format("Allow: {}\r\n", allowed);
  return answer;
}

const ApiOptions& checked(const ApiOptions& options) {
  if (options.key.empty() && !is_loopback(options.host))
    fail(ErrorKind::kUsage,
         "--host {} lets others use the model, and there is no --api-key; give one, or leave out --host and "
         "forward "
         "the port: ssh -L {}:localhost:{} THIS_MACHINE",
         visible_line(options.host), options.port, options.port);
  return options;
}

std::string name_of(const std::filesystem::path& folder) {
  const std::filesystem::path absolute = std::filesystem::absolute(folder).lexically_normal();
  return (absolute.has_filename() ? absolute : absolute.parent_path()).filename().string();
}

ApiModel model_of(const ServedModel& served, const std::string& name, const ApiOptions& options) {
  ApiModel model{.name = name, .tokenizer = served.tokenizer(), .context = served.model().config().context};
  try {
    model.chat.emplace(options.template_name, served.tokenizer(), served.path().string());
  } catch (const Error& error) {
    if (!options.template_name.empty()) throw;
    model.no_chat = fmt::format("{} (ingot api: --chat-template)", error.what());
  }
  return model;
}

}  // namespace

ApiServer::ApiServer(const std::filesystem::path& model, const ApiOptions& options)
    : options_(checked(options)),
      served_(model, options.model),
      model_(model_of(served_, options.name.empty() ? name_of(model) : options.name, options)),
      server_(options.host, options.port, kHeaders,
              [this](const HttpRequest& request) { return answer(request); },
              {.streams = kMaxClients, .body_bytes = kMaxBodyBytes}),
      engine_(served_, options.slots) {}

std::string ApiServer::url() const { return http_url(options_.host, server_.port()) + "/v1"; }

void ApiServer::serve() {
  const std::jthread clients([this] { server_.serve(); });
  try {
    engine_.run([this] { server_.wake(); });
  } catch (...) {
    server_.stop();
    throw;
  }
  server_.stop();
}

void ApiServer::stop() noexcept { engine_.stop(); }

std::optional<HttpAnswer> ApiServer::refusal(const HttpRequest& request) const {
  if (!options_.key.empty()) {
    const std::string given = request.header("authorization");
    constexpr std::string_view kBearer = "Bearer ";
    if (given.starts_with(kBearer) && are_equal(std::string_view(given).substr(kBearer.size()), options_.key))
      return std::nullopt;
    HttpAnswer answer = api_refusal(401, "the key is missing or wrong: send Authorization: Bearer KEY");
    answer.headers = "WWW-Authenticate: Bearer\r\n";
    return answer;
  }
  if (!is_own_host(request.header("host"), options_.host))
    return api_refusal(403,
                       "this name is not one of the server's: use its address, or start it with --api-key");
  const std::string origin = request.header("origin");
  const size_t scheme = origin.find("://");
  if (!origin.empty() && (scheme == origin.npos || !is_own_host(origin.substr(scheme + 3), options_.host)))
    return api_refusal(403, "pages of other sites may not ask; start the server with --api-key");
  return std::nullopt;
}

HttpAnswer ApiServer::answer(const HttpRequest& request) {
  const bool reads = request.method == "GET" || request.method == "HEAD";
  if (request.path == "/health") {
    const ApiEngine::Load load = engine_.load();
    return reads ? json_answer({{"status", "ok"}, {"waiting", load.waiting}, {"running", load.running}})
                 : wrong_method("GET, HEAD");
  }
  if (std::optional<HttpAnswer> no = refusal(request)) return std::move(*no);
  const bool is_chat = request.path == "/v1/chat/completions";
  if (is_chat || request.path == "/v1/completions")
    return request.method == "POST" ? complete(request, is_chat) : wrong_method("POST");
  const ordered_json model = {{"id", model_.name},
                              {"object", "model"},
                              {"created", 0},
                              {"owned_by", "ingot"},
                              {"max_model_len", model_.context}};
  const bool is_list = request.path == "/v1/models";
  if (is_list || request.path == "/v1/models/" + model_.name) {
    if (!reads) return wrong_method("GET, HEAD");
    return json_answer(is_list ? ordered_json{{"object", "list"}, {"data", {model}}} : model);
  }
  return api_refusal(404, "there is no such path; POST /v1/completions or /v1/chat/completions");
}

HttpAnswer ApiServer::complete(const HttpRequest& request, bool is_chat) {
  std::shared_ptr<Completion> completion;
  try {
    completion = std::make_shared<Completion>(parse_api_request(request.body, is_chat, model_), model_);
  } catch (const ApiError& error) {
    return api_refusal(error.status(), error.what(), error.param());
  }
  engine_.add(completion);
  // The connection holds the guard, which is destroyed with it.
  const std::shared_ptr<void> guard(nullptr, [completion](void*) { completion->abandon(); });
  if (!completion->is_stream()) return {.later = [completion, guard] { return completion->answer(); }};
  return {.type = "text/event-stream", .stream = [completion, guard](double, HttpStreamState& state) {
            return completion->events(state);
          }};
}

}  // namespace ingot
