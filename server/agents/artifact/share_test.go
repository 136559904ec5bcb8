package artifact_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/server/agents/artifact"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/store/storehealth"
)

// memoryData is store.PackageData in memory; storetest tests the real ones.
type memoryData struct {
	mu      sync.Mutex
	content map[string][]byte
	written map[string]time.Time
	gets    int
	fail    error
	// held blocks a Get between its first half and its second.
	held chan struct{}
	// late makes lists empty, as in a store whose search lags.
	late bool
}

func (d *memoryData) Put(_ context.Context, digest string, size int64, r io.Reader) error {
	b, err := io.ReadAll(r)
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err != nil:
		return err
	case d.fail != nil:
		return d.fail
	case int64(len(b)) != size:
		return fmt.Errorf("%d bytes were announced as %d", len(b), size)
	}
	d.content[digest], d.written[digest] = b, time.Now()
	return nil
}

func (d *memoryData) Get(ctx context.Context, digest string, w io.Writer) error {
	d.mu.Lock()
	d.gets++
	b, there := d.content[digest]
	held, fail := d.held, d.fail
	d.mu.Unlock()
	switch {
	case fail != nil:
		return fail
	case !there:
		return fleet.Errorf(fleet.NotFound, "there is no %s", digest)
	}
	half := len(b) / 2
	if _, err := w.Write(b[:half]); err != nil {
		return err
	}
	if held != nil {
		select {
		case <-held:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	_, err := w.Write(b[half:])
	return err
}

func (d *memoryData) Delete(_ context.Context, digest string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail != nil {
		return d.fail
	}
	delete(d.content, digest)
	return nil
}

func (d *memoryData) List(context.Context) ([]store.PackageBytes, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []store.PackageBytes
	if d.late {
		return nil, d.fail
	}
	for digest := range d.content {
		out = append(out, store.PackageBytes{SHA256: digest, Whole: true, Written: d.written[digest]})
	}
	return out, d.fail
}

// set changes the data concurrently with the service.
func (d *memoryData) set(change func(*memoryData)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(d)
}

func (d *memoryData) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.gets
}

// has returns the stored digests.
func (d *memoryData) has() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.content))
}

// dataStore is a store that has package data.
type dataStore struct {
	store.Store
	memoryData *memoryData
}

func (s dataStore) PackageData() store.PackageData { return s.memoryData }

// servers makes w's server one of two with folders of their own.
func servers(t *testing.T) (first, second *world, d *memoryData) {
	t.Helper()
	first = newWorld(t)
	d = &memoryData{content: map[string][]byte{}, written: map[string]time.Time{}}
	both := dataStore{first.store, d}
	first.service.Store = both
	second = &world{t: t, store: first.store, disk: &fullDisk{}}
	second.service = &artifact.Service{
		Dir: filepath.Join(t.TempDir(), "packages"), Disk: second.disk, Store: both, Health: &storehealth.Monitor{}, Log: first.service.Log, Trust: rooted(true),
		Events: &event.Stream{Store: first.store.Events(), Log: first.service.Log},
	}
	return first, second, d
}

