package diagnostics

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/sqlite/sqlitetest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

var start = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

type world struct {
	t    *testing.T
	s    *Service
	now  time.Time
	disk *smallDisk
}

// smallDisk is a disk with little space.
type smallDisk struct {
	disk.OS
	free int64 // 0: enough
	full bool
}

func (d *smallDisk) Free(op, path string) (int64, error) {
	if d.free > 0 {
		return d.free, nil
	}
	return d.OS.Free(op, path)
}

func (d *smallDisk) OpenFile(op, path string, flag int, perm os.FileMode) (disk.File, error) {
	if d.full && flag&os.O_WRONLY != 0 {
		return nil, &disk.Error{Op: op, Err: &os.PathError{Op: "open", Path: path, Err: syscall.ENOSPC}}
	}
	return d.OS.OpenFile(op, path, flag, perm)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, now: start, disk: &smallDisk{}}
	w.s = &Service{
		Store: sqlitetest.Open(t, filepath.Join(t.TempDir(), "muster.db")), Dir: filepath.Join(t.TempDir(), "uploads"), Disk: w.disk,
		Now: func() time.Time { return w.now },
	}
	return w
}

// agent returns an agent that was asked for diagnostics by the actions.
func agent(id string, actions ...string) fleet.Agent {
	a := fleet.Agent{ID: id, Active: true}
	for _, act := range actions {
		a.RequestDiagnostics(fleet.DiagnosticsRequest{ActionID: act, At: start, Until: start.Add(fleet.DiagnosticsExpiration)})
	}
	return a
}

func announce(a fleet.Agent, action string, size int64) agentapi.UploadBegin {
	return agentapi.UploadBegin{
		ActionID: action, AgentID: a.ID, Source: agentapi.UploadSource, File: agentapi.UploadFile{Name: action + ".zip", MIMEType: "application/zip", Size: &size},
	}
}

func (w *world) begin(a fleet.Agent, action string, size int64) fleet.Upload {
	w.t.Helper()
	u, err := w.s.Begin(w.t.Context(), a, announce(a, action, size))
	if err != nil {
		w.t.Fatal(err)
	}
	return u
}

// send sends a whole file.
func (w *world) send(a fleet.Agent, action, content string) fleet.Upload {
	w.t.Helper()
	ctx := w.t.Context()
	u := w.begin(a, action, int64(len(content)))
	sum := sha256.Sum256([]byte(content))
	if err := w.s.Chunk(ctx, u, 0, hex.EncodeToString(sum[:]), []byte(content)); err != nil {
		w.t.Fatal(err)
	}
	transit := sha256.Sum256(sum[:])
	if err := w.s.Complete(ctx, a.ID, u.ID, hex.EncodeToString(transit[:])); err != nil {
		w.t.Fatal(err)
	}
	return u
}

func (w *world) content(id string) (string, error) {
	u, err := w.s.Get(w.t.Context(), id)
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	err = w.s.Copy(w.t.Context(), u, &b)
	return b.String(), err
}

func (w *world) files() int {
	list, err := os.ReadDir(w.s.Dir)
	if err != nil {
		w.t.Fatal(err)
	}
	return len(list)
}

func TestEqualFilesOfTwoAgentsAreKeptApart(t *testing.T) {
	w := newWorld(t)
	a, b := agent("a", "act"), agent("b", "act")
	first, second := w.send(a, "act", "same"), w.send(b, "act", "same")
	if err := w.s.Delete(t.Context(), first.ID, "admin"); err != nil {
		t.Fatal(err)
	}
	if got, err := w.content(second.ID); got != "same" || err != nil {
		t.Errorf("the other file is %q (%v)", got, err)
	}
	if n := w.files(); n != 1 {
		t.Errorf("%d files are left", n)
	}
}

