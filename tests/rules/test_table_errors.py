"""What an error of a table's storage says, on a line and without what is nobody's business."""

from __future__ import annotations

import pytest

from rules.vocabulary.table_errors import in_words

REFUSED = """Generic S3 error
          \x1b[31m↳\x1b[0m Error performing list request
           \x1b[31m↳\x1b[0m Error performing GET http://store:9000/b?list-type=2&X-Amz-Signature=SECRET in 5.0ms - Server returned non-2xx
            \x1b[31m↳\x1b[0m 404 Not Found
             \x1b[31m↳\x1b[0m <?xml version="1.0" encoding="utf-8"?>
<Error><Code>NoSuchBucket</Code><Message>The specified bucket does not exist</Message><AWSAccessKeyId>KEY</AWSAccessKeyId></Error>"""  # noqa: E501
AWAY = """Generic MicrosoftAzure error
          \x1b[31m↳\x1b[0m Error performing GET https://a.blob.core.windows.net/c/x?sv=1&sig=SECRET in 206.196254ms, after 2 retries, max_retries
            \x1b[31m↳\x1b[0m 2, retry_timeout
             \x1b[31m↳\x1b[0m 5s  - HTTP error
              \x1b[31m↳\x1b[0m tcp connect error
               \x1b[31m↳\x1b[0m Connection refused (os error 111)
"""  # noqa: E501


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (REFUSED, "http://store:9000 says NoSuchBucket: The specified bucket does not exist"),
        (AWAY, "https://a.blob.core.windows.net: tcp connect error: Connection refused (os error 111)"),
        ("a file\n  is not there.", "a file is not there"),
        ("see https://a/c?sig=SECRET for more", "see https://a/c for more"),
        (
            "Kernel error: cut short\n   0: <unknown>\n   1: clone3\n         at ./misc/x.S:81:0\n",
            "Kernel error: cut short",
        ),
        ("", "OSError"),
    ],
)
def test_in_words(text: str, told: str) -> None:
    assert in_words(OSError(text)) == told
