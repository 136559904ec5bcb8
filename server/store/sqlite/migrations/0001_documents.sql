-- One row for each agent, rewritten when its document changes, so that it has no other
-- indexes than those of the id and of the access key. AUTOINCREMENT: a rid is never used
-- again, so the revision of a deleted agent does not match a later agent with its id.
CREATE TABLE agents (
    rid           INTEGER PRIMARY KEY AUTOINCREMENT,
    id            TEXT    NOT NULL UNIQUE,
    rev           INTEGER NOT NULL,
    access_key_id TEXT    NOT NULL,
    doc           TEXT    NOT NULL
) STRICT;
CREATE UNIQUE INDEX agents_access_key ON agents (access_key_id) WHERE access_key_id <> '';

-- The values that lists filter and sort by, and that a status depends on. Written only
-- when one of them changes.
CREATE TABLE facts (
    rid              INTEGER PRIMARY KEY REFERENCES agents (rid) ON DELETE CASCADE,
    id               TEXT    NOT NULL,
    active           INTEGER NOT NULL,
    unenrolling      INTEGER NOT NULL,
    upgrading_since  INTEGER,
    enrolled_at      INTEGER NOT NULL,
    policy_id        TEXT    NOT NULL,
    audit_unenrolled TEXT    NOT NULL,
    hostname         TEXT    NOT NULL,
    version_key      TEXT    NOT NULL
) STRICT;
CREATE INDEX facts_enrolled  ON facts (enrolled_at, id);
CREATE INDEX facts_hostname  ON facts (hostname, id);
CREATE INDEX facts_version   ON facts (version_key, id);
-- With active, so that counting the agents of a policy reads only the index.
CREATE INDEX facts_policy    ON facts (policy_id, id, active);
CREATE INDEX facts_upgrading ON facts (upgrading_since, id) WHERE upgrading_since IS NOT NULL;

-- The values that every check-in changes: narrow and without an index, since the flush of
-- a whole fleet pays for each page it touches.
CREATE TABLE hot (
    rid          INTEGER PRIMARY KEY REFERENCES agents (rid) ON DELETE CASCADE,
    last_checkin INTEGER,
    status       TEXT NOT NULL,
    message      TEXT NOT NULL
) STRICT;

CREATE TABLE actions (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    id           TEXT    NOT NULL UNIQUE,
    rev          INTEGER NOT NULL,
    expiration   INTEGER,
    cancelled_at INTEGER,
    doc          TEXT    NOT NULL
) STRICT;

-- The agents of actions, clustered by agent: pending actions are one short range.
CREATE TABLE action_targets (
    agent_id TEXT    NOT NULL,
    seq      INTEGER NOT NULL REFERENCES actions (seq) ON DELETE CASCADE,
    PRIMARY KEY (agent_id, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE results (
    rid       INTEGER PRIMARY KEY,
    action_id TEXT    NOT NULL,
    agent_id  TEXT    NOT NULL,
    rev       INTEGER NOT NULL,
    failed    INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    doc       TEXT    NOT NULL,
    UNIQUE (action_id, agent_id)
) STRICT;
CREATE INDEX results_failed ON results (action_id, at, agent_id) WHERE failed;

-- Updated by the transaction that writes results.
CREATE TABLE result_counts (
    action_id TEXT    PRIMARY KEY,
    acked     INTEGER NOT NULL,
    failed    INTEGER NOT NULL,
    last      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The kinds of documents of which there are hundreds.
CREATE TABLE documents (
    rid  INTEGER PRIMARY KEY AUTOINCREMENT,
    noun TEXT    NOT NULL,
    id   TEXT    NOT NULL,
    rev  INTEGER NOT NULL,
    doc  TEXT    NOT NULL,
    UNIQUE (noun, id)
) STRICT;

CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    doc TEXT NOT NULL
) STRICT;

CREATE TABLE settings (
    name  TEXT PRIMARY KEY,
    value BLOB NOT NULL
) STRICT, WITHOUT ROWID;
