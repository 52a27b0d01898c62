#include "ingot/formats/manifest.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "tests/reference/error_of.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ManifestTest : public ::testing::Test {
 protected:
  ManifestTest() {
    fs::create_directories(folder_);
    put("model.safetensors", std::string(5000, 'm') + std::string(5000, '\0'));
    put("config.json", "{\"a\":1}\n");
    put("empty", "");
  }
  ~ManifestTest() override { fs::remove_all(folder_); }

  void put(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  // Returns "<file> <what>" for each problem, one per line.
  std::string problems() const {
    std::string text;
    for (const ManifestProblem& p : verify_manifest(folder_)) text += fmt::format("{} {}\n", p.file, p.what);
    return text;
  }

  fs::path folder_ = (::access("/dev/shm", W_OK) == 0 ? fs::path("/dev/shm") : fs::temp_directory_path()) /
                     ("ingot_manifest_" + std::to_string(::getpid()));
  const ManifestMetadata metadata_{
      {"step", int64_t{100}}, {"loss", 0.1}, {"config_hash", "ab\"c"}, {"n", int64_t{-3}}};
};

// Appends a correct closing line, so that the parser also checks the body.
std::string sealed(const std::string& body) {
  return fmt::format("{}\"self_xxh3_64\": \"{:016x}\"}}\n", body, XXH3_64bits(body.data(), body.size()));
}

std::string manifest_refusal(const std::string& text) {
  std::string message = data_error([&] { parse_manifest(text, "x/MANIFEST.json"); });
  if (message != "no error") {
    EXPECT_THAT(message, HasSubstr("x/MANIFEST.json"));
  }
  return message;
}

