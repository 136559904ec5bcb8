package selfupgrade_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/node/selfupgrade"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/sqlite"
	"github.com/muster-fleet/muster/testing/kit/require"
	"github.com/muster-fleet/muster/testing/kit/simdisk"
)

// schemas are those of the versions. Going back from 1.1.0 has to be one step.
var schemas = map[string]int{"1.0.0": 1, "1.1.0": 2}

// world is an installation of servers with one store, in virtual time. Every write of the
// upgrade is a point, before and after which the process that makes it can be killed.
type world struct {
	t     *testing.T
	store store.Store

	mu sync.Mutex
	// points are the writes, times counts them by their kind, and kills are the points at
	// which the process is killed: before or after a write, such as "after switch, time 2".
	points []string
	times  map[string]int
	kills  []string
	killed string // what was killed

	schema   int
	machines []*machine
	backups  int
	// pruned are the runs whose backup had to stay when backups were removed.
	pruned [][]string
	// slow means that the backup lasts until it is stopped, and migrateFails that the schema
	// cannot be changed.
	slow, migrateFails bool
}

// machine runs one process at a time, as a service manager does.
type machine struct {
	w       *world
	id      string
	disk    *simdisk.FS
	pointer string
	serving string // the version that serves, empty if none does
	lacks   bool   // the other version is not installed
	dies    func(error)
}

var errKilled = errors.New("killed")

// point is called around a write of a process, whose context it ends to kill it.
func (m *machine) point(ctx context.Context, what string, write func() error) error {
	if context.Cause(ctx) != nil {
		return context.Cause(ctx)
	}
	m.w.mu.Lock()
	m.w.times[what]++
	what = fmt.Sprintf("%s, time %d", what, m.w.times[what])
	m.w.points = append(m.w.points, what)
	m.w.mu.Unlock()
	if m.killed("before " + what) {
		return errKilled
	}
	err := write()
	if m.killed("after " + what) {
		return errKilled
	}
	return err
}

func (m *machine) killed(point string) bool {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	i := slices.Index(m.w.kills, point)
	if i < 0 {
		return false
	}
	m.w.kills = slices.Delete(slices.Clone(m.w.kills), i, i+1)
	m.w.killed += "; " + m.id + " " + point
	m.dies(errKilled)
	return true
}

// upgrades counts the writes of the upgrade's document.
type upgrades struct {
	store.Collection[fleet.ServerUpgrade]
	m *machine
}

func (u upgrades) Update(ctx context.Context, v fleet.ServerUpgrade) (rev int64, err error) {
	err = u.m.point(ctx, "write phase "+string(v.Phase), func() (err error) { rev, err = u.Collection.Update(ctx, v); return err })
	return rev, err
}

func (m *machine) Check(_ context.Context, to string) error {
	if m.lacks {
		return fmt.Errorf("version %s is not installed", to)
	}
	return nil
}

func (m *machine) Backup(ctx context.Context, _ fleet.ServerUpgrade) (place string, err error) {
	if m.w.slow {
		if _, err := selfupgrade.RequestUndo(ctx, m.w.store, "kim", time.Now().UTC()); err != nil {
			m.w.t.Error(err)
		}
		<-ctx.Done()
		return "", ctx.Err()
	}
	return "/backup", m.point(ctx, "backup", func() error {
		m.w.mu.Lock()
		defer m.w.mu.Unlock()
		m.w.backups++
		m.w.nobodyServes("the store is backed up")
		return nil
	})
}

func (m *machine) Migrate(ctx context.Context, u fleet.ServerUpgrade) error {
	if m.w.migrateFails {
		return errors.New("no right to change the schema")
	}
	return m.point(ctx, "migrate", func() error {
		m.w.setSchema(u.To)
		return nil
	})
}

func (m *machine) Switch(ctx context.Context, to string) error {
	return m.point(ctx, "switch", func() error {
		m.pointer = to
		return nil
	})
}

