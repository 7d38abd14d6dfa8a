#include "certificate/package.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "certificate/envelope.hpp"
#include "certificate/error.hpp"
#include "certificate/form.hpp"
#include "certificate/key_file.hpp"

namespace kvcts::certificate {

using nlohmann::json;

namespace {

constexpr const char* predicate_type = "urn:kvcts:certificate:1";
constexpr const char *statement_file = "statement.json", *key_file = "key.pem", *rotations_file = "rotations.json",
                     *plan_file = "plan.json", *records_file = "records.jsonl", *tree_file = "tree.txt";
constexpr std::array own_files{statement_file, key_file, rotations_file, plan_file, records_file, tree_file};

bool is_own(const std::string& name) { return std::find(own_files.begin(), own_files.end(), name) != own_files.end(); }

std::vector<Digest> leaves_of(const std::vector<std::string_view>& lines) {
  std::vector<Digest> leaves;
  leaves.reserve(lines.size());
  for (const std::string_view line : lines) leaves.push_back(leaf_hash(line));
  return leaves;
}

std::string tree_text(const std::vector<Digest>& leaves) {
  std::string out;
  for (const Digest& leaf : leaves) out += hex(leaf) + "\n";
  return out;
}

/// Lines without their ends. Throws Error if the last one has none, or if they are too many.
std::vector<std::string_view> lines_of(std::string_view text, const char* file) {
  std::vector<std::string_view> lines;
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t to = text.find('\n', from);
    if (to == std::string_view::npos) throw Error(std::string(file) + " ends in the middle of a line");
    if (lines.size() == most_records) throw Error(std::string(file) + " has more than 200,000 lines");
    lines.push_back(text.substr(from, to - from));
    from = to + 1;
  }
  return lines;
}

/// Digests of all files except the statement itself and those covered by the key's id and the tree's root.
json digests_of(const Files& files) {
  json out = json::object();
  for (const auto& [name, bytes] : files)
    if (name != statement_file && name != key_file && name != records_file && name != tree_file)
      out[name] = hex(sha256(bytes));
  return out;
}

const std::string& file(const Files& files, const char* name) {
  const auto at = files.find(name);
  if (at == files.end()) throw Error(std::string("the package has no ") + name);
  return at->second;
}

const std::string& id_of(const json& record) { return record.at("id").get_ref<const std::string&>(); }

/// Throws Error if one of the package's own is missing.
Files complete(Files files) {
  for (const char* name : own_files) file(files, name);
  return files;
}

/// For a sentence about a record that may be anything.
std::string id_in(std::string_view record) {
  try {
    return id_of(canonical(record, "it")).substr(0, 200);
  } catch (const std::exception&) {
    return "?";
  }
}

/// Throws Error unless the files are those that were signed, and JSON in its canonical form.
void compare_files(const Files& files, const json& signed_ones) {
  const json found = digests_of(files);
  for (const auto& [name, digest] : signed_ones.items()) {
    if (!found.contains(name)) throw Error("the package has no " + name + ", which was signed");
    if (found[name] != digest) throw Error(name + " is not the one that was signed");
  }
  for (const auto& [name, digest] : found.items())
    if (!signed_ones.contains(name)) throw Error(name + " was not signed");
  for (const auto& [name, content] : files)
    if (!is_own(name) && name.ends_with(".json")) canonical(content, name);
}

/// Throws Error unless it is signed by a key that the trusted one leads to.
SealedStatement open_statement(const Files& files, const std::optional<PublicKey>& trusted, PackageReading& reading) {
  const PublicKey key = PublicKey::from_pem(file(files, key_file));
  if (key.pem() != file(files, key_file)) throw Error("key.pem is not in its canonical form");
  reading.signer = key.id();
  reading.package.rotations = canonical(file(files, rotations_file), rotations_file).get<std::vector<json>>();
  SealedStatement statement = open(canonical(file(files, statement_file), statement_file), predicate_type, key);
  const json& predicate = statement.predicate;
  expect_keys(predicate, {"files", "records", "root"}, "predicate");
  if (!predicate.at("files").is_object() || !predicate.at("records").is_number_unsigned() ||
      predicate.at("root") != statement.sha256)
    throw Error("the predicate has not the form that it must have");
  reading.package.product = statement.subject;
  if (!leads(reading.package.rotations, trusted.value_or(key), key))
    throw Error("it is signed by key " + key.id() + ", and nothing leads there from the key that is trusted, " +
                trusted->id());
  return statement;
}

/// Throws Error unless planned and recorded are the same ids, each once.
void compare_plan(const json& plan, const std::vector<json>& records) {
  if (!plan.is_object() || !plan.contains("ids") || !plan["ids"].is_array()) throw Error("plan.json has no list of ids");
  std::set<std::string> planned, recorded;
  for (const json& id : plan["ids"])
    if (!id.is_string() || !planned.insert(id.get<std::string>()).second)
      throw Error("case " + id.dump() + " is planned twice");
  for (const json& record : records)
    if (!recorded.insert(id_of(record)).second) throw Error("case '" + id_of(record) + "' is recorded twice");
  for (const std::string& id : planned)
    if (!recorded.contains(id)) throw Error("case '" + id + "' was planned and has no record");
  for (const std::string& id : recorded)
    if (!planned.contains(id)) throw Error("case '" + id + "' has a record and was not planned");
}

/// Finds the record whose hash differs from tree.txt. Throws Error if there is one, or if the signed root differs.
void compare_tree(const std::vector<std::string_view>& lines, const std::string& text, const std::string& root,
                  std::uint64_t count) {
  const std::vector<Digest> leaves = leaves_of(lines);
  std::vector<Digest> listed;
  for (const std::string_view line : lines_of(text, tree_file)) listed.push_back(digest_from_hex(line));
  if (hex(root_of(listed)) != root) {
    if (hex(root_of(leaves)) == root) throw Error("tree.txt is not the tree that was signed; the records are");
    throw Error("records and tree are not those that were signed");
  }
  if (listed.size() != leaves.size() || std::cmp_not_equal(leaves.size(), count))
    throw Error("expected " + std::to_string(count) + " records, found " + std::to_string(leaves.size()));
  for (std::size_t i = 0; i < leaves.size(); ++i)
    if (leaves[i] != listed[i])
      throw Error("record " + std::to_string(i + 1) + " (case '" + id_in(lines[i]) + "') is not the one that was signed");
}

}  // namespace

