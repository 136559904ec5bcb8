package tuf_test

import (
	"context"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/trust"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf/tuftest"
)

// There is at least one test for each attack that the TUF specification lists
// (section 1.5.2), and for each theft of keys that the design must withstand.
//
// Extraneous dependencies do not arise: a package is one archive that needs no
// other, and the targets file must not delegate (TestDelegationsAreRefused).

// thief makes files of a repository with keys that are not theirs.
type thief struct {
	t    testing.TB
	repo *tuftest.Repo
}

// forge changes the signed part of a file and signs it with keys.
func (th thief) forge(file []byte, change func(signed map[string]any), keys ...tuf.PrivateKey) []byte {
	th.t.Helper()
	var f map[string]any
	if err := json.Unmarshal(file, &f); err != nil {
		th.t.Fatal(err)
	}
	change(f["signed"].(map[string]any))
	data, err := json.Marshal(f)
	if err == nil {
		data, err = tuf.Forge(data, keys...)
	}
	if err != nil {
		th.t.Fatal(err)
	}
	return data
}

// online serves a targets file with a snapshot and a timestamp that name it, as a
// stolen server can. The snapshot claims the version given.
func (th thief) online(targets []byte, version, snapshotVersion, timestampVersion int64) {
	th.t.Helper()
	key := th.repo.Online[len(th.repo.Online)-1]
	snapshot := th.forge(th.repo.State.Snapshot, func(s map[string]any) {
		s["version"], s["expires"] = snapshotVersion, th.repo.Now.Add(tuf.SnapshotLife)
		s["meta"] = map[string]any{"targets.json": metaOf(targets, version)}
	}, key)
	timestamp := th.forge(th.repo.State.Timestamp, func(s map[string]any) {
		s["version"], s["expires"] = timestampVersion, th.repo.Now.Add(tuf.TimestampLife)
		s["meta"] = map[string]any{"snapshot.json": metaOf(snapshot, snapshotVersion)}
	}, key)
	th.repo.Serve(tuf.FileName(tuf.RoleTargets, version), targets)
	th.repo.Serve(tuf.FileName(tuf.RoleSnapshot, snapshotVersion), snapshot)
	th.repo.Serve(tuf.TimestampFile, timestamp)
}

func metaOf(data []byte, version int64) map[string]any {
	sum := sha512.Sum512(data)
	return map[string]any{"version": version, "length": len(data), "hashes": map[string]any{"sha512": hex.EncodeToString(sum[:])}}
}

func versionOf(t testing.TB, file []byte) int64 {
	t.Helper()
	info, err := tuf.Inspect(file)
	if err != nil {
		t.Fatal(err)
	}
	return info.Version
}

// beyond returns version numbers above all that were used.
func (th thief) beyond() (snapshot, timestamp int64) {
	return versionOf(th.t, th.repo.State.Snapshot) + 100, versionOf(th.t, th.repo.State.Timestamp) + 100
}

// evil is an entry for an archive that the thief wants installed.
func evil(t testing.TB, repo *tuftest.Repo, version string) (name string, change func(*tuf.Edit) error) {
	t.Helper()
	target, data := tuftest.Archive(version, "evil")
	repo.Serve(target.FileName(), data)
	return target.FileName(), func(e *tuf.Edit) error { return e.AddTarget(target) }
}

// scene is a repository with two releases, and an agent that has seen both.
func scene(t *testing.T) (*tuftest.Repo, *host, thief, string) {
	t.Helper()
	repo := tuftest.New(t)
	repo.Release("1.0.0", "old and vulnerable")
	name := repo.Release("1.1.0", "good")
	h := newHost(t, repo)
	h.mustInstall(name)
	return repo, h, thief{t, repo}, name
}

