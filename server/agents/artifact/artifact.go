// Package artifact stores published packages: it accepts archives, checks them before
// anybody can download them, and serves them to agents. Its checks spare operators a failed
// rollout. They do not protect hosts, which trust only the publishers' root pinned at
// enrolment.
package artifact

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/ProtonMail/go-crypto/openpgp"
	"golang.org/x/sync/singleflight"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/install"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/audit"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/store/storehealth"
)

// MaxPackage bounds an archive: three times the largest known agent.
const MaxPackage = 2 << 30

// Service stores packages. Without store.PackageData their bytes are only in Dir.
// Otherwise the store has the bytes, and Dir caches them on this server; Run must then be
// running, to fetch packages before agents ask for them.
type Service struct {
	Dir    string
	Disk   disk.Disk
	Store  store.Store
	Events *event.Stream
	Log    *slog.Logger
	Now    clock.Clock
	Health *storehealth.Monitor
	// Trust may be nil, which means that no root is published.
	Trust Trust
	// MaxSize overrides MaxPackage when above zero.
	MaxSize int64

	fetches singleflight.Group // by digest

	mu     sync.Mutex
	failed map[string]failure // recent failed fetches, by digest
	// served caches, by file, the packages that agents have asked for. They are served
	// while the store is away.
	served map[string]fleet.Package
}

// Trust reports what the publishers have signed.
type Trust interface {
	// HasRoot reports whether the publishers have published a root. With a root a
	// package needs no signature of its own: the signed targets file names it, before
	// or after the push.
	HasRoot(ctx context.Context) (bool, error)
	// SetWithheld sets Withheld of the packages that hosts will not install.
	SetWithheld(ctx context.Context, packages []fleet.Package) error
}

// maxServed bounds served, whose entries have a few KB each: a dozen versions for half
// a dozen platforms.
const maxServed = 100

// Push publishes an archive under its file name, completely or not at all.
func (s *Service) Push(ctx context.Context, file string, body io.Reader, actor string) (fleet.Package, error) {
	if err := checkName(file); err != nil {
		return fleet.Package{}, err
	}
	if err := s.checkRooted(ctx); err != nil {
		return fleet.Package{}, err
	}
	return s.push(ctx, fleet.Package{File: file}, body, actor, func(path string, p *fleet.Package) error {
		return s.verify(ctx, path, p)
	})
}

// push publishes an archive if verify accepts it; verify also completes the record. as is
// the record as it is known before the bytes arrive.
func (s *Service) push(ctx context.Context, as fleet.Package, body io.Reader, actor string, verify func(path string, p *fleet.Package) error) (fleet.Package, error) {
	file := as.File
	if err := s.Disk.MkdirAll("packages", s.Dir, 0o700); err != nil {
		return fleet.Package{}, s.onDisk(err)
	}
	tmp := filepath.Join(s.Dir, pushPrefix+fleet.NewID())
	defer func() {
		if err := s.Disk.Remove("push", tmp); err != nil {
			s.Log.Warn("a temporary file of a push is left", "file", tmp, "error", err)
		}
	}()
	received, err := s.receive(tmp, body)
	if err != nil {
		return fleet.Package{}, err
	}
	p := as
	p.Size, p.SHA256, p.SHA512 = received.Size, received.SHA256, received.SHA512
	p.PushedAt, p.PushedBy = s.Now.UTC(), actor
	if err := verify(tmp, &p); err != nil {
		return fleet.Package{}, err
	}
	if old, err := s.Store.Packages().Get(ctx, file); err == nil {
		return s.pushAgain(ctx, tmp, old, p)
	} else if fleet.KindOf(err) != fleet.NotFound {
		return fleet.Package{}, err
	}
	err = audit.Record(ctx, s.Store.Audit(), p.PushedAt, fleet.AuditEntry{
		Actor: actor, Verb: "package.push", Subject: file, Text: "published the package " + file, Data: event.Data(map[string]string{"sha256": p.SHA256, "key_id": p.KeyID}),
	})
	if err != nil {
		return fleet.Package{}, err
	}
	// The bytes come before the record, because a record means that any server can
	// serve them. Run removes what an interrupted push leaves here.
	if err := s.publish(tmp, p); err != nil {
		return fleet.Package{}, err
	}
	if err := s.share(ctx, p); err != nil {
		return fleet.Package{}, err
	}
	err = s.Store.Packages().Create(ctx, p)
	if err != nil && fleet.KindOf(err) == fleet.Conflict {
		return s.overtaken(ctx, p)
	}
	if err != nil {
		return fleet.Package{}, err
	}
	s.Events.Publish(ctx, fleet.Event{Type: fleet.EventPackagePushed, Subject: file, Actor: actor, Data: event.Data(pushed{p.Version, p.OS, p.Arch, p.Component})})
	return p, nil
}

