"""Errors that MemTier raises. The message of each names its remedy.

MemTierError
├── SettingsError          a configuration file or key is wrong; names file and line
├── LedgerError            a ledger or its folder cannot be used
│   ├── UnsafePath         a symlink or a file of another owner where MemTier keeps its data
│   ├── HomeTooNew         a newer MemTier wrote the home in a format that this one does not know
│   ├── LimitReached       more would be recorded than `limits` allows; nothing was
│   └── LedgerWriteError   an append failed (full disk, read-only home); nothing was acknowledged
├── IndexProblem           the derived index cannot be used; the ledgers are untouched
│   ├── IndexReplaced      it was damaged, and a new one is begun; ask again
│   ├── SchemaTooNew       the index was made by a newer MemTier
│   └── ForeignFile        the file at the index's path is not a MemTier index
├── MessageError           a message, or an argument of a call, is not what it must be; names it
├── EndpointError          an endpoint gave no answer that can be used; names it and the remedy
│   ├── EndpointRefused    it will not take this request, however often it is asked
│   │   └── ContextTooLong more text than its model reads at once; ask in parts
│   ├── AnswerLost         it may have answered, and may charge for it: too late, or unreadable
│   │   └── AnswerLate     it took too long; ask for less
│   └── HostAway           no host runs whose own model may be asked; the work waits for one
│       └── HostLeft       the host ended before it answered (an AnswerLost, too)
├── BadAnswer              what a model answered is not what it was asked for
├── EmbeddingUnavailable   no vector can be had now; a recall goes on by words
├── CapReached             more would be spent on an endpoint than the user allows
├── BackupError            an archive cannot be made, or is not whole; nothing was overwritten
├── ImportFileError        a file to import does not have the format named; names file and place
├── ImportStopped          an import took its time; what it recorded stands, and it can go on
├── NotFound               no item, recall or project of that id
├── NotGranted             a client's token does not reach that project, agent or method
├── Exhausted              a request took too much processor time, or nobody waits for it
├── Closed                 the memory was closed before this call
├── Paused                 the project is switched off (`memtier off`)
└── Unsupported            this platform or option is not supported yet

Catch the base class to handle all of them::

    try:
        memory.record(messages, session_id="s1")
    except MemTierError as error:
        log.warning("nothing was recorded: %s", error)
"""

from __future__ import annotations

from datetime import datetime
from typing import Final


class MemTierError(Exception):
    """Base of every error that MemTier raises on purpose."""


class SettingsError(MemTierError):
    """A configuration file or key is wrong."""


class LedgerError(MemTierError):
    """A ledger or its folder cannot be used."""


class UnsafePath(LedgerError):
    """A symlink, or a file of another owner, stands where MemTier keeps its data."""


class HomeTooNew(LedgerError):
    """The home has a format that this MemTier does not know; a newer one wrote it."""


class LimitReached(LedgerError):
    """The settings under `limits` allow no more; nothing was recorded."""


class LedgerWriteError(LedgerError):
    """An append failed; nothing was acknowledged."""


class IndexProblem(MemTierError):
    """The derived index cannot be used; the ledgers are untouched."""


class IndexReplaced(IndexProblem):
    """The index was damaged and set aside, and a new one is begun; ask again."""


class SchemaTooNew(IndexProblem):
    """The index was made by a newer MemTier than this one."""


class ForeignFile(IndexProblem):
    """The file at the index's path is not a MemTier index."""


class MessageError(MemTierError):
    """A message, or an argument of a call, is not what it must be; names it. Nothing was done."""


class EndpointError(MemTierError):
    """An endpoint gave no usable answer; the message names it and the remedy.

    If ``transient``, the same request may succeed later, after at least ``retry_after`` seconds.
    """

    transient: bool = False
    retry_after: float = 0.0


class EndpointRefused(EndpointError):
    """An endpoint refuses this request for good; ``response_text`` says why."""

    response_text: str = ""


class ContextTooLong(EndpointRefused):
    """A request holds more text than the model reads at once."""


class AnswerLost(EndpointError):
    """An endpoint may have answered, and may charge for it, but too late or unreadably."""


class AnswerLate(AnswerLost):
    """A model did not answer in its time; the same request would take as long again."""


class HostAway(EndpointError):
    """No running host offers its model; the work waits for one."""


class HostLeft(AnswerLost, HostAway):
    """The host ended before its model answered."""


class BadAnswer(MemTierError):
    """A model's answer does not have the requested form; ``reason`` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class EmbeddingUnavailable(MemTierError):
    """A text's vector is not available now; recalls fall back to words."""


NOT_RERANKED: Final = "not reranked"  # in the label of a recall that kept the first order


class RerankUnavailable(MemTierError):
    """Hits cannot be reranked now; recalls keep the first order."""


class CapReached(MemTierError):
    """A call would exceed the user's spending limit for endpoints.

    ``until`` is when the limit allows more; None if only the user can raise it.
    """

    def __init__(self, message: str, until: datetime | None = None) -> None:
        super().__init__(message)
        self.until = until


class BackupError(MemTierError):
    """An archive cannot be made, is not whole, or would overwrite something."""


class ImportFileError(MemTierError):
    """A file to import does not have the format named."""


class ImportStopped(MemTierError):
    """An import ran out of time; what it recorded stays, and importing again continues."""


class NotFound(MemTierError):
    """No item, recall or project has that id."""


class NotGranted(MemTierError):
    """A caller asked for another person's data, or for more than its token allows."""


class Exhausted(MemTierError):
    """A request ran over its CPU limit, or nobody waits for its answer any more."""


class Closed(MemTierError):
    """The memory was closed; open another."""


class Paused(MemTierError):
    """The project is switched off."""


class Unsupported(MemTierError):
    """This platform or option is not supported yet."""
