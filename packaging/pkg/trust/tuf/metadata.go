package tuf

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/theupdateframework/go-tuf/v2/metadata"
)

// head holds the fields that all roles have.
type head struct {
	role    Role
	spec    string
	version int64
	expires time.Time
}

func headOf(meta any) (head, error) {
	switch m := meta.(type) {
	case *metadata.Metadata[metadata.RootType]:
		return head{RoleRoot, m.Signed.SpecVersion, m.Signed.Version, m.Signed.Expires}, nil
	case *metadata.Metadata[metadata.TargetsType]:
		return head{RoleTargets, m.Signed.SpecVersion, m.Signed.Version, m.Signed.Expires}, nil
	case *metadata.Metadata[metadata.SnapshotType]:
		return head{RoleSnapshot, m.Signed.SpecVersion, m.Signed.Version, m.Signed.Expires}, nil
	case *metadata.Metadata[metadata.TimestampType]:
		return head{RoleTimestamp, m.Signed.SpecVersion, m.Signed.Version, m.Signed.Expires}, nil
	}
	return head{}, fmt.Errorf("%T is no role", meta)
}

func decodeRoot(data []byte) (*metadata.Metadata[metadata.RootType], error) {
	return decode[metadata.RootType](RoleRoot, data)
}

func decodeTargets(data []byte) (*metadata.Metadata[metadata.TargetsType], error) {
	return decode[metadata.TargetsType](RoleTargets, data)
}

func decodeSnapshot(data []byte) (*metadata.Metadata[metadata.SnapshotType], error) {
	return decode[metadata.SnapshotType](RoleSnapshot, data)
}

func decodeTimestamp(data []byte) (*metadata.Metadata[metadata.TimestampType], error) {
	return decode[metadata.TimestampType](RoleTimestamp, data)
}

// Info describes a signed file; nothing of it is verified.
type Info struct {
	Role     Role
	Version  int64
	Expires  time.Time
	FileName string
}

// Inspect returns the role, version and expiry that a file states.
func Inspect(data []byte) (Info, error) {
	meta, err := decodeAny(data)
	if err != nil {
		return Info{}, err
	}
	h, err := headOf(meta)
	return Info{Role: h.role, Version: h.version, Expires: h.expires, FileName: FileName(h.role, h.version)}, err
}

// decodeAny returns a pointer to the library's type for the role that data states.
func decodeAny(data []byte) (any, error) {
	role, err := roleOf(data)
	if err != nil {
		return nil, err
	}
	switch role {
	case RoleRoot:
		return decodeRoot(data)
	case RoleTargets:
		return decodeTargets(data)
	case RoleSnapshot:
		return decodeSnapshot(data)
	case RoleTimestamp:
		return decodeTimestamp(data)
	}
	return nil, fmt.Errorf("signed file: signed._type is %q, want root, targets, snapshot or timestamp: %w", role, ErrMalformed)
}

func roleOf(data []byte) (Role, error) {
	if len(data) > MaxTargetsSize {
		return "", fmt.Errorf("signed file %w: it has more than %d bytes", ErrTooLong, MaxTargetsSize)
	}
	var file struct {
		Signed struct {
			Type Role `json:"_type"`
		} `json:"signed"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return "", fmt.Errorf("signed file %w: is not JSON: %w", ErrMalformed, err)
	}
	return file.Signed.Type, nil
}

// encode returns a file that decode accepts. It indents the offline roles, since
// people read what they sign.
func encode[T metadata.Roles](role Role, meta *metadata.Metadata[T]) ([]byte, error) {
	data, err := meta.ToBytes(role.Offline())
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", role, err)
	}
	_, err = decode[T](role, data)
	return data, err
}

// checkExpiry truncates an expiry to whole seconds, as the specification requires.
func checkExpiry(field string, expires time.Time) (time.Time, error) {
	if expires.IsZero() {
		return time.Time{}, errors.New(field + ": is not set")
	}
	return expires.UTC().Truncate(time.Second), nil
}
