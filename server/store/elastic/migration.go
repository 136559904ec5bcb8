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

// migration is the document that holds a store.Migration.
type migration struct {
	ID string `json:"id"`
	store.Migration
	Revision int64 `json:"-"`
}

// migrationID is the id of the only migration.
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

// refuseUnfinished returns an error if a migration to the store is unfinished.
func (s *Store) refuseUnfinished(ctx context.Context) error {
	m, err := s.Migration(ctx)
	if err != nil || m == nil || m.FinishedAt != nil {
		return err
	}
	return fleet.Errorf(fleet.Internal, "the indices %s* are being filled from %s since %s: finish with `muster store migrate`, or start over with its --restart",
		s.c.prefix, m.From, m.StartedAt.UTC().Format(time.DateTime+" MST"))
}

// Found describes the indices with a prefix.
type Found struct {
	// Documents is the number of documents by index, without empty indices.
	Documents map[string]int
	// Migration is the result of Store.Migration.
	Migration *store.Migration
}

// A new index can be searched after one or two seconds, even on a busy cluster.
const (
	inspectTries = 10
	inspectPause = time.Second
)

// Inspect describes the indices with a prefix. It creates none.
func Inspect(ctx context.Context, opts Options) (Found, error) {
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
	// An index that was just created, perhaps by an interrupted migration, cannot be searched
	// yet.
	for try := 1; ; try++ {
		found.Documents, err = c.counts(ctx)
		var refused *refusal
		if err == nil || try == inspectTries || !errors.As(err, &refused) || refused.status != http.StatusServiceUnavailable {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(inspectPause):
		}
	}
	if err != nil {
		return found, err
	}
	if _, ok := versions[indexDocuments]; ok {
		found.Migration, err = (&Store{c: c}).Migration(ctx)
	}
	return found, err
}

// RemoveUnfinished deletes the indices that an unfinished migration has filled. It refuses to
// delete others.
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
		return fleet.Errorf(fleet.Conflict, "the indices %s* are not those of an unfinished migration: choose another prefix, or delete them by hand", c.prefix)
	}
	for _, index := range slices.Sorted(maps.Keys(schemas)) {
		if index == indexDocuments {
			continue
		}
		if err := c.deleteIndex(ctx, index); err != nil {
			return err
		}
	}
	return c.deleteIndex(ctx, indexDocuments) // last: it holds the migration, which a repeated call needs
}
