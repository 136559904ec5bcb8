package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// Files in Dir: packages under their digest, where Dir is their only place; copies of
// packages in the store, with copySuffix, which can be deleted at any time; and
// temporary files.
const (
	copySuffix  = ".copy"
	pushPrefix  = ".push-"
	fetchPrefix = ".fetch-"
)

const (
	// FetchTimeout bounds the fetch of one package from the store: 2 GiB at 1.2 MB/s.
	FetchTimeout = 30 * time.Minute
	// fetchWait is how long a download waits for the fetch: less than the minute after
	// which agents give up a silent source. Their retry finds the fetch further on.
	fetchWait = 45 * time.Second
	// fetchPause is how long a failed fetch is not retried, however many agents ask: it
	// may have moved gigabytes before it failed.
	fetchPause = 10 * time.Second
)

// path returns the file of a package, named by its digest so that two concurrent pushes
// of one name cannot mix one's record with the other's bytes.
func (s *Service) path(p fleet.Package) string {
	if s.shared() != nil {
		return filepath.Join(s.Dir, p.SHA256+copySuffix)
	}
	return filepath.Join(s.Dir, p.SHA256)
}

// shared returns the store's package data, nil if the bytes are only in Dir.
func (s *Service) shared() store.PackageData { return s.Store.PackageData() }

// openLocal opens a package in Dir. The error is fs.ErrNotExist if it is not there.
func (s *Service) openLocal(p fleet.Package) (disk.File, error) {
	return s.Disk.OpenFile("serve package", s.path(p), os.O_RDONLY, 0)
}

// share uploads a package from Dir to the store's package data, if there is any.
func (s *Service) share(ctx context.Context, p fleet.Package) error {
	data := s.shared()
	if data == nil {
		return nil
	}
	f, err := s.openLocal(p)
	if err != nil {
		return err
	}
	defer f.Close()
	return data.Put(ctx, p.SHA256, p.Size, f)
}

// discard removes a package's bytes from Dir and from the store.
func (s *Service) discard(ctx context.Context, p fleet.Package) error {
	if err := s.Disk.Remove("withdraw", s.path(p)); err != nil {
		return err
	}
	data := s.shared()
	if data == nil {
		return nil
	}
	return errors.Join(s.Disk.Remove("withdraw", filepath.Join(s.Dir, p.SHA256)), data.Delete(ctx, p.SHA256))
}

// open opens a package. If it is not in Dir, open fetches it, once for all concurrent
// callers.
func (s *Service) open(ctx context.Context, p fleet.Package) (disk.File, error) {
	f, err := s.openLocal(p)
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	if s.shared() == nil {
		return nil, fleet.Errorf(fleet.Unavailable, "the bytes of %s are missing on this server: push it again", p.File)
	}
	if err := s.fetch(ctx, p, fetchWait); err != nil {
		return nil, err
	}
	return s.openLocal(p)
}

// fetch waits at most patience until the package is in Dir. The fetch continues after
// the caller has left, for later callers.
func (s *Service) fetch(ctx context.Context, p fleet.Package, patience time.Duration) error {
	if err := s.recentFailure(p); err != nil {
		return err
	}
	done := s.fetches.DoChan(p.SHA256, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), FetchTimeout)
		defer cancel()
		err := s.fetchNow(ctx, p)
		if err != nil {
			s.Log.Error("a package could not be fetched from the store", "file", p.File, "error", err)
		}
		s.remember(p, err)
		return nil, err
	})
	wait := time.NewTimer(patience)
	defer wait.Stop()
	select {
	case r := <-done:
		return r.Err
	case <-wait.C:
		return fleet.Errorf(fleet.Unavailable, "%s is on its way from the store to this server: ask again in a moment", p.File)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// failure is a failed fetch.
type failure struct {
	err error
	at  time.Time
}

// recentFailure returns the error of the last fetch while it must not be retried.
func (s *Service) recentFailure(p fleet.Package) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f, failed := s.failed[p.SHA256]; failed && s.Now.UTC().Sub(f.at) < fetchPause {
		return f.err
	}
	return nil
}

func (s *Service) remember(p fleet.Package, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.Now.UTC()
	maps.DeleteFunc(s.failed, func(_ string, f failure) bool { return now.Sub(f.at) >= fetchPause })
	if err == nil {
		return
	}
	if s.failed == nil {
		s.failed = map[string]failure{}
	}
	s.failed[p.SHA256] = failure{err, now}
}

// fetchNow copies a package into Dir. The file gets its name only after its digest was
// verified.
func (s *Service) fetchNow(ctx context.Context, p fleet.Package) error {
	if f, err := s.openLocal(p); err == nil {
		return f.Close() // fetched meanwhile
	}
	if err := s.Disk.MkdirAll("packages", s.Dir, 0o700); err != nil {
		return s.onDisk(err)
	}
	tmp := filepath.Join(s.Dir, fetchPrefix+fleet.NewID())
	defer func() {
		if err := s.Disk.Remove("fetch", tmp); err != nil {
			s.Log.Warn("a temporary file of a fetch is left", "file", tmp, "error", err)
		}
	}()
	began := time.Now()
	if err := s.receiveShared(ctx, tmp, p); err != nil {
		return err
	}
	if err := s.publish(tmp, p); err != nil {
		return s.onDisk(err)
	}
	s.Log.Info("a package was fetched from the store", "file", p.File, "bytes", p.Size, "took", time.Since(began).Round(time.Millisecond))
	return nil
}

// receiveShared writes the store's bytes to path, and fails if they are not the
// package's.
func (s *Service) receiveShared(ctx context.Context, path string, p fleet.Package) (err error) {
	f, err := s.Disk.OpenFile("fetch", path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return s.onDisk(err)
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = s.onDisk(cerr)
		}
	}()
	sum := sha256.New()
	err = s.shared().Get(ctx, p.SHA256, io.MultiWriter(f, sum))
	switch {
	case err != nil && fleet.KindOf(err) == fleet.NotFound:
		return fleet.Errorf(fleet.Unavailable, "the bytes of %s are missing, on this server and in the store: push it again: %w", p.File, err)
	case err != nil:
		return s.onDisk(fmt.Errorf("fetch %s: %w", p.File, err))
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != p.SHA256 {
		return fleet.Errorf(fleet.Unavailable, "the bytes of %s in the store are not those that were published (sha256 %s, not %s): push it again", p.File, got, p.SHA256)
	}
	return s.onDisk(f.Sync())
}
