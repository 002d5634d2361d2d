"""A machine that was granted little tries to get more, and somebody else to be the server."""

# ruff: noqa: S608  # to inject is what is tried here

from __future__ import annotations

import hashlib
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from memtier_plugin.storage.shared.postgres import server as admin
from memtier_plugin.storage.shared.postgres.ledger import PostgresLedger
from memtier_plugin.storage.shared.postgres.server import connect
from memtier_plugin.storage.shared.protocol import (
    MachineGrant,
    Refused,
    Stream,
    Unreachable,
    Untrusted,
)
from tests.processes import PATIENCE
from tests.shared.server import PostgresServer
from tests.shared.test_ledger import STREAM, lines

pytestmark = pytest.mark.shared

SECRET: Final = "swordfish 4711"
EVERYBODY: Final = ("mallory", "carl", "dora", "stranger")
_LINE: Final = "ARRAY['2026-01-05'::date], ARRAY['k'::bytea], ARRAY['evil'::bytea]"
_JOBS: Final = "ARRAY[]::text[], ARRAY[]::bigint[], true"
_APPEND: Final = f"""SELECT memtier.append_at('harbor', 'episodic', 'openclaw.main', 1,
    {_LINE}, {_JOBS})"""

# Each is tried by every machine, statement by statement; the next is tried if one is refused.
ATTEMPTS: Final = [
    "SELECT data FROM memtier.lines",
    "SELECT * FROM memtier.lines WHERE stream = 1",
    "TABLE memtier.streams",
    "SELECT l.data FROM memtier.streams s RIGHT JOIN memtier.lines l ON true",
    "SET row_security = off; SELECT * FROM memtier.lines",
    "SET ROLE memtier_machine; SELECT * FROM memtier.lines",
    "SET ROLE postgres; SELECT * FROM memtier.lines",
    "SET ROLE anna; SELECT * FROM memtier.lines",
    "SET SESSION AUTHORIZATION anna; SELECT * FROM memtier.lines",
    "SELECT set_config('session_authorization', 'anna', false); SELECT * FROM memtier.lines",
    "SELECT set_config('role', 'anna', false); SELECT * FROM memtier.lines",
    "DO $$ BEGIN RAISE NOTICE '%', (SELECT string_agg(data::text, '') FROM memtier.lines); END $$",
    "CREATE FUNCTION pg_temp.leak(bytea) RETURNS bool COST 0.0000001 LANGUAGE plpgsql AS "
    "'BEGIN RAISE NOTICE ''%'', $1; RETURN true; END';"
    "SELECT * FROM memtier.lines WHERE pg_temp.leak(data)",
    "CREATE TEMP VIEW v AS SELECT * FROM memtier.lines; SELECT * FROM v",
    "CREATE TEMP TABLE t AS SELECT * FROM memtier.lines; SELECT * FROM t",
    "BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT * FROM memtier.lines; COMMIT; FETCH ALL FROM c",
    "SELECT * FROM memtier.lines TABLESAMPLE SYSTEM (100)",
    "SELECT query_to_xml('SELECT data FROM memtier.lines', true, true, '')::text",
    "SELECT table_to_xml('memtier.lines', true, true, '')::text",
    "SELECT most_common_vals::text, histogram_bounds::text FROM pg_stats"
    " WHERE schemaname = 'memtier'",
    "SELECT * FROM pg_statistic",
    "SELECT query FROM pg_stat_activity",
    "SELECT rolpassword FROM pg_authid",
    "COPY memtier.lines TO PROGRAM 'cat'",
    "COPY (SELECT * FROM memtier.lines) TO '/tmp/memtier-stolen'",
    "SELECT pg_read_file('PG_VERSION'); SELECT pg_read_binary_file('base/1/1259')",
    "SELECT pg_ls_dir('.')",
    "SELECT lo_import('/etc/passwd')",
    "CREATE EXTENSION dblink",
    "CREATE EXTENSION pageinspect; SELECT get_raw_page('memtier.lines', 0)",
    "SELECT * FROM pg_logical_slot_peek_changes('s', NULL, NULL)",
    "SELECT pg_create_logical_replication_slot('s', 'test_decoding')",
    "INSERT INTO memtier.lines VALUES (1, 99, '2026-01-05', 'k', 'evil')",
    "UPDATE memtier.lines SET data = 'evil'",
    "DELETE FROM memtier.lines",
    "TRUNCATE memtier.lines CASCADE",
    "SELECT * FROM memtier.lines FOR UPDATE",
    "INSERT INTO memtier.grants VALUES (session_user, 'harbor', '*', true)",
    "UPDATE memtier.grants SET project = 'harbor', agent = '*', can_write = true",
    "UPDATE memtier.streams SET project = 'quay'",
    "UPDATE memtier.leases SET machine = session_user; TABLE memtier.leases",
    "INSERT INTO memtier.followers VALUES ('bert', 1, 99, 99, now())",
    "DELETE FROM memtier.purges",
    "INSERT INTO memtier.schema_version VALUES (99)",
    _APPEND,
    "SELECT memtier.append_at('harbor', 'episodic', 'openclaw.main''; DROP TABLE memtier.lines; --'"
    f", 0, {_LINE}, {_JOBS})",
    "SELECT memtier.append_all('harbor', ARRAY['episodic'], ARRAY['openclaw.main'],"
    f" ARRAY[1::bigint], ARRAY[1], {_LINE}, {_JOBS})",
    "SELECT memtier.append_all('quay', ARRAY['episodic', 'episodic'], ARRAY['x'], "
    f"ARRAY[0::bigint, 1], ARRAY[2], {_LINE}, {_JOBS})",
    "SELECT memtier.purge_lines('harbor', 'episodic', 'openclaw.main', ARRAY[1::bigint],"
    " ARRAY['evil'::bytea], 'purge', NULL)",
    "SELECT memtier.open_stream('harbor', 'episodic', 'openclaw.main')",
    "SELECT memtier.open_stream('harbor', 'episodic', 'evil')",
    "SELECT memtier.acknowledge('harbor', 'episodic', 'openclaw.main', 99, 99)",
    "SELECT memtier.renew_lease('harbor', 'facts', 1, 1e9)",
    "SELECT memtier.release_lease('harbor', 'facts', 1)",
    "CREATE TEMP TABLE grants (machine name, project text, agent text, can_write bool);"
    "INSERT INTO pg_temp.grants VALUES (session_user, 'harbor', '*', true);"
    f"SET search_path = pg_temp, memtier; {_APPEND}; SELECT data FROM memtier.lines",
    "CREATE FUNCTION pg_temp.may(text, text, text, bool) RETURNS bool LANGUAGE sql AS "
    f"'SELECT true'; SET search_path = pg_temp, memtier; {_APPEND};"
    "SELECT data FROM memtier.lines",
    "CREATE TEMP VIEW streams AS SELECT 1 AS id; SET search_path = pg_temp, memtier;"
    "SELECT data FROM memtier.lines",
    "CREATE FUNCTION pg_temp.eq(text, text) RETURNS bool LANGUAGE sql AS 'SELECT true';"
    "CREATE OPERATOR pg_temp.= (FUNCTION = pg_temp.eq, LEFTARG = text, RIGHTARG = text);"
    f"SET search_path = pg_temp, pg_catalog; {_APPEND}; SELECT data FROM memtier.lines",
    "CREATE OR REPLACE FUNCTION memtier.may(p text, l text, o text, write bool) RETURNS bool"
    " LANGUAGE sql AS 'SELECT true'",
    "ALTER FUNCTION memtier.append_at SECURITY INVOKER",
    "CREATE TABLE memtier.evil (x int)",
    "CREATE TABLE public.grants (x int)",
    "ALTER TABLE memtier.lines DISABLE ROW LEVEL SECURITY",
    "ALTER TABLE memtier.lines OWNER TO current_user",
    "DROP POLICY granted ON memtier.lines",
    "CREATE POLICY evil ON memtier.lines USING (true)",
    "CREATE RULE evil AS ON SELECT TO memtier.lines DO INSTEAD SELECT 1",
    "CREATE TRIGGER evil AFTER INSERT ON memtier.lines EXECUTE FUNCTION memtier.may()",
    "ALTER ROLE CURRENT_USER BYPASSRLS",
    "ALTER ROLE current_user SUPERUSER",
    "ALTER ROLE anna PASSWORD 'evil'",
    "GRANT postgres TO current_user; SET ROLE postgres; SELECT * FROM memtier.lines",
    "GRANT anna TO current_user; SET ROLE anna; SELECT * FROM memtier.lines",
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'anna'",
    "SELECT setval('memtier.streams_id_seq', 99)",
    "SECURITY LABEL ON TABLE memtier.lines IS 'x'",
    "LOCK TABLE memtier.schema_version IN SHARE ROW EXCLUSIVE MODE",
    "ALTER SYSTEM SET ssl = off",
    "SET session_replication_role = replica; DELETE FROM memtier.lines",
    "COPY memtier.lines TO STDOUT",
    "COPY (SELECT data FROM memtier.lines) TO STDOUT",
    "COPY memtier.grants FROM '/etc/passwd'",
    "SELECT last_value FROM memtier.streams_id_seq; SELECT currval('memtier.streams_id_seq')",
    "SELECT nextval('memtier.streams_id_seq')",
    "SELECT convert_from(data, 'UTF8')::int FROM memtier.lines",
    "SELECT 1 / (SELECT count(*) - count(*) FROM memtier.lines), data FROM memtier.lines",
    "INSERT INTO memtier.streams (project, ledger, owner) VALUES ('harbor', 'semantic', '')",
    "SELECT 'openclaw.main' || 'x' WHERE EXISTS (SELECT FROM memtier.streams"
    " WHERE project = 'harbor' AND owner = 'openclaw.main')",
    "SELECT memtier.take_lease('harbor', 'facts', 1e9)",
    "SELECT memtier.heads('harbor'); SELECT memtier.read_lines('harbor', 1, 99)",
    "SELECT * FROM memtier.machines('harbor') WHERE machine = 'anna' AND session_user = 'mallory'",
]


