-- What queries ask for most, so that they need not look into the documents. The
-- tags are a JSON list. host_named says that hostname is what the host said, and
-- all it said: where it said nothing, the column has its other name or the id.
ALTER TABLE facts ADD COLUMN upgrade_started_at INTEGER;
ALTER TABLE facts ADD COLUMN upgraded_at        INTEGER;
ALTER TABLE facts ADD COLUMN tags               TEXT    NOT NULL DEFAULT '[]';
ALTER TABLE facts ADD COLUMN host_named         INTEGER NOT NULL DEFAULT 0;
UPDATE facts SET (upgrade_started_at, upgraded_at, tags, host_named) = (
    SELECT muster_time(doc ->> '$.upgrade_started_at'), muster_time(doc ->> '$.upgraded_at'), coalesce(doc -> '$.tags', '[]'),
        facts.hostname <> '' AND coalesce(json_type(doc, '$.local_metadata.host.hostname') = 'text' AND doc ->> '$.local_metadata.host.hostname' = facts.hostname, 0)
    FROM agents WHERE agents.rid = facts.rid
);
