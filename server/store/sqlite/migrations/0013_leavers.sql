-- Agents that have left, and whose open orders have not been ended: they are looked for every few
-- seconds. Nobody has ended the orders of those that left earlier.
ALTER TABLE facts ADD COLUMN owes_ends INTEGER NOT NULL DEFAULT 0;
UPDATE facts SET owes_ends = 1 WHERE NOT active OR audit_unenrolled IN ('uninstall', 'orphaned');
CREATE INDEX facts_leavers ON facts (id) WHERE owes_ends = 1;
