// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "src/base/store/client.h"
#include "src/base/store/sha256.h"
#include "src/base/store/sign.h"

namespace weft::s3 {
namespace {

TEST(Signature, HashesAreThoseOfTheStandard) {
  EXPECT_EQ(hex_of(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex_of(sha256("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex_of(sha256(std::string(1'000'000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  // RFC 4231, cases 2 and 6.
  EXPECT_EQ(hex_of(hmac("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex_of(hmac(std::string(131, '\xaa'),
                        "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Signature, EqualsBotocores) {
  std::ifstream file(WEFT_SOURCE_DIR "/tests/reference/signatures.json");
  const auto root = nlohmann::json::parse(file);
  ASSERT_EQ(root["requests"].size(), 200u);
  for (const auto& row : root["requests"]) {
    const Request request{.method = row["method"],
                          .path = row["path"],
                          .query = row["query"].get<Pairs>(),
                          .headers = row["headers"].get<Pairs>()};
    EXPECT_EQ(target_of(request), row["target"].get<std::string>());
    const Credentials credentials{row["id"], row["secret"], row["token"]};
    const Pairs headers = signed_headers(request, row["host"], credentials, row["region"],
                                         row["hash"], row["time"].get<std::time_t>());
    EXPECT_EQ(headers.back().first, "authorization");
    EXPECT_EQ(headers.back().second, row["authorization"].get<std::string>()) << row.dump();
  }
}

TEST(Signature, PathsNameBucketsAndKeys) {
  EXPECT_EQ(place_of("s3://bucket").path(), "s3://bucket");
  EXPECT_EQ(place_of("s3://bucket/").key, "");
  EXPECT_EQ(place_of("s3://bucket/a//b/").key, "a//b");
  EXPECT_EQ(place_of("s3://bucket/a//b/").bucket, "bucket");
  try {
    (void)place_of("s3://a b/c");
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(),
                 "s3: \"s3://a b/c\" names the bucket \"a b\", expected s3://bucket/key with a "
                 "bucket of 3 to 63 letters, digits, dots and hyphens");
  }
}

TEST(Signature, ElementsOfDocuments) {
  const std::string xml =
      "<R><Prefix/><Contents><Key>a&amp;b&lt;</Key></Contents><ContentsX>n</ContentsX>"
      "<Contents a='1'><Key>c</Key></Contents><Owner></Owner></R>";
  const auto found = elements(xml, "Contents");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(element(found[0], "Key"), "a&b<");
  EXPECT_EQ(element(found[1], "Key"), "c");
  EXPECT_EQ(element(xml, "Prefix"), "");
  EXPECT_EQ(element(xml, "Missing"), "");
  EXPECT_TRUE(elements("<Contents>", "Contents").empty());
  EXPECT_EQ(unescaped_url("a%2Fb+c%zz%4"), "a/b c%zz%4");
}

}  // namespace
}  // namespace weft::s3
