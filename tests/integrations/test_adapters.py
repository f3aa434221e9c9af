"""Frameworks that use the tools, each with its own package.

Each test runs in a process of the framework's own environment, made here, because their
requirements exclude each other. `docs/clients.md` has the versions that were tried.
"""

import json
import os
import subprocess
import venv
from pathlib import Path

import pytest
from conftest import FILES, TESTS, write_files

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]
OPEN = """
import asyncio, json, sys
from langchain_lookup_knowledge import KnowledgeBase, knowledge_tools
kb = KnowledgeBase.open(sys.argv[1], index=None)
lookup, read = knowledge_tools([kb])
"""
ADAPTERS = {  # autogen-ext's extra [langchain] wants an old langchain-core, its adapter does not
    "smolagents": """
from smolagents import Tool
lookup, read = map(Tool.from_langchain, (lookup, read))
texts = [lookup("refund"), read(source="billing/refunds.md", heading="", lines="")]
""",
    "pydantic-ai-slim": """
from pydantic_ai import Agent
from pydantic_ai.ext.langchain import tool_from_langchain
from pydantic_ai.models.test import TestModel
lookup, read = map(tool_from_langchain, (lookup, read))
assert "lookup_kb" in Agent(TestModel(), tools=[lookup]).run_sync("refund?").output
texts = [lookup.function(query="refund"), read.function(source="billing/refunds.md")]
""",
    "autogen-ext autogen-core": """
from autogen_core import CancellationToken
from autogen_ext.tools.langchain import LangChainToolAdapter
async def run():
    calls = [(lookup, {"query": "refund"}), (read, {"source": "billing/refunds.md"})]
    return [
        await LangChainToolAdapter(tool).run_json(arguments, CancellationToken())
        for tool, arguments in calls
    ]
texts = asyncio.run(run())
""",
    "crewai": """
from crewai.tools.base_tool import Tool
texts = [
    Tool.from_langchain(lookup).run(query="refund"),
    Tool.from_langchain(read).run(source="billing/refunds.md"),
]
""",
}


AGENTS = {  # each puts answers of agents into `texts`; scripted models stand on this machine
    "langchain langchain-openai langchain-anthropic langchain-google-genai deepagents "
    "langgraph-supervisor langgraph-swarm": """
from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph_supervisor import create_supervisor
from langgraph_swarm import create_handoff_tool, create_swarm

def chat(script, **options):
    return ChatOpenAI(model=script, base_url=url + "/v1", api_key="x", **options)

common = {"model": "lookup_kb", "base_url": url, "api_key": "x"}
formats = [chat("lookup_kb"), chat("lookup_kb", use_responses_api=True)]
formats += [ChatAnthropic(**common, max_tokens=99), ChatGoogleGenerativeAI(**common)]
agents = [create_agent(model, tools) for model in formats]
agents.append(create_deep_agent(model=chat("lookup_kb"), tools=tools))
billing = create_agent(chat("lookup_kb"), tools, name="billing")
agents.append(create_supervisor([billing], model=chat("transfer_to_billing")).compile())
hand_over = create_handoff_tool(agent_name="billing")
front = create_agent(chat("transfer_to_billing"), [hand_over], name="front")
swarm = create_swarm([front, billing], default_active_agent="front")
agents.append(swarm.compile(checkpointer=InMemorySaver()))
asked = {"messages": [("user", "how long does a refund take?")]}
config = {"configurable": {"thread_id": "1"}}
texts = [agent.invoke(asked, config)["messages"][-1].text for agent in agents]
""",
    "openai-agents": """
import agents
from openai import AsyncOpenAI
agents.set_tracing_disabled(True)
client = AsyncOpenAI(base_url=url + "/v1", api_key="x")

async def call(context, arguments):
    return await lookup.ainvoke(json.loads(arguments))

schema = lookup.tool_call_schema.model_json_schema()
tool = agents.FunctionTool(
    lookup.name, lookup.description, schema, call, strict_json_schema=False
)
kinds = (agents.OpenAIChatCompletionsModel, agents.OpenAIResponsesModel)
models = [kind(model="lookup_kb", openai_client=client) for kind in kinds]
texts = [
    agents.Runner.run_sync(agents.Agent("a", model=model, tools=[tool]), "refund?").final_output
    for model in models
]
""",
    "langfuse openinference-instrumentation-langchain opentelemetry-sdk": """
import os
os.environ |= {"LANGFUSE_PUBLIC_KEY": "x", "LANGFUSE_SECRET_KEY": "x", "LANGFUSE_BASE_URL": url}
from langfuse import get_client
from langfuse.langchain import CallbackHandler
from openinference.instrumentation.langchain import LangChainInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
client = get_client()
text = lookup.invoke({"query": "refund"}, {"callbacks": [CallbackHandler()]})
client.flush()
assert 0 < sum(traced) < 3 * len(text) + 4096, traced
exported = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exported))
LangChainInstrumentor().instrument(tracer_provider=provider)
lookup.invoke({"query": "refund"})
kinds = {span.attributes["openinference.span.kind"] for span in exported.get_finished_spans()}
texts = [f"ANSWER {kinds >= {'TOOL', 'RETRIEVER', 'CHAIN'}}"]
""",
}


def ran(packages: str, script: str, tmp_path: Path) -> list[str]:
    """Return the `texts` of a script in a new environment with these packages."""
    folder = write_files(tmp_path / "kb", FILES)
    venv.create(tmp_path / "environment", with_pip=True)
    python = tmp_path / "environment" / "bin" / "python"
    install = [python, "-m", "pip", "install", "-q", str(ROOT), *packages.split()]
    subprocess.run(install, check=True, timeout=1500)
    script = OPEN + script + "\nprint(json.dumps([str(text) for text in texts]))"
    environment = {"HOME": str(tmp_path), "CREWAI_DISABLE_TELEMETRY": "true"}
    done = subprocess.run(
        [python, "-c", script, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, **environment, "PYTHONPATH": str(TESTS)},
    )
    assert done.returncode == 0, done.stderr
    texts: list[str] = json.loads(done.stdout.splitlines()[-1])
    return texts


@pytest.mark.parametrize("packages", ADAPTERS)
def test_the_tools_work_in_another_framework(packages, tmp_path):
    looked_up, read = ran(packages, ADAPTERS[packages], tmp_path)
    assert looked_up.startswith("Keyword matching alone answered (L0)")
    assert "Refunds take five days." in looked_up
    assert "Refunds take five days." in read


@pytest.mark.parametrize("packages", AGENTS)
def test_an_agent_of_another_framework_answers_by_the_tools(packages, tmp_path):
    start = "tools = [lookup, read]\nfrom parts.scripted_models import serving, traced\n"
    start += "served = serving()\nurl = served.__enter__()\n"
    texts = ran(packages, start + AGENTS[packages], tmp_path)
    assert "ANSWER" in texts[0]
    assert set(texts) == {"ANSWER True"}
