package store

import (
	"context"
	"io"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
)

// Call is a call of a method that one of a store's interfaces has.
type Call struct {
	Kind   *Info
	Method string
}

// reads are the methods that change nothing. Any other one counts as a write, so that a new
// method is taken for one.
var reads = map[string]bool{
	"Get": true, "GetMany": true, "Sorted": true, "ByAccessKey": true, "List": true, "Facts": true, "CountPolicies": true,
	"Tally": true, "Each": true, "Census": true, "Values": true, "Upgrading": true, "Leavers": true, "For": true, "Pending": true, "After": true,
	"LastSeq": true, "Answered": true, "OfAction": true, "Errors": true, "Counts": true, "Active": true, "ByAgent": true, "Rollouts": true,
	"CountEnds": true, "Count": true, "Bounds": true,
}

// Writes reports whether the call may change documents.
func (c Call) Writes() bool { return !reads[c.Method] }

// Around is called in place of every call. do makes the call. If Around returns an error, the caller
// gets it.
type Around func(ctx context.Context, c Call, do func() error) error

// Intercept returns a store that passes every call for documents through f: those of the interfaces
// of each kind. Exclusively, Contents, Ping and what concerns the store as a whole are not
// intercepted. No type below embeds an interface, so that a new method cannot be forgotten.
func Intercept(s Store, f Around) Store {
	i := &intercepted{s: s, around: f}
	i.Typed = i.Documents
	return i
}

type intercepted struct {
	Typed
	s      Store
	around Around
}

func (i *intercepted) Exclusively(ctx context.Context, what string, f func(context.Context) error) error {
	return i.s.Exclusively(ctx, what, f)
}

func (i *intercepted) Contents(ctx context.Context) (map[string]int, error) { return i.s.Contents(ctx) }

func (i *intercepted) Unreadable() *Unreadables                 { return i.s.Unreadable() }
func (i *intercepted) Schema() int                              { return i.s.Schema() }
func (i *intercepted) Ping(ctx context.Context) error           { return i.s.Ping(ctx) }
func (i *intercepted) OnAgentChange(f func([]AgentChange)) bool { return i.s.OnAgentChange(f) }
func (i *intercepted) Close() error                             { return i.s.Close() }

// through makes calls of one kind.
type through struct {
	kind   *Info
	around Around
}

func (t through) do(ctx context.Context, method string, do func() error) error {
	return t.around(ctx, Call{t.kind, method}, do)
}

// get is through.do of a method with a result.
func get[T any](ctx context.Context, t through, method string, do func() (T, error)) (v T, err error) {
	err = t.do(ctx, method, func() (err error) {
		v, err = do()
		return err
	})
	return v, err
}

func (i *intercepted) Agents() Agents {
	return interceptedAgents{i.s.Agents(), through{KindAgents, i.around}}
}

func (i *intercepted) Actions() Actions {
	return interceptedActions{i.s.Actions(), through{KindActions, i.around}}
}

func (i *intercepted) Results() Results {
	return interceptedResults{i.s.Results(), through{KindResults, i.around}}
}

func (i *intercepted) Targets() Targets {
	return interceptedTargets{i.s.Targets(), through{KindTargets, i.around}}
}

func (i *intercepted) Audit() Audit {
	return interceptedAudit{i.s.Audit(), through{KindAudit, i.around}}
}

func (i *intercepted) History() History {
	return interceptedHistory{i.s.History(), through{KindHistory, i.around}}
}

func (i *intercepted) Events() Events {
	return interceptedEvents{i.s.Events(), through{KindEvents, i.around}}
}

func (i *intercepted) Settings() Settings {
	return interceptedSettings{i.s.Settings(), through{KindSettings, i.around}}
}

func (i *intercepted) PackageData() PackageData {
	s := i.s.PackageData()
	if s == nil {
		return nil
	}
	return interceptedPackageData{s, through{KindPackageData, i.around}}
}

func (i *intercepted) Rollouts() Rollouts {
	return interceptedRollouts{KindRollouts.In(i.Documents(KindRollouts.Info)), i.s.Rollouts(), through{KindRollouts.Info, i.around}}
}

func (i *intercepted) Documents(kind *Info) Documents {
	return interceptedDocuments{i.s.Documents(kind), through{kind, i.around}}
}

