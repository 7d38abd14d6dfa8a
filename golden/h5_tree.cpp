#include "golden/h5_tree.hpp"

#include <hdf5.h>

#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <tuple>

namespace kvcts::golden {
namespace {

using nlohmann::json;

// HDF5 1.12 renamed the struct that H5Oget_info1() fills in (H5Opublic.h); its old name means another struct there.
#if H5_VERSION_GE(1, 12, 0)
using ObjectInfo = H5O_info1_t;
#else
using ObjectInfo = H5O_info_t;
#endif

constexpr hsize_t max_bytes = hsize_t{256} << 20;  // of one data set
constexpr hsize_t max_objects = 4096;              // in one group

[[noreturn]] void fail(const std::string& path, const std::string& what) { throw std::runtime_error(path + ": " + what); }

/// An HDF5 identifier that closes itself.
class Id {
 public:
  Id(hid_t id, herr_t (*close)(hid_t), const std::string& path, const char* what) : id_(id), close_(close) {
    if (id < 0) fail(path, std::string("expected ") + what + ", found none");
  }
  Id(const Id&) = delete;
  Id& operator=(const Id&) = delete;
  ~Id() { close_(id_); }
  operator hid_t() const { return id_; }  // NOLINT: stands wherever an hid_t does

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

/// NumPy's name of an element type: "<i4", "|u1", "{layer:<i4,...}".
std::string kind_of(hid_t type, const std::string& path) {
  const std::size_t size = H5Tget_size(type);
  if (H5Tget_class(type) == H5T_INTEGER) {
    if (size > 1 && H5Tget_order(type) != H5T_ORDER_LE) fail(path, "expected little-endian integers");
    return std::string(size > 1 ? "<" : "|") + (H5Tget_sign(type) == H5T_SGN_2 ? "i" : "u") + std::to_string(size);
  }
  if (H5Tget_class(type) != H5T_COMPOUND) fail(path, "expected integers or records of integers");
  std::string kind = "{";
  const int members = H5Tget_nmembers(type);
  for (int i = 0; i < members; ++i) {
    char* name = H5Tget_member_name(type, static_cast<unsigned>(i));
    kind += (i == 0 ? "" : ",") + std::string(name != nullptr ? name : "?") + ":";
    H5free_memory(name);
    const Id member(H5Tget_member_type(type, static_cast<unsigned>(i)), H5Tclose, path, "a record's member");
    if (H5Tget_class(member) != H5T_INTEGER) fail(path, "expected records of integers");
    kind += kind_of(member, path);
  }
  return kind + "}";
}

json attribute(hid_t node, const std::string& path, const char* name) {
  const std::string at = path + " attribute " + name;
  const Id id(H5Aopen(node, name, H5P_DEFAULT), H5Aclose, at, "an attribute");
  const Id type(H5Aget_type(id), H5Tclose, at, "a type");
  const Id space(H5Aget_space(id), H5Sclose, at, "a space");
  const hssize_t count = H5Sget_simple_extent_npoints(space);
  const std::size_t size = H5Tget_size(type);
  if (count < 1 || count > 64 || size < 1 || size > 65536) fail(at, "not of a sane size");
  if (H5Tget_class(type) == H5T_STRING) {
    if (H5Tis_variable_str(type) != 0 || count != 1) fail(at, "expected one string of fixed length");
    std::string text(size, '\0');
    if (H5Aread(id, type, text.data()) < 0) fail(at, "cannot be read");
    text.resize(std::char_traits<char>::length(text.c_str()) < size ? std::char_traits<char>::length(text.c_str()) : size);
    return text;
  }
  if (H5Tget_class(type) == H5T_FLOAT && count == 1) {
    double value = 0;
    if (H5Aread(id, H5T_NATIVE_DOUBLE, &value) < 0) fail(at, "cannot be read");
    return value;
  }
  if (H5Tget_class(type) != H5T_INTEGER) fail(at, "expected a string or a number");
  std::vector<std::int64_t> values(static_cast<std::size_t>(count));
  if (H5Aread(id, H5T_NATIVE_INT64, values.data()) < 0) fail(at, "cannot be read");
  if (H5Sget_simple_extent_ndims(space) == 0) return values[0];
  return values;
}

json attributes(hid_t node, const std::string& path) {
  std::vector<std::string> names;
  const auto visit = [](hid_t, const char* name, const H5A_info_t*, void* into) -> herr_t {
    static_cast<std::vector<std::string>*>(into)->emplace_back(name);
    return 0;
  };
  if (H5Aiterate2(node, H5_INDEX_NAME, H5_ITER_INC, nullptr, visit, &names) < 0) fail(path, "attributes cannot be listed");
  json all = json::object();
  for (const std::string& name : names) all[name] = attribute(node, path, name.c_str());
  return all;
}

class Reader {
 public:
  explicit Reader(hid_t file) : file_(file) {}

