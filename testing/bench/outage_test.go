//go:build linux

package bench

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/action"
	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/outage"
	"github.com/muster-fleet/muster/server/outage/outagetest"
)

const (
	// outageVariable makes the fleet smaller, to try it; OUTAGE.md is written only
	// without it.
	outageVariable = "MUSTER_BENCH_OUTAGE"
	// outageAgents is the fleet that outage.max_bytes is made for, and outageTime how
	// long the store is away from it.
	outageAgents = 19_000
	outageTime   = 10 * time.Minute
	// outageTogether is how many agents speak at the same time: enough that messages
	// share a flush, and each has its answer before the processor is short.
	outageTogether = 64
	// orderBatch is how many agents one action may name.
	orderBatch = 10_000
	// outagePatience bounds the replay, at ten times what it takes alone on a machine.
	outagePatience = 30 * time.Minute
)

// BenchmarkOutage takes the store away from the whole fleet while everybody is being
// upgraded, and gives it back.
func BenchmarkOutage(b *testing.B) {
	n, whole := outageAgents, true
	if text := os.Getenv(outageVariable); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 1 {
			b.Fatalf("%s is %q, want a number above 0", outageVariable, text)
		}
		whole = false
	}
	for b.Loop() {
		load := loadAverage()
		o := newOutage(b, n)
		o.begin()
		o.speak()
		o.comeBack()
		o.verify()
		o.check(o.close())
		if b.Failed() {
			return
		}
		o.report(whole, fmt.Sprintf(outageHead, n, thisMachine(), load, o.metadataBytes, o.checkinBytes))
	}
}

const outageHead = `# What an outage of the store costs

%d agents are all being upgraded when the store goes away, and what they say in ten minutes comes as fast as it is taken: to the real
handlers and services of agents' messages, without a network. Then the store, the embedded one, is back. %s;
the load average was %s when it began. Written by ` + "`go tool mage bench`" + `.

Each agent acknowledges, tells every phase, two figures of its download and two changes of its health; its watcher sends seven
beacons. One in fifty cannot download, one in fifty is rolled back, one in ten is still watched at the end. A check-in has %d bytes of
metadata, %d in all. It is over when what it said is durable and it is parked: then the server ends the poll the agent had before.
Memory is of server and agents together, above what they had with everybody parked.
At the end each agent's result, version, last phase and watch are in the store, and its phases in the stream of events, in their order.

`

// outageRun is one outage.
type outageRun struct {
	*testing.B
	*outageServer
	hosts []*outageHost

	metadataBytes, checkinBytes int
	times                       map[string][]time.Duration // until durable, by what was said
	took                        time.Duration
	rss, rssPeak, rssAfter      int64
	messages                    int   // kept at the end
	counted                     int64 // what the kept ones take of the bound
	disk, diskAfter             int64
	replay, room                time.Duration // since the store is back: all is written, the disk has its room back
	events                      int
}

// newOutage writes the fleet into a store that can be switched off, and starts a
// server on it.
func newOutage(b *testing.B, n int) *outageRun {
	b.Helper()
	o := &outageRun{B: b, outageServer: startOutageServer(b), times: map[string][]time.Duration{}}
	now := time.Now().UTC()
	for i := range n {
		o.hosts = append(o.hosts, newOutageHost(i, o.client))
	}
	together(b, n, loaders, func(i int) error {
		h := o.hosts[i]
		return o.db.Agents().Create(b.Context(), fleet.Agent{
			ID: h.id, Type: "PERMANENT", Active: true, PolicyID: fleet.DefaultPolicyID, EnrolledAt: now, Version: oldVersion,
			AccessKeyID: h.agentKey.ID, AccessKeyHash: h.agentKey.Hash(), WatcherKeyID: h.watcherKey.ID, WatcherKeyHash: h.watcherKey.Hash(),
			LocalMetadata: h.metadata(oldVersion), Components: h.components("HEALTHY"), Tags: []string{},
			Last: fleet.LastSeen{At: &now, Status: "online", Message: "Running"},
		})
	})
	return o
}

