// Package tuftest is an in-memory publisher and server for tests of TUF clients:
// keys, signed files, archives, and a source that serves them. A test attacks a
// client by changing what is served.
package tuftest

import (
	"context"
	"crypto/rand"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/trust"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
)

// Repo is a publisher and a server, each with its keys. Fields may be changed
// between calls; only Fetch may be called concurrently.
type Repo struct {
	// RootKeys and TargetsKeys are all offline keys. Those that the newest root
	// names sign.
	RootKeys, TargetsKeys []tuf.PrivateKey
	Online                tuf.Online
	State                 tuf.Repository
	Now                   time.Time

	t  testing.TB
	mu sync.Mutex // also for the assignment of State
	// served is what Fetch returns: all that was ever published, or what an
	// attacker put there.
	served map[string][]byte
}

// New returns a repository without packages: two of three people sign root, two of
// three others sign targets, one online key signs the rest.
func New(t testing.TB) *Repo {
	t.Helper()
	return NewAt(t, time.Now().UTC().Truncate(time.Second), rand.Reader)
}

// NewAt is New at a time and with keys from random, for tests that repeat their bytes.
func NewAt(t testing.TB, now time.Time, random io.Reader) *Repo {
	t.Helper()
	key := func(name string) tuf.PrivateKey { return KeyFrom(t, random, name) }
	r := &Repo{t: t, Now: now, served: map[string][]byte{}}
	r.RootKeys = []tuf.PrivateKey{key("rosa"), key("ruth"), key("rolf")}
	r.TargetsKeys = []tuf.PrivateKey{key("ted"), key("tina"), key("tom")}
	r.Online = tuf.Online{key("server")}
	online := r.Online[0].Public()
	root, err := tuf.NewRoot(tuf.RootSpec{
		Root:     tuf.Signers{Keys: Public(r.RootKeys...), Threshold: 2},
		Targets:  tuf.Signers{Keys: Public(r.TargetsKeys...), Threshold: 2},
		Snapshot: online, Timestamp: online, Expires: r.Now.Add(tuf.RootLife),
	})
	r.must(err)
	r.Publish(r.SignBy(root, nil, r.RootKeys...))
	return r
}

// Key generates a private key.
func Key(t testing.TB, name string) tuf.PrivateKey {
	t.Helper()
	return KeyFrom(t, rand.Reader, name)
}

