//go:build linux

package bench

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/testing/kit/harness"
	"github.com/muster-fleet/muster/watcher/probe"
)

const (
	// packageBytes is the size of the new version's archive.
	packageBytes = 40_000_000
	// rounds is the number of measurements; the table has the median and the worst.
	rounds = 5
	// waitLimit bounds every wait, at many times its usual time.
	waitLimit = 2 * time.Minute
	// settle is how long an agent is idle before its memory is read.
	settle = 15 * time.Second
)

// BenchmarkUpgrade makes all measurements once, whatever b.N is.
func BenchmarkUpgrade(b *testing.B) {
	for b.Loop() {
		w := &world{harness.NewWorld(b)}
		var t table
		t.speed(w)
		t.crashLoop(w)
		t.components(w)
		if b.Failed() {
			return
		}
		t.report(b, "RESULTS.md", fmt.Sprintf("# What an upgrade costs\n\nA package of %d MB, the real programs, loopback; resident memory as the kernel counts it. %s.\nWritten by `go tool mage bench`: the median of %d rounds, and the worst.\n\n", packageBytes/1_000_000, thisMachine(), rounds))
	}
}

type world struct{ *harness.World }

// publish publishes a package of a version with packageBytes.
func (w *world) publish(version, agent string) {
	w.Helper()
	small, err := w.Publisher.Package(w.Context(), version, agent)
	w.Check(err)
	fi, err := os.Stat(small)
	w.Check(err)
	// Random bytes do not compress.
	padding := filepath.Join(w.Dir, "padding-"+version)
	bytes := make([]byte, max(0, packageBytes-fi.Size()))
	var seed [32]byte
	copy(seed[:], version)
	_, _ = rand.NewChaCha8(seed).Read(bytes)
	w.Check(os.WriteFile(padding, bytes, 0o600))
	archive, err := w.Publisher.Package(w.Context(), version, agent, "padding="+padding)
	w.Check(err)
	w.Add(version, archive)
}

// install installs and starts a host with default settings.
func (w *world) install(name, version string) *harness.Host {
	w.Helper()
	return w.AddHosts(version, harness.HostOptions{Defaults: true}, name)[0]
}

func (w *world) until(what string, ok func() bool) {
	w.Helper()
	for deadline := time.Now().Add(waitLimit); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatalf("timed out waiting until %s", what)
		}
	}
}

// speed upgrades a host once in each round.
func (t *table) speed(w *world) {
	w.Helper()
	version := func(round int) string { return fmt.Sprintf("1.%d.0", 1+round) }
	w.publish(version(0), w.Programs.Heartbeat)
	h := w.install("speed", version(0))
	for round := 1; round <= rounds; round++ {
		next := version(round)
		w.publish(next, w.Programs.Heartbeat)
		control := answers(w.Context(), h)
		from := time.Now()
		w.Upgrade(next, h)
		var known time.Time
		w.until(next+" has checked in", func() bool {
			a, err := w.Server.Agent(w.Context(), h.ID)
			w.Check(err)
			known = time.Now()
			return a.Agent.Version == next
		})
		log := readLog(w, h, from)
		t.add("delivered → new version checked in", known.Sub(log.at("action received")))
		for i, step := range log.steps {
			end := log.at("agent restarts as another version")
			if i+1 < len(log.steps) {
				end = log.steps[i+1].at
			}
			t.add("· "+step.name, end.Sub(step.at))
		}
		t.add("· new version: from exec to its first check-in", known.Sub(log.at("agent restarts as another version")))
		w.until("the watch has begun", func() bool { return len(programs(w, h)["muster-watcher"]) > 0 })
		t.add("outage of a component", beatGap(w, h, from))
		t.add("outage of the control socket", control(next))
		if round == 1 {
			time.Sleep(settle)
			t.mebibytes("agent, idle and watched", rss(w, programs(w, h)["muster-agent"]))
			t.mebibytes("watcher, watching", rss(w, programs(w, h)["muster-watcher"]))
		}
		finishWatch(w, h)
	}
}

