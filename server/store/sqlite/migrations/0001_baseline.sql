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

-- The values that lists filter and sort by, that a status depends on, and that the census and
-- queries need most. Written only when one of them changes. NULL is none.
CREATE TABLE facts (
    rid                INTEGER PRIMARY KEY REFERENCES agents (rid) ON DELETE CASCADE,
    id                 TEXT    NOT NULL,
    active             INTEGER NOT NULL,
    unenrolling        INTEGER NOT NULL,
    upgrading_since    INTEGER,
    enrolled_at        INTEGER NOT NULL,
    policy_id          TEXT    NOT NULL,
    audit_unenrolled   TEXT    NOT NULL,
    hostname           TEXT    NOT NULL,
    version_key        TEXT    NOT NULL,
    version            TEXT    NOT NULL,
    version_since      INTEGER,
    healthy_since      INTEGER,
    labels             TEXT    NOT NULL, -- derived from the whole document by rules in Go
    upgrade_started_at INTEGER,
    upgraded_at        INTEGER,
    tags               TEXT    NOT NULL, -- a JSON list
    -- Whether hostname is the only host name the host reported: if the host reported none,
    -- hostname has its other name or the id.
    host_named         INTEGER NOT NULL,
    -- The revision of its policy that an agent has: without it, its status is "updating".
    policy_rev         INTEGER,
    -- What a host called its enrolment: one that enrols again is looked up by it.
    enrollment_id      TEXT,
    -- When the first upgrade of a component began that is under way: such agents are looked at
    -- every half a minute.
    components_since   INTEGER,
    -- What the progress of an upgrade is derived from, so that counting it reads no documents.
    upgrade_status     TEXT    NOT NULL,
    upgrade_phase      TEXT    NOT NULL,
    -- The kind of operating system, by which agents are filtered and counted all the time. NULL
    -- if the host reported several.
    os_type            TEXT,
    -- Whether an agent has left, and its open orders have not been ended: such agents are looked
    -- for every few seconds.
    owes_ends          INTEGER NOT NULL
) STRICT;
CREATE INDEX facts_enrolled  ON facts (enrolled_at, id);
CREATE INDEX facts_hostname  ON facts (hostname, id);
CREATE INDEX facts_version   ON facts (version_key, id);
-- With active, so that counting the agents of a policy reads only the index.
CREATE INDEX facts_policy    ON facts (policy_id, id, active);
CREATE INDEX facts_upgrading ON facts (upgrading_since, id) WHERE upgrading_since IS NOT NULL;
CREATE INDEX facts_enrollment_id ON facts (enrollment_id) WHERE enrollment_id IS NOT NULL;
CREATE INDEX facts_components ON facts (components_since, id) WHERE components_since IS NOT NULL;
CREATE INDEX facts_leavers ON facts (id) WHERE owes_ends = 1;

-- The values that every check-in changes: narrow and without an index, since the flush of
-- a whole fleet pays for each page it touches.
CREATE TABLE agent_last_seen (
    rid           INTEGER PRIMARY KEY REFERENCES agents (rid) ON DELETE CASCADE,
    last_checkin  INTEGER,
    status        TEXT    NOT NULL,
    message       TEXT    NOT NULL,
    -- The Seq of the last action an agent has received: after an action for the whole fleet
    -- every check-in has a new one, and would rewrite the document.
    action_seq_no INTEGER NOT NULL
) STRICT;

CREATE TABLE actions (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    id           TEXT    NOT NULL UNIQUE,
    rev          INTEGER NOT NULL,
    expiration   INTEGER,
    cancelled_at INTEGER,
    doc          TEXT    NOT NULL,
    type         TEXT    NOT NULL,
    created_at   INTEGER NOT NULL
) STRICT;
-- What lists of actions select by. The index spares them the rows, whose documents may have
-- megabytes.
CREATE INDEX actions_listed ON actions (seq, type, created_at);

-- The agents of actions, clustered by agent: pending actions are one short range.
CREATE TABLE action_targets (
    agent_id TEXT    NOT NULL,
    seq      INTEGER NOT NULL REFERENCES actions (seq) ON DELETE CASCADE,
    PRIMARY KEY (agent_id, seq)
) STRICT, WITHOUT ROWID;

-- The agents of large actions, sorted and cut into JSON lists: inserting a row for each of
-- 100,000 agents into action_targets would block other writes for half a second. Large
-- actions are few, so a query for one agent can look into the one list of each that could
-- contain it.
CREATE TABLE listed_actions (
    seq        INTEGER PRIMARY KEY REFERENCES actions (seq) ON DELETE CASCADE,
    expiration INTEGER
) STRICT;
CREATE TABLE action_lists (
    rid    INTEGER PRIMARY KEY,
    seq    INTEGER NOT NULL REFERENCES listed_actions (seq) ON DELETE CASCADE,
    first  TEXT    NOT NULL, -- of agents
    agents TEXT    NOT NULL,
    UNIQUE (seq, first)
) STRICT;

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

-- What happened to agents and their components. at is when it began, and ended when it was over.
CREATE TABLE history (
    seq       INTEGER PRIMARY KEY AUTOINCREMENT,
    id        TEXT    NOT NULL UNIQUE,
    agent_id  TEXT    NOT NULL,
    component TEXT    NOT NULL,
    action_id TEXT    NOT NULL,
    state     TEXT    NOT NULL,
    code      TEXT    NOT NULL,
    at        INTEGER NOT NULL,
    ended     INTEGER NOT NULL,
    doc       TEXT    NOT NULL
) STRICT;
CREATE INDEX history_agent  ON history (agent_id, at, id);
CREATE INDEX history_action ON history (action_id, state, code) WHERE action_id <> '';
CREATE INDEX history_ended  ON history (ended);