func (o *outageRun) check(err error) {
	o.Helper()
	if err != nil {
		o.Fatal(err)
	}
}

// begin orders the upgrade, gives it to everybody, and takes the store away.
func (o *outageRun) begin() {
	o.Helper()
	for batch := range slices.Chunk(o.hosts, orderBatch) {
		ids := make([]string, len(batch))
		for i, h := range batch {
			ids[i] = h.id
		}
		made, err := o.actions.Upgrade(o.Context(), action.UpgradeOrder{
			UpgradeWish: fleet.UpgradeWish{Version: newVersion, SourceURI: "https://packages.example/", Force: true}, AgentIDs: ids, Actor: "bench",
		})
		o.check(err)
		for _, h := range batch {
			h.actionID = made.ID
		}
	}
	together(o.B, len(o.hosts), outageTogether, func(i int) error {
		h := o.hosts[i]
		p := o.send(h, h.report(oldVersion, "online", "HEALTHY", nil))
		if err := p.answered(); err != nil {
			return err
		}
		if len(p.resp.Actions) != 1 || p.resp.Actions[0].ID != h.actionID {
			return fmt.Errorf("agent %s waits for action %s and is given %+v", h.id, h.actionID, p.resp.Actions)
		}
		h.token = p.resp.AckToken
		return nil
	})
	o.switched.Set(outagetest.Gone)
	o.until("the store is away", func() bool { return o.keeper.Away() != nil })
	sample := o.hosts[0].report(newVersion, "online", "HEALTHY", o.hosts[0].details(agentapi.UpgradeWatching))
	body, err := json.Marshal(sample)
	o.check(err)
	o.metadataBytes, o.checkinBytes = len(sample.LocalMeta), len(body)
}

// speak has everybody say all that an upgrade makes them say. All take a step before
// anybody takes the next, in another order each time: what one agent says lies far
// apart, as it does in ten minutes of a fleet.
func (o *outageRun) speak() {
	o.Helper()
	steps := 0
	for _, h := range o.hosts {
		h.plan = h.upgrade()
		steps = max(steps, len(h.plan))
	}
	// The first poll after the order is parked, and ends none.
	for i, h := range o.hosts {
		h.parked = o.send(h, h.report(oldVersion, "online", "HEALTHY", nil))
		o.until("most of those who came are parked", func() bool { return o.parker.Count() > i-outageTogether })
	}
	o.until("everybody is parked", func() bool {
		n, _ := o.keeper.Journal.Size()
		return n == len(o.hosts) && o.parker.Count() == n
	})
	o.rss = resident(o.B, "VmRSS")
	o.check(os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)) // the peak is counted from here
	order := rand.Perm(len(o.hosts))
	began := time.Now()
	for step := range steps {
		rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		said := make([]string, len(order))
		got := together(o.B, len(order), outageTogether, func(i int) error {
			h := o.hosts[order[i]]
			if step >= len(h.plan) {
				return nil
			}
			said[i] = h.plan[step].name
			return o.say(h, h.plan[step])
		})
		for i, name := range said {
			if name != "" {
				o.times[name] = append(o.times[name], got[i])
			}
		}
	}
	o.took = time.Since(began)
	o.rssPeak = resident(o.B, "VmHWM")
	o.messages, o.counted = o.keeper.Journal.Size()
	o.disk = o.journalBytes()
	o.rssAfter = resident(o.B, "VmRSS")
	if problem := o.keeper.Journal.Problem(); problem != "" {
		o.Errorf("the bound is not held: %s", problem)
	}
}

