-- A machine that leaves a project is waited for no longer, and holds no work of it up.
CREATE FUNCTION leave(p text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = memtier, pg_temp AS $$
BEGIN
  DELETE FROM followers f USING streams s
    WHERE s.id = f.stream AND f.machine = session_user AND s.project = p;
  UPDATE leases SET until = '-infinity', fence = fence + 1
    WHERE machine = session_user AND project = p;
END $$;

REVOKE ALL ON FUNCTION leave FROM PUBLIC;
GRANT EXECUTE ON FUNCTION leave TO memtier_machine;