TEST_F(ManifestTest, WhatIsWrittenIsReadBackAndIsJson) {
  const Manifest written = write_manifest(folder_, metadata_);
  EXPECT_EQ(problems(), "");
  const Manifest read = read_manifest(folder_);
  EXPECT_EQ(read.files, written.files);
  EXPECT_EQ(read.metadata, metadata_);
  ASSERT_EQ(read.files.size(), 3u);
  EXPECT_EQ(read.files[2].name, "model.safetensors");
  EXPECT_EQ(read.files[2].size_bytes, 10'000u);
  const std::string model = read_file(folder_ / "model.safetensors");
  EXPECT_EQ(read.files[2].xxh3_64, XXH3_64bits(model.data(), model.size()));
  const auto json = nlohmann::json::parse(read_file(folder_ / kManifestName));
  EXPECT_EQ(json["metadata"]["step"], 100);
  EXPECT_EQ(json["files"].size(), 3u);
  write_manifest(folder_, metadata_);  // replaces the old manifest, which the new one does not list
  EXPECT_EQ(problems(), "");
}

TEST_F(ManifestTest, AKnownHashIsWrittenAndChecked) {
  write_manifest(folder_, {}, {{"config.json", 1}});
  EXPECT_THAT(problems(), HasSubstr("config.json has hash"));
}

TEST_F(ManifestTest, MissingExtraAndForeignFilesAreNamed) {
  write_manifest(folder_, metadata_);
  put("extra", "x");
  fs::remove(folder_ / "empty");
  EXPECT_EQ(problems(), "empty is missing\nextra is not listed in the manifest\n");

  fs::remove(folder_ / "config.json");
  fs::create_symlink("/etc/passwd", folder_ / "config.json");
  EXPECT_THAT(problems(), HasSubstr("config.json is a link\n"));
  fs::remove(folder_ / "config.json");
  ASSERT_EQ(::mkfifo((folder_ / "config.json").c_str(), 0600), 0);
  EXPECT_THAT(problems(), HasSubstr("config.json is a FIFO\n"));  // the check does not wait for a writer
  fs::remove(folder_ / "config.json");
  fs::create_directory(folder_ / "config.json");
  EXPECT_THAT(problems(), HasSubstr("config.json is a folder\n"));
}

TEST_F(ManifestTest, WritingRefusesWhatIsNotAPlainFile) {
  for (const char* kind : {"folder", "link", "FIFO"}) {
    const fs::path path = folder_ / "odd";
    if (kind[0] == 'f') fs::create_directory(path);
    if (kind[0] == 'l') fs::create_symlink("config.json", path);
    if (kind[0] == 'F') {
      ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    }
    EXPECT_THAT(error_of([&] { write_manifest(folder_, {}); }),
                HasSubstr(fmt::format("\"odd\" is a {}", kind)));
    fs::remove(path);
  }
}

TEST_F(ManifestTest, AMissingOrForeignManifestIsNamed) {
  EXPECT_THAT(problems(), HasSubstr("MANIFEST.json is missing"));
  fs::create_symlink("config.json", folder_ / kManifestName);
  EXPECT_THAT(problems(), HasSubstr("is a link"));
  fs::remove(folder_ / kManifestName);
  ASSERT_EQ(::mkfifo((folder_ / kManifestName).c_str(), 0600), 0);
  EXPECT_THAT(problems(), HasSubstr("is a FIFO"));
  EXPECT_FALSE(verify_manifest(folder_ / "absent").empty());
}

TEST_F(ManifestTest, OfFilesThatAreNotReadOnlyTheBytesMayChange) {
  write_manifest(folder_, metadata_);
  const auto found = [&](std::vector<std::string_view> read) {
    std::string text;
    for (const ManifestProblem& p : verify_manifest_of(folder_, read)) text += p.file + " " + p.what + "\n";
    return text;
  };
  put("config.json", "{\"a\":2}\n");
  EXPECT_EQ(found({"model.safetensors"}), "");
  EXPECT_THAT(found({"model.safetensors", "config.json"}), HasSubstr("config.json has hash"));
  put("config.json", "{}");
  EXPECT_THAT(found({"model.safetensors"}), HasSubstr("config.json has 2 bytes"));
  fs::remove(folder_ / "config.json");
  EXPECT_THAT(found({}), HasSubstr("config.json is missing"));
  put("extra", "");
  EXPECT_THAT(found({}), HasSubstr("extra is not listed"));
}

TEST_F(ManifestTest, EveryFlippedBitAndEveryTruncationOfTheManifestIsFound) {
  write_manifest(folder_, metadata_);
  const std::string good = read_file(folder_ / kManifestName);
  EXPECT_EQ(manifest_refusal(good), "no error");
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string text = good;
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << (bit % 8)));
    ASSERT_NE(manifest_refusal(text), "no error") << "bit " << bit;
  }
  for (size_t n = 0; n < good.size(); ++n) ASSERT_NE(manifest_refusal(good.substr(0, n)), "no error") << n;
  EXPECT_NE(manifest_refusal(good + "\n"), "no error");
  EXPECT_NE(manifest_refusal("\n" + good), "no error");
}

TEST_F(ManifestTest, EveryDamageToAFileIsFound) {
  write_manifest(folder_, metadata_);
  std::mt19937 random(7);
  for (const std::string name : {"model.safetensors", "config.json"}) {
    const std::string good = read_file(folder_ / name);
    for (int i = 0; i < 500; ++i) {
      std::string text = good;
      const size_t bit = random() % (8 * good.size());
      text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << (bit % 8)));
      put(name, text);
      ASSERT_THAT(problems(), ::testing::StartsWith(name + " has hash ")) << bit;
    }
    for (size_t n = 0; n < good.size(); n += 1 + good.size() / 300) {
      put(name, good.substr(0, n));
      ASSERT_THAT(problems(), ::testing::StartsWith(fmt::format("{} has {} bytes, the manifest says {}", name,
                                                                n, good.size())));
    }
    put(name, good);
    ASSERT_EQ(problems(), "");
  }
}

