package artifact_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/build"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/agents/artifact"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/store/sqlite"
	"github.com/muster-fleet/muster/server/store/sqlite/sqlitetest"
	"github.com/muster-fleet/muster/server/store/storehealth"
	"github.com/muster-fleet/muster/testing/kit/elasticpkg"
	"github.com/muster-fleet/muster/testing/kit/fakepkg"
)

// world is a server whose publishers have a root.
type world struct {
	t       *testing.T
	store   *sqlite.Store
	disk    *fullDisk
	service *artifact.Service
}

// rooted is the trust of a server with a root, or without one.
type rooted bool

func (r rooted) HasRoot(context.Context) (bool, error)            { return bool(r), nil }
func (rooted) SetWithheld(context.Context, []fleet.Package) error { return nil }

func newWorld(t *testing.T) *world {
	t.Helper()
	s := sqlitetest.Open(t, filepath.Join(t.TempDir(), "muster.db"))
	log := slog.New(slog.DiscardHandler)
	w := &world{t: t, store: s, disk: &fullDisk{}}
	w.service = &artifact.Service{
		Dir: filepath.Join(t.TempDir(), "packages"), Disk: w.disk, Store: s, Health: &storehealth.Monitor{}, Log: log, Trust: rooted(true),
		Events: &event.Stream{Store: s.Events(), Log: log},
	}
	return w
}

// parcel is an archive.
type parcel struct {
	name string
	body []byte
}

// build returns a real package; different content yields different bytes.
func (w *world) build(version, content string) parcel {
	w.t.Helper()
	dir := w.t.TempDir()
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho "+content+"\n"), 0o755); err != nil {
		w.t.Fatal(err)
	}
	return w.read(fakepkg.Build(w.t, dir, build.Spec{
		Manifest: manifest.Package{Version: version, OS: "linux", Arch: "amd64"},
		Files:    []build.File{{Name: "muster-agent", Path: program}, {Name: "muster-watcher", Path: program}},
	}))
}

func (w *world) read(archive string) parcel {
	w.t.Helper()
	body, err := os.ReadFile(archive)
	if err != nil {
		w.t.Fatal(err)
	}
	return parcel{filepath.Base(archive), body}
}

func (w *world) push(p parcel) (fleet.Package, error) {
	return w.service.Push(w.t.Context(), p.name, bytes.NewReader(p.body), "ann")
}

func (w *world) pushed(p parcel) fleet.Package {
	w.t.Helper()
	pkg, err := w.push(p)
	if err != nil {
		w.t.Fatal(err)
	}
	return pkg
}

func (w *world) wantKind(err error, kind fleet.Kind, text string) {
	w.t.Helper()
	if err == nil || fleet.KindOf(err) != kind || !strings.Contains(err.Error(), text) {
		w.t.Errorf("error is %v (%s), want one of kind %s that says %q", err, fleet.KindOf(err), kind, text)
	}
}

