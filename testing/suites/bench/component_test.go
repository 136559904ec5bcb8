//go:build linux

package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/agent/runtime/systemd"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/testing/kit/nspawn"
)

const (
	// componentRounds is the number of upgrades of a component that are measured.
	componentRounds = 20
	// componentUnit is ready some time after its start, as a program that loads data.
	componentUnit = `[Unit]
Description=%s

[Service]
Type=notify
NotifyAccess=all
ExecStart={{current}}/program

[Install]
WantedBy=multi-user.target
`
	componentProgram = "#!/bin/sh\nsleep 0.2\nsystemd-notify --ready\nexec sleep infinity\n"
)

// BenchmarkSystemdOutage measures in a machine with a real systemd how long a unit does not
// run during an upgrade, from its stop until it is ready, and what the parts cost. Of that,
// start is what systemd takes to start the unit without an upgrade. The goal is an outage of
// at most start + 100 ms. With another unit most of it is systemd's reload in Install, which
// runs the generators of the host.
func BenchmarkSystemdOutage(b *testing.B) {
	var machine nspawn.Inside
	defer func() {
		if err := machine.Close(); err != nil {
			b.Error(err)
		}
	}()
	if !machine.Test(b) {
		return
	}
	for _, bench := range []struct {
		name string
		unit func(round int) string
	}{
		{"same unit", func(int) string { return fmt.Sprintf(componentUnit, "web") }},
		{"another unit", func(round int) string { return fmt.Sprintf(componentUnit, "web, round "+strconv.Itoa(round)) }},
	} {
		b.Run(bench.name, func(b *testing.B) {
			for b.Loop() {
				systemdOutage(b, bench.unit)
			}
		})
	}
}

func systemdOutage(b *testing.B, unit func(round int) string) {
	b.Helper()
	check := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	ctx := b.Context()
	a := systemd.New(systemd.Options{Disk: disk.OS{}})
	took := map[string][]time.Duration{}
	measure := func(what string, f func() error) {
		b.Helper()
		from := time.Now()
		check(f())
		took[what] = append(took[what], time.Since(from))
	}
	var before *runtime.Release
	for round := range componentRounds {
		r := componentRelease(b, round, unit(round))
		check(a.Check(ctx, r))
		from := time.Now()
		if before != nil {
			measure("stop", func() error { return a.Stop(ctx, before) })
		}
		measure("install", func() error { return a.Install(ctx, r, before) })
		target, err := filepath.Rel(r.Dir, r.Home)
		check(err)
		check(disk.Point(disk.OS{}, "bench", target, r.Current()))
		measure("reload", func() error { return a.ReloadDaemon(ctx, r) })
		check(a.Start(ctx, r))
		if before != nil {
			outage := time.Since(from)
			start := startTime(b, "web.service")
			took["start"] = append(took["start"], start)
			took["outage"] = append(took["outage"], outage)
			took["outage-start"] = append(took["outage-start"], outage-start)
		}
		before = r
	}
	check(a.Remove(ctx, before))
	for what, all := range took {
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, what+"-ms")
	}
	worst := took["outage-start"]
	b.ReportMetric(float64(worst[len(worst)-1].Microseconds())/1000, "worst-outage-start-ms")
	b.ReportMetric(0, "ns/op") // nothing is repeated
}

func componentRelease(b *testing.B, round int, unit string) *runtime.Release {
	b.Helper()
	r := &runtime.Release{Name: "web", Dir: "/opt/muster/components/web"}
	r.Identity = manifest.Identity{Version: fmt.Sprintf("1.%d.0", round), Hash: "abcdef"}
	r.Home = filepath.Join(r.Dir, "data", "web-"+r.Identity.String())
	r.Component = manifest.Component{Name: "web", Runtime: "systemd", Settings: map[string]any{"unit": "web.service", "unit_file": "web.service"}}
	if err := os.MkdirAll(r.Home, 0o755); err != nil {
		b.Fatal(err)
	}
	for name, text := range map[string]string{"web.service": unit, "program": componentProgram} {
		if err := os.WriteFile(filepath.Join(r.Home, name), []byte(text), 0o755); err != nil {
			b.Fatal(err)
		}
	}
	return r
}

// startTime is how long systemd took to start a unit, from its own figures.
func startTime(b *testing.B, unit string) time.Duration {
	b.Helper()
	at := func(property string) int64 {
		out, err := exec.CommandContext(b.Context(), "systemctl", "show", "--value", "--property="+property, unit).Output()
		if err != nil {
			b.Fatal(err)
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		return n
	}
	return time.Duration(at("ActiveEnterTimestampMonotonic")-at("InactiveExitTimestampMonotonic")) * time.Microsecond
}

// workloads is how many components run on the host whose agent's memory is read.
const workloads = 10

// components measures an agent that supervises components as processes.
func (t *table) components(w *world) {
	w.Helper()
	w.publish("3.0.0", w.Programs.Agent)
	h := w.install("components", "3.0.0")
	program := filepath.Join(w.Dir, "workload")
	w.Check(os.WriteFile(program, []byte("#!/bin/sh\nexec sleep infinity\n"), 0o755))
	policy := "components:\n"
	var names []string
	for i := range workloads {
		name := "web-" + strconv.Itoa(i)
		archive, err := w.Publisher.Component(w.Context(), name, "1.0.0", fmt.Sprintf("name: %s\nruntime: process\nsettings: {program: bin/web}\n", name), "bin/web="+program)
		w.Check(err)
		w.Check(w.Server.Publish(w.Context(), w.Publisher, archive))
		policy += fmt.Sprintf("  - {name: %s, runtime: process, health: {wait_seconds: 1}}\n", name)
		names = append(names, name)
	}
	file := filepath.Join(w.Dir, "components.yaml")
	w.Check(os.WriteFile(file, []byte(policy), 0o600))
	_, err := w.Server.CLI(w.Context(), "policies", "update", "default", "--components", file)
	w.Check(err)
	healthy := func(status string) func() bool {
		return func() bool {
			a, err := w.Server.Agent(w.Context(), h.ID)
			w.Check(err)
			n := 0
			for _, c := range a.Components {
				if c.Name != nil && c.Status == status {
					n++
				}
			}
			return n == workloads
		}
	}
	w.until("the components are reported", healthy("STOPPED"))
	for _, name := range names {
		_, err := w.Server.CLI(w.Context(), "components", "upgrade", name, h.ID, "--version", "1.0.0")
		w.Check(err)
	}
	w.until("all components run", healthy("HEALTHY"))
	time.Sleep(settle)
	t.mebibytes(fmt.Sprintf("agent, idle, with %d components", workloads), rss(w, programs(w, h)["muster-agent"]))
}