// Arbitrary installation: a source gives other bytes than the publishers made.
func TestArbitraryInstallationIsRefused(t *testing.T) {
	repo, h, th, name := scene(t)
	for _, bytes := range []string{"evil", "evil, and of another length", ""} {
		repo.Serve(name, []byte(bytes))
		h.mustRefuse(name, tuf.ErrMismatch)
	}
	invented, add := evil(t, repo, "2.0.0")
	h.mustRefuse(invented, tuf.ErrUnknownTarget, "1.1.0")
	// With untrusted keys for the whole chain below root.
	stranger := tuftest.Key(t, "mallory")
	targets := th.forge(repo.EditTargets(add), func(map[string]any) {}, stranger, tuftest.Key(t, "mallory2"))
	repo.Serve(tuf.TimestampFile, th.forge(repo.State.Timestamp, func(s map[string]any) {
		s["version"] = versionOf(t, repo.State.Timestamp) + 1
		s["meta"] = map[string]any{"snapshot.json": metaOf(targets, 1)}
	}, stranger))
	h.mustRefuse(invented, tuf.ErrThreshold, "timestamp", "0 of 1 signatures", "server (")
}

// Arbitrary installation: a source gives a signed archive under the name of another kind.
func TestArchiveUnderTheNameOfAnotherComponentIsRefused(t *testing.T) {
	repo, h, _, agent := scene(t)
	web, db := repo.ReleaseComponent("web", "1.1.0", "web"), repo.ReleaseComponent("db", "1.1.0", "db!!")
	webUI := repo.ReleaseComponent("web-ui", "1.1.0", "ui")
	for _, name := range []string{agent, web, db, webUI} {
		h.mustInstall(name)
	}
	honest := repo.Served()
	for _, as := range []string{agent, web, db, webUI} {
		for _, other := range []string{agent, web, db, webUI} {
			if other == as {
				continue
			}
			repo.Serve(as, honest[other])
			h.mustRefuse(as, tuf.ErrMismatch)
		}
		repo.Serve(as, honest[as])
	}
	// Names that nobody signed, for bytes that are signed.
	for _, invented := range []string{"muster-component-agent-1.1.0-linux-amd64.tar.gz", "muster-agent-web-1.1.0-linux-amd64.tar.gz", "muster-component-web-9.9.9-linux-amd64.tar.gz"} {
		repo.Serve(invented, honest[web])
		h.mustRefuse(invented, tuf.ErrUnknownTarget)
	}
}

// Endless data: a source never stops sending.
func TestEndlessDataIsRefused(t *testing.T) {
	repo, h, _, name := scene(t)
	e, err := h.expect(name)
	if err != nil {
		t.Fatal(err)
	}
	endless := &counting{}
	if _, err := e.Verify(endless); !errors.Is(err, tuf.ErrMismatch) {
		t.Errorf("an endless archive: got %v", err)
	}
	if endless.read > 1<<20 {
		t.Errorf("%d bytes were read of an archive of 4", endless.read)
	}
	repo.Release("1.2.0", "next")
	root := repo.NextRoot(func(*tuf.RootSpec) {})
	repo.Serve("2.root.json", repo.SignBy(root, repo.State.Root(), repo.RootKeys...))
	for _, role := range []string{"2.root.json", "timestamp.json", "snapshot.json", "targets.json"} {
		c := h.client()
		c.Fetch = func(ctx context.Context, name string, limit int64) ([]byte, error) {
			data, err := repo.Fetch(ctx, name, limit)
			if limit > tuf.MaxTargetsSize+1 {
				t.Errorf("%s may have %d bytes", name, limit)
			}
			if strings.HasSuffix(name, role) {
				data = append(data, make([]byte, limit)...)[:limit]
			}
			return data, err
		}
		if _, err := c.Expect(t.Context(), name, nil); !errors.Is(err, tuf.ErrTooLong) || !strings.Contains(err.Error(), role) {
			t.Errorf("an endless %s: got %v", role, err)
		}
	}
	h.mustInstall(name)
}

type counting struct{ read int }