  TreeDump read(std::vector<std::string> dtypes) {
    json header;
    header["attributes"] = attributes_of("/");
    header["dtypes"] = json::array();
    if (dtypes.empty()) dtypes = names("/dtypes");
    for (const std::string& d : dtypes) header["dtypes"].push_back(dtype("/dtypes/" + d));
    return {header.dump(), std::move(blobs_)};
  }

 private:
  json attributes_of(const std::string& path) {
    const Id group(H5Gopen2(file_, path.c_str(), H5P_DEFAULT), H5Gclose, path, "a group");
    return attributes(group, path);
  }

  std::vector<std::string> names(const std::string& path) {
    const Id group(H5Gopen2(file_, path.c_str(), H5P_DEFAULT), H5Gclose, path, "a group");
    H5G_info_t info{};
    if (H5Gget_info(group, &info) < 0 || info.nlinks > max_objects) fail(path, "not of a sane size");
    std::vector<std::string> found;
    for (hsize_t i = 0; i < info.nlinks; ++i) {
      std::array<char, 256> name{};
      if (H5Lget_name_by_idx(group, ".", H5_INDEX_NAME, H5_ITER_INC, i, name.data(), name.size(), H5P_DEFAULT) < 0) {
        fail(path, "names cannot be listed");
      }
      found.emplace_back(name.data());
    }
    return found;
  }

  json dtype(const std::string& path) {
    json at;
    at["attributes"] = attributes_of(path);
    const std::string geometry = "/geometries/" + at["attributes"].at("geometry").get<std::string>();
    at["geometry"] = attributes_of(geometry);
    at["block_table"] = dataset(geometry + "/block_table");
    at["token_table"] = dataset(geometry + "/token_table");
    at["allocations"] = json::array();
    const std::size_t allocations = names(path + "/memory").size(), planes = names(path + "/planes").size();
    for (std::size_t i = 0; i < allocations; ++i) {
      const std::string name = "a" + std::to_string(i);
      at["allocations"].push_back({{"name", name}, {"blob", dataset(path + "/memory/" + name)}});
    }
    at["planes"] = json::array();
    for (std::size_t i = 0; i < planes; ++i) {
      const std::string plane = path + "/planes/p" + std::to_string(i);
      json p;
      p["attributes"] = attributes_of(plane);
      for (const char* name : {"tags", "coordinates", "bit", "allocation"}) p[name] = dataset(plane + "/" + name);
      at["planes"].push_back(std::move(p));
    }
    return at;
  }

  json dataset(const std::string& path) {
    const Id node(H5Dopen2(file_, path.c_str(), H5P_DEFAULT), H5Dclose, path, "a data set");
    const Id type(H5Dget_type(node), H5Tclose, path, "a type");
    const Id space(H5Dget_space(node), H5Sclose, path, "a space");
    const int rank = H5Sget_simple_extent_ndims(space);
    if (rank < 1 || rank > 8) fail(path, "expected 1 to 8 dimensions, found " + std::to_string(rank));
    std::array<hsize_t, 8> extents{};
    H5Sget_simple_extent_dims(space, extents.data(), nullptr);
    std::vector<std::int64_t> shape;
    hsize_t bytes = H5Tget_size(type);
    if (bytes < 1 || bytes > 1024) fail(path, "its elements are not of a sane size");
    for (int i = 0; i < rank; ++i) {
      const hsize_t extent = extents[static_cast<std::size_t>(i)];
      if (__builtin_mul_overflow(bytes, extent, &bytes) || bytes > max_bytes) fail(path, "more than 256 MiB");
      shape.push_back(static_cast<std::int64_t>(extent));
    }
    json at{{"path", path}, {"kind", kind_of(type, path)}, {"shape", shape}, {"bytes", bytes}};
    ObjectInfo info{};
    if (H5Oget_info1(node, &info) < 0) fail(path, "cannot be looked up");
    const auto [known, is_new] = places_.try_emplace(info.addr, blobs_.size());
    if (is_new) {
      blobs_.resize(blobs_.size() + bytes);
      if (bytes > 0 && H5Dread(node, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, blobs_.data() + known->second) < 0) {
        fail(path, "its data cannot be read");
      }
    }
    at["at"] = known->second;
    return at;
  }

  hid_t file_;
  std::string blobs_;
  std::map<haddr_t, std::size_t> places_;  ///< one object may have several names
};

}  // namespace

TreeDump read_tree(std::string image, const std::vector<std::string>& dtypes) {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  const Id access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "libhdf5", "an access list");
  H5Pset_fapl_core(access, 1 << 20, 0);
  if (H5Pset_file_image(access, image.data(), image.size()) < 0) throw std::runtime_error("an empty file is no HDF5 file");
  // A name that cannot exist: libhdf5 refuses an image whose name it can open.
  const Id file(H5Fopen("/dev/null/golden-image", H5F_ACC_RDONLY, access), H5Fclose, "the file", "HDF5");
  return Reader(file).read(dtypes);
}

}  // namespace kvcts::golden
