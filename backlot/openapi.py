"""What /openapi.json and /docs say."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

ABOUT: dict[str, Any] = {"title": "Backlot", "version": "2.0.0", "redoc_url": None, "redirect_slashes": False}
CREATE_IMAGE: dict[str, Any] = {}
CREATE_VIDEO: dict[str, Any] = {}
LIST_MODELS: dict[str, Any] = {}
GET_MODEL: dict[str, Any] = {}
GET_VIDEO: dict[str, Any] = {}
GET_BALANCE: dict[str, Any] = {}
GET_COSTS: dict[str, Any] = {}
DOWNLOAD: dict[str, Any] = {}


def complete(app: FastAPI) -> None:
    pass
