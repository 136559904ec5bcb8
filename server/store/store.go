// Package store defines the server's persistence: one small interface for each kind
// of document, and the rules that every implementation keeps. The domain packages
// call these interfaces; packages sqlite and elastic implement them, and package
// storetest tests an implementation against the rules.
//
// # Rules
//
// Values are passed and returned as copies; a store shares nothing with its caller.
//
// When a method returns nil, its effect is durable. When it returns an error, the
// effect may or may not have happened. Callers retry, so every write is idempotent:
// the caller chooses the ids.
//
// Updates use optimistic concurrency: Update takes a value with the Revision that
// Get returned, and fails with a fleet.Error of kind Conflict if another writer
// changed the document in between. [Change] and [Put] are the retry loop around it.
//
// Errors are fleet.Errors of kind NotFound, Conflict, Invalid, Internal or
// Unavailable. Unavailable means that the same call may succeed later.
//
// Several processes may share one Elasticsearch store. A process is not notified of
// the writes of another, so it polls After for new actions and events; see action.Feed
// and event.Stream. The SQLite store belongs to one process, and reports to it which
// agents a write has changed; see Store.OnAgentChange.
package store

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// ErrNewer is in the errors of opening a store whose schema only a newer Muster supports.
var ErrNewer = errors.New("the store has a newer schema")

// Store is a store of all the server's documents.
type Store interface {
	Agents() Agents
	Actions() Actions
	Results() Results
	Rollouts() Rollouts
	Targets() Targets
	// PackageData is nil if the store belongs to one server, which keeps the bytes of
	// packages in its data folder.
	PackageData() PackageData
	Audit() Audit
	History() History
	Events() Events
	Settings() Settings
	Collections
	// Documents returns the documents of a kind that is Collected, whatever their type.
	Documents(kind *Info) Documents
	// Contents returns the number of documents of each kind by its Name, including those whose kind
	// this version does not know. Kinds without documents may be absent.
	Contents(ctx context.Context) (map[string]int, error)
	// Exclusively calls f while no other call for the same thing is in progress, in any process
	// that uses the store. A check whether there is one already, or how many there are, and the
	// write that depends on it, are one by this: names, defaults, numbers. Lists that f reads
	// have what other processes have written before. f is short: its context ends after
	// ExclusiveTime. what is a plural, for messages. Calls are not nested.
	Exclusively(ctx context.Context, what string, f func(context.Context) error) error
	// Unreadable has the documents that lists, queries and scans have left out, since they
	// cannot be read.
	Unreadable() *Unreadables
	// Schema returns the number of the schema that this version writes; each kind of store
	// counts its own.
	Schema() int
	// Ping reports whether the store can read and write all of its documents. Its error
	// is shown to operators: it says what to do, and contains no URL and no secret. Ping
	// is cheap enough to call every second, and returns when ctx ends. A failing store
	// needs a few seconds to find the cause.
	Ping(ctx context.Context) error
	// OnAgentChange registers f, which the store calls with the agents whose document,
	// reported status or reported message a write of this Store has changed. The store
	// calls f once the change is durable, or once it cannot be known whether it is. It
	// calls f before the write method returns, unless the caller's context ended earlier.
	// Calls do not overlap. f must not call the store, nor wait for a goroutine that does.
	//
	// Register before the first use of the store. Functions are called in the order of
	// their registration. OnAgentChange returns false, and never calls f, if other
	// processes may write to the store.
	OnAgentChange(f func([]AgentChange)) bool
	Close() error
}

// AgentChange identifies an agent that was written.
type AgentChange struct {
	AgentID string
	// State is fleet.Agent.CheckinState of the document that was written. It is 0 if it
	// is unknown, or if the write changed more than the document.
	State uint64
}