// comeBack gives the store back, and waits until it has everything.
func (o *outageRun) comeBack() {
	o.Helper()
	began := time.Now()
	o.switched.Set(outagetest.There)
	o.until("everything is written", func() bool { return o.keeper.CaughtUp() == nil })
	o.replay = time.Since(began)
	if dropped := o.keeper.Dropped(); dropped != 0 {
		o.Errorf("%d messages were dropped", dropped)
	}
	for o.diskAfter = o.journalBytes(); o.diskAfter > o.disk/10 && time.Since(began) < o.replay+patience; o.diskAfter = o.journalBytes() {
		time.Sleep(10 * time.Millisecond)
	}
	o.room = time.Since(began)
	for _, h := range o.hosts {
		h.parked.hangUp()
		<-h.parked.done
	}
}

// verify looks for what every agent has said.
func (o *outageRun) verify() {
	o.Helper()
	phases := o.toldPhases()
	wrong := 0
	fail := func(h *outageHost, format string, args ...any) {
		o.Helper()
		if wrong++; wrong <= 10 { // one mistake has thousands of victims
			o.Errorf("agent %s, %s: "+format, append([]any{h.id, h.end}, args...)...)
		}
	}
	for batch := range slices.Chunk(o.hosts, loadBatch) {
		ids := make([]string, len(batch))
		for i, h := range batch {
			ids[i] = h.id
		}
		stored, err := o.db.Agents().GetMany(o.Context(), ids)
		o.check(err)
		byID := map[string]fleet.Agent{}
		for _, a := range stored {
			byID[a.ID] = a
		}
		for _, h := range batch {
			a, ok := byID[h.id]
			if !ok {
				fail(h, "is not in the store")
				continue
			}
			if got, want := endOf(a), h.wantEnd(); got != want {
				fail(h, "ended as %s, want %s", got, want)
			}
			if got, want := phases[h.id], h.wantPhases(); !slices.Equal(got, want) {
				fail(h, "told the phases %v, want %v", got, want)
			}
			r, err := o.db.Results().Get(o.Context(), h.actionID, h.id)
			if err != nil {
				fail(h, "its result: %v", err)
			} else if failed := r.Error != ""; failed != h.end.badly() {
				fail(h, "its result has the error %q", r.Error)
			}
		}
	}
	if wrong > 10 {
		o.Errorf("%d mistakes in all", wrong)
	}
}

// toldPhases are the phases of each agent in the stream of events.
func (o *outageRun) toldPhases() map[string][]agentapi.UpgradeState {
	o.Helper()
	told := map[string][]agentapi.UpgradeState{}
	for after := int64(0); ; {
		list, err := o.db.Events().After(o.Context(), after, 1000)
		o.check(err)
		if len(list) == 0 {
			return told
		}
		after = list[len(list)-1].Seq
		o.events += len(list)
		for _, e := range list {
			if e.Type != fleet.EventAgentUpgrade {
				continue
			}
			var d struct {
				Details *agentapi.UpgradeDetails `json:"upgrade_details"`
			}
			o.check(json.Unmarshal(e.Data, &d))
			if seen := told[e.Subject]; d.Details != nil && (len(seen) == 0 || seen[len(seen)-1] != d.Details.State) {
				told[e.Subject] = append(seen, d.Details.State)
			}
		}
	}
}

func (o *outageRun) send(h *outageHost, req agentapi.CheckinRequest) *poll {
	ctx, hangUp := context.WithCancel(o.Context())
	p := &poll{hangUp: hangUp, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.err = h.post(ctx, agentapi.PathCheckin, h.agentKey, req, &p.resp)
		p.at = time.Now()
	}()
	return p
}

