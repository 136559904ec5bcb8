package repository_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/install"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf/tuftest"
	"github.com/muster-fleet/muster/server/agents/artifact/repository"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/store/sqlite"
	"github.com/muster-fleet/muster/server/store/sqlite/sqlitetest"
)

// world is a store, and a publisher with one key for root and one for targets.
type world struct {
	t             *testing.T
	store         *sqlite.Store
	log           logBuffer
	root, targets tuf.PrivateKey
	// life is how long targets files are valid.
	life time.Duration
	// now is the services' clock, unless it is zero.
	now time.Time
	// fail, unless nil, is called before each write of a file.
	fail func(op, id string) error
}

// logBuffer collects the log of all servers of a test.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func newWorld(t *testing.T) *world {
	t.Helper()
	s := sqlitetest.Open(t, filepath.Join(t.TempDir(), "muster.db"))
	return &world{t: t, store: s, root: tuftest.Key(t, "rosa"), targets: tuftest.Key(t, "tina"), life: tuf.TargetsLife}
}

func (w *world) time() time.Time {
	if w.now.IsZero() {
		return time.Now()
	}
	return w.now
}

// serve starts a server with a data folder.
func (w *world) serve(dir string) *repository.Service {
	w.t.Helper()
	s, err := w.open(dir)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) open(dir string) (*repository.Service, error) {
	log := slog.New(slog.NewTextHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return repository.Open(w.t.Context(), repository.Config{
		Dir: filepath.Join(dir, "trust"), Disk: disk.OS{}, Files: away{w.store.TrustFiles(), w}, Settings: w.store.Settings(), Audit: w.store.Audit(), Log: log, Now: w.time,
		Events: &event.Stream{Store: w.store.Events(), Log: log, Now: w.time},
	})
}

func (w *world) sign(file, trusted []byte, keys ...tuf.PrivateKey) []byte {
	w.t.Helper()
	for _, k := range keys {
		var err error
		if file, err = tuf.Sign(file, trusted, k); err != nil {
			w.t.Fatal(err)
		}
	}
	return file
}

func (w *world) must(data []byte, err error) []byte {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
	return data
}

func (w *world) spec(online tuf.PublicKey) tuf.RootSpec {
	return tuf.RootSpec{
		Root:     tuf.Signers{Keys: tuftest.Public(w.root), Threshold: 1},
		Targets:  tuf.Signers{Keys: tuftest.Public(w.targets), Threshold: 1},
		Snapshot: online, Timestamp: online, Expires: w.time().Add(tuf.RootLife),
	}
}

// firstRoot returns a signed root that names the server's key.
func (w *world) firstRoot(s *repository.Service) []byte {
	w.t.Helper()
	return w.sign(w.must(tuf.NewRoot(w.spec(view(w.t, s).Online[0]))), nil, w.root)
}

// release returns the next targets file, with one more version.
func (w *world) release(s *repository.Service, root []byte, version string) []byte {
	w.t.Helper()
	e, err := tuf.EditTargets(view(w.t, s).Targets, w.time().Add(w.life))
	if err != nil {
		w.t.Fatal(err)
	}
	target, _ := tuftest.Archive(version, "content of "+version)
	if err := e.AddTarget(target); err != nil {
		w.t.Fatal(err)
	}
	return w.sign(w.must(e.Bytes()), root, w.targets)
}

func view(t *testing.T, s *repository.Service) repository.View {
	t.Helper()
	v, err := s.View(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func publish(t *testing.T, s *repository.Service, files ...[]byte) {
	t.Helper()
	if err := s.Publish(context.Background(), files, "ann"); err != nil {
		t.Fatal(err)
	}
}

// get requests a file as an agent does; refused is the error of Serve.
func get(s *repository.Service, method, name string) (answer *httptest.ResponseRecorder, refused error) {
	answer = httptest.NewRecorder()
	r := httptest.NewRequest(method, "/trust/x", nil)
	return answer, s.Serve(answer, r, name)
}

func served(t *testing.T, s *repository.Service, name string) []byte {
	t.Helper()
	got, err := get(s, http.MethodGet, name)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return got.Body.Bytes()
}

func wantKind(t *testing.T, err error, kind fleet.Kind, says ...string) {
	t.Helper()
	if err == nil || fleet.KindOf(err) != kind {
		t.Fatalf("got %v, want %s", err, kind)
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%q does not say %q", err, s)
		}
	}
}

func TestPublishedFilesAreServedByAllServers(t *testing.T) {
	w := newWorld(t)
	s := w.serve(t.TempDir())
	for _, name := range []string{tuf.TimestampFile, "1.root.json"} {
		_, err := get(s, http.MethodGet, name)
		wantKind(t, err, fleet.NotFound, name+" is not published here", "muster package keys publish")
	}
	root := w.firstRoot(s)
	publish(t, s, root)
	if got := served(t, s, "1.root.json"); !bytes.Equal(got, root) {
		t.Error("the served root is not the published one")
	}
	targets := w.release(s, root, "1.0.0")
	publish(t, s, targets)
	r := view(t, s)
	snapshot, err := tuf.Inspect(r.Snapshot)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]byte{
		"1.root.json": root, "1.targets.json": targets, tuf.TimestampFile: r.Timestamp, snapshot.FileName: r.Snapshot,
	} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			got, err := get(s, method, name)
			body := want
			if method == http.MethodHead {
				body = nil
			}
			if err != nil || got.Code != http.StatusOK || !bytes.Equal(got.Body.Bytes(), body) || got.Header().Get("Content-Length") != fmt.Sprint(len(want)) {
				t.Errorf("%s %s: %d, %d bytes, %v, %v", method, name, got.Code, got.Body.Len(), got.Header(), err)
			}
			cached := strings.Contains(got.Header().Get("Cache-Control"), "immutable")
			if cached == (name == tuf.TimestampFile) {
				t.Errorf("%s says Cache-Control: %s", name, got.Header().Get("Cache-Control"))
			}
		}
	}
	for _, name := range []string{"", "2.root.json", "root.json", "01.root.json", "0.root.json", "1.timestamp.json", "../1.root.json", "1.root.json/", "head", "1.ROOT.json", "1" + strings.Repeat("0", 40) + ".root.json"} {
		got, err := get(s, http.MethodGet, name)
		wantKind(t, err, fleet.NotFound)
		if got.Header().Get("Cache-Control") != "no-cache" {
			t.Errorf("the absence of %q may be cached, but the next root will exist some day", name)
		}
	}
	events, err := w.store.Events().After(t.Context(), 0, 10)
	if err != nil || len(events) != 2 || events[0].Type != fleet.EventTrustPublished || events[0].Actor != "ann" || events[1].Subject != "1.targets.json" {
		t.Errorf("the audit trail has %+v, %v", events, err)
	}
}

