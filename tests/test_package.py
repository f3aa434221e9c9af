"""The package as a whole: its public names, and imports that go one way."""

import ast
from pathlib import Path

import pytest

import langchain_lookup_knowledge

PACKAGE = Path(langchain_lookup_knowledge.__file__).parent
ORDER = [
    ["errors", "types", "words", "cleaning", "durable"],
    ["tokens", "frontmatter", "invocations", "deadlines", "breaker"],
    ["documents"],
    ["hints", "descriptions", "filters", "passages", "scope", "spool", "database"],
    ["merging", "lints", "group_commit"],
    ["embeddings", "stores", "records", "rendering", "charts"],
    ["embedded_index", "qdrant_index"],
    ["data_folder"],
    ["knowledge_base", "history"],
    ["tracing"],
    ["graph"],
    ["tool", "retriever", "evaluation", "replay"],
    ["inspector", "mcp_server"],
    ["cli"],
]
OWNERS = {
    "fastembed": {"embeddings"},
    "qdrant_edge": {"stores", "embedded_index"},
    "qdrant_client": {"qdrant_index"},
    "httpx": {"qdrant_index"},
    "grpc": {"qdrant_index"},
    "sqlalchemy": {"records", "database", "history"},
    "psycopg": set(),
    "starlette": {"inspector"},
    "uvicorn": {"inspector", "mcp_server"},
    "jinja2": {"inspector"},
    "frontmatter": {"frontmatter"},
    "yaml": {"frontmatter"},
    "tomllib": {"frontmatter"},
    "html": {"cleaning"},
    "mcp": {"mcp_server"},
    "mcp_types": {"mcp_server"},
}


def imported_modules(path):
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_imports_go_upwards_only():
    level = {module: number for number, modules in enumerate(ORDER) for module in modules}
    assert set(level) == {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    for module, number in level.items():
        for name in imported_modules(PACKAGE / f"{module}.py"):
            target = name.removeprefix("langchain_lookup_knowledge.").split(".")[0]
            if name.startswith("langchain_lookup_knowledge.") and target in level:
                assert level[target] < number, f"{module} imports {target}"


def test_each_library_is_imported_by_the_module_that_owns_it():
    for path in PACKAGE.glob("*.py"):
        for name in imported_modules(path):
            owners = OWNERS.get(name.split(".")[0])
            assert owners is None or path.stem in owners, f"{path.stem} imports {name}"


def test_public_names_are_listed_and_there():
    assert sorted(langchain_lookup_knowledge._HOMES) == sorted(langchain_lookup_knowledge.__all__)
    for name in langchain_lookup_knowledge.__all__:
        public = getattr(langchain_lookup_knowledge, name)
        assert public.__doc__


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = langchain_lookup_knowledge.nothing
