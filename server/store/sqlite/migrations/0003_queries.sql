-- The fields that queries use most, so that they need not read the documents. tags is a
-- JSON list. host_named tells whether hostname is the only host name the host reported: if
-- the host reported none, hostname has its other name or the id.
ALTER TABLE facts ADD COLUMN upgrade_started_at INTEGER;
ALTER TABLE facts ADD COLUMN upgraded_at        INTEGER;
ALTER TABLE facts ADD COLUMN tags               TEXT    NOT NULL DEFAULT '[]';
ALTER TABLE facts ADD COLUMN host_named         INTEGER NOT NULL DEFAULT 0;
UPDATE facts SET (upgrade_started_at, upgraded_at, tags, host_named) = (
    SELECT muster_time(doc ->> '$.upgrade_started_at'), muster_time(doc ->> '$.upgraded_at'), coalesce(doc -> '$.tags', '[]'),
        facts.hostname <> '' AND coalesce(json_type(doc, '$.local_metadata.host.hostname') = 'text' AND doc ->> '$.local_metadata.host.hostname' = facts.hostname, 0)
    FROM agents WHERE agents.rid = facts.rid
);
