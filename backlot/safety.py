"""The safety check (INTERFACE 7: 422): refused words for prompts, hashes for reference images."""

from __future__ import annotations

import re
from collections.abc import Iterable

from backlot.errors import Refused
from backlot.settings import Safety


def pattern(words: Iterable[str]) -> re.Pattern[str]:
    """Matches any of the words as a whole word, in any case; without words, nothing."""
    choice = "|".join(re.escape(word) for word in words)
    return re.compile(rf"(?<!\w)(?:{choice})(?!\w)" if choice else r"(?!)", re.IGNORECASE)


class SafetyCheck:
    """The safety check of one server."""

    def __init__(self, rules: Safety) -> None:
        self.words = pattern(rules.words)
        self.video_words = pattern(rules.video_words)
        self.images = frozenset(rules.images)

    def request(self, prompt: str, image_hashes: Iterable[str]) -> None:
        """Refuses a prompt or reference image that fails the check.

        Raises:
            Refused: 422 `content_policy_violation`; `param` is `prompt` or `images[n].url`.
        """
        if self.words.search(prompt):
            raise Refused("content_policy_violation", "The prompt does not pass the safety check.", "prompt")
        for position, digest in enumerate(image_hashes):
            if digest in self.images:
                param = f"images[{position}].url"
                raise Refused(
                    "content_policy_violation", "A reference image does not pass the safety check.", param
                )

    def video_fails(self, prompt: str) -> bool:
        """Whether the finished video fails the check."""
        return self.video_words.search(prompt) is not None
