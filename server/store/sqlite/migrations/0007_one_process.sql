-- The file belongs to one process: none has to be told what another has written.
DROP TABLE agent_changes;

ALTER TABLE hot RENAME TO agent_last_seen;
