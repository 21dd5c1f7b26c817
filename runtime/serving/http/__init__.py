"""The thin layer of HTTP over the queue (FastAPI, uvicorn): imported when a service starts."""
