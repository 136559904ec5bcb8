package store

import (
	"context"
	"errors"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// Loader is a store that can take over what another store keeps, numbers
// included. Nobody else may use it meanwhile. Each Load makes documents be as they
// are given, whether they are there or not, and says how many it had to write:
// repeating one, also one that was cut off, does no harm.
type Loader interface {
	Store
	// LoadAgents takes Last over, too. Revisions are new.
	LoadAgents(ctx context.Context, list []fleet.Agent) (written int, err error)
	// LoadActions takes actions with growing Seqs, each above those of earlier
	// calls, or there already. It fails with ErrOutOfStep unless each gets, or has,
	// exactly its own.
	LoadActions(ctx context.Context, list []fleet.Action) (written int, err error)
	// LoadEvents is LoadActions for events.
	LoadEvents(ctx context.Context, list []fleet.Event) (written int, err error)
	// SkipEvents makes the next event get a Seq above last.
	SkipEvents(ctx context.Context, last int64) error
	// DropActions and DropEvents remove them all: numbers begin with 1 again.
	DropActions(ctx context.Context) error
	DropEvents(ctx context.Context) error
	// LoadResults replaces what is there, whether or not it is superseded.
	LoadResults(ctx context.Context, list []fleet.Result) (written int, err error)
	// LoadTargets takes targets of one rollout; Targets.Rollouts has its place from
	// the first call for it. Revisions are new.
	LoadTargets(ctx context.Context, rolloutID string, list []fleet.Target) (written int, err error)
	LoadSetting(ctx context.Context, name string, v []byte) (written bool, err error)
	RemoveSetting(ctx context.Context, name string) error
	// Migration returns what SetMigration set last, nil if nothing.
	Migration(ctx context.Context) (*Migration, error)
	SetMigration(ctx context.Context, m Migration) error
	// Documents counts what there is, by the name of its place in the store; what
	// is empty is absent.
	Documents(ctx context.Context) (map[string]int, error)
}

// Migration says that a store is being filled from another, or was. While it is
// not finished, servers refuse to open the store.
type Migration struct {
	// Source is the id of the store it is filled from; see migrate.ID.
	Source     string     `json:"source"`
	From       string     `json:"from"` // where that is, for people
	StartedAt  time.Time  `json:"started_at"`
	FinishedAt *time.Time `json:"finished_at,omitempty"`
}

// Moved is the mark on a store whose documents were moved to another.
type Moved struct {
	To string    `json:"to"` // for people
	At time.Time `json:"at"`
}

// ErrOutOfStep says that an action or an event cannot get the number it had.
var ErrOutOfStep = errors.New("the numbers are out of step")