type interceptedRollouts struct {
	Collection[fleet.Rollout] // of interceptedDocuments
	s                         Rollouts
	t                         through
}

func (r interceptedRollouts) Active(ctx context.Context) ([]RolloutHead, error) {
	return get(ctx, r.t, "Active", func() ([]RolloutHead, error) { return r.s.Active(ctx) })
}

type interceptedAgents struct {
	s Agents
	t through
}

func (x interceptedAgents) Create(ctx context.Context, a fleet.Agent) error {
	return x.t.do(ctx, "Create", func() error { return x.s.Create(ctx, a) })
}

func (x interceptedAgents) Get(ctx context.Context, id string) (fleet.Agent, error) {
	return get(ctx, x.t, "Get", func() (fleet.Agent, error) { return x.s.Get(ctx, id) })
}

func (x interceptedAgents) GetMany(ctx context.Context, ids []string) ([]fleet.Agent, error) {
	return get(ctx, x.t, "GetMany", func() ([]fleet.Agent, error) { return x.s.GetMany(ctx, ids) })
}

func (x interceptedAgents) Sorted(ctx context.Context, ids []string) ([]string, error) {
	return get(ctx, x.t, "Sorted", func() ([]string, error) { return x.s.Sorted(ctx, ids) })
}

func (x interceptedAgents) ByAccessKey(ctx context.Context, keyID string) (fleet.Agent, error) {
	return get(ctx, x.t, "ByAccessKey", func() (fleet.Agent, error) { return x.s.ByAccessKey(ctx, keyID) })
}

func (x interceptedAgents) Update(ctx context.Context, a fleet.Agent) (int64, error) {
	return get(ctx, x.t, "Update", func() (int64, error) { return x.s.Update(ctx, a) })
}

func (x interceptedAgents) UpdateMany(ctx context.Context, agents []fleet.Agent) ([]error, error) {
	return get(ctx, x.t, "UpdateMany", func() ([]error, error) { return x.s.UpdateMany(ctx, agents) })
}

func (x interceptedAgents) Report(ctx context.Context, r Report) (int64, error) {
	return get(ctx, x.t, "Report", func() (int64, error) { return x.s.Report(ctx, r) })
}

func (x interceptedAgents) Delete(ctx context.Context, id string) error {
	return x.t.do(ctx, "Delete", func() error { return x.s.Delete(ctx, id) })
}

func (x interceptedAgents) Touch(ctx context.Context, touches []fleet.Touch) error {
	return x.t.do(ctx, "Touch", func() error { return x.s.Touch(ctx, touches) })
}

func (x interceptedAgents) List(ctx context.Context, q AgentQuery) (a []fleet.Agent, b int, err error) {
	err = x.t.do(ctx, "List", func() (err error) {
		a, b, err = x.s.List(ctx, q)
		return err
	})
	return a, b, err
}

func (x interceptedAgents) Facts(ctx context.Context, filter AgentFilter, f func(id string, facts fleet.StatusFacts)) error {
	return x.t.do(ctx, "Facts", func() error { return x.s.Facts(ctx, filter, f) })
}

func (x interceptedAgents) CountPolicies(ctx context.Context) (map[fleet.PolicyAt]int, error) {
	return get(ctx, x.t, "CountPolicies", func() (map[fleet.PolicyAt]int, error) { return x.s.CountPolicies(ctx) })
}

func (x interceptedAgents) Tally(ctx context.Context, filter AgentFilter, q TallyQuery) (Tally, error) {
	return get(ctx, x.t, "Tally", func() (Tally, error) { return x.s.Tally(ctx, filter, q) })
}

func (x interceptedAgents) Each(ctx context.Context, filter AgentFilter, f func(fleet.Agent)) error {
	return x.t.do(ctx, "Each", func() error { return x.s.Each(ctx, filter, f) })
}

func (x interceptedAgents) Census(ctx context.Context, f func(fleet.Census)) error {
	return x.t.do(ctx, "Census", func() error { return x.s.Census(ctx, f) })
}

func (x interceptedAgents) Values(ctx context.Context, filter AgentFilter, field *kql.Field, prefix string, limit int) ([]string, error) {
	return get(ctx, x.t, "Values", func() ([]string, error) { return x.s.Values(ctx, filter, field, prefix, limit) })
}

