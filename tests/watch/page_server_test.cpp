// The server of `ingot serve` as a client sees it.
#include "ingot/watch/page_server.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "ingot/core/error.h"
#include "ingot/watch/event_stream.h"
#include "ingot/watch/view_json.h"
#include "tests/http/http_client.h"
#include "tests/reference/error_of.h"
#include "tests/regress/run_script.h"
#include "tests/watch/written_run.h"

namespace ingot {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;

// The data of the first event of that name; null if there is none.
json data_of(const std::string& events, const std::string& name) {
  const size_t begin = events.find("event: " + name + "\ndata: ");
  if (begin == std::string::npos) return nullptr;
  const size_t data = events.find("data: ", begin) + 6;
  return json::parse(events.substr(data, events.find("\n\n", data) - data));
}

TEST(EventStream, TellsTheCurvesThenWhatIsAppendedThenThatTheFileWasCutBack) {
  const WrittenRun run("told");
  run.append_step(1, 6.5);
  run.append_step(2, 6.25);
  RunSet runs({run.root().string()});
  EventStream stream(runs, {0, 7});
  const std::string first = stream.next(0);
  EXPECT_EQ(data_of(first, "runs")["runs"][0]["name"], "told");
  EXPECT_EQ(data_of(first, "runs")["runs"][0]["total_steps"], 4);
  const json snapshot = data_of(first, "snapshot");
  EXPECT_EQ(snapshot["series"]["loss"]["mean"], json({6.5, 6.25}));
  EXPECT_EQ(snapshot["series"]["train_time_s"]["mean"], json({0.5, 1.0}));
  EXPECT_EQ(snapshot["series"]["loss"].count("low"), 0u);
  EXPECT_THAT(stream.next(0.1), IsEmpty());
  run.append_step(3, 6);
  run.append("{\"step\":3,\"event\":\"skipped\",\"reason\":\"</script>\"}\n{\"step\":4,\"lo");
  const json lines = data_of(stream.next(0.2), "lines");
  EXPECT_EQ(lines["lines"][0][0], 3);
  EXPECT_EQ(lines["lines"][0][1]["loss"], 6);
  EXPECT_EQ(lines["events"][0][2], "</script>");
  EXPECT_EQ(lines["lines"].size(), 2u);
  write_file(run.metrics(), "{\"step\":1,\"loss\":6.5}\n");
  const json again = data_of(stream.next(0.3), "snapshot");
  EXPECT_EQ(again["series"]["loss"]["mean"], json({6.5}));
  EXPECT_EQ(again["events"].size(), 0u);
  write_file(run.folder() / "samples" / "step-000000003.txt", "Once");
  EXPECT_EQ(data_of(stream.next(3), "samples")["samples"][0], "step-000000003.txt");
}

TEST(EventStream, AReaderThatIsFarBehindGetsTheCurvesAnew) {
  const WrittenRun run("behind");
  run.append_step(1, 1);
  RunSet runs({run.root().string()});
  EventStream stream(runs, {0});
  stream.next(0);
  std::string text;
  for (int i = 2; i < 10'000; ++i) text += fmt::format("{{\"step\":{},\"loss\":1}}\n", i);
  run.append(text);
  const std::string events = stream.next(0.1);
  EXPECT_EQ(data_of(events, "lines"), nullptr);
  const json snapshot = data_of(events, "snapshot");
  EXPECT_EQ(snapshot["line"], 9'999);
  EXPECT_LE(snapshot["series"]["loss"]["x"].size(), 2048u);
  EXPECT_EQ(snapshot["series"]["loss"]["low"].size(), snapshot["series"]["loss"]["x"].size());
}

TEST(RunSet, FindsRunsThatAppearLaterAndReportsDamagedOnes) {
  const WrittenRun run("first");
  RunSet runs({run.root().string()});
  ASSERT_EQ(runs.size(), 1u);
  make_folders(run.root() / "second");
  write_file(run.root() / "second/run.json", "{]");
  make_folders(run.root() / "third");
  write_file(run.root() / "third/run.json", R"({"status": "completed"})");
  write_file(run.root() / "secret", "{\"step\":1,\"loss\":1}\n");
  std::filesystem::create_symlink(run.root() / "secret", run.root() / "third/metrics.jsonl");
  runs.refresh(0);
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs.run(0).status().status, "completed");
  EXPECT_EQ(runs.run(1).status().status, "unreadable");
  EXPECT_EQ(runs.run(2).status().status, "unreadable");
  EXPECT_THAT(runs.run(2).status().error, HasSubstr("is a link"));
  std::filesystem::remove_all(run.root() / "second");
  runs.refresh(0);
  EXPECT_EQ(runs.run(1).status().status, "gone");
  EXPECT_THROW(RunSet({(run.root() / "nothing").string()}), Error);
}

TEST(RunSet, FollowsNoLinkUnlessItIsGiven) {
  const WrittenRun run("linked");
  const std::filesystem::path root = run.root() / "root", other = run.root() / "other";
  make_folders(root);
  make_folders(other);
  std::filesystem::create_directory_symlink(run.folder(), root / "run");
  std::filesystem::create_directory_symlink(run.root(), root / "runs");
  std::filesystem::create_directory_symlink(run.root(), other / "root");
  EXPECT_EQ(RunSet({root.string()}).size(), 0u);
  EXPECT_EQ(RunSet({(root / "run").string()}).size(), 1u) << "a link to a run that was given";
  EXPECT_EQ(RunSet({(other / "root").string()}).size(), 1u) << "a link to a folder of runs that was given";
}

TEST(RunSet, CountsRunsThatItDoesNotShow) {
  const WrittenRun run("many");
  for (size_t i = 0; i < RunSet::kMaxRuns + 4; ++i) {
    make_folders(run.root() / fmt::format("n{:04}", i));
    write_file(run.root() / fmt::format("n{:04}/run.json", i), R"({"status": "completed"})");
  }
  RunSet runs({run.root().string()});
  runs.refresh(0);
  EXPECT_EQ(runs.size(), RunSet::kMaxRuns);
  EXPECT_EQ(runs.left_out(), 5u);
  EXPECT_THAT(runs_json(runs), HasSubstr("\"left_out\":5"));
  const Outcome outcome = run_script(run.root(), R"sh($ingot serve --port 0 . > out 2>&1 & p=$!
for i in $(seq 200); do grep -qs fewer out && break; sleep 0.05; done
kill -INT $p; wait $p; cat out)sh");
  EXPECT_THAT(outcome.output, HasSubstr("serving 1000 of 1005 runs at http"));
  EXPECT_THAT(outcome.output, HasSubstr("at most 1000 runs; name fewer folders to see the other 5\n"));
}

TEST(RunView, GivesSamplesOfTheRunOnly) {
  const WrittenRun run("samples");
  write_file(run.folder() / "samples/step-000000001.txt", "Once");
  write_file(run.root() / "secret", "secret");
  std::filesystem::create_symlink(run.root() / "secret", run.folder() / "samples/step-000000002.txt");
  const RunView view(run.folder(), "samples");
  EXPECT_EQ(view.sample("step-000000001.txt"), "Once");
  EXPECT_FALSE(view.sample("step-000000002.txt"));
  for (const char* name :
       {"../run.json", "../../secret", "/etc/passwd", "", ".", "step-000000001.txt/../../run.json"})
    EXPECT_FALSE(view.sample(name)) << name;
}

class ServedRun : public testing::Test {
 protected:
  ServedRun() {
    run_.append_step(1, 6.5);
    write_file(run_.folder() / "samples/step-000000001.txt", "Once\x1b[2J <b>");
    write_file(run_.root() / "secret.txt", "secret");
    std::filesystem::create_symlink(run_.root() / "secret.txt", run_.folder() / "samples/step-000000002.txt");
    runs_ = std::make_unique<RunSet>(std::vector<std::string>{run_.folder().string()});
    server_ = std::make_unique<PageServer>(*runs_, "127.0.0.1", 0);
    thread_ = std::thread([this] { server_->serve(); });
  }
  ~ServedRun() override {
    server_->stop();
    thread_.join();
  }
  int port() const {
    const std::string url = server_->url();
    return std::stoi(url.substr(url.rfind(':') + 1));
  }
  // Sends the text of a request and returns all that comes back within the seconds.
  std::string raw(const std::string& request, double seconds = 3) const {
    const test::HttpClient client(port());
    client.send(request);
    return client.receive(seconds);
  }
  std::string get(const std::string& path, const std::string& host = "localhost") const {
    return raw("GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n");
  }

  WrittenRun run_{"served"};
  std::unique_ptr<RunSet> runs_;
  std::unique_ptr<PageServer> server_;
  std::thread thread_;
};

TEST_F(ServedRun, AnswersThePageAndItsData) {
  const std::string page = get("/");
  EXPECT_THAT(page, testing::StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(page, HasSubstr("Content-Security-Policy: default-src 'none'; script-src 'self'"));
  for (const char* file : {"/app.js", "/app.css", "/chart.js", "/chart.css", "/store.js", "/panels.js"}) {
    EXPECT_THAT(page, HasSubstr(std::string("\"") + (file + 1) + "\""));
    EXPECT_THAT(get(file), testing::StartsWith("HTTP/1.1 200")) << file;
  }
  EXPECT_THAT(get("/api/runs"), HasSubstr("\"status\":\"completed\""));
  EXPECT_THAT(get("/api/run?run=0"), HasSubstr(R"("train.steps":"4")"));
  EXPECT_THAT(get("/api/sample?run=0&file=step-000000001.txt"), HasSubstr("Once\\x1b[2J <b>"));
  EXPECT_THAT(get("/api/range?run=0&from=0&to=9"), HasSubstr("\"loss\":{\"x\":[1],\"mean\":[6.5]}"));
  EXPECT_THAT(get("/api/params?run=0"), HasSubstr("{}"));
}

TEST_F(ServedRun, HostilePathsLeadNowhere) {
  for (const char* path :
       {"/../secret.txt", "/../../etc/passwd", "/%2e%2e/secret.txt", "/..%2fsecret.txt", "//etc/passwd",
        "/api/sample?run=0&file=../run.json", "/api/sample?run=0&file=..%2f..%2fsecret.txt",
        "/api/sample?run=0&file=%2fetc%2fpasswd", "/api/sample?run=0&file=step-000000002.txt",
        "/api/sample?run=0&file=%00", "/api/sample?run=1&file=step-000000001.txt", "/api/run?run=-1",
        "/api/run?run=99999999999999999999", "/api/run", "/api/run?run=0x0", "/metrics.jsonl", "/run.json",
        "/app.js/..", "/api"})
    EXPECT_THAT(get(path), testing::StartsWith("HTTP/1.1 404")) << path;
  for (const char* path : {"/api/range?run=0&from=a&to=1", "/api/range?run=0&from=2&to=1",
                           "/api/range?run=0&from=nan&to=1", "/api/range?run=0"})
    EXPECT_THAT(get(path), testing::StartsWith("HTTP/1.1 400")) << path;
  EXPECT_THAT(get("/", "evil.example"), testing::StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(get("/api/events?runs=0", "evil.example"), testing::StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(raw("GET / HTTP/1.1\r\nConnection: close\r\n\r\n"), testing::StartsWith("HTTP/1.1 403"));
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS"})
    EXPECT_THAT(raw(std::string(method) +
                    " / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
                testing::StartsWith("HTTP/1.1 405"))
        << method;
  EXPECT_THAT(get("/api/runs"), testing::StartsWith("HTTP/1.1 200"));
}

TEST_F(ServedRun, AppendedLinesArriveAsEvents) {
  std::thread writer([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    run_.append_step(2, 6.25);
  });
  const std::string events = raw("GET /api/events?runs=0 HTTP/1.1\r\nHost: localhost\r\n\r\n", 1.2);
  writer.join();
  EXPECT_THAT(events, HasSubstr("text/event-stream"));
  EXPECT_THAT(events, HasSubstr("event: snapshot"));
  EXPECT_THAT(events, HasSubstr("event: lines\ndata: {\"run\":0,\"lines\":[[2,{\"tokens\":20,\"loss\":6.25"));
}

TEST_F(ServedRun, APortThatIsTakenIsOneClearError) {
  EXPECT_THAT(
      usage_error([&] { const PageServer second(*runs_, "127.0.0.1", port()); }),
      HasSubstr(fmt::format("port {} of 127.0.0.1: Address already in use; choose another --port", port())));
}

TEST(ServeCommand, PrintsItsAddressAndEndsWithZeroAtASignal) {
  const WrittenRun run("command");
  const Outcome outcome = run_script(run.root(), R"sh(
$ingot serve --port 0 command > out 2> err & p=$!
for i in $(seq 200); do grep -qs http out && break; sleep 0.05; done
port=$(grep -o '[0-9]*/$' out); port=${port%/}
for i in 3 4 5 6 7; do eval "exec $i<>/dev/tcp/127.0.0.1/$port"; printf 'GET / HT' >&$i; done
printf 'TP/1.1\r\nHost: localhost\r\n' >&3; printf 'GET /api/events?runs=0 HTTP/1.1\r\nHost: localhost\r\n\r\n' >&4
begin=$(date +%s%N); kill -INT $p; wait $p; echo code $?; cat out err
[ $(($(date +%s%N) - begin)) -lt 1000000000 ] && echo in time
rm out; $ingot serve --host 0.0.0.0 --port 0 command > out 2> err & p=$!
for i in $(seq 200); do grep -qs http out && break; sleep 0.05; done
kill -TERM $p; wait $p; echo code $?; cat err
port=$(grep -o '[0-9]*/$' out); grep -q "ssh -L ${port%/}:localhost:${port%/} " err && echo right port
$ingot serve nowhere; echo code $?)sh");
  EXPECT_THAT(outcome.output, HasSubstr("code 0\nserving 1 run at http://127.0.0.1:"));
  EXPECT_THAT(outcome.output, HasSubstr("code 0\nWARNING: everyone who can reach"));
  EXPECT_THAT(outcome.output, HasSubstr("\nin time\n"));
  EXPECT_THAT(outcome.output, HasSubstr("\nright port\n"));
  EXPECT_THAT(outcome.output, HasSubstr("nowhere is no folder; name a run's folder"));
  EXPECT_THAT(outcome.output, testing::EndsWith("code 2\n"));
}

}  // namespace
}  // namespace ingot