// finishWatch removes the marker instead of waiting for the end of the watch.
func finishWatch(w *world, h *harness.Host) {
	w.Helper()
	w.Check(h.Stop())
	for _, name := range layout.Copies(layout.MarkerFile) {
		if err := os.Remove(layout.Path(h.Top, name)); err != nil && !os.IsNotExist(err) {
			w.Fatal(err)
		}
	}
	w.Check(h.Start())
	w.until("it is healthy again", func() bool {
		health, err := (probe.Client{Dial: probe.DialSocket(h.Top)}).Health(w.Context())
		return err == nil && health.Fleet.State == probe.Healthy && health.Upgrade == nil
	})
}

// crashLoop measures a host without a service manager, where the watcher restarts the
// agent. testing/suites/e2e checks the bound under systemd.
func (t *table) crashLoop(w *world) {
	w.Helper()
	w.publish("2.0.0", w.Programs.Agent)
	h := w.install("crash", "2.0.0")
	time.Sleep(settle)
	t.mebibytes("agent, idle", rss(w, programs(w, h)["muster-agent"]))
	w.publish("2.1.0", w.Programs.CrashLooper)
	from := time.Now()
	w.Upgrade("2.1.0", h)
	w.until("it is rolled back", func() bool {
		log, _ := os.ReadFile(layout.Path(h.Top, layout.WatcherLogFile))
		return bytes.Contains(log, []byte("the watch is over"))
	})
	switched := readLog(w, h, from).at("agent restarts as another version")
	t.add("crash loop → decided (no service manager)", watcherLine(w, h, "rolling back").Sub(switched))
	t.add("crash loop → previous version answers", watcherLine(w, h, "the watch is over").Sub(switched))
}

// answers polls the control socket, and returns a function that ends this and returns the
// time from the last answer of another version to the first of a given one.
func answers(ctx context.Context, h *harness.Host) func(version string) time.Duration {
	ctx, cancel := context.WithCancel(ctx)
	type answer struct {
		at      time.Time
		version string
	}
	done := make(chan []answer, 1)
	go func() {
		var all []answer
		client := probe.Client{Dial: probe.DialSocket(h.Top)}
		for ctx.Err() == nil {
			if health, err := client.Health(ctx); err == nil {
				all = append(all, answer{time.Now(), health.Version})
			}
			time.Sleep(time.Millisecond)
		}
		done <- all
	}()
	return func(version string) time.Duration {
		cancel()
		all := <-done
		i := slices.IndexFunc(all, func(a answer) bool { return a.version == version })
		if i < 1 {
			return -1
		}
		return all[i].at.Sub(all[i-1].at)
	}
}

// beatGap returns the longest time since from without a beat.
func beatGap(w *world, h *harness.Host, from time.Time) time.Duration {
	w.Helper()
	text, err := os.ReadFile(filepath.Join(h.Top, "beats"))
	w.Check(err)
	var last, gap int64
	for line := range strings.Lines(string(text)) {
		at, _ := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
		if last > from.UnixNano() {
			gap = max(gap, at-last)
		}
		last = at
	}
	return time.Duration(gap)
}

type step struct {
	name string
	at   time.Time
}

type agentLog struct {
	w     *world
	text  string
	from  time.Time
	steps []step
}

func readLog(w *world, h *harness.Host, from time.Time) agentLog {
	w.Helper()
	text, err := os.ReadFile(layout.Path(h.Top, layout.AgentLogFile))
	w.Check(err)
	l := agentLog{w: w, text: string(text), from: from}
	for line := range strings.Lines(l.text) {
		if _, name, ok := strings.Cut(line, `msg="step begins" step=`); ok && stamp(line).After(from) {
			l.steps = append(l.steps, step{strings.Trim(strings.TrimSpace(name), `"`), stamp(line)})
		}
	}
	return l
}

// at returns the time of the first line since from with some words.
func (l agentLog) at(words string) time.Time {
	l.w.Helper()
	for line := range strings.Lines(l.text) {
		if at := stamp(line); at.After(l.from) && strings.Contains(line, words) {
			return at
		}
	}
	l.w.Fatalf("the log has no line with %q:\n%s", words, l.text)
	return time.Time{}
}

func watcherLine(w *world, h *harness.Host, words string) time.Time {
	w.Helper()
	text, err := os.ReadFile(layout.Path(h.Top, layout.WatcherLogFile))
	w.Check(err)
	return agentLog{w: w, text: string(text)}.at(words)
}