@pytest.fixture
def owned(postgres: PostgresServer, database: str) -> Iterator[PostgresLedger]:
    """Return the ledger in which anna said a secret; others were granted what it is not in."""
    owner = postgres.url(database)
    anna = PostgresLedger(postgres.url(database, "anna"), "harbor")
    anna.append(STREAM, 0, lines(SECRET))
    assert anna.lease("facts", 60.0)
    for what in (
        MachineGrant("mallory", "quay"),
        MachineGrant("carl", "harbor", agent="x"),
        MachineGrant("dora", "harbor", agent="x", read_only=True),
        MachineGrant("stranger", "quay"),
    ):
        admin.grant(owner, what, "owner")
    admin.revoke(owner, "stranger", "quay")
    with connect(owner) as connection:
        connection.execute("ANALYZE")
    yield anna
    anna.close()


def state(owner: str) -> Any:
    """Return all that nobody else may change."""
    queries = (
        "SELECT s.project, s.ledger, s.owner, s.head, s.epoch FROM memtier.streams s"
        " WHERE project <> 'quay' ORDER BY 1, 2, 3",
        'SELECT stream, "offset", key, data FROM memtier.lines ORDER BY 1, 2',
        "SELECT machine::text, project, agent, can_write FROM memtier.grants ORDER BY 1, 2, 3",
        "SELECT machine::text, epoch FROM memtier.followers ORDER BY 1, 2",
        "SELECT * FROM memtier.purges",
        "SELECT project, job, machine::text, fence, until FROM memtier.leases",
        "SELECT rolname, rolsuper, rolbypassrls, rolpassword FROM pg_authid ORDER BY 1",
        "SELECT polname FROM pg_policy ORDER BY 1",
        "SELECT proname, md5(prosrc), prosecdef FROM pg_proc WHERE pronamespace ="
        " 'memtier'::regnamespace ORDER BY 1",
        "SELECT relname, relrowsecurity, relowner FROM pg_class WHERE relnamespace IN"
        " ('memtier'::regnamespace, 'public'::regnamespace) ORDER BY 1",
        "SELECT version FROM memtier.schema_version ORDER BY 1",
    )
    with connect(owner) as connection:
        return [connection.execute(query.encode()).fetchall() for query in queries]


