"""TCP proxies: one before Postgres that cuts and holds connections, one before the APIs that goes round the one that is down.

Bytes are passed on as they come: what a load balancer of layer 4 with two instances behind it does.
"""

import asyncio
import contextlib
import socket
import struct
import threading


class Proxies:
    """The thread that they all run in."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def open(self, backends):
        proxy = Proxy(self.loop, backends)
        asyncio.run_coroutine_threadsafe(proxy.listen(), self.loop).result(10)
        return proxy


class Proxy:
    def __init__(self, loop, backends):
        self.loop, self.backends = loop, backends
        self.turn, self.writers = 0, set()
        self.flows = asyncio.Event()
        self.flows.set()

    async def listen(self):
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]

    def cut(self):
        """Resets every connection there is; new ones are taken."""
        self._call(self._cut)

    @contextlib.contextmanager
    def held(self):
        """Nothing passes, and nobody is told."""
        self._call(self.flows.clear)
        try:
            yield
        finally:
            self._call(self.flows.set)

    def _call(self, function):
        async def call():
            function()
        asyncio.run_coroutine_threadsafe(call(), self.loop).result(10)

    def _cut(self):
        for writer in list(self.writers):
            # Nothing lingers: the other side gets a reset and no orderly end.
            with contextlib.suppress(OSError):
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    async def _serve(self, reader, writer):
        backend = await self._connect()
        if backend is None:
            writer.transport.abort()
            return
        pair = {writer, backend[1]}
        self.writers |= pair
        try:
            await asyncio.gather(self._pass(reader, backend[1]), self._pass(backend[0], writer))
        except OSError:
            pass
        finally:
            self.writers -= pair
            for end in pair:
                end.transport.abort() if end.transport.is_closing() else end.close()

    async def _connect(self):
        self.turn += 1
        for number in range(len(self.backends)):
            with contextlib.suppress(OSError):
                return await asyncio.open_connection("127.0.0.1", self.backends[(self.turn + number) % len(self.backends)])
        return None

    async def _pass(self, reader, writer):
        while data := await reader.read(1 << 16):
            await self.flows.wait()
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
