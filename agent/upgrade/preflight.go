package upgrade

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/agent/download"
	"github.com/muster-fleet/muster/agent/request"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/install"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/packaging/pkg/trust"
	"github.com/muster-fleet/muster/watcher/handoff"
)

const (
	opPreflight = "preflight"
	// writeCheck is created and removed beside the pointer to check that the pointer
	// can be moved. Writing the journal checks the data folder.
	writeCheck = ".muster-write-check"
)

// errNoTrust is returned if no publisher is trusted.
var errNoTrust = fmt.Errorf("%w: enrol this host with --trust-root to let it upgrade", trust.ErrNoPublisher)

// preflight makes all checks that need no download: first those of the host itself, then
// those that ask the sources.
func (w *work) preflight(ctx context.Context) error {
	if err := w.refuse(); err != nil {
		return err
	}
	if err := w.checkRights(); err != nil {
		return err
	}
	check := w.checkPackage
	if w.j.Request.Rollback {
		check = w.chooseOnHost
	}
	if err := check(ctx); err != nil || w.j.Request.Stage {
		return err
	}
	// From here on this upgrade is reported, and no longer the one before.
	return errors.Join(handoff.RemoveOutcome(w.Disk, w.Top), removeFailure(w.Disk, w.Top))
}

func (c change) undoPreflight(context.Context) error {
	return c.Disk.Remove(opPreflight, c.roots().Link(writeCheck))
}

// refuse makes the checks that need only local state.
func (w *work) refuse() error {
	r := w.j.Request
	if m := w.marker(); m != nil {
		return fmt.Errorf("%w: version %s is being watched", request.ErrBusy, m.To.FullVersion())
	}
	if w.Running.Home == "" {
		return errors.New("this is a development build, not an installed version: run muster-agent install first")
	}
	if !r.Stage && w.ReadsStart != nil {
		// A running agent does not notice a file that was changed. The new version would, and after
		// it the one that is put back.
		if err := w.ReadsStart(); err != nil {
			return fmt.Errorf("%w: %w", request.ErrSettings, err)
		}
	}
	if r.Rollback {
		return nil
	}
	if r.SourceURI != "" && !r.Local {
		if err := w.Downloader.CheckNamed(r.SourceURI); err != nil {
			return fmt.Errorf("source_uri: %w", err)
		}
	}
	version, snapshot := manifest.SplitSnapshot(r.Version)
	// Builds of one snapshot differ in their hash, which only the package has; checkPackage
	// recognises them by their archive.
	if !snapshot && !w.Running.Snapshot && version == w.Running.Version && !r.Force {
		return fmt.Errorf("version %s already runs here", r.Version)
	}
	if w.Trust == nil {
		return errNoTrust
	}
	if r.Stage && w.Keep.Staged == 0 {
		return errors.New("this host keeps no staged versions: raise upgrade.keep.staged in agent.yml")
	}
	return r.CheckFailed(w.recorded(), "", "")
}

func (w *work) checkRights() error {
	folder, name := w.roots().LinkDir(), w.roots().Link(writeCheck)
	if err := w.Disk.Remove(opPreflight, name); err != nil {
		return fmt.Errorf("this agent may not write in %s: %w", folder, err)
	}
	f, err := w.Disk.OpenFile(opPreflight, name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("this agent may not write in %s: %w", folder, err)
	}
	if err := f.Close(); err != nil {
		return err
	}
	return w.Disk.Remove(opPreflight, name)
}

// checkPackage checks what the publishers state about the archive, and that a source has it.
func (w *work) checkPackage(ctx context.Context) error {
	err := w.askSources(ctx)
	if _, refused := w.policySource(); err != nil && refused != nil {
		return fmt.Errorf("%w; the policy's source (agent.download.sourceURI) is not used: %w", err, refused)
	}
	return err
}

func (w *work) askSources(ctx context.Context) error {
	expect, err := w.Expect(ctx, w.j.Archive, w.j.Request.SourceURI)
	if err != nil {
		return err
	}
	w.expect, w.source = expect, expect.Archive
	// The build of a snapshot that failed here is found now, before it is downloaded; a snapshot that was
	// signed again, only after.
	if err := w.allow("", *expect); err != nil {
		return err
	}
	if err := w.useOnHost(ctx); err != nil || w.onHost {
		return err
	}
	// Before the state is DOWNLOADING, so that a package that no source has is refused at once.
	if err := w.Downloader.Find(ctx, w.urls(w.j.Archive, w.j.Request.SourceURI)); err != nil {
		return err
	}
	if w.j.Request.Stage {
		on := w.recorded()
		if _, err := w.j.Request.StageIn(&on, handoff.Version{Archive: expect.Archive, Bytes: expect.Unpacked, StagedAt: time.Now()}, w.Keep); err != nil {
			return err
		}
	}
	return w.checkSpace(expect.Size, expect.Unpacked)
}

