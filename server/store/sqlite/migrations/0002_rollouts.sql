-- Not in documents: there may be thousands, of 300 KB each, and the active ones are
-- queried every second.
CREATE TABLE rollouts (
    rid    INTEGER PRIMARY KEY AUTOINCREMENT,
    id     TEXT    NOT NULL UNIQUE,
    rev    INTEGER NOT NULL,
    active INTEGER NOT NULL,
    doc    TEXT    NOT NULL
) STRICT;
-- With all columns of the query, so that no document is read.
CREATE INDEX rollouts_active ON rollouts (rid, id, rev, active) WHERE active;

-- A short number that stands for the rollout in its targets and their indexes. Numbers are
-- in the order in which rollouts got their first target.
CREATE TABLE target_lists (
    list       INTEGER PRIMARY KEY AUTOINCREMENT,
    rollout_id TEXT    NOT NULL UNIQUE
) STRICT;

CREATE TABLE targets (
    rid      INTEGER PRIMARY KEY AUTOINCREMENT,
    list     INTEGER NOT NULL,
    agent_id TEXT    NOT NULL,
    rev      INTEGER NOT NULL,
    place    INTEGER NOT NULL,
    batch    INTEGER NOT NULL,
    state    TEXT    NOT NULL,
    doc      TEXT    NOT NULL,
    UNIQUE (agent_id, list)
) STRICT;
-- With all columns that pages are selected by, so that only the documents of the page are
-- read.
CREATE INDEX targets_place ON targets (list, place, batch, state);

CREATE TABLE audit (
    seq     INTEGER PRIMARY KEY AUTOINCREMENT,
    id      TEXT    NOT NULL UNIQUE,
    subject TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    doc     TEXT    NOT NULL
) STRICT;
CREATE INDEX audit_subject ON audit (subject, at);
CREATE INDEX audit_at      ON audit (at);

-- The values of the census. Labels are derived from the whole document by rules in Go: NULL
-- means that they must be derived from the document until the agent is next written.
-- Earlier documents have neither of the two times.
ALTER TABLE facts ADD COLUMN version       TEXT NOT NULL DEFAULT '';
ALTER TABLE facts ADD COLUMN version_since INTEGER;
ALTER TABLE facts ADD COLUMN healthy_since INTEGER;
ALTER TABLE facts ADD COLUMN labels        TEXT;
UPDATE facts SET version = coalesce((SELECT doc ->> '$.version' FROM agents WHERE agents.rid = facts.rid), '');
