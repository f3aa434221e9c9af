"""The package as a whole: its public names, and who may import what."""

import ast
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

import langchain_lookup_knowledge

PACKAGE = Path(langchain_lookup_knowledge.__file__).parent
OWNERS = {
    "fastembed": {"l1/models/"},
    "qdrant_edge": {
        "l1/stores/vector_index",
        "l1/stores/embedded_index",
        "l1/stores/edge_shard",
    },
    "qdrant_client": {"l1/stores/qdrant/"},
    "httpx": {"l1/stores/qdrant/failures", "l1/stores/qdrant/bounded_http"},
    "httpcore": {"l1/stores/qdrant/bounded_http"},
    "grpc": {"l1/stores/qdrant/failures"},
    "sqlalchemy": {"records/"},
    "psycopg": set(),
    "starlette": {"inspector/", "integrations/mcp_server"},
    "uvicorn": {"inspector/", "integrations/mcp_server"},
    "jinja2": {"inspector/"},
    "frontmatter": {"reading/metadata/"},
    "yaml": {"reading/metadata/", "reading/glossary_file"},
    "pathspec": {"reading/selection"},
    "tomllib": {"reading/metadata/"},
    "html": {"first_sight/", "text/visible/", "text/headings"},
    "markdown_it": {"text/markdown", "text/headings"},
    "watchfiles": {"reading/watching"},
    "mcp": {"integrations/mcp_server"},
}
"""Modules, or folders that end in a slash, that may import a library."""


def imported_modules(path):
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_the_contracts_between_layers_are_kept(monkeypatch):
    monkeypatch.chdir(PACKAGE.parent)
    # It would switch off the loggers, and tests that read the log after this one would fail.
    monkeypatch.setattr("importlinter.cli._configure_logging", lambda verbose: None)
    assert lint_imports(config_filename="pyproject.toml", no_cache=True) == 0


def test_each_library_is_imported_by_the_module_that_owns_it():
    for path in PACKAGE.rglob("*.py"):
        module = path.relative_to(PACKAGE).with_suffix("").as_posix()
        for name in imported_modules(path):
            owners = OWNERS.get(name.split(".")[0])
            allowed = owners is None or any(
                module.startswith(owner) if owner.endswith("/") else module == owner
                for owner in owners
            )
            assert allowed, f"{module} imports {name}"


def test_forks_are_handled_in_one_place():
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text("utf-8")
        if path.name != "forks.py":
            assert "register_at_fork" not in text, path
            assert "getpid" not in text, path


def test_public_names_are_listed_and_there():
    assert sorted(langchain_lookup_knowledge._HOMES) == sorted(langchain_lookup_knowledge.__all__)
    for name in langchain_lookup_knowledge.__all__:
        public = getattr(langchain_lookup_knowledge, name)
        assert public.__doc__


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = langchain_lookup_knowledge.nothing