func TestOldAndUnfinishedFilesExpire(t *testing.T) {
	w := newWorld(t)
	a := agent("a", "whole", "half")
	whole := w.send(a, "whole", "abc")
	half := w.begin(a, "half", 5)
	sum := sha256.Sum256([]byte("hello"))
	if err := w.s.Chunk(t.Context(), half, 0, hex.EncodeToString(sum[:]), []byte("hello")); err != nil {
		t.Fatal(err)
	}
	states := func() (out []string) {
		t.Helper()
		if err := w.s.Expire(t.Context()); err != nil {
			t.Fatal(err)
		}
		list, err := w.s.List(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range list {
			out = append(out, f.Status)
		}
		return out
	}
	for _, c := range []struct {
		after time.Duration
		want  []string
		files int
	}{
		{0, []string{"AWAITING_UPLOAD", "READY"}, 2},
		{24 * time.Hour, []string{"AWAITING_UPLOAD", "READY"}, 2},
		{24*time.Hour + time.Second, []string{"EXPIRED", "READY"}, 1},
		{Age, []string{"READY"}, 1}, // the request without a file is not listed any more
		{Age + time.Second, nil, 0},
	} {
		w.now = start.Add(c.after)
		if got := states(); !slices.Equal(got, c.want) || w.files() != c.files {
			t.Errorf("after %s the requests are %v and %d files, want %v and %d", c.after, got, w.files(), c.want, c.files)
		}
	}
	if _, err := w.content(whole.ID); fleet.KindOf(err) != fleet.NotFound {
		t.Errorf("the expired file gives %v", err)
	}
}

func TestAnAgentKeepsItsLatestFiles(t *testing.T) {
	w := newWorld(t)
	var actions []string
	for i := range fleet.MaxDiagnostics + 2 {
		actions = append(actions, fmt.Sprint("act-", i))
	}
	a := agent("a", actions...)
	if len(a.Diagnostics) != fleet.MaxDiagnostics || a.Diagnostics[0].ActionID != "act-2" {
		t.Errorf("the agent has %+v", a.Diagnostics)
	}
	for i, act := range actions {
		w.now = start.Add(time.Duration(i) * time.Minute)
		w.send(a, act, act)
	}
	again := w.send(a, "act-6", "again") // after a restart
	list, err := w.s.List(t.Context(), a)
	if err != nil || len(list) != fleet.MaxDiagnostics || list[0].ID != again.ID || list[4].Name != "act-2.zip" {
		t.Errorf("the files are %+v (%v)", list, err)
	}
	if got, err := w.content(again.ID); got != "again" || err != nil {
		t.Errorf("the file is %q (%v)", got, err)
	}
	if n := w.files(); n != fleet.MaxDiagnostics {
		t.Errorf("%d files are kept", n)
	}
}

func TestAFullDiskIsAClearError(t *testing.T) {
	w := newWorld(t)
	a := agent("a", "act")
	w.disk.free = keepFree
	if _, err := w.s.Begin(t.Context(), a, announce(a, "act", 1)); fleet.KindOf(err) != fleet.Unavailable || !strings.Contains(err.Error(), "disk is full: free some space under") {
		t.Errorf("without space Begin gives %v", err)
	}
	w.disk.free = 0
	u := w.begin(a, "act", 3)
	w.disk.full = true
	sum := sha256.Sum256([]byte("abc"))
	if err := w.s.Chunk(t.Context(), u, 0, hex.EncodeToString(sum[:]), []byte("abc")); fleet.KindOf(err) != fleet.Unavailable || !strings.Contains(err.Error(), "disk is full") {
		t.Errorf("without space Chunk gives %v", err)
	}
	w.disk.full = false
	w.send(a, "act", "abc")
}

// sharedStore keeps the bytes of packages, as a store of several servers does.
type sharedStore struct {
	store.Store
	data map[string][]byte
}

func (s sharedStore) PackageData() store.PackageData { return packageData{data: s.data} }

type packageData struct {
	store.PackageData
	data map[string][]byte
}

func (d packageData) Put(_ context.Context, key string, size int64, r io.Reader) error {
	b, err := io.ReadAll(r)
	if sum := sha256.Sum256(b); int64(len(b)) != size || hex.EncodeToString(sum[:]) != key {
		return fleet.Errorf(fleet.Invalid, "other bytes")
	}
	d.data[key] = b
	return err
}

func (d packageData) Get(_ context.Context, key string, w io.Writer) error {
	b, ok := d.data[key]
	if !ok {
		return fleet.Errorf(fleet.NotFound, "no bytes")
	}
	_, err := w.Write(b)
	return err
}

func (d packageData) Delete(_ context.Context, key string) error {
	delete(d.data, key)
	return nil
}

func TestServersShareTheBytes(t *testing.T) {
	first, second := newWorld(t), newWorld(t)
	shared := sharedStore{first.s.Store, map[string][]byte{}}
	first.s.Store, second.s.Store = shared, shared
	u := first.send(agent("a", "act"), "act", "abc")
	if got, err := second.content(u.ID); got != "abc" || err != nil {
		t.Errorf("the other server has %q (%v)", got, err)
	}
	for key := range shared.data {
		shared.data[key] = bytes.Replace(shared.data[key], []byte("abc"), []byte("abx"), 1)
	}
	if _, err := second.content(u.ID); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("damaged bytes give %v", err)
	}
	if err := second.s.Delete(t.Context(), u.ID, "admin"); err != nil || len(shared.data) != 0 {
		t.Errorf("the deletion left %d chunks (%v)", len(shared.data), err)
	}
}

func TestRoomIsBoundedAndRequestedFilesStay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		one := func(t *rapid.T, label string) fleet.Upload {
			return fleet.Upload{
				AgentID: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, label+" agent"), ActionID: rapid.SampledFrom([]string{"1", "2", "3", "4", "5", "6", "7"}).Draw(t, label+" action"),
				Size: rapid.SampledFrom([]int64{1, MaxFile, maxTotal / 2, maxTotal}).Draw(t, label+" size"), Requested: rapid.Bool().Draw(t, label+" requested"),
			}
		}
		var all []fleet.Upload
		for i := range rapid.IntRange(0, 20).Draw(t, "uploads") {
			u := one(t, fmt.Sprint(i))
			u.ID = fmt.Sprint(i)
			all = append(all, u)
		}
		u := one(t, "new")
		gone, ok := room(all, &u)
		left, own := u.Size, 1
		for _, o := range all {
			removed := slices.ContainsFunc(gone, func(g fleet.Upload) bool { return g.ID == o.ID })
			if removed && o.Requested && !u.Requested && o.AgentID != u.AgentID {
				t.Fatalf("%+v replaced %+v of another agent, which was requested", u, o)
			}
			if removed {
				continue
			}
			left += o.Size
			if o.AgentID == u.AgentID {
				own++
			}
			if o.AgentID == u.AgentID && o.ActionID == u.ActionID {
				t.Fatalf("%+v was kept beside %+v", o, u)
			}
		}
		if ok && left > maxTotal || own > fleet.MaxDiagnostics {
			t.Fatalf("%d bytes are kept, and %d files of the agent", left, own)
		}
		if !ok && u.Requested && u.Size <= maxTotal {
			t.Fatalf("there was no room for %+v", u)
		}
	})
}
