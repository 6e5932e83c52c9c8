"""Questions to one Kafka broker that are no control requests, each on a connection of its own."""

from __future__ import annotations

import asyncio

from controller.core.model import Broker
from controller.errors import ControllerError
from controller.runtime.kafka.connection import Connection
from controller.runtime.kafka.endpoints import Listeners
from controller.runtime.kafka.listeners import control_endpoint
from controller.runtime.kafka.security.client import ClientSecurity
from proto.kafka.apis import APIS, ApiKey, Message

#: How long connecting and how long the response may take.
TIMEOUT_S = 15.0
#: A longer response is refused: it is decoded beside the event loop, some 0.25 s for each MiB.
RESPONSE_BYTES_MAX = 2 * 2**20
#: Connections at the same time; more callers wait.
AT_ONCE = 8


class NotAskedError(ControllerError):
    """The request was not sent: the broker was not reached, or does not speak the version."""


class BrokerQuestions:
    """Asks with this controller's identity. ``client_id``: by which brokers' logs and quotas know it."""

    def __init__(self, client_id: str, listeners: Listeners, security: ClientSecurity) -> None:
        self._client_id, self._listeners, self._security = client_id, listeners, security
        self._at_once = asyncio.Semaphore(AT_ONCE)

    async def ask(self, broker: Broker, request: Message, version: int | None = None) -> Message:
        """The broker's response; without a version in the newest one that both speak. Raises NotAskedError;
        ConnectionFailedError: whether the broker carried the request out is unknown."""
        connection = Connection(self._client_id, self._security, TIMEOUT_S, RESPONSE_BYTES_MAX)
        key = ApiKey(request.API_KEY)
        async with self._at_once:
            try:
                try:
                    endpoint = control_endpoint(broker, self._listeners)
                    await connection.open(endpoint.host, endpoint.port)
                except ControllerError as error:
                    raise NotAskedError(str(error)) from None
                spoken = [v for v in connection.versions.get(key, ()) if v in APIS[key].versions]
                if not spoken or version not in (None, *spoken):
                    wanted = "any version" if version is None else f"version {version}"
                    raise NotAskedError(f"broker {broker.id} does not speak {wanted} of {key.name}")
                return await connection.request(request, max(spoken) if version is None else version)
            finally:
                await connection.close()