// KeyFrom generates a private key from random.
func KeyFrom(t testing.TB, random io.Reader, name string) tuf.PrivateKey {
	t.Helper()
	k, err := tuf.GenerateKey(random, name)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Public returns the public keys of keys.
func Public(keys ...tuf.PrivateKey) []tuf.PublicKey {
	var public []tuf.PublicKey
	for _, k := range keys {
		public = append(public, k.Public())
	}
	return public
}

// Archive returns a target for linux/amd64 and the archive's bytes, which are
// content.
func Archive(version, content string) (tuf.Target, []byte) {
	sum := sha512.Sum512([]byte(content))
	return tuf.Target{
		Version: version, OS: "linux", Arch: "amd64", Format: "tar.gz",
		Size: int64(len(content)), Unpacked: 3 * int64(len(content)), SHA512: hex.EncodeToString(sum[:]),
	}, []byte(content)
}

// ComponentArchive is [Archive] for the package of a component.
func ComponentArchive(component, version, content string) (tuf.Target, []byte) {
	target, data := Archive(version, content)
	target.Component = component
	return target, data
}

// SignBy signs the file with each key, whether or not that reaches the threshold.
func (r *Repo) SignBy(file, trusted []byte, keys ...tuf.PrivateKey) []byte {
	r.t.Helper()
	for _, k := range keys {
		var err error
		file, err = tuf.Sign(file, trusted, k)
		r.must(err)
	}
	return file
}

// Release signs a further version whose archive holds content, and publishes it.
// It returns the archive's name.
func (r *Repo) Release(version, content string) string {
	r.t.Helper()
	return r.release(Archive(version, content))
}

// ReleaseComponent is [Repo.Release] for the package of a component.
func (r *Repo) ReleaseComponent(component, version, content string) string {
	r.t.Helper()
	return r.release(ComponentArchive(component, version, content))
}

// archiveName matches the file name of an archive.
var archiveName = regexp.MustCompile(`^(?:muster-agent|muster-component-(.+?))-([0-9]+\.[0-9]+\.[0-9]+.*)-([a-z0-9]+)-([a-z0-9_]+)\.(tar\.gz|zip)$`)

// Sign signs an archive under its file name and publishes it, in place of an earlier one of
// that name.
func (r *Repo) Sign(fileName string, archive []byte) {
	r.t.Helper()
	m := archiveName.FindStringSubmatch(fileName)
	if m == nil {
		r.t.Fatalf("%s is not the name of an archive", fileName)
	}
	target, _ := ComponentArchive(m[1], m[2], string(archive))
	target.OS, target.Arch, target.Format = m[3], m[4], m[5]
	r.PublishTargets(func(e *tuf.Edit) error {
		if err := e.RemoveTarget(fileName); err != nil && !errors.Is(err, tuf.ErrUnknownTarget) {
			return err
		}
		return e.AddTarget(target)
	})
	r.Serve(fileName, archive)
}

// SignFile is [Repo.Sign] for a file.
func (r *Repo) SignFile(archive string) {
	r.t.Helper()
	data, err := os.ReadFile(archive)
	r.must(err)
	r.Sign(filepath.Base(archive), data)
}

// Copy writes the signed metadata into a folder, as `muster package keys mirror` does.
func (r *Repo) Copy(dir string) {
	r.t.Helper()
	files, err := tuf.Changes(tuf.Repository{}, r.State)
	r.must(err)
	for _, f := range files {
		r.must(os.WriteFile(filepath.Join(dir, f.Name), f.Data, 0o600))
	}
}

// TrustRoot returns the digest that hosts pin.
func (r *Repo) TrustRoot() string { return tuf.Digest(r.State.Root()) }

func (r *Repo) release(target tuf.Target, data []byte) string {
	r.t.Helper()
	r.PublishTargets(func(e *tuf.Edit) error { return e.AddTarget(target) })
	r.Serve(target.FileName(), data)
	return target.FileName()
}

// EditTargets returns an unsigned change of the published targets.
func (r *Repo) EditTargets(change func(*tuf.Edit) error) []byte {
	r.t.Helper()
	e, err := tuf.EditTargets(r.State.Targets, r.Now.Add(tuf.TargetsLife))
	r.must(err)
	r.must(change(e))
	file, err := e.Bytes()
	r.must(err)
	return file
}

// PublishTargets changes the published targets, signs them with all keys that may,
// and publishes them.
func (r *Repo) PublishTargets(change func(*tuf.Edit) error) {
	r.t.Helper()
	root := r.State.Root()
	r.Publish(r.SignBy(r.EditTargets(change), root, r.signers(root)...))
}

// signers returns the targets keys that a root names.
func (r *Repo) signers(root []byte) []tuf.PrivateKey {
	spec, err := tuf.SpecOf(root)
	r.must(err)
	return named(r.TargetsKeys, spec.Targets)
}

func named(keys []tuf.PrivateKey, by ...tuf.Signers) []tuf.PrivateKey {
	var all []tuf.PrivateKey
	for _, k := range keys {
		for _, s := range by {
			if containsKey(s.Keys, k.Public()) {
				all = append(all, k)
				break
			}
		}
	}
	return all
}

func containsKey(keys []tuf.PublicKey, k tuf.PublicKey) bool {
	for _, have := range keys {
		if have.Equal(k) {
			return true
		}
	}
	return false
}

// NextRoot returns an unsigned change of the newest root.
func (r *Repo) NextRoot(change func(*tuf.RootSpec)) []byte {
	r.t.Helper()
	spec, err := tuf.SpecOf(r.State.Root())
	r.must(err)
	spec.Expires = r.Now.Add(tuf.RootLife)
	change(&spec)
	next, err := tuf.NextRoot(r.State.Root(), spec)
	r.must(err)
	return next
}

// Rotate publishes the next root, signed by all keys that may, with targets signed
// again if there are any.
func (r *Repo) Rotate(change func(*tuf.RootSpec)) {
	r.t.Helper()
	root := r.NextRoot(change)
	before, err := tuf.SpecOf(r.State.Root())
	r.must(err)
	after, err := tuf.SpecOf(root)
	r.must(err)
	files := [][]byte{r.SignBy(root, r.State.Root(), named(r.RootKeys, before.Root, after.Root)...)}
	if r.State.Targets != nil {
		targets := r.EditTargets(func(*tuf.Edit) error { return nil })
		files = append(files, r.SignBy(targets, root, r.signers(root)...))
	}
	r.Publish(files...)
}

// Publish uploads files to the server, which signs the online roles and serves all
// of them.
func (r *Repo) Publish(files ...[]byte) {
	r.t.Helper()
	state, err := tuf.Accept(r.State, r.Now, files...)
	r.must(err)
	r.install(state)
}

// Resign renews the online roles, as a server does every few hours.
func (r *Repo) Resign() {
	r.t.Helper()
	r.install(r.State)
}

func (r *Repo) install(state tuf.Repository) {
	r.t.Helper()
	state, err := r.Online.Sign(state, r.Now)
	r.must(err)
	changed, err := tuf.Changes(r.State, state)
	r.must(err)
	for _, f := range changed {
		r.Serve(f.Name, f.Data)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.State = state
}

// Serve serves data under a name; nil removes the name.
func (r *Repo) Serve(name string, data []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if data == nil {
		delete(r.served, name)
		return
	}
	r.served[name] = data
}

// Served returns a copy of all that is served, for [Repo.Restore].
func (r *Repo) Served() map[string][]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.served)
}

// Restore serves exactly the files in served.
func (r *Repo) Restore(served map[string][]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.served = maps.Clone(served)
}

// Fetch is a [tuf.Fetch] from this repository.
func (r *Repo) Fetch(_ context.Context, name string, _ int64) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	data, ok := r.served[name]
	if !ok {
		return nil, &fs.PathError{Op: "fetch", Path: name, Err: fs.ErrNotExist}
	}
	return data, nil
}

// Authority returns an authority that reads the published targets where they are: it writes
// nothing, and verifies no signature. Tests use it in which hosts need some publisher.
func (r *Repo) Authority() trust.Authority { return authority{r} }

type authority struct{ repo *Repo }

func (a authority) contents() (tuf.Contents, error) {
	a.repo.mu.Lock()
	targets := a.repo.State.Targets
	a.repo.mu.Unlock()
	if targets == nil {
		return tuf.Contents{}, nil
	}
	return tuf.ContentsOf(targets)
}

// Expect implements [trust.Authority].
func (a authority) Expect(_ context.Context, fileName string, _ trust.Fetch) (*trust.Expectation, error) {
	c, err := a.contents()
	if err != nil {
		return nil, err
	}
	return c.Expect(time.Now(), trust.Statement{KeyID: "tuftest", FileName: fileName})
}

// Floor implements [trust.Authority].
func (a authority) Floor(_ context.Context, component string) string {
	c, err := a.contents()
	if err != nil {
		return ""
	}
	return c.LimitsOf(component).Floor
}

func (r *Repo) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}
