-- What lists of actions select by. The index spares them the rows, whose documents may have
-- megabytes.
ALTER TABLE actions ADD COLUMN type       TEXT    NOT NULL DEFAULT '';
ALTER TABLE actions ADD COLUMN created_at INTEGER NOT NULL DEFAULT 0;
UPDATE actions SET type = coalesce(doc ->> '$.type', ''),
    created_at = coalesce(CAST(round(unixepoch(doc ->> '$."@timestamp"', 'subsec') * 1000) AS INTEGER) * 1000000, 0);
CREATE INDEX actions_listed ON actions (seq, type, created_at);
