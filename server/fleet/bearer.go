package fleet

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// A cloned machine, an image of an enrolled host and a snapshot that was restored beside its
// original have the identity of the original: two programs check in as one agent.
const (
	// overlap is for how long two programs must check in side by side before they count as two. One
	// program follows another at a restart, an upgrade and a rollback, and requests that the first
	// has sent may arrive after those of the second; the server has handled all of them within the
	// 30 seconds in which an agent gives up a request. Twice that is left for slow networks. For as
	// long a new host must check in alone until it counts as the one that has the identity now.
	overlap = time.Minute
	// sharedFor is how long an agent counts as shared after one of the two was last seen beside the
	// other: twice the default time of a poll, after which each of them comes again.
	sharedFor = 10 * time.Minute
	// bearerRest is the time between two records of one bearer. Two programs that share an identity
	// end each other's polls, and so each of them comes every second.
	bearerRest = 30 * time.Second
	// bearerFor is how long a bearer is kept that was replaced: so long that one which was only cut
	// off is known when it comes back.
	bearerFor = time.Hour
	// maxBearers bounds the bearers of a document. Nobody repairs a fleet of clones by a list of
	// them, and a host that crashes again and again begins a new one each time.
	maxBearers = 8
)

// Bearer is a program that has checked in with an agent's key. Elastic's agents, and Muster's before
// they reported more, are told apart by the machine's id alone.
type Bearer struct {
	Hostname string `json:"hostname"`
	Version  string `json:"version"`
	// Absent if its system has none
	MachineID string `json:"machine_id,omitempty"`
	// Another one after each boot; absent from Elastic Agents
	BootID string `json:"boot_id,omitempty"`
	// Another one after each start of the agent; absent from Elastic Agents
	ProcessID string `json:"process_id,omitempty"`
	// When it first checked in
	Since time.Time `json:"since"`
	// When it last came after another one, to half a minute
	Again time.Time `json:"again"` // written at most every bearerRest
}

// BearerOf returns the bearer that a check-in shows. It is zero if the check-in shows none.
func BearerOf(i *agentapi.Instance, m *HostMetadata) Bearer {
	b := Bearer{MachineID: m.Host.ID, Hostname: cmp.Or(m.Host.Hostname, m.Host.Name), Version: m.FullVersion()}
	if i != nil {
		b.BootID, b.ProcessID = i.BootID, i.ProcessID
	}
	return b
}

// is reports whether two check-ins are of one program. A check-in may leave out the metadata with the
// machine's id.
func (b *Bearer) is(o *Bearer) bool {
	if b.ProcessID != "" || o.ProcessID != "" {
		return b.ProcessID == o.ProcessID
	}
	return b.MachineID == o.MachineID
}

// onHostOf reports whether two programs have run on one host, as far as they show.
func (b *Bearer) onHostOf(o *Bearer) bool {
	return b.MachineID == o.MachineID && b.BootID == o.BootID && b.Hostname == o.Hostname
}