TEST(Manifest, HostileTextWithAValidSealIsRefused) {
  const std::string head = "{\n\"format\": \"ingot checkpoint 1\",\n\"metadata\": {},\n\"files\": [";
  const auto with_file = [&](const std::string& file) { return sealed(head + "\n" + file + "\n],\n"); };
  const auto named = [&](const std::string& name) {
    return with_file(
        fmt::format(R"({{"name": "{}", "size_bytes": 1, "xxh3_64": "0123456789abcdef"}})", name));
  };
  EXPECT_EQ(manifest_refusal(named("ok")), "no error");
  EXPECT_EQ(manifest_refusal(sealed(head + "\n],\n")), "no error");
  for (const char* name :
       {"", ".", "..", "../x", "/etc/passwd", "a/b", "MANIFEST.json", "a\\nb", "a\\u0000b", "\\u001b"})
    EXPECT_THAT(manifest_refusal(named(name)), HasSubstr("file name")) << name;
  EXPECT_THAT(manifest_refusal(named(std::string(256, 'n'))), HasSubstr("longer than 255"));

  const std::string a = R"({"name": "a", "size_bytes": 1, "xxh3_64": "0123456789abcdef"})";
  EXPECT_THAT(manifest_refusal(with_file(a + ",\n" + a)), HasSubstr("given twice"));
  EXPECT_THAT(
      manifest_refusal(with_file(R"({"name": "a", "size_bytes": -1, "xxh3_64": "0123456789abcdef"})")),
      HasSubstr("wrong type"));
  EXPECT_THAT(
      manifest_refusal(with_file(R"({"name": "a", "size_bytes": 1e3, "xxh3_64": "0123456789abcdef"})")),
      HasSubstr("wrong type"));
  EXPECT_THAT(manifest_refusal(with_file(R"({"name": "a", "size_bytes": 1, "xxh3_64": "0123456789ABCDEF"})")),
              HasSubstr("16 hex digits"));
  EXPECT_THAT(manifest_refusal(with_file(R"({"name": "a", "size_bytes": 1})")),
              HasSubstr("xxh3_64 is missing"));
  EXPECT_THAT(manifest_refusal(with_file("7")), HasSubstr("no object"));
  // These texts have the right meaning but are not canonical: they have a second key of the same name, an
  // unknown key, or other spacing.
  EXPECT_THAT(manifest_refusal(
                  with_file(R"({"name": "a", "name": "a", "size_bytes": 1, "xxh3_64": "0123456789abcdef"})")),
              HasSubstr("not as Ingot writes it"));
  EXPECT_THAT(
      manifest_refusal(with_file(R"({"name": "a", "size_bytes": 1, "x": 1, "xxh3_64": "0123456789abcdef"})")),
      HasSubstr("not as Ingot writes it"));
  EXPECT_THAT(manifest_refusal(sealed(head + "],\n")), HasSubstr("not as Ingot writes it"));

  EXPECT_THAT(manifest_refusal(sealed("{\n\"format\": \"other\",\n\"metadata\": {},\n\"files\": [\n],\n")),
              HasSubstr("format"));
  EXPECT_THAT(manifest_refusal(sealed("[" + std::string(100'000, '['))), HasSubstr("not an object"));
  EXPECT_THAT(manifest_refusal(sealed("")), HasSubstr("not an object"));
  EXPECT_THAT(manifest_refusal(""), HasSubstr("too few"));
  EXPECT_THAT(manifest_refusal(std::string((16 << 20) + 1, ' ')), HasSubstr("too many"));
}

TEST(Manifest, MistakesOfTheWriterAreRefused) {
  const auto text_of = [](const std::vector<ManifestFile>& files) { return manifest_text({{}, files}); };
  EXPECT_THROW(text_of({{"a/b", 1, 1}}), Error);
  EXPECT_THROW(text_of({{"a", 1, 1}, {"a", 1, 1}}), Error);
  EXPECT_THROW(manifest_text({{{"loss", std::nan("")}}, {}}), Error);
  EXPECT_EQ(manifest_refusal(manifest_text({{{"text", "bytes \xff"}}, {{"name \xc3\xa9", 1, 1}}})),
            "no error");
}

}  // namespace
}  // namespace ingot
