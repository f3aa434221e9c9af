"""A server on this machine that speaks the formats of chat models, and records what traces it gets.

The name of the model is its script: `a+b` calls the tool `a`, then `b`, then answers "ANSWER True"
if the requests told it how long refunds take. Needs the standard library alone.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

FACT = "Refunds take five days."
traced: list[int] = []
"""Bytes of each request that is none to a model: traces and their like."""


def _openai_chat(request: dict[str, Any], step: str | None, arguments: str, text: str) -> Any:
    message: dict[str, Any] = {"role": "assistant", "content": None if step else text}
    if step:
        function = {"name": step, "arguments": arguments}
        message["tool_calls"] = [{"id": f"call_{step}", "type": "function", "function": function}]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if step else "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return {
        "id": "x", "object": "chat.completion", "created": 1, "model": request["model"],
        "choices": [choice], "usage": usage,
    }  # fmt: skip


def _openai_responses(request: dict[str, Any], step: str | None, arguments: str, text: str) -> Any:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    output: dict[str, Any] = {
        "type": "message",
        "id": "m_1",
        "role": "assistant",
        "content": content,
    }
    if step:
        call = {"id": f"fc_{step}", "call_id": f"call_{step}", "name": step, "arguments": arguments}
        output = {"type": "function_call", **call}
    details = {"input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0}}
    details |= {"output_tokens_details": {"reasoning_tokens": 0}}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2, **details}
    return {
        "id": f"r_{step}", "object": "response", "created_at": 1, "model": request["model"],
        "status": "completed", "output": [{"status": "completed", **output}], "usage": usage,
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
    }  # fmt: skip


def _anthropic(request: dict[str, Any], step: str | None, arguments: str, text: str) -> Any:
    block: dict[str, Any] = {"type": "text", "text": text}
    if step:
        block = {"type": "tool_use", "id": f"c_{step}", "name": step}
        block["input"] = json.loads(arguments)
    return {
        "id": "x", "type": "message", "role": "assistant", "model": request["model"],
        "content": [block], "stop_reason": "tool_use" if step else "end_turn",
        "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1},
    }  # fmt: skip


def _google(_: dict[str, Any], step: str | None, arguments: str, text: str) -> Any:
    call = {"functionCall": {"name": step, "args": json.loads(arguments)}}
    content = {"role": "model", "parts": [call if step else {"text": text}]}
    return {
        "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
    }


FORMATS = {
    "/chat/completions": _openai_chat,
    "/responses": _openai_responses,
    "/messages": _anthropic,
    ":generateContent": _google,
}


def _was_called(request: dict[str, Any], tool: str) -> bool:
    """Return whether the conversation of a request holds a call of a tool."""
    history = [request.get(key) for key in ("messages", "input", "contents")]
    return f'"name": "{tool}"' in json.dumps(history)


def _knows(request: dict[str, Any]) -> bool:
    """Return whether a request holds the fact, or another agent's answer by it."""
    written = json.dumps(request)
    return FACT in written or "ANSWER True" in written


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        path = self.path.partition("?")[0]
        build = next((FORMATS[end] for end in FORMATS if path.endswith(end)), None)
        answer: Any = {}
        if build is None:
            traced.append(len(body))
        else:
            request = json.loads(body)
            model = request.get("model") or path.rpartition("/")[2].partition(":")[0]
            steps = [tool for tool in model.split("+") if not _was_called(request, tool)]
            step = steps[0] if steps else None
            takes_a_query = step is not None and "transfer" not in step
            arguments = json.dumps({"query": "refund"} if takes_a_query else {})
            answer = build(request, step, arguments, f"ANSWER {_knows(request)}")
        written = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(written)))
        self.end_headers()
        self.wfile.write(written)

    do_GET = do_POST
    do_PATCH = do_POST

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serving() -> Iterator[str]:
    """Serve while the block runs; yield the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