// holds checks for these records, each with its bytes, and nothing else on the disk.
func (w *world) holds(want ...fleet.Package) {
	w.t.Helper()
	records, _, err := w.store.Packages().List(w.t.Context(), 0, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	entries, err := os.ReadDir(w.service.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.t.Fatal(err)
	}
	var files, wantFiles []string
	for _, e := range entries {
		files = append(files, e.Name())
	}
	for _, p := range want {
		wantFiles = append(wantFiles, p.SHA256)
	}
	slices.Sort(wantFiles)
	if len(records) != len(want) || !slices.Equal(files, wantFiles) {
		w.t.Errorf("%d records and files %v, want %d and %v", len(records), files, len(want), wantFiles)
	}
}

// fullDisk is the real disk, limited to room bytes if that is above zero.
type fullDisk struct {
	disk.OS
	room     int64
	failSync error
	failMove error
}

func (d *fullDisk) OpenFile(op, path string, flag int, perm fs.FileMode) (disk.File, error) {
	f, err := d.OS.OpenFile(op, path, flag, perm)
	if err != nil {
		return nil, err
	}
	return fullFile{f, d}, nil
}

func (d *fullDisk) Rename(op, from, to string) error {
	if d.failMove != nil {
		return d.failMove
	}
	return d.OS.Rename(op, from, to)
}

type fullFile struct {
	disk.File
	d *fullDisk
}

func (f fullFile) Write(p []byte) (int, error) {
	if f.d.room == 0 || int64(len(p)) <= f.d.room {
		return f.File.Write(p)
	}
	n, _ := f.File.Write(p[:f.d.room])
	return n, &fs.PathError{Op: "write", Path: "package", Err: syscall.ENOSPC}
}

func (f fullFile) Sync() error {
	if f.d.failSync != nil {
		return f.d.failSync
	}
	return f.File.Sync()
}

func TestPushPublishesPackage(t *testing.T) {
	w := newWorld(t)
	in := w.build("1.1.0", "better")
	p := w.pushed(in)
	sum := sha256.Sum256(in.body)
	if p.File != in.name || p.Version != "1.1.0" || p.OS != "linux" || p.Arch != "amd64" || p.Size != int64(len(in.body)) ||
		p.SHA256 != hex.EncodeToString(sum[:]) || p.PushedBy != "ann" || len(p.Hash) < 6 {
		t.Errorf("record is %+v", p)
	}
	w.holds(p)
	again := w.pushed(in) // the first response was lost
	if again.PushedAt != p.PushedAt {
		t.Errorf("after a second push the record is %+v", again)
	}
	w.holds(p)

	_, err := w.push(w.build("1.1.0", "other"))
	w.wantKind(err, fleet.Conflict, "published already with other content")
	w.holds(p)

	snapshot := w.pushed(w.snapshot("1.2.0"))
	if snapshot.Version != "1.2.0-SNAPSHOT" || !snapshot.Snapshot {
		t.Errorf("the snapshot's record is %+v", snapshot)
	}
	w.holds(p, snapshot)
}

func (w *world) snapshot(version string) parcel {
	w.t.Helper()
	pkg := fakepkg.Describe(version + "-SNAPSHOT")
	dir := w.t.TempDir()
	path := fakepkg.Write(w.t, dir, manifest.ArchiveName(version+"-SNAPSHOT", "linux", "amd64", build.Zip), fakepkg.Sound(w.t, pkg))
	return w.read(path)
}

func TestPushRestoresLostBytes(t *testing.T) {
	w := newWorld(t)
	in := w.build("1.1.0", "better")
	p := w.pushed(in)
	if err := os.Remove(filepath.Join(w.service.Dir, p.SHA256)); err != nil {
		t.Fatal(err)
	}
	_, err := w.serve(http.MethodGet, p.File, nil)
	w.wantKind(err, fleet.Unavailable, "push it again")
	w.pushed(in)
	w.holds(p)
}

func TestPushReadsPlatformOfLegacyPackageFromProgram(t *testing.T) {
	w := newWorld(t)
	described := fakepkg.DescribeLegacy("1.1.0")
	legacy := func(agent string) parcel {
		dir := t.TempDir()
		agentFile, watcherFile := filepath.Join(dir, "a"), filepath.Join(dir, "w")
		for file, body := range map[string]string{agentFile: agent, watcherFile: "#!/bin/sh\n"} {
			if err := os.WriteFile(file, []byte(body), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		name := manifest.ArchiveName("1.1.0", "linux", "arm64", build.TarGz)
		path := fakepkg.Write(t, dir, name, fakepkg.Legacy(t, described, agentFile, watcherFile))
		return w.read(path)
	}
	_, err := w.push(legacy("#!/bin/sh\n"))
	w.wantKind(err, fleet.Invalid, "set os and arch")
	_, err = w.push(legacy(fakepkg.Program("linux", "amd64")))
	w.wantKind(err, fleet.Invalid, "by its manifest the package is muster-agent-1.1.0-linux-amd64.tar.gz")
	p := w.pushed(legacy(fakepkg.Program("linux", "arm64")))
	if p.Version != "1.1.0" || p.Hash != described.Hash || p.OS != "linux" || p.Arch != "arm64" {
		t.Errorf("record is %+v", p)
	}
	w.holds(p)
}

func TestPushRefusesInvalidPackages(t *testing.T) {
	w := newWorld(t)
	in := w.build("1.1.0", "better")
	old := w.build("1.0.0", "old")
	cut := parcel{in.name, in.body[:len(in.body)/2]}
	for _, c := range []struct {
		name string
		p    parcel
		kind fleet.Kind
		says string
	}{
		{"cut", cut, fleet.Invalid, in.name},
		{"an old package under a new name", parcel{in.name, old.body}, fleet.Invalid, "by its manifest the package is " + old.name},
		{"no archive", parcel{name: in.name, body: []byte("hello")}, fleet.Invalid, "neither a tar.gz nor a zip"},
		{"empty", parcel{name: in.name}, fleet.Invalid, "is empty"},
		{"no package's name", parcel{name: "agent.tar.gz"}, fleet.Invalid, "path.file"},
		{"a name that leads out", parcel{name: "../muster-agent-1.tar.gz"}, fleet.Invalid, "path.file"},
		{"another format", parcel{name: "muster-agent-1.1.0-linux-amd64.rpm"}, fleet.Invalid, "path.file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.t = t
			_, err := w.push(c.p)
			w.wantKind(err, c.kind, c.says)
			w.holds()
		})
	}
	w.t = t
	evil := append(fakepkg.EvilPackages(t, "1.1.0"), fakepkg.EvilLegacyPackages("1.1.0")...)
	for _, e := range evil {
		name := in.name
		if e.Only == build.Zip {
			name = manifest.ArchiveName("1.1.0", "linux", "amd64", build.Zip)
		}
		path := fakepkg.Write(t, t.TempDir(), name, e.Entries)
		if _, err := w.push(w.read(path)); fleet.KindOf(err) != fleet.Invalid || err == nil || !strings.Contains(err.Error(), e.Why) {
			t.Errorf("%s: error is %v, want %q", e.Name, err, e.Why)
		}
	}
	w.holds()
	if len(evil) == 0 {
		t.Error("no malicious packages were tried")
	}
}

func TestPushWithoutPublisherKeyIsRefused(t *testing.T) {
	w := newWorld(t)
	w.service.Trust = rooted(false)
	_, err := w.push(w.build("1.1.0", "better"))
	w.wantKind(err, fleet.Invalid, "muster package keys publish")
	_, err = w.service.AddKey(t.Context(), "not a key", "", "ann")
	w.wantKind(err, fleet.Invalid, "body.public_key")
	w.holds()
}

func TestPublisherKeysAreAddedAndRemovedOnce(t *testing.T) {
	w := newWorld(t)
	text := elasticpkg.NewPublisher(t).PublicKey
	k, err := w.service.AddKey(t.Context(), text, "Elastic", "ann")
	if err != nil || len(k.ID) != 16 {
		t.Fatalf("the key is %+v, %v", k, err)
	}
	if again, err := w.service.AddKey(t.Context(), text, "twice", "eve"); err != nil || again.Name != "Elastic" {
		t.Errorf("added twice it is %+v, %v", again, err)
	}
	if err := w.service.RemoveKey(t.Context(), k.ID, "ann"); err != nil {
		t.Fatal(err)
	}
	w.wantKind(w.service.RemoveKey(t.Context(), k.ID, "ann"), fleet.NotFound, k.ID)
	entries, _, err := w.store.Audit().List(t.Context(), store.AuditQuery{Subject: k.ID, Limit: 9})
	if err != nil || len(entries) != 2 || entries[0].Verb != "publisher_key.remove" || entries[0].Actor != "ann" {
		t.Errorf("the audit trail has %+v, %v", entries, err)
	}
}

func TestFailedPushLeavesNothing(t *testing.T) {
	full := fmt.Errorf("fsync: %w", syscall.ENOSPC)
	for _, c := range []struct {
		name string
		set  func(w *world)
		body func([]byte) io.Reader
		kind fleet.Kind
		says string
	}{
		{name: "too large", set: func(w *world) { w.service.MaxSize = 100 }, kind: fleet.TooLarge, says: "more than 100 bytes"},
		{name: "the disk is full", set: func(w *world) { w.disk.room = 100 }, kind: fleet.Unavailable, says: "free some space"},
		{name: "the disk is full at sync", set: func(w *world) { w.disk.failSync = full }, kind: fleet.Unavailable, says: "free some space"},
		{name: "the disk breaks", set: func(w *world) { w.disk.failSync = syscall.EIO }, kind: fleet.Internal, says: "input/output"},
		{name: "it cannot be moved into place", set: func(w *world) { w.disk.failMove = syscall.EIO }, kind: fleet.Internal, says: "input/output"},
		{name: "cut off", kind: fleet.Invalid, says: "did not arrive whole", body: func(b []byte) io.Reader {
			return io.MultiReader(bytes.NewReader(b[:100]), iotest.ErrReader(io.ErrUnexpectedEOF))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			in := w.build("1.1.0", "better")
			if c.set != nil {
				c.set(w)
			}
			body := io.Reader(bytes.NewReader(in.body))
			if c.body != nil {
				body = c.body(in.body)
			}
			_, err := w.service.Push(t.Context(), in.name, body, "ann")
			w.wantKind(err, c.kind, c.says)
			w.holds()
			*w.disk, w.service.MaxSize = fullDisk{}, 0
			w.holds(w.pushed(in)) // a second push succeeds
		})
	}
}

// The server dies during a push.
func TestCleanUpRemovesFilesOfInterruptedPush(t *testing.T) {
	w := newWorld(t)
	if err := w.service.CleanUp(); err != nil {
		t.Fatalf("before the first push: %v", err)
	}
	p := w.pushed(w.build("1.1.0", "better"))
	half := filepath.Join(w.service.Dir, ".push-half")
	if err := os.WriteFile(half, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.service.CleanUp(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(half); err != nil {
		t.Errorf("a recent file may belong to a push of another server: %v", err)
	}
	yesterday := time.Now().Add(-24 * time.Hour)
	if err := os.Chtimes(half, yesterday, yesterday); err != nil {
		t.Fatal(err)
	}
	if err := w.service.CleanUp(); err != nil {
		t.Fatal(err)
	}
	w.holds(p)
}

func (w *world) serve(method, name string, header map[string]string) (*httptest.ResponseRecorder, error) {
	rec := httptest.NewRecorder()
	r := httptest.NewRequest(method, "/artifacts/"+name, http.NoBody)
	for k, v := range header {
		r.Header.Set(k, v)
	}
	return rec, w.service.Serve(rec, r, name)
}

func TestServePackageWithRanges(t *testing.T) {
	w := newWorld(t)
	in := w.build("1.1.0", "better")
	p := w.pushed(in)
	tag, size := `"`+p.SHA256+`"`, len(in.body)
	for _, c := range []struct {
		name   string
		method string
		header map[string]string
		status int
		body   []byte
	}{
		{name: "whole", status: 200, body: in.body},
		{name: "its size", method: http.MethodHead, status: 200},
		{name: "the rest", header: map[string]string{"Range": "bytes=100-", "If-Range": tag}, status: 206, body: in.body[100:]},
		{name: "a part", header: map[string]string{"Range": "bytes=10-19"}, status: 206, body: in.body[10:20]},
		{name: "the rest of other bytes", header: map[string]string{"Range": "bytes=100-", "If-Range": `"0000"`}, status: 200, body: in.body},
		{name: "behind the end", header: map[string]string{"Range": fmt.Sprintf("bytes=%d-", size)}, status: 416, body: []byte("invalid range: failed to overlap\n")},
		{name: "what it has", header: map[string]string{"If-None-Match": tag}, status: 304},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.method == "" {
				c.method = http.MethodGet
			}
			rec, err := w.serve(c.method, in.name, c.header)
			if err != nil {
				t.Fatal(err)
			}
			if rec.Code != c.status || !bytes.Equal(rec.Body.Bytes(), c.body) {
				t.Errorf("%d with %d bytes, want %d with %d", rec.Code, rec.Body.Len(), c.status, len(c.body))
			}
			if got := rec.Header().Get("ETag"); c.status < 400 && got != tag {
				t.Errorf("ETag is %s", got)
			}
			if got := rec.Header().Get("Content-Length"); c.status == 200 && got != fmt.Sprint(size) {
				t.Errorf("Content-Length is %s", got)
			}
		})
	}
	for _, name := range []string{"muster-agent-9.9.9-linux-amd64.tar.gz", "../muster.db", "", in.name + ".minisig", p.SHA256} {
		_, err := w.serve(http.MethodGet, name, nil)
		w.wantKind(err, fleet.NotFound, "no package")
	}
}

func TestDeletedPackageIsNotServed(t *testing.T) {
	w := newWorld(t)
	in := w.build("1.1.0", "bad")
	p := w.pushed(in)
	if err := w.service.Delete(t.Context(), p.File, "ann"); err != nil {
		t.Fatal(err)
	}
	w.holds()
	_, err := w.serve(http.MethodGet, p.File, nil)
	w.wantKind(err, fleet.NotFound, "muster package push")
	w.wantKind(w.service.Delete(t.Context(), p.File, "ann"), fleet.NotFound, p.File)
	w.holds(w.pushed(w.build("1.1.0", "fixed"))) // the name is free for other bytes
}

// Two build machines push the same name at the same moment.
func TestConcurrentPushesOfOneNamePublishOne(t *testing.T) {
	w := newWorld(t)
	same, other := w.build("1.1.0", "one"), w.build("1.1.0", "two")
	type outcome struct {
		p   fleet.Package
		err error
	}
	outcomes := make(chan outcome)
	for _, in := range []parcel{same, same, other} {
		go func() {
			p, err := w.service.Push(t.Context(), in.name, iotest.OneByteReader(bytes.NewReader(in.body)), "ann")
			outcomes <- outcome{p, err}
		}()
	}
	var won []fleet.Package
	for range 3 {
		select {
		case o := <-outcomes:
			if o.err == nil {
				won = append(won, o.p)
			} else {
				w.wantKind(o.err, fleet.Conflict, "other content")
			}
		case <-time.After(20 * time.Second):
			t.Fatal("a push has not ended within 20 s")
		}
	}
	if len(won) == 0 {
		t.Fatal("no push succeeded")
	}
	for _, p := range won {
		if p.SHA256 != won[0].SHA256 {
			t.Errorf("pushes of different contents succeeded: %s and %s", p.SHA256, won[0].SHA256)
		}
	}
	w.holds(won[0])
}