// Agents stores agent documents. Update, UpdateMany and Report also put
// fleet.Agent.EndedUpgrades of the documents into History: a store that can does so with the
// document, the others before it.
type Agents interface {
	// Create stores the agent with its Last. It fails with Conflict if the id or the
	// access key id is taken.
	Create(ctx context.Context, a fleet.Agent) error
	Get(ctx context.Context, id string) (fleet.Agent, error)
	// GetMany returns the agents that exist, in the order of ids.
	GetMany(ctx context.Context, ids []string) ([]fleet.Agent, error)
	// Sorted returns the ids in the order of storage, in which it is cheapest to read and
	// write many agents in batches.
	Sorted(ctx context.Context, ids []string) ([]string, error)
	ByAccessKey(ctx context.Context, keyID string) (fleet.Agent, error)
	// Update replaces the document, except for the fields that Touch writes, and returns
	// the new revision.
	Update(ctx context.Context, a fleet.Agent) (int64, error)
	// UpdateMany updates each agent, in a few durable writes; if it returns an error, some
	// may have been written. The returned slice has the error of each agent at its index.
	UpdateMany(ctx context.Context, agents []fleet.Agent) ([]error, error)
	// Report writes the changes of one message of an agent. A store that can does so
	// atomically; otherwise it writes the fields of Report in their order. Report fails
	// with Conflict, as Update does, before it writes Seen and the events. revision is
	// the new revision of the document, or 0 if r.Agent is nil.
	Report(ctx context.Context, r Report) (revision int64, err error)
	// Delete removes the document; a missing one is no error.
	Delete(ctx context.Context, id string) error
	// Touch records when agents were last seen. It splits a long list into several durable
	// writes, so that other writers do not wait for all of it; if it returns an error, some
	// may have been written. It changes no revision and ignores unknown agents.
	//
	// Time, status and message are written unless the touch has no time, or is older than
	// the stored one. An empty Status leaves status and message unchanged. ActionSeq only
	// grows: a higher one is written even from an older touch, a lower one never.
	Touch(ctx context.Context, touches []fleet.Touch) error
	List(ctx context.Context, q AgentQuery) (agents []fleet.Agent, total int, err error)
	// Facts calls f for every agent that matches the filter, in no particular order. f
	// must not call the store.
	Facts(ctx context.Context, filter AgentFilter, f func(id string, facts fleet.StatusFacts)) error
	// CountPolicies counts the agents that are not unenrolled by the revision of their policy
	// that they have. Agents without a policy are not counted.
	CountPolicies(ctx context.Context) (map[fleet.PolicyAt]int, error)
	// Tally counts the agents that match the filter by the classes and fields of q, in one
	// pass.
	Tally(ctx context.Context, filter AgentFilter, q TallyQuery) (Tally, error)
	// Each calls f with every agent that matches the filter, in no particular order. f must
	// not call the store.
	Each(ctx context.Context, filter AgentFilter, f func(fleet.Agent)) error
	// Census calls f for every agent that has not left (fleet.Agent.Left), in no particular order. f
	// must not call the store.
	Census(ctx context.Context, f func(fleet.Census)) error
	// Values returns the distinct values of a field among the agents that match the filter.
	// The field is of type Keyword, Version or Text (then its whole text is the value).
	// Values returns those that begin with prefix, ignoring the case of ASCII letters,
	// sorted by their bytes, and at most limit of them.
	Values(ctx context.Context, filter AgentFilter, field *kql.Field, prefix string, limit int) ([]string, error)
	// Upgrading returns up to limit agents that are being upgraded and come after the
	// cursor. The agent whose upgrade started first is first; ties are ordered by id.
	Upgrading(ctx context.Context, after UpgradingSince, limit int) ([]fleet.Agent, error)
	// Leavers returns up to limit agents with pending ends (fleet.Agent.HasPendingEnds), by id, from the one
	// after afterID on. It is cheap if there are none, however many agents have left.
	Leavers(ctx context.Context, afterID string, limit int) ([]fleet.Agent, error)
}

// Report holds the changes that follow from one message of an agent, or from its
// silence.
type Report struct {
	// Results are stored as by Results.Put, and before the document: if an upgrade had
	// ended without a result, the next message would find it finished, and the result
	// would never be written.
	Results []fleet.Result
	// History is put into History. What follows from the document need not be here.
	History []fleet.HistoryRecord
	// Agent is the changed document, or nil.
	Agent *fleet.Agent
	// Seen is stored as by Touch; nil if the message is not a check-in. It is written
	// before the events, so that a reader of an event finds the new status in the store.
	Seen *fleet.Touch
	// Events are appended, followed by one event for each result that was a change.
	Events []fleet.Event
}

