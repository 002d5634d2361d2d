-- The shared ledger. Machines read the tables through row-level security and write only by the
-- functions, which check what the machine was granted.
CREATE TABLE streams (
  id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  project text NOT NULL,
  ledger text NOT NULL CHECK (ledger IN ('episodic', 'semantic', 'procedural', 'journal')),
  owner text NOT NULL, -- percent-encoded; '' for the shared tiers
  head bigint NOT NULL DEFAULT 0,
  epoch int NOT NULL DEFAULT 0,
  UNIQUE (project, ledger, owner)
) WITH (fillfactor = 50);

CREATE TABLE lines (
  stream int NOT NULL REFERENCES streams,
  "offset" bigint NOT NULL,
  day date NOT NULL,
  key bytea NOT NULL,
  data bytea NOT NULL,
  written timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (stream, "offset"),
  UNIQUE (stream, key)
);
CREATE INDEX lines_of_day ON lines (stream, day);

CREATE TABLE grants (
  machine name NOT NULL,
  project text NOT NULL,
  agent text NOT NULL DEFAULT '*', -- whose episodic ledgers and journals; percent-encoded
  can_write bool NOT NULL,
  PRIMARY KEY (machine, project, agent)
);

CREATE TABLE purges (
  stream int NOT NULL REFERENCES streams,
  epoch int NOT NULL,
  offsets bigint[] NOT NULL,
  reason text NOT NULL,
  machine name NOT NULL DEFAULT session_user,
  done timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (stream, epoch)
);

CREATE TABLE followers (
  machine name NOT NULL,
  stream int NOT NULL REFERENCES streams,
  "offset" bigint NOT NULL,
  epoch int NOT NULL,
  seen timestamptz NOT NULL,
  PRIMARY KEY (machine, stream)
);

CREATE TABLE leases (
  project text NOT NULL,
  job text NOT NULL,
  machine name NOT NULL,
  fence bigint NOT NULL,
  until timestamptz NOT NULL,
  PRIMARY KEY (project, job)
);

-- Whether this machine may read, or write, a stream.
CREATE FUNCTION may(p text, l text, o text, write bool) RETURNS bool
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = memtier, pg_temp AS $$
  SELECT EXISTS (
    SELECT 1 FROM grants g WHERE g.machine = session_user AND g.project = p
      AND (g.agent IN ('*', o) OR l IN ('semantic', 'procedural') OR o = '_project')
      AND (g.can_write OR NOT write))
$$;

CREATE FUNCTION open_stream(p text, l text, o text) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = memtier, pg_temp AS $$
DECLARE existing int;
BEGIN
  IF NOT may(p, l, o, true) THEN
    RAISE insufficient_privilege USING MESSAGE =
      format('%s may not write the %s ledger of %s in %s', session_user, l, o, p);
  END IF;
  SELECT id INTO existing FROM streams WHERE (project, ledger, owner) = (p, l, o);
  IF existing IS NULL THEN
    INSERT INTO streams (project, ledger, owner) VALUES (p, l, o)
      ON CONFLICT (project, ledger, owner) DO UPDATE SET project = p RETURNING id INTO existing;
  END IF;
  RETURN existing;
END $$;

