// Package store is what the server needs of a place to keep things: one small
// interface per noun, and the rules all implementations keep. The domain
// packages call it; store/sqlite implements it, and storetest is the proof that
// an implementation keeps the rules.
//
// # Rules
//
// Nothing is shared with the caller: values go in and out as copies.
//
// A method that returned nil has made its effect durable. One that returned an
// error may have had its effect or not: callers repeat, and every effect is
// such that repeating it does no harm (ids are chosen by the caller).
//
// Changes are guarded by revisions: Update takes a value with the Revision that
// Get returned, and fails with a fleet.Error of kind Conflict when another
// writer came first. See [UpdateAgent] for the loop around it.
//
// Errors are fleet.Errors of kind NotFound, Conflict or Unavailable. Unavailable
// means that the same call may succeed later.
//
// Several processes may use one store at once, if it is Elasticsearch. Nothing tells
// one of them that another has written, so whoever waits for actions or events asks
// with After every now and then; see action.Feed and event.Stream. A store of one
// process tells it which agents its writes change; see Store.OnAgentChange.
package store

import (
	"context"
	"io"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
)

// Store is the whole of it.
type Store interface {
	Agents() Agents
	Actions() Actions
	Results() Results
	Policies() Collection[fleet.Policy]
	Packages() Collection[fleet.Package]
	// PackageData is nil where servers that share the store share their data
	// folder, too: the bytes of packages lie there for all of them.
	PackageData() PackageData
	EnrollmentKeys() Collection[fleet.EnrollmentKey]
	AdminKeys() Collection[fleet.AdminKey]
	PublisherKeys() Collection[fleet.PublisherKey]
	// TrustFiles are small, but for one: a megabyte at most.
	TrustFiles() Collection[fleet.TrustFile]
	Rollouts() Rollouts
	Targets() Targets
	Previews() Collection[fleet.Preview]
	Leases() Collection[fleet.Lease]
	PolicyLocks() Collection[fleet.PolicyLock]
	ExposureRules() Collection[fleet.ExposureRule]
	Freezes() Collection[fleet.Freeze]
	Incidents() Collection[fleet.Incident]
	Webhooks() Collection[fleet.Webhook]
	DeadLetters() Collection[fleet.DeadLetter]
	Audit() Audit
	Events() Events
	Settings() Settings
	// Ping says whether the store takes reads and writes now, all that it keeps. Its
	// error is shown to operators: it says what to do, and has no URL and no secret.
	// It is cheap enough for each second, and takes no longer than ctx allows; a few
	// seconds are what a store in trouble needs to say what its trouble is.
	Ping(ctx context.Context) error
	// OnAgentChange registers f, which gets the agents whose document, or
	// reported status or message, a write of this Store has changed. f is called when
	// the change is durable, or when that is not known, before the write method
	// returns; where the caller gave up waiting, after it. Calls come one at a time. f
	// must not call the store, and must not wait for anything that does.
	//
	// Register before the store is used; several f are called in the order in which they
	// were registered. OnAgentChange returns false, and f is never called, where other
	// processes may write the store, too.
	OnAgentChange(f func([]AgentChange)) bool
	Close() error
}

// AgentChange says that an agent was written.
type AgentChange struct {
	AgentID string
	// State is fleet.Agent.CheckinState of the document that was written; 0: it is not
	// known, or more was written than the document.
	State uint64
}

