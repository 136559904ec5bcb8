package elastic

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// migration is the mark of a store that another was moved to.
type migration struct {
	ID string `json:"id"`
	store.Migration
	Revision int64 `json:"-"`
}

// migrationID is that of the only one.
const migrationID = "state"

func (s *Store) migrations() collection[migration] {
	return small(s, "migration", func(v *migration) (string, *int64) { return v.ID, &v.Revision })
}

func (s *Store) Migration(ctx context.Context) (*store.Migration, error) {
	v, err := s.migrations().Get(ctx, migrationID)
	if err != nil && fleet.KindOf(err) == fleet.NotFound {
		return nil, nil
	}
	return &v.Migration, err
}

func (s *Store) SetMigration(ctx context.Context, m store.Migration) error {
	c := s.migrations()
	v, err := c.Get(ctx, migrationID)
	switch {
	case err != nil && fleet.KindOf(err) == fleet.NotFound:
		return c.Create(ctx, migration{ID: migrationID, Migration: m})
	case err != nil:
		return err
	}
	v.Migration = m
	return c.Update(ctx, v)
}

// refuseUnfinished keeps servers from half a store.
func (s *Store) refuseUnfinished(ctx context.Context) error {
	m, err := s.Migration(ctx)
	if err != nil || m == nil || m.FinishedAt != nil {
		return err
	}
	return fleet.Errorf(fleet.Internal, "the indices %s* are being filled from %s since %s: finish with `muster store migrate`, or start over with its --restart",
		s.c.prefix, m.From, m.StartedAt.UTC().Format(time.DateTime+" MST"))
}

// Found is what stands under a prefix.
type Found struct {
	// Documents by the name of their index; what is empty or absent is left out.
	Documents map[string]int
	// Migration as of Store.Migration.
	Migration *store.Migration
}

// A new index can be searched after a second or two, even of a busy cluster.
const (
	lookTries = 10
	lookPause = time.Second
)

// Look says what is there, and makes nothing.
func Look(ctx context.Context, opts Options) (Found, error) {
	c, err := connect(opts)
	if err != nil {
		return Found{}, err
	}
	defer c.close()
	versions, err := c.versions(ctx)
	if err != nil || len(versions) == 0 {
		return Found{}, err
	}
	found := Found{}
	// An index that was made a moment ago, perhaps by a migration that was ended
	// then, cannot be searched yet.
	for try := 1; ; try++ {
		found.Documents, err = c.counts(ctx)
		var refused *refusal
		if err == nil || try == lookTries || !errors.As(err, &refused) || refused.status != http.StatusServiceUnavailable {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(lookPause):
		}
	}
	if err != nil {
		return found, err
	}
	if _, there := versions[indexDocuments]; there {
		found.Migration, err = (&Store{c: c}).Migration(ctx)
	}
	return found, err
}

// RemoveUnfinished deletes the indices that a migration which is not finished has
// filled; it refuses to touch others.
func RemoveUnfinished(ctx context.Context, opts Options) error {
	c, err := connect(opts)
	if err != nil {
		return err
	}
	defer c.close()
	m, err := (&Store{c: c}).Migration(ctx)
	switch {
	case err != nil:
		return err
	case m == nil || m.FinishedAt != nil:
		return fleet.Errorf(fleet.Conflict, "the indices %s* are not what an unfinished migration left: choose another prefix, or delete them by hand", c.prefix)
	}
	for _, index := range slices.Sorted(maps.Keys(schemas)) {
		if index == indexDocuments {
			continue
		}
		if err := c.deleteIndex(ctx, index); err != nil {
			return err
		}
	}
	return c.deleteIndex(ctx, indexDocuments) // last: it has the mark that lets this be repeated
}