func (m *machine) Prune(ctx context.Context, inUse ...string) ([]string, error) {
	u, err := m.w.store.ServerUpgrades().Get(ctx, fleet.ServerUpgradeID)
	if err != nil || u.Phase != fleet.ServerDone {
		m.w.t.Errorf("backups are removed while the upgrade is %s, %v", u.Phase, err)
	}
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	m.w.pruned = append(m.w.pruned, inUse)
	return nil, nil
}

func (w *world) setSchema(version string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.schema != schemas[version] {
		w.nobodyServes("the schema changes")
		w.schema = schemas[version]
	}
}

// parked returns the agents of one server: those of a server that stops go to the other.
func (w *world) parked() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	serving := 0
	for _, m := range w.machines {
		if m.serving != "" {
			serving++
		}
	}
	return 1000 / max(serving, 1)
}

func (w *world) nobodyServes(while string) {
	for _, m := range w.machines {
		if m.serving != "" {
			w.t.Errorf("%s serves %s while %s (killed: %s)", m.id, m.serving, while, w.killed)
		}
	}
}

// run starts the server of the machine again and again, until ctx ends.
func (m *machine) run(ctx context.Context) {
	for ctx.Err() == nil {
		process, dies := context.WithCancelCause(ctx)
		m.dies = dies
		if err := m.process(process); err != nil && process.Err() == nil {
			m.w.t.Errorf("%s ended with: %v (killed: %s)", m.id, err, m.w.killed)
		}
		dies(nil)
		if errors.Is(context.Cause(process), errKilled) {
			time.Sleep(2 * time.Second) // as service managers do
		}
	}
}

// process is one process of the server, which ends when it has to be replaced.
func (m *machine) process(ctx context.Context) error {
	version := m.pointer
	view := m.disk.View(func(c simdisk.Call) error {
		if c.Kind == simdisk.Read || c.Name != "rename" && c.Name != "remove" {
			return context.Cause(ctx)
		}
		return m.point(ctx, c.Name+" "+c.Path, func() error { return nil })
	})
	records := selfupgrade.Records{Disk: view, Data: "/data", Log: slog.New(slog.DiscardHandler)}
	record, err := records.Read()
	if err != nil {
		return err
	}
	m.w.mu.Lock()
	var opening error
	if m.w.schema > schemas[version] {
		opening = store.ErrNewer
	}
	m.w.mu.Unlock()
	if to := record.AtStart(version, opening); to != "" {
		return m.Switch(ctx, to)
	}
	if opening != nil {
		return opening
	}
	config := selfupgrade.Config{
		Upgrades: upgrades{m.w.store.ServerUpgrades(), m}, Servers: m.w.store.Servers(), Leases: m.w.store.Leases(), Audit: m.w.store.Audit(),
		Records: records, Machine: m, Self: selfupgrade.Me{ID: m.id, Host: m.id, Version: version}, Log: slog.New(slog.DiscardHandler),
	}
	// With a record it looks at the store as it is.
	step, err := selfupgrade.New(config).Hold(ctx)
	if err != nil || step == selfupgrade.Replace {
		return err
	}
	m.w.setSchema(version) // by opening the store
	m.w.mu.Lock()
	m.serving = version
	m.w.mu.Unlock()
	defer func() {
		m.w.mu.Lock()
		m.serving = ""
		m.w.mu.Unlock()
	}()
	config.Self.Serving, config.Parked = true, m.w.parked
	serving := selfupgrade.New(config)
	serving.Run(ctx)
	return nil
}

