"""Airflow's connection to Headrace: host, port, schema (http or https), and the key as password."""

from airflow.sdk import BaseHook, Connection

from headrace_airflow.api import Api

DEFAULT = "headrace_default"


def connect(conn_id: str) -> Api:
    """Give the API that a connection names."""
    return _api(BaseHook.get_connection(conn_id))


async def connect_in_trigger(conn_id: str) -> Api:
    """Do the same within the triggerer, where nothing may block."""
    return _api(await BaseHook.aget_connection(conn_id))


def _api(connection: Connection) -> Api:
    host = connection.host or "127.0.0.1"
    address = host if "://" in host else f"{connection.schema or 'http'}://{host}"
    port = f":{connection.port}" if connection.port else ""
    return Api(address.rstrip("/") + port, connection.password or "")
