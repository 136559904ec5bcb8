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
	// aheadAge is how old a package may be that is fetched before anybody asks: what
	// is rolled out was pushed a moment ago. Older ones are fetched on demand, so that
	// a new server does not begin by filling its disk.
	aheadAge = time.Hour
	// leftOverAge is how old a file must be that no record names: older than a push,
	// which may take two hours, can make it.
	leftOverAge = 3 * time.Hour
	// orphanAge is the same for bytes in the store, with room for the clocks of
	// servers to differ.
	orphanAge = 24 * time.Hour
	// maxAhead bounds the packages that wait to be fetched ahead: several releases
	// for all platforms.
	maxAhead = 64
	// tidyInterval is how often the folder is compared with the store. Nothing waits
	// for it.
	tidyInterval = time.Hour
	// tidyRetry is how long a round that failed waits for the next.
	tidyRetry = time.Minute
	// tidyTimeout bounds a round but for the bytes that it moves.
	tidyTimeout = time.Minute
)

// Run keeps the folder and the store in step until ctx ends. It fetches what is
// pushed at other servers, puts into the store what only this server has, and
// removes what no record names.
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
					default: // it is fetched when an agent asks
					}
				}
			})
		}()
	}
	for {
		next := tidyInterval
		if err := s.tidy(ctx); err != nil && ctx.Err() == nil {
			s.Log.Warn("tidy up packages", "error", err, "again_in", tidyRetry)
			next = tidyRetry
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

// fetchAhead brings a package here that was pushed a moment ago. It asks for the
// record by its name: lists may not have it yet.
func (s *Service) fetchAhead(ctx context.Context, file string) {
	p, err := s.Store.Packages().Get(ctx, file)
	if err != nil {
		s.Log.Debug("a package that was pushed is not fetched", "file", file, "error", err)
		return
	}
	_ = s.fetch(ctx, p, FetchTimeout) // which logs; agents who ask are told
}

// tidy is one round of Run.
func (s *Service) tidy(ctx context.Context) error {
	if err := s.CleanUp(); err != nil {
		return err
	}
	if s.shared() == nil {
		return nil
	}
	looking, cancel := context.WithTimeout(ctx, tidyTimeout)
	defer cancel()
	// The bytes before the records: what has none then was withdrawn, or is so new
	// that its age tells.
	kept, err := s.shared().List(looking)
	if err != nil {
		return err
	}
	records, _, err := s.Store.Packages().List(looking, 0, 0)
	if err != nil {
		return err
	}
	named := map[string]bool{}
	for _, p := range records {
		named[p.SHA256] = true
	}
	if err := s.removeCopies(named); err != nil {
		return err
	}
	whole := map[string]bool{}
	for _, b := range kept {
		whole[b.SHA256] = b.Whole
		if named[b.SHA256] || s.Now.UTC().Sub(b.Written) < orphanAge {
			continue
		}
		if err := s.shared().Delete(looking, b.SHA256); err != nil {
			return err
		}
	}
	return s.exchange(ctx, records, whole)
}

// exchange moves bytes: into the store what it does not have whole, and here what
// was pushed of late.
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

// restore shares a package that only this server has: the installation had its
// packages in a folder before, or the store has lost them.
func (s *Service) restore(ctx context.Context, p fleet.Package) error {
	ctx, cancel := context.WithTimeout(ctx, FetchTimeout)
	defer cancel()
	if err := s.share(ctx, p); err != nil {
		return fmt.Errorf("put %s into the store: %w", p.File, err)
	}
	s.Log.Info("a package was put into the store, which did not have it", "file", p.File)
	return nil
}

// CleanUp removes what interrupted pushes and fetches left. It may run while others
// use the folder.
func (s *Service) CleanUp() error {
	return s.removeOld(func(name string) bool {
		return strings.HasPrefix(name, pushPrefix) || strings.HasPrefix(name, fetchPrefix)
	})
}

// removeCopies removes copies of packages that were withdrawn.
func (s *Service) removeCopies(named map[string]bool) error {
	return s.removeOld(func(name string) bool {
		digest, isCopy := strings.CutSuffix(name, copySuffix)
		return isCopy && !named[digest]
	})
}

// removeOld removes the files of the folder that nothing has been written to for
// leftOverAge.
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
			continue // another process was first
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
