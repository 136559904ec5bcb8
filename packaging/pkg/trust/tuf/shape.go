package tuf

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/theupdateframework/go-tuf/v2/metadata"
)

// decode reads a file of the role that T stands for and checks its shape, before the
// library's state machine reads it: the library dereferences fields that JSON may
// leave null or absent, and its work grows with the square of a list's length. Bytes
// from an untrusted source must not crash the agent or keep it busy. The result holds
// no nil that the library would dereference.
func decode[T metadata.Roles](role Role, data []byte) (*metadata.Metadata[T], error) {
	if int64(len(data)) > MaxSize(role) {
		return nil, fmt.Errorf("%s file %w: it has more than %d bytes", role, ErrTooLong, MaxSize(role))
	}
	var tree any
	if err := json.Unmarshal(data, &tree); err != nil {
		return nil, fmt.Errorf("%s file %w: is not JSON (was another page served in its place?): %w", role, ErrMalformed, err)
	}
	if field, found := findNullOrLong(tree, "file"); found {
		return nil, malformed(role, field, "is null, or has more than %d entries", maxList)
	}
	meta, err := new(metadata.Metadata[T]).FromBytes(data)
	if err != nil {
		return nil, fmt.Errorf("%s file %w: %w", role, ErrMalformed, err)
	}
	if err := checkShape(role, any(meta)); err != nil {
		return nil, err
	}
	return meta, nil
}

// findNullOrLong returns the path of a null or of a list with more than maxList
// entries.
func findNullOrLong(v any, path string) (field string, found bool) {
	switch v := v.(type) {
	case nil:
		return path, true
	case map[string]any:
		for key, below := range v {
			if field, found := findNullOrLong(below, path+"."+key); found {
				return field, true
			}
		}
	case []any:
		if len(v) > maxList {
			return path, true
		}
		for _, below := range v {
			if field, found := findNullOrLong(below, path+"[]"); found {
				return field, true
			}
		}
	}
	return "", false
}

func checkShape(role Role, meta any) error {
	h, err := headOf(meta)
	switch {
	case err != nil:
		return err
	case !strings.HasPrefix(h.spec, "1."):
		return malformed(role, "spec_version", "is %q, want 1.x", h.spec)
	case h.version < 1 || h.version > maxVersion:
		return malformed(role, "version", "is %d, want 1 to %d", h.version, maxVersion)
	case h.expires.IsZero():
		return malformed(role, "expires", "is not set")
	}
	switch m := meta.(type) {
	case *metadata.Metadata[metadata.RootType]:
		return checkRoot(&m.Signed)
	case *metadata.Metadata[metadata.TimestampType]:
		return checkMeta(role, m.Signed.Meta, RoleSnapshot)
	case *metadata.Metadata[metadata.SnapshotType]:
		return checkMeta(role, m.Signed.Meta, RoleTargets)
	case *metadata.Metadata[metadata.TargetsType]:
		if m.Signed.Targets == nil {
			return malformed(role, "targets", "is missing")
		}
	}
	return nil
}

func checkRoot(root *metadata.RootType) error {
	if !root.ConsistentSnapshot {
		return malformed(RoleRoot, "consistent_snapshot", "is false: files without their version in the name are not fetched")
	}
	for id, key := range root.Keys {
		public, err := publicKeyOf(key, "")
		if err != nil {
			return malformed(RoleRoot, "keys."+id, "%v", err)
		}
		// One key under two ids would look like two people.
		if public.ID() != id {
			return malformed(RoleRoot, "keys."+id, "is the id of another key")
		}
	}
	for _, name := range roles {
		field := "roles." + string(name)
		role := root.Roles[string(name)]
		if role == nil {
			return malformed(RoleRoot, field, "is missing")
		}
		seen := map[string]bool{}
		for _, id := range role.KeyIDs {
			if root.Keys[id] == nil || seen[id] {
				return malformed(RoleRoot, field+".keyids", "%q is not among the keys, or twice in the list", id)
			}
			seen[id] = true
		}
		if role.Threshold < 1 || role.Threshold > len(seen) {
			return malformed(RoleRoot, field+".threshold", "is %d of %d keys", role.Threshold, len(seen))
		}
	}
	return nil
}

func checkMeta(role Role, meta map[string]*metadata.MetaFiles, named Role) error {
	name := string(named) + ".json"
	file := meta[name]
	if file == nil {
		return malformed(role, "meta", "does not name %s", name)
	}
	if file.Version < 1 || file.Version > maxVersion || file.Length < 0 || file.Length > MaxSize(named) {
		return malformed(role, "meta."+name, "has version %d and length %d, want 1 to %d and up to %d", file.Version, file.Length, maxVersion, MaxSize(named))
	}
	return nil
}