func TestPublishRefusesInvalidUploads(t *testing.T) {
	w := newWorld(t)
	s := w.serve(t.TempDir())
	root := w.firstRoot(s)
	publish(t, s, root)
	publish(t, s, w.release(s, root, "1.0.0"))
	draft, err := tuf.EditTargets(view(t, s).Targets, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	before := view(t, s)
	stranger := w.spec(tuftest.Key(t, "elsewhere").Public())
	other := newWorld(t).firstRoot(s)
	for _, tc := range []struct {
		name  string
		files [][]byte
		kind  fleet.Kind
		says  []string
	}{
		{"nothing", nil, fleet.Invalid, []string{"body.files", "is empty"}},
		{"no signed file", [][]byte{root, []byte("hello")}, fleet.Invalid, []string{"body.files[1]", "not JSON"}},
		{"a file of the server's own", [][]byte{before.Timestamp}, fleet.Invalid, []string{"body.files", "signed by the server itself"}},
		{"targets that nobody signed", [][]byte{w.must(draft.Bytes())}, fleet.Invalid, []string{"body.files", "still needs one of: tina ("}},
		{"a root that nobody signed", [][]byte{w.must(tuf.NextRoot(root, w.spec(before.Online[0])))}, fleet.Invalid, []string{"body.files", "still needs one of: rosa ("}},
		{"another publisher's root", [][]byte{other}, fleet.Conflict, []string{"body.files", "version 1"}},
		{
			"a root with a key that the server does not hold",
			[][]byte{w.sign(w.must(tuf.NextRoot(root, stranger)), root, w.root)},
			fleet.Invalid,
			[]string{"body.files", "elsewhere (", "the server holds server (", "--online-key server"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := s.Publish(t.Context(), tc.files, "ann")
			wantKind(t, err, tc.kind, tc.says...)
		})
	}
	if changed, err := tuf.Changes(before.Repository, view(t, s).Repository); err != nil || len(changed) != 0 {
		t.Errorf("what was refused changed %d files, %v", len(changed), err)
	}
	publish(t, s, root) // a second time is no error
}

func TestRestartKeepsMetadataAndKey(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	s := w.serve(dir)
	root := w.firstRoot(s)
	publish(t, s, root, w.release(s, root, "1.0.0"))
	before := served(t, s, tuf.TimestampFile)
	info, err := os.Stat(filepath.Join(dir, "trust", "online.key"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the online key is %v, %v", info, err)
	}
	again := w.serve(dir)
	if got := served(t, again, tuf.TimestampFile); !bytes.Equal(got, before) || !view(t, again).Online[0].Equal(view(t, s).Online[0]) {
		t.Error("the restart changed the timestamp or the key")
	}
	publish(t, again, w.release(again, root, "1.1.0"))
	if got := served(t, s, "2.targets.json"); !bytes.Equal(got, view(t, again).Targets) {
		t.Error("another server on the same store serves another timestamp")
	}
	// An agent that read the previous timestamp completes its refresh.
	served(t, s, "1.targets.json")

	if err := os.WriteFile(filepath.Join(dir, "trust", "online.key"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := w.open(dir); err == nil || !strings.Contains(err.Error(), "online.key") || !strings.Contains(err.Error(), "restore it from a backup") {
		t.Errorf("a damaged key: %v", err)
	}
}

func TestReplacedFilesAreDeletedAfterSupersededLife(t *testing.T) {
	w := newWorld(t)
	w.now = time.Now()
	s := w.serve(t.TempDir())
	root := w.firstRoot(s)
	publish(t, s, root, w.release(s, root, "1.0.0"))
	publish(t, s, w.release(s, root, "1.1.0"))
	count := func() int {
		_, n, err := w.store.TrustFiles().List(t.Context(), 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := count(); n != 6 { // head, root, two targets and two snapshots
		t.Errorf("the store has %d documents", n)
	}
	w.now = w.now.Add(10 * time.Minute)
	publish(t, s, w.release(s, root, "1.2.0"))
	if _, err := get(s, http.MethodGet, "1.targets.json"); err == nil {
		t.Error("a file that was replaced long ago is still served")
	}
	served(t, s, "2.targets.json")
	served(t, s, "1.root.json")
	if n := count(); n != 6 {
		t.Errorf("the store has %d documents", n)
	}
}

func TestKeyRotationHoldsBothKeys(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	s := w.serve(dir)
	root := w.firstRoot(s)
	publish(t, s, root, w.release(s, root, "1.0.0"))
	online := filepath.Join(dir, "trust", "online.key")
	if err := os.Rename(online, filepath.Join(dir, "trust", "online-2026.key")); err != nil {
		t.Fatal(err)
	}
	s = w.serve(dir)
	publish(t, s, w.release(s, root, "1.1.0")) // still with the old key
	keys := view(t, s).Online
	if len(keys) != 2 || keys[0].Equal(keys[1]) {
		t.Fatalf("the server holds %v", keys)
	}
	next := w.sign(w.must(tuf.NextRoot(root, w.spec(keys[0]))), root, w.root)
	publish(t, s, next)
	if err := os.Remove(filepath.Join(dir, "trust", "online-2026.key")); err != nil {
		t.Fatal(err)
	}
	s = w.serve(dir)
	publish(t, s, w.release(s, next, "1.2.0"))
}

// away is a store that fails at a chosen call.
type away struct {
	store.Collection[fleet.TrustFile]
	world *world
}

func (a away) failed(op, id string) error {
	if a.world.fail == nil {
		return nil
	}
	return a.world.fail(op, id)
}

func (a away) Create(ctx context.Context, f fleet.TrustFile) error {
	if err := a.failed("create", f.ID); err != nil {
		return err
	}
	return a.Collection.Create(ctx, f)
}

func (a away) Update(ctx context.Context, f fleet.TrustFile) (int64, error) {
	if err := a.failed("update", f.ID); err != nil {
		return 0, err
	}
	return a.Collection.Update(ctx, f)
}

// Root 2 removes the key that signed the targets: half of this publication would leave
// every host without packages.
func TestInterruptedPublishChangesNothing(t *testing.T) {
	errAway := errors.New("the store is away")
	for broken := 1; ; broken++ {
		w := newWorld(t)
		s := w.serve(t.TempDir())
		root := w.firstRoot(s)
		publish(t, s, root, w.release(s, root, "1.0.0"))
		before := view(t, s)
		calls := 0
		w.fail = func(string, string) error {
			if calls++; calls == broken {
				return errAway
			}
			return nil
		}
		old := w.targets
		w.targets = tuftest.Key(t, "tom")
		next := w.sign(w.must(tuf.NextRoot(root, w.spec(before.Online[0]))), root, w.root)
		files := [][]byte{next, w.release(s, next, "1.1.0")}
		err := s.Publish(t.Context(), files, "ann")
		if err == nil {
			if broken < 4 {
				t.Fatalf("only %d calls were failed", broken-1)
			}
			return
		}
		if !errors.Is(err, errAway) {
			t.Fatalf("call %d: %v", broken, err)
		}
		after := view(t, s)
		if changed, err := tuf.Changes(before.Repository, after.Repository); err != nil || len(changed) != 0 {
			t.Errorf("call %d: %d files changed, %v", broken, len(changed), err)
		}
		w.targets, old = old, w.targets
		publish(t, s, w.release(s, root, "1.1.0")) // the next publication succeeds
		w.targets = old
	}
}

func TestConcurrentPublishersDoNotOverwrite(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	services := []*repository.Service{w.serve(dir), w.serve(dir)}
	root := w.firstRoot(services[0])
	publish(t, services[0], root)
	uploads := [][]byte{w.release(services[0], root, "1.0.0"), w.release(services[1], root, "1.1.0")}
	var all sync.WaitGroup
	errs := make([]error, 2)
	for i, s := range services {
		all.Go(func() { errs[i] = s.Publish(context.Background(), [][]byte{uploads[i]}, "ann") })
	}
	all.Wait()
	// Both are version 1, with different content.
	won := 0
	for i, err := range errs {
		if err == nil {
			won++
			if got := served(t, services[1-i], "1.targets.json"); !bytes.Equal(got, uploads[i]) {
				t.Error("the accepted file is not the one served")
			}
			continue
		}
		wantKind(t, err, fleet.Conflict, "is published")
	}
	if won != 1 {
		t.Errorf("%d were accepted: %v", won, errs)
	}
}

func TestRunRenewsTimestampAndWarnsOfExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		const warned, days = 6, 9 // the first day with a warning, and the number of days
		w.life = repository.ExpiryNotice + warned*24*time.Hour
		s := w.serve(t.TempDir())
		root := w.firstRoot(s)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.Run(ctx) })
		publish(t, s, root, w.release(s, root, "1.0.0"))
		time.Sleep(time.Minute) // let Run finish what is due at the end of the day
		for day := range days {
			for range 8 {
				time.Sleep(3 * time.Hour)
				info, err := tuf.Inspect(served(t, s, tuf.TimestampFile))
				if err != nil || time.Until(info.Expires) < tuf.TimestampLife-tuf.TimestampRenewal-repository.CheckInterval {
					t.Fatalf("on day %d the timestamp is good for %s, %v", day, time.Until(info.Expires), err)
				}
			}
			if got := view(t, s).Warnings; (len(got) > 0) != (day >= warned-1) {
				t.Fatalf("on day %d the warnings are %q", day, got)
			}
		}
		v := view(t, s)
		if v.Problem != "" || len(v.Warnings) != 1 || !strings.Contains(v.Warnings[0], "targets version 1 expires") || !strings.Contains(v.Warnings[0], "tina (") {
			t.Errorf("problem %q, warnings %q", v.Problem, v.Warnings)
		}
		stop()
		running.Wait()
		if n := strings.Count(w.log.String(), "level=WARN"); n != days-warned+1 { // one a day from the first warning on
			t.Errorf("the log warns %d times, want once a day", n)
		}
		_, n, err := w.store.TrustFiles().List(context.Background(), 0, 0)
		if err != nil || n > 6 {
			t.Errorf("after nine days the store has %d documents, %v", n, err)
		}
	})
}

func TestProblemWhenSigningFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.serve(t.TempDir())
		root := w.firstRoot(s)
		publish(t, s, root, w.release(s, root, "1.0.0"))
		var mu sync.Mutex
		broken := true
		w.fail = func(string, string) error {
			mu.Lock()
			defer mu.Unlock()
			if broken {
				return fleet.Errorf(fleet.Unavailable, "the disk is full")
			}
			return nil
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.Run(ctx) })
		time.Sleep(tuf.TimestampRenewal - time.Hour)
		if p := s.Problem(); p != "" {
			t.Errorf("nothing is due, and the problem is %q", p)
		}
		time.Sleep(2 * time.Hour)
		if p := s.Problem(); !strings.Contains(p, "cannot be signed") || !strings.Contains(p, "the disk is full") {
			t.Errorf("the problem is %q", p)
		}
		mu.Lock()
		broken = false
		mu.Unlock()
		time.Sleep(2 * repository.RetryInterval)
		if p := s.Problem(); p != "" {
			t.Errorf("the store is back, and the problem is %q", p)
		}
		stop()
		running.Wait()
		events, err := w.store.Events().After(context.Background(), 2, 10)
		if err != nil || len(events) != 2 || events[0].Type != fleet.EventTrustProblem || events[1].Type != fleet.EventTrustRestored {
			t.Errorf("the events are %+v, %v", events, err)
		}
	})
}