// pushed is the data of the event of a push.
type pushed struct {
	Version   string `json:"version"`
	OS        string `json:"os"`
	Arch      string `json:"arch"`
	Component string `json:"component,omitempty"`
}

// checkRooted refuses a package that no host could trust before its bytes are sent.
func (s *Service) checkRooted(ctx context.Context) error {
	rooted := false
	if s.Trust != nil {
		var err error
		if rooted, err = s.Trust.HasRoot(ctx); err != nil {
			return err
		}
	}
	if rooted {
		return nil
	}
	return fleet.Errorf(fleet.Invalid, "the publishers have no root here yet, so that no host would install the package: publish one with `muster package keys publish`, or push with --targets-key, which does")
}

// pushAgain handles the push of a name that is already published.
func (s *Service) pushAgain(ctx context.Context, tmp string, old, p fleet.Package) (fleet.Package, error) {
	if old.SHA256 != p.SHA256 {
		return fleet.Package{}, otherContent(old)
	}
	if err := s.publish(tmp, old); err != nil { // the file may have been lost
		return fleet.Package{}, err
	}
	if err := s.share(ctx, old); err != nil { // as may the store's bytes
		return fleet.Package{}, err
	}
	if bytes.Equal(old.OpenPGP, p.OpenPGP) {
		return old, nil
	}
	// A new signature, as after a change of Elastic's keys: hosts that trust only the new
	// key need it.
	old.OpenPGP, old.KeyID = p.OpenPGP, p.KeyID
	if _, err := s.Store.Packages().Update(ctx, old); err != nil {
		return fleet.Package{}, err
	}
	return s.Store.Packages().Get(ctx, old.File)
}

// overtaken handles a push during which another one of the same name was published.
func (s *Service) overtaken(ctx context.Context, p fleet.Package) (fleet.Package, error) {
	old, err := s.Store.Packages().Get(ctx, p.File)
	switch {
	case err != nil:
		return fleet.Package{}, err
	case old.SHA256 == p.SHA256:
		return old, nil
	}
	return fleet.Package{}, errors.Join(otherContent(old), s.discard(ctx, p))
}

func otherContent(old fleet.Package) error {
	return fleet.Errorf(fleet.Conflict, "%s is published already with other content (sha256 %s): give the build a new version, or withdraw it first", old.File, old.SHA256)
}

// receive writes body to path and returns its size and digests.
func (s *Service) receive(path string, body io.Reader) (p fleet.Package, err error) {
	f, err := s.Disk.OpenFile("push", path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return p, s.onDisk(err)
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = s.onDisk(cerr)
		}
	}()
	limit := int64(MaxPackage)
	if s.MaxSize > 0 {
		limit = s.MaxSize
	}
	h256, h512 := sha256.New(), sha512.New()
	from := &sender{r: io.LimitReader(body, limit+1)}
	p.Size, err = io.Copy(io.MultiWriter(f, h256, h512), from)
	switch {
	case from.err != nil:
		return p, fleet.Errorf(fleet.Invalid, "the package did not arrive whole: %w", from.err)
	case err != nil:
		return p, s.onDisk(err)
	case p.Size > limit:
		return p, fleet.Errorf(fleet.TooLarge, "the package has more than %d bytes", limit)
	case p.Size == 0:
		return p, fleet.FieldError("body", "is empty: send the archive")
	}
	p.SHA256, p.SHA512 = hex.EncodeToString(h256.Sum(nil)), hex.EncodeToString(h512.Sum(nil))
	return p, s.onDisk(f.Sync())
}

// fullBelow is how much space is left at most on a disk that counts as full.
const fullBelow = 1 << 20

// full reports whether the disk of Dir is full, and has what the store cannot write: with
// package data in the store, its bytes are elsewhere.
func (s *Service) full() bool {
	free, err := s.Disk.Free("withdraw", s.Dir)
	return s.shared() == nil && err == nil && free < fullBelow
}

// onDisk adds the remedy to an error of the server's disk.
func (s *Service) onDisk(err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		return fleet.Errorf(fleet.Unavailable, "the server's disk is full: free some space under %s and try again: %w", s.Dir, err)
	}
	return err
}