// upgraded runs an upgrade of two servers to a version, kills at points, and returns how it
// ended, whether something was killed, and the points.
func upgraded(t *testing.T, from, to string, kills []string, change func(*world)) (u fleet.ServerUpgrade, killed bool, points []string) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, err := sqlite.Open(t.Context(), filepath.Join(dir, "muster.db"), sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		w := &world{t: t, store: s, times: map[string]int{}, schema: schemas[from]}
		for _, id := range []string{"srv-a", "srv-b"} {
			m := &machine{w: w, id: id, disk: simdisk.New(), pointer: from}
			if err := m.disk.View(func(simdisk.Call) error { return nil }).MkdirAll("test", "/data", 0o700); err != nil {
				t.Fatal(err)
			}
			w.machines = append(w.machines, m)
			if err := s.Servers().Create(t.Context(), fleet.Server{ID: id, Host: id, Version: from, SeenAt: time.Now().UTC()}); err != nil {
				t.Fatal(err)
			}
		}
		if change != nil {
			change(w)
		}
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for i, m := range w.machines {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 100 * time.Millisecond) // servers do not act in the same moment
				m.run(ctx)
			})
		}
		time.Sleep(3 * time.Second)
		w.mu.Lock()
		w.points, w.times, w.kills = nil, map[string]int{}, kills
		w.mu.Unlock()
		if _, err := selfupgrade.Begin(t.Context(), s, selfupgrade.Request{Actor: "kim", To: to}, time.Now().UTC()); err != nil {
			t.Fatal(err)
		}
		deadline := time.Now().Add(10 * time.Minute)
		for !w.settled(t, &u) {
			if time.Now().After(deadline) {
				t.Fatalf("the upgrade does not end: it is %+v (killed: %s)", u, w.killed)
			}
			time.Sleep(time.Second)
		}
		stop()
		all.Wait()
		t.Logf("killed: %s; ended %s after %s: %s", w.killed, u.Phase, u.EndedAt.Sub(u.StartedAt), u.Problem)
		want := from
		if u.Phase == fleet.ServerDone {
			want = to
		}
		if kills == nil && u.Phase == fleet.ServerDone && w.backups != 1 {
			t.Errorf("the store was backed up %d times", w.backups)
		}
		// A server that is killed with the last write leaves it to the next upgrade.
		if n := len(w.pruned); n > 1 || n == 0 && u.Phase == fleet.ServerDone && w.killed == "" || n == 1 && (u.Phase != fleet.ServerDone || !slices.Contains(w.pruned[0], u.Run)) {
			t.Errorf("the upgrade %s has ended %s, and old backups were removed %d times, but those of %q (killed: %s)", u.Run, u.Phase, n, w.pruned, w.killed)
		}
		if w.schema != schemas[want] {
			t.Errorf("it has ended %s with schema %d (killed: %s)", u.Phase, w.schema, w.killed)
		}
		for _, m := range w.machines {
			if m.pointer != want {
				t.Errorf("it has ended %s, and %s runs %s (killed: %s)", u.Phase, m.id, m.pointer, w.killed)
			}
		}
		trail, _, err := s.Audit().List(t.Context(), store.AuditQuery{Subject: u.Run, Limit: 10})
		if err != nil || len(trail) == 0 || len(trail) < 2 && w.killed == "" || trail[0].Verb != "server.upgrade" {
			t.Errorf("the audit trail of the upgrade is %+v, %v", trail, err)
		}
		killed, points = w.killed != "", w.points
	})
	return u, killed, points
}

// settled reports whether the upgrade has ended, both servers serve and no record is left.
func (w *world) settled(t *testing.T, u *fleet.ServerUpgrade) bool {
	t.Helper()
	got, err := w.store.ServerUpgrades().Get(t.Context(), fleet.ServerUpgradeID)
	if err != nil {
		t.Fatal(err)
	}
	*u = got
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.machines {
		for path := range m.disk.Tree("/data") {
			if strings.HasSuffix(path, "server-upgrade") {
				return false
			}
		}
		if m.serving == "" {
			return false
		}
	}
	return u.Phase.Ended()
}

