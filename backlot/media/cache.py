"""Makes media in threads, and keeps the files.

The event loop only waits: decoders and encoders release the interpreter while they work. Media is made when
it is first fetched, so only the recipe has to be stored.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from backlot.media.pictures import make_image
from backlot.media.recipe import Recipe


def make(recipe: Recipe) -> bytes:
    """The file of a recipe."""
    from backlot.media.videos import make_video  # the codecs take a while to load

    return make_video(recipe) if recipe.format == "mp4" else make_image(recipe)


class MediaCache:
    """Makes the file of a recipe, and keeps the last `capacity` bytes of files."""

    def __init__(self, capacity: int = 256 * 2**20) -> None:
        self.capacity = capacity
        self.size = 0
        self.files: OrderedDict[str, bytes] = OrderedDict()
        self.making: dict[str, asyncio.Task[bytes]] = {}

    async def get(self, recipe: Recipe, task: Callable[[Recipe], bytes] = make) -> bytes:
        """The file of a recipe, or what another `task` makes of it. Equal requests wait for the same task."""
        name = task.__name__ + recipe.digest()
        if (file := self.files.get(name)) is not None:
            self.files.move_to_end(name)
            return file
        making = self.making.get(name)
        if making is None:
            making = self.making[name] = asyncio.create_task(asyncio.to_thread(task, recipe))
            making.add_done_callback(lambda _: self.making.pop(name))
        file = await asyncio.shield(making)
        self.keep(name, file)
        return file

    def keep(self, name: str, file: bytes) -> None:
        """Puts a file into the cache, and removes the least recently used files when it is full."""
        if name not in self.files:
            self.files[name] = file
            self.size += len(file)
        while self.size > self.capacity and self.files:
            self.size -= len(self.files.popitem(last=False)[1])
