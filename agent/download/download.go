// Package download fetches packages over unreliable links. It tries several sources in
// order, resumes after errors, restarts of the agent and power cuts, and reports its
// progress every second. The upgrade executor calls it. The result is not trusted; package
// trust verifies it. See DESIGN.md.
package download

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
)

const (
	// MaxAttempts is how often in a row a source is asked without new bytes before it
	// is given up. With full jitter under a minute that is some eight minutes, enough
	// for a server's restart or a failover. It also bounds how often a source can
	// demand a Retry-After.
	MaxAttempts = 20
	// MinProgress is how many new bytes reset the count of attempts, and the time after
	// which an attempt has stalled. It lets a link that breaks every few kB finish, and
	// ends a download from a source that sends a byte at a time.
	MinProgress = 1 << 10
	// StallTimeout ends an attempt that has waited so long for MinProgress bytes. No link
	// that can finish a package is as slow as 17 bytes per second.
	StallTimeout = time.Minute
	// MaxSize bounds a package in bytes: half of install.MaxUnpacked.
	MaxSize = 2 << 30
	// ReportEvery is the time between two progress reports.
	ReportEvery = time.Second
	// RateWindow is the window of the reported mean rate: long enough to be steady,
	// short enough to show a stall.
	RateWindow = 5 * time.Second

	// CheckpointEvery and CheckpointInterval bound what a power cut or a kill loses. A
	// checkpoint makes the bytes so far durable and costs some ten syncs.
	CheckpointEvery    = 8 << 20
	CheckpointInterval = 30 * time.Second

	op           = "download"
	opCheckpoint = "download checkpoint"
	opSource     = "package source"

	partSuffix       = ".part"
	checkpointSuffix = ".part.state"
	bufferSize       = 64 << 10
)

// Source holds the HTTP clients for the agent's server and for other origins.
type Source struct {
	// Own is the client for the agent's server, which knows the pinned CA.
	Own *http.Client
	// Origin is that server's base URL. Only requests to its scheme, host and port
	// use Own and get credentials.
	Origin string
	// Authorize adds the credentials.
	Authorize func(*http.Request)
	// Other is the client for every other origin. Its CheckRedirect is not used.
	Other *http.Client
	// UserAgent is sent to other origins.
	UserAgent string
	// AllowHTTP lists host names, addresses and ranges of addresses to which a source that
	// the server names, or a redirect, may lead by http.
	AllowHTTP []string
}

// Fetcher downloads files. Its methods take the URLs of one file in order of preference:
// https://, http:// and file:// (a folder of this host); [Source.CheckNamed] tells which of
// them a server may name. Two fetches of one name into one
// folder must not run at the same time.
type Fetcher struct {
	Disk   disk.Disk
	Source Source
	// RateLimit is in bytes per second, for the network only; 0 means none.
	RateLimit int64
	// Rand returns a number in [0,1); nil means math/rand.
	Rand func() float64
	// Failed is called with the name of a source, without password and query, that was asked and has
	// failed; nil ignores it. A source that does not have the file has not failed. The file may still
	// come from the next one.
	Failed func(source string, err error)

	testOnlyCheckpointEvery int64 // instead of CheckpointEvery
}

// CheckNamed is [Source.CheckNamed].
func (f *Fetcher) CheckNamed(uri string) error { return f.Source.CheckNamed(uri) }

// Want identifies the file to fetch. Both fields are required.
type Want struct {
	Size   int64  // bytes, 1 to MaxSize
	SHA512 string // hexadecimal
}

// Find returns nil as soon as a source has the file.
func (f *Fetcher) Find(ctx context.Context, urls []string) error {
	return f.fromAny(ctx, urls, nil, func(ctx context.Context, s *source) (bool, error) {
		return false, watched(ctx, func(ctx context.Context, _ *watchdog) error { return f.find(ctx, s) })
	})
}

// Small fetches a file of up to limit bytes into memory, such as signed metadata.
func (f *Fetcher) Small(ctx context.Context, urls []string, limit int64) ([]byte, error) {
	var data []byte
	err := f.fromAny(ctx, urls, nil, func(ctx context.Context, s *source) (bool, error) {
		return false, watched(ctx, func(ctx context.Context, dog *watchdog) error {
			a, err := f.open(ctx, s, 0, "")
			if err != nil {
				return err
			}
			defer a.body.Close()
			data, err = io.ReadAll(io.LimitReader(dog.watch(a.body), limit+1))
			if int64(len(data)) > limit {
				return refused("has more than %d bytes: that is no metadata; check the URL", limit)
			}
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return data, nil
}

// Fetch downloads a file to dir/name and returns when it is durable. It does not download
// an existing file that is the wanted one.
//
// Fetch calls report, if not nil, about every second, also while nothing arrives, from one
// goroutine at a time and never after it has returned; report must not block. [KeepsPart] and
// [Transient] classify the error. If ctx ends the error is its cause.
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
	defer func() { p.end(KeepsPart(err)) }()
	if err := p.open(ctx); err != nil {
		return ending(err)
	}
	meter.first()
	if err := f.fromAny(ctx, urls, meter.wait, p.attempt); err != nil {
		return err
	}
	return ending(p.commit(final))
}

// makeDir creates dir durably, since the files are only as durable as their folder.
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
		return err // no folder to sync
	}
	return errors.Join(err, d.SyncDir(op, dir))
}

// removeLeftovers removes all files beside final that a download may leave. It removes a
// checkpoint before its part, so that no checkpoint is ever beside another part.
func removeLeftovers(d disk.Disk, final string) error {
	return errors.Join(disk.RemoveCopies(d, opCheckpoint, final+checkpointSuffix), d.Remove(op, final+partSuffix))
}

func (w Want) check() error {
	var err error
	switch {
	case w.Size < 1 || w.Size > MaxSize:
		err = fmt.Errorf("want.size: is %d bytes, want 1 to %d", w.Size, int64(MaxSize))
	case !validDigest(w.SHA512):
		err = fmt.Errorf("want.sha512: is %q, want 128 hexadecimal digits", w.SHA512)
	default:
		return nil
	}
	return ending(&fault{ours: true, lasting: true, err: err})
}