func (c *counting) Read(p []byte) (int, error) {
	c.read += len(p)
	return len(p), nil
}

// Fast forward: a thief of the online keys raises the version numbers, so that the
// honest server's files look old. New online keys in a new root end the attack.
func TestNewOnlineKeysRecoverFromFastForward(t *testing.T) {
	repo, h, th, name := scene(t)
	honest := repo.Served()
	const limit = 1 << 53
	th.online(repo.State.Targets, versionOf(t, repo.State.Targets), limit, limit)
	h.mustInstall(name) // the thief freezes, but what is signed stays installable

	repo.Restore(honest)
	h.mustRefuse(name, tuf.ErrRollback, "9007199254740992", "publish the newest signed files")

	repo.Online = append(repo.Online, tuftest.Key(t, "new-server"))
	repo.Rotate(func(s *tuf.RootSpec) { s.Snapshot, s.Timestamp = repo.Online[1].Public(), repo.Online[1].Public() })
	h.mustInstall(repo.Release("1.2.0", "better"))
}

// Replacing one of the two online keys is enough for the specification's recovery,
// although the other still signs what the thief raised.
func TestOneNewOnlineKeyRecoversFromFastForward(t *testing.T) {
	for _, replaced := range []tuf.Role{tuf.RoleSnapshot, tuf.RoleTimestamp} {
		t.Run(string(replaced), func(t *testing.T) {
			repo, h, th, name := scene(t)
			honest := repo.Served()
			th.online(repo.State.Targets, versionOf(t, repo.State.Targets), 1<<53, 1<<53)
			h.mustInstall(name)
			repo.Restore(honest)
			fresh := tuftest.Key(t, "new-server")
			repo.Online = append(repo.Online, fresh)
			repo.Rotate(func(s *tuf.RootSpec) {
				if replaced == tuf.RoleSnapshot {
					s.Snapshot = fresh.Public()
				} else {
					s.Timestamp = fresh.Public()
				}
			})
			h.mustInstall(repo.Release("1.2.0", "better"))
		})
	}
}

// The thief can also name a version of targets that does not exist.
func TestNewOnlineKeysRecoverFromAnInventedTargetsVersion(t *testing.T) {
	repo, h, th, name := scene(t)
	honest := repo.Served()
	snapshot, timestamp := th.beyond()
	th.online(repo.State.Targets, 1<<53, snapshot, timestamp)
	h.mustRefuse(name, tuf.ErrMismatch)
	repo.Restore(honest)
	repo.Now = repo.Now.Add(200 * time.Second)
	repo.Release("1.1.1", "honest again")
	h.mustRefuse(name, tuf.ErrRollback)
	repo.Online = append(repo.Online, tuftest.Key(t, "new-server"))
	repo.Rotate(func(s *tuf.RootSpec) { s.Snapshot, s.Timestamp = repo.Online[1].Public(), repo.Online[1].Public() })
	h.mustInstall(name)
}

// Indefinite freeze: a mirror keeps serving yesterday's files.
func TestAFreezeByAMirrorEndsAfterADay(t *testing.T) {
	repo, h, _, name := scene(t)
	frozen := repo.Served()
	repo.Now = repo.Now.Add(tuf.TimestampLife - time.Hour)
	next := repo.Release("1.2.0", "fix")
	fixed := repo.Served()
	repo.Restore(frozen)
	h.mustRefuse(next, tuf.ErrUnknownTarget)
	repo.Now = repo.Now.Add(2 * time.Hour)
	h.mustRefuse(name, tuf.ErrExpired, "timestamp", "the server signs a new one")
	if err := h.installs(name); !errors.Is(err, trust.ErrTransient) {
		t.Errorf("%v is final, and the server signs the next timestamp by itself", err)
	}
	repo.Restore(fixed)
	h.mustInstall(next)
}

