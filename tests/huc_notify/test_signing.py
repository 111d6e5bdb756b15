from __future__ import annotations

import hashlib
import hmac
import json

import pytest
from huc_notify import SignatureError, _signing, sign, verify
from hypothesis import given
from hypothesis import strategies as st

from huc_monitor.errors import InvalidInputError

SECRET = "correct horse battery"  # noqa: S105 - of a test
NOW = 1_710_000_000
BODY = json.dumps({"key": "5f", "level": "note", "title": "t", "text": "ü", "data": {}}).encode()


def test_the_signature_is_the_one_anybody_can_compute():
    expected = hmac.new(SECRET.encode(), f"{NOW}.".encode() + BODY, hashlib.sha256).hexdigest()
    assert sign(BODY, SECRET, timestamp=NOW) == {
        "X-HUC-Timestamp": str(NOW),
        "X-HUC-Signature": f"v1={expected}",
    }


def test_a_signed_request_is_read_back_whatever_the_case_of_its_headers():
    headers = {k.upper(): v for k, v in sign(BODY, SECRET, timestamp=NOW).items()}
    message = verify(BODY, headers, SECRET, now=NOW)
    assert (message.key, message.text) == ("5f", "ü")


@given(st.integers(0, len(BODY) - 1), st.integers(1, 255))
def test_a_body_that_was_changed_anywhere_is_refused(place, change):
    changed = BODY[:place] + bytes([BODY[place] ^ change]) + BODY[place + 1 :]
    with pytest.raises(SignatureError, match="does not fit the body and the secret"):
        verify(changed, sign(BODY, SECRET, timestamp=NOW), SECRET, now=NOW)


@pytest.mark.parametrize("age", [301, -301])
def test_a_request_that_is_too_old_or_from_the_future_is_refused(age):
    headers = sign(BODY, SECRET, timestamp=NOW)
    with pytest.raises(SignatureError, match=f"at most 300 s old; it is {age} s old"):
        verify(BODY, headers, SECRET, now=NOW + age)
    assert verify(BODY, headers, SECRET, now=NOW + age, max_age=301).key == "5f"


def test_an_old_request_cannot_be_given_a_new_time():
    headers = sign(BODY, SECRET, timestamp=NOW - 9999) | {"X-HUC-Timestamp": str(NOW)}
    with pytest.raises(SignatureError, match="does not fit"):
        verify(BODY, headers, SECRET, now=NOW)


def test_a_secret_can_be_replaced_without_a_gap():
    headers = sign(BODY, SECRET, timestamp=NOW)
    assert verify(BODY, headers, ["a newer secret, unused", SECRET], now=NOW).key == "5f"
    with pytest.raises(SignatureError, match="does not fit"):
        verify(BODY, headers, ["a newer secret, unused"], now=NOW)


@pytest.mark.parametrize("name", ["X-HUC-Timestamp", "X-HUC-Signature"])
def test_a_request_that_is_not_signed_is_refused(name):
    headers = sign(BODY, SECRET, timestamp=NOW)
    del headers[name]
    with pytest.raises(SignatureError, match="this request is not signed"):
        verify(BODY, headers, SECRET, now=NOW)


def test_a_time_that_is_no_number_is_refused_even_if_signed():
    stamp = "yesterday"
    digest = hmac.new(SECRET.encode(), f"{stamp}.".encode() + BODY, hashlib.sha256).hexdigest()
    headers = {"X-HUC-Timestamp": stamp, "X-HUC-Signature": f"v1={digest}"}
    with pytest.raises(SignatureError, match="must hold seconds since 1970"):
        verify(BODY, headers, SECRET, now=NOW)


def test_every_secret_is_compared_in_constant_time(monkeypatch):
    seen = []
    real = hmac.compare_digest

    def compare(a, b):
        seen.append((a, b))
        return real(a, b)

    monkeypatch.setattr(_signing.hmac, "compare_digest", compare)
    verify(BODY, sign(BODY, SECRET, timestamp=NOW), [SECRET, "another secret, unused"], now=NOW)
    assert len(seen) == 2, "also those after the one that fits"


@pytest.mark.parametrize("secret", ["short", "", None, 12345678901234567])
def test_a_short_secret_is_refused_and_not_shown(secret):
    with pytest.raises(InvalidInputError, match="`secret` must be a text of at least 16") as error:
        sign(BODY, secret, timestamp=NOW)
    assert "short" not in str(error.value)


def test_a_signature_that_is_not_ascii_is_just_wrong():
    headers = {"X-HUC-Timestamp": str(NOW), "X-HUC-Signature": "v1=ü"}
    with pytest.raises(SignatureError, match="does not fit"):
        verify(BODY, headers, SECRET, now=NOW)
