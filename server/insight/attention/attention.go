// Package attention decides what waits for a person: it reduces what other packages know to a
// list of sentences, the most urgent first, each with what to do. Package facts reads
// what List judges. It does no I/O.
package attention

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// Soon is how long before its end a key or a signed file is listed: people who sign or renew
// need some weeks.
const Soon = 30 * 24 * time.Hour

// urgent is how long before its end it is urgent.
const urgent = 7 * 24 * time.Hour

// Kind is what an item is about. Its values are those of the API.
type Kind string

// Values of Kind.
const (
	Approval    Kind = "approval"
	Incident    Kind = "incident"
	Failures    Kind = "failures"
	Paused      Kind = "paused"
	Suspended   Kind = "suspended"
	Stalled     Kind = "stalled"
	Degraded    Kind = "degraded"
	Trust       Kind = "trust"
	Key         Kind = "key"
	DeadLetters Kind = "dead_letters"
	Server      Kind = "server"
	Upgrade     Kind = "upgrade"
)

// kinds is the order of items that are equally urgent.
var kinds = []Kind{Incident, Approval, Paused, Failures, Stalled, Degraded, Upgrade, Trust, Suspended, Server, DeadLetters, Key}

// Severity is how urgent an item is. Its values are those of the API.
type Severity string

// Values of Severity.
const (
	Critical Severity = "critical"
	Warning  Severity = "warning"
	Info     Severity = "info"
)

var severities = []Severity{Critical, Warning, Info}

// Item is one thing that waits for a person.
type Item struct {
	Kind     Kind
	Severity Severity
	Text     string // what is the matter, as a sentence
	Next     string // what to do, as a sentence
	// Subject is the id of the rollout, incident, webhook or key, or the name of the declared fleet.
	Subject string
	Count   int // hosts or letters; 0: it does not apply
	Since   *time.Time
	Until   *time.Time // when it expires
}

// Facts are what List judges.
type Facts struct {
	Rollouts  []fleet.Rollout // those that are active
	Suspended []SuspendedFleet
	Declared  []DeclaredFleet
	Incidents []fleet.Incident
	// FailuresUnseen is how many agents' upgrades failed or were rolled back since the person
	// looked at them.
	FailuresUnseen int
	// Silent is how many agents have been silent since their upgrade began to replace the
	// version.
	Silent int
	// Stalled is how many agents are online, and their upgrade has not moved for
	// fleet.DefaultStall.
	Stalled int
	// Unwritable is how many agents report that their host cannot write to its disk.
	Unwritable int
	// TrustProblem is why the server cannot sign; empty while it can.
	TrustProblem string
	Expiries     []Expiry
	DeadLetters  []fleet.DeadLetter
	Webhooks     map[string]string // names by id
	// Unreadable are documents that the store could not read, as "agent 17".
	Unreadable []string
	// Remarks are sentences about the servers.
	Remarks []string
}

// SuspendedFleet is a declared fleet that an operator's order has suspended.
type SuspendedFleet struct {
	Name string
	By   fleet.Decision
}

// DeclaredFleet is a declared fleet whose condition Stalled or Degraded is true. A suspended one is
// a SuspendedFleet.
type DeclaredFleet struct {
	Name string
	// Rollout is the id of its last rollout.
	Rollout string
	// Stalled and Degraded are nil unless they are true.
	Stalled, Degraded *Condition
}

// Condition is a condition of a declared fleet that is true.
type Condition struct {
	Reason, Message string
	Since           time.Time
}

// ofFleet returns the items of a declared fleet. What its rollout waits for is left to the item of
// the rollout, if there is one, and failures that stall the object are named once.
func ofFleet(f *DeclaredFleet, rollouts map[string]bool) (out []Item) {
	item := func(kind Kind, what string, c *Condition) Item {
		return Item{
			Kind: kind, Severity: Warning, Subject: f.Name, Since: &c.Since,
			Text: sentence(fmt.Sprintf("The fleet %s is %s: %s", f.Name, what, c.Message)), Next: "Look at the fleet and its rollout.",
		}
	}
	named := false
	if c := f.Stalled; c != nil && !rollouts[f.Rollout] {
		i := item(Stalled, "stalled", c)
		if c.Reason == "Paused" { // its owner wants it so
			i.Severity, i.Next = Info, "Unpause the fleet."
		}
		out = append(out, i)
		named = c.Reason == "AgentsFailed" || c.Reason == "RolloutFailed"
	}
	if c := f.Degraded; c != nil && !named {
		out = append(out, item(Degraded, "degraded", c))
	}
	return out
}