// folder lists the files in a server's folder.
func (w *world) folder() []string {
	w.t.Helper()
	entries, err := os.ReadDir(w.service.Dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		w.t.Fatal(err)
	}
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// serves checks that a complete download returns these bytes.
func (w *world) serves(in parcel) {
	w.t.Helper()
	rec, err := w.serve(http.MethodGet, in.name, nil)
	if err != nil || rec.Code != http.StatusOK || !bytes.Equal(rec.Body.Bytes(), in.body) {
		w.t.Fatalf("a download gives %d with %d bytes, %v", rec.Code, rec.Body.Len(), err)
	}
}

func TestPackagePushedToOneServerIsServedByOthers(t *testing.T) {
	first, second, d := servers(t)
	in := first.build("1.1.0", "better")
	p := first.pushed(in)
	second.serves(in)
	rec, err := second.serve(http.MethodGet, in.name, map[string]string{"Range": "bytes=10-19"})
	if err != nil || rec.Code != http.StatusPartialContent || !bytes.Equal(rec.Body.Bytes(), in.body[10:20]) {
		t.Errorf("a part: %d, %v", rec.Code, err)
	}
	if d.count() != 1 {
		t.Errorf("it was fetched %d times", d.count())
	}
	for _, w := range []*world{first, second} {
		if got := w.folder(); !slices.Equal(got, []string{p.SHA256 + ".copy"}) {
			t.Errorf("a folder has %v", got)
		}
	}
	// A server has lost its disk.
	if err := os.RemoveAll(first.service.Dir); err != nil {
		t.Fatal(err)
	}
	first.serves(in)

	if err := second.service.Delete(t.Context(), in.name, "ann"); err != nil {
		t.Fatal(err)
	}
	for _, w := range []*world{first, second} {
		_, err := w.serve(http.MethodGet, in.name, nil)
		w.wantKind(err, fleet.NotFound, in.name)
	}
	if len(d.has()) != 0 || len(second.folder()) != 0 {
		t.Errorf("after it was withdrawn there are %v, and %v", d.has(), second.folder())
	}
	second.pushed(in)
	first.serves(in)
}

func TestConcurrentDownloadsShareOneFetch(t *testing.T) {
	first, second, d := servers(t)
	in := first.build("1.1.0", "better")
	first.pushed(in)
	d.set(func(d *memoryData) { d.held = make(chan struct{}) })
	leaving, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		r := httptest.NewRequestWithContext(leaving, http.MethodGet, "/", http.NoBody)
		left <- second.service.Serve(httptest.NewRecorder(), r, in.name)
	}()
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			rec, err := second.serve(http.MethodGet, in.name, nil)
			if err != nil || !bytes.Equal(rec.Body.Bytes(), in.body) {
				t.Errorf("one got %d bytes, %v", rec.Body.Len(), err)
			}
		})
	}
	eventually(t, "the fetch to begin", func() bool { return d.count() > 0 })
	leave() // whether it began the fetch or joined it, the others complete
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("the cancelled download got %v", err)
	}
	close(d.held)
	all.Wait()
	if d.count() != 1 {
		t.Errorf("there were %d fetches", d.count())
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func TestDownloadAnswersBeforeAgentsGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second, d := servers(t)
		in := first.build("1.1.0", "better")
		first.pushed(in)
		held := make(chan struct{})
		d.set(func(d *memoryData) { d.held = held })
		began := time.Now()
		_, err := second.serve(http.MethodGet, in.name, nil)
		second.wantKind(err, fleet.Unavailable, "on its way from the store")
		if took := time.Since(began); took >= time.Minute || took < 10*time.Second {
			t.Errorf("the answer took %s; agents give up after a minute", took)
		}
		close(held)
		synctest.Wait()
		second.serves(in)
		if d.count() != 1 {
			t.Errorf("there were %d fetches", d.count())
		}
	})
}

func TestFetchRefusesWrongBytes(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(w *world, d *memoryData, digest string)
		says  string
	}{
		{"damaged", func(_ *world, d *memoryData, digest string) { d.content[digest][7] ^= 1 }, "are not those that were published"},
		{"cut off", func(_ *world, d *memoryData, digest string) { d.content[digest] = d.content[digest][:100] }, "are not those that were published"},
		{"missing everywhere", func(_ *world, d *memoryData, digest string) { delete(d.content, digest) }, "are missing, on this server and in the store: push it again"},
		{"the store is away", func(_ *world, d *memoryData, _ string) { d.fail = fleet.Errorf(fleet.Unavailable, "away") }, "away"},
		{"the disk is full", func(w *world, _ *memoryData, _ string) { w.disk.room = 100 }, "free some space"},
		{"the disk is full at sync", func(w *world, _ *memoryData, _ string) { w.disk.failSync = syscall.ENOSPC }, "free some space"},
	} {
		t.Run(c.name, func(t *testing.T) {
			first, second, d := servers(t)
			now := time.Now()
			second.service.Now = func() time.Time { return now }
			in := first.build("1.1.0", "better")
			p := first.pushed(in)
			d.set(func(d *memoryData) { c.spoil(second, d, p.SHA256) })
			for range 3 {
				_, err := second.serve(http.MethodGet, in.name, nil)
				second.wantKind(err, fleet.Unavailable, c.says)
			}
			if d.count() != 1 {
				t.Errorf("three downloads caused %d fetches", d.count())
			}
			if got := second.folder(); len(got) != 0 {
				t.Errorf("the folder has %v", got)
			}
			d.set(func(d *memoryData) { d.fail = nil })
			second.disk.room, second.disk.failSync = 0, nil
			first.pushed(in) // repairs the store's bytes
			now = now.Add(time.Minute)
			second.serves(in)
		})
	}
}