// useOnHost uses the version on the host that was unpacked from the archive, if it is intact.
// Then nothing is fetched.
func (w *work) useOnHost(ctx context.Context) error {
	for _, v := range slices.Backward(w.versions()) {
		if v.Archive == "" || v.Archive != w.source {
			continue
		}
		p, err := w.ready(ctx, v.Install, false)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			w.log().Warn("a version on the host cannot be used and is fetched again", "home", v.Home, "error", err)
			continue
		}
		if err := w.accept(p); err != nil {
			return err
		}
		w.j.Reused, w.onHost = true, true
		return nil
	}
	return nil
}

// Expect returns what the trusted publishers say about an archive. sourceURI is the source
// that the order names, or empty.
func (e *Executor) Expect(ctx context.Context, archive, sourceURI string) (*trust.Expectation, error) {
	return e.Trust.Expect(ctx, archive, func(ctx context.Context, name string, limit int64) ([]byte, error) {
		data, err := e.Downloader.Small(ctx, e.urls(name, sourceURI), limit)
		if errors.Is(err, download.ErrNotFound) && !download.Transient(err) {
			err = fmt.Errorf("%w: %w", fs.ErrNotExist, err)
		}
		return data, err
	})
}

// Fetch downloads an archive into a folder.
func (e *Executor) Fetch(ctx context.Context, dir, archive, sourceURI string, want download.Want, report func(download.Progress)) error {
	return e.Downloader.Fetch(ctx, e.urls(archive, sourceURI), dir, archive, want, report)
}

// allow refuses a version that must not be installed; see [request.Request.Allow]. Of a version below the
// highest that is kept for a rollback no other build may be.
func (w *work) allow(hash string, publishers trust.Expectation) error {
	v := w.recorded()
	v.Raise(w.Running.FullVersion()) // the one that was installed first is in no record
	return w.j.Request.Allow(v, hash, publishers, func(kept handoff.Version) bool {
		may := w.left(kept, time.Now()) > 0 && (hash == "" || hash == kept.Hash)
		if may {
			w.only = &kept.Identity
		}
		return may
	})
}

// checkSpace checks that the archive and its content fit on the disk, with a tenth to
// spare.
func (w *work) checkSpace(size, unpacked int64) error {
	dir := w.path(layout.DataDir)
	if err := w.checkInodes(dir); err != nil {
		return err
	}
	free, err := w.Disk.Free(opPreflight, dir)
	if err != nil {
		return err
	}
	have := download.Have(w.Disk, w.path(layout.DownloadsDir), w.j.Archive)
	need := install.UpgradeNeed(size, unpacked, have)
	if free >= need {
		return nil
	}
	return fmt.Errorf("%w in %s: version %s needs %s (archive %s, unpacked %s, a tenth to spare), %s are free; free some and upgrade again",
		disk.ErrNoSpace, dir, w.j.Request.Version, megabytes(need), megabytes(size), megabytes(unpacked), megabytes(free))
}

// checkInodes checks that the file system can hold as many files as the version that runs has, again.
func (w *work) checkInodes(dir string) error {
	free, known := disk.FreeInodes(w.Disk, opPreflight, dir)
	if !known {
		return nil
	}
	home, err := disk.Inodes(w.Disk, opPreflight, w.path(w.Running.Home))
	if err != nil {
		return err
	}
	if need := install.UpgradeInodes(home); free < need {
		return fmt.Errorf("%w in %s: version %s needs %d inodes, %d are free; remove files there and upgrade again",
			disk.ErrNoSpace, dir, w.j.Request.Version, need, free)
	}
	return nil
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }

// CheckRollback refuses a rollback that the server orders to a version below the publishers'
// floor.
func (e *Executor) CheckRollback(ctx context.Context, version string) error {
	if e.Trust == nil {
		return nil
	}
	if err := request.CheckFloor(version, e.Trust.Floor(ctx, "")); err != nil {
		return fmt.Errorf("%w, or run `muster-agent rollback` on the host", err)
	}
	return nil
}

// urls returns the URLs of a file, in the order in which they are tried.
func (e *Executor) urls(name, sourceURI string) []string {
	bases := e.Sources
	if uri, err := e.policySource(); err == nil && uri != "" {
		last := max(0, len(bases)-1)
		bases = slices.Insert(slices.Clone(bases), last, uri)
	}
	if sourceURI != "" {
		bases = append([]string{sourceURI}, bases...)
	}
	urls := make([]string, len(bases))
	for i, base := range bases {
		urls[i] = strings.TrimRight(base, "/") + "/" + name
	}
	return urls
}

// policySource returns the source that the policy names, or "", and an error if the server
// may not name it. The upgrade then uses the others.
func (e *Executor) policySource() (string, error) {
	if e.PolicySource == nil {
		return "", nil
	}
	uri := e.PolicySource()
	if uri == "" {
		return "", nil
	}
	return uri, e.Downloader.CheckNamed(uri)
}

func (w *work) archive() string { return w.path(path.Join(layout.DownloadsDir, w.j.Archive)) }

// pruneDownloads removes downloads of other versions.
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