func (x interceptedAgents) Upgrading(ctx context.Context, after UpgradingSince, limit int) ([]fleet.Agent, error) {
	return get(ctx, x.t, "Upgrading", func() ([]fleet.Agent, error) { return x.s.Upgrading(ctx, after, limit) })
}

func (x interceptedAgents) Leavers(ctx context.Context, afterID string, limit int) ([]fleet.Agent, error) {
	return get(ctx, x.t, "Leavers", func() ([]fleet.Agent, error) { return x.s.Leavers(ctx, afterID, limit) })
}

type interceptedActions struct {
	s Actions
	t through
}

func (x interceptedActions) Create(ctx context.Context, a fleet.Action) (int64, error) {
	return get(ctx, x.t, "Create", func() (int64, error) { return x.s.Create(ctx, a) })
}

func (x interceptedActions) Get(ctx context.Context, id string) (fleet.Action, error) {
	return get(ctx, x.t, "Get", func() (fleet.Action, error) { return x.s.Get(ctx, id) })
}

func (x interceptedActions) For(ctx context.Context, id string, agentIDs ...string) ([]fleet.Action, error) {
	return get(ctx, x.t, "For", func() ([]fleet.Action, error) { return x.s.For(ctx, id, agentIDs...) })
}

func (x interceptedActions) Cancel(ctx context.Context, id string, at time.Time) error {
	return x.t.do(ctx, "Cancel", func() error { return x.s.Cancel(ctx, id, at) })
}

func (x interceptedActions) Pending(ctx context.Context, agentID string, after int64, now time.Time, limit int) ([]fleet.Action, error) {
	return get(ctx, x.t, "Pending", func() ([]fleet.Action, error) { return x.s.Pending(ctx, agentID, after, now, limit) })
}

func (x interceptedActions) After(ctx context.Context, after int64, limit int) ([]fleet.Action, error) {
	return get(ctx, x.t, "After", func() ([]fleet.Action, error) { return x.s.After(ctx, after, limit) })
}

func (x interceptedActions) LastSeq(ctx context.Context) (int64, error) {
	return get(ctx, x.t, "LastSeq", func() (int64, error) { return x.s.LastSeq(ctx) })
}

func (x interceptedActions) List(ctx context.Context, q ActionQuery) ([]fleet.Action, error) {
	return get(ctx, x.t, "List", func() ([]fleet.Action, error) { return x.s.List(ctx, q) })
}

func (x interceptedActions) Delete(ctx context.Context, id string) error {
	return x.t.do(ctx, "Delete", func() error { return x.s.Delete(ctx, id) })
}

type interceptedResults struct {
	s Results
	t through
}

func (x interceptedResults) Put(ctx context.Context, results []fleet.Result) ([]bool, error) {
	return get(ctx, x.t, "Put", func() ([]bool, error) { return x.s.Put(ctx, results) })
}

func (x interceptedResults) Get(ctx context.Context, actionID, agentID string) (fleet.Result, error) {
	return get(ctx, x.t, "Get", func() (fleet.Result, error) { return x.s.Get(ctx, actionID, agentID) })
}

func (x interceptedResults) Answered(ctx context.Context, actionID string, agentIDs []string) (map[string]bool, error) {
	return get(ctx, x.t, "Answered", func() (map[string]bool, error) { return x.s.Answered(ctx, actionID, agentIDs) })
}

func (x interceptedResults) OfAction(ctx context.Context, actionID string, agentIDs []string, f func(fleet.Result)) error {
	return x.t.do(ctx, "OfAction", func() error { return x.s.OfAction(ctx, actionID, agentIDs, f) })
}

func (x interceptedResults) Errors(ctx context.Context, actionID string, limit int) ([]fleet.Result, error) {
	return get(ctx, x.t, "Errors", func() ([]fleet.Result, error) { return x.s.Errors(ctx, actionID, limit) })
}

func (x interceptedResults) Counts(ctx context.Context, actionIDs []string) (map[string]fleet.ResultCounts, error) {
	return get(ctx, x.t, "Counts", func() (map[string]fleet.ResultCounts, error) { return x.s.Counts(ctx, actionIDs) })
}

