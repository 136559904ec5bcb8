-- Apart from documents: there may be thousands, of 300 KB each, and the few that
-- are active are looked for every second.
CREATE TABLE rollouts (
    rid    INTEGER PRIMARY KEY AUTOINCREMENT,
    id     TEXT    NOT NULL UNIQUE,
    rev    INTEGER NOT NULL,
    active INTEGER NOT NULL,
    doc    TEXT    NOT NULL
) STRICT;
-- With all that is asked of them, so that no document is read.
CREATE INDEX rollouts_active ON rollouts (rid, id, rev, active) WHERE active;

-- A short number for a rollout in each of its targets and their indexes. It grows
-- from rollout to rollout as they get their first targets.
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
-- With all that pages are chosen by, so that no document is read but those shown.
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

-- What the census needs. Labels come from the whole document, by rules SQL does
-- not know: NULL says that they must be taken from there, until the agent is
-- written next. Documents of before have neither of the two times.
ALTER TABLE facts ADD COLUMN version       TEXT NOT NULL DEFAULT '';
ALTER TABLE facts ADD COLUMN version_since INTEGER;
ALTER TABLE facts ADD COLUMN healthy_since INTEGER;
ALTER TABLE facts ADD COLUMN labels        TEXT;
UPDATE facts SET version = coalesce((SELECT doc ->> '$.version' FROM agents WHERE agents.rid = facts.rid), '');