// Agents keeps agent documents.
type Agents interface {
	// Create stores the agent with its Last. It fails with Conflict if the id or the
	// access key id is taken.
	Create(ctx context.Context, a fleet.Agent) error
	Get(ctx context.Context, id string) (fleet.Agent, error)
	// GetMany returns those of the ids that exist, in the order asked for.
	GetMany(ctx context.Context, ids []string) ([]fleet.Agent, error)
	// InOrder returns the ids in the order in which reading and writing many agents, some
	// at a time, costs least.
	InOrder(ctx context.Context, ids []string) ([]string, error)
	ByAccessKey(ctx context.Context, keyID string) (fleet.Agent, error)
	// Update replaces the document, but for what Touch writes. It returns the
	// new revision.
	Update(ctx context.Context, a fleet.Agent) (int64, error)
	// UpdateMany is Update for each, in few durable writes: after an error some may be
	// there. The errors stand at the index of their agent.
	UpdateMany(ctx context.Context, agents []fleet.Agent) ([]error, error)
	// Report writes what a message of an agent changes, in one durable write
	// where the store can. Where it cannot, what comes first in Report is there
	// first. It fails with Conflict, as Update does, before Seen and the events;
	// revision is the document's, 0 if that stays as it is.
	Report(ctx context.Context, r Report) (revision int64, err error)
	// Delete removes the document; a missing one is no error.
	Delete(ctx context.Context, id string) error
	// Touch writes when agents were last seen, many of them in several durable
	// writes, so that those of others come in between: after an error some may be
	// there. It changes no revision. Unknown agents are passed over, and so are time,
	// status and message of a touch that is older than what is there, or has no time.
	// One with an empty Status leaves status and message. ActionSeq only grows: a
	// higher one is taken from every touch, however old, a lower one from none.
	Touch(ctx context.Context, touches []fleet.Touch) error
	List(ctx context.Context, q AgentQuery) (agents []fleet.Agent, total int, err error)
	// Facts calls f for every agent of the filter, in no order. f must not call
	// the store.
	Facts(ctx context.Context, filter AgentFilter, f func(id string, facts fleet.StatusFacts)) error
	// CountFirst counts each agent of the filter for the first of the queries that
	// matches it; see AgentFilter.Query. Counts stand at the index of their query, and
	// behind them the number of agents that none matches. It is for some dozen
	// queries, which are answered in one go.
	CountFirst(ctx context.Context, filter AgentFilter, queries []kql.Filter) ([]int, error)
	// Each calls f with every agent of the filter, in no order. f must not call
	// the store.
	Each(ctx context.Context, filter AgentFilter, f func(fleet.Agent)) error
	// Census calls f for every agent that is not unenrolled, in no order. f must
	// not call the store.
	Census(ctx context.Context, f func(fleet.Census)) error
	// Values returns the different values that the agents of the filter have in a
	// field of type Keyword, Version or Text (whole), those that begin with prefix,
	// ASCII letters in either case, in the order of their bytes; of these the first
	// limit.
	Values(ctx context.Context, filter AgentFilter, field *kql.Field, prefix string, limit int) ([]string, error)
	// Upgrading returns up to limit agents that are being upgraded and stand
	// behind after, those longest so first; ties are ordered by id.
	Upgrading(ctx context.Context, after UpgradingSince, limit int) ([]fleet.Agent, error)
}

// Report is what a message of an agent changes, or what its silence does.
type Report struct {
	// Results as of Results.Put. The result comes before the document: an ended
	// upgrade without a result would look finished to the next message, and stay
	// without one.
	Results []fleet.Result
	// Agent is the document, nil where it stays as it is.
	Agent *fleet.Agent
	// Seen as of Touch, nil if the message is no check-in. Whoever reads of a new
	// status on the stream finds it in the store.
	Seen *fleet.Touch
	// Events tell of it. Behind them come those of the results that were a change.
	Events []fleet.Event
}

// UpgradingSince is a place in the order of Agents.Upgrading: that of the agent
// ID, whose upgrade started At. The zero value is before all.
type UpgradingSince struct {
	At time.Time
	ID string
}

// AgentFilter selects agents; the zero value selects all.
type AgentFilter struct {
	PolicyID   string
	ActiveOnly bool // not the unenrolled
	// SeenSince leaves out the agents of a policy whose last activity is
	// before the time given for it.
	SeenSince map[string]time.Time
	// VersionBelow keeps agents whose version is known and below this one.
	VersionBelow string
	// Query keeps those it matches as kql.Match does with Agent.Values, of the
	// fields of fleet.AgentSchema; nil: all. A field that is not one of these is
	// refused as Invalid.
	Query kql.Filter
}

