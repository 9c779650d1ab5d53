#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <cstdio>
#include <memory>

#include "casemate/mcp/http_client_test.h"
#include "casemate/mcp/http_server.h"
#include "tests/support/expect_refusal.h"
#include "tests/support/scratch.h"

namespace casemate::mcp {
namespace {

template <auto Free>
struct Freed {
  template <typename T>
  void operator()(T* pointer) const {
    Free(pointer);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;
using File = std::unique_ptr<std::FILE, Freed<std::fclose>>;

// A certificate for localhost that signs itself, and its key, as PEM files.
void write_certificate(const std::string& certificate_path, const std::string& key_path) {
  const Key key(EVP_EC_gen("P-256"));
  const Certificate certificate(X509_new());
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), 0);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
  X509_set_pubkey(certificate.get(), key.get());
  X509_NAME* const name = X509_get_subject_name(certificate.get());
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
  X509_set_issuer_name(certificate.get(), name);
  ASSERT_GT(X509_sign(certificate.get(), key.get(), EVP_sha256()), 0);
  const File certificate_file(std::fopen(certificate_path.c_str(), "we"));
  ASSERT_EQ(PEM_write_X509(certificate_file.get(), certificate.get()), 1);
  const File key_file(std::fopen(key_path.c_str(), "we"));
  ASSERT_EQ(PEM_write_PrivateKey(key_file.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr),
            1);
}

class Once final : public HttpApplication {
 public:
  HttpAnswer answer(const HttpHead&, std::string_view, std::string body) override {
    return {.body = std::move(body)};
  }
  std::string refusal_body(const HttpRefusal& refusal) override { return refusal.reason; }
  void tick(std::chrono::steady_clock::time_point) override {}
};

// A TLS client of one connection. `newest` bounds the version; 0 for none.
class TlsClient {
 public:
  TlsClient(std::uint16_t port, const std::string& certificate, int newest) {
    context_.reset(SSL_CTX_new(TLS_client_method()));
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
    EXPECT_EQ(SSL_CTX_load_verify_file(context_.get(), certificate.c_str()), 1);
    SSL_CTX_set_max_proto_version(context_.get(), newest);
    SSL_CTX_set_min_proto_version(context_.get(), TLS1_VERSION);
    SSL_CTX_set_security_level(context_.get(), 0);
    bio_.reset(BIO_new_ssl_connect(context_.get()));
    BIO_set_conn_hostname(bio_.get(), ("127.0.0.1:" + std::to_string(port)).c_str());
    connected_ = BIO_do_connect(bio_.get()) == 1 && BIO_do_handshake(bio_.get()) == 1;
  }
  bool connected() const { return connected_; }
  std::string ask(const std::string& text) {
    BIO_write(bio_.get(), text.data(), static_cast<int>(text.size()));
    std::string received;
    char buffer[4096];
    for (int bytes = 0; (bytes = BIO_read(bio_.get(), buffer, sizeof buffer)) > 0;) {
      received.append(buffer, static_cast<std::size_t>(bytes));
    }
    return received;
  }

 private:
  std::unique_ptr<SSL_CTX, Freed<SSL_CTX_free>> context_;
  std::unique_ptr<BIO, Freed<BIO_free_all>> bio_;
  bool connected_ = false;
};

class HttpTlsTest : public testing::Test {
 protected:
  void SetUp() override { write_certificate(certificate_, key_); }
  Scratch scratch_;
  std::string certificate_ = scratch_ / "certificate.pem";
  std::string key_ = scratch_ / "key.pem";
  Once application_;
};

TEST_F(HttpTlsTest, ServesOverTls12And13AndNothingOlder) {
  HttpServer server({.tls_certificate = certificate_, .tls_key = key_}, application_);
  EXPECT_TRUE(server.url().starts_with("https://127.0.0.1:"));
  for (const int newest : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    TlsClient client(server.port(), certificate_, newest);
    ASSERT_TRUE(client.connected()) << newest;
    const std::string answer = client.ask(post_text("hello", "Connection: close\r\n"));
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n")) << answer;
    EXPECT_TRUE(answer.ends_with("hello")) << answer;
  }
  EXPECT_FALSE(TlsClient(server.port(), certificate_, TLS1_1_VERSION).connected());
}

TEST_F(HttpTlsTest, WhoSpeaksNoTlsIsDroppedAndTheNextIsServed) {
  HttpServer server({.tls_certificate = certificate_, .tls_key = key_}, application_);
  TestClient plain(server.port());
  ASSERT_TRUE(plain.send(post_text("hello")));
  EXPECT_EQ(plain.read_to_end().find("HTTP/"), std::string::npos);
  TestClient silent(server.port());
  silent.close();
  EXPECT_TRUE(TlsClient(server.port(), certificate_, 0).connected());
}

TEST_F(HttpTlsTest, AKeyThatIsNotTheCertificatesIsRefused) {
  const std::string other = scratch_ / "other.pem";
  write_certificate(scratch_ / "ignored.pem", other);
  expect_refusal<InvalidArgument>(
      [&] { HttpServer({.tls_certificate = certificate_, .tls_key = other}, application_); },
      "cannot be used");
}

}  // namespace
}  // namespace casemate::mcp
