// ingot api: a model behind OpenAI's HTTP interface.
#include <fmt/core.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/model_options.h"
#include "apps/run_note.h"
#include "apps/serve_until_stopped.h"
#include "ingot/api/api_server.h"
#include "ingot/core/visible_text.h"

namespace ingot {
namespace {

struct ApiArguments {
  std::string model;
  ModelOptions model_options;
  ApiOptions options;
};

void serve_api(const ApiArguments& arguments) {
  // Must be created before any other thread starts.
  const StopSignals signals([](const char*) {});
  ApiOptions options = arguments.options;
  options.model = arguments.model_options.served();
  const char* key = std::getenv("INGOT_API_KEY");
  if (options.key.empty() && key) options.key = key;
  note_on_run(arguments.model);
  ApiServer server(arguments.model, options);
  const ApiModel& model = server.model();
  fmt::print("serving {} at {}: context {} tokens, {} texts at a time, {}\nCtrl-C ends it\n",
             visible_line(model.name), visible_line(server.url()), model.context, options.slots,
             model.chat ? fmt::format("chat template {}", model.chat->name()) : "no chat template");
  std::fflush(stdout);
  serve_until_stopped(
      signals, [&] { server.serve(); }, [&] { server.stop(); });
}

constexpr const char* kApiFooter =
    "  curl http://127.0.0.1:8000/v1/completions -d '{\"prompt\": \"Once\", \"max_tokens\": 20}'\n\n"
    "Clients of OpenAI's API take the printed address as their base URL. The key can also be given as\n"
    "INGOT_API_KEY, which other users of the machine cannot see.\n";

}  // namespace

void add_api_command(Command& app) {
  auto arguments = std::make_shared<ApiArguments>();
  ApiOptions& o = arguments->options;
  Command* command = app.add_subcommand("api", "Answer clients of OpenAI's API with a model");
  command->add_option("model", arguments->model, "A checkpoint's folder, or a run's")->required();
  command->add_option("--port", o.port, "The port; 0: a free one")->in_range(0, 65535)->capture_default_str();
  command->add_option("--host", o.host, "The address to listen on; one that others can reach needs --api-key")
      ->type_name("ADDRESS")
      ->capture_default_str();
  command->add_option("--api-key", o.key, "The key that clients must send");
  command->add_option("--slots", o.slots, "Texts that are written at the same time")
      ->count(1)
      ->capture_default_str();
  command->add_option("--name", o.name, "The model's name for clients; default: its folder's");
  command->add_option("--chat-template", o.template_name,
                      "Name of a known template, in place of the folder's");
  arguments->model_options.add_to(*command);
  command->footer([] { return std::string(kApiFooter); });
  command->callback([arguments] { serve_api(*arguments); });
}

}  // namespace ingot