// UpgradingSince is a cursor in the order of Agents.Upgrading: the position of the agent
// ID, whose upgrade started At. The zero value is before all agents.
type UpgradingSince struct {
	At time.Time
	ID string
}

// AgentFilter selects agents; the zero value selects all.
type AgentFilter struct {
	PolicyID   string
	ActiveOnly bool // not the unenrolled
	// SeenSince excludes the agents of a policy whose last activity is before the
	// policy's time.
	SeenSince map[string]time.Time
	// VersionBelow selects the agents whose version is known and below this one.
	VersionBelow string
	// Query selects the agents that kql.Match would match, given Agent.Values and the
	// fields of fleet.AgentSchema; nil selects all. Any other field is refused as
	// Invalid.
	Query kql.Filter
}

// TallyQuery says what Agents.Tally counts.
type TallyQuery struct {
	// Classes are lists of queries: an agent belongs to the first of each list that matches, or
	// else to the class after the last. See AgentFilter.Query. A list has about a dozen.
	Classes [][]kql.Filter
	// Fields are counted by their values.
	Fields []TallyField
}

// TallyField is a field whose values are counted. An agent counts for each of its values, once,
// and for the empty text if it has none.
type TallyField struct {
	Field *kql.Field // of type Keyword or Version
	// Prefix selects values by how they begin. It is removed from them, and a value that is
	// nothing else is none.
	Prefix string
	// ByClass also counts the classes of Classes[0] for each value.
	ByClass bool
}

// Tally has the counts of Agents.Tally.
type Tally struct {
	Total int
	// Classes has the counts of each list of TallyQuery.Classes at its index: one for each query,
	// and as the last element the number of agents that match none.
	Classes [][]int
	// Values has the counts of each of TallyQuery.Fields at its index, by value.
	Values []map[string]TallyCount
}

// TallyCount is the number of agents with a value.
type TallyCount struct {
	Agents  int
	Classes []int // of TallyField.ByClass
}

// MaxTallyValues bounds the values of a field that are counted. If there are more, Tally fails
// with Invalid: their counts would not be exact.
const MaxTallyValues = 60_000

// AgentQuery selects one page of agents.
type AgentQuery struct {
	AgentFilter
	Sort   AgentSort // zero: ByEnrolledAt
	Desc   bool
	Offset int
	Limit  int // zero: only the total
	// After selects the agents that come after a position in the list, without Offset. The
	// total still counts all. Pages that are read like this have every agent once that
	// matches all the time, if its value of Sort does not change.
	After *AgentPosition
}

// AgentSort is a field agents can be listed by: one of the constants, or the name of a
// fleet.SortField. Agents without a value sort first. Ties are broken by id, so that pages
// never overlap. Desc reverses the whole order, including ties.
type AgentSort string

// The sort fields, by their names in the API.
const (
	ByEnrolledAt  AgentSort = "enrolled_at"
	ByLastCheckin AgentSort = "last_checkin" // an agent that never checked in sorts first
	ByHostname    AgentSort = "local_metadata.host.hostname"
	ByVersion     AgentSort = "agent.version" // as versions, not as text
	ByPolicy      AgentSort = "policy_id"
)

