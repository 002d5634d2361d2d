-- Work done once for the project: several streams in one commit, leases that end with a machine's
-- rights, and purges that do not undo one another.

-- As before, but of the ledgers without an agent only the project's journal is everybody's.
CREATE OR REPLACE FUNCTION may(p text, l text, o text, write bool) RETURNS bool
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = memtier, pg_temp AS $$
  SELECT EXISTS (
    SELECT 1 FROM grants g WHERE g.machine = session_user AND g.project = p
      AND (g.agent IN ('*', o) OR l IN ('semantic', 'procedural')
           OR (l = 'journal' AND o = '_project'))
      AND (g.can_write OR NOT write))
$$;

-- Append to several streams, all or none.  `parts` has for each line the number of its stream.
CREATE FUNCTION append_all(
  p text, ls text[], os text[], expected bigint[], parts int[], days date[], keys bytea[],
  datas bytea[], jobs text[], fences bigint[], durable bool, OUT state text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = memtier, pg_temp AS $$
DECLARE
  ids int[];
  delivered int;
BEGIN
  PERFORM set_config('synchronous_commit', CASE WHEN durable THEN 'on' ELSE 'off' END, true);
  SELECT array_agg(open_stream(p, u.l, u.o) ORDER BY u.i) INTO ids
    FROM (SELECT * FROM unnest(ls, os) WITH ORDINALITY AS v (l, o, i) ORDER BY l, o) AS u;
  PERFORM 1 FROM streams WHERE id = ANY (ids) ORDER BY id FOR UPDATE;
  SELECT count(*) INTO delivered FROM unnest(parts, keys) AS u (n, k)
    JOIN lines ON lines.stream = ids[u.n] AND lines.key = u.k;
  IF delivered = cardinality(keys) THEN
    state := 'delivered';
    RETURN;
  END IF;
  IF delivered > 0 OR EXISTS (
    SELECT 1 FROM unnest(ids, expected) AS u (s, e) JOIN streams ON id = u.s WHERE head <> u.e)
  THEN
    state := 'moved';
    RETURN;
  END IF;
  FOR j IN 1 .. cardinality(jobs) LOOP
    PERFORM 1 FROM leases WHERE project = p AND job = jobs[j] AND fence = fences[j]
      AND machine = session_user FOR SHARE;
    IF NOT FOUND THEN
      state := 'fenced';
      RETURN;
    END IF;
  END LOOP;
  INSERT INTO lines (stream, "offset", day, key, data)
    SELECT ids[u.n], expected[u.n] + row_number() OVER (PARTITION BY u.n ORDER BY u.i),
      u.d, u.k, u.b
    FROM unnest(parts, days, keys, datas) WITH ORDINALITY AS u (n, d, k, b, i);
  UPDATE streams SET head = head + u.added
    FROM (SELECT n, count(*) AS added FROM unnest(parts) AS v (n) GROUP BY n) AS u
    WHERE id = ids[u.n];
  PERFORM pg_notify('memtier_' || md5(p), '');
  state := 'appended';
END $$;

-- Replace lines, unless a purge came since the epoch that the new ones were made of: NULL then.
DROP FUNCTION purge_lines(text, text, text, bigint[], bytea[], text);
CREATE FUNCTION purge_lines(
  p text, l text, o text, offsets bigint[], datas bytea[], why text, known int) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = memtier, pg_temp AS $$
DECLARE
  s int := open_stream(p, l, o);
  e int;
BEGIN
  UPDATE streams SET epoch = epoch + 1 WHERE id = s AND epoch = coalesce(known, epoch)
    RETURNING epoch INTO e;
  IF e IS NULL THEN
    RETURN NULL;
  END IF;
  UPDATE lines SET data = u.b FROM unnest(offsets, datas) AS u (n, b)
    WHERE stream = s AND "offset" = u.n;
  INSERT INTO purges (stream, epoch, offsets, reason) VALUES (s, e, offsets, why);
  PERFORM pg_notify('memtier_' || md5(p), '');
  RETURN e;
END $$;

-- The machines that take part in a project, whether they may write, and when each was last there.
CREATE FUNCTION machines(p text) RETURNS TABLE (machine text, writes bool, seen timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = memtier, pg_temp AS $$
  SELECT g.machine::text, bool_or(g.can_write),
    (SELECT max(f.seen) FROM followers f JOIN streams s ON s.id = f.stream
     WHERE f.machine = g.machine AND s.project = p)
  FROM grants g WHERE g.project = p
    AND EXISTS (SELECT 1 FROM grants own WHERE own.machine = session_user AND own.project = p)
  GROUP BY g.machine ORDER BY 1
$$;

-- Leases: as before, but for ten minutes at most, and only while the machine may write.
CREATE OR REPLACE FUNCTION take_lease(p text, job_name text, seconds double precision)
RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = memtier, pg_temp AS $$
DECLARE
  taken bigint;
  ends timestamptz := clock_timestamp() + make_interval(secs => least(seconds, 600));
BEGIN
  IF NOT may(p, 'semantic', '', true) THEN
    RAISE insufficient_privilege USING MESSAGE = format('%s may not write %s', session_user, p);
  END IF;
  INSERT INTO leases AS held VALUES (p, job_name, session_user, 1, ends)
    ON CONFLICT (project, job) DO UPDATE
      SET machine = session_user, fence = held.fence + 1, until = excluded.until
      WHERE held.until < clock_timestamp()
    RETURNING fence INTO taken;
  RETURN taken;
END $$;

CREATE OR REPLACE FUNCTION renew_lease(
  p text, job_name text, fence_number bigint, seconds double precision) RETURNS bool
LANGUAGE sql SECURITY DEFINER SET search_path = memtier, pg_temp AS $$
  WITH renewed AS (
    UPDATE leases SET until = clock_timestamp() + make_interval(secs => least(seconds, 600))
    WHERE project = p AND job = job_name AND fence = fence_number AND machine = session_user
      AND may(p, 'semantic', '', true)
    RETURNING 1)
  SELECT EXISTS (SELECT 1 FROM renewed)
$$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA memtier FROM PUBLIC;
GRANT EXECUTE ON FUNCTION append_all, purge_lines, machines TO memtier_machine;