def tried(url: str, attempt: str) -> str:
    """Carry out an attempt; return all that its author saw of the server."""
    seen: list[str] = []
    with connect(url) as connection:
        connection.add_notice_handler(lambda notice: seen.append(str(notice.message_primary)))
        for statement in re.split(r";(?=(?:[^'$]|'[^']*'|\$\$.*?\$\$)*$)", attempt):
            try:
                if statement.endswith("TO STDOUT"):
                    with connection.cursor().copy(statement.encode()) as copied:
                        seen += [bytes(row).decode() for row in copied]
                    continue
                cursor = connection.execute(statement.encode())
                if cursor.description:
                    seen += [repr(row) for row in cursor.fetchall()]
            except Exception as error:
                seen.append(f"refused: {error}")
                with suppress(Exception):
                    connection.rollback()
    return "\n".join(seen)


def test_no_machine_gets_more_than_it_was_granted(
    postgres: PostgresServer, database: str, owned: PostgresLedger
) -> None:
    """Of some eighty attempts, by each of four machines, none reads or changes a thing."""
    owner = postgres.url(database)
    before, successes = state(owner), []
    secrets = (SECRET, SECRET.encode().hex(), "openclaw.main", "anna", "root:", "SCRAM")
    for name in EVERYBODY:
        url = postgres.url(database, name)
        for attempt in ATTEMPTS:
            seen = tried(url, attempt)
            rest = "\n".join(part for part in seen.split("\n") if not part.startswith("refused"))
            if SECRET in seen or any(secret in rest.replace("'anna'", "") for secret in secrets):
                successes.append((name, attempt, seen))
        if state(owner) != before:
            successes.append((name, "something changed", str(state(owner))))
            before = state(owner)
    print(f"\nattempts {len(EVERYBODY) * len(ATTEMPTS)}, successes {len(successes)}")  # noqa: T201
    assert successes == []
    assert owned.append(STREAM, 1, lines("more")).head == 2