// Actions stores actions in one order across all processes.
type Actions interface {
	// Create assigns Seq, which is higher than that of every action that any reader has
	// seen. It fails with Conflict if the id exists.
	Create(ctx context.Context, a fleet.Action) (seq int64, err error)
	Get(ctx context.Context, id string) (fleet.Action, error)
	// For returns the action as fleet.Action.For reduces it for each of the agents, at the
	// agent's index. It spares the agents of a large action a copy of the list of all its
	// agents.
	For(ctx context.Context, id string, agentIDs ...string) ([]fleet.Action, error)
	// Cancel sets CancelledAt if it is not set.
	Cancel(ctx context.Context, id string, at time.Time) error
	// Pending returns actions for an agent with a Seq above after that have not
	// expired at now, lowest Seq first.
	Pending(ctx context.Context, agentID string, after int64, now time.Time, limit int) ([]fleet.Action, error)
	// After returns actions with a Seq above after, lowest first. It leaves no gaps:
	// once it has returned an action, no action with a lower Seq appears. It is empty only if
	// no action above after can be read, so that a reader never stops before one; see
	// SkipUnreadable.
	After(ctx context.Context, after int64, limit int) ([]fleet.Action, error)
	// LastSeq returns the highest Seq, or 0 if there are no actions.
	LastSeq(ctx context.Context) (int64, error)
	// List returns the actions that q selects, newest first.
	List(ctx context.Context, q ActionQuery) ([]fleet.Action, error)
	// Delete removes an action, which must have expired, and its results; a missing one is
	// no error. It fails with Conflict for the action with the highest Seq, so that LastSeq
	// never decreases: agents' tokens beyond it would count as none. Other processes may
	// still return the action by its id.
	Delete(ctx context.Context, id string) error
}

// ActionQuery selects one page of actions.
type ActionQuery struct {
	// Except excludes the actions of these types.
	Except []agentapi.ActionType
	// From and Until select the actions that were created at or between these times; nil:
	// no limit.
	From, Until *time.Time
	Offset      int
	Limit       int
}

// Results stores the results of actions, one for each action and agent.
type Results interface {
	// Put stores the results in one durable write. It ignores a result if one with its id
	// exists that it does not supersede; see fleet.Result.Supersedes. changed reports, at
	// the index of each result, whether it was stored.
	Put(ctx context.Context, results []fleet.Result) (changed []bool, err error)
	Get(ctx context.Context, actionID, agentID string) (fleet.Result, error)
	// Answered returns the set of the given agents that have a result of the action.
	Answered(ctx context.Context, actionID string, agentIDs []string) (map[string]bool, error)
	// OfAction calls f with the results of an action, in no particular order: those of the given
	// agents, or of all if agentIDs is nil. f must not call the store.
	OfAction(ctx context.Context, actionID string, agentIDs []string, f func(fleet.Result)) error
	// Errors returns the latest failed results of an action, newest first.
	Errors(ctx context.Context, actionID string, limit int) ([]fleet.Result, error)
	// Counts returns the counts of each action; an action without results is absent.
	Counts(ctx context.Context, actionIDs []string) (map[string]fleet.ResultCounts, error)
	// Each calls f with every result, in no particular order. f must not call the store.
	Each(ctx context.Context, f func(fleet.Result)) error
}

// Collection stores documents of one kind, of which there are hundreds rather than
// millions.
type Collection[T any] interface {
	// Create fails with Conflict if the id exists.
	Create(ctx context.Context, v T) error
	Get(ctx context.Context, id string) (T, error)
	// Update replaces the value if its revision is still the stored one, and returns the new
	// revision; otherwise it fails with Conflict.
	Update(ctx context.Context, v T) (revision int64, err error)
	// Delete removes the value; a missing one is no error.
	Delete(ctx context.Context, id string) error
	// List returns values, newest first, and the total number of values. A limit of 0
	// returns all from offset on.
	List(ctx context.Context, offset, limit int) ([]T, int, error)
}

// Rollouts stores rollouts. The document of a rollout with many batches has some 300 KB,
// so a caller that polls uses Active, which reads no documents. Delete removes the
// rollout's targets as well.
type Rollouts interface {
	Collection[fleet.Rollout]
	// Active returns the ids and revisions of the rollouts that are running, paused or
	// being cancelled, oldest first.
	Active(ctx context.Context) ([]RolloutHead, error)
}

// RolloutHead identifies one revision of a rollout.
type RolloutHead struct {
	ID       string
	Revision int64
}

