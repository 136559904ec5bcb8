package store

import (
	"context"
	"errors"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// Loader is a store that can be filled from another one, preserving the sequence numbers
// of actions and events. Nothing else may use it meanwhile. Each Load method makes the
// stored documents equal to the given ones and returns how many it had to write. Load
// methods are idempotent: a call that was interrupted can be repeated.
type Loader interface {
	Store
	// LoadAgents stores Last as well. It assigns new revisions.
	LoadAgents(ctx context.Context, list []fleet.Agent) (written int, err error)
	// LoadActions stores actions with their sequence numbers. list is in ascending order
	// of Seq; each action either exists, or has a Seq above those of all earlier ones.
	// LoadActions fails with ErrOutOfStep if an action has or would get another Seq.
	LoadActions(ctx context.Context, list []fleet.Action) (written int, err error)
	// LoadEvents is LoadActions for events.
	LoadEvents(ctx context.Context, list []fleet.Event) (written int, err error)
	// SkipEvents makes the next event get a Seq above last.
	SkipEvents(ctx context.Context, last int64) error
	// DropActions and DropEvents remove all documents, so that Seq starts at 1 again.
	DropActions(ctx context.Context) error
	DropEvents(ctx context.Context) error
	// LoadResults replaces existing results, whether or not they are superseded.
	LoadResults(ctx context.Context, list []fleet.Result) (written int, err error)
	// LoadTargets stores targets of one rollout. The first call for a rollout determines
	// its position in Targets.Rollouts. LoadTargets assigns new revisions.
	LoadTargets(ctx context.Context, rolloutID string, list []fleet.Target) (written int, err error)
	LoadSetting(ctx context.Context, name string, v []byte) (written bool, err error)
	RemoveSetting(ctx context.Context, name string) error
	// Migration returns the value of the last SetMigration, or nil.
	Migration(ctx context.Context) (*Migration, error)
	SetMigration(ctx context.Context, m Migration) error
}

// Migration records that a store is being filled, or was filled, from another. Servers
// refuse to open a store with an unfinished migration.
type Migration struct {
	// Source is the id of the store it is filled from; see migrate.ID.
	Source     string     `json:"source"`
	From       string     `json:"from"` // the location of Source, to be shown to people
	StartedAt  time.Time  `json:"started_at"`
	FinishedAt *time.Time `json:"finished_at,omitempty"`
}

// Moved records in a store that its documents were moved to another one.
type Moved struct {
	To string    `json:"to"` // the location of the other store, to be shown to people
	At time.Time `json:"at"`
}

// ErrOutOfStep reports that an action or an event cannot get the sequence number it had.
var ErrOutOfStep = errors.New("the sequence numbers are out of step")