// beside reports whether two bearers have checked in side by side, and still do at now: each came
// again after the other had, and did so for longer than one of them needs to replace the other.
func (b *Bearer) beside(o *Bearer, now time.Time) bool {
	again, both := earlier(b.Again, o.Again), later(b.Since, o.Since)
	return !again.Before(both.Add(overlap)) && now.Sub(again) <= sharedFor
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// SharedBy returns the bearers that have one identity at now, the one that was there first before
// the others; nil if there are no two. One host that restarts, crashes, reboots, changes its name or
// its address, is upgraded or rolled back has one bearer after the other, and none of them comes
// again.
func SharedBy(bearers []Bearer, now time.Time) []Bearer {
	var out []Bearer
	for i := range bearers {
		if slices.ContainsFunc(bearers, func(o Bearer) bool { return !o.is(&bearers[i]) && bearers[i].beside(&o, now) }) {
			out = append(out, bearers[i])
		}
	}
	slices.SortStableFunc(out, func(a, b Bearer) int { return a.Since.Compare(b.Since) })
	return out
}

// ObserveBearer records who has checked in, and sets SharedSince and NewHostSince. follows reports
// whether the document follows what the check-in says: of several that share an identity, it follows
// the host that was there first, so that it does not change with each check-in, and a new host once
// that has replaced it.
func (a *Agent) ObserveBearer(b Bearer, now time.Time) (changed, follows bool) {
	if b.MachineID == "" && b.ProcessID == "" {
		return a.observeNewHost("", now)
	}
	last := -1 // the one that came last before
	for i := range a.Bearers {
		if last < 0 || !a.Bearers[i].Again.Before(a.Bearers[last].Again) {
			last = i
		}
	}
	i := slices.IndexFunc(a.Bearers, func(o Bearer) bool { return o.is(&b) })
	switch {
	case i < 0:
		b.Since, b.Again = now, now
		a.Bearers, changed = append(keptBearers(a.Bearers, last, now), b), true
		i = len(a.Bearers) - 1
	default:
		b.Since, b.Again = a.Bearers[i].Since, a.Bearers[i].Again
		if i != last && now.Sub(b.Again) >= bearerRest {
			b.Again = now
		}
		b.MachineID, b.BootID = cmp.Or(b.MachineID, a.Bearers[i].MachineID), cmp.Or(b.BootID, a.Bearers[i].BootID)
		b.Hostname, b.Version = cmp.Or(b.Hostname, a.Bearers[i].Hostname), cmp.Or(b.Version, a.Bearers[i].Version)
		if b != a.Bearers[i] {
			a.Bearers, changed = slices.Clone(a.Bearers), true // the list that was read stays as it is
			a.Bearers[i] = b
		}
	}
	shared := SharedBy(a.Bearers, now)
	if (a.SharedSince != nil) != (shared != nil) {
		a.SharedSince, changed = nil, true
		if shared != nil {
			a.SharedSince = &now
		}
	}
	if shared != nil {
		changed, a.NewHostSince = changed || a.NewHostSince != nil, nil
		return changed, a.Bearers[i].onHostOf(&shared[0])
	}
	is, follows := a.observeNewHost(a.Bearers[i].MachineID, now)
	return changed || is, follows
}

// observeNewHost sets NewHostSince after a check-in of a machine, whose id is empty if it is not
// known. Machines are told apart by their ids alone: one that restarts or reboots keeps it, and is
// not delayed.
func (a *Agent) observeNewHost(machine string, now time.Time) (changed, follows bool) {
	since, others := aloneSince(a.Bearers, machine, now)
	is, follows := false, true
	switch recent := now.Sub(since) < overlap; {
	case !recent:
	case machine == "":
		is = a.NewHostSince != nil
	default: // the metadata are decoded within a minute of a start only
		documents := a.Host().Host.ID
		follows = documents == "" || documents == machine
		// Of a program that comes often, not each check-in is recorded: the other may have come
		// up to bearerRest later than others says.
		is = !follows || documents != "" && now.Sub(others) < overlap+bearerRest
	}
	if is != (a.NewHostSince != nil) {
		a.NewHostSince, changed = nil, true
		if is {
			a.NewHostSince = &now
		}
	}
	return changed, follows
}

// aloneSince returns since when no other machine than this one has checked in, as exactly as the
// bearers show it, and when the last other one came, zero if there is none. It is now if the last to
// come is not known to be this one.
func aloneSince(bearers []Bearer, machine string, now time.Time) (since, others time.Time) {
	for i := range bearers {
		if b := &bearers[i]; b.MachineID != "" && b.MachineID != machine {
			others = later(others, b.Again)
		}
	}
	if machine == "" {
		return others, others
	}
	since = now
	for i := range bearers {
		if b := &bearers[i]; b.MachineID == machine && !b.Again.Before(others) {
			since = earlier(since, b.Again)
		}
	}
	return since, others
}

// Withholds reports whether an action of this type is not delivered to the agent at the moment, since it
// is not clear which host would follow it. What ends the identity or calls something off is right for
// each of them, and what a shared identity can be ordered all the same is delivered to it.
func (a *Agent) Withholds(t agentapi.ActionType) bool {
	switch t {
	case agentapi.ActionCancel, agentapi.ActionUnenroll:
		return false
	case agentapi.ActionSettings, agentapi.ActionPolicyReassign:
		return a.NewHostSince != nil
	}
	return a.NewHostSince != nil || a.SharedSince != nil
}

// NewHostText says that a new host has come and what it waits for; empty if there is none.
func (a *Agent) NewHostText() string {
	if a.NewHostSince == nil || len(a.Bearers) == 0 {
		return ""
	}
	documents := a.Host().Host.ID
	for i := len(a.Bearers) - 1; i >= 0; i-- {
		if b := &a.Bearers[i]; b.MachineID != "" && b.MachineID != documents {
			return fmt.Sprintf("another machine checks in with its identity: %s (machine %s). Orders wait until that one was alone for a minute, or the two count as a shared identity", cmp.Or(b.Hostname, "a host without a name"), short(b.MachineID))
		}
	}
	return ""
}

// keptBearers returns the bearers that are kept when another one appears: the last one before it,
// those that came again lately, and of them the latest.
func keptBearers(bearers []Bearer, last int, now time.Time) []Bearer {
	var kept []Bearer
	for i := range bearers {
		if i == last || now.Sub(bearers[i].Again) < bearerFor {
			kept = append(kept, bearers[i])
		}
	}
	for len(kept) >= maxBearers {
		oldest := 0
		for i := range kept {
			if kept[i].Again.Before(kept[oldest].Again) {
				oldest = i
			}
		}
		kept = slices.Delete(kept, oldest, oldest+1)
	}
	return kept
}

// Sharers returns those that share the agent's identity, the one that its document follows first;
// nil if there are no two.
func (a *Agent) Sharers() []Bearer {
	if a.SharedSince == nil {
		return nil
	}
	// The verdict is that of the last check-in: if both are away, they are still two.
	var latest time.Time
	for i := range a.Bearers {
		latest = later(latest, a.Bearers[i].Again)
	}
	return SharedBy(a.Bearers, latest)
}

// SharedRemedy says what to do about an identity that several hosts have.
const SharedRemedy = "On each copy, enrol again: `muster-agent enroll` with an enrollment token, then restart the agent. Prepare images without an identity."

// SharedText says who shares the agent's identity; empty if nobody does.
func (a *Agent) SharedText() string {
	sharers := a.Sharers()
	if sharers == nil {
		return ""
	}
	names := make([]string, len(sharers))
	for i := range sharers {
		names[i] = sharers[i].name(sharers)
	}
	return fmt.Sprintf("%d hosts check in with the identity of this one agent: %s", len(names), strings.Join(names, " and "))
}

// name returns the host's name, and if others have the same, what tells it apart from them.
func (b *Bearer) name(all []Bearer) string {
	name := cmp.Or(b.Hostname, "a host without a name")
	for i := range all {
		o := &all[i]
		switch {
		case o.is(b) || o.Hostname != b.Hostname:
		case o.MachineID != b.MachineID:
			return fmt.Sprintf("%s (machine %s)", name, short(b.MachineID))
		case o.BootID != b.BootID:
			return fmt.Sprintf("%s (boot %s)", name, short(b.BootID))
		default:
			return fmt.Sprintf("%s (process %s)", name, short(b.ProcessID))
		}
	}
	return name
}

// short returns so much of an id as tells it apart from few others.
func short(id string) string {
	if id == "" {
		return "without an id"
	}
	return id[:min(len(id), 8)]
}

// SharedEvent is the event of an agent whose identity several hosts have, or no longer have.
func (a *Agent) SharedEvent() Event {
	data, err := json.Marshal(map[string]any{"shared": a.SharedSince != nil})
	if err != nil {
		panic(err) // a bool always encodes
	}
	return Event{Type: EventAgentShared, Subject: a.ID, Data: data}
}

// checkShared returns an error while several hosts have the agent's identity: which of them would
// follow an order, nobody knows.
func (a *Agent) checkShared() error {
	if text := a.SharedText(); text != "" {
		return Errorf(Conflict, "agent %s gets no orders: %s. %s", a.ID, text, SharedRemedy).Because(CauseShared)
	}
	return nil
}