// Targets stores the agents of rollouts, up to fleet.MaxTargets for each rollout.
type Targets interface {
	// Create stores targets in one durable write. It leaves existing ones unchanged.
	Create(ctx context.Context, targets []fleet.Target) error
	Get(ctx context.Context, rolloutID, agentID string) (fleet.Target, error)
	// GetMany returns the targets of those agents that the rollout has, in the order of
	// agentIDs.
	GetMany(ctx context.Context, rolloutID string, agentIDs []string) ([]fleet.Target, error)
	// UpdateMany replaces each target whose revision is still the stored one, all in one
	// durable write. The returned slices have the revision and the error of each target at
	// its index.
	UpdateMany(ctx context.Context, targets []fleet.Target) (revisions []int64, errs []error, err error)
	// Each calls f with every target of a rollout, by Order. f must not call the store.
	Each(ctx context.Context, rolloutID string, f func(fleet.Target)) error
	// List returns a page of the targets of a rollout, by Order, and the total number of
	// targets that match.
	List(ctx context.Context, q TargetQuery) ([]fleet.Target, int, error)
	// ByAgent returns the targets of an agent in all rollouts, in the reverse order of
	// Rollouts.
	ByAgent(ctx context.Context, agentID string, limit int) ([]fleet.Target, error)
	// Rollouts returns the ids of the rollouts that have targets, in the order in which
	// they got their first target.
	Rollouts(ctx context.Context) ([]string, error)
}

// TargetQuery selects one page of the targets of a rollout.
type TargetQuery struct {
	RolloutID string
	States    []fleet.TargetState // none: all
	Batch     *int                // nil: all
	Offset    int
	Limit     int // zero: only the total
}

// Audit stores the audit trail: who did what. Entries never change until they are removed.
type Audit interface {
	// Append stores entries. It ignores an entry whose id exists.
	Append(ctx context.Context, entries []fleet.AuditEntry) error
	// List returns entries, newest first, and the total number of entries that match.
	List(ctx context.Context, q AuditQuery) ([]fleet.AuditEntry, int, error)
	// Each calls f with every entry in the reverse order of List, oldest first. f must not
	// call the store.
	Each(ctx context.Context, f func(fleet.AuditEntry)) error
	// Trim removes the oldest entries that t selects, and returns how many.
	Trim(ctx context.Context, t AuditTrim) (removed int, err error)
}

// AuditTrim selects entries of the audit trail: those from before a time and, of the
// others, the oldest so that at most Keep entries remain, but no entry about one of the
// subjects in Except.
type AuditTrim struct {
	Before time.Time
	Keep   int
	Except []string
	Limit  int // the most that one call removes
}

// MaxAuditTrim bounds AuditTrim.Limit, so that other writers do not wait for long.
const MaxAuditTrim = 5_000

// AuditQuery selects one page of the audit trail.
type AuditQuery struct {
	Subject string     // empty: all
	Actor   string     // empty: all
	People  bool       // without what fleet.System did
	Verb    string     // a verb, or a noun for all verbs that begin with it and a dot; empty: all
	Since   *time.Time // entries at or after this time; nil: all
	Until   *time.Time // entries at or before this time; nil: all
	// Words must all occur in AuditText. They are in lower case.
	Words  []string
	Offset int
	Limit  int // zero: only the total
}

// MaxAuditText is how many characters of AuditText are searched: as many as Elasticsearch
// indexes in one keyword, less some.
const MaxAuditText = 8_000

// AuditText returns the text of an entry that searches read, in lower case.
func AuditText(e fleet.AuditEntry) string {
	text := []rune(strings.ToLower(strings.Join([]string{e.Actor, e.Verb, e.Subject, e.Why, e.Text}, "\n")))
	return string(text[:min(len(text), MaxAuditText)])
}

