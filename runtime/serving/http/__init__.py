"""The thin layer of HTTP over the engine (FastAPI, uvicorn): imported when a service starts."""
