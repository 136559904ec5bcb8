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

	"github.com/muster-fleet/muster/server/artifact"
	"github.com/muster-fleet/muster/server/event"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/storehealth"
)

// depot keeps bytes for all servers, in memory; storetest proves the real one.
type depot struct {
	mu      sync.Mutex
	content map[string][]byte
	written map[string]time.Time
	gets    int
	fail    error
	// held is what a Get waits for between its first half and its second.
	held chan struct{}
	// late lists know of nothing yet.
	late bool
}

func (d *depot) Put(_ context.Context, digest string, size int64, r io.Reader) error {
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

func (d *depot) Get(ctx context.Context, digest string, w io.Writer) error {
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

func (d *depot) Delete(_ context.Context, digest string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail != nil {
		return d.fail
	}
	delete(d.content, digest)
	return nil
}

func (d *depot) List(context.Context) ([]store.PackageBytes, error) {
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

// set changes the depot as somebody else.
func (d *depot) set(change func(*depot)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(d)
}

func (d *depot) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.gets
}

// has are the digests there are.
func (d *depot) has() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.content))
}

// withDepot is a store that keeps the bytes of packages.
type withDepot struct {
	store.Store
	depot *depot
}

func (s withDepot) PackageData() store.PackageData { return s.depot }

// replicas makes the world's server one of two with folders of their own.
func replicas(t *testing.T) (first, second *world, d *depot) {
	t.Helper()
	first = newWorld(t)
	d = &depot{content: map[string][]byte{}, written: map[string]time.Time{}}
	both := withDepot{first.store, d}
	first.service.Store = both
	second = &world{t: t, store: first.store, disk: &fullDisk{}, key: first.key}
	second.service = &artifact.Service{
		Dir: filepath.Join(t.TempDir(), "packages"), Disk: second.disk, Store: both, Health: &storehealth.Monitor{}, Log: first.service.Log,
		Events: &event.Stream{Store: first.store.Events(), Log: first.service.Log},
	}
	return first, second, d
}

// folder is what lies in a server's folder.
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

// serves wants a whole download to bring these bytes.
func (w *world) serves(in parcel) {
	w.t.Helper()
	rec, err := w.serve(http.MethodGet, in.name, nil)
	if err != nil || rec.Code != http.StatusOK || !bytes.Equal(rec.Body.Bytes(), in.body) {
		w.t.Fatalf("a download gives %d with %d bytes, %v", rec.Code, rec.Body.Len(), err)
	}
}