@pytest.mark.parametrize("machine", EVERYBODY)
def test_nobody_else_counts_lines(
    postgres: PostgresServer, database: str, owned: PostgresLedger, machine: str
) -> None:
    """Whoever was not granted a stream sees no line of it, and none of what it was given."""
    queries = (
        "SELECT count(*) FROM memtier.lines",
        "SELECT count(*) FROM memtier.streams WHERE owner = 'openclaw.main'",
        "SELECT count(*) FROM memtier.grants WHERE machine = 'anna'",
        "SELECT count(*) FROM memtier.purges",
    )
    with connect(postgres.url(database, machine)) as connection:
        for query in queries:
            try:
                assert connection.execute(query.encode()).fetchall() == [(0,)], query
            except psycopg.errors.InsufficientPrivilege:
                connection.rollback()


def test_a_stranger_on_the_channel_hears_no_words(
    postgres: PostgresServer, database: str, owned: PostgresLedger
) -> None:
    """PostgreSQL lets everybody listen: they hear that somebody wrote, and nothing else."""
    channel = f"memtier_{hashlib.md5(b'harbor', usedforsecurity=False).hexdigest()}"
    with connect(postgres.url(database, "stranger")) as connection:
        connection.execute(f"LISTEN {channel}".encode())
        connection.commit()
        owned.append(STREAM, 1, lines("more"))
        heard = [note.payload for note in connection.notifies(timeout=PATIENCE, stop_after=1)]
    assert heard == [""]


def test_nobody_else_may_connect(
    postgres: PostgresServer, database: str, owned: PostgresLedger
) -> None:
    """Where the owner lets in machines alone, as the documentation says, no other role listens."""
    with connect(postgres.url(database)) as connection:
        connection.execute(f"REVOKE CONNECT ON DATABASE {database} FROM PUBLIC".encode())
        connection.execute(f"GRANT CONNECT ON DATABASE {database} TO memtier_machine".encode())
        connection.execute("CREATE ROLE outsider LOGIN PASSWORD 'owner'")
    with pytest.raises(Refused, match="CONNECT"):
        connect(postgres.url(database, "outsider"))
    with connect(postgres.url(database, "mallory")):
        assert owned.append(STREAM, 1, lines("more"))


def test_a_revoked_machine_loses_its_lease(
    postgres: PostgresServer, database: str, owned: PostgresLedger
) -> None:
    """Its work is over at once: another may go on with it, and it renews nothing."""
    bert = PostgresLedger(postgres.url(database, "bert"), "harbor")
    lease = bert.lease("summaries", 60.0)
    assert lease is not None and owned.lease("summaries", 60.0) is None
    admin.revoke(postgres.url(database), "bert", "harbor")
    assert not bert.renew(lease, 60.0)
    assert owned.lease("summaries", 60.0) is not None
    assert bert.heads() == {} and bert.read(STREAM, 0) == []
    bert.close()


