#include "ingot/formats/safetensors_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "ingot/core/file.h"
#include "tests/reference/error_of.h"
#include "tests/reference/temporary_folder.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string index_refusal(const std::string& text) {
  return data_error([&] { parse_safetensors_index(text, "x/index.json"); });
}

TEST(SafetensorsIndex, NamesTheFileOfEveryTensorAndIsReadBack) {
  const std::map<std::string, std::string> files = {{"a", "m-1.safetensors"}, {"b.c", "m-2.safetensors"}};
  const std::string text = safetensors_index_text(files, 96);
  EXPECT_THAT(text, HasSubstr("\"total_size\": 96"));
  EXPECT_EQ(parse_safetensors_index(text, "x"), files);
}

TEST(SafetensorsIndex, RefusesNamesThatLeaveItsFolder) {
  for (const char* name : {"../m.safetensors", "/m.safetensors", "a/m.safetensors", "a\\\\m.safetensors",
                           "..", "", "m.bin", "m\\u0000.safetensors", "m\\n.safetensors"})
    EXPECT_THAT(index_refusal(fmt::format(R"({{"weight_map": {{"t": "{}"}}}})", name)),
                AllOf(HasSubstr("x/index.json: the file of tensor t must be a name like"),
                      HasSubstr("in the same folder")))
        << name;
  EXPECT_THAT(index_refusal(R"({"weight_map": {"t": 7}})"), HasSubstr("the file of tensor t"));
}

TEST(SafetensorsIndex, RefusesWhatIsNoIndex) {
  EXPECT_THAT(index_refusal(R"({"weight_map": {"t": "a.safetensors", "t": "b.safetensors"}})"),
              HasSubstr("\"t\" is named twice"));
  EXPECT_THAT(index_refusal(R"({"weight_map": {}, "weight_map": {"t": "a.safetensors"}})"),
              HasSubstr("\"weight_map\" is named twice"));
  for (const char* text : {"{}", "[]", "7", R"({"weight_map": []})", R"({"weight_map": {}})"})
    EXPECT_THAT(index_refusal(text), HasSubstr("has no \"weight_map\"")) << text;
  EXPECT_THAT(index_refusal("{\"weight_map\""), HasSubstr("is not JSON at its byte"));
  EXPECT_THAT(index_refusal(std::string(100, '[')), HasSubstr("is nested deeper than 32 levels"));
}

class SafetensorsSetTest : public FolderTest {
 protected:
  SafetensorsSetTest() { make_folders(model_); }

  // Writes a file with one tensor of four numbers for each name.
  void write(const fs::path& path, const std::vector<std::string>& names) const {
    static const std::vector<float> numbers = {1, 2, 3, 4};
    std::vector<SafetensorsSource> sources;
    for (const std::string& name : names)
      sources.push_back(
          {.name = name, .dtype = DType::f32, .shape = {4}, .bytes = std::as_bytes(std::span(numbers))});
    write_safetensors(path, sources);
  }
  void write_index(const std::map<std::string, std::string>& files) const {
    write_file(model_ / kSafetensorsIndexName, safetensors_index_text(files, 32));
  }
  std::string refusal() const {
    return data_error([&] { SafetensorsSet::open(model_); });
  }

  const fs::path model_ = folder_ / "model";
};

TEST_F(SafetensorsSetTest, FindsTensorsInAllFiles) {
  write(model_ / "m-1.safetensors", {"a", "b"});
  write(model_ / "m-2.safetensors", {"c"});
  write_index({{"a", "m-1.safetensors"}, {"b", "m-1.safetensors"}, {"c", "m-2.safetensors"}});
  const SafetensorsSet set = SafetensorsSet::open(model_);
  EXPECT_EQ(set.tensors(), 3u);
  EXPECT_EQ(set.files().size(), 2u);
  EXPECT_EQ(set.label_of(set.get("b")), (model_ / "m-1.safetensors").string());
  EXPECT_EQ(set.label_of(set.get("c")), (model_ / "m-2.safetensors").string());
  EXPECT_EQ(set.find("d"), nullptr);
  EXPECT_THAT(data_error([&] { set.get("d"); }),
              AllOf(HasSubstr("model.safetensors.index.json"), HasSubstr("no tensor d")));
}

TEST_F(SafetensorsSetTest, TakesTheSingleFileBesideAnIndex) {
  write(model_ / kSafetensorsName, {"a"});
  write_index({{"a", "missing.safetensors"}});
  EXPECT_EQ(SafetensorsSet::open(model_).files().size(), 1u);
}

TEST_F(SafetensorsSetTest, RefusesAnIndexThatDoesNotFitItsFiles) {
  EXPECT_THAT(refusal(), HasSubstr("there is neither model.safetensors nor model.safetensors.index.json"));
  write(model_ / "m-1.safetensors", {"a"});
  write_index({{"a", "m-1.safetensors"}, {"b", "m-2.safetensors"}});
  EXPECT_THAT(refusal(), HasSubstr("names m-2.safetensors, which is no file in its folder"));
  write(model_ / "m-2.safetensors", {"c"});
  EXPECT_THAT(refusal(), HasSubstr("names tensor b in m-2.safetensors, which does not have it"));
}

// A file may hold newer numbers of tensors that another file has too.
TEST_F(SafetensorsSetTest, TheIndexDecidesWhereATensorComesFrom) {
  write(model_ / "m-1.safetensors", {"a", "b", "unnamed"});
  write(model_ / "m-2.safetensors", {"a"});
  write_index({{"a", "m-2.safetensors"}, {"b", "m-1.safetensors"}});
  const SafetensorsSet set = SafetensorsSet::open(model_);
  EXPECT_EQ(set.label_of(set.get("a")), (model_ / "m-2.safetensors").string());
  EXPECT_EQ(set.label_of(set.get("b")), (model_ / "m-1.safetensors").string());
  EXPECT_EQ(set.find("unnamed"), nullptr);
  EXPECT_EQ(set.tensors(), 2u);
}

TEST_F(SafetensorsSetTest, FollowsLinksOnlyInsideTheFolderOrTheCacheOfHuggingFace) {
  write(folder_ / "outside.safetensors", {"a"});
  write_index({{"a", "m.safetensors"}});
  fs::create_symlink("../outside.safetensors", model_ / "m.safetensors");
  EXPECT_THAT(refusal(), HasSubstr("m.safetensors links to"));
  fs::remove(model_ / "m.safetensors");
  write(model_ / "other.safetensors", {"a"});
  fs::create_symlink("other.safetensors", model_ / "m.safetensors");
  EXPECT_EQ(refusal(), "no error");

  const fs::path snapshot = folder_ / "snapshots" / "0123";
  make_folders(snapshot);
  make_folders(folder_ / "blobs");
  fs::copy(model_ / kSafetensorsIndexName, snapshot / kSafetensorsIndexName);
  write(folder_ / "blobs" / "89ab", {"a"});
  fs::create_symlink("../../blobs/89ab", snapshot / "m.safetensors");
  EXPECT_EQ(SafetensorsSet::open(snapshot).tensors(), 1u);
}

}  // namespace
}  // namespace ingot