func TestAFreezeByAStolenServerEndsWhenTargetsExpire(t *testing.T) {
	repo, h, th, name := scene(t)
	targets := repo.State.Targets
	resign := func() { th.online(targets, versionOf(t, targets), repo.Now.Unix(), repo.Now.Unix()) }
	for range 4 {
		repo.Now = repo.Now.Add(tuf.TargetsLife/4 - time.Hour)
		resign()
		h.mustInstall(name)
	}
	repo.Now = repo.Now.Add(5 * time.Hour)
	resign()
	h.mustRefuse(name, tuf.ErrExpired, "targets version 2", "at least 2 of ted (", "tom (")
	var expired *tuf.ExpiredError
	if err := h.installs(name); errors.Is(err, trust.ErrTransient) || !errors.As(err, &expired) || expired.Role != tuf.RoleTargets || expired.Version != 2 {
		t.Errorf("got %+v", expired)
	}
	// The agent recovers once people sign.
	repo.Now = repo.Now.Add(time.Minute)
	repo.PublishTargets(func(*tuf.Edit) error { return nil })
	h.mustInstall(name)
}

func TestExpiredRootNamesTheSigners(t *testing.T) {
	repo, h, _, name := scene(t)
	repo.Now = repo.Now.Add(tuf.RootLife + time.Hour)
	h.mustRefuse(name, tuf.ErrExpired, "root version 1", "at least 2 of rosa (")
	repo.Rotate(func(*tuf.RootSpec) {})
	h.mustInstall(name)
}

// Malicious mirrors: whatever a source serves in place of any file, the agent
// returns an error and can continue with an honest source.
func TestUnverifiedFilesAreNotStored(t *testing.T) {
	repo, h, _, _ := scene(t)
	repo.Rotate(func(s *tuf.RootSpec) { s.Root.Threshold = 1 })
	name := repo.Release("1.2.0", "next")
	honest := repo.Served()
	current := []string{
		"2.root.json", tuf.TimestampFile,
		tuf.FileName(tuf.RoleSnapshot, versionOf(t, repo.State.Snapshot)), tuf.FileName(tuf.RoleTargets, versionOf(t, repo.State.Targets)),
	}
	for kind, lie := range map[string][]byte{
		"web page": []byte("<html>Sign in to the network</html>"),
		"nulls":    []byte(`{"signed":{"_type":"targets","targets":{"x":null},"meta":{"snapshot.json":null},"roles":{"root":null}},"signatures":[]}`),
		"another":  repo.State.Roots[0],
	} {
		for _, file := range current {
			h := h.clone()
			repo.Serve(file, lie)
			if err := h.installs(name); err == nil {
				t.Errorf("%s for %s: the agent installs", kind, file)
			}
			repo.Restore(honest)
			h.mustInstall(name)
		}
	}
	for _, file := range current[1:] {
		h := h.clone()
		repo.Serve(file, nil)
		h.mustRefuse(name, tuf.ErrNotServed, file)
		repo.Restore(honest)
		h.mustInstall(name)
	}
}

// Mix and match: files that were valid at different times.
func TestMixedVersionsAreRefused(t *testing.T) {
	repo, h, _, _ := scene(t)
	before := repo.State
	repo.Now = repo.Now.Add(time.Minute)
	name := repo.Release("1.2.0", "next")
	honest := repo.Served()
	for role, old := range map[string][]byte{
		tuf.FileName(tuf.RoleSnapshot, versionOf(t, repo.State.Snapshot)): before.Snapshot,
		tuf.FileName(tuf.RoleTargets, versionOf(t, repo.State.Targets)):   before.Targets,
	} {
		// Each mix gets its own host: the valid files of a mix are stored, and then
		// not fetched again.
		h := h.clone()
		repo.Serve(role, old)
		h.mustRefuse(name, tuf.ErrMismatch, "try again")
		repo.Restore(honest)
		h.mustInstall(name)
	}
}