// History stores what happened to agents, one record for each upgrade and for each other event,
// until it is removed by retention. The records of a deleted agent stay.
type History interface {
	// Put stores records in one durable write. A record replaces that of its id: a later
	// verdict replaces an earlier one.
	Put(ctx context.Context, records []fleet.HistoryRecord) error
	// List returns records of an agent, newest first by At; ties are in the reverse order of
	// the ids.
	List(ctx context.Context, q HistoryQuery) ([]fleet.HistoryRecord, error)
	// CountEnds counts the records of each action by how they ended; an action without records
	// is absent.
	CountEnds(ctx context.Context, actionIDs []string) (map[string]map[fleet.End]int, error)
	// OfAction calls f with the records that q selects, in no particular order. f must not call
	// the store.
	OfAction(ctx context.Context, q ActionHistory, f func(fleet.HistoryRecord)) error
	// Count returns the number of records.
	Count(ctx context.Context) (int, error)
	// Each calls f with every record, in no particular order. f must not call the store.
	Each(ctx context.Context, f func(fleet.HistoryRecord)) error
	// Trim removes the records that ended before t.Before and, of the others, those that ended
	// first, so that at most t.Keep remain; at most t.Limit. It returns how many.
	Trim(ctx context.Context, t HistoryTrim) (removed int, err error)
}

// HistoryQuery selects one page of the records of an agent.
type HistoryQuery struct {
	AgentID string
	// Component selects the records of one component, and those of the agent itself if it is
	// empty; nil: all.
	Component *string
	// Before is the last record of the page before; zero: the page is the first.
	Before HistoryPosition
	Limit  int
}

// ActionHistory selects records of one action.
type ActionHistory struct {
	ActionID string
	AgentIDs []string              // nil: of all agents
	States   []fleet.ProgressState // nil: of all states
}

// HistoryPosition is the place of a record in the order of History.List.
type HistoryPosition struct {
	At time.Time
	ID string
}

// HistoryTrim selects the records that History.Trim removes.
type HistoryTrim struct {
	Before time.Time
	Keep   int
	Limit  int
}

// MaxHistoryTrim bounds HistoryTrim.Limit, so that other writers do not wait for long.
const MaxHistoryTrim = 5_000

// Events stores the stream of events, in one order across all processes.
type Events interface {
	// Append assigns Seq to each event, in order. It stores events Bounded.
	Append(ctx context.Context, events []fleet.Event) error
	// After returns events with a Seq above after, lowest first. Like Actions.After, it
	// leaves no gaps, and passes over what cannot be read.
	After(ctx context.Context, after int64, limit int) ([]fleet.Event, error)
	// Bounds returns the lowest and the highest Seq of the stored events, or 0 and 0 if
	// there are none.
	Bounds(ctx context.Context) (first, last int64, err error)
	// Trim removes the oldest events so that at most keep remain.
	Trim(ctx context.Context, keep int) error
}

// PackageData stores the bytes of packages, up to 2 GiB each, and of uploads, where servers
// on several machines can fetch them. Implementations stream: they hold a few MiB in memory.
type PackageData interface {
	// Put stores the size bytes of r under their SHA-256 in hexadecimal. Get finds them
	// once Put has returned nil, and not before; bytes that were stored earlier stay
	// readable meanwhile. Put fails with Invalid, and stores no package, if the bytes of r
	// have another hash or another size.
	Put(ctx context.Context, sha256 string, size int64, r io.Reader) error
	// Get writes the bytes to w. It fails with NotFound if they are incomplete or missing.
	// After any error some bytes may have been written to w. Get does not verify the hash:
	// the caller must, since stored bytes may be damaged.
	Get(ctx context.Context, sha256 string, w io.Writer) error
	// Delete removes the bytes, including those of an unfinished Put; missing ones are no
	// error. If a Put of the same bytes runs concurrently, they may be left incomplete.
	Delete(ctx context.Context, sha256 string) error
	// List returns all stored packages, including those of an unfinished Put, in no
	// particular order.
	List(ctx context.Context) ([]PackageBytes, error)
}

// PackageBytes describes the stored bytes of one package.
type PackageBytes struct {
	SHA256 string
	// Whole reports whether all bytes are stored, so that Get finds them.
	Whole bool
	// Written is when the last bytes were stored, by the clock of the server that wrote
	// them.
	Written time.Time
}

