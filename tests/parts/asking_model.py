"""A chat model without a network: it looks the user's question up, then answers."""

from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult


class AskingModel(BaseChatModel):
    """Calls the first tool that takes a query, with the user's question; then says `ANSWER`."""

    ANSWER: str = "It is in the passage."
    tool: str = ""

    @property
    def _llm_type(self) -> str:
        return "asking"

    def bind_tools(self, tools: Any, **kwargs: Any) -> "AskingModel":
        asking = next(tool.name for tool in tools if "query" in tool.args)
        return self.model_copy(update={"tool": asking})

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        last = messages[-1]
        message = AIMessage(self.ANSWER)
        if last.type == "human" and self.tool:
            call = {"name": self.tool, "args": {"query": last.text}, "id": f"call_{len(messages)}"}
            message = AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=message)])
