"""What a profile's text must hold before it takes the place of the old one (NapMem appendix B, "User profile").

"If validation fails, the previous profile is restored": here the old one is never touched before the new one has passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from napmem_rl.errors import PolicyOutputError
from napmem_rl.memory.pyramid import find_links
from napmem_rl.memory.reconcile import unite
from napmem_rl.memory.writers.base import ProfileDraft
from napmem_rl.schema import Profile, Record, Track

MAX_PROFILE_CHARS = 1500  # the paper's "length budget"; its size is ours


def check_profile(
    draft: ProfileDraft, *, tracks: Sequence[Track], find_record: Callable[[str], Record | None], seen_times: Iterable[str], max_chars: int
) -> Profile:
    """The profile of a draft.

    Args:
        draft: the writer's.
        tracks, find_record: what its links may lead to.
        seen_times: of everything that the writer saw; a profile is shown from the newest of these on, as any of it may be in the text.
        max_chars: the length budget.

    Raises:
        PolicyOutputError: too long, not valid Unicode, links that lead nowhere, or a text without any.
    """
    text = draft.text.strip()
    if len(text) > max_chars:
        raise PolicyOutputError.of("profile", f"has {len(text)} characters", expected=f"at most {max_chars}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise PolicyOutputError.of("profile", f"is not valid Unicode ({error.reason})") from error
    source_ids = unite(find_links(text))
    track_ids = {track.track_id for track in tracks}
    unknown = [link for link in source_ids if link not in track_ids and find_record(link) is None]
    if unknown:
        raise PolicyOutputError.of("profile", f"{len(unknown)} links lead to no record or track", got=", ".join(unknown[:10]))
    if text and not source_ids:
        raise PolicyOutputError.of("profile", "rests on nothing", got=text, expected="links such as [rec:7] or [trk:2] to what it says")
    return Profile(text=text, time=max(seen_times, default="") if text else "", source_ids=source_ids)