// Rollback: a source offers an older state than the agent has seen.
func TestRollbackIsRefused(t *testing.T) {
	repo, h, th, old := scene(t)
	past, served := repo.State, repo.Served()
	repo.Now = repo.Now.Add(time.Minute)
	name := repo.Release("1.2.0", "fix")
	h.mustInstall(name)
	now := repo.Served()

	t.Run("a mirror replays all of it", func(t *testing.T) {
		repo.Restore(served)
		h.mustRefuse(old, tuf.ErrRollback, "timestamp")
	})
	t.Run("a stolen server signs the old snapshot's number again", func(t *testing.T) {
		_, timestamp := th.beyond()
		th.online(past.Targets, versionOf(t, past.Targets), versionOf(t, past.Snapshot), timestamp)
		h.mustRefuse(old, tuf.ErrRollback, "snapshot")
		repo.Restore(now)
	})
	t.Run("a stolen server signs the old targets again", func(t *testing.T) {
		snapshot, timestamp := th.beyond()
		th.online(past.Targets, versionOf(t, past.Targets), snapshot, timestamp)
		h.mustRefuse(old, tuf.ErrRollback, "targets version 2", "version 3 was seen")
		repo.Restore(now)
	})
	t.Run("a mirror serves the old root as the next", func(t *testing.T) {
		repo.Serve("2.root.json", repo.State.Roots[0])
		h.mustRefuse(old, tuf.ErrRollback, "2.root.json")
		repo.Restore(now)
	})
	t.Run("a mirror skips a root", func(t *testing.T) {
		root := repo.NextRoot(func(*tuf.RootSpec) {})
		root = th.forge(root, func(s map[string]any) { s["version"] = 3 }, repo.RootKeys...)
		repo.Serve("2.root.json", root)
		h.mustRefuse(old, tuf.ErrMismatch, "holds version 3")
		repo.Restore(now)
	})
}

// Slow retrieval: a source sends a byte now and then. Package download bounds the
// stalls of an archive; each file fetched here has a time limit.
func TestSlowRetrievalTimesOut(t *testing.T) {
	repo, h, _, name := scene(t)
	for _, slow := range []string{"2.root.json", tuf.TimestampFile} {
		dir := h.dir
		synctest.Test(t, func(t *testing.T) {
			c := &tuf.Client{Disk: h.client().Disk, Dir: dir, Now: h.now}
			c.Fetch = func(ctx context.Context, name string, limit int64) ([]byte, error) {
				if name == slow {
					<-ctx.Done()
					return nil, io.ErrUnexpectedEOF
				}
				return repo.Fetch(ctx, name, limit)
			}
			start := time.Now()
			_, err := c.Expect(t.Context(), name, nil)
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), slow) {
				t.Errorf("slow %s: got %v", slow, err)
			}
			if took := time.Since(start); took != tuf.FetchTimeout {
				t.Errorf("slow %s: given up after %s", slow, took)
			}
			cancelled, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := c.Expect(cancelled, name, nil); !errors.Is(err, context.Canceled) {
				t.Errorf("cancelled: got %v", err)
			}
		})
	}
}

// Key compromise: the server, with its online key.
func TestAStolenServerCannotShipCode(t *testing.T) {
	repo, h, th, old := scene(t)
	name, add := evil(t, repo, "6.6.6")
	draft := repo.EditTargets(add)
	honest := repo.Served()
	snapshot, timestamp := th.beyond()

	targets := th.forge(draft, func(map[string]any) {}, repo.Online[0])
	th.online(targets, versionOf(t, targets), snapshot, timestamp)
	h.mustRefuse(name, tuf.ErrThreshold, "targets version 3", "0 of 2 signatures", "needs 2 of: ted (")

	// The published targets with a changed floor, to reach the vulnerable version.
	targets = th.forge(repo.State.Targets, func(s map[string]any) {
		s["x-muster-floor"], s["version"] = "0.0.1", versionOf(t, targets)
	}, repo.Online[0])
	th.online(targets, versionOf(t, targets), snapshot+1, timestamp+1)
	h.mustRefuse(old, tuf.ErrThreshold)

	// A root of its own.
	repo.Restore(honest)
	root := repo.NextRoot(func(s *tuf.RootSpec) {
		s.Root = tuf.Signers{Keys: tuftest.Public(tuftest.Key(t, "mallory")), Threshold: 1}
	})
	repo.Serve("2.root.json", th.forge(root, func(map[string]any) {}, repo.Online[0]))
	h.mustRefuse(name, tuf.ErrThreshold, "root version 2", "0 of 2 signatures by the keys of root 1")
}