// sender records read errors, to distinguish a failing sender from a failing disk.
type sender struct {
	r   io.Reader
	err error
}

func (s *sender) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// verify checks manifest and name, and completes p.
func (s *Service) verify(ctx context.Context, path string, p *fleet.Package) error {
	contents, err := install.InspectOn(ctx, s.Disk, path)
	if err != nil {
		return fleet.Errorf(fleet.Invalid, "%s: %w", p.File, err)
	}
	pkg := contents.Manifest.Package
	format := "tar.gz"
	if strings.HasSuffix(p.File, ".zip") {
		format = "zip"
	}
	if pkg.OS == "" || pkg.Arch == "" {
		// Agents are matched to packages by os and arch.
		return fleet.FieldError("body", "does not say which platform it is for, and its muster-agent program does not show it: set os and arch in its %s", manifest.FileName)
	}
	if want := pkg.ArchiveName(format); want != p.File {
		return fleet.FieldError("path.file", "is %s, but by its manifest the package is %s", p.File, want)
	}
	p.Version, p.Snapshot, p.Hash, p.OS, p.Arch = pkg.FullVersion(), pkg.Snapshot, pkg.Hash, pkg.OS, pkg.Arch
	if c := pkg.Component; c != nil {
		p.Component, p.Runtime, p.ServerFiles = c.Name, c.Runtime, c.ServerFiles
		p.Image, _ = c.Settings["image"].(string) // of a runtime that has one
		for _, m := range c.Migrations {
			p.Migrations = append(p.Migrations, fleet.PackageMigration{Version: m.Version, Down: m.Down != nil})
		}
	}
	return nil
}

func (s *Service) publish(tmp string, p fleet.Package) error {
	if err := s.Disk.Rename("publish", tmp, s.path(p)); err != nil {
		return err
	}
	return s.Disk.SyncDir("publish", s.Dir)
}

// Delete withdraws a package. Downloads in progress may complete. Other servers remove
// their copies later.
func (s *Service) Delete(ctx context.Context, file, actor string) error {
	p, err := s.Store.Packages().Get(ctx, file)
	if err != nil {
		return err
	}
	withdraw := func() error {
		err := audit.Record(ctx, s.Store.Audit(), s.Now.UTC(), fleet.AuditEntry{
			Actor: actor, Verb: "package.delete", Subject: file, Text: "withdrew the package " + file, Data: event.Data(map[string]string{"sha256": p.SHA256}),
		})
		if err != nil {
			return err
		}
		return s.Store.Packages().Delete(ctx, file)
	}
	err = withdraw()
	if err != nil && s.full() {
		// Only the space of the package lets the store write. If the process dies in
		// between, the package is still listed and cannot be downloaded: withdraw it again.
		if err := s.discard(ctx, p); err != nil {
			return err
		}
		err = withdraw()
	}
	if err != nil {
		return err
	}
	s.Events.Publish(ctx, fleet.Event{Type: fleet.EventPackageDeleted, Subject: file, Actor: actor})
	if err := s.discard(ctx, p); err != nil {
		// The package is withdrawn all the same. Run later removes bytes without a
		// record from the store.
		s.Log.Warn("the bytes of a withdrawn package are left", "file", file, "error", err)
	}
	return nil
}

// Serve responds to a GET or HEAD of a package, with ranges.
func (s *Service) Serve(w http.ResponseWriter, r *http.Request, file string) error {
	p, err := s.published(r.Context(), file)
	if err == nil && p.Maker != fleet.MakerMuster {
		err = fleet.Errorf(fleet.NotFound, "%s is a package of Elastic's, which has a path of its own", file)
	}
	if err != nil {
		if fleet.KindOf(err) == fleet.NotFound {
			err = fleet.Errorf(fleet.NotFound, "no package %s is published: publish it with `muster package push`", file)
		}
		return err
	}
	return s.serveBytes(w, r, p)
}

func (s *Service) serveBytes(w http.ResponseWriter, r *http.Request, p fleet.Package) error {
	f, err := s.open(r.Context(), p)
	if err != nil {
		return err
	}
	defer f.Close()
	// A strong validator: a download that resumes with other bytes starts over.
	w.Header().Set("ETag", `"`+p.SHA256+`"`)
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", p.PushedAt, f)
	return nil
}

