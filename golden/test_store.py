"""The folder of golden files: reproducible, self-describing, never rewritten silently."""

import json
import shutil
import time

import h5py
import numpy as np
import pytest

import generate
from kvgold import h5file
from kvgold.store import Store


def run(golden, cases, *arguments):
    return generate.main([*arguments, "--golden", str(golden), "--cases", str(cases)])


@pytest.fixture
def made(golden, cases):
    assert run(golden, cases) == 0
    return golden


def test_two_runs_give_equal_files(made, cases, tmp_path):
    again = tmp_path / "again"
    again.mkdir()
    shutil.copy(made / "plan.yaml", again)
    time.sleep(1.1)  # a time stamp would differ
    assert run(again, cases) == 0
    assert sorted(p.name for p in again.iterdir()) == ["MANIFEST.json", "footer.h5", "nhd.h5", "packed.h5", "plan.yaml"]
    for path in made.iterdir():
        assert path.read_bytes() == (again / path.name).read_bytes(), path.name


def test_check_is_content(made, cases, capsys):
    assert run(made, cases, "--check") == 0
    assert "3 files checked, 0 faults" in capsys.readouterr().out


def test_a_second_run_changes_nothing(made, cases):
    before = {p.name: p.read_bytes() for p in made.iterdir()}
    assert run(made, cases) == 0
    assert before == {p.name: p.read_bytes() for p in made.iterdir()}


def test_no_silent_overwrite(made, cases, capsys):
    before = (made / "nhd.h5").read_bytes()
    assert run(made, cases, "nhd") == 1
    assert "never rewritten silently" in capsys.readouterr().err
    assert (made / "nhd.h5").read_bytes() == before
    # A file that left the manifest, or an entry without its file, is no opening either.
    manifest = json.loads((made / "MANIFEST.json").read_text())
    entry = manifest["files"].pop("nhd.h5")
    (made / "MANIFEST.json").write_text(json.dumps(manifest))
    assert run(made, cases) == 1
    manifest["files"]["nhd.h5"] = entry
    (made / "MANIFEST.json").write_text(json.dumps(manifest))
    (made / "nhd.h5").unlink()
    assert run(made, cases) == 1 and not (made / "nhd.h5").exists()


def test_replace_prints_what_changes(made, cases, capsys):
    assert run(made, cases, "--replace", "nhd") == 0
    assert "content is the same" in capsys.readouterr().out
    (cases / "layouts" / "nhd.yaml").write_text('layout: nhd\ntemplate: "L x K B H N C"\n')
    assert run(made, cases, "--check") == 1
    assert "nhd now says 'L x K B H N C'" in capsys.readouterr().out
    assert run(made, cases, "--replace", "nhd") == 0
    out = capsys.readouterr().out
    assert "/dtypes/bf16/memory/a0:" in out and "in the file," in out and "/tags" not in out
    assert run(made, cases, "--check") == 0


def test_a_new_layout_adds_only_its_file(made, cases):
    before = {p.name: p.read_bytes() for p in made.glob("*.h5")}
    (cases / "layouts" / "new.yaml").write_text('layout: new\ntemplate: "L x B K N H C"\n')
    assert run(made, cases, "--check") == 1
    assert run(made, cases) == 0
    after = {p.name: p.read_bytes() for p in made.glob("*.h5")}
    assert set(after) - set(before) == {"new.h5"} and all(after[n] == b for n, b in before.items())
    assert run(made, cases, "--check") == 0


def test_layouts_of_equal_content_share_a_file(made, cases, capsys):
    text = (cases / "layouts" / "nhd.yaml").read_text()
    (cases / "layouts" / "twin.yaml").write_text(text.replace("layout: nhd", "layout: twin"))
    files = sorted(made.glob("*.h5"))
    assert run(made, cases) == 0
    assert "twin: 3 dtypes, the same as nhd.h5" in capsys.readouterr().out
    assert sorted(made.glob("*.h5")) == files and run(made, cases, "--check") == 0
    # One of the two changes: its file cannot disappear under the other.
    (cases / "layouts" / "nhd.yaml").write_text('layout: nhd\ntemplate: "L x K B H N C"\n')
    assert run(made, cases, "--check") == 1
    assert run(made, cases, "--replace", "nhd") == 1
    assert "replace them together: --replace nhd twin" in capsys.readouterr().err
    assert run(made, cases, "--replace", "nhd", "twin") == 0
    assert sorted(p.name for p in made.glob("*.h5")) == ["footer.h5", "nhd.h5", "packed.h5", "twin.h5"]
    assert run(made, cases, "--check") == 0
    # The twin returns to the other's order.
    (cases / "layouts" / "twin.yaml").write_text('layout: twin\ntemplate: "L x K B H N C"\n')
    assert run(made, cases, "--replace", "twin") == 0 and not (made / "twin.h5").exists()
    assert run(made, cases, "--check") == 0


