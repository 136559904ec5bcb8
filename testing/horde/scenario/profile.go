//go:build linux

package scenario

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/pprof/profile"

	"github.com/muster-fleet/muster/testing/horde/herd"
)

const (
	// profileWindow is how long one profile of a server is: pprof has no way to end
	// one early, so a scenario's is put together from many.
	profileWindow = 2 * time.Second
	// profileTimeout bounds the wait for one on a machine that has much to do.
	profileTimeout = 30 * time.Second
	// profilePause lies before the next try at a server that did not answer: it is
	// being restarted.
	profilePause = 100 * time.Millisecond
	// maxProfile bounds the answer: a window has some 100 kB.
	maxProfile = 64 << 20
	// topFunctions are named in each group.
	topFunctions = 3
)

// Side is the time of one side in a scenario, by group. Groups are in [Groups].
type Side struct {
	CPU map[string]time.Duration `json:"cpu"`
	All time.Duration            `json:"all"`
	Top map[string][]string      `json:"top"` // functions, with their share of the side
}

// scale makes the times those of the kernel's account. A profile misses a part of
// threads that run for less than its hundredth of a second at a time: it tells where
// time goes, and not how much. 0 is no account.
func (s *Side) scale(account time.Duration) {
	if account <= 0 || s.All <= 0 {
		return
	}
	by := account.Seconds() / s.All.Seconds()
	for group, took := range s.CPU {
		s.CPU[group] = time.Duration(float64(took) * by)
	}
	s.All = account
}

// Profiled is where the time of a scenario went.
type Profiled struct {
	Scenario string `json:"scenario"`
	// Each is what the scenario does Times times; empty: nothing that is counted.
	Each  string `json:"each,omitempty"`
	Times int    `json:"times,omitempty"`
	// Server is that of the server, Generator that of all processes with agents.
	Server    Side `json:"server"`
	Generator Side `json:"generator"`
}

// Groups are what time is spent on. A sample belongs to the first of these rules
// that it meets: garbage collection and allocation, whoever asks for it; the
// scheduler; else whoever is nearest to the leaf of the stack among the rest.
// Time in the kernel belongs to whoever called it.
var Groups = []string{
	groupTLS, groupNetwork, groupHTTP, groupJSON, groupStore, groupDisk, groupOwn, groupMemory, groupScheduler, groupOther,
}

const (
	groupTLS       = "TLS"
	groupNetwork   = "system calls, not of the store"
	groupHTTP      = "HTTP (net/http, gin)"
	groupJSON      = "JSON"
	groupStore     = "store (SQLite, its driver)"
	groupDisk      = "store, system calls"
	groupOwn       = "the program's own code"
	groupMemory    = "allocation, garbage collection"
	groupScheduler = "scheduler, locks"
	groupOther     = "other"
)

// owners are the groups by the beginning of a function's name. The first that fits
// counts, so what is more special stands first.
var owners = []struct{ prefix, group string }{
	{"crypto/tls.", groupTLS},
	{"crypto/x509.", groupTLS},
	{"modernc.org/", groupStore},
	{"database/sql", groupStore},
	{"github.com/muster-fleet/muster/server/store/sqlite", groupStore},
	{"github.com/elastic/", groupStore},
	{"github.com/muster-fleet/muster/server/store/elastic", groupStore},
	{"encoding/json", groupJSON},
	{"net/http/pprof.", groupOther}, // the measuring itself
	{"net/http", groupHTTP},
	{"net/textproto.", groupHTTP},
	{"net/url.", groupHTTP},
	{"github.com/gin-gonic/", groupHTTP},
	{"github.com/muster-fleet/", groupOwn},
	{"main.", groupOwn},
}