// Settings stores small values that all servers share, such as the pin of their CA. It
// holds no secrets, which would be in the store's backups.
type Settings interface {
	// Get fails with NotFound if there is no value under name.
	Get(ctx context.Context, name string) ([]byte, error)
	// GetOrPut returns the value under name, storing v first if there is none.
	GetOrPut(ctx context.Context, name string, v []byte) ([]byte, error)
	// Delete removes the value; a missing one is no error.
	Delete(ctx context.Context, name string) error
	// Each calls f with every name and its value, in no particular order. f must not call
	// the store.
	Each(ctx context.Context, f func(name string, v []byte)) error
}

// CountFirst is Agents.Tally of one list of classes.
func CountFirst(ctx context.Context, agents Agents, filter AgentFilter, queries []kql.Filter) ([]int, error) {
	tally, err := agents.Tally(ctx, filter, TallyQuery{Classes: [][]kql.Filter{queries}})
	if err != nil {
		return nil, err
	}
	return tally.Classes[0], nil
}

// CountStatuses counts the agents that match a filter by their status at now; see
// fleet.StatusFacts.StatusAt. timeouts maps the ids of policies to their inactivity
// timeouts.
func CountStatuses(ctx context.Context, agents Agents, filter AgentFilter, timeouts map[string]time.Duration, now time.Time) (map[fleet.Status]int, error) {
	rules := fleet.StatusRules(timeouts, now)
	queries := make([]kql.Filter, len(rules))
	for i, r := range rules {
		queries[i] = r.When
	}
	counts, err := CountFirst(ctx, agents, filter, queries)
	if err != nil {
		return nil, err
	}
	out := map[fleet.Status]int{fleet.StatusOnline: counts[len(rules)]}
	for i, r := range rules {
		out[r.Status] = counts[i]
	}
	return out, nil
}

// CountHealth is CountStatuses of healths; a health without agents is absent.
func CountHealth(ctx context.Context, agents Agents, filter AgentFilter, timeouts map[string]time.Duration, now time.Time) (map[fleet.Health]int, error) {
	classes := fleet.HealthClasses(timeouts, now)
	counts, err := CountFirst(ctx, agents, filter, classes.Filters)
	if err != nil {
		return nil, err
	}
	return classes.ByValue(counts), nil
}

// upgradingPage bounds one read of EachUpgrading.
const upgradingPage = 1000

// UpgradingTo returns the ids of the agents that are being upgraded to the version, or whose
// component is.
func UpgradingTo(ctx context.Context, agents Agents, component, version string) (map[string]bool, error) {
	ids := map[string]bool{}
	note := func(a *fleet.Agent) {
		if s := a.Of(component); s.UpgradeTo == version && s.Upgrading() {
			ids[a.ID] = true
		}
	}
	if component != "" {
		upgrading := kql.Exists{Field: fleet.FieldComponentsSince}
		return ids, agents.Each(ctx, AgentFilter{ActiveOnly: true, Query: upgrading}, func(a fleet.Agent) { note(&a) })
	}
	return ids, EachUpgrading(ctx, agents, note)
}

// CensusOf is Census of a component, or of the agents themselves if none is named. Since a
// census has no components, it reads the documents of the agents that report the component,
// and passes them on.
func CensusOf(ctx context.Context, agents Agents, component string, f func(fleet.Census, *fleet.Agent)) error {
	if component == "" {
		return agents.Census(ctx, func(c fleet.Census) { f(c, nil) })
	}
	return EachOf(ctx, agents, component, func(a *fleet.Agent) {
		s := a.Of(component)
		f(s.ComponentCensus(), a)
	})
}

// EachOf calls f with every agent that is not unenrolled and, if a component is named, reports it.
func EachOf(ctx context.Context, agents Agents, component string, f func(*fleet.Agent)) error {
	filter := AgentFilter{ActiveOnly: true}
	if component != "" {
		filter.Query = kql.Equals{Field: fleet.FieldComponentName, Value: component}
	}
	return agents.Each(ctx, filter, func(a fleet.Agent) { f(&a) })
}

// PoliciesWith returns the policies that list a component, by id; none if no component is named.
func PoliciesWith(ctx context.Context, policies Collection[fleet.Policy], component string) (map[string]fleet.Policy, error) {
	if component == "" {
		return nil, nil
	}
	all, _, err := policies.List(ctx, 0, 0)
	with := map[string]fleet.Policy{}
	for _, p := range all {
		if p.Component(component) != nil {
			with[p.ID] = p
		}
	}
	return with, err
}