func (x interceptedResults) Each(ctx context.Context, f func(fleet.Result)) error {
	return x.t.do(ctx, "Each", func() error { return x.s.Each(ctx, f) })
}

type interceptedTargets struct {
	s Targets
	t through
}

func (x interceptedTargets) Create(ctx context.Context, targets []fleet.Target) error {
	return x.t.do(ctx, "Create", func() error { return x.s.Create(ctx, targets) })
}

func (x interceptedTargets) Get(ctx context.Context, rolloutID, agentID string) (fleet.Target, error) {
	return get(ctx, x.t, "Get", func() (fleet.Target, error) { return x.s.Get(ctx, rolloutID, agentID) })
}

func (x interceptedTargets) GetMany(ctx context.Context, rolloutID string, agentIDs []string) ([]fleet.Target, error) {
	return get(ctx, x.t, "GetMany", func() ([]fleet.Target, error) { return x.s.GetMany(ctx, rolloutID, agentIDs) })
}

func (x interceptedTargets) UpdateMany(ctx context.Context, targets []fleet.Target) (a []int64, b []error, err error) {
	err = x.t.do(ctx, "UpdateMany", func() (err error) {
		a, b, err = x.s.UpdateMany(ctx, targets)
		return err
	})
	return a, b, err
}

func (x interceptedTargets) Each(ctx context.Context, rolloutID string, f func(fleet.Target)) error {
	return x.t.do(ctx, "Each", func() error { return x.s.Each(ctx, rolloutID, f) })
}

func (x interceptedTargets) List(ctx context.Context, q TargetQuery) (a []fleet.Target, b int, err error) {
	err = x.t.do(ctx, "List", func() (err error) {
		a, b, err = x.s.List(ctx, q)
		return err
	})
	return a, b, err
}

func (x interceptedTargets) ByAgent(ctx context.Context, agentID string, limit int) ([]fleet.Target, error) {
	return get(ctx, x.t, "ByAgent", func() ([]fleet.Target, error) { return x.s.ByAgent(ctx, agentID, limit) })
}

func (x interceptedTargets) Rollouts(ctx context.Context) ([]string, error) {
	return get(ctx, x.t, "Rollouts", func() ([]string, error) { return x.s.Rollouts(ctx) })
}

type interceptedAudit struct {
	s Audit
	t through
}

func (x interceptedAudit) Append(ctx context.Context, entries []fleet.AuditEntry) error {
	return x.t.do(ctx, "Append", func() error { return x.s.Append(ctx, entries) })
}

func (x interceptedAudit) List(ctx context.Context, q AuditQuery) (a []fleet.AuditEntry, b int, err error) {
	err = x.t.do(ctx, "List", func() (err error) {
		a, b, err = x.s.List(ctx, q)
		return err
	})
	return a, b, err
}

func (x interceptedAudit) Each(ctx context.Context, f func(fleet.AuditEntry)) error {
	return x.t.do(ctx, "Each", func() error { return x.s.Each(ctx, f) })
}

func (x interceptedAudit) Trim(ctx context.Context, t AuditTrim) (int, error) {
	return get(ctx, x.t, "Trim", func() (int, error) { return x.s.Trim(ctx, t) })
}

type interceptedHistory struct {
	s History
	t through
}

func (x interceptedHistory) Put(ctx context.Context, records []fleet.HistoryRecord) error {
	return x.t.do(ctx, "Put", func() error { return x.s.Put(ctx, records) })
}

func (x interceptedHistory) List(ctx context.Context, q HistoryQuery) ([]fleet.HistoryRecord, error) {
	return get(ctx, x.t, "List", func() ([]fleet.HistoryRecord, error) { return x.s.List(ctx, q) })
}

func (x interceptedHistory) CountEnds(ctx context.Context, actionIDs []string) (map[string]map[fleet.End]int, error) {
	return get(ctx, x.t, "CountEnds", func() (map[string]map[fleet.End]int, error) { return x.s.CountEnds(ctx, actionIDs) })
}

func (x interceptedHistory) OfAction(ctx context.Context, q ActionHistory, f func(fleet.HistoryRecord)) error {
	return x.t.do(ctx, "OfAction", func() error { return x.s.OfAction(ctx, q, f) })
}

func (x interceptedHistory) Count(ctx context.Context) (int, error) {
	return get(ctx, x.t, "Count", func() (int, error) { return x.s.Count(ctx) })
}