def test_a_lie_in_an_attribute_is_found(made, cases, capsys):
    from kvgold.store import sha256

    with h5py.File(made / "nhd.h5", "r+") as file:
        file.attrs.modify("seed", np.int64(2))
    store = Store(made, cases)
    store.manifest["files"]["nhd.h5"]["sha256"] = sha256(made / "nhd.h5")
    store.save_manifest()
    assert run(made, cases, "--check", "nhd") == 1
    assert "its attributes are not those of MANIFEST.json" in capsys.readouterr().out


def test_a_lie_with_a_right_sha_is_found(made, cases, capsys):
    store = Store(made, cases)
    with h5py.File(made / "nhd.h5", "r+") as file:
        data = file["/dtypes/bf16/memory/a1"]
        changed = data[()]
        changed[100] ^= 1
        data[...] = changed
    assert run(made, cases, "--check", "nhd") == 1
    assert "SHA-256" in capsys.readouterr().out
    from kvgold.store import sha256

    store.manifest["files"]["nhd.h5"]["sha256"] = sha256(made / "nhd.h5")
    store.save_manifest()
    assert run(made, cases, "--check", "nhd") == 1
    out = capsys.readouterr().out
    assert "/dtypes/bf16/memory/a1: content digest differs" in out


@pytest.mark.parametrize("damage", ["truncated", "missing", "stranger"])
def test_damage_is_one_clear_line(made, cases, capsys, damage):
    path = made / "packed.h5"
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:1000])
    elif damage == "missing":
        path.unlink()
    else:
        shutil.copy(path, made / "stranger.h5")
    assert run(made, cases, "--check") == 1
    lines = capsys.readouterr().out.splitlines()
    assert (
        len(lines) == 2
        and {"truncated": "SHA-256", "missing": "not in the folder", "stranger": "not in MANIFEST"}[damage] in lines[0]
    )


def test_list_gives_a_reason_for_each_absence(made, cases, capsys):
    (cases / "layouts" / "broken.yaml").write_text("layout: broken\ntemplate: L Q\n")
    assert run(made, cases, "--list", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    state = {(r["layout"], r["dtype"]): (r["state"], r["reason"]) for r in rows}
    assert state["nhd", "bf16"][0] == "golden"
    assert state["footer", "nvfp4"] == ("not possible", "the layout lists its dtypes: bf16")
    assert state["broken", "*"][0] == "unreadable"
    assert all(reason for kind, reason in state.values() if kind != "golden")


def test_an_unknown_name_is_an_error(made, cases, capsys):
    assert run(made, cases, "nope") == 1
    assert "no layout 'nope'" in capsys.readouterr().err


def test_a_file_explains_itself(made):
    with h5py.File(made / "nhd.h5") as file:
        text = {name: value.decode() for name, value in file.attrs.items() if isinstance(value, bytes)}
        assert "token_table" in text["about"] and text["template"] == "L x K B N H C"
        assert text["version_numpy"] == np.__version__
        plane = file["/dtypes/nvfp4/planes/p1"]
        assert plane.attrs["component"] == b"scale" and plane.attrs["dtype"] == b"e4m3fn"
        tags, who = plane["tags"][()], plane["coordinates"][()]
        assert tags.shape == who.shape == (2, 2, 10, 3, 4)
        assert who["token"][0, 0, :, 0, 0].tolist() == list(range(10)) and (who["block"][0, 0, 8:, 0, 0] == 4).all()
        # Equal codes are one object: fp16 and bf16 have the same tags.
        assert file["/dtypes/bf16/memory/a0"] == file["/dtypes/fp16/memory/a0"]
        # Bytes, tags and places agree.
        data, bit = file["/dtypes/bf16/memory/a1"][()], file["/dtypes/bf16/planes/p0/bit"][()]
        tags, who = file["/dtypes/bf16/planes/p0/tags"][()], file["/dtypes/bf16/planes/p0/coordinates"][()]
        at = bit[1][who["kv"][1], who["block"][1], who["slot"][1], who["head"][1], who["channel"][1]]
        assert (data.view("<u2")[at // 16] == tags[1]).all()
        for path, array in h5file.read_arrays(made / "nhd.h5").items():
            assert file[path].attrs["sha256"].decode() == h5file.digest(array), path


def test_the_repository_is_as_generated(capsys):
    """Every committed golden file against freshly made content, whatever versions of NumPy and HDF5 are installed here."""
    status = generate.main(["--check"])
    assert status == 0, capsys.readouterr().out