// EachUpgrading calls f with every agent that is being upgraded.
func EachUpgrading(ctx context.Context, agents Agents, f func(*fleet.Agent)) error {
	for after := (UpgradingSince{}); ; {
		page, err := agents.Upgrading(ctx, after, upgradingPage)
		if err != nil {
			return err
		}
		for i := range page {
			f(&page[i])
		}
		if len(page) < upgradingPage {
			return nil
		}
		last := page[len(page)-1]
		after = UpgradingSince{At: *last.UpgradeStartedAt, ID: last.ID}
	}
}

// UpdateAgent is Change for an agent. change returns false if there is nothing to write.
func UpdateAgent(ctx context.Context, agents Agents, id string, change func(*fleet.Agent) bool) (fleet.Agent, error) {
	a, _, err := Change(ctx, agents, id, func(a fleet.Agent) (fleet.Agent, error) {
		if next := a; change(&next) {
			return next, nil
		}
		return a, nil
	})
	return a, err
}

// replaceTries bounds the attempts of CreateOrReplace. Only enrolments of one host write an agent
// that has not checked in, and of n at once the last succeeds at its nth attempt at the latest.
const replaceTries = 100

// CreateOrReplace creates the agent, or replaces the one that has its id, if check returns nil for
// it. However many callers there are at once, one agent with the id is there afterwards: that of
// the last of them. check may be called several times.
func CreateOrReplace(ctx context.Context, agents Agents, a fleet.Agent, check func(old fleet.Agent) error) error {
	for try := 1; ; try++ {
		err := agents.Create(ctx, a)
		if fleet.KindOf(err) != fleet.Conflict || err == nil || try == replaceTries {
			return err
		}
		old, err := agents.Get(ctx, a.ID)
		if fleet.KindOf(err) == fleet.NotFound && err != nil {
			continue // it was deleted in between
		}
		if err != nil {
			return err
		}
		if err := check(old); err != nil {
			return err
		}
		a.Revision = old.Revision
		// The sequence number is not part of the document.
		_, err = agents.Report(ctx, Report{Agent: &a, Seen: &fleet.Touch{AgentID: a.ID, ActionSeq: a.Last.ActionSeq}})
		if err == nil || fleet.KindOf(err) != fleet.Conflict {
			return err
		}
	}
}

// openPage bounds one read of the actions of an agent. Each may have the ids of a whole fleet.
const openPage = 50

// EachOpen calls f with the actions that name the agent, are neither cancelled nor expired at now, and
// have no result of it.
func EachOpen(ctx context.Context, s Store, agentID string, now time.Time, f func(*fleet.Action)) error {
	for after := int64(0); ; {
		list, err := s.Actions().Pending(ctx, agentID, after, now, openPage)
		if err != nil {
			return err
		}
		for i := range list {
			a := &list[i]
			after = a.Seq
			if a.CancelledAt != nil {
				continue
			}
			answered, err := s.Results().Answered(ctx, a.ID, []string{agentID})
			if err != nil {
				return err
			}
			if !answered[agentID] {
				f(a)
			}
		}
		if len(list) < openPage {
			return nil
		}
	}
}

// ApplyReport writes the changes that report makes to agent a. report alters the agent
// and returns the changes, or a zero Report if there are none. If another writer changed
// the agent, ApplyReport reads it and calls report again. An event without a time gets
// now. events reports whether events may have been appended to the stream.
func ApplyReport(ctx context.Context, agents Agents, a fleet.Agent, now time.Time, report func(*fleet.Agent) Report) (events bool, err error) {
	for try := 1; ; try++ {
		r := report(&a)
		if r.Agent == nil && r.Seen == nil && len(r.Results) == 0 && len(r.Events) == 0 && len(r.History) == 0 {
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
		if fleet.KindOf(err) != fleet.Conflict || try == changeTries {
			return false, err
		}
		if a, err = agents.Get(ctx, a.ID); err != nil {
			return false, err
		}
	}
}
