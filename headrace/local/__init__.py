"""The local stack: broker, PostgreSQL, engine and API as children of one supervisor.

May import the kernel only. It starts the engine and the API as programs and never imports them.
"""
