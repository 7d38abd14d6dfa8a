#include "certificate/merkle.hpp"

#include <gtest/gtest.h>

#include "certificate/error.hpp"

namespace kvcts::certificate {
namespace {

/// Records and roots used to test the reference implementations of Certificate Transparency.
const std::vector<std::string> texts{"",
                                     std::string(1, '\0'),
                                     "\x10",
                                     "\x20\x21",
                                     "\x30\x31",
                                     "\x40\x41\x42\x43",
                                     "\x50\x51\x52\x53\x54\x55\x56\x57",
                                     "\x60\x61\x62\x63\x64\x65\x66\x67\x68\x69\x6a\x6b\x6c\x6d\x6e\x6f"};
const std::vector<const char*> roots{"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
                                     "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
                                     "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
                                     "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
                                     "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
                                     "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
                                     "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
                                     "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
                                     "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"};

std::vector<Digest> leaves_of(std::size_t n) {
  std::vector<Digest> leaves;
  for (std::size_t i = 0; i < n; ++i) leaves.push_back(leaf_hash(i < texts.size() ? texts[i] : std::to_string(i)));
  return leaves;
}

TEST(Merkle, RootsMatchCertificateTransparency) {
  for (std::size_t n = 0; n < roots.size(); ++n) EXPECT_EQ(hex(root_of(leaves_of(n))), roots[n]) << n;
}

TEST(Merkle, ParsesHexDigestsStrictly) {
  EXPECT_EQ(digest_from_hex(roots[3]), root_of(leaves_of(3)));
  for (const std::string& text : {std::string(roots[3]) + "0", std::string(roots[3]).substr(1), std::string(64, 'g'),
                                  std::string(64, 'A'), std::string()})
    EXPECT_THROW(digest_from_hex(text), Error);
}

}  // namespace
}  // namespace kvcts::certificate
