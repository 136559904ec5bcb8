package artifact

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

const (
	// aheadAge is the maximum age of a package that is fetched before anybody asks,
	// since rollouts use packages pushed a moment ago. Older ones are fetched on
	// demand, so that a new server does not begin by filling its disk.
	aheadAge = time.Hour
	// leftOverAge is the minimum age of a file without a record before it is removed:
	// older than the temporary file of a push, which may take two hours.
	leftOverAge = 3 * time.Hour
	// orphanAge is the same for bytes in the store, with room for clock skew between
	// servers.
	orphanAge = 24 * time.Hour
	// maxAhead bounds the queue of packages to fetch ahead: several releases for all
	// platforms.
	maxAhead = 64
	// syncInterval is how often the folder is compared with the store. Nothing depends
	// on it being short.
	syncInterval = time.Hour
	// syncRetry is the pause after a failed comparison.
	syncRetry = time.Minute
	// syncTimeout bounds one comparison, without the transfer of packages.
	syncTimeout = time.Minute
)

// Run synchronizes Dir and the store until ctx ends. It fetches packages pushed on
// other servers, uploads packages that only this server has, and removes bytes without
// a record.
func (s *Service) Run(ctx context.Context) {
	pushed := make(chan string, maxAhead)
	if s.shared() != nil {
		followed := make(chan struct{})
		defer func() { <-followed }()
		go func() {
			defer close(followed)
			s.Events.Follow(ctx, func(int64) {}, func(events []fleet.Event) {
				for _, e := range events {
					if e.Type != fleet.EventPackagePushed {
						continue
					}
					select {
					case pushed <- e.Subject:
					default: // fetched when an agent asks
					}
				}
			})
		}()
	}
	for {
		next := syncInterval
		if err := s.sync(ctx); err != nil && ctx.Err() == nil {
			s.Log.Warn("synchronize packages with the store", "error", err, "again_in", syncRetry)
			next = syncRetry
		}
		timer := time.NewTimer(next)
		for due := false; !due; {
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case file := <-pushed:
				s.fetchAhead(ctx, file)
			case <-timer.C:
				due = true
			}
		}
	}
}

// fetchAhead fetches a package that was just pushed elsewhere. It reads the record by
// name, because listings may not have it yet.
func (s *Service) fetchAhead(ctx context.Context, file string) {
	p, err := s.Store.Packages().Get(ctx, file)
	if err != nil {
		s.Log.Debug("a package that was pushed is not fetched", "file", file, "error", err)
		return
	}
	_ = s.fetch(ctx, p, FetchTimeout) // fetch logs the error, and agents that ask receive it
}

// sync compares Dir and the store once.
func (s *Service) sync(ctx context.Context) error {
	if err := s.CleanUp(); err != nil {
		return err
	}
	if s.shared() == nil {
		return nil
	}
	listCtx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	// List the bytes before the records: bytes without a record then were withdrawn, or
	// are so new that their age protects them.
	stored, err := s.shared().List(listCtx)
	if err != nil {
		return err
	}
	records, _, err := s.Store.Packages().List(listCtx, 0, 0)
	if err != nil {
		return err
	}
	recorded := map[string]bool{}
	for _, p := range records {
		recorded[p.SHA256] = true
	}
	uploads, _, err := s.Store.Uploads().List(listCtx, 0, 0)
	if err != nil {
		return err
	}
	for _, u := range uploads { // package diagnostics keeps their bytes in the same place
		for _, c := range u.Chunks {
			recorded[c.Key] = true
		}
	}
	if err := s.removeCopies(recorded); err != nil {
		return err
	}
	whole := map[string]bool{}
	for _, b := range stored {
		whole[b.SHA256] = b.Whole
		if recorded[b.SHA256] || s.Now.UTC().Sub(b.Written) < orphanAge {
			continue
		}
		if err := s.shared().Delete(listCtx, b.SHA256); err != nil {
			return err
		}
	}
	return s.exchange(ctx, records, whole)
}

// exchange uploads the packages that the store does not have completely, and fetches
// those that were pushed recently.
func (s *Service) exchange(ctx context.Context, records []fleet.Package, whole map[string]bool) error {
	var errs []error
	for _, p := range records {
		f, err := s.openLocal(p)
		switch {
		case err == nil && !whole[p.SHA256]:
			errs = append(errs, f.Close(), s.restore(ctx, p))
		case err == nil:
			errs = append(errs, f.Close())
		case !errors.Is(err, fs.ErrNotExist):
			errs = append(errs, err)
		case whole[p.SHA256] && s.Now.UTC().Sub(p.PushedAt) < aheadAge:
			errs = append(errs, s.fetch(ctx, p, FetchTimeout))
		}
	}
	return errors.Join(errs...)
}

// restore uploads a package that only this server has, since the store has lost it.
func (s *Service) restore(ctx context.Context, p fleet.Package) error {
	ctx, cancel := context.WithTimeout(ctx, FetchTimeout)
	defer cancel()
	if err := s.share(ctx, p); err != nil {
		return fmt.Errorf("upload %s to the store: %w", p.File, err)
	}
	s.Log.Info("a package was uploaded to the store, which did not have it", "file", p.File)
	return nil
}

// CleanUp removes the temporary files of interrupted pushes and fetches. Other
// processes may use the folder meanwhile.
func (s *Service) CleanUp() error {
	return s.removeOld(func(name string) bool {
		return strings.HasPrefix(name, pushPrefix) || strings.HasPrefix(name, fetchPrefix)
	})
}

// removeCopies removes the copies of withdrawn packages.
func (s *Service) removeCopies(recorded map[string]bool) error {
	return s.removeOld(func(name string) bool {
		digest, isCopy := strings.CutSuffix(name, copySuffix)
		return isCopy && !recorded[digest]
	})
}

// removeOld removes the unwanted files of the folder that were last written more than
// leftOverAge ago.
func (s *Service) removeOld(unwanted func(name string) bool) error {
	entries, err := s.Disk.ReadDir("clean up packages", s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !unwanted(e.Name()) {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed by another process
		}
		if err != nil {
			return err
		}
		if s.Now.UTC().Sub(info.ModTime()) < leftOverAge {
			continue
		}
		if err := s.Disk.Remove("clean up packages", filepath.Join(s.Dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}
