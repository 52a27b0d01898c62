// ingot serve: runs in a browser, live.
#include <fmt/core.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/serve_until_stopped.h"
#include "ingot/core/visible_text.h"
#include "ingot/http/http_host.h"
#include "ingot/watch/page_server.h"
#include "ingot/watch/run_set.h"

namespace ingot {
namespace {

struct ServeArguments {
  std::vector<std::string> runs;
  std::string host = "127.0.0.1";
  int port = 6464;
};

void serve(const ServeArguments& arguments) {
  // Must be created before any other thread starts.
  const StopSignals signals([](const char*) {});
  RunSet runs(arguments.runs);
  PageServer server(runs, arguments.host, arguments.port);
  if (!is_loopback(arguments.host))
    fmt::print(
        stderr,
        "WARNING: everyone who can reach {} can read these runs: configurations, samples and curves. There "
        "is no "
        "password. Leave out --host and forward the port instead: ssh -L {}:localhost:{} THIS_MACHINE\n",
        visible_line(server.url()), server.port(), server.port());
  const size_t found = runs.size() + runs.left_out();
  fmt::print("serving {}{} run{} at {}\nCtrl-C ends it\n",
             runs.left_out() ? fmt::format("{} of ", runs.size()) : "", found, found == 1 ? "" : "s",
             visible_line(server.url()));
  if (runs.left_out())
    fmt::print(stderr, "WARNING: the page shows at most {} runs; name fewer folders to see the other {}\n",
               RunSet::kMaxRuns, runs.left_out());
  std::fflush(stdout);
  serve_until_stopped(
      signals, [&] { server.serve(); }, [&] { server.stop(); });
}

constexpr const char* kServeFooter =
    "The page follows the runs live: curves, samples, norms of parameters, configurations and\n"
    "incidents. It only reads, and only the folders of these runs. Ctrl-C ends it with exit code 0.\n";

}  // namespace

void add_serve_command(Command& app) {
  auto arguments = std::make_shared<ServeArguments>();
  Command* command = app.add_subcommand("serve", "Show runs in a browser, live");
  command->add_option("runs", arguments->runs, "Folders of runs, or folders that hold runs; default: runs/")
      ->type_name("DIR ...");
  command->add_option("--port", arguments->port, "The port; 0: a free one")
      ->in_range(0, 65535)
      ->capture_default_str();
  command
      ->add_option("--host", arguments->host,
                   "The address to listen on; one that is not loopback lets other machines read")
      ->type_name("ADDRESS")
      ->capture_default_str();
  command->footer([] { return std::string(kServeFooter); });
  command->callback([arguments] { serve(*arguments); });
}

}  // namespace ingot