std::string write_package(const Package& package, const PrivateKey& key) {
  Files files = package.others;
  for (const auto& [name, bytes] : files)
    if (is_own(name)) throw Error("a package has its own " + name);
  std::string& records = files[records_file];
  for (const json& record : package.records) records.append(record.dump()).append("\n");
  const std::vector<Digest> leaves = leaves_of(lines_of(records, records_file));
  files[plan_file] = package.plan.dump();
  files[rotations_file] = json(package.rotations).dump();
  files[tree_file] = tree_text(leaves);
  files[key_file] = key.public_key().pem();
  const json predicate{{"files", digests_of(files)}, {"records", leaves.size()}, {"root", hex(root_of(leaves))}};
  files[statement_file] = seal(package.product, hex(root_of(leaves)), predicate_type, predicate, key).dump();
  std::string bytes = archive(files);
  // Nothing is signed that a reader would reject: records out of order, another plan, a fraction.
  if (const PackageReading back = read_package(bytes, key.public_key()); !back.good())
    throw Error(back.checks.back().what + ": " + back.checks.back().wrong);
  return bytes;
}

std::string sigstore_bundle(std::string_view package) {
  std::string contradiction;
  const Files files = read_archive(package, contradiction);
  const json envelope = json::parse(file(files, statement_file));
  return json{{"mediaType", "application/vnd.dev.sigstore.bundle.v0.3+json"},
              {"verificationMaterial",
               {{"publicKey", {{"hint", envelope.at("signatures").front().at("keyid")}}}, {"tlogEntries", json::array()}}},
              {"dsseEnvelope", envelope}}
             .dump() +
         "\n";
}

bool PackageReading::good() const {
  return std::all_of(checks.begin(), checks.end(), [](const PackageCheck& check) { return check.wrong.empty(); });
}

PackageReading read_package(std::string_view bytes, const std::optional<PublicKey>& trusted) {
  PackageReading reading;
  /// Whether to continue: later checks depend on this one.
  const auto check = [&](const char* what, const auto& look) {
    reading.checks.push_back({what, ""});
    try {
      look();
    } catch (const Error& error) {
      reading.checks.back().wrong = error.what();
    } catch (const json::exception& error) {
      reading.checks.back().wrong = std::string("a value is not of the kind that it must be (") + error.what() + ")";
    }
    return reading.checks.back().wrong.empty();
  };
  Files files;
  std::string contradiction;
  std::vector<std::string_view> lines;
  SealedStatement statement;
  Package& package = reading.package;
  const bool sound =  // each check builds on those before it
      check("form", [&] { files = complete(read_archive(bytes, contradiction)); }) &&
      check("signature", [&] { statement = open_statement(files, trusted, reading); }) &&
      check("files", [&] { compare_files(files, statement.predicate.at("files")); }) &&
      check("tree",
            [&] {
              lines = lines_of(file(files, records_file), records_file);
              expect_few_values(file(files, records_file), records_file);
              compare_tree(lines, file(files, tree_file), statement.sha256,
                           statement.predicate.at("records").get<std::uint64_t>());
            }) &&
      check("records",
            [&] {
              for (std::size_t i = 0; i < lines.size(); ++i)
                package.records.push_back(canonical(lines[i], "record " + std::to_string(i + 1)));
              for (std::size_t i = 0; i < lines.size(); ++i)
                if (id_of(package.records[i]) < id_of(package.records[i > 0 ? i - 1 : 0]))
                  throw Error("record " + std::to_string(i + 1) + " is out of order");
            }) &&
      check("plan", [&] { compare_plan(package.plan = canonical(file(files, plan_file), plan_file), package.records); }) &&
      check("checksums", [&] {
        if (!contradiction.empty()) throw Error(contradiction);
      });
  if (!sound) return reading;
  for (auto& [name, content] : files)
    if (!is_own(name)) package.others[name] = std::move(content);
  return reading;
}

}  // namespace kvcts::certificate