// say says one thing, and returns when it is durable.
func (o *outageRun) say(h *outageHost, w words) error {
	switch {
	case w.ack != nil:
		var resp agentapi.AckResponse
		if err := h.post(o.Context(), agentapi.PathAcks, h.agentKey, agentapi.AckRequest{Events: []agentapi.AckEvent{*w.ack}}, &resp); err != nil {
			return err
		}
		if len(resp.Items) != 1 || resp.Items[0].Status != http.StatusOK {
			return fmt.Errorf("the acknowledgement of agent %s is answered %+v", h.id, resp)
		}
		return nil
	case w.beacon != nil:
		w.beacon.At = time.Now().UTC()
		return h.post(o.Context(), agentapi.PathBeacon, h.watcherKey, w.beacon, nil)
	}
	before := h.parked
	w.checkin.AckToken = h.token
	h.parked = o.send(h, *w.checkin)
	select {
	case <-before.done:
		return before.err
	case <-h.parked.done:
		return cmp.Or(h.parked.err, fmt.Errorf("agent %s is given something that nobody ordered: %+v", h.id, h.parked.resp))
	case <-time.After(patience):
		return errors.New("a check-in is not parked")
	}
}

// until waits for what may take as long as the replay.
func (o *outageRun) until(what string, ok func() bool) {
	o.Helper()
	for deadline := time.Now().Add(outagePatience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			o.Fatalf("waited in vain until %s: %s", what, o.keeper.Degraded())
		}
	}
}

// journalBytes is what the journal takes on disk.
func (o *outageRun) journalBytes() int64 {
	o.Helper()
	var sum int64
	o.check(filepath.WalkDir(o.journalDir(), func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			sum += info.Size()
		}
		return err
	}))
	return sum
}

// resident is one of the kernel's figures of this process's memory in bytes, after
// what is garbage has been given back.
func resident(b *testing.B, key string) int64 {
	b.Helper()
	if key == "VmRSS" {
		debug.FreeOSMemory()
	}
	_, value, _ := strings.Cut(string(must(os.ReadFile("/proc/self/status"))), "\n"+key+":")
	var kibibytes int64
	if _, err := fmt.Sscan(value, &kibibytes); err != nil {
		b.Fatalf("%s of /proc/self/status: %v", key, err)
	}
	return kibibytes << 10
}

// report prints the table, and writes it into OUTAGE.md if that is wanted.
func (o *outageRun) report(write bool, head string) {
	o.Helper()
	out := bytes.NewBufferString(head)
	row := func(name, value, goal string) { fmt.Fprintf(out, "| %s | %s | %s |\n", name, value, goal) }
	fmt.Fprintf(out, "| figure | | bound |\n|---|--:|--:|\n")
	said := 0
	for _, all := range o.times {
		said += len(all)
	}
	row("messages sent", fmt.Sprint(said), "")
	row("messages kept", fmt.Sprint(o.messages), "")
	row("· what they take of `outage.max_bytes`", megabytes(o.counted), megabytes(outage.DefaultMaxBytes))
	row("· bytes on disk", megabytes(o.disk), megabytes(outage.DefaultMaxBytes))
	row("time of taking all of it", spell(o.took), spell(outageTime))
	row("· messages a second", fmt.Sprintf("%.0f", float64(said)/o.took.Seconds()), fmt.Sprintf("≥ %.0f", float64(said)/outageTime.Seconds()))
	for _, name := range []string{saidAck, saidCheckin, saidFigures, saidBeacon} {
		if all := o.times[name]; len(all) > 0 {
			row(fmt.Sprintf("· %s until durable, p50; p99", name), spell(percentile(all, 50))+"; "+spell(percentile(all, 99)), spell(outage.CallTimeout))
		}
	}
	row("memory while it is taken, at most", megabytes(o.rssPeak-o.rss), "")
	row("memory afterwards, garbage given back", megabytes(o.rssAfter-o.rss), "")
	row("store back → everything written", spell(o.replay), "")
	row("· messages a second", fmt.Sprintf("%.0f", float64(o.messages)/o.replay.Seconds()), "")
	row("· until the disk has its room back", spell(o.room-o.replay), spell(outage.CallTimeout))
	row("· bytes on disk then", megabytes(o.diskAfter), "")
	row("events that the store has then", fmt.Sprint(o.events), "")
	fmt.Println("\n" + out.String())
	if !write {
		return
	}
	o.check(os.WriteFile("OUTAGE.md", out.Bytes(), 0o644))
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }
