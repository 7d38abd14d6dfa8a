"""One golden file: its content, and how to write it so that two runs give equal bytes."""

import hashlib
import json

import h5py
import ml_dtypes
import numpy as np

from . import FORMAT_VERSION, TAG_VERSION, GoldenError, dtypes

ABOUT = """\
Golden tensors of one KV-cache layout (KV-CTS). Made by golden/generate.py with NumPy views; no code is shared with the \
C++ suite.
/geometries/<name>              attributes: the numbers; block_table: blocks of the one request in order; \
token_table[block, slot]: the
                                token that each slot holds, -1 where nobody wrote.
/coordinates/c<i>               who each element is: [layer, kv, token, head, channel] of records {layer, kv, block, slot, \
token, head,
                                channel}. One array serves all dtypes; the planes link to it.
/dtypes/<scheme>/memory/a<i>    the bytes of allocation i, as they lie in memory: tags where the request wrote, poison \
elsewhere.
/dtypes/<scheme>/planes/p<i>    one leaf of the layout's text: 'tags' are the right-aligned codes of 'coordinates' (same \
shape);
                                'allocation' and 'bit' [layer, kv, block, slot, head, channel] (from coordinate 'first' by \
'step') say where every
                                element of the pool starts, written or not; blocked = 0: no block axis, always written. \
Data sets of equal content are one object with several names.
Each data set has 'sha256', the SHA-256 of '<numpy dtype> <shape, x between>\\n' and its little-endian bytes."""

RECORD = np.dtype([(name, "<i4") for name in ("layer", "kv", "block", "slot", "token", "head", "channel")])


def versions():
    """Versions of everything that took part in making the file."""
    return {
        "numpy": np.__version__,
        "ml_dtypes": ml_dtypes.__version__,
        "h5py": h5py.__version__,
        "hdf5": h5py.version.hdf5_version,
        "format": str(FORMAT_VERSION),
        "tag": str(TAG_VERSION),
    }


def digest(array):
    """Content digest of an array: dtype, shape and bytes."""
    kind = (
        array.dtype.str
        if array.dtype.names is None
        else "{" + ",".join(f"{n}:{array.dtype[n].str}" for n in array.dtype.names) + "}"
    )
    head = f"{kind} {'x'.join(map(str, array.shape))}\n"
    return hashlib.sha256(head.encode() + np.ascontiguousarray(array).tobytes()).hexdigest()


def dtype_digests(digests, geometries):
    """{dtype: SHA-256 of the sorted lines '<path> <digest>' of everything that one dtype needs}. geometries: {dtype:
    geometry name}."""
    out = {}
    for dtype, geometry in geometries.items():
        tops = (f"/dtypes/{dtype}/", f"/geometries/{geometry}/")
        lines = sorted(f"{path} {key}\n" for path, key in digests.items() if path.startswith(tops))
        out[dtype] = hashlib.sha256("".join(lines).encode()).hexdigest()
    return out


def attribute_digest(attributes):
    """SHA-256 of the attributes except the layout's name, its title and the versions: equal for layouts of equal
    content."""
    said = {
        group: {k: v for k, v in values.items() if k not in ("layout", "title", "about") and not k.startswith("version_")}
        for group, values in attributes.items()
    }
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def content(layout, entries, key):
    """{path: array} and {group path: attributes} of one layout. entries: [(scheme, geometry, cache)]; key: memory.Key."""
    arrays, attributes = (
        {},
        {
            "/": {
                "about": ABOUT,
                "layout": layout.name,
                "title": layout.title,
                "template": layout.template,
                "kvcts_golden_format": FORMAT_VERSION,
                "tag_version": TAG_VERSION,
                "tag_formula": "kernels/tag.hpp, contract version 1",
                "poison_formula": "kernels/poison.hpp, contract version 1",
                "generator": "golden/generate.py",
                "seed": key.seed,
                "pass": key.pass_,
                "origin": key.origin,
                "side": key.side,
                "rank": key.rank,
                **{f"version_{k}": v for k, v in versions().items() if k not in ("format", "tag")},
            }
        },
    )
    known = {}  # digest of coordinates -> path
    for scheme, geometry, cache in entries:
        _geometry(geometry, cache, arrays, attributes)
        top = f"/dtypes/{scheme.name}"
        attributes[top] = {
            "dtype": scheme.name,
            "title": scheme.title,
            "data": scheme.data,
            "scale": scheme.scale or "none",
            "scale_group": scheme.group if scheme.scale else -1,
            "global_scale": scheme.global_scale or "none",
            "geometry": geometry.name,
            "x": scheme.x,
        }
        for i, allocation in enumerate(cache.allocations):
            arrays[f"{top}/memory/a{i}"] = allocation.bytes
        for i, plane in enumerate(cache.planes):
            at = f"{top}/planes/p{i}"
            tags, records = by_token(plane)
            check_tags(plane, tags)
            number = dtypes.values(plane.dtype, tags)
            attributes[at] = {
                "text": plane.path,
                "component": plane.component,
                "dtype": plane.dtype,
                "bits": dtypes.bits(plane.dtype),
                "nibbles": "high first" if plane.high_nibble_first else "low first",
                "blocked": int(plane.blocked),
                "first": plane.first,
                "step": plane.step,
                "smallest_value": float(number.min()),
                "largest_value": float(number.max()),
            }
            arrays[f"{at}/tags"] = tags
            arrays[f"{at}/bit"] = plane.bit.astype("<i8")
            arrays[f"{at}/allocation"] = plane.allocation.astype("<i2")
            home = known.setdefault(digest(records), f"/coordinates/c{len(known)}")
            arrays[home] = records
            arrays[f"{at}/coordinates"] = records
    return arrays, attributes


def _geometry(geometry, cache, arrays, attributes):
    at = f"/geometries/{geometry.name}"
    numbers = {
        k: getattr(geometry, k)
        for k in ("layers", "blocks", "block_size", "heads", "head_dim", "v_head_dim", "kv", "tokens", "generation")
    }
    if attributes.setdefault(at, numbers) != numbers:
        raise GoldenError(f"geometry {geometry.name} has two sets of numbers in one layout")
    arrays[f"{at}/block_table"] = np.array(geometry.table, dtype="<i4")
    arrays[f"{at}/token_table"] = cache.token_table.astype("<i4")


def by_token(plane):
    """(tags, records) of written elements as [layer, kv, token, head, channel]; planes without blocks have one token, 0."""
    fields = plane.coordinates
    token = fields["token"][0, 0, :, :, 0, 0]
    order = np.argsort(token.ravel(), kind="stable")
    order = order[token.ravel()[order] >= 0]

    def pick(a):
        moved = np.moveaxis(a, (2, 3), (0, 1)).reshape((-1,) + a.shape[:2] + a.shape[4:])
        return np.moveaxis(moved[order], 0, 2)

    tags = np.ascontiguousarray(pick(plane.codes))
    records = np.empty(tags.shape, dtype=RECORD)
    for name in RECORD.names:
        records[name] = pick(fields[name])
    return tags.astype(tags.dtype.newbyteorder("<")), records


def check_tags(plane, tags):
    """Checks with ml_dtypes what the contract promises about values: never 0, NaN, Inf; where there is room, no power
    of two."""
    values = dtypes.values(plane.dtype, tags)
    if not np.isfinite(values).all() or (values == 0).any():
        raise GoldenError(f"plane '{plane.path}': a tag of {plane.dtype} is 0, NaN or Inf; tag/1 forbids it")
    mantissa = np.abs(np.frexp(values)[0])
    if plane.dtype not in ("int4", "e2m1", "e8m0") and ((mantissa == 0.5) & (values != -1)).any():
        raise GoldenError(f"plane '{plane.path}': a tag of {plane.dtype} is a power of two; tag/1 forbids it")
    if plane.component != "data" and (values == 1).any():
        raise GoldenError(f"plane '{plane.path}': a scale of {plane.dtype} is 1.0; tag/1 forbids it")
    if not (tags & 1).all():
        raise GoldenError(f"plane '{plane.path}': a tag without bit 0 could be poison")


def _create(path):
    """An empty file without time stamps. Version bounds 1.10: what Debian 12's library reads, and one index-free chunk
    per data set."""
    creation, access = h5py.h5p.create(h5py.h5p.FILE_CREATE), h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    creation.set_obj_track_times(False)
    creation.set_attr_phase_change(64, 0)
    access.set_libver_bounds(h5py.h5f.LIBVER_V110, h5py.h5f.LIBVER_V110)
    return h5py.File(h5py.h5f.create(str(path).encode(), h5py.h5f.ACC_TRUNC, fcpl=creation, fapl=access))


def _group(file, path):
    """The group at `path`, made (with its parents) without time stamps."""
    quiet = h5py.h5p.create(h5py.h5p.GROUP_CREATE)
    quiet.set_obj_track_times(False)
    quiet.set_attr_phase_change(64, 0)  # attributes stay in the object header: saves 30 KiB per file
    node = file["/"]
    for name in path.strip("/").split("/") if path != "/" else ():
        node = node[name] if name in node else h5py.Group(h5py.h5g.create(node.id, name.encode(), gcpl=quiet))
    return node


def write(path, arrays, attributes):
    """Writes a new file; two runs give equal bytes. Equal content becomes one object with several names."""
    with _create(path) as file:
        for group, values in attributes.items():
            node = _group(file, group)
            for name, value in values.items():
                node.attrs.create(name, *_attribute(value))
        first = {}
        for name, array in arrays.items():
            group, leaf = name.rsplit("/", 1)
            group, key = _group(file, group), digest(array)
            if key in first:
                group[leaf] = file[first[key]]
                continue
            first[key] = name
            packed = (
                {"compression": "gzip", "compression_opts": 9, "shuffle": True, "chunks": array.shape}
                if array.nbytes > 512
                else {}
            )
            node = group.create_dataset(leaf, data=array, track_times=False, **packed)
            node.attrs.create("sha256", *_attribute(key))
    return first


def _attribute(value):
    if isinstance(value, str):
        data = value.encode("utf-8")
        return np.array(data, dtype=f"S{max(1, len(data))}"), None, h5py.string_dtype("utf-8", max(1, len(data)))
    if isinstance(value, float):
        return np.float64(value), None, np.dtype("<f8")
    return np.array(value, dtype="<i8"), None, np.dtype("<i8")


def read_arrays(path):
    """{path: array} of every data set, by every name it has."""
    found = {}

    def walk(group, at):
        for name in sorted(group):
            node = group[name]
            if isinstance(node, h5py.Dataset):
                found[f"{at}/{name}"] = node[()]
            else:
                walk(node, f"{at}/{name}")

    with h5py.File(path, "r") as file:
        walk(file, "")
    return found


def read_attributes(path):
    """{group path: attributes} as passed to write()."""
    found = {}

    def plain(value):
        if isinstance(value, bytes):
            return value.decode("utf-8")
        return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value

    def walk(group, at):
        if len(group.attrs):
            found[at or "/"] = {name: plain(value) for name, value in group.attrs.items()}
        for name in sorted(group):
            if isinstance(group[name], h5py.Group):
                walk(group[name], f"{at}/{name}")

    with h5py.File(path, "r") as file:
        walk(file, "")
    return found
