#include "certificate/key_file.hpp"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "certificate/envelope.hpp"
#include "certificate/error.hpp"
#include "certificate/form.hpp"

namespace kvcts::certificate {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr const char* rotation_type = "urn:kvcts:key-rotation:1";
constexpr std::size_t most_bytes = 1 << 20;

[[noreturn]] void fail(const fs::path& file, const std::string& what) { throw Error("key " + file.string() + ": " + what); }

fs::path beside(const fs::path& file, const std::string& end) { return file.string() + end; }

/// Writes the whole file with these permissions and syncs it. The file must not exist.
void write_new(const fs::path& file, const std::string& text, mode_t mode) {
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
  if (fd < 0)
    fail(file, errno == EEXIST ? "it already exists; nothing was changed"
                               : std::string("cannot be written (") + std::strerror(errno) + ")");
  const bool written = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && ::fsync(fd) == 0;
  const int why = errno;
  ::close(fd);
  if (written) return;
  ::unlink(file.c_str());
  fail(file, std::string("cannot be written (") + std::strerror(why) + ")");
}

std::string read_text(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::string text(most_bytes, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  return text;
}

}  // namespace

void create_key(const fs::path& file, const PrivateKey& key) {
  std::string text = key.pem();
  const auto wiped = [&] { sodium_memzero(text.data(), text.size()); };
  try {
    write_new(file, text, 0600);
  } catch (...) {
    wiped();
    throw;
  }
  wiped();
}

PrivateKey read_key(const fs::path& file) {
  struct stat found{};
  if (::stat(file.c_str(), &found) != 0)
    fail(file, std::string("cannot be read (") + std::strerror(errno) + "); kvcts key new makes one");
  if (!S_ISREG(found.st_mode)) fail(file, "expected a file");
  if ((found.st_mode & 077) != 0)
    fail(file, "others can read or change it; chmod 600 it, or make a new key if it may have been read");
  std::string text = read_text(file);
  try {
    PrivateKey key = PrivateKey::from_pem(text);
    sodium_memzero(text.data(), text.size());
    return key;
  } catch (const Error& error) {
    fail(file, error.what());
  }
}

PublicKey read_public_key(const fs::path& file) {
  if (struct stat found{}; ::stat(file.c_str(), &found) != 0)
    fail(file, std::string("cannot be read (") + std::strerror(errno) + "); the public key comes from who signed");
  if (const std::string text = read_text(file); text.find("PUBLIC KEY") != std::string::npos)
    return PublicKey::from_pem(text);
  return read_key(file).public_key();
}

fs::path rotate_key(const fs::path& file) {
  const PrivateKey old = read_key(file), fresh = PrivateKey::generate();
  const std::string id = old.public_key().id();
  const fs::path kept = beside(file, "." + id.substr(0, 16)), next = beside(file, ".next"),
                 list = beside(file, ".rotations.json"), next_list = beside(file, ".rotations.next");
  std::vector<json> rotations = rotations_of(file);
  rotations.push_back(seal("key", fresh.public_key().id(), rotation_type,
                           {{"old", old.public_key().pem()}, {"new", fresh.public_key().pem()}}, old));
  std::error_code ignored;
  for (const fs::path& left : {next, next_list}) fs::remove(left, ignored);  // left by a killed rotation
  create_key(next, fresh);
  write_new(next_list, json(rotations).dump(1) + "\n", 0644);
  fs::create_hard_link(file, kept, ignored);  // exists already if one was killed after this
  if (!fs::exists(kept)) fail(kept, "cannot be written (" + ignored.message() + ")");
  std::error_code why;
  fs::rename(next_list, list, why);
  if (!why) fs::rename(next, file, why);  // from here on the file has the new key
  if (why) fail(file, "cannot be replaced (" + why.message() + "); the old key is unchanged");
  return kept;
}

std::vector<json> rotations_of(const fs::path& file) {
  const fs::path list = beside(file, ".rotations.json");
  if (!fs::exists(list)) return {};
  json rotations = json::parse(read_text(list), nullptr, false);
  if (!rotations.is_array()) fail(list, "expected a list of signed successions, found something else");
  return rotations.get<std::vector<json>>();
}

bool leads(const std::vector<json>& rotations, const PublicKey& trusted, const PublicKey& to) {
  if (rotations.size() > most_rotations)
    throw Error("expected at most " + std::to_string(most_rotations) + " rotations, found " +
                std::to_string(rotations.size()));
  std::vector<PublicKey> reached{trusted};
  for (std::size_t i = 0; i < reached.size(); ++i) {
    if (reached[i] == to) return true;
    for (const json& rotation : rotations) {
      try {
        const SealedStatement statement = open(rotation, rotation_type, reached[i]);
        expect_keys(statement.predicate, {"new", "old"}, "rotation");
        const std::string pem = statement.predicate.at("new").get<std::string>();
        const PublicKey next = PublicKey::from_pem(pem);
        if (next.pem() == pem && next.id() == statement.sha256 && statement.predicate.at("old") == reached[i].pem() &&
            std::find(reached.begin(), reached.end(), next) == reached.end())
          reached.push_back(next);
      } catch (const Error&) {  // of another key
      } catch (const json::exception&) {
      }
    }
  }
  return false;
}

}  // namespace kvcts::certificate