func stamp(line string) time.Time {
	text, _, _ := strings.Cut(strings.TrimPrefix(line, "time="), " ")
	at, _ := time.Parse(time.RFC3339Nano, text) // zero for a line without one
	return at
}

// programs returns the processes of a host by the program's name.
func programs(w *world, h *harness.Host) map[string][]int {
	w.Helper()
	pids, err := h.Processes()
	w.Check(err)
	out := map[string][]int{}
	for _, pid := range pids {
		exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		out[filepath.Base(exe)] = append(out[filepath.Base(exe)], pid)
	}
	return out
}

// rss returns the resident memory of a program with one process, in bytes.
func rss(w *world, pids []int) int64 {
	w.Helper()
	if len(pids) != 1 {
		w.Fatalf("%d processes, want one", len(pids))
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pids[0]))
	w.Check(err)
	_, value, _ := strings.Cut(string(status), "\nVmRSS:")
	kib, err := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
	w.Check(err)
	return kib << 10
}

// table has figures by name, in order.
type table struct {
	rows []*row
}

type row struct {
	name  string
	unit  func(float64) string
	items []float64
}

// goals are the goals by row.
var goals = map[string]string{
	"round, nothing to do: CPU":                 "≤ 50 ms",
	"delivered → new version checked in":        "≤ 2 s",
	"crash loop → decided (no service manager)": "≤ 15 s",
	"agent, idle":                     "≤ 25 MB",
	"agent, idle, with 10 components": "≤ 30 MB",
	"watcher, watching":               "≤ 12 MB",

	"preview of 10,000 targets":                             "≤ 1 s",
	"start of 10,000 targets":                               "≤ 1 s",
	"start → first offer received":                          "≤ 1 s",
	"server CPU, 1,000 targets in 10 batches":               "≤ 3.5 s",
	"server killed and started again → next offer received": "≤ 10 s",
	"200 agents switch to it: order → all run it":           "≤ 5 s",
}

func (t *table) row(name string, unit func(float64) string) *row {
	for _, r := range t.rows {
		if r.name == name {
			return r
		}
	}
	r := &row{name: name, unit: unit}
	t.rows = append(t.rows, r)
	return r
}

func (t *table) add(name string, d time.Duration) {
	r := t.row(name, func(v float64) string {
		if v < 1 {
			return fmt.Sprintf("%.0f ms", v*1000)
		}
		return fmt.Sprintf("%.2f s", v)
	})
	r.items = append(r.items, d.Seconds())
}

func (t *table) mebibytes(name string, bytes int64) {
	r := t.row(name, func(v float64) string { return fmt.Sprintf("%.1f MB", v/1e6) })
	r.items = append(r.items, float64(bytes))
}

// report prints the table and writes it into a file in this folder.
func (t *table) report(b *testing.B, file, head string) {
	b.Helper()
	out := bytes.NewBufferString(head)
	fmt.Fprintln(out, "| figure | median | worst | goal |\n|---|---|---|---|")
	for _, r := range t.rows {
		slices.Sort(r.items)
		fmt.Fprintf(out, "| %s | %s | %s | %s |\n", r.name, r.unit(r.items[len(r.items)/2]), r.unit(r.items[len(r.items)-1]), goals[r.name])
	}
	fmt.Println("\n" + out.String())
	if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
		b.Fatal(err)
	}
}

// thisMachine describes the processor, the cores and the system, without the machine's name.
func thisMachine() string {
	find := func(file, key, sep string) string {
		text, _ := os.ReadFile(file)
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, sep); ok && strings.TrimSpace(name) == key {
				return strings.Trim(strings.TrimSpace(value), `"`)
			}
		}
		return ""
	}
	cores := strings.Count(string(must(os.ReadFile("/proc/cpuinfo"))), "\nprocessor") + 1
	return fmt.Sprintf("%s, %d cores, %s",
		cmp.Or(find("/proc/cpuinfo", "model name", ":"), "processor unknown"), cores, cmp.Or(find("/etc/os-release", "PRETTY_NAME", "="), "Linux"))
}

func must(data []byte, _ error) []byte { return data }
