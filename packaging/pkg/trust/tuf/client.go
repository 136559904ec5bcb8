package tuf

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/theupdateframework/go-tuf/v2/metadata"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/trust"
)

// Fetch returns one file of the repository by its name, such as "timestamp.json" or
// "3.targets.json".
type Fetch = trust.Fetch

// Client verifies a repository on behalf of an agent. Dir holds the files it has
// verified and the root that [Pin] pinned; nothing else writes there.
type Client struct {
	Disk disk.Disk
	Dir  string // absolute
	// Fetch fetches from the server. If it is nil, or the server has no signed metadata,
	// as a Fleet Server has none, they are fetched from beside the archive.
	Fetch Fetch
	Now   func() time.Time // nil is time.Now
	Log   *slog.Logger     // nil logs nothing

	mu sync.Mutex // held during a refresh
}

var _ trust.Authority = (*Client)(nil)

func (c *Client) local() local {
	return local{c.Disk, c.Dir, cmp.Or(c.Log, slog.New(slog.DiscardHandler))}
}

// errNoMetadata is returned for a source without a timestamp, and so without signed
// metadata.
var errNoMetadata = errors.New("the source has no signed metadata")

// refresh updates the trusted files from the server, or from beside an archive if the
// server has none. Both are verified alike.
func (c *Client) refresh(ctx context.Context, beside Fetch) (*chain, error) {
	switch {
	case c.Fetch == nil && beside == nil:
		return nil, errNoMetadata
	case c.Fetch == nil:
		return c.refreshFrom(ctx, beside)
	}
	ch, err := c.refreshFrom(ctx, c.Fetch)
	if beside == nil || !errors.Is(err, errNoMetadata) {
		return ch, err
	}
	ch, besideErr := c.refreshFrom(ctx, beside)
	if errors.Is(besideErr, errNoMetadata) {
		return nil, err
	}
	return ch, besideErr
}

// refreshFrom updates the trusted files by the specification's client workflow. It
// stores each file as soon as it is verified, so that no source can go back to an
// older version later.
func (c *Client) refreshFrom(ctx context.Context, get Fetch) (*chain, error) {
	now := time.Now
	if c.Now != nil {
		now = c.Now
	}
	l := c.local()
	root, err := l.trustedRoot()
	if err != nil {
		return nil, err
	}
	ch, err := startChain(root, now())
	if err != nil {
		return nil, err
	}
	for _, step := range []func(context.Context, Fetch, *chain, local) error{
		followRoots, followTimestamp, followSnapshot, followTargets,
	} {
		if err := step(ctx, get, ch, l); err != nil {
			return nil, err
		}
	}
	return ch, nil
}

func followRoots(ctx context.Context, get Fetch, ch *chain, l local) error {
	for range MaxRootRotations {
		next := FileName(RoleRoot, ch.rootType().Version+1)
		data, err := fetch(ctx, get, next, MaxRootSize)
		if errors.Is(err, ErrNotServed) {
			return ch.expired()
		}
		if err != nil {
			return err
		}
		online := onlineKeys(ch.rootType())
		if err := ch.root(data); err != nil {
			return err
		}
		// A thief of the old online keys may have raised the version numbers, and
		// comparing new files with those would lock the honest server out. The
		// files are removed before the root is stored: after a crash in between
		// they are only fetched again.
		if !slices.Equal(online, onlineKeys(ch.rootType())) {
			if err := l.forgetOnline(); err != nil {
				return err
			}
		}
		if err := l.write(RoleRoot, data); err != nil {
			return err
		}
		l.log.Info("trusted root replaced", "version", ch.rootType().Version)
	}
	return ErrUnfinished
}

func followTimestamp(ctx context.Context, get Fetch, ch *chain, l local) error {
	if known := l.read(RoleTimestamp); known != nil {
		// Even an expired timestamp detects one that is older still.
		if _, err := ch.timestamp(known); err != nil && !errors.Is(err, ErrExpired) {
			l.logDamaged(RoleTimestamp, err)
		}
	}
	data, err := fetch(ctx, get, TimestampFile, MaxOnlineSize)
	if errors.Is(err, ErrNotServed) {
		return fmt.Errorf("%w: %w: no package has been published with signed metadata yet, or the server is not Muster's: put the metadata beside the packages there with `muster package keys mirror`", errNoMetadata, err)
	}
	if err != nil {
		return err
	}
	fresh, err := ch.timestamp(data)
	if err != nil || !fresh {
		return err
	}
	return l.write(RoleTimestamp, data)
}

func followSnapshot(ctx context.Context, get Fetch, ch *chain, l local) error {
	if known := l.read(RoleSnapshot); known != nil {
		err := ch.snapshot(known, true)
		if err == nil {
			return nil
		}
		if !errors.Is(err, ErrExpired) && !errors.Is(err, ErrMismatch) {
			l.logDamaged(RoleSnapshot, err)
		}
	}
	data, err := fetchNamed(ctx, get, RoleSnapshot, ch.snapshotMeta())
	if err != nil {
		return err
	}
	if err := ch.snapshot(data, false); err != nil {
		return err
	}
	return l.write(RoleSnapshot, data)
}

func followTargets(ctx context.Context, get Fetch, ch *chain, l local) error {
	// A local file that the snapshot does not name is an older version.
	if known := l.read(RoleTargets); known != nil && ch.targets(known) == nil {
		return nil
	}
	data, err := fetchNamed(ctx, get, RoleTargets, ch.targetsMeta())
	if err != nil {
		return err
	}
	if err := ch.targets(data); err != nil {
		return err
	}
	if err := l.write(RoleTargets, data); err != nil {
		return err
	}
	l.log.Info("trusted targets replaced", "version", ch.targetsType().Version)
	return nil
}

func fetchNamed(ctx context.Context, get Fetch, role Role, meta *metadata.MetaFiles) ([]byte, error) {
	limit := MaxSize(role)
	if meta.Length > 0 {
		limit = meta.Length
	}
	return fetch(ctx, get, FileName(role, meta.Version), limit)
}

// fetch bounds both the size and the duration of a fetch: the source is not
// trusted.
func fetch(ctx context.Context, get Fetch, name string, limit int64) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, FetchTimeout,
		fmt.Errorf("it did not come within %s: %w", FetchTimeout, context.DeadlineExceeded))
	defer cancel()
	data, err := get(ctx, name, limit+1)
	switch {
	case err == nil && int64(len(data)) > limit:
		return nil, fmt.Errorf("fetch %s: %w: more than %d bytes came", name, ErrTooLong, limit)
	case err == nil:
		return data, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("fetch %s: the source says it %w", name, ErrNotServed)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("fetch %s: %w", name, context.Cause(ctx))
	default:
		return nil, fmt.Errorf("fetch %s: %w", name, err)
	}
}