// memoryWork and schedulerWork are runtime functions that tell what a stack is for,
// wherever in it they are.
var (
	memoryWork    = []string{"runtime.mallocgc", "runtime.gcBgMarkWorker", "runtime.gcAssistAlloc", "runtime.bgsweep", "runtime.bgscavenge", "runtime.gcStart", "runtime.gcMarkDone", "runtime.gcMarkTermination", "runtime.(*mheap)", "runtime.gcDrain", "runtime.sweepone"}
	schedulerWork = []string{"runtime.mcall", "runtime.schedule", "runtime.findRunnable", "runtime.futex", "runtime.sysmon", "runtime.morestack", "runtime.lock2", "runtime.unlock2", "runtime.mstart", "runtime.goready", "runtime.ready", "runtime.netpoll", "runtime.gopark"}
)

// functions are the names on a sample's stack, from the leaf on.
func functions(s *profile.Sample) (names []string) {
	for _, l := range s.Location {
		for _, line := range l.Line { // functions that were inlined, innermost first
			if line.Function != nil {
				names = append(names, line.Function.Name)
			}
		}
	}
	return names
}

// groupOf says what the time of a stack, from its leaf on, was spent on.
func groupOf(stack []string) string {
	if len(stack) == 0 {
		return groupOther
	}
	hasAny := func(beginnings []string) bool {
		return slices.ContainsFunc(stack, func(name string) bool {
			return slices.ContainsFunc(beginnings, func(b string) bool { return strings.HasPrefix(name, b) })
		})
	}
	owner := groupOther
	for _, name := range stack {
		i := slices.IndexFunc(owners, func(o struct{ prefix, group string }) bool { return strings.HasPrefix(name, o.prefix) })
		if i >= 0 {
			owner = owners[i].group
			break
		}
	}
	kernel := slices.ContainsFunc(stack[:min(len(stack), 3)], func(name string) bool {
		return strings.HasPrefix(name, "internal/runtime/syscall") || strings.HasPrefix(name, "syscall.") || strings.HasPrefix(name, "golang.org/x/sys/unix.")
	})
	switch {
	case hasAny(memoryWork):
		return groupMemory
	case kernel && owner == groupStore:
		return groupDisk
	case kernel && !hasAny(schedulerWork):
		return groupNetwork
	case owner == groupOther && hasAny(schedulerWork), strings.HasPrefix(stack[0], "runtime.futex"):
		return groupScheduler
	}
	return owner
}

// side divides a profile's time.
func side(p *profile.Profile) Side {
	s := Side{CPU: map[string]time.Duration{}, Top: map[string][]string{}}
	if p == nil {
		return s
	}
	last := len(p.SampleType) - 1 // samples, cpu: Go's profiles have both
	flat := map[string]map[string]time.Duration{}
	for _, sample := range p.Sample {
		stack := functions(sample)
		took := time.Duration(sample.Value[last])
		group := groupOf(stack)
		s.CPU[group] += took
		s.All += took
		if len(stack) > 0 {
			if flat[group] == nil {
				flat[group] = map[string]time.Duration{}
			}
			flat[group][stack[0]] += took
		}
	}
	for group, times := range flat {
		names := make([]string, 0, len(times))
		for name := range times {
			names = append(names, name)
		}
		slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(times[b], times[a]), strings.Compare(a, b)) })
		for _, name := range names[:min(len(names), topFunctions)] {
			s.Top[group] = append(s.Top[group], fmt.Sprintf("%s %s", short(name), percent(times[name], s.All)))
		}
	}
	return s
}

