"""Chat, mail and pagers: whatever apprise has a URL for."""

from __future__ import annotations

import re
import warnings
from types import ModuleType
from typing import Any, Final

from huc_monitor.errors import InvalidInputError, MissingExtraError
from huc_monitor.monitor.ports import Message, MonitorInfo
from huc_monitor.monitor.ports.notifier import NotSentError, RejectedError
from huc_notify._levels import check_level, is_wanted
from huc_notify._redacting import Redactor, listening
from huc_notify._signing import KEY

_REFUSED: Final = re.compile(r"error=(4\d\d)\b")
_TRY_AGAIN: Final = frozenset({"408", "409", "425", "429"})


class AppriseNotifier:
    """Send messages to one apprise URL: Slack, Teams, mail, PagerDuty and some hundred others.

    ======================== =====================================================================
    Slack                    ``slack://TOKEN_A/TOKEN_B/TOKEN_C`` or the hook's https address
    Teams                    ``workflow://HOST/WORKFLOW/SIGNATURE`` or the workflow's https address
    mail                     ``mailtos://USER:PASSWORD@HOST?from=...&to=...``
    PagerDuty                ``pagerduty://INTEGRATION_KEY@API_KEY``
    ======================== =====================================================================

    Text is sent as text, so names in it are never markup. Long messages are split where a service
    has a limit. PagerDuty gets one incident per monitor: it is opened or added to by every message,
    and resolved once nothing is open any more. Mail and plain HTTP services carry the message's key
    in the header ``Idempotency-Key``; a chat may show a message twice if a check was killed between
    sending and saving.

    Parameters
    ----------
    info : MonitorInfo or None
        The first argument of every plugin; messages name their monitor themselves.
    url : str
        It holds the service's tokens: neither they nor anything else of it is ever logged.
    min_level : {"note", "warning", "critical"}
        What the channel hears of, besides the end of alerts.
    """

    def __init__(
        self,
        info: MonitorInfo | None,  # noqa: ARG002 - as every plugin is called
        url: str,
        *,
        min_level: str = "note",
    ) -> None:
        self._apprise = _load()
        self._min_level = check_level(min_level)
        self._url = url
        self._redactor = Redactor(url)
        with warnings.catch_warnings():  # apprise loads all its plugins now, some of them old
            warnings.simplefilter("ignore", DeprecationWarning)
            self._service()

    def __repr__(self) -> str:
        """Leave out the address."""
        return f"AppriseNotifier(min_level={self._min_level!r})"

    def send(self, message: Message) -> None:
        """Deliver a message, or raise."""
        if not is_wanted(message, self._min_level):
            return
        service = self._service()
        self._adapt(service, message)
        with listening() as said:
            sender = self._apprise.Apprise(asset=service.asset)
            sender.add(service)
            try:
                is_sent = sender.notify(
                    body=message.text,
                    title=message.title,
                    notify_type=self._kind(message),
                    body_format=self._apprise.NotifyFormat.TEXT,
                )
            except Exception as error:  # noqa: BLE001 - a plugin's own; its text may hold tokens
                raise NotSentError(type(error).__name__) from None
        if not is_sent:
            reason = self._redactor.redact(said[-1]) if said else "refused"
            found = _REFUSED.search(reason)
            is_final = found is not None and found[1] not in _TRY_AGAIN
            raise (RejectedError if is_final else NotSentError)(reason)

    def _service(self) -> Any:
        """Make the plugin anew: an old one would wait between messages, and remembers them."""
        with listening():
            asset = self._apprise.AppriseAsset(
                app_id="huc-monitor",
                app_desc="huc-monitor",
                async_mode=False,
                secure_logging=True,
                storage_mode=self._apprise.PersistentStoreMode.MEMORY,
            )
            service = self._apprise.Apprise.instantiate(self._url, asset=asset)
        if service is None:
            scheme = self._url.partition("://")[0]
            shown = repr(scheme) if scheme.isalnum() and len(scheme) < 20 else "another text"
            msg = (
                f"`url` must be an apprise URL, such as slack://... or mailtos://...; got {shown} "
                "and a rest that is not shown. Test it with: apprise --body test URL"
            )
            raise InvalidInputError(msg)
        return service

    def _adapt(self, service: Any, message: Message) -> None:
        modes = self._apprise.OverflowMode
        if isinstance(getattr(service, "headers", None), dict):
            service.headers.setdefault(KEY, message.key)
        is_pager = hasattr(service, "dedup") and hasattr(service, "action")
        if is_pager and not service.dedup:
            service.dedup = f"huc-monitor/{message.data.get('monitor', '')}"
            service.action = "map"
        if "overflow=" not in self._url:
            service.overflow_mode = modes.TRUNCATE if is_pager else modes.SPLIT

    def _kind(self, message: Message) -> Any:
        kinds = self._apprise.NotifyType
        if message.level == "resolved":
            # Success closes an incident, and others of the same monitor may be open.
            return kinds.SUCCESS if message.data.get("status") in {None, "ok"} else kinds.INFO
        return {"critical": kinds.FAILURE, "warning": kinds.WARNING}.get(message.level, kinds.INFO)


def _load() -> ModuleType:
    try:
        import apprise
    except ImportError:
        missing = MissingExtraError.of("apprise")
        raise missing from None
    return apprise
