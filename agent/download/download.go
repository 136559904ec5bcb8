// Package download fetches packages over links that break. It asks several
// sources in order, goes on where it stopped, within one series of attempts and
// over restarts of the agent and power cuts, and says every second how far it
// is. The upgrade executor calls it. What it fetches is not trusted; package
// trust judges the result. See DESIGN.md beside this file.
package download

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"time"

	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/packaging/layout"
)

const (
	// MaxAttempts is how often in a row a source may be asked without a new byte
	// before it is given up. With full jitter under a minute that is some eight
	// minutes: a server's restart or a failover, but not a source that is gone. A
	// server that asks for more patience each time gets at most this many times
	// backoff.MaxRetryAfter, not a year.
	MaxAttempts = 20
	// MinProgress is how much has to be new for the attempts to count from zero
	// again. A source that gives a byte at a time would otherwise never be given
	// up; one that breaks off every few kB is served.
	MinProgress = 1 << 10
	// StallTimeout ends an attempt in which nothing arrives.
	StallTimeout = time.Minute
	// MaxSize bounds a package: half of what install unpacks at most.
	MaxSize = 2 << 30
	// MaxSmall bounds a file fetched whole, such as a signature.
	MaxSmall = 64 << 10
	// SpaceMargin must stay free beside a download: the agent's own state and
	// log have to be written in any case.
	SpaceMargin = 16 << 20
	// ReportEvery is the time between two progress reports.
	ReportEvery = time.Second
	// RateWindow is what the reported rate is the mean of: long enough to read,
	// short enough to show a stall before somebody asks.
	RateWindow = 5 * time.Second

	// CheckpointEvery and CheckpointInterval bound what a power cut or a kill
	// costs. A checkpoint makes the bytes so far durable, at the price of some ten
	// syncs: a 40 MB package on a fast link makes five, a link of 50 kB/s one in
	// 1.5 MB.
	CheckpointEvery    = 8 << 20
	CheckpointInterval = 30 * time.Second

	op           = "download"
	opCheckpoint = "download checkpoint"
	opSource     = "package source"

	partSuffix       = ".part"
	checkpointSuffix = ".part.state"
	doneSuffix       = ".done"
	bufferSize       = 64 << 10
)

// Source is an origin and the client to use there.
type Source struct {
	// Own is the client for the agent's server, which knows the pinned CA.
	Own *http.Client
	// Origin is that server's base URL. Only requests to its scheme, host and
	// port go through Own, and get credentials.
	Origin string
	// Authorize adds the credentials.
	Authorize func(*http.Request)
	// Other is the client for every other origin.
	Other *http.Client
	// UserAgent is sent to other origins.
	UserAgent string
}

// Fetcher downloads into one folder. Its methods take the URLs of one file in
// the order of preference: https://, http:// and file:// (a folder of this host).
// Two of them must not fetch one name into one folder at the same time.
type Fetcher struct {
	Disk   disk.Disk
	Source Source
	// RateLimit is in bytes per second, for what comes over the network; 0 means
	// none.
	RateLimit int64
	// Rand returns a number in [0,1); nil means math/rand.
	Rand func() float64

	testOnlyCheckpointEvery int64 // instead of CheckpointEvery
}

// Info is what a source says about a file before it is fetched.
type Info struct {
	URL  string // the source that has it
	Size int64  // bytes; -1 if the source does not say
}

// Want is what is known about a file before it is fetched.
type Want struct {
	Size   int64  // bytes; -1 for unknown
	SHA512 string // hex; "" for unknown
}

// Stat asks for a file's size, of the first source that has it.
func (f *Fetcher) Stat(ctx context.Context, urls []string) (Info, error) {
	var info Info
	err := f.fromAny(ctx, urls, nil, func(ctx context.Context, s *source) (bool, error) {
		return false, watched(ctx, func(ctx context.Context, _ *watchdog) error {
			size, err := f.size(ctx, s)
			info = Info{URL: s.raw, Size: size}
			return err
		})
	})
	if err != nil {
		return Info{}, err
	}
	return info, nil
}