-- The row of the stream is locked until the commit, so offsets are in the order of commits.
CREATE FUNCTION append_at(
  p text, l text, o text, expected bigint, days date[], keys bytea[], datas bytea[],
  jobs text[], fences bigint[], durable bool, OUT state text, OUT new_head bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = memtier, pg_temp AS $$
DECLARE
  s int := open_stream(p, l, o);
  n int := cardinality(keys);
  delivered int;
BEGIN
  PERFORM set_config('synchronous_commit', CASE WHEN durable THEN 'on' ELSE 'off' END, true);
  SELECT head INTO new_head FROM streams WHERE id = s FOR UPDATE;
  SELECT count(*) INTO delivered FROM lines WHERE stream = s AND key = ANY (keys);
  IF delivered = n THEN
    state := 'delivered';
    RETURN;
  END IF;
  IF delivered > 0 OR new_head <> expected THEN
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
    SELECT s, expected + u.i, u.d, u.k, u.b
    FROM unnest(days, keys, datas) WITH ORDINALITY AS u (d, k, b, i);
  UPDATE streams SET head = expected + n WHERE id = s RETURNING head INTO new_head;
  PERFORM pg_notify('memtier_' || md5(p), '');
  state := 'appended';
END $$;

CREATE FUNCTION purge_lines(
  p text, l text, o text, offsets bigint[], datas bytea[], why text) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = memtier, pg_temp AS $$
DECLARE
  s int := open_stream(p, l, o);
  e int;
BEGIN
  UPDATE streams SET epoch = epoch + 1 WHERE id = s RETURNING epoch INTO e;
  UPDATE lines SET data = u.b FROM unnest(offsets, datas) AS u (n, b)
    WHERE stream = s AND "offset" = u.n;
  INSERT INTO purges (stream, epoch, offsets, reason) VALUES (s, e, offsets, why);
  PERFORM pg_notify('memtier_' || md5(p), '');
  RETURN e;
END $$;

CREATE FUNCTION acknowledge(p text, l text, o text, at bigint, e int) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = memtier, pg_temp AS $$
BEGIN
  INSERT INTO followers SELECT session_user, id, at, e, clock_timestamp() FROM streams
    WHERE (project, ledger, owner) = (p, l, o) AND may(p, l, o, false)
    ON CONFLICT (machine, stream)
    DO UPDATE SET "offset" = excluded."offset", epoch = excluded.epoch, seen = excluded.seen;
END $$;

CREATE FUNCTION take_lease(p text, job_name text, seconds double precision) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = memtier, pg_temp AS $$
DECLARE taken bigint;
BEGIN
  IF NOT may(p, 'semantic', '', true) THEN
    RAISE insufficient_privilege USING MESSAGE = format('%s may not write %s', session_user, p);
  END IF;
  INSERT INTO leases AS held
    VALUES (p, job_name, session_user, 1, clock_timestamp() + make_interval(secs => seconds))
    ON CONFLICT (project, job) DO UPDATE
      SET machine = session_user, fence = held.fence + 1, until = excluded.until
      WHERE held.until < clock_timestamp()
    RETURNING fence INTO taken;
  RETURN taken;
END $$;

CREATE FUNCTION renew_lease(
  p text, job_name text, fence_number bigint, seconds double precision) RETURNS bool
LANGUAGE sql SECURITY DEFINER SET search_path = memtier, pg_temp AS $$
  WITH renewed AS (
    UPDATE leases SET until = clock_timestamp() + make_interval(secs => seconds)
    WHERE project = p AND job = job_name AND fence = fence_number AND machine = session_user
    RETURNING 1)
  SELECT EXISTS (SELECT 1 FROM renewed)
$$;

CREATE FUNCTION release_lease(p text, job_name text, fence_number bigint) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = memtier, pg_temp AS $$
  UPDATE leases SET until = '-infinity' WHERE project = p AND job = job_name
    AND fence = fence_number AND machine = session_user
$$;

ALTER TABLE streams ENABLE ROW LEVEL SECURITY;
ALTER TABLE lines ENABLE ROW LEVEL SECURITY;
ALTER TABLE grants ENABLE ROW LEVEL SECURITY;
ALTER TABLE purges ENABLE ROW LEVEL SECURITY;
ALTER TABLE followers ENABLE ROW LEVEL SECURITY;
CREATE POLICY granted ON streams FOR SELECT TO memtier_machine
  USING ((SELECT may(project, ledger, owner, false)));
CREATE POLICY granted ON lines FOR SELECT TO memtier_machine
  USING (stream IN (SELECT id FROM streams));
CREATE POLICY own ON grants FOR SELECT TO memtier_machine USING (machine = session_user);
CREATE POLICY granted ON purges FOR SELECT TO memtier_machine
  USING (stream IN (SELECT id FROM streams));
CREATE POLICY granted ON followers FOR SELECT TO memtier_machine
  USING (stream IN (SELECT id FROM streams));

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA memtier FROM PUBLIC;
GRANT USAGE ON SCHEMA memtier TO memtier_machine;
GRANT SELECT ON schema_version, streams, lines, grants, purges, followers TO memtier_machine;
GRANT EXECUTE ON FUNCTION
  may, append_at, purge_lines, acknowledge, take_lease, renew_lease, release_lease
  TO memtier_machine;
