"""Alerts where people read them: chat, mail and pagers through apprise, and a signed webhook."""