// A server without the key leaves signing to the one that has it, and reports a problem
// when none signs.
func TestServerWithoutKeyReportsOverdueTimestamp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s, other := w.serve(t.TempDir()), w.serve(withFolder(t))
		root := w.firstRoot(s)
		publish(t, s, root, w.release(s, root, "1.0.0"))
		signing, stopSigning := context.WithCancel(t.Context())
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.Run(signing) })
		running.Go(func() { other.Run(ctx) })
		time.Sleep(26 * time.Hour)
		if p := other.Problem(); p != "" {
			t.Errorf("while the other server signs, the problem is %q", p)
		}
		stopSigning()
		for end := time.Now().Add(tuf.TimestampRenewal + 3*repository.CheckInterval); other.Problem() == "" && time.Now().Before(end); {
			time.Sleep(10 * time.Minute)
		}
		if p := other.Problem(); !strings.Contains(p, "does not hold the key") {
			t.Errorf("when no server signs, the problem is %q", p)
		}
		stop()
		running.Wait()
	})
}

// withFolder returns a data folder in which an operator has created the keys' folder.
func withFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "trust"), 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestSecondServerGeneratesNoKey(t *testing.T) {
	for name, published := range map[string]bool{"before there is a root": false, "with a root": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			home := t.TempDir()
			s := w.serve(home)
			root := w.firstRoot(s)
			if published {
				publish(t, s, root, w.release(s, root, "1.0.0"))
			}
			dir := t.TempDir()
			second := w.serve(dir)
			if got := view(t, second).Online; len(got) != 0 {
				t.Fatalf("it generated %v", got)
			}
			if _, err := os.Stat(filepath.Join(dir, "trust")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("its folder: %v", err)
			}
			if log := w.log.String(); !strings.Contains(log, "level=WARN") || !strings.Contains(log, "copy the folder trust") || !strings.Contains(log, dir) {
				t.Errorf("it logged %s", log)
			}
			// Without anything to sign there is no problem.
			if p := second.Problem(); (p != "") != published || published && !strings.Contains(p, "copy the folder trust") {
				t.Errorf("the problem is %q", p)
			}
			if published {
				if got := served(t, second, tuf.TimestampFile); !bytes.Equal(got, served(t, s, tuf.TimestampFile)) {
					t.Error("it does not serve what the other server signs")
				}
			}
			err := second.Publish(t.Context(), [][]byte{root}, "ann")
			if !published {
				wantKind(t, err, fleet.Unavailable, "copy the folder trust")
			}

			if err := os.CopyFS(filepath.Join(dir, "trust"), os.DirFS(filepath.Join(home, "trust"))); err != nil {
				t.Fatal(err)
			}
			second = w.serve(dir)
			if p := second.Problem(); p != "" {
				t.Errorf("with the copy the problem is %q", p)
			}
			publish(t, second, root, w.release(second, root, "1.1.0"))
		})
	}
}

