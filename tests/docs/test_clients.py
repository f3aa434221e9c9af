"""What `docs/mcp.md` tells clients to start, starts; what `docs/clients.md` says is tried, is."""

import json
import re
import shlex

import pytest
from parts.pages import ROOT, blocks

from langchain_lookup_knowledge.integrations.cli import main

pytestmark = pytest.mark.docs
PAGE = ROOT / "docs/mcp.md"


def configurations():
    """Return the configurations of the page: JSON, and the command of Claude Code."""
    found = [json.loads(block.code) for block in blocks(PAGE) if block.language == "json"]
    (command,) = (block.code for block in blocks(PAGE) if block.language == "sh")
    added, _, started = command.partition(" -- ")
    assert added == "claude mcp add handbook"
    name, *arguments = shlex.split(started)
    return [*found, {"mcpServers": {"handbook": {"command": name, "args": arguments}}}]


@pytest.mark.parametrize("configuration", configurations())
def test_a_configuration_of_an_mcp_client_starts_a_server(configuration, tmp_path, capsys):
    """The command is ours and takes the arguments; a missing folder is all that it complains of."""
    ((key, servers),) = configuration.items()
    assert key in ("mcpServers", "servers")
    (server,) = servers.values()
    if "url" in server:
        assert server["url"] == "http://127.0.0.1:8000/mcp"
        assert server["headers"] == {"Authorization": "Bearer SECRET"}
        return
    assert server["command"] == "lookup-knowledge"
    assert main(server["args"]) == 2
    assert "/path/to/handbook is not a folder" in capsys.readouterr().err


def test_the_options_of_mcp_are_those_of_its_page(capsys):
    page = PAGE.read_text("utf-8")
    with pytest.raises(SystemExit):
        main(["mcp", "--help"])
    offered = set(re.findall(r"--[a-z0-9-]+", capsys.readouterr().out))
    assert offered - {"--help", "--traceback", "--data-dir"} == set(
        re.findall(r"^\| `(--[a-z0-9-]+)", page, re.MULTILINE)
    )


def test_clients_that_the_page_says_are_tried_each_night_are():
    tried = (ROOT / "tests/integrations/test_adapters.py").read_text("utf-8").lower()
    page = (ROOT / "docs/clients.md").read_text("utf-8")
    marked = re.findall(r"^\| `?([\w-]+)[^|]* ✎ \|", page, re.MULTILINE)
    assert len(marked) > 10
    assert [name for name in marked if name.lower() not in tried] == []
