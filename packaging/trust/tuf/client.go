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

	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/packaging/trust"
)

// Fetch gets one file of the repository by its name, such as "timestamp.json" or
// "3.targets.json". It stops after max bytes with any error, or with what it has.
// A file that is certainly not there is an error that wraps fs.ErrNotExist; any
// other error means that nobody knows.
type Fetch func(ctx context.Context, name string, max int64) ([]byte, error)

// Client is how an agent believes a repository. Dir holds what it has verified so
// far, and the root that was pinned with [Pin]; nobody else writes there.
type Client struct {
	Disk  disk.Disk
	Dir   string // absolute
	Fetch Fetch
	Now   func() time.Time // nil is time.Now
	Log   *slog.Logger     // nil logs nothing

	one sync.Mutex // one refresh at a time
}

var _ trust.Authority = (*Client)(nil)

// refresh brings the trusted files up to date: the specification's client
// workflow. What was verified is kept at once, so that a source which is honest
// now cannot be passed off as fresh later.
func (c *Client) refresh(ctx context.Context) (*chain, error) {
	now := time.Now
	if c.Now != nil {
		now = c.Now
	}
	l := local{c.Disk, c.Dir, cmp.Or(c.Log, slog.New(slog.DiscardHandler))}
	root, err := l.trustedRoot()
	if err != nil {
		return nil, err
	}
	ch, err := startChain(root, now())
	if err != nil {
		return nil, err
	}
	for _, step := range []func(context.Context, *chain, local) error{
		c.followRoots, c.followTimestamp, c.followSnapshot, c.followTargets,
	} {
		if err := step(ctx, ch, l); err != nil {
			return nil, err
		}
	}
	return ch, nil
}

func (c *Client) followRoots(ctx context.Context, ch *chain, l local) error {
	for range MaxRootRotations {
		next := FileName(RoleRoot, ch.rootType().Version+1)
		data, err := c.fetch(ctx, next, MaxRootSize)
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
		// Whoever had the old online keys may have driven the numbers up; to hold
		// the new ones against those would lock out the honest server for ever.
		// They go before the root comes: a crash in between only fetches again.
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

func (c *Client) followTimestamp(ctx context.Context, ch *chain, l local) error {
	if known := l.read(RoleTimestamp); known != nil {
		// An old one may have expired, and still shows what is older.
		if _, err := ch.timestamp(known); err != nil && !errors.Is(err, ErrExpired) {
			l.passOver(RoleTimestamp, err)
		}
	}
	data, err := c.fetch(ctx, TimestampFile, MaxOnlineSize)
	if errors.Is(err, ErrNotServed) {
		return fmt.Errorf("%w: no package has been published with signed metadata yet", err)
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

func (c *Client) followSnapshot(ctx context.Context, ch *chain, l local) error {
	if known := l.read(RoleSnapshot); known != nil {
		err := ch.snapshot(known, true)
		if err == nil {
			return nil
		}
		if !errors.Is(err, ErrExpired) && !errors.Is(err, ErrMismatch) {
			l.passOver(RoleSnapshot, err)
		}
	}
	data, err := c.fetchNamed(ctx, RoleSnapshot, ch.snapshotMeta())
	if err != nil {
		return err
	}
	if err := ch.snapshot(data, false); err != nil {
		return err
	}
	return l.write(RoleSnapshot, data)
}

func (c *Client) followTargets(ctx context.Context, ch *chain, l local) error {
	// A local file that is not the one the snapshot names is simply an older one.
	if known := l.read(RoleTargets); known != nil && ch.targets(known) == nil {
		return nil
	}
	data, err := c.fetchNamed(ctx, RoleTargets, ch.targetsMeta())
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

func (c *Client) fetchNamed(ctx context.Context, role Role, meta *metadata.MetaFiles) ([]byte, error) {
	limit := MaxSize(role)
	if meta.Length > 0 {
		limit = meta.Length
	}
	return c.fetch(ctx, FileName(role, meta.Version), limit)
}

func (c *Client) fetch(ctx context.Context, name string, limit int64) ([]byte, error) {
	return fetch(ctx, c.Fetch, name, limit)
}

// fetch trusts its source with nothing: not to end, not to be quick.
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