func TestServersAreUpgradedAndBroughtBack(t *testing.T) {
	u, _, _ := upgraded(t, "1.0.0", "1.1.0", nil, nil)
	if d, ok := u.Downtime(); u.Phase != fleet.ServerDone || !ok || d > 5*time.Second || u.Problem != "" || u.Backup != "/backup" || u.Intended == nil {
		t.Errorf("the upgrade ended %s (%s) with %s, %v without servers, backed up to %q", u.Phase, u.Problem, d, ok, u.Backup)
	}
	if before, after := u.Agents(); before != 1000 || after != 1000 {
		t.Errorf("of 1000 agents %d were counted before, and %d after", before, after)
	}
	u, _, _ = upgraded(t, "1.1.0", "1.0.0", nil, nil)
	if u.Phase != fleet.ServerDone || u.Problem != "" {
		t.Errorf("the way back ended %s: %s", u.Phase, u.Problem)
	}
}

func TestUpgradeIsUndoneAsAWholeBeforeTheSchemaChanges(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*world)
		want   string
	}{
		"the version is missing on one machine":      {func(w *world) { w.machines[1].lacks = true }, "server on srv-b: version 1.1.0 is not installed"},
		"the schema cannot be changed":               {func(w *world) { w.migrateFails = true }, "no right to change the schema"},
		"an operator undoes it during a long backup": {func(w *world) { w.slow = true }, "kim has asked to undo it"},
		"a server does not take part": {func(w *world) {
			if err := w.store.Servers().Create(w.t.Context(), fleet.Server{ID: "old", Host: "srv-old", Version: "1.0.0", SeenAt: time.Now().Add(time.Hour)}); err != nil {
				w.t.Fatal(err)
			}
		}, "the servers on srv-old have not taken part"},
	} {
		t.Run(name, func(t *testing.T) {
			u, _, _ := upgraded(t, "1.0.0", "1.1.0", nil, c.change)
			if d := u.EndedAt.Sub(u.StartedAt); d > time.Minute {
				t.Errorf("it took %s", d)
			}
			if u.Phase != fleet.ServerUndone || !strings.Contains(u.Problem, c.want) {
				t.Errorf("it ended %s: %s, want %q", u.Phase, u.Problem, c.want)
			}
		})
	}
}

// The process that writes is killed before and after each write of the upgrade: of its
// document, of a server's record, of the backup, of the schema and of a pointer.
func TestServerKilledAtAnyWrite(t *testing.T) {
	require.Time(t, "kills a server at every write")
	for _, c := range []struct{ from, to string }{{"1.0.0", "1.1.0"}, {"1.1.0", "1.0.0"}} {
		_, _, points := upgraded(t, c.from, c.to, nil, nil)
		for _, write := range []string{
			"write phase check", "write phase hold", "write phase stop", "write phase check_again", "backup", "write phase backup", "write phase migrate", "migrate",
			"write phase switch", "switch", "write phase start", "write phase verify", "write phase done", "rename /data/server-upgrade", "remove /data/server-upgrade",
		} {
			if !slices.Contains(points, write+", time 1") {
				t.Errorf("the upgrade has no point %q", write)
			}
		}
		for _, point := range points {
			for _, when := range []string{"before ", "after "} {
				t.Run("from "+c.from+" "+when+point, func(t *testing.T) {
					u, killed, _ := upgraded(t, c.from, c.to, []string{when + point}, nil)
					if u.Phase != fleet.ServerDone {
						t.Errorf("it ended %s: %s", u.Phase, u.Problem)
					}
					// How often servers report to each other's document depends on their order.
					if !killed && strings.HasSuffix(point, ", time 1") {
						t.Error("nothing was killed")
					}
				})
			}
		}
	}
}