// Expiry is something that ends at a time.
type Expiry struct {
	Kind    Kind   // Trust, Key or Server
	Subject string // id of the key
	What    string // as the subject of a sentence: "root version 2"
	At      time.Time
	// Effect is what happens after its end, and Next what to do.
	Effect, Next string
}

// List returns what waits for a person at now, the most urgent first.
func List(f Facts, now time.Time) []Item {
	out := []Item{}
	for i := range f.Rollouts {
		if item, ok := ofRollout(&f.Rollouts[i]); ok {
			out = append(out, item)
		}
	}
	paused := map[string]bool{}
	for _, item := range out {
		paused[item.Subject] = item.Kind == Paused
	}
	for i := range f.Incidents {
		// Stopping a rollout opens an incident too; the rollout itself says more.
		if f.Incidents[i].Category == fleet.IncidentRolloutStopped && paused[f.Incidents[i].RolloutID] {
			continue
		}
		if item, ok := ofIncident(&f.Incidents[i]); ok {
			out = append(out, item)
		}
	}
	if f.FailuresUnseen > 0 {
		out = append(out, Item{
			Kind: Failures, Severity: Warning, Count: f.FailuresUnseen,
			Text: hosts(f.FailuresUnseen, "has failed its upgrade or was rolled back", "have failed their upgrades or were rolled back") + " since you last looked.",
			Next: "Look at the causes.",
		})
	}
	if f.Silent > 0 {
		out = append(out, Item{
			Kind: Upgrade, Severity: Warning, Count: f.Silent,
			Text: hosts(f.Silent, "has been silent", "have been silent") + " since the upgrade replaced the version.",
			Next: "Look at what the hosts' watchers report.",
		})
	}
	if f.Stalled > 0 {
		out = append(out, Item{
			Kind: Upgrade, Severity: Warning, Count: f.Stalled,
			Text: fmt.Sprintf("%s no progress for %d minutes.", hosts(f.Stalled, "is online, and its upgrade has made", "are online, and their upgrades have made"), fleet.DefaultStall/time.Minute),
			Next: "Look at the agents' logs and at their source of packages; `muster agents why HOST` says where one stands.",
		})
	}
	if f.Unwritable > 0 {
		out = append(out, Item{
			Kind: Upgrade, Severity: Warning, Count: f.Unwritable,
			Text: hosts(f.Unwritable, "cannot write to its disk and begins", "cannot write to their disks and begin") + " no upgrade.",
			Next: "Free space or inodes on them, or mount their disks read-write: `muster agents list --kuery '" + fleet.UnwritableHosts + "'`.",
		})
	}
	for _, s := range f.Suspended {
		item := Item{
			Kind: Suspended, Severity: Warning, Subject: s.Name, Since: &s.By.At,
			Text: fmt.Sprintf("The fleet %s is suspended: %s took over some of its agents.", s.Name, s.By.By), Next: "Resume the fleet, or change what it declares.",
		}
		out = append(out, item)
	}
	about := map[string]bool{}
	for _, item := range out {
		about[item.Subject] = about[item.Subject] || item.Kind == Paused || item.Kind == Approval
	}
	for i := range f.Declared {
		out = append(out, ofFleet(&f.Declared[i], about)...)
	}
	if f.TrustProblem != "" {
		out = append(out, Item{Kind: Trust, Severity: Critical, Text: sentence("This server cannot sign the metadata of packages: " + f.TrustProblem), Next: "Restore the signing keys of this server."})
	}
	for _, e := range f.Expiries {
		if item, ok := ofExpiry(e, now); ok {
			out = append(out, item)
		}
	}
	out = append(out, ofLetters(f.DeadLetters, f.Webhooks)...)
	if n := len(f.Unreadable); n > 0 {
		out = append(out, Item{
			Kind: Server, Severity: Warning, Count: n,
			Text: fmt.Sprintf("%s in the store cannot be read, and lists leave out what is in them: %s.", count(n, "document"), fleet.List(f.Unreadable)),
			Next: "Delete what they are about, or restore a backup; the server's log has the reasons.",
		})
	}
	for _, r := range f.Remarks {
		out = append(out, Item{Kind: Server, Severity: Warning, Text: sentence(r), Next: "Look at the servers."})
	}
	slices.SortStableFunc(out, compare)
	return out
}

// compare sorts by severity, then by kind, then what has waited longest or ends first.
func compare(a, b Item) int {
	return cmp.Or(
		cmp.Compare(slices.Index(severities, a.Severity), slices.Index(severities, b.Severity)),
		cmp.Compare(slices.Index(kinds, a.Kind), slices.Index(kinds, b.Kind)),
		timeOf(a).Compare(timeOf(b)), strings.Compare(a.Subject, b.Subject))
}

func timeOf(i Item) time.Time {
	switch {
	case i.Until != nil:
		return *i.Until
	case i.Since != nil:
		return *i.Since
	}
	return time.Time{}
}

