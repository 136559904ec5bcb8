// Package demo implements `go tool mage demo`: a server, three agents and four signed
// packages, two of them bad, on this machine, and on one host a component with three versions,
// one of them bad. A visitor upgrades in the browser; with Auto the demo upgrades and checks
// the results itself.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/testing/kit/harness"
	"github.com/muster-fleet/muster/testing/kit/toolchain"
)

// The versions of the demo.
const (
	first     = "1.0.0" // installed on the hosts
	better    = "1.1.0" // good
	broken    = "1.2.0" // dies as it starts
	unhealthy = "1.3.0" // starts, then fails a check of itself
)

// grace is how long upgrades are watched: long enough to be seen, and short enough to wait
// for.
const grace = 8 * time.Second

// waitFor bounds each wait, at four times its usual time.
const waitFor = 90 * time.Second

var hostNames = []string{"web-01", "web-02", "db-01"}

// Options configure a demo.
type Options struct {
	Root string // the repository
	Auto bool   // perform the upgrades, check them, and end
	Out  io.Writer
}

// Run runs the demo until ctx ends, or with Auto until it is done.
func Run(ctx context.Context, o Options) (err error) {
	if err := toolchain.BuildUI(ctx, o.Root, o.Out); err != nil {
		// The demo works without the UI, and the visitor should know why the page is empty.
		fmt.Fprintf(o.Out, "The web UI is not built: %v\n", err)
	}
	programs, err := toolchain.BuildPrograms(ctx, o.Root, filepath.Join(o.Root, "build", "bin"), "", o.Out)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "muster-demo-")
	if err != nil {
		return err
	}
	l := &harness.Fleet{Dir: dir, Programs: programs}
	d := &demo{Options: o, fleet: l, began: time.Now(), phase: map[string]string{}}
	defer func() {
		fmt.Fprintln(o.Out, "Stopping the server and the agents …")
		stopped := d.stop()
		if err == nil && stopped == nil {
			err = os.RemoveAll(dir)
			return
		}
		fmt.Fprintf(o.Out, "Left for you to look at: %s\n", dir)
		err = errors.Join(err, stopped)
	}()
	if err := d.setUp(ctx); err != nil {
		return err
	}
	if o.Auto {
		return d.auto(ctx)
	}
	d.invite()
	<-ctx.Done()
	return nil
}

type demo struct {
	Options
	fleet  *harness.Fleet
	server *harness.Server
	hosts  []*harness.Host
	began  time.Time
	page   *harness.Page

	mu    sync.Mutex
	phase map[string]string // last phase printed, by agent
}

func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.Out, "%6.1f s  %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}

func (d *demo) setUp(ctx context.Context) error {
	publisher, archives := d.fleet.NewPublisher("publisher"), map[string]string{}
	var err error
	for version, agent := range map[string]string{first: d.fleet.Programs.Agent, better: d.fleet.Programs.Agent, broken: d.fleet.Programs.Crasher, unhealthy: d.fleet.Programs.Unhealthy} {
		if archives[version], err = publisher.Package(ctx, version, agent); err != nil {
			return err
		}
	}
	d.say("built %s, %s, %s and %s", first, better, broken, unhealthy)
	pages, err := d.buildPages(ctx, publisher)
	if err != nil {
		return err
	}
	if d.server, err = d.fleet.StartServer(ctx); err != nil {
		return err
	}
	d.say("server runs: agents %s, UI %s", d.server.Info.AgentURL, d.server.Info.AdminURL)
	if err := d.server.Publish(ctx, publisher, append(pages, archives[first], archives[better], archives[broken], archives[unhealthy])...); err != nil {
		return err
	}
	d.say("published them, signed by keys that hosts trust by the root %s", publisher.TrustRoot)
	if err := d.server.Follow(ctx, d.show); err != nil {
		return err
	}
	for _, name := range hostNames {
		h, err := d.fleet.Install(ctx, d.server, publisher, archives[first], name, harness.HostOptions{Grace: grace})
		if err != nil {
			return err
		}
		d.hosts = append(d.hosts, h)
		if err := h.Start(); err != nil {
			return err
		}
	}
	online, cancel := context.WithTimeout(ctx, waitFor)
	defer cancel()
	if err := d.server.Online(online, first, d.hosts...); err != nil {
		return err
	}
	d.say("%d agents at %s are online", len(d.hosts), first)
	return d.installPage(ctx)
}

// show prints the phases of upgrades as they happen.
func (d *demo) show(e adminapi.Event) {
	if e.Type != "agent.upgrade" || e.Data == nil {
		return
	}
	agent, _ := (*e.Data)["agent"].(map[string]any)
	if agent == nil {
		return
	}
	phase := phaseOf(agent)
	d.mu.Lock()
	defer d.mu.Unlock()
	if phase == "" || d.phase[e.Subject] == phase {
		return
	}
	d.phase[e.Subject] = phase
	name := e.Subject
	for _, h := range d.hosts {
		if h.ID == e.Subject {
			name = h.Name
		}
	}
	d.say("%-8s %s", name, phase)
}

