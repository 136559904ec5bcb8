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

// Fetch returns one file of the repository by its name, such as "timestamp.json" or
// "3.targets.json". It reads at most max bytes, and for a longer file returns an
// error or those bytes. An error that wraps fs.ErrNotExist means that the source
// certainly has no such file; any other error leaves that open.
type Fetch func(ctx context.Context, name string, max int64) ([]byte, error)

// Client verifies a repository on behalf of an agent. Dir holds the files it has
// verified and the root that [Pin] pinned; nothing else writes there.
type Client struct {
	Disk  disk.Disk
	Dir   string // absolute
	Fetch Fetch
	Now   func() time.Time // nil is time.Now
	Log   *slog.Logger     // nil logs nothing

	mu sync.Mutex // held during a refresh
}

var _ trust.Authority = (*Client)(nil)

func (c *Client) local() local {
	return local{c.Disk, c.Dir, cmp.Or(c.Log, slog.New(slog.DiscardHandler))}
}

// refresh updates the trusted files by the specification's client workflow. It
// stores each file as soon as it is verified, so that no source can go back to an
// older version later.
func (c *Client) refresh(ctx context.Context) (*chain, error) {
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

func (c *Client) followTimestamp(ctx context.Context, ch *chain, l local) error {
	if known := l.read(RoleTimestamp); known != nil {
		// Even an expired timestamp detects one that is older still.
		if _, err := ch.timestamp(known); err != nil && !errors.Is(err, ErrExpired) {
			l.logDamaged(RoleTimestamp, err)
		}
	}
	data, err := c.fetch(ctx, TimestampFile, MaxOnlineSize)
	if errors.Is(err, ErrNotServed) {
		return fmt.Errorf("%w: no package has been published with signed metadata yet, or the server is not Muster's; enrol this host there with --trust-key, which needs only the signatures beside the packages", err)
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
			l.logDamaged(RoleSnapshot, err)
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
	// A local file that the snapshot does not name is an older version.
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
