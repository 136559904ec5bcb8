-- The Seq of the last action an agent has received: after an action for the whole fleet
-- every check-in has a new one, and would rewrite the document. Documents lose theirs when
-- they are next written.
ALTER TABLE hot ADD COLUMN action_seq_no INTEGER NOT NULL DEFAULT 0;
UPDATE hot SET action_seq_no = coalesce((SELECT json_extract(doc, '$.action_seq_no') FROM agents WHERE agents.rid = hot.rid), 0);