// AgentQuery is one page.
type AgentQuery struct {
	AgentFilter
	Sort   AgentSort // zero: ByEnrolledAt
	Desc   bool
	Offset int
	Limit  int // zero: the total alone
}

// AgentSort is a field agents can be listed by. Ties are broken by id, so pages
// never overlap. Desc turns the whole order around, ties included.
type AgentSort string

// The sort fields, with the names the API gives them.
const (
	ByEnrolledAt  AgentSort = "enrolled_at"
	ByLastCheckin AgentSort = "last_checkin" // never checked in sorts as earliest
	ByHostname    AgentSort = "local_metadata.host.hostname"
	ByVersion     AgentSort = "agent.version" // as versions, not as text
	ByPolicy      AgentSort = "policy_id"
)

// Actions keeps actions in one order over all processes.
type Actions interface {
	// Create assigns Seq: above that of every action that any reader has seen.
	// It fails with Conflict if the id exists.
	Create(ctx context.Context, a fleet.Action) (seq int64, err error)
	Get(ctx context.Context, id string) (fleet.Action, error)
	// For returns an action as it is for each of some agents (fleet.Action.For), at the
	// index of the agent: all agents of a large one ask for it, and none of them needs
	// the others.
	For(ctx context.Context, id string, agentIDs ...string) ([]fleet.Action, error)
	// Cancel sets CancelledAt if it is not set.
	Cancel(ctx context.Context, id string, at time.Time) error
	// Pending returns actions for an agent with a Seq above after that have not
	// expired at now, lowest Seq first.
	Pending(ctx context.Context, agentID string, after int64, now time.Time, limit int) ([]fleet.Action, error)
	// After returns actions with a Seq above after, lowest first. It never
	// skips: when it has returned an action, no action with a lower Seq appears
	// later.
	After(ctx context.Context, after int64, limit int) ([]fleet.Action, error)
	// LastSeq is the highest Seq there is, 0 without actions.
	LastSeq(ctx context.Context) (int64, error)
	// List returns actions, newest first.
	List(ctx context.Context, offset, limit int) ([]fleet.Action, error)
}

// Results keeps what became of actions.
type Results interface {
	// Put stores each result unless one with its id is there which it does not
	// supersede (fleet.Result.Supersedes), all in one durable write. changed
	// stands at the index of its result.
	Put(ctx context.Context, results []fleet.Result) (changed []bool, err error)
	Get(ctx context.Context, actionID, agentID string) (fleet.Result, error)
	// Answered says of which of the agents there is a result of the action; the
	// others are absent.
	Answered(ctx context.Context, actionID string, agentIDs []string) (map[string]bool, error)
	// Errors returns the latest failed results of an action, newest first.
	Errors(ctx context.Context, actionID string, limit int) ([]fleet.Result, error)
	// Counts returns the counts of each action; one without results is absent.
	Counts(ctx context.Context, actionIDs []string) (map[string]fleet.ResultCounts, error)
	// Each calls f with every result, in no order. f must not call the store.
	Each(ctx context.Context, f func(fleet.Result)) error
}

// Collection keeps the documents of a noun of which there are hundreds, not
// millions.
type Collection[T any] interface {
	// Create fails with Conflict if the id exists.
	Create(ctx context.Context, v T) error
	Get(ctx context.Context, id string) (T, error)
	// Update replaces the value if its revision is still the stored one.
	Update(ctx context.Context, v T) error
	// Delete removes the value; a missing one is no error.
	Delete(ctx context.Context, id string) error
	// List returns values, newest first, and how many there are in all. A limit
	// of 0 returns all from offset on.
	List(ctx context.Context, offset, limit int) ([]T, int, error)
}

// Rollouts keeps rollouts. Documents of rollouts with many batches are some
// 300 KB, so those that are over are not read again and again. Delete removes the
// targets, too.
type Rollouts interface {
	Collection[fleet.Rollout]
	// Active returns the rollouts that are running, paused or being cancelled, by
	// id and revision alone, oldest first.
	Active(ctx context.Context) ([]RolloutHead, error)
}