// A push whose server dies before it has an answer, or whose store refuses the bytes.
func TestPushThatCannotBeStoredPublishesNothing(t *testing.T) {
	first, second, d := servers(t)
	in := first.build("1.1.0", "better")
	d.set(func(d *memoryData) { d.fail = fleet.Errorf(fleet.Unavailable, "the store is away") })
	_, err := first.push(in)
	first.wantKind(err, fleet.Unavailable, "the store is away")
	for _, w := range []*world{first, second} {
		_, err = w.serve(http.MethodGet, in.name, nil)
		w.wantKind(err, fleet.NotFound, "no package")
	}
	d.set(func(d *memoryData) { d.fail = nil })
	first.pushed(in)
	second.serves(in)
}

// run runs the server's synchronization until stop is called.
func (w *world) run() (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	var all sync.WaitGroup
	all.Go(func() { w.service.Run(ctx) })
	all.Go(func() { w.service.Events.Run(ctx) })
	return func() { cancel(); all.Wait() }
}

func TestRunFetchesPushedPackagesAhead(t *testing.T) {
	first, second, d := servers(t)
	d.set(func(d *memoryData) { d.late = true })
	defer second.run()()
	var p fleet.Package
	tries := 0
	eventually(t, "the other server to fetch it", func() bool {
		if tries%100 == 0 { // Run may not follow the stream yet
			p = first.pushed(first.build(fmt.Sprintf("1.1.%d", tries), "better"))
		}
		tries++
		return slices.Contains(second.folder(), p.SHA256+".copy")
	})
	// The store is away, the copy is there.
	d.set(func(d *memoryData) { clear(d.content) })
	rec, err := second.serve(http.MethodGet, p.File, nil)
	if err != nil || int64(rec.Body.Len()) != p.Size {
		t.Errorf("a download gives %d bytes, %v", rec.Body.Len(), err)
	}
}

func TestRunUploadsPackagesMissingFromStore(t *testing.T) {
	first, second, d := servers(t)
	in := first.build("1.1.0", "better")
	p := first.pushed(in)
	d.set(func(d *memoryData) { clear(d.content) })
	_, err := second.serve(http.MethodGet, in.name, nil)
	second.wantKind(err, fleet.Unavailable, "missing")
	first.serves(in)

	stop := first.run()
	eventually(t, "it to be in the store", func() bool { return len(d.has()) == 1 })
	stop()
	if got := first.folder(); !slices.Equal(got, []string{p.SHA256 + ".copy"}) {
		t.Errorf("the folder has %v", got)
	}
	second.service.Now = func() time.Time { return time.Now().Add(time.Minute) } // the failed fetch is not retried at once
	second.serves(in)
}

func TestRunRemovesBytesWithoutRecord(t *testing.T) {
	first, _, d := servers(t)
	now := time.Now()
	first.service.Now = func() time.Time { return now }
	in := first.build("1.1.0", "better")
	p := first.pushed(in)
	digest := func(c string) string { return strings.Repeat(c, 64) }
	age := func(d time.Duration, names ...string) {
		for _, name := range names {
			path := filepath.Join(first.service.Dir, name)
			if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(path, now, now.Add(-d)); err != nil {
				t.Fatal(err)
			}
		}
	}
	age(4*time.Hour, digest("a")+".copy", ".push-old", ".fetch-old")
	// A push in progress, and a package of a server without package data.
	age(2*time.Hour, digest("b")+".copy", ".push-new", ".fetch-new")
	age(1000*time.Hour, digest("c"), "README")
	d.set(func(d *memoryData) {
		for c, age := range map[string]time.Duration{"a": 25 * time.Hour, "b": 23 * time.Hour} {
			d.content[digest(c)], d.written[digest(c)] = []byte("x"), now.Add(-age)
		}
	})
	want := slices.Sorted(slices.Values([]string{digest("b") + ".copy", ".push-new", ".fetch-new", digest("c"), "README", p.SHA256 + ".copy"}))
	stop := first.run()
	eventually(t, "the round", func() bool { return len(d.has()) == 2 })
	stop()
	if got := first.folder(); !slices.Equal(got, want) {
		t.Errorf("the folder has %v, want %v", got, want)
	}
	if got := d.has(); !slices.Equal(got, slices.Sorted(slices.Values([]string{digest("b"), p.SHA256}))) {
		t.Errorf("the store has %v", got)
	}
}