// published returns a package's record, from memory while the store is away.
func (s *Service) published(ctx context.Context, file string) (p fleet.Package, err error) {
	err = s.Health.Call(ctx, func(ctx context.Context) (err error) {
		p, err = s.Store.Packages().Get(ctx, file)
		return err
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		if old, ok := s.served[file]; ok && fleet.KindOf(err) == fleet.Unavailable {
			return old, nil
		}
		return p, err
	}
	if s.served == nil || len(s.served) >= maxServed {
		s.served = map[string]fleet.Package{} // the next downloads refill it
	}
	s.served[file] = p
	return p, nil
}

// AddKey registers an OpenPGP key of Elastic's. Elastic's packages signed by it are accepted
// from now on.
func (s *Service) AddKey(ctx context.Context, text, name, actor string) (fleet.PublisherKey, error) {
	k, err := parseKey(text)
	if err != nil {
		return k, fleet.FieldError("body.public_key", "%w", err)
	}
	k.Name, k.AddedAt, k.AddedBy = name, s.Now.UTC(), actor
	if _, err := s.Store.PublisherKeys().Get(ctx, k.ID); err != nil { // a known key is not added again
		err = audit.Record(ctx, s.Store.Audit(), k.AddedAt, fleet.AuditEntry{
			Actor: actor, Verb: "publisher_key.add", Subject: k.ID, Text: "added the publisher key " + k.ID + " " + name,
		})
		if err != nil {
			return fleet.PublisherKey{}, err
		}
	}
	err = s.Store.PublisherKeys().Create(ctx, k)
	if fleet.KindOf(err) == fleet.Conflict && err != nil {
		old, err := s.Store.PublisherKeys().Get(ctx, k.ID)
		if err == nil && old.PublicKey != k.PublicKey { // whoever makes a key can choose its id
			err = fleet.Errorf(fleet.Conflict, "another key has the id %s: remove that one first with `muster package distrust %s`", k.ID, k.ID)
		}
		return old, err
	}
	if err != nil {
		return fleet.PublisherKey{}, err
	}
	s.Events.Publish(ctx, fleet.Event{Type: fleet.EventKeyCreated, Subject: k.ID, Actor: actor, Data: event.Data(map[string]string{"publisher": name})})
	return k, nil
}

func parseKey(text string) (fleet.PublisherKey, error) {
	e, err := parseOpenPGP(text)
	if err != nil {
		return fleet.PublisherKey{}, err
	}
	block, err := armored(openpgp.EntityList{e})
	return fleet.PublisherKey{ID: e.PrimaryKey.KeyIdString(), PublicKey: string(block)}, err
}

// RemoveKey removes a publisher key. Packages signed by it are refused from now on; those
// that are published stay.
func (s *Service) RemoveKey(ctx context.Context, id, actor string) error {
	k, err := s.Store.PublisherKeys().Get(ctx, id)
	if err != nil {
		return err
	}
	err = audit.Record(ctx, s.Store.Audit(), s.Now.UTC(), fleet.AuditEntry{Actor: actor, Verb: "publisher_key.remove", Subject: id, Text: "removed the publisher key " + id})
	if err != nil {
		return err
	}
	if err := s.Store.PublisherKeys().Delete(ctx, id); err != nil {
		return err
	}
	s.Events.Publish(ctx, fleet.Event{Type: fleet.EventKeyRevoked, Subject: id, Actor: actor, Data: event.Data(map[string]string{"publisher": k.Name})})
	return nil
}

// PublisherKeys returns the keys whose packages the server accepts.
func (s *Service) PublisherKeys(ctx context.Context) ([]fleet.PublisherKey, error) {
	keys, _, err := s.Store.PublisherKeys().List(ctx, 0, 0)
	return keys, err
}

// Packages returns all packages.
func (s *Service) Packages(ctx context.Context) ([]fleet.Package, error) {
	packages, _, err := s.Store.Packages().List(ctx, 0, 0)
	return packages, err
}

func checkName(file string) error {
	known := strings.HasPrefix(file, layout.HomePrefix) || strings.HasPrefix(file, manifest.ComponentPrefix)
	if filepath.Base(file) != file || strings.ContainsAny(file, `\:`) || !known || !(strings.HasSuffix(file, ".tar.gz") || strings.HasSuffix(file, ".zip")) {
		return fleet.FieldError("path.file", "is %q, want a name such as %s or %s", file,
			manifest.ArchiveName("1.1.0", "linux", "amd64", "tar.gz"), manifest.ComponentArchiveName("web", "1.1.0", "linux", "amd64", "tar.gz"))
	}
	return nil
}
