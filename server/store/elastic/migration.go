package elastic

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/elastic/go-elasticsearch/v8/esapi"

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

var migrationKind = store.OwnKind("migration", func(v *migration) (string, *int64) { return v.ID, &v.Revision })

func (s *Store) migrations() store.Collection[migration] { return own(s, migrationKind) }

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
	_, err = c.Update(ctx, v)
	return err
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
		found.Migration, err = storeOf(c).Migration(ctx)
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
	m, err := storeOf(c).Migration(ctx)
	switch {
	case err != nil:
		return err
	case m == nil || m.FinishedAt != nil:
		return fleet.Errorf(fleet.Conflict, "the indices %s* are not those of an unfinished migration: choose another prefix, or delete them by hand", c.prefix)
	}
	return c.deleteAll(ctx)
}

// deleteAll deletes the indices with the client's prefix, and their templates.
func (c *client) deleteAll(ctx context.Context) error {
	for _, index := range slices.Sorted(maps.Keys(schemas)) {
		if index == indexDocuments {
			continue
		}
		if err := c.deleteIndex(ctx, index); err != nil {
			return err
		}
	}
	err := c.do(ctx, call{op: "delete the templates " + c.prefix + "*", timeout: bulkTimeout, repeatable: true, request: func() esapi.Request {
		return esapi.IndicesDeleteIndexTemplateRequest{Name: c.prefix + "*", MasterTimeout: masterTimeout}
	}}, nil)
	var refused *refusal
	if err != nil && (!errors.As(err, &refused) || refused.status != http.StatusNotFound) {
		return err
	}
	return c.deleteIndex(ctx, indexDocuments) // last: it holds the migration, which a repeated call needs
}

// Copy describes indices that were filled from others, under a prefix of their own.
type Copy struct {
	Prefix    string
	Bytes     int64            // of the primary shards
	Migration *store.Migration // nil: they do not say that they are a copy
	// Used means that a server has run with them: servers are not copied.
	Used bool
}

// Copies returns the copies whose prefix begins with that of opts and begin, and has one more name
// and a dash: muster-backup-NAME- for muster- and backup-.
func Copies(ctx context.Context, opts Options, begin string) ([]Copy, error) {
	c, err := connect(opts)
	if err != nil {
		return nil, err
	}
	defer c.close()
	var answer struct {
		Indices map[string]struct {
			Primaries struct {
				Store struct {
					Bytes int64 `json:"size_in_bytes"`
				} `json:"store"`
			} `json:"primaries"`
		} `json:"indices"`
	}
	if err := c.do(ctx, call{op: "look for copies", timeout: bulkTimeout, repeatable: true, request: func() esapi.Request {
		return esapi.IndicesStatsRequest{Index: []string{c.prefix + begin + "*"}, Metric: []string{"store"}}
	}}, &answer); err != nil {
		return nil, err
	}
	bytes := map[string]int64{}
	for index, of := range answer.Indices {
		if name, _, ok := strings.Cut(strings.TrimPrefix(index, c.prefix+begin), "-"); ok {
			bytes[c.prefix+begin+name+"-"] += of.Primaries.Store.Bytes
		}
	}
	var out []Copy
	for _, prefix := range slices.Sorted(maps.Keys(bytes)) {
		found := Copy{Prefix: prefix, Bytes: bytes[prefix]}
		opts.Prefix = prefix
		if err := found.read(ctx, opts); err != nil {
			return nil, err
		}
		out = append(out, found)
	}
	return out, nil
}

// read reads what the copy says about itself.
func (f *Copy) read(ctx context.Context, opts Options) error {
	c, err := connect(opts)
	if err != nil {
		return err
	}
	defer c.close()
	versions, err := c.versions(ctx)
	if _, ok := versions[indexDocuments]; err != nil || !ok { // half removed, or nothing of Muster
		return err
	}
	s := storeOf(c)
	if f.Migration, err = s.Migration(ctx); err != nil {
		return err
	}
	_, servers, err := s.Servers().List(ctx, 0, 0)
	f.Used = servers > 0
	return err
}

// RemoveCopy deletes the indices with the prefix of opts. It refuses to delete any that are no copy, or
// that a server has run with.
func RemoveCopy(ctx context.Context, opts Options) error {
	found := Copy{Prefix: opts.Prefix}
	if err := found.read(ctx, opts); err != nil {
		return err
	}
	if found.Migration == nil || found.Used {
		return fleet.Errorf(fleet.Conflict, "the indices %s* are no copy that only upgrades know: delete them by hand", opts.Prefix)
	}
	c, err := connect(opts)
	if err != nil {
		return err
	}
	defer c.close()
	return c.deleteAll(ctx)
}
