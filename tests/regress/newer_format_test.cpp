// Seen: a program passed over checkpoints of a newer format, resumed an older one, and overwrote and pruned
// what it had passed over; a trainer.json that contradicted the manifest was believed; pruning removed a
// folder of the user's. Wanted: exit code 3, and only checkpoints that this program wrote are ever touched.
#include <nlohmann/json.hpp>

#include "ingot/checkpoint/checkpoint_store.h"
#include "ingot/formats/xxh3.h"
#include "tests/regress/attack_fixture.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class NewerFormat : public AttackTest {
 protected:
  void SetUp() override { make_run("--set checkpoint.every=2 --set train.stop_at=4"); }
  // Makes a checkpoint what a program of format 2 would write: with another structure, and sealed.
  void make_newer(int64_t step) const {
    const std::string body = "{\n\"format\": \"ingot checkpoint 2\",\n\"blobs\": {},\n";
    Xxh3 hash;
    hash.add(std::as_bytes(std::span(body)));
    write_file(checkpoint(step) / kManifestName,
               body + fmt::format("\"self_xxh3_64\": \"{:016x}\"}}\n", hash.value()));
  }
  std::string all_files() const {
    return run_script(folder_,
                      "find run -type f ! -name .lock -exec sha256sum {} + | sort; ls -l run/checkpoints")
        .output;
  }
};

TEST_F(NewerFormat, IsRefusedAndNothingIsTouched) {
  for (const std::vector<int64_t>& newer : {std::vector<int64_t>{2}, {2, 4}}) {
    for (const int64_t step : newer) make_newer(step);
    const std::string before = all_files();
    for (const char* command :
         {"train --resume --out run", "train --resume --out run --set train.steps=8 --set checkpoint.keep=1",
          "launch -n 1 -- train --resume --out run"}) {
      const Outcome outcome = bash(std::string("$ingot ") + command);
      EXPECT_EQ(outcome.exit_code, 3) << command << outcome.output;
      EXPECT_THAT(
          outcome.output,
          AllOf(HasSubstr(fmt::format("{:09}/MANIFEST.json: was made by a newer Ingot", newer.back())),
                HasSubstr("it is of format 2, and this program reads up to 1; use that Ingot"),
                Not(HasSubstr("passed over")), Not(HasSubstr("use another checkpoint"))))
          << command;
    }
    EXPECT_EQ(all_files(), before);
  }
  for (const char* command : {"generate run", "eval run --data text.txt", "export run --hf out",
                              "export run/checkpoints/step-000000004 --gguf out.gguf",
                              "train tiny-llama --data text.txt --init run --out other"}) {
    const Outcome outcome = bash(std::string("$ingot ") + command);
    EXPECT_EQ(outcome.exit_code, 3) << command << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr("was made by a newer Ingot")) << command;
  }
}

// The run's config.toml may hold keys that only the newer program has.
TEST_F(NewerFormat, IsNamedBeforeTheConfigurationIsRead) {
  make_newer(4);
  const Outcome outcome = bash("echo '[future]' >>run/config.toml; $ingot train --resume --out run");
  EXPECT_EQ(outcome.exit_code, 3) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("was made by a newer Ingot"));
}

TEST_F(NewerFormat, WordsAboutDamageAreSaidOnce) {
  const Outcome outcome = bash(
      "sed -i s/ingot/Ingot/ run/checkpoints/step-000000004/MANIFEST.json\n"
      "$ingot generate run/checkpoints/step-000000004");
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_THAT(outcome.output,
              HasSubstr("step-000000004: MANIFEST.json its own hash does not match: it has been "
                        "changed; use another checkpoint\n"));
}

TEST_F(NewerFormat, ATrainerJsonThatContradictsTheManifestIsRefused) {
  const fs::path path = checkpoint(4) / "trainer.json";
  const nlohmann::json good = nlohmann::json::parse(read_file(path));
  const ManifestMetadata metadata = read_manifest(checkpoint(4)).metadata;
  for (const auto& [key, value, expected] : std::vector<std::tuple<std::string, nlohmann::json, std::string>>{
           {"step", 61, "\"step\" is 61, which MANIFEST.json contradicts"},
           {"step", -1, "\"step\" must be a whole number of 0 or more"},
           {"step", 1e300, "\"step\" must be a whole number of 0 or more"},
           {"step", uint64_t{1} << 63, "\"step\" must be a whole number of 0 or more"},
           {"tokens", -5, "\"tokens\" must be a whole number"},
           {"tokens", 5, "\"tokens\" is 5, which MANIFEST.json contradicts"},
           {"sample_position", -1, "\"sample_position\" must be a whole number"},
           {"spent_s", -1.5, "\"spent_s\" must be a number of 0 or more"},
           {"excluded_samples", {{5, 3}}, "\"excluded_samples\" has no range [5, 3]"}}) {
    nlohmann::json forged = good;
    forged[key] = value;
    write_file(path, forged.dump());
    write_manifest(checkpoint(4), metadata);
    const Outcome outcome = bash("$ingot train --resume --out run");
    EXPECT_EQ(outcome.exit_code, 3) << key << outcome.output;
    EXPECT_THAT(outcome.output, AllOf(HasSubstr("step-000000004/trainer.json: "), HasSubstr(expected)))
        << key;
  }
}

TEST_F(NewerFormat, FoldersOfTheUserStay) {
  const Outcome outcome = bash(
      "rm run/checkpoints/best; mkdir run/checkpoints/step-000000001 run/checkpoints/step-000000006 "
      "run/checkpoints/step-000000099\n"
      "for n in 01 06 99; do echo mine >run/checkpoints/step-0000000$n/notes.txt; done\n"
      "echo mine >run/checkpoints/step-000000002/notes.txt\n"
      "$ingot train --resume --out run --set train.steps=8 --set checkpoint.keep=1 --set "
      "checkpoint.best=false\n"
      "cd run/checkpoints; ls; cat */notes.txt");
  EXPECT_THAT(outcome.output, testing::EndsWith("step-000000001\nstep-000000002\nstep-000000006.kept-1\n"
                                                "step-000000008\nstep-000000099\nmine\nmine\nmine\nmine\n"));
}

}  // namespace
}  // namespace ingot