// Servers are killed twice: what the first leaves must stand the second as well.
func TestServersKilledAtAnyWriteAndAnother(t *testing.T) {
	require.Time(t, "kills servers at every write")
	const seed, pairs = 1, 50
	random := rand.New(rand.NewPCG(seed, seed)) //nolint:gosec // not a secret
	for _, c := range []struct{ from, to string }{{"1.0.0", "1.1.0"}, {"1.1.0", "1.0.0"}} {
		_, _, points := upgraded(t, c.from, c.to, nil, nil)
		pick := func() string {
			return []string{"before ", "after "}[random.IntN(2)] + points[random.IntN(len(points))]
		}
		for range pairs {
			kills := []string{pick(), pick()}
			t.Run(fmt.Sprintf("from %s %s and %s", c.from, kills[0], kills[1]), func(t *testing.T) {
				if u, _, _ := upgraded(t, c.from, c.to, kills, nil); u.Phase != fleet.ServerDone {
					t.Errorf("it ended %s: %s", u.Phase, u.Problem)
				}
			})
		}
	}
}

// A server that was killed before it could record the upgrade, and starts when the others have
// stopped, records it before it reports: it may find a newer schema at its next start.
func TestServerThatIsHeldHasARecord(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, err := sqlite.Open(t.Context(), filepath.Join(dir, "muster.db"), sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		now := time.Now().UTC()
		err = s.ServerUpgrades().Create(t.Context(), fleet.ServerUpgrade{
			ID: fleet.ServerUpgradeID, Run: "r", From: "1.0.0", To: "1.1.0", Phase: fleet.ServerStop, Since: now, StartedAt: now,
			Servers: []fleet.UpgradingServer{{ID: "a", Host: "a", Reached: fleet.ServerHold}, {ID: "b", Host: "b", Reached: fleet.ServerHold}},
		})
		if err != nil {
			t.Fatal(err)
		}
		records := selfupgrade.Records{Disk: disk.OS{}, Data: dir, Log: slog.New(slog.DiscardHandler)}
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
		defer stop()
		step, err := selfupgrade.New(selfupgrade.Config{
			Upgrades: s.ServerUpgrades(), Servers: s.Servers(), Leases: s.Leases(), Audit: s.Audit(), Records: records, Machine: selfupgrade.NoMachine{},
			Self: selfupgrade.Me{ID: "a", Host: "a", Version: "1.0.0"}, Log: slog.New(slog.DiscardHandler),
		}).Hold(ctx)
		if step != selfupgrade.Wait || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it was held until %q, %v", step, err)
		}
		u, err := selfupgrade.Current(t.Context(), s.ServerUpgrades())
		if err != nil || u.Server("a").Reached != fleet.ServerStop {
			t.Errorf("the upgrade is %+v, %v", u, err)
		}
		if r, err := records.Read(); err != nil || r != (selfupgrade.Record{Run: "r", From: "1.0.0", To: "1.1.0", Phase: fleet.ServerStop}) {
			t.Errorf("the record is %+v, %v", r, err)
		}
	})
}

func TestRecordSaysWhichVersionMayRun(t *testing.T) {
	stopped := selfupgrade.Record{Run: "r", From: "1.0.0", To: "1.1.0", Phase: fleet.ServerStop}
	switched := stopped
	switched.Phase = fleet.ServerSwitch
	for _, c := range []struct {
		record  selfupgrade.Record
		version string
		opening error
		want    string
	}{
		{selfupgrade.Record{}, "1.0.0", store.ErrNewer, ""},
		{stopped, "1.0.0", nil, ""},
		{stopped, "1.0.0", errors.New("the disk is full"), ""},
		{stopped, "1.0.0", fmt.Errorf("open: %w", store.ErrNewer), "1.1.0"},
		{stopped, "1.1.0", store.ErrNewer, ""},
		{switched, "1.0.0", nil, "1.1.0"},
		{switched, "1.1.0", nil, ""},
	} {
		if got := c.record.AtStart(c.version, c.opening); got != c.want {
			t.Errorf("%s with the record %+v and %v: %q, want %q", c.version, c.record, c.opening, got, c.want)
		}
	}
}
