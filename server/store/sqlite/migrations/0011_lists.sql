-- The kind of operating system, by which agents are filtered and counted all the time. NULL if
-- the host reported several.
ALTER TABLE facts ADD COLUMN os_type TEXT;
UPDATE facts SET os_type = (
    SELECT CASE json_type(doc, '$.local_metadata.os.type') WHEN 'text' THEN doc ->> '$.local_metadata.os.type' WHEN 'array' THEN NULL ELSE '' END
    FROM agents WHERE agents.rid = facts.rid
);
