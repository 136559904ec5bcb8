package upgrade

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/muster-fleet/muster/agent/download"
	"github.com/muster-fleet/muster/packaging/install"
	"github.com/muster-fleet/muster/packaging/layout"
	"github.com/muster-fleet/muster/packaging/manifest"
	"github.com/muster-fleet/muster/packaging/trust"
	"github.com/muster-fleet/muster/watcher/handoff"
)

const (
	opPreflight = "preflight"
	// writeCheck is made and removed in the top folder to know that the pointer
	// can be moved there. In data the journal itself is the proof.
	writeCheck = ".muster-write-check"

	// unpackedFactor is how much larger than its archive a package is taken to
	// be where nobody says: stripped Go programs pack to between a third and a
	// half. Unpacking counts exactly, before it writes.
	unpackedFactor = 3
)

// preflight refuses what can be known to fail, before anything is downloaded:
// first what the host knows by itself, then what the sources say.
func (w *work) preflight(ctx context.Context) error {
	if err := w.refuse(); err != nil {
		return err
	}
	if err := w.checkRights(); err != nil {
		return err
	}
	check := w.checkPackage
	if w.j.Request.Rollback {
		check = w.chooseKept
	}
	if err := check(ctx); err != nil {
		return err
	}
	// From here on this upgrade is what is reported.
	return errors.Join(handoff.RemoveOutcome(w.Disk, w.Top), removeFailure(w.Disk, w.Top))
}

func (c change) undoPreflight() error {
	return c.Disk.Remove(opPreflight, c.path(writeCheck))
}

// refuse asks only the host's own memory.
func (w *work) refuse() error {
	r := w.j.Request
	if m := w.marker(); m != nil {
		return fmt.Errorf("%w (to %s)", ErrBusy, m.To.FullVersion())
	}
	if w.Running.Home == "" {
		return errors.New("this is a development build, not an installed version: run muster-agent install first")
	}
	if r.Rollback {
		return nil
	}
	version, snapshot := manifest.SplitSnapshot(r.Version)
	// Builds of one snapshot differ by hash, which only the package tells.
	if !snapshot && !w.Running.Snapshot && version == w.Running.Version && !r.Force {
		return fmt.Errorf("version %s already runs here", r.Version)
	}
	if w.Trust == nil {
		return fmt.Errorf("%w: enrol this host with --trust-root or --trust-key to let it upgrade", trust.ErrNoKeys)
	}
	if !snapshot && !r.Force {
		return refuseFailed(w.Disk, w.Top, func(id manifest.Identity) bool { return id.FullVersion() == r.Version })
	}
	return nil
}

func (w *work) checkRights() error {
	name := w.path(writeCheck)
	if err := w.Disk.Remove(opPreflight, name); err != nil {
		return fmt.Errorf("this agent may not write in %s: %w", w.Top, err)
	}
	f, err := w.Disk.OpenFile(opPreflight, name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("this agent may not write in %s: %w", w.Top, err)
	}
	if err := f.Close(); err != nil {
		return err
	}
	return w.Disk.Remove(opPreflight, name)
}

// checkPackage asks the publishers and the sources about the archive.
func (w *work) checkPackage(ctx context.Context) error {
	expect, err := w.Trust.Expect(ctx, w.j.Archive, func(ctx context.Context, name string) ([]byte, error) {
		data, err := w.Downloader.Small(ctx, w.urls(name))
		return data, transientLink(err)
	})
	if err != nil {
		return err
	}
	w.expect = expect
	if err := w.checkFloor(expect.Floor); err != nil {
		return err
	}
	info, err := w.Downloader.Stat(ctx, w.urls(w.j.Archive))
	if err != nil {
		return transientLink(err)
	}
	size := expect.Size
	if size < 0 {
		size = info.Size
	}
	return w.checkSpace(size, expect.Unpacked)
}

// checkFloor: only a rollback, which an operator asks for in so many words, may
// go below what the publishers still stand for.
func (w *work) checkFloor(floor string) error {
	if floor == "" {
		return nil
	}
	order, err := manifest.CompareVersions(w.j.Request.Version, floor)
	if err != nil || order >= 0 {
		return err
	}
	return fmt.Errorf("version %s is below %s, the lowest version its publishers still allow: choose a newer one, or go back to a kept version with a rollback",
		w.j.Request.Version, floor)
}

// checkSpace wants room for the archive and what it holds, with a tenth to spare.
func (w *work) checkSpace(size, unpacked int64) error {
	if size < 0 {
		return nil // nobody knows; the download and the unpacking look again
	}
	if unpacked < 0 {
		unpacked = unpackedFactor * size
	}
	dir := w.path(layout.DataDir)
	free, err := w.Disk.Free(opPreflight, dir)
	if err != nil {
		return err
	}
	have := download.Have(w.Disk, w.path(layout.DownloadsDir), w.j.Archive)
	need := install.Need(max(0, size-have)) + install.Need(unpacked) + download.SpaceMargin
	if free >= need {
		return nil
	}
	return fmt.Errorf("%w in %s: version %s needs %s (archive %s, unpacked %s, a tenth to spare), %s are free; free some and upgrade again",
		ErrNoSpace, dir, w.j.Request.Version, megabytes(need), megabytes(size), megabytes(unpacked), megabytes(free))
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }

// chooseKept makes the kept version the one to switch to.
func (w *work) chooseKept(ctx context.Context) error {
	kept, err := w.Kept(ctx)
	if err != nil {
		return err
	}
	r := &w.j.Request
	switch {
	case kept == nil:
		return errors.New("no earlier version is kept on this host: upgrade to the version you want instead")
	case r.Version != "" && r.Version != kept.FullVersion():
		return fmt.Errorf("version %s is not kept on this host, %s is: go back to that one, or upgrade to the version you want", r.Version, kept.FullVersion())
	case kept.Problem != "":
		return fmt.Errorf("version %s cannot be gone back to: %s", kept.FullVersion(), kept.Problem)
	}
	r.Version = kept.FullVersion()
	w.j.To, w.j.Reused, w.checks = kept.Install, true, kept.checks
	return nil
}

// urls are the places of a file, in the order they are tried.
func (w *work) urls(name string) []string {
	bases := w.Sources
	if uri := w.j.Request.SourceURI; uri != "" {
		bases = append([]string{uri}, bases...)
	}
	urls := make([]string, len(bases))
	for i, base := range bases {
		urls[i] = strings.TrimRight(base, "/") + "/" + name
	}
	return urls
}

func (w *work) archive() string { return w.path(path.Join(layout.DownloadsDir, w.j.Archive)) }

// pruneDownloads removes what earlier upgrades to other versions have left.
func (w *work) pruneDownloads() error {
	dir := w.path(layout.DownloadsDir)
	entries, err := w.Disk.ReadDir(opPreflight, dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), w.j.Archive) {
			if err := w.Disk.RemoveAll(opPreflight, filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
