"""What the documentation says of the code is what the code has."""

import re
import tomllib

import pytest
import yaml
from parts.command_line import run
from parts.pages import PAGES, ROOT, load_script

import langchain_lookup_knowledge

DOCS = ROOT / "docs"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
LINK = re.compile(r"```.*?```|`[^`]*`|!?\[[^\]]*\]\(([^)\s]+)\)", re.DOTALL)
NAMED = [*PAGES, *(ROOT / name for name in ("SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md"))]


def test_the_readme_is_read_in_ten_minutes():
    assert len((ROOT / "README.md").read_text("utf-8").split()) <= 1000


@pytest.mark.parametrize("name", ["result.md", "options.md", "cli.md"])
def test_parts_made_from_the_code_are_current(name):
    """If this fails, run `python docs/reference.py`."""
    page = (DOCS / name).read_text("utf-8")
    assert "<!-- generated: " in page
    assert load_script("reference").current(page) == page


def test_a_field_without_a_meaning_is_named(monkeypatch):
    reference = load_script("reference")
    monkeypatch.delitem(reference.MEANINGS["Relevance"], "reason")
    with pytest.raises(KeyError, match=r"docs/fields.yml, Relevance: reason"):
        list(reference.results())


def anchors(page):
    """Return the anchors of the headings of a page."""
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", name.lower()).strip()) for name in headings}


@pytest.mark.parametrize("page", NAMED, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_to_files_and_headings(page):
    for target in LINK.findall(page.read_text("utf-8")):
        path, _, anchor = target.partition("#")
        if not target or ":" in path:
            continue
        place = (page.parent / path).resolve() if path else page
        assert place.exists(), target
        assert not anchor or anchor in anchors(place), target


def test_every_page_is_in_the_navigation():
    def listed(tree):
        for part in tree if isinstance(tree, list) else tree.values():
            yield from [part] if isinstance(part, str) else listed(part)

    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    assert sorted(listed(site["nav"])) == sorted(
        pages | {"SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md"}
    )


def test_every_dependency_has_a_reason():
    page = (DOCS / "dependencies.md").read_text("utf-8")
    named = set(
        re.findall(r"[a-z][a-z0-9-]+", "".join(re.findall(r"(?m)^\| ([^|]*)", page)).lower())
    )
    extras = PROJECT["optional-dependencies"]
    users = [name for name in extras if name not in ("test", "browser", "bench", "dev")]
    declared = [*PROJECT["dependencies"], *(package for name in users for package in extras[name])]
    for package in declared:
        name = re.match(r"[A-Za-z0-9-]+", package)[0].lower()
        assert name in named, name


def test_errors_name_a_page_that_exists():
    def below(error):
        yield error
        for kind in error.__subclasses__():
            yield from below(kind)

    for kind in below(langchain_lookup_knowledge.LookupKnowledgeError):
        assert (DOCS / f"{kind.docs}.md").is_file(), kind
        assert kind("no").__notes__ == [f"docs: {kind.docs}"]


def test_the_command_line_names_the_page(tmp_path):
    done = run("check", tmp_path / "nothing")
    assert done.stderr.endswith("the folder that holds the Markdown files (docs: folder)\n")


def test_the_citation_has_the_version_that_is_published():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    version = langchain_lookup_knowledge.__version__
    assert citation["version"] == version.partition(".dev")[0]
    assert citation["license"] == PROJECT["license"]


def test_the_address_of_the_repository_is_in_one_place():
    addresses = PROJECT.get("urls", {})
    for path in [*NAMED, ROOT / "mkdocs.yml", ROOT / "CITATION.cff"]:
        text = path.read_text("utf-8")
        assert not any(address in text for address in addresses.values()), path


def test_the_workflows_cover_the_versions_that_are_promised():
    for path in (ROOT / ".github").rglob("*.yml"):
        assert yaml.safe_load(path.read_text("utf-8")), path
    workflow = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text("utf-8"))
    versions = workflow["jobs"]["tests"]["strategy"]["matrix"]["python"]
    promised = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    assert set(promised) <= set(versions)
    assert PROJECT["requires-python"] == f">={versions[0]}"
