"""Deliver error responses reliably; shared by every HTTP server of MemTier."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_DISCARDED_BYTES: Final = 4 * 1024 * 1024
DISCARD_SECONDS: Final = 2.0


def deliver_refusals(app: ASGIApp) -> ASGIApp:
    """Wrap an app so that it reads the rest of a request before it answers an error.

    A server that closes a connection with unread bytes sends a reset, and the client may never see
    the response (RFC 9112, section 9.6).  Bodies over `MAX_DISCARDED_BYTES` are not drained, so
    their clients may miss it.
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        length = int(headers.get(b"content-length", b"0"))
        unread = length > 0 or b"transfer-encoding" in headers

        async def receive_noting() -> Message:
            nonlocal unread
            message = await receive()
            unread = message.get("more_body", False)
            return message

        async def discard() -> None:
            size = 0
            while unread and size <= MAX_DISCARDED_BYTES:
                size += len((await receive_noting()).get("body", b""))

        async def send_read(message: Message) -> None:
            refused = message["type"] == "http.response.start" and message["status"] >= 400
            if refused and unread and length <= MAX_DISCARDED_BYTES:
                with suppress(TimeoutError):
                    async with asyncio.timeout(DISCARD_SECONDS):
                        await discard()
            await send(message)

        await app(scope, receive_noting, send_read)

    return answer