func TestWhatIsPushedAtOneServerIsFetchedAtEveryOther(t *testing.T) {
	first, second, d := replicas(t)
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
	// A server that lost its disk.
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

func TestAllWhoAskAtOnceWaitForOneFetch(t *testing.T) {
	first, second, d := replicas(t)
	in := first.build("1.1.0", "better")
	first.pushed(in)
	d.set(func(d *depot) { d.held = make(chan struct{}) })
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
	leave() // it began the fetch or joined it; the others get theirs all the same
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("who left got %v", err)
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

func TestADownloadDoesNotWaitLongerThanAgentsDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second, d := replicas(t)
		in := first.build("1.1.0", "better")
		first.pushed(in)
		held := make(chan struct{})
		d.set(func(d *depot) { d.held = held })
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

func TestBytesThatAreNotThosePublishedAreNotServed(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(w *world, d *depot, digest string)
		says  string
	}{
		{"damaged", func(_ *world, d *depot, digest string) { d.content[digest][7] ^= 1 }, "are not those that were published"},
		{"cut off", func(_ *world, d *depot, digest string) { d.content[digest] = d.content[digest][:100] }, "are not those that were published"},
		{"missing everywhere", func(_ *world, d *depot, digest string) { delete(d.content, digest) }, "are missing, on this server and in the store: push it again"},
		{"the store is away", func(_ *world, d *depot, _ string) { d.fail = fleet.Errorf(fleet.Unavailable, "away") }, "away"},
		{"the disk is full", func(w *world, _ *depot, _ string) { w.disk.room = 100 }, "free some space"},
		{"the disk is full at last", func(w *world, _ *depot, _ string) { w.disk.failSync = syscall.ENOSPC }, "free some space"},
	} {
		t.Run(c.name, func(t *testing.T) {
			first, second, d := replicas(t)
			now := time.Now()
			second.service.Now = func() time.Time { return now }
			in := first.build("1.1.0", "better")
			p := first.pushed(in)
			d.set(func(d *depot) { c.spoil(second, d, p.SHA256) })
			for range 3 {
				_, err := second.serve(http.MethodGet, in.name, nil)
				second.wantKind(err, fleet.Unavailable, c.says)
			}
			if d.count() != 1 {
				t.Errorf("three asked, and it was fetched %d times", d.count())
			}
			if got := second.folder(); len(got) != 0 {
				t.Errorf("the folder has %v", got)
			}
			d.set(func(d *depot) { d.fail = nil })
			second.disk.room, second.disk.failSync = 0, nil
			first.pushed(in) // repairs what the store has
			now = now.Add(time.Minute)
			second.serves(in)
		})
	}
}

// A push whose server dies before it has an answer, or whose store does not take it.
func TestAPushThatCannotBeSharedPublishesNothing(t *testing.T) {
	first, second, d := replicas(t)
	in := first.build("1.1.0", "better")
	d.set(func(d *depot) { d.fail = fleet.Errorf(fleet.Unavailable, "the store is away") })
	_, err := first.push(in)
	first.wantKind(err, fleet.Unavailable, "the store is away")
	for _, w := range []*world{first, second} {
		_, err = w.serve(http.MethodGet, in.name, nil)
		w.wantKind(err, fleet.NotFound, "no package")
	}
	d.set(func(d *depot) { d.fail = nil })
	first.pushed(in)
	second.serves(in)
}

// run keeps a server in step until the function returned is called.
func (w *world) run() (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	var all sync.WaitGroup
	all.Go(func() { w.service.Run(ctx) })
	all.Go(func() { w.service.Events.Run(ctx) })
	return func() { cancel(); all.Wait() }
}

func TestAServerHasWhatIsPushedElsewhereBeforeAgentsAsk(t *testing.T) {
	first, second, d := replicas(t)
	d.set(func(d *depot) { d.late = true })
	defer second.run()()
	var p fleet.Package
	tries := 0
	eventually(t, "the other server to fetch it", func() bool {
		if tries%100 == 0 { // it may not have followed the stream yet
			p = first.pushed(first.build(fmt.Sprintf("1.1.%d", tries), "better"))
		}
		tries++
		return slices.Contains(second.folder(), p.SHA256+".copy")
	})
	// The store goes, the copy does not.
	d.set(func(d *depot) { clear(d.content) })
	rec, err := second.serve(http.MethodGet, p.File, nil)
	if err != nil || int64(rec.Body.Len()) != p.Size {
		t.Errorf("a download gives %d bytes, %v", rec.Body.Len(), err)
	}
}

func TestWhatOnlyOneServerHasIsPutIntoTheStore(t *testing.T) {
	first, second, d := replicas(t)
	// From before the store kept packages: under their digest alone.
	alone := first.service.Store
	first.service.Store = first.store
	old := first.build("1.0.0", "old")
	was := first.pushed(old)
	first.service.Store = alone
	_, err := second.serve(http.MethodGet, old.name, nil)
	second.wantKind(err, fleet.Unavailable, "missing")
	first.serves(old)

	in := first.build("1.1.0", "better")
	p := first.pushed(in)
	d.set(func(d *depot) { clear(d.content) })
	stop := first.run()
	eventually(t, "both to be in the store", func() bool { return len(d.has()) == 2 })
	stop()
	if got := first.folder(); !slices.Equal(got, slices.Sorted(slices.Values([]string{was.SHA256, p.SHA256 + ".copy"}))) {
		t.Errorf("the folder has %v", got)
	}
	second.service.Now = func() time.Time { return time.Now().Add(time.Minute) } // it remembers that it failed
	second.serves(old)
	second.serves(in)
}

func TestWhatNoRecordNamesIsRemovedInTime(t *testing.T) {
	first, _, d := replicas(t)
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
	// A push under way, and what a server without a shared store was given: it may be
	// all there is.
	age(2*time.Hour, digest("b")+".copy", ".push-new", ".fetch-new")
	age(1000*time.Hour, digest("c"), "README")
	d.set(func(d *depot) {
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