func ofRollout(r *fleet.Rollout) (Item, bool) {
	item := Item{Subject: r.ID, Severity: Warning}
	if r.State == fleet.RolloutRunning {
		i := slices.IndexFunc(r.Waiting, func(w fleet.Wait) bool { return w.Code == fleet.WhyApproval })
		if i < 0 {
			return item, false
		}
		item.Kind, item.Since, item.Until = Approval, &r.Waiting[i].Since, r.Waiting[i].Until
		item.Text, item.Next = fmt.Sprintf("The canaries of %s have finished, and the rollout waits for approval.", r.Plan.Name), "Look at the canaries, then approve or cancel the rollout."
		return item, true
	}
	if r.State != fleet.RolloutPaused || r.Stop == nil || r.Stop.Kind == fleet.StopRollback {
		return item, false
	}
	item.Kind, item.Since = Paused, &r.Stop.At
	item.Text = sentence(fmt.Sprintf("%s is paused: %s", r.Plan.Name, r.Stop.Text))
	switch {
	case r.Stop.Kind == fleet.StopThreshold || r.Stop.Kind == fleet.StopCanary:
		item.Severity, item.Next = Critical, "Look at the failures, then roll back, cancel, or resume with a reason."
	case r.Stop.Kind.Gate() || r.Stop.Kind == fleet.StopVerify:
		item.Next = "Look at what it waits for, then resume with a reason, or cancel."
	default:
		item.Severity, item.Next = Info, "Resume or cancel the rollout."
	}
	return item, true
}

func ofIncident(i *fleet.Incident) (Item, bool) {
	if i.State != fleet.IncidentOpen {
		return Item{}, false
	}
	item := Item{Kind: Incident, Severity: Warning, Subject: i.ID, Since: &i.OpenedAt, Text: sentence(i.Title), Next: "Acknowledge the incident and look at the host."}
	if i.Severity == "critical" {
		item.Severity = Critical
	}
	switch {
	case i.RecoveryPlan != "":
		item.Next = "Follow its recovery plan."
	case i.AgentID == "":
		item.Next = "Acknowledge the incident and look at its hosts."
	}
	return item, true
}

func ofExpiry(e Expiry, now time.Time) (Item, bool) {
	left := e.At.Sub(now)
	if left > Soon {
		return Item{}, false
	}
	item := Item{Kind: e.Kind, Severity: Warning, Subject: e.Subject, Until: &e.At, Next: e.Next}
	switch {
	case left <= 0:
		item.Text = fmt.Sprintf("%s expired on %s: %s.", e.What, day(e.At), e.Effect)
	case left < 24*time.Hour:
		item.Text = fmt.Sprintf("%s expires within a day: %s.", e.What, e.Effect)
	default:
		item.Text = fmt.Sprintf("%s expires in %s, on %s: %s.", e.What, count(int(left/(24*time.Hour)), "day"), day(e.At), e.Effect)
	}
	switch {
	case e.Kind != Key && left <= urgent:
		item.Severity = Critical
	case e.Kind == Key && left > urgent:
		item.Severity = Info
	}
	return item, true
}

// ofLetters returns one item for each webhook with dead letters.
func ofLetters(letters []fleet.DeadLetter, names map[string]string) []Item {
	items := map[string]*Item{}
	var ids []string
	for i := range letters {
		l := &letters[i]
		item := items[l.WebhookID]
		if item == nil {
			item = &Item{Kind: DeadLetters, Severity: Warning, Subject: l.WebhookID, Since: &l.At, Next: "Repair the receiver, then deliver them again."}
			items[l.WebhookID], ids = item, append(ids, l.WebhookID)
		}
		item.Count++
		if l.At.Before(*item.Since) {
			item.Since = &l.At
		}
	}
	slices.Sort(ids)
	var out []Item
	for _, id := range ids {
		item := *items[id]
		item.Text = fmt.Sprintf("%s could not be delivered to the webhook %s.", count(item.Count, "notification"), cmp.Or(names[id], id))
		out = append(out, item)
	}
	return out
}

func hosts(n int, one, many string) string {
	if n == 1 {
		return "1 host " + one
	}
	return grouped(n) + " hosts " + many
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return grouped(n) + " " + noun + "s"
}

// grouped writes a number with separators of thousands.
func grouped(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func day(t time.Time) string { return t.UTC().Format("2 January 2006") }

// sentence ends a text with a full stop.
func sentence(text string) string {
	text = strings.TrimSpace(text)
	if strings.HasSuffix(text, ".") || strings.HasSuffix(text, "!") || strings.HasSuffix(text, "?") {
		return text
	}
	return text + "."
}
