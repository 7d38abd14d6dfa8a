#include "certificate/archive.hpp"

#include <gtest/gtest.h>

#include "certificate/error.hpp"

namespace kvcts::certificate {
namespace {

const Files three{{"a.json", "{}"}, {"empty", ""}, {"logs/one.txt", std::string(300, 'x')}};

std::string error_of(std::string_view bytes) {
  try {
    read_archive(bytes);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Archive, GivesBackWhatWasPutIn) {
  EXPECT_EQ(read_archive(archive(three)), three);
  EXPECT_EQ(archive(three).substr(0, 4), "PK\x03\x04");
}

TEST(Archive, NoBitOfItIsFree) {
  const std::string good = archive(three);
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (const int bit : {0, 7}) {
      std::string spoiled = good;
      spoiled[i] = static_cast<char>(spoiled[i] ^ (1 << bit));
      EXPECT_NE(error_of(spoiled), "") << "byte " << i;
    }
  }
}

TEST(Archive, SaysWhereItIsWrong) {
  const std::string good = archive(three);
  const std::size_t at = good.find("xxx");
  std::string spoiled = good;
  spoiled[at + 20] = 'y';  // the checksum in front of it is the first that does not fit
  EXPECT_NE(error_of(spoiled).find("the head of logs/one.txt"), std::string::npos) << error_of(spoiled);
  for (std::size_t n = 0; n < good.size(); ++n) EXPECT_NE(error_of(good.substr(0, n)), "") << n;
  EXPECT_NE(error_of(good + "x").find("behind its end"), std::string::npos);
  EXPECT_NE(error_of("text").find("expected a package, found something else"), std::string::npos);
  EXPECT_THROW(archive({{std::string(70000, 'n'), ""}}), Error);
}

}  // namespace
}  // namespace kvcts::certificate
