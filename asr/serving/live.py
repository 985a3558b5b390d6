"""Live transcription by WebSocket."""

from fastapi import APIRouter, WebSocket

router = APIRouter()


@router.websocket("/v1/stream")
async def stream(socket: WebSocket) -> None:
    """Refuse, for now."""
    await socket.close(1013)