// Small fetches a file of up to [MaxSmall] bytes into memory.
func (f *Fetcher) Small(ctx context.Context, urls []string) ([]byte, error) {
	var data []byte
	err := f.fromAny(ctx, urls, nil, func(ctx context.Context, s *source) (bool, error) {
		return false, watched(ctx, func(ctx context.Context, dog *watchdog) error {
			a, err := f.open(ctx, s, 0, "")
			if err != nil {
				return err
			}
			defer a.body.Close()
			data, err = io.ReadAll(io.LimitReader(dog.watch(a.body), MaxSmall+1))
			if len(data) > MaxSmall {
				return refused("has more than %d bytes: that is no signature or metadata; check the URL", MaxSmall)
			}
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return data, nil
}

// Fetch downloads a file to dir/name and returns when it is durable there. A
// file that is there already and has the wanted digest is not asked for again;
// without a digest, one that an earlier Fetch finished and that is still as it
// was then.
//
// report, if not nil, is called about every second, also while nothing arrives,
// by one goroutine at a time and never after Fetch has returned; it must not
// block. Of an error, [Kept] and [Transient] tell what it means; when ctx ends it
// is ctx's cause.
func (f *Fetcher) Fetch(ctx context.Context, urls []string, dir, name string, want Want, report func(Progress)) error {
	if err := want.check(); err != nil {
		return err
	}
	if report == nil {
		report = func(Progress) {}
	}
	final := filepath.Join(dir, name)
	if err := f.makeDir(dir); err != nil {
		return ending(err)
	}
	switch there, err := f.accept(ctx, final, want); {
	case err != nil:
		return ending(err)
	case there:
		report(Progress{Percent: 100})
		return nil
	}
	if err := f.fetch(ctx, urls, final, want, report); err != nil {
		return err
	}
	report(Progress{Percent: 100})
	return nil
}

func (f *Fetcher) fetch(ctx context.Context, urls []string, final string, want Want, report func(Progress)) (err error) {
	meter := startMeter(report, want.Size)
	defer meter.stop()
	p := newPart(f, final, want, meter)
	defer func() { p.end(Kept(err)) }()
	if err := p.open(ctx); err != nil {
		return ending(err)
	}
	meter.first()
	if err := f.fromAny(ctx, urls, meter.wait, p.attempt); err != nil {
		return err
	}
	return ending(p.commit(final))
}

// makeDir makes dir durable too: in a folder that a power cut takes away no file
// is safe.
func (f *Fetcher) makeDir(dir string) error {
	if fi, err := f.Disk.Lstat(op, dir); err == nil && fi.IsDir() {
		return nil
	}
	if err := f.Disk.MkdirAll(op, dir, 0o700); err != nil {
		return onDisk(dir, err)
	}
	if err := f.Disk.SyncDir(op, filepath.Dir(dir)); err != nil {
		return onDisk(dir, err)
	}
	return nil
}

// Discard removes what a download of name has left in dir, finished or not.
func Discard(d disk.Disk, dir, name string) error {
	final := filepath.Join(dir, name)
	err := errors.Join(removeLeftovers(d, final), d.Remove(op, final))
	if _, serr := d.Lstat(op, dir); serr != nil {
		return err // no folder, nothing to make durable
	}
	return errors.Join(err, d.SyncDir(op, dir))
}

// removeLeftovers removes all names beside final that a download may leave. A checkpoint
// goes before its part does: it must never come to lie beside another.
func removeLeftovers(d disk.Disk, final string) error {
	return errors.Join(removeCopies(d, final+checkpointSuffix), removeCopies(d, final+doneSuffix), d.Remove(op, final+partSuffix))
}

// removeCopies removes a record with what an interrupted write leaves of it.
func removeCopies(d disk.Disk, path string) error {
	var errs []error
	for _, name := range layout.Copies(path) {
		errs = append(errs, d.Remove(opCheckpoint, name))
	}
	return errors.Join(errs...)
}

func (w Want) check() error {
	if w.SHA512 == "" || validDigest(w.SHA512) {
		return nil
	}
	return ending(&fault{ours: true, lasting: true, err: fmt.Errorf("want.sha512: is %q, want 128 hexadecimal digits, or none if it is not known", w.SHA512)})
}