// RolloutHead says which rollout, and whether it has changed.
type RolloutHead struct {
	ID       string
	Revision int64
}

// Targets keeps the agents of rollouts, up to fleet.MaxTargets each.
type Targets interface {
	// Create stores targets, all in one durable write; those that exist are left
	// as they are.
	Create(ctx context.Context, targets []fleet.Target) error
	Get(ctx context.Context, rolloutID, agentID string) (fleet.Target, error)
	// GetMany returns those of the agents that are targets of the rollout, in the
	// order asked for.
	GetMany(ctx context.Context, rolloutID string, agentIDs []string) ([]fleet.Target, error)
	// UpdateMany replaces each target whose revision is still the stored one, all
	// in one durable write; revisions and errors stand at the index of their
	// target.
	UpdateMany(ctx context.Context, targets []fleet.Target) (revisions []int64, errs []error, err error)
	// Each calls f with every target of a rollout, by Order. f must not call the
	// store.
	Each(ctx context.Context, rolloutID string, f func(fleet.Target)) error
	// List returns a page of the targets of a rollout, by Order, and how many
	// there are in all.
	List(ctx context.Context, q TargetQuery) ([]fleet.Target, int, error)
	// ByAgent returns the targets an agent was, the latest rollout first: the one
	// that got its first targets last.
	ByAgent(ctx context.Context, agentID string, limit int) ([]fleet.Target, error)
	// Rollouts returns the rollouts that have targets, the one that got its first
	// targets first, first.
	Rollouts(ctx context.Context) ([]string, error)
}

// TargetQuery is one page of the targets of a rollout.
type TargetQuery struct {
	RolloutID string
	States    []fleet.TargetState // none: all
	Batch     *int                // nil: all
	Offset    int
	Limit     int // zero: the total alone
}

// Audit keeps who did what. Entries never change.
type Audit interface {
	// Append stores entries; one whose id is there is passed over.
	Append(ctx context.Context, entries []fleet.AuditEntry) error
	// List returns entries, newest first, and how many there are in all.
	List(ctx context.Context, q AuditQuery) ([]fleet.AuditEntry, int, error)
	// Each calls f with every entry, oldest first: List's order, turned around. f
	// must not call the store.
	Each(ctx context.Context, f func(fleet.AuditEntry)) error
}

// AuditQuery is one page of the audit trail.
type AuditQuery struct {
	Subject string     // empty: all
	Until   *time.Time // entries at or before this time; nil: all
	Offset  int
	Limit   int // zero: the total alone
}

// Events keeps what happened, in one order over all processes.
type Events interface {
	// Append assigns Seq to each event, in order.
	Append(ctx context.Context, events []fleet.Event) error
	// After returns events with a Seq above after, lowest first; as for
	// Actions, it never skips.
	After(ctx context.Context, after int64, limit int) ([]fleet.Event, error)
	// Bounds returns the lowest and highest Seq kept, 0 and 0 without events.
	Bounds(ctx context.Context) (first, last int64, err error)
	// Trim removes the oldest so that at most keep remain.
	Trim(ctx context.Context, keep int) error
}

// PackageData keeps the bytes of packages, up to 2 GiB each, where servers on
// several machines can fetch them. They are read and written as they come, a few
// MiB of them in memory.
type PackageData interface {
	// Put stores the size bytes of r under their SHA-256 in hexadecimal. They can
	// be fetched when it has returned nil, and not before; bytes that are there stay
	// good meanwhile. It fails with Invalid, and stores no package, if r has other
	// bytes or does not end after size.
	Put(ctx context.Context, sha256 string, size int64, r io.Reader) error
	// Get writes the bytes to w. It fails with NotFound if they are not there whole;
	// then, as after every error, w may have some of them. Whether they are the right
	// ones the caller checks: what is stored may be damaged.
	Get(ctx context.Context, sha256 string, w io.Writer) error
	// Delete removes the bytes, and what a Put left that did not end; missing ones
	// are no error. A Put of the same bytes at the same time may be undone by halves:
	// then they are not there whole.
	Delete(ctx context.Context, sha256 string) error
	// List says what there is, in no order, with what a Put left that did not end.
	List(ctx context.Context) ([]PackageBytes, error)
}

