"""The HTTP layer over the queue (FastAPI, uvicorn): imported when a service starts."""
