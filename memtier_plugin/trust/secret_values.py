"""Tell slots for a secret, and references to one, from secrets."""

from __future__ import annotations

import re
from typing import Final

TEMPLATE: Final = re.compile(
    r"[$<{\[%:?@*]|\.{2,}|…|(?i:x{3,}|\*+|_+|-+)\W*\Z"
    r"|(?i:(?:your|the|some|insert|enter)[_\- ]|my[_\- ]?(?:api|key|pass|secret|token)"
    r"|(?:[a-z]+[_\- ])?(?:placeholder|example)|redacted|(?:sk|xoxb)-(?:your|x{3}))"
)
REFERENCE: Final = re.compile(
    r"[A-Za-z_]\w*(?:\??\.[A-Za-z_]\w*|::\w+|->\w+)+[();,]*\Z"  # settings.password, $this->token
    r"|[A-Za-z_$][\w.$?!]*[(\[]"  # getenv("X"), os.environ[...], Optional[str]
    r"|[a-z]+_(?:password|pass|token|secret|key)\w{0,3}[);,]*\Z"  # another variable: user_password
    r"|(?:[~.]{0,2}/)[a-z_.-]+(?:/[\w.-]*)*\Z"  # /run/secrets/db
)