// PackageBytes are the stored bytes of one package.
type PackageBytes struct {
	SHA256 string
	// Whole says that Get finds all of them.
	Whole bool
	// Written is when the last of them were stored, by the clock of who did.
	Written time.Time
}

// Settings keeps small values all replicas share, such as the key that signs
// sessions.
type Settings interface {
	// Get fails with NotFound if there is no value under name.
	Get(ctx context.Context, name string) ([]byte, error)
	// GetOrPut returns the value under name, storing v first if there is none.
	GetOrPut(ctx context.Context, name string, v []byte) ([]byte, error)
	// Delete removes the value; a missing one is no error.
	Delete(ctx context.Context, name string) error
	// Each calls f with every name and its value, in no order. f must not call the
	// store.
	Each(ctx context.Context, f func(name string, v []byte)) error
}

// CountStatuses counts the agents of a filter by the status they have at now; see
// fleet.StatusFacts.StatusAt. timeouts are those of policies, by id.
func CountStatuses(ctx context.Context, agents Agents, filter AgentFilter, timeouts map[string]time.Duration, now time.Time) (map[fleet.Status]int, error) {
	rules := fleet.StatusRules(timeouts, now)
	queries := make([]kql.Filter, len(rules))
	for i, r := range rules {
		queries[i] = r.When
	}
	counts, err := agents.CountFirst(ctx, filter, queries)
	if err != nil {
		return nil, err
	}
	out := map[fleet.Status]int{fleet.StatusOnline: counts[len(rules)]}
	for i, r := range rules {
		out[r.Status] = counts[i]
	}
	return out, nil
}

// updateTries bounds UpdateAgent and Tell. Two writers of one agent are its check-in and
// an operator; losing eight times in a row to them does not happen.
const updateTries = 8

// UpdateAgent reads an agent, lets change alter it and writes it back, again
// from the start when another writer came between. change says whether there is
// anything to write; it may be called several times. The agent returned is what
// is stored.
func UpdateAgent(ctx context.Context, agents Agents, id string, change func(*fleet.Agent) bool) (fleet.Agent, error) {
	for try := 1; ; try++ {
		a, err := agents.Get(ctx, id)
		if err != nil {
			return fleet.Agent{}, err
		}
		if !change(&a) {
			return a, nil
		}
		rev, err := agents.Update(ctx, a)
		if err == nil {
			a.Revision = rev
			return a, nil
		}
		if fleet.KindOf(err) != fleet.Conflict || try == updateTries {
			return fleet.Agent{}, err
		}
	}
}

// ApplyReport writes what a message of an agent changes, or what its silence does.
// report alters the agent and returns the changes, a zero Report if there are none. It
// is called again, with the agent read again, when another writer came first. Events
// without a time get now. ApplyReport returns whether the stream of events has grown.
func ApplyReport(ctx context.Context, agents Agents, a fleet.Agent, now time.Time, report func(*fleet.Agent) Report) (events bool, err error) {
	for try := 1; ; try++ {
		r := report(&a)
		if r.Agent == nil && r.Seen == nil && len(r.Results) == 0 && len(r.Events) == 0 {
			return false, nil
		}
		for i := range r.Events {
			if r.Events[i].At.IsZero() {
				r.Events[i].At = now
			}
		}
		_, err := agents.Report(ctx, r)
		if err == nil {
			return len(r.Events)+len(r.Results) > 0, nil
		}
		if fleet.KindOf(err) != fleet.Conflict || try == updateTries {
			return false, err
		}
		if a, err = agents.Get(ctx, a.ID); err != nil {
			return false, err
		}
	}
}
