#include "case/catalogue/certification.hpp"

#include <algorithm>
#include <cstdlib>

#include "case/catalogue/tables.hpp"

namespace kvcts::catalogue {

namespace fs = std::filesystem;

namespace {

struct Engine {
  EngineEntry entry;
  bool known{false};
};

/// An id of cases/engines, or an entry as written there.
Codec<Engine> engine() {
  const Codec<std::string> id = identifier();
  const Codec<EngineEntry> whole = object<EngineEntry>(engine_table);
  return {"the id of an engine of cases/engines, or an entry as one stands there",
          [=] { return json{{"oneOf", json::array({id.schema(), whole.schema()})}}; },
          [=](const Node& node) {
            Engine out;
            out.known = node.kind == Node::Kind::scalar;
            if (out.known)
              out.entry.id = id.read(node);
            else
              out.entry = whole.read(node);
            return out;
          },
          [=](const Engine& value) { return value.known ? id.write(value.entry.id) : whole.write(value.entry); }};
}

Codec<Evidence> evidence() { return word_of<Evidence>({"modelled", "executed"}, evidence_from_name); }

Field<ProductEntry> engine_field() {
  const Codec<Engine> codec = engine();
  Field<ProductEntry> field;
  field.key = "engine", field.required = true, field.words = codec.words, field.schema = codec.schema;
  field.doc = "what moves the bytes; the plug-in of an entry is found as in cases (KVCTS_ENGINE_PATH)";
  field.read = [codec](ProductEntry& out, const Node& node) {
    Engine read = codec.read(node);
    out.engine = std::move(read.entry), out.known = read.known;
  };
  field.write = [codec](const ProductEntry& in) { return codec.write({in.engine, in.known}); };
  return field;
}

}  // namespace

const Table<ProfileEntry>& profile_table() {
  static const Table<ProfileEntry> table{
      "a profile",
      {
          required("profile", &ProfileEntry::id, identifier(), "id"),
          required("title", &ProfileEntry::title, text(), "one line"),
          required("version", &ProfileEntry::version, integer(1, 1'000'000), "grows when the cases change"),
          optional("evidence", &ProfileEntry::evidence, evidence(), "the weakest that its cases may have"),
          optional("waived_at_most", &ProfileEntry::waived_at_most, integer(0, 100),
                   "per cent of the cases that waivers may cover; more is no certificate"),
          required("matrix", &ProfileEntry::matrix, list_of(object<MatrixBlock>(block_table)),
                   "products of axes, each with its reason; the engine is the product's"),
          optional("notes", &ProfileEntry::notes, any_text(), "anything else"),
      },
      [](const ProfileEntry& profile, const Node& node) {
        const Node matrix = *node.find("matrix");
        for (const MatrixBlock& block : profile.matrix) {
          if (block.reason.empty()) fail(matrix, "a reason in every block", "say why the profile needs its cases");
          if (block.axes.contains("engine")) fail(matrix, "no axis engine", "the engine is the product's");
        }
      }};
  return table;
}

const Table<ProductEntry>& product_table() {
  static const Table<ProductEntry> table{
      "a product",
      {
          required("product", &ProductEntry::product, text(), "its name"),
          required("vendor", &ProductEntry::vendor, text(), "who answers for it"),
          required("version", &ProductEntry::version, text(), "of the product; numbers in quotes"),
          engine_field(),
          optional("waivers", &ProductEntry::waivers, list_of(object<WaiverEntry>(waiver_table)),
                   "known failures, each with its reason; a reader of the certificate sees them"),
          optional("notes", &ProductEntry::notes, any_text(), "hardware, firmware, anything else that a reader should know"),
      },
      [](const ProductEntry& product, const Node& node) {
        for (const auto& [name, value] : product.engine.environment.items())
          if (name.starts_with("KVCTS_") || name.starts_with("LD_"))
            fail(*node.find("engine"), "an environment without KVCTS_* and LD_*, which decide what is run, found " + name,
                 "a death that is known is a waiver: {match: {outcome: CRASH}, ...}");
      }};
  return table;
}

std::vector<std::string> profile_ids(const fs::path& cases) {
  std::vector<std::string> out;
  for (const auto& path : yaml_files(cases / "profiles")) out.push_back(path.stem().string());
  return out;
}

ProfileEntry load_profile(const fs::path& cases, const std::string& id) {
  const auto ids = profile_ids(cases);
  if (std::find(ids.begin(), ids.end(), id) == ids.end())
    throw Error("expected a known profile, found '" + id.substr(0, 100) + "'" + suggestion(id, ids));
  const std::string shown = "cases/profiles/" + id + ".yaml";
  const auto documents = parse_yaml_file(cases / "profiles" / (id + ".yaml"), shown);
  if (documents.size() != 1) throw Error(shown + ":1: expected one document, found " + std::to_string(documents.size()));
  ProfileEntry profile = read(profile_table(), documents[0]);
  if (profile.id != id)
    throw Error(documents[0].where() + ": expected the id '" + id + "' (the file's name), found '" + profile.id + "'");
  profile.file = shown;
  return profile;
}

ProductEntry read_product(const std::string& text, const std::string& shown) {
  const auto documents = parse_yaml(text, shown);
  if (documents.size() != 1) throw Error(shown + ":1: expected one document, found " + std::to_string(documents.size()));
  ProductEntry product = read(product_table(), documents[0]);
  product.engine.file = shown;
  for (WaiverEntry& waiver : product.waivers) waiver.file = shown;
  return product;
}

Additions additions_of_file(const std::string& file) {
  Additions out = additions_of({}, read_product(read_text_file(file, file), file));
  out.suites.clear();
  return out;
}

std::string suite_of(const ProfileEntry& profile) { return "profile-" + profile.id; }

Additions additions_of(const ProfileEntry& profile, const ProductEntry& product) {
  Additions out;
  SuiteEntry suite;
  suite.id = suite_of(profile), suite.title = profile.title, suite.file = profile.file;
  suite.matrix = profile.matrix;
  for (MatrixBlock& block : suite.matrix) block.axes["engine"] = {product.engine.id};
  out.suites.push_back(std::move(suite));
  if (!product.known) out.engines.push_back(product.engine);
  out.waivers = product.waivers;
  return out;
}

}  // namespace kvcts::catalogue
