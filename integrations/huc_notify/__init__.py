"""Alerts where people read them: chat, mail and pagers through apprise, and a signed webhook.

A channel of the configuration names one of two notifiers and its options:

* ``apprise``: one `apprise <https://appriseit.com>`_ URL, such as that of a Slack or Teams hook, of
  a mail server or of PagerDuty (extra ``notify``);
* ``webhook``: JSON to an address of one's own, signed (no extra). `verify` is the receiver's half.

Delivery is *at least once*: a message is kept until its channel has taken it, over as many checks
as that takes, and one that was taken is sent again only if a check died before it could say so.
The second copy has the same `Message.key`; a receiver that remembers keys hears everything once.
"""

from __future__ import annotations

from huc_notify._apprise import AppriseNotifier
from huc_notify._signing import SignatureError, sign, verify
from huc_notify._webhook import WebhookNotifier

__all__ = ["AppriseNotifier", "SignatureError", "WebhookNotifier", "sign", "verify"]
