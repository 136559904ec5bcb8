package store

import (
	"fmt"

	"github.com/muster-fleet/muster/server/fleet"
)

// Unavailable is an error of a store that cannot be used now: op failed with err. The text is for
// the caller.
func Unavailable(op string, err error, format string, args ...any) error {
	return &fleet.Error{Kind: fleet.Unavailable, Message: fmt.Sprintf(format, args...), Err: fmt.Errorf("%s: %w", op, err)}
}

// Missing refuses to read or change a document that does not exist.
func Missing(noun, id string) error {
	return fleet.Errorf(fleet.NotFound, "%s %s does not exist", noun, id)
}

// MissingTarget is Missing of a target.
func MissingTarget(rolloutID, agentID string) error {
	return fleet.Errorf(fleet.NotFound, "agent %s is not a target of rollout %s", agentID, rolloutID)
}

// Exists refuses to create a document that exists.
func Exists(noun, id string) error {
	return fleet.Errorf(fleet.Conflict, "%s %s already exists", noun, id)
}

// Changed refuses to replace a document of another revision.
func Changed(noun, id string) error {
	return fleet.Errorf(fleet.Conflict, "%s %s was changed by someone else: read it again and repeat the change", noun, id)
}

// Optional turns an error of kind NotFound into nil.
func Optional[T any](v T, err error) (*T, error) {
	switch {
	case err == nil:
		return &v, nil
	case fleet.KindOf(err) == fleet.NotFound:
		return nil, nil
	}
	return nil, err
}