func phaseOf(agent map[string]any) string {
	ref, _ := agent["agent"].(map[string]any)
	details, _ := agent["upgrade_details"].(map[string]any)
	if details == nil {
		if agent["upgrade_started_at"] != nil {
			return "upgrade requested"
		}
		return fmt.Sprintf("runs %v", ref["version"])
	}
	text := fmt.Sprintf("%v to %v", details["state"], details["target_version"])
	meta, _ := details["metadata"].(map[string]any)
	for _, key := range []string{"reason", "error_msg"} {
		if s, _ := meta[key].(string); s != "" {
			return text + ": " + s
		}
	}
	return text
}

// stop stops all programs concurrently, since mage kills an interrupted target after five
// seconds.
func (d *demo) stop() error {
	stops := []func() error{}
	for _, h := range d.hosts {
		stops = append(stops, h.Stop)
	}
	if d.server != nil {
		stops = append(stops, d.server.Stop)
	}
	errs := make([]error, len(stops))
	var all sync.WaitGroup
	for i, stop := range stops {
		all.Go(func() { errs[i] = stop() })
	}
	all.Wait()
	return errors.Join(errs...)
}

func (d *demo) invite() {
	fmt.Fprintf(d.Out, `
Open the web UI (it has a certificate of its own: your browser asks once):

  %s

Then try:
  · select all three agents and upgrade them to %s: a good release
  · upgrade one to %s: it dies as it starts, and the watcher puts %s back
  · upgrade one to %s: it starts well, turns unhealthy, and is rolled back
  · open %s, which a component on %s serves, and upgrade the component to %s
    on the page of that host; %s ends at once, and the agent puts %s back
  · look at Activity for the orders and their results

On the command line:
  export MUSTER_URL=%s MUSTER_CA_PIN=%s
  export MUSTER_API_KEY=%s
  %s agents list

Hosts are installed in %s. Ctrl-C stops everything and removes it.

`, d.server.Info.LoginURL, better, broken, better, unhealthy, d.page.URL(), d.hosts[0].Name, better, broken, better, d.server.Info.AdminURL, d.server.Info.CAPin, d.server.Info.AdminKey, d.fleet.Programs.Muster, d.fleet.Dir)
}

// auto performs one good upgrade of all hosts and two bad ones of one host each.
func (d *demo) auto(ctx context.Context) error {
	var ids []string
	for _, h := range d.hosts {
		ids = append(ids, h.ID)
	}
	if err := d.upgrade(ctx, better, ids...); err != nil {
		return err
	}
	for _, h := range d.hosts {
		if err := d.expect(ctx, h, better, ""); err != nil {
			return err
		}
	}
	d.say("GOOD      all three hosts run %s", better)
	for _, bad := range []struct {
		host    *harness.Host
		version string
		why     string
	}{{d.hosts[0], broken, "dies as it starts"}, {d.hosts[1], unhealthy, "turns unhealthy"}} {
		if err := d.upgrade(ctx, bad.version, bad.host.ID); err != nil {
			return err
		}
		if err := d.expect(ctx, bad.host, better, fleet.UpgradeRolledBack); err != nil {
			return err
		}
		d.say("ROLLBACK  %s %s, and %s runs %s again", bad.version, bad.why, bad.host.Name, better)
	}
	if err := d.autoPage(ctx); err != nil {
		return err
	}
	fmt.Fprintln(d.Out, "\nOne good upgrade of three hosts, two bad ones rolled back, and the same with a component, as expected.")
	return nil
}

func (d *demo) upgrade(ctx context.Context, version string, ids ...string) error {
	d.say("          asking %d to upgrade to %s", len(ids), version)
	_, err := d.server.CLI(ctx, append([]string{"agents", "upgrade", "--version", version}, ids...)...)
	return err
}

// expect waits until a host has a version and an upgrade status, and checks that its
// pointer leads to that version.
func (d *demo) expect(ctx context.Context, h *harness.Host, version string, status adminapi.AgentUpgradeStatus) error {
	ctx, cancel := context.WithTimeout(ctx, waitFor)
	defer cancel()
	_, err := d.server.Wait(ctx, h.ID, fmt.Sprintf("%s runs %s with upgrade status %q", h.Name, version, status), func(a adminapi.Agent) bool {
		over := a.UpgradeDetails == nil
		if status != "" {
			over = a.UpgradeStatus != nil && *a.UpgradeStatus == status && reasonCode(a) != ""
		}
		return over && a.UpgradeStartedAt == nil && a.Agent.Version == version && (status == "") == (a.UpgradeStatus == nil)
	})
	if err != nil {
		return err
	}
	// The watcher reports a rollback before it begins.
	for {
		runs, err := h.Runs()
		if err == nil && strings.HasPrefix(runs, version+"-") {
			return nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(err, fmt.Errorf("%s: the server says %s, the pointer leads to %s", h.Name, version, runs))
		}
	}
}

// reasonCode returns the reason of a rollback, or "" before the watcher has reported it.
func reasonCode(a adminapi.Agent) string {
	if d := a.UpgradeDetails; d != nil && d.Metadata != nil && d.Metadata.ReasonCode != nil {
		return *d.Metadata.ReasonCode
	}
	return ""
}
