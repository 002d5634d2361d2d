"""Which failures come from outside the memory, told on blind outputs of real tools.

The tables were written before their author had read the list they measure. They are there to
measure it, not to be tuned to: an output that goes wrong stays here and is counted.
"""

from __future__ import annotations

import pytest

from memtier_plugin.credit import calls
from memtier_plugin.credit.calls import outside_reason

# What a tool prints when the network, a service, a lock or a full disk made the call fail.
OUTSIDE: list[str] = [
    "curl: (6) Could not resolve host: api.payments.example",
    "npm ERR! code ECONNRESET\nnpm ERR! syscall read\nnpm ERR! errno -104\n"
    "npm ERR! network aborted",
    "WARNING: Retrying (Retry(total=0, connect=None, read=None)) after connection broken by "
    "'NewConnectionError': Failed to establish a new connection: [Errno -3] Temporary failure "
    "in name resolution\nERROR: Could not find a version that satisfies the requirement httpx",
    "Error response from daemon: toomanyrequests: You have reached your unauthenticated pull "
    "rate limit. https://www.docker.com/increase-rate-limit",
    'Error response from daemon: Get "https://registry-1.docker.io/v2/": net/http: TLS '
    "handshake timeout",
    "Unable to connect to the server: dial tcp 10.96.0.1:6443: i/o timeout",
    "Error from server (ServiceUnavailable): the server is currently unable to handle the "
    "request (get nodes.metrics.k8s.io)",
    "fatal: unable to access 'https://git.example/ops/deploy.git/': The requested URL returned "
    "error: 503",
    "ssh: connect to host git.example port 22: Connection timed out\n"
    "fatal: Could not read from remote repository.",
    'psql: error: connection to server at "db.internal" (10.2.0.4), port 5432 failed: FATAL:  '
    "the database system is starting up",
    "psql: error: FATAL:  sorry, too many clients already",
    "kex_exchange_identification: read: Connection reset by peer\n"
    "Connection reset by 192.0.2.14 port 22",
    "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 3104 "
    "(unattended-upgr)\nE: Unable to acquire the dpkg frontend lock",
    "E: Failed to fetch http://archive.ubuntu.example/pool/main/j/jq/jq_1.7.deb  502  Bad "
    "Gateway [IP: 203.0.113.7 80]",
    "An error occurred (ThrottlingException) when calling the DescribeInstances operation "
    "(reached max retries: 4): Rate exceeded",
    "HTTP 403: API rate limit exceeded for user ID 41887. (https://api.github.com/graphql)",
    "error: failed to download from `https://crates.io/api/v1/crates/serde/1.0.200/download`\n"
    "Caused by:\n  [28] Timeout was reached (Operation too slow. Less than 10 bytes/sec "
    "transferred the last 30 seconds)",
    'rsync: [receiver] write failed on "/srv/backup/db.dump": No space left on device (28)\n'
    "rsync error: error in file IO (code 11) at receiver.c(381)",
    "Error: Error acquiring the state lock\n\nError message: ConditionalCheckFailedException: "
    "The conditional request failed\nLock Info:\n  Operation: OperationTypeApply",
    "go: github.com/spf13/cobra@v1.8.0: Get "
    '"https://proxy.golang.org/github.com/spf13/cobra/@v/v1.8.0.mod": dial tcp: lookup '
    "proxy.golang.org on 127.0.0.53:53: server misbehaving",
]

# What a tool prints when the command itself was wrong, in words that sound much the same.
OWN_FAULT: list[str] = [
    "curl: (22) The requested URL returned error: 404",
    "curl: option --conect-timeout: is unknown\ncurl: try 'curl --help' for more information",
    "npm ERR! 404 Not Found - GET https://registry.npmjs.org/@acme%2fnetwork-utils - Not found",
    "npm ERR! code ERESOLVE\nnpm ERR! ERESOLVE unable to resolve dependency tree",
    "ERROR: Could not find a version that satisfies the requirement connection-retry==9.9 "
    "(from versions: none)\nERROR: No matching distribution found for connection-retry==9.9",
    "Error response from daemon: network frontend_net not found",
    "services.web.healthcheck.timeout must be a duration",
    'Error from server (NotFound): services "connection-pool" not found',
    "error: unknown flag: --timout\nSee 'kubectl rollout status --help' for usage.",
    'error: error validating "job.yaml": error validating data: ValidationError(Job.spec): '
    'unknown field "timeoutSeconds"',
    " ! [rejected]        main -> main (fetch first)\nerror: failed to push some refs\nhint: "
    "Updates were rejected because the remote contains work that you do not have locally.",
    "fatal: couldn't find remote ref release/temporary-fix",
    'ERROR:  relation "rate_limits" does not exist\nLINE 1: SELECT * FROM rate_limits;',
    'psql: error: invalid connection option "conect_timeout"',
    "/home/ci/.ssh/config: line 7: Bad configuration option: connectiontimeout\n"
    "/home/ci/.ssh/config: terminating, 1 bad configuration options",
    "FAILED tests/test_client.py::test_retries_after_timeout - AssertionError: assert 2 == 3\n"
    "1 failed, 41 passed in 3.20s",
    "    def test_health(client):\n>       assert client.get('/health').status_code == 200\n"
    "E       assert 503 == 200\nE        +  where 503 = <Response 503>.status_code",
    "error[E0433]: failed to resolve: use of undeclared crate or module `network`",
    'nginx: [emerg] unknown directive "proxy_conect_timeout" in /etc/nginx/conf.d/api.conf:9',
    'fatal: [web1]: FAILED! => {"changed": false, "msg": "Unsupported parameters for (uri) '
    'module: timeout_s. Supported parameters include: timeout, url"}',
]


def excused() -> tuple[int, int]:
    """Return how many failures of each table are excused."""
    outside, own = (sum(bool(outside_reason(o, 1)) for o in each) for each in (OUTSIDE, OWN_FAULT))
    return outside, own


def test_most_failures_from_outside_are_excused_and_hardly_any_other() -> None:
    """Recall 15 of 20 and precision 15 of 16; 13 and 13 of 14 before HTTP's own phrases counted."""
    assert (len(OUTSIDE), len(OWN_FAULT)) == (20, 20)
    assert excused() == (15, 1)


def test_the_list_of_wordings_earns_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names of errno and HTTP alone excuse no failure wrongly, but fewer than half of all."""
    monkeypatch.setattr(calls, "_TEMPORARY", {})
    assert excused() == (8, 0)