// short is a function's name without the folders of its package.
func short(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

func percent(part, whole time.Duration) string {
	return fmt.Sprintf("%.1f %%", 100*part.Seconds()/max(whole.Seconds(), 1e-9))
}

// profiling takes profiles of a scenario while it goes on.
type profiling struct {
	r      *run
	name   string
	from   herd.Instant
	stop   context.CancelFunc // no new window after it
	ended  sync.WaitGroup
	mu     sync.Mutex
	server []*profile.Profile
}

// profileBegin begins to profile the server and the agents, if that was asked for.
func (r *run) profileBegin(ctx context.Context, name string) (*profiling, error) {
	if r.Profiles == "" {
		return nil, nil //nolint:nilnil // nothing to end
	}
	if err := tell[herd.ProfileReply](ctx, r.fleet, "Profile", func(*member) any { return herd.ProfileArgs{Begin: true} }, nil); err != nil {
		return nil, err
	}
	going, stop := context.WithCancel(ctx)
	p := &profiling{r: r, name: name, from: herd.Now(), stop: stop}
	p.ended.Go(func() { p.windows(ctx, going) })
	return p, nil
}

// windows profiles the server until going ends.
func (p *profiling) windows(ctx, going context.Context) {
	client := &http.Client{Timeout: profileTimeout}
	defer client.CloseIdleConnections()
	for going.Err() == nil {
		got, err := profileServer(ctx, client, p.r.site.debugURL())
		if err != nil {
			_ = sleep(going, profilePause) // it is being restarted, or the run ends
			continue
		}
		p.mu.Lock()
		p.server = append(p.server, got)
		p.mu.Unlock()
	}
}

func profileServer(ctx context.Context, client *http.Client, url string) (*profile.Profile, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%sprofile?seconds=%.0f", url, profileWindow.Seconds()), nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: answered %s", url, resp.Status)
	}
	return profile.Parse(io.LimitReader(resp.Body, maxProfile))
}

// end waits for the last window, writes the profiles to files and puts into the
// table where the time went. A nil profiling has nothing to end.
func (p *profiling) end(ctx context.Context) error {
	if p == nil {
		return nil
	}
	var agents []*profile.Profile
	var bad error
	err := tell(ctx, p.r.fleet, "Profile", func(*member) any { return herd.ProfileArgs{} }, func(_ *member, reply *herd.ProfileReply) {
		got, err := profile.Parse(bytes.NewReader(reply.CPU))
		if err != nil {
			bad = fmt.Errorf("profile of the agents: %w", err)
			return
		}
		agents = append(agents, got)
	})
	to := herd.Now()
	p.stop()
	p.ended.Wait()
	if err = errors.Join(err, bad); err != nil {
		return err
	}
	servers := p.r.servers.cpu(p.from, herd.Now())
	if p.name == "restart" {
		servers = 0 // what those that ended had used is gone with them
	}
	done := Profiled{Scenario: p.name, Each: p.r.did.what, Times: p.r.did.times}
	for _, of := range []struct {
		who     string
		list    []*profile.Profile
		account time.Duration
		to      *Side
	}{{"server", p.server, servers, &done.Server}, {"generator", agents, p.r.agents.cpu(p.from, to), &done.Generator}} {
		if len(of.list) == 0 {
			*of.to = side(nil)
			continue
		}
		all, err := profile.Merge(of.list)
		if err != nil {
			return fmt.Errorf("profiles of the %s: %w", of.who, err)
		}
		*of.to = side(all)
		of.to.scale(of.account)
		if err := writeProfile(filepath.Join(p.r.Profiles, of.who+"-"+p.name+".pprof"), all); err != nil {
			return err
		}
	}
	p.r.Profiled = append(p.r.Profiled, done)
	return nil
}

func writeProfile(file string, p *profile.Profile) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(p.Write(f), f.Close())
}

// markdown writes the tables of where the time went.
func (p *Profiled) markdown(b *strings.Builder) {
	fmt.Fprintf(b, "### %s", p.Scenario)
	if p.Times > 0 {
		fmt.Fprintf(b, ": for each %s, of %s", p.Each, thousands(p.Times))
	}
	b.WriteString("\n\n| | server | | most of it | generator | | most of it |\n|---|--:|--:|---|--:|--:|---|\n")
	for _, group := range append(slices.Clone(Groups), "all") {
		if group != "all" && p.Server.CPU[group] == 0 && p.Generator.CPU[group] == 0 {
			continue
		}
		fmt.Fprintf(b, "| %s |", group)
		for _, s := range []Side{p.Server, p.Generator} {
			took := s.CPU[group]
			if group == "all" {
				took = s.All
			}
			fmt.Fprintf(b, " %s | %s | %s |", Spell(Seconds, took.Seconds()/float64(max(1, p.Times))), percent(took, s.All), strings.Join(s.Top[group], ", "))
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
}
