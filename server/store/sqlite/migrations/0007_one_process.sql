-- The file belongs to one process, so no process needs to learn what another has written.
DROP TABLE agent_changes;

ALTER TABLE hot RENAME TO agent_last_seen;