func (x interceptedHistory) Each(ctx context.Context, f func(fleet.HistoryRecord)) error {
	return x.t.do(ctx, "Each", func() error { return x.s.Each(ctx, f) })
}

func (x interceptedHistory) Trim(ctx context.Context, t HistoryTrim) (int, error) {
	return get(ctx, x.t, "Trim", func() (int, error) { return x.s.Trim(ctx, t) })
}

type interceptedEvents struct {
	s Events
	t through
}

func (x interceptedEvents) Append(ctx context.Context, events []fleet.Event) error {
	return x.t.do(ctx, "Append", func() error { return x.s.Append(ctx, events) })
}

func (x interceptedEvents) After(ctx context.Context, after int64, limit int) ([]fleet.Event, error) {
	return get(ctx, x.t, "After", func() ([]fleet.Event, error) { return x.s.After(ctx, after, limit) })
}

func (x interceptedEvents) Bounds(ctx context.Context) (a int64, b int64, err error) {
	err = x.t.do(ctx, "Bounds", func() (err error) {
		a, b, err = x.s.Bounds(ctx)
		return err
	})
	return a, b, err
}

func (x interceptedEvents) Trim(ctx context.Context, keep int) error {
	return x.t.do(ctx, "Trim", func() error { return x.s.Trim(ctx, keep) })
}

type interceptedSettings struct {
	s Settings
	t through
}

func (x interceptedSettings) Get(ctx context.Context, name string) ([]byte, error) {
	return get(ctx, x.t, "Get", func() ([]byte, error) { return x.s.Get(ctx, name) })
}

func (x interceptedSettings) GetOrPut(ctx context.Context, name string, v []byte) ([]byte, error) {
	return get(ctx, x.t, "GetOrPut", func() ([]byte, error) { return x.s.GetOrPut(ctx, name, v) })
}

func (x interceptedSettings) Delete(ctx context.Context, name string) error {
	return x.t.do(ctx, "Delete", func() error { return x.s.Delete(ctx, name) })
}

func (x interceptedSettings) Each(ctx context.Context, f func(name string, v []byte)) error {
	return x.t.do(ctx, "Each", func() error { return x.s.Each(ctx, f) })
}

type interceptedPackageData struct {
	s PackageData
	t through
}

func (x interceptedPackageData) Put(ctx context.Context, sha256 string, size int64, r io.Reader) error {
	return x.t.do(ctx, "Put", func() error { return x.s.Put(ctx, sha256, size, r) })
}

func (x interceptedPackageData) Get(ctx context.Context, sha256 string, w io.Writer) error {
	return x.t.do(ctx, "Get", func() error { return x.s.Get(ctx, sha256, w) })
}

func (x interceptedPackageData) Delete(ctx context.Context, sha256 string) error {
	return x.t.do(ctx, "Delete", func() error { return x.s.Delete(ctx, sha256) })
}

func (x interceptedPackageData) List(ctx context.Context) ([]PackageBytes, error) {
	return get(ctx, x.t, "List", func() ([]PackageBytes, error) { return x.s.List(ctx) })
}

type interceptedDocuments struct {
	s Documents
	t through
}

func (x interceptedDocuments) Create(ctx context.Context, id string, v any) error {
	return x.t.do(ctx, "Create", func() error { return x.s.Create(ctx, id, v) })
}

func (x interceptedDocuments) Get(ctx context.Context, id string, v any) (int64, error) {
	return get(ctx, x.t, "Get", func() (int64, error) { return x.s.Get(ctx, id, v) })
}

func (x interceptedDocuments) Update(ctx context.Context, id string, revision int64, v any) (int64, error) {
	return get(ctx, x.t, "Update", func() (int64, error) { return x.s.Update(ctx, id, revision, v) })
}

func (x interceptedDocuments) Delete(ctx context.Context, id string) error {
	return x.t.do(ctx, "Delete", func() error { return x.s.Delete(ctx, id) })
}

func (x interceptedDocuments) List(ctx context.Context, offset, limit int, f func(revision int64, decode func(v any) error) error) (int, error) {
	return get(ctx, x.t, "List", func() (int, error) { return x.s.List(ctx, offset, limit, f) })
}
