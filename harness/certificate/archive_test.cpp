#include "certificate/archive.hpp"

#include <gtest/gtest.h>

#include "certificate/error.hpp"

namespace kvcts::certificate {
namespace {

const Files three{{"a.json", "{}"}, {"empty", ""}, {"logs/one.txt", std::string(300, 'x')}};

std::string error_of(std::string_view bytes) {
  std::string contradiction;
  try {
    read_archive(bytes, contradiction);
  } catch (const Error& error) {
    return error.what();
  }
  return contradiction;
}

TEST(Archive, ReturnsTheFilesItWasGiven) {
  std::string contradiction;
  EXPECT_EQ(read_archive(archive(three), contradiction), three);
  EXPECT_EQ(contradiction, "");
  EXPECT_EQ(archive(three).substr(0, 4), "PK\x03\x04");
}

TEST(Archive, DetectsAFlipOfAnyByte) {
  const std::string good = archive(three);
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (const int bit : {0, 7}) {
      std::string spoiled = good;
      spoiled[i] = static_cast<char>(spoiled[i] ^ (1 << bit));
      EXPECT_NE(error_of(spoiled), "") << "byte " << i;
    }
  }
}

TEST(Archive, ErrorsNameThePosition) {
  const std::string good = archive(three);
  const std::size_t at = good.find("xxx");
  std::string spoiled = good;
  spoiled[at + 20] = 'y';
  EXPECT_EQ(error_of(spoiled), "the archive's checksum of logs/one.txt is not that of its content");
  spoiled = good, spoiled[at - 12 - 20] = 'y';  // its time
  EXPECT_NE(error_of(spoiled).find("the head of logs/one.txt"), std::string::npos) << error_of(spoiled);
  for (std::size_t n = 0; n < good.size(); ++n) EXPECT_NE(error_of(good.substr(0, n)), "") << n;
  EXPECT_NE(error_of(good + "x").find("behind its end"), std::string::npos);
  EXPECT_NE(error_of("text").find("expected a package, found something else"), std::string::npos);
  EXPECT_THROW(archive({{std::string(70000, 'n'), ""}}), Error);
}

}  // namespace
}  // namespace kvcts::certificate
