"""The server of the inspector: half-open requests end, and others are answered."""

import asyncio
from contextlib import suppress

import pytest
import uvicorn

from langchain_lookup_knowledge.inspector import serving


async def hello(scope, receive, send):
    while (await receive()).get("more_body"):
        pass
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
    )
    await send({"type": "http.response.body", "body": b"hi"})


@pytest.fixture
async def port(monkeypatch):
    monkeypatch.setattr(serving, "REQUEST_SECONDS", 0.2)
    config = uvicorn.Config(
        hello, port=0, http=serving.PatientH11Protocol, log_level="critical", lifespan="off"
    )
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    await running


def test_what_failed_is_attempted_again_after_pauses_that_grow():
    now, tried = [0.0], []

    def attempt():
        tried.append(now[0])
        if len(tried) < 9:
            raise ZeroDivisionError(len(tried))
        return "open"

    attempts = serving.Attempts(lambda: now[0])
    while now[0] < 400:
        with suppress(ZeroDivisionError):
            assert attempts.at(attempt) == "open"
            break
        now[0] += 0.5
    assert tried == [0, 1, 3, 7, 15, 31, 63, 123, 183]


HALF_BODY = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nx"
WHOLE = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"G",
        WHOLE[:-2],
        WHOLE + b"G",
        HALF_BODY,
    ],
)
@pytest.mark.slow
async def test_a_connection_whose_request_does_not_arrive_is_closed(port, sent):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    answers = await asyncio.wait_for(reader.read(), 60)  # until the server closes it
    assert answers.count(b"200 OK") == sent.count(WHOLE)
    writer.close()


async def test_a_request_that_dribbles_is_closed(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def dribble():
        for byte in WHOLE[:-1] + b"a" * 100_000:
            writer.write(bytes((byte,)))
            await asyncio.sleep(0.02)

    dribbling = asyncio.create_task(dribble())
    with suppress(ConnectionResetError):  # if a byte was under way
        assert await asyncio.wait_for(reader.read(), 60) == b""
    dribbling.cancel()
    writer.close()


async def test_several_requests_of_a_connection_are_answered(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(3):
        writer.write(WHOLE)
        answer = await asyncio.wait_for(reader.readuntil(b"hi"), 60)
        assert answer.startswith(b"HTTP/1.1 200")
        await asyncio.sleep(0.1)
    writer.close()