// Key compromise: one targets key of the two that are needed, together with the
// server.
func TestAStolenServerWithOneTargetsKeyCannotShipCode(t *testing.T) {
	repo, h, th, old := scene(t)
	name, add := evil(t, repo, "6.6.6")
	honest := repo.Served()
	snapshot, timestamp := th.beyond()
	stolen := repo.TargetsKeys[0]
	targets := th.forge(repo.EditTargets(add), func(map[string]any) {}, stolen, repo.Online[0])
	th.online(targets, versionOf(t, targets), snapshot, timestamp)
	h.mustRefuse(name, tuf.ErrThreshold, "1 of 2 signatures", "needs one of: tina (")

	// The owner recovers the server, which refuses the file too.
	repo.Restore(honest)
	if _, err := tuf.Accept(repo.State, repo.Now, targets); !errors.Is(err, tuf.ErrThreshold) {
		t.Errorf("the server: got %v", err)
	}
	// Targets key and online key are replaced: the stolen keys are worthless, also
	// with the second targets key that the thief gets later.
	repo.Online = append(repo.Online, tuftest.Key(t, "new-server"))
	repo.TargetsKeys = append(repo.TargetsKeys, tuftest.Key(t, "tess"))
	repo.Rotate(func(s *tuf.RootSpec) {
		s.Targets.Keys[0] = repo.TargetsKeys[3].Public()
		s.Snapshot, s.Timestamp = repo.Online[1].Public(), repo.Online[1].Public()
	})
	h.mustInstall(old)
	snapshot, timestamp = th.beyond()
	targets = th.forge(repo.EditTargets(add), func(map[string]any) {}, stolen, repo.TargetsKeys[1])
	th.online(targets, versionOf(t, targets), snapshot, timestamp)
	h.mustRefuse(name, tuf.ErrThreshold, "1 of 2 signatures")
}

// Key compromise: one root key of the two that are needed.
func TestOneStolenRootKeyCannotReplaceTheOthers(t *testing.T) {
	repo, h, th, name := scene(t)
	mallory := []tuf.PrivateKey{tuftest.Key(t, "mallory"), tuftest.Key(t, "mallory2")}
	root := repo.NextRoot(func(s *tuf.RootSpec) {
		s.Root = tuf.Signers{Keys: tuftest.Public(mallory...), Threshold: 2}
		s.Targets = s.Root
	})
	repo.Serve("2.root.json", th.forge(root, func(map[string]any) {}, repo.RootKeys[0], mallory[0], mallory[1]))
	h.mustRefuse(name, tuf.ErrThreshold, "1 of 2 signatures by the keys of root 1", "2 of 2 signatures by the keys of root 2")
}

// The old keys alone are not enough either, or a root could name keys that nobody
// has.
func TestARootMustBeSignedByItsOwnKeysToo(t *testing.T) {
	repo, h, _, name := scene(t)
	repo.RootKeys = append(repo.RootKeys, tuftest.Key(t, "rita"), tuftest.Key(t, "ralf"))
	root := repo.NextRoot(func(s *tuf.RootSpec) {
		s.Root = tuf.Signers{Keys: tuftest.Public(repo.RootKeys[3:]...), Threshold: 2}
	})
	root = repo.SignBy(root, repo.State.Root(), repo.RootKeys[:3]...)
	repo.Serve("2.root.json", root)
	h.mustRefuse(name, tuf.ErrThreshold, "0 of 2 signatures by the keys of root 2", "rita (")
	if _, err := tuf.Accept(repo.State, repo.Now, root); !errors.Is(err, tuf.ErrThreshold) {
		t.Errorf("the server: got %v", err)
	}
	root = repo.SignBy(root, repo.State.Root(), repo.RootKeys[3:]...)
	repo.Publish(root)
	h.mustInstall(name)
}

