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

	"github.com/muster-fleet/muster/testing/tools/loadtest/generator"
)

const (
	// profileWindow is the length of one profile of the server: pprof cannot end one
	// early, so the profile of a scenario is merged from many.
	profileWindow = 2 * time.Second
	// profileTimeout bounds the wait for one profile on a busy machine.
	profileTimeout = 30 * time.Second
	// profilePause is the pause before the next try when the server did not answer, such
	// as while it restarts.
	profilePause = 100 * time.Millisecond
	// maxProfile bounds the answer; one profile has about 100 kB.
	maxProfile = 64 << 20
	// topFunctions is how many functions are named in each group.
	topFunctions = 3
)

// Side is the CPU time of the server or of the generators in a scenario, by the groups of
// [Groups].
type Side struct {
	CPU map[string]time.Duration `json:"cpu"`
	All time.Duration            `json:"all"`
	Top map[string][]string      `json:"top"` // functions, with their share of the side
}

// scale scales the times so that their sum is account, the CPU time that the kernel
// counted. A profile misses part of the threads that run for less than 10 ms at a time:
// it shows where time goes, but not how much. With an account of 0 scale does nothing.
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

// Profiled is how a scenario spent its CPU time.
type Profiled struct {
	Scenario string `json:"scenario"`
	// Each is what the scenario does Times times; empty if nothing is counted.
	Each  string `json:"each,omitempty"`
	Times int    `json:"times,omitempty"`
	// Server is the server's time, Generator that of all generator processes.
	Server    Side `json:"server"`
	Generator Side `json:"generator"`
}

// Groups are what time is spent on. A sample belongs to allocation and garbage
// collection if its stack contains them, else to the scheduler if its stack contains
// that, and else to the group of the function nearest to the leaf. Time in the kernel
// belongs to the group of the caller.
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

// owners are the groups by the prefix of a function's name. The first match counts, so
// more specific prefixes stand first.
var owners = []struct{ prefix, group string }{
	{"crypto/tls.", groupTLS},
	{"crypto/x509.", groupTLS},
	{"modernc.org/", groupStore},
	{"database/sql", groupStore},
	{"github.com/muster-fleet/muster/server/store/sqlite", groupStore},
	{"github.com/elastic/", groupStore},
	{"github.com/muster-fleet/muster/server/store/elastic", groupStore},
	{"encoding/json", groupJSON},
	{"net/http/pprof.", groupOther}, // the profiling itself
	{"net/http", groupHTTP},
	{"net/textproto.", groupHTTP},
	{"net/url.", groupHTTP},
	{"github.com/gin-gonic/", groupHTTP},
	{"github.com/muster-fleet/", groupOwn},
	{"main.", groupOwn},
}

// memoryWork and schedulerWork are functions of the runtime that decide the group of a
// stack wherever they occur in it.
var (
	memoryWork    = []string{"runtime.mallocgc", "runtime.gcBgMarkWorker", "runtime.gcAssistAlloc", "runtime.bgsweep", "runtime.bgscavenge", "runtime.gcStart", "runtime.gcMarkDone", "runtime.gcMarkTermination", "runtime.(*mheap)", "runtime.gcDrain", "runtime.sweepone"}
	schedulerWork = []string{"runtime.mcall", "runtime.schedule", "runtime.findRunnable", "runtime.futex", "runtime.sysmon", "runtime.morestack", "runtime.lock2", "runtime.unlock2", "runtime.mstart", "runtime.goready", "runtime.ready", "runtime.netpoll", "runtime.gopark"}
)

// functions returns the function names of a sample's stack, from the leaf on.
func functions(s *profile.Sample) (names []string) {
	for _, l := range s.Location {
		for _, line := range l.Line { // inlined functions, innermost first
			if line.Function != nil {
				names = append(names, line.Function.Name)
			}
		}
	}
	return names
}

// groupOf returns the group of a stack, given from the leaf on.
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

// side divides a profile's time among the groups.
func side(p *profile.Profile) Side {
	s := Side{CPU: map[string]time.Duration{}, Top: map[string][]string{}}
	if p == nil {
		return s
	}
	last := len(p.SampleType) - 1 // Go's CPU profiles have the values samples and cpu
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

// short returns a function's name without the folders of its package.
func short(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

func percent(part, whole time.Duration) string {
	return fmt.Sprintf("%.1f %%", 100*part.Seconds()/max(whole.Seconds(), 1e-9))
}

// profiling profiles a running scenario.
type profiling struct {
	r      *run
	name   string
	from   generator.MonoTime
	stop   context.CancelFunc // after it no further window begins
	ended  sync.WaitGroup
	mu     sync.Mutex
	server []*profile.Profile
}

// profileBegin starts to profile the server and the generators if Options.Profiles is set.
func (r *run) profileBegin(ctx context.Context, name string) (*profiling, error) {
	if r.Profiles == "" {
		return nil, nil //nolint:nilnil // end accepts nil
	}
	if err := callAll[generator.ProfileReply](ctx, r.fleet, "Profile", func(*member) any { return generator.ProfileArgs{Begin: true} }, nil); err != nil {
		return nil, err
	}
	going, stop := context.WithCancel(ctx)
	p := &profiling{r: r, name: name, from: generator.Now(), stop: stop}
	p.ended.Go(func() { p.windows(ctx, going) })
	return p, nil
}

// windows profiles the server until going ends.
func (p *profiling) windows(ctx, going context.Context) {
	client := &http.Client{Timeout: profileTimeout}
	defer client.CloseIdleConnections()
	for going.Err() == nil {
		got, err := profileServer(ctx, client, p.r.server.debugURL())
		if err != nil {
			_ = sleep(going, profilePause) // the server restarts, or the run ends
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

// end waits for the last window, writes the profiles to files and adds them to the
// table. It does nothing if p is nil.
func (p *profiling) end(ctx context.Context) error {
	if p == nil {
		return nil
	}
	var agents []*profile.Profile
	var bad error
	err := callAll(ctx, p.r.fleet, "Profile", func(*member) any { return generator.ProfileArgs{} }, func(_ *member, reply *generator.ProfileReply) {
		got, err := profile.Parse(bytes.NewReader(reply.CPU))
		if err != nil {
			bad = fmt.Errorf("profile of the agents: %w", err)
			return
		}
		agents = append(agents, got)
	})
	to := generator.Now()
	p.stop()
	p.ended.Wait()
	if err = errors.Join(err, bad); err != nil {
		return err
	}
	servers := p.r.servers.cpu(p.from, generator.Now())
	if p.name == "restart" {
		servers = 0 // the time of the process that ended is not known
	}
	done := Profiled{Scenario: p.name, Each: p.r.work.what, Times: p.r.work.times}
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

// markdown writes the profile as a table.
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
			fmt.Fprintf(b, " %s | %s | %s |", Format(Seconds, took.Seconds()/float64(max(1, p.Times))), percent(took, s.All), strings.Join(s.Top[group], ", "))
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
}