def test_migrating_waits_for_no_machine(
    postgres: PostgresServer, database: str, owned: PostgresLedger
) -> None:
    """No lock that a machine may take holds a migration up."""
    with connect(postgres.url(database, "mallory")) as connection:
        connection.execute("SELECT pg_advisory_lock(hashtext('memtier'))")
        assert admin.migrate(postgres.url(database)) == []


# -- the server -----------------------------------------------------------------------------------


class Authority:
    """Makes certificates by openssl."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        key = "req -x509 -newkey rsa:2048 -nodes -days 30 -keyout ca.key"
        self._run(f"{key} -out ca.crt -subj /CN=CA")
        (folder / "index.txt").touch()
        (folder / "serial").write_text("01")
        (folder / "conf").write_text(
            "[ca]\ndefault_ca=d\n[d]\ndir=.\ndatabase=index.txt\nserial=serial\nnew_certs_dir=.\n"
            "certificate=ca.crt\nprivate_key=ca.key\ndefault_md=sha256\npolicy=p\nunique_subject=no\n"
            "copy_extensions=copy\n[p]\ncommonName=supplied\n"
        )

    def _run(self, arguments: str, *more: str) -> None:
        command = ["openssl", *arguments.split(), *more]
        subprocess.run(command, cwd=self.folder, check=True, capture_output=True)

    def certificate(self, name: str, san: str, end: str = "20491231000000Z") -> tuple[Path, Path]:
        """Return the certificate and the key of a server."""
        self._run(
            f"req -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.csr -subj /CN={name}",
            *("-addext", f"subjectAltName={san}"),
        )
        dates = f"-startdate 20200101000000Z -enddate {end}"
        self._run(f"ca -batch -config conf -in {name}.csr -out {name}.crt -notext {dates}")
        return self.folder / f"{name}.crt", self.folder / f"{name}.key"


@contextmanager
def serving(server: PostgresServer, certificate: tuple[Path, Path]) -> Iterator[None]:
    """Let the server show another certificate for as long as this lasts."""
    own = [server.folder / "server.crt", server.folder / "server.key"]
    kept = [path.read_bytes() for path in own]

    def reload() -> None:
        with connect(server.url("postgres")) as connection:
            connection.execute("SELECT pg_reload_conf()")

    try:
        for path, new in zip(own, certificate, strict=True):
            path.write_bytes(new.read_bytes())
        reload()
        yield
    finally:
        for path, data in zip(own, kept, strict=True):
            path.write_bytes(data)
        reload()


@contextmanager
def impostor(answer: bytes) -> Iterator[int]:
    """Serve who asks for TLS with this answer; yield the port.  It must hear nothing more."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    line, _ = listener.accept()
                    with line:
                        assert line.recv(8)[4:] == b"\x04\xd2\x16/"  # the request for TLS
                        line.sendall(answer)
                        rest = line.recv(1000)
                        assert b"anna" not in rest and b"user" not in rest

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]


def test_who_is_not_the_server_is_sent_nothing(
    postgres: PostgresServer, database: str, tmp_path: Path
) -> None:
    """A certificate of another, for another or that is over, or none, is refused, and says why."""
    if not postgres.tls or shutil.which("openssl") is None:
        pytest.skip("no TLS here")
    authority, other = Authority(tmp_path / "ca"), Authority(tmp_path / "other")
    trusted = f"sslrootcert={authority.folder / 'ca.crt'}"
    url = postgres.url(database, "anna", trusted)
    ip = "IP:127.0.0.1"
    with serving(postgres, authority.certificate("good", ip)):
        ledger = PostgresLedger(url, "harbor")
        assert ledger.heads() == {}
        ledger.close()
    for certificate, why in (
        (other.certificate("good", ip), "certificate verify failed"),
        (authority.certificate("elsewhere", "DNS:db.example.org"), "does not match host name"),
        (authority.certificate("late", ip, "20200102000000Z"), "certificate verify failed"),
    ):
        with serving(postgres, certificate), pytest.raises(Untrusted, match=why) as error:
            PostgresLedger(url, "harbor").append(Stream("semantic"), 0, lines("a"))
        assert "sslrootcert" in str(error.value)
    for answer, why in ((b"N", "does not support SSL"), (b"S" * 9, "cannot be used")):
        with impostor(answer) as port, pytest.raises(Unreachable, match=why):
            PostgresLedger(url.replace(str(postgres.port), str(port)), "harbor").heads()