// The key was stolen: the operator removes it and leaves the folder.
func TestRemovedKeyIsReplaced(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	before := view(t, w.serve(dir)).Online[0]
	if err := os.Remove(filepath.Join(dir, "trust", "online.key")); err != nil {
		t.Fatal(err)
	}
	if got := view(t, w.serve(dir)).Online; len(got) != 1 || got[0].String() == before.String() {
		t.Errorf("it holds %v", got)
	}
}

func TestConcurrentFirstStartsGenerateOneKey(t *testing.T) {
	w := newWorld(t)
	var all sync.WaitGroup
	services, dirs := make([]*repository.Service, 3), make([]string, 3)
	for i := range services {
		dirs[i] = t.TempDir()
		all.Go(func() {
			var err error
			if services[i], err = w.open(dirs[i]); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	made := 0
	for i, s := range services {
		_, err := os.Stat(filepath.Join(dirs[i], "trust"))
		if have := err == nil; have != (len(view(t, s).Online) == 1) {
			t.Errorf("server %d: %v, with the keys %v", i, err, view(t, s).Online)
		} else if have {
			made++
		}
	}
	if made != 1 {
		t.Errorf("%d have a key", made)
	}
}

func TestSetWithheld(t *testing.T) {
	w := newWorld(t)
	w.now = time.Now()
	s := w.serve(t.TempDir())
	target, data := tuftest.Archive("1.1.0", "content of 1.1.0")
	sound := fleet.Package{File: target.FileName(), Version: "1.1.0", Size: int64(len(data)), SHA512: target.SHA512}
	why := func(p fleet.Package) string {
		list := []fleet.Package{p}
		if err := s.SetWithheld(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		return list[0].Withheld
	}
	says := func(p fleet.Package, want string) {
		t.Helper()
		if got := why(p); !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("%s %s: %q, want %q", p.File, p.Version, got, want)
		}
	}
	says(sound, "") // without a root
	root := w.firstRoot(s)
	publish(t, s, root)
	says(sound, "have signed no package yet")
	publish(t, s, w.release(s, root, "1.0.0"))
	says(sound, "targets version 1 does not name it")
	publish(t, s, w.release(s, root, "1.1.0"))
	says(sound, "")
	list := []fleet.Package{sound}
	if err := s.SetWithheld(t.Context(), list); err != nil || list[0].Needs != install.UpgradeNeed(target.Size, target.Unpacked, 0) {
		t.Errorf("an upgrade needs %d bytes, %v", list[0].Needs, err)
	}
	changed := sound
	changed.SHA512 = strings.Repeat("0", 128)
	says(changed, "names other bytes")
	e, err := tuf.EditTargets(view(t, s).Targets, w.now.Add(tuf.TargetsLife))
	if err != nil {
		t.Fatal(err)
	}
	if err := e.SetFloor("", "1.1.1"); err != nil {
		t.Fatal(err)
	}
	webTarget, webData := tuftest.ComponentArchive("web", "1.1.0", "content of web")
	web := fleet.Package{File: webTarget.FileName(), Version: "1.1.0", Component: "web", Size: int64(len(webData)), SHA512: webTarget.SHA512}
	says(web, "does not name it")
	if err := e.AddTarget(webTarget); err != nil {
		t.Fatal(err)
	}
	publish(t, s, w.sign(w.must(e.Bytes()), root, w.targets))
	says(sound, "below 1.1.1")
	says(web, "") // the floor is that of agents
	if e, err = tuf.EditTargets(view(t, s).Targets, w.now.Add(tuf.TargetsLife)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(e.AllowDowngrade("web", "1.1.0", w.now.Add(time.Hour)), e.SetFloor("web", "1.1.2")); err != nil {
		t.Fatal(err)
	}
	publish(t, s, w.sign(w.must(e.Bytes()), root, w.targets))
	says(web, "below 1.1.2")
	says(sound, "below 1.1.1")
	for _, p := range []fleet.Package{web, sound} {
		list := []fleet.Package{p}
		if err := s.SetWithheld(t.Context(), list); err != nil || list[0].Downgrade != (p.Component == "web") {
			t.Errorf("%s: going back is allowed: %v, %v", p.File, list[0].Downgrade, err)
		}
	}
	w.now = w.now.Add(tuf.TargetsLife + time.Hour)
	says(sound, "expired on")
}