// One key must not count twice.
func TestOneKeyCountsOnce(t *testing.T) {
	repo, h, th, _ := scene(t)
	name, add := evil(t, repo, "6.6.6")
	draft := th.forge(repo.EditTargets(add), func(map[string]any) {}, repo.TargetsKeys[0])
	var f map[string]any
	if err := json.Unmarshal(draft, &f); err != nil {
		t.Fatal(err)
	}
	one := f["signatures"].([]any)[0].(map[string]any)
	as := maps.Clone(one)
	as["keyid"] = repo.TargetsKeys[1].Public().ID()
	snapshot, timestamp := th.beyond()
	for kind, signatures := range map[error][]any{tuf.ErrMalformed: {one, one}, tuf.ErrThreshold: {one, as}} {
		f["signatures"] = signatures
		targets, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		snapshot, timestamp = snapshot+1, timestamp+1
		th.online(targets, versionOf(t, repo.State.Targets)+1, snapshot, timestamp)
		h.mustRefuse(name, kind)
	}
	// Nor with a root that lists one key under two ids.
	root := repo.NextRoot(func(*tuf.RootSpec) {})
	root = th.forge(root, func(s map[string]any) {
		keys := s["keys"].(map[string]any)
		keys[strings.Repeat("ab", 32)] = keys[repo.TargetsKeys[0].Public().ID()]
	}, repo.RootKeys...)
	repo.Serve("2.root.json", root)
	h.mustRefuse(name, tuf.ErrMalformed, "is the id of another key")
}

// Wrong software installation: the signed bytes of another package.
func TestAnotherSignedPackageIsRefused(t *testing.T) {
	repo, h, th, name := scene(t)
	repo.Serve(name, []byte("old and vulnerable"))
	h.mustRefuse(name, tuf.ErrMismatch)
	// Nor with an entry under one name that describes another, which the server
	// does not accept from the publishers either.
	targets := th.forge(repo.EditTargets(func(*tuf.Edit) error { return nil }), func(s map[string]any) {
		all := s["targets"].(map[string]any)
		all["muster-agent-1.2.0-linux-amd64.tar.gz"] = all[name]
	}, repo.TargetsKeys...)
	if _, err := tuf.Accept(repo.State, repo.Now, targets); !errors.Is(err, tuf.ErrMalformed) || !strings.Contains(err.Error(), "describes "+name) {
		t.Errorf("the server: got %v", err)
	}
	snapshot, timestamp := th.beyond()
	th.online(targets, versionOf(t, targets), snapshot, timestamp)
	h.mustRefuse("muster-agent-1.2.0-linux-amd64.tar.gz", tuf.ErrMalformed, "describes "+name)
}

func TestDelegationsAreRefused(t *testing.T) {
	repo, h, th, name := scene(t)
	targets := th.forge(repo.EditTargets(func(*tuf.Edit) error { return nil }), func(s map[string]any) {
		s["delegations"] = map[string]any{"keys": map[string]any{}, "roles": []any{}}
	}, repo.TargetsKeys...)
	if _, err := tuf.Accept(repo.State, repo.Now, targets); !errors.Is(err, tuf.ErrMalformed) || !strings.Contains(err.Error(), "delegations") {
		t.Errorf("the server: got %v", err)
	}
	snapshot, timestamp := th.beyond()
	th.online(targets, versionOf(t, targets), snapshot, timestamp)
	h.mustRefuse(name, tuf.ErrMalformed, "delegations")
}
