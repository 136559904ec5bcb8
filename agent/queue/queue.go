// Package queue stores an agent's pending actions, the results that the server has not
// confirmed, and the ack token. The file is run/queue in the versioned home: a new
// version starts with a copy, and a version that is restored finds its own.
//
// The gateway adds actions. The daemon runs upgrades and adds results. The agent is upgraded
// once at a time, and so is each component; upgrades of different components do not wait for
// each other. The ack sender removes each result when the server has answered for it. Every change
// is on disk before the call returns, so that the next poll may confirm an ack token.
package queue

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/muster-fleet/muster/agent/request"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

const (
	// MaxDone bounds the finished actions that are remembered, some 300 KB. A server
	// sends unconfirmed actions again, at most 100 in an answer; this is ten answers.
	MaxDone = 1000
	// MaxPending bounds the pending actions. Only upgrades wait, and a newer one
	// replaces older ones, so only a faulty server fills the queue.
	MaxPending = 100
	// MaxAcks bounds the results that wait for the server, some 300 KB. The oldest
	// are dropped.
	MaxAcks = 1000
	// MaxDiagnostics bounds the requests for diagnostics that wait: one file answers them
	// all.
	MaxDiagnostics = 5
	// MaxStages bounds the versions that wait to be staged. A host keeps fewer.
	MaxStages = 20
	// MaxHosts bounds the servers of a policy that the agent remembers: far more than a
	// fleet has.
	MaxHosts = 50

	kind    = "queue"
	version = 1
	op      = "queue"
	opCheck = "queue check"
)

// Item is a pending or running upgrade, or a stage that waits.
type Item struct {
	Action agentapi.Action `json:"action"`
	// request is what the action says, as it was parsed when it was accepted or read.
	request request.Request
	// Local means that the upgrade was requested on the host, so that the server
	// does not know its id.
	Local      bool      `json:"local,omitempty"`
	ReceivedAt time.Time `json:"received_at"`
	// Attempts counts how often the current try has begun. Above zero it is
	// running, or was running when the agent stopped.
	Attempts int `json:"attempts,omitempty"`
	// Retries counts the tries that failed; NotBefore is when the next one begins,
	// and LastError why the last one failed.
	Retries   int       `json:"retries,omitempty"`
	NotBefore time.Time `json:"not_before,omitzero"`
	LastError string    `json:"last_error,omitempty"`
	// Stop is why a running upgrade must end: an operator's CANCEL or a newer
	// upgrade. It is stored before the CANCEL is acknowledged.
	Stop string `json:"stop,omitempty"`
	// Until is how far the server lets an upgrade in lockstep go, beyond what its action says,
	// and Undo why it is to be undone; see PROCEED.
	Until agentapi.LockstepPhase `json:"until,omitempty"`
	Undo  string                 `json:"undo,omitempty"`
	// Switched means that the pointer has moved and this process is about to be
	// replaced by the new version.
	Switched bool `json:"switched,omitempty"`
}

// parse returns an item with its request. An action that cannot be read is an error.
func (i Item) parse() (Item, error) {
	var err error
	i.request, err = request.Parse(i.Action.ID, i.Local, i.Action.Data)
	return i, err
}

// Request returns what the item asks for.
func (i Item) Request() request.Request {
	r := i.request
	r.Interrupted, r.Stop = i.Attempts, i.Stop
	return r
}

// Component returns the component that the item upgrades, empty for the agent itself. Upgrades
// of one component run one after the other.
func (i Item) Component() string { return i.request.Component.Name }

// lockstep reports whether the item is an upgrade in lockstep.
func (i Item) lockstep() bool { return i.request.Component.Lockstep != nil }

// Due returns when the item may begin.
func (i Item) Due() time.Time {
	switch {
	case !i.NotBefore.IsZero():
		return i.NotBefore
	case i.Action.StartTime != nil:
		return *i.Action.StartTime
	}
	return i.ReceivedAt
}

// state is the record on disk.
type state struct {
	AgentID  string `json:"agent_id"`
	AckToken string `json:"ack_token,omitempty"`
	Pending  []Item `json:"pending,omitempty"`
	// Diagnostics are the requests for diagnostics that wait, oldest first.
	Diagnostics []agentapi.Action `json:"diagnostics,omitempty"`
	// Stages are the versions that the server has ordered to be staged, oldest first.
	Stages []agentapi.Action   `json:"stages,omitempty"`
	Acks   []agentapi.AckEvent `json:"acks,omitempty"`
	Done   []string            `json:"done,omitempty"` // oldest first
	// Results are how the actions in Done ended, by id. Actions that were requested on the
	// host have none.
	Results map[string]Result `json:"done_results,omitempty"`
	// PolicyID and PolicyRevision identify the last policy that was received.
	PolicyID       string   `json:"policy_id,omitempty"`
	PolicyRevision int64    `json:"policy_revision,omitempty"`
	Settings       Settings `json:"settings,omitzero"`
	Unenrolled     bool     `json:"unenrolled,omitempty"`
	// HomeDue is when the agent asks the server of its enrolment next; zero while it has no reason to.
	HomeDue time.Time `json:"home_due,omitzero"`
}

// Settings are what the last policy and the last SETTINGS have set.
type Settings struct {
	// SourceURI is the policy's source of packages; empty if it names none.
	SourceURI string `json:"source_uri,omitempty"`
	// Hosts are the policy's servers. It must not be changed.
	Hosts []string `json:"hosts,omitempty"`
	// Components are the policy's components. It must not be changed.
	Components []agentapi.PolicyComponent `json:"components,omitempty"`
	// LogLevel is the level that a SETTINGS has set; nil is that of the configuration.
	LogLevel *slog.Level `json:"log_level,omitempty"`
}

// Queue is safe for concurrent use.
type Queue struct {
	disk disk.Disk
	path string

	made bool // the folder exists and is durable; guarded by writing

	// writing is held while a change is stored; mu only while the state in memory
	// is read or replaced, so that a slow disk does not block readers.
	writing sync.Mutex
	mu      sync.Mutex
	state   state
	changed chan struct{} // closed and replaced at every change
}

// Path returns the path of the queue in a versioned home.
func Path(home string) string { return layout.Path(home, layout.QueueFile) }

// Open reads the queue at path for the agent with the given id. It returns an empty
// queue if the file belongs to another agent, as after a new enrolment. If the file is
// damaged it returns an empty queue and an error: the caller logs the error and uses the
// queue, since the server sends unconfirmed actions again.
func Open(d disk.Disk, path, agentID string) (*Queue, error) {
	q := &Queue{disk: d, path: path, changed: make(chan struct{})}
	err := disk.ReadRecord(d, op, path, kind, version, &q.state)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil || q.state.AgentID != agentID {
		q.state = state{AgentID: agentID}
	}
	q.state.parse(time.Now())
	return q, err
}

// Changed returns a channel that is closed at the next change.
func (q *Queue) Changed() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.changed
}

// AckToken returns the last ack token from the server.
func (q *Queue) AckToken() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.state.AckToken
}

// Policy returns the last policy that was received.
func (q *Queue) Policy() (id string, revision int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.state.PolicyID, q.state.PolicyRevision
}

// Settings returns what the last policy and the last SETTINGS said.
func (q *Queue) Settings() Settings {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.state.Settings
}

// Unenrolled reports whether the server has unenrolled this agent.
func (q *Queue) Unenrolled() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.state.Unenrolled
}

// HomeDue returns what SetHomeDue has stored.
func (q *Queue) HomeDue() time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.state.HomeDue
}

// SetHomeDue stores when the agent asks the server of its enrolment next.
func (q *Queue) SetHomeDue(at time.Time) error {
	if q.HomeDue().Equal(at) {
		return nil
	}
	return q.update(func(s *state) error { s.HomeDue = at; return nil })
}

// Return prepares the queue for the server of the enrolment, which wants the agent. That server then
// sends its policy, whatever revision another server has given to its own, and until it has, the
// agent follows nobody's servers.
func (q *Queue) Return() error {
	return q.update(func(s *state) error {
		s.PolicyRevision, s.Settings.Hosts, s.Unenrolled = 0, nil, false
		return nil
	})
}

// Stopper stops a running upgrade, and reports whether it still could.
type Stopper func(actionID, why string) bool

// Accept stores the actions and the token of one answer. It calls stop if a CANCEL or a
// newer upgrade ends a running one.
func (q *Queue) Accept(actions []agentapi.Action, token string, now time.Time, stop Stopper) error {
	return q.update(func(s *state) error {
		for _, a := range actions {
			s.accept(a, now, stop)
		}
		if token != "" {
			s.AckToken = token
		}
		return nil
	})
}

// AddLocal stores an upgrade that was requested on the host. It returns an error while
// another upgrade of the same component waits or runs; the person on the host decides what to do.
func (q *Queue) AddLocal(id string, data []byte, now time.Time) error {
	item, err := Item{
		Action:     agentapi.Action{ID: id, Type: agentapi.ActionUpgrade, CreatedAt: now, Data: data},
		Local:      true,
		ReceivedAt: now,
	}.parse()
	if err != nil {
		return err
	}
	return q.update(func(s *state) error {
		if others := s.of(item.Component()); len(others) > 0 {
			return fmt.Errorf("%w: action %s is waiting or running", request.ErrBusy, others[0].Action.ID)
		}
		s.Pending = append(s.Pending, item)
		return nil
	})
}

// Next returns the upgrade of a component, or with an empty name of the agent itself, to run
// now, or nil and the time at which to call Next again (zero: only after a change). It
// finishes expired upgrades.
func (q *Queue) Next(component string, now time.Time) (*Item, time.Time, error) {
	q.mu.Lock()
	expired := slices.ContainsFunc(q.state.Pending, func(i Item) bool { return i.expired(now) })
	item, again := next(q.state.of(component), now)
	q.mu.Unlock()
	if !expired {
		return item, again, nil
	}
	err := q.update(func(s *state) error {
		s.expire(now)
		item, again = next(s.of(component), now)
		return nil
	})
	return item, again, err
}

// Waiting returns the upgrade of a component, or with an empty name of the agent itself, that
// is running or runs next, or nil.
func (q *Queue) Waiting(component string) *Item {
	q.mu.Lock()
	defer q.mu.Unlock()
	pending := q.state.of(component)
	if len(pending) == 0 {
		return nil
	}
	first := slices.MinFunc(pending, byOrder)
	return &first
}

// Lockstep returns the pending upgrades in lockstep.
func (q *Queue) Lockstep() []Item {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(q.state.Pending), func(i Item) bool { return !i.lockstep() })
}

// Release lets a component's upgrade in lockstep go on to its end without the server, or undoes it.
func (q *Queue) Release(component string, undo bool) error {
	return q.update(func(s *state) error { return s.release(component, undo) })
}

// Components returns the names of the components with pending upgrades, sorted. The agent's own
// upgrades have an empty name.
func (q *Queue) Components() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	var out []string
	for _, i := range q.state.Pending {
		out = append(out, i.Component())
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Idle reports whether no upgrade waits or runs, of the agent or of a component, and the server has
// answered every result. Before that it may know less than the queue.
func (q *Queue) Idle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.state.Pending) == 0 && len(q.state.Acks) == 0
}

// Stage returns the version to stage next, or nil. Finish ends it.
func (q *Queue) Stage() *Item {
	q.mu.Lock()
	a := first(q.state.Stages)
	q.mu.Unlock()
	if a == nil {
		return nil
	}
	i, _ := Item{Action: *a}.parse() // without an error it was accepted
	return &i
}

// first returns a copy of the first action of a list, or nil.
func first(list []agentapi.Action) *agentapi.Action {
	if len(list) == 0 {
		return nil
	}
	return new(list[0])
}

// Diagnostics returns the request for diagnostics to carry out next, or nil. Finish ends it.
func (q *Queue) Diagnostics() *agentapi.Action {
	q.mu.Lock()
	defer q.mu.Unlock()
	return first(q.state.Diagnostics)
}

// Begun returns the upgrade of the agent that was running when the agent stopped, or nil.
func (q *Queue) Begun() *Item {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, i := range q.state.of("") {
		if i.Attempts > 0 {
			return &i
		}
	}
	return nil
}

// Begin counts one attempt of an upgrade.
func (q *Queue) Begin(id string) error {
	return q.update(func(s *state) error {
		return s.item(id, func(i *Item) { i.Attempts++ })
	})
}

// Postpone ends one try of an upgrade. The next begins at the time at.
func (q *Queue) Postpone(id string, at time.Time, why string) error {
	return q.update(func(s *state) error {
		return s.item(id, func(i *Item) {
			i.Attempts, i.Switched = 0, false
			i.Retries++
			i.NotBefore, i.LastError = at, why
		})
	})
}

// Adopt merges the queue at path, which another version of this agent used before this
// version was restored: actions that it has done are not done again, and results that it
// did not send are sent. A missing queue is ignored; an unreadable one is an error and
// changes nothing.
func (q *Queue) Adopt(path string) error {
	var other state
	err := disk.ReadRecord(q.disk, op, path, kind, version, &other)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return q.update(func(s *state) error {
		s.adopt(other)
		return nil
	})
}

// Switch marks an upgrade as switched and calls replace, which copies the state for the
// new version and replaces this process. No change is accepted until replace returns,
// which it does only if it fails: an action accepted after the copy would be lost.
func (q *Queue) Switch(id string, replace func() error) error {
	q.writing.Lock()
	defer q.writing.Unlock()
	mark := func(switched bool) error {
		return q.store(func(s *state) error {
			return s.item(id, func(i *Item) { i.Switched = switched })
		})
	}
	if err := mark(true); err != nil {
		return err
	}
	err := replace()
	if err != nil {
		err = errors.Join(err, mark(false))
		q.forgetSwitch(id)
	}
	return err
}

// forgetSwitch removes the mark from memory. If it could not be removed from the disk, the
// next change does so.
func (q *Queue) forgetSwitch(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	next := q.state.clone()
	if next.item(id, func(i *Item) { i.Switched = false }) == nil {
		q.state = next
	}
}

// Finish ends an upgrade and queues its result. An action that is not pending gets a
// result too, but never a second one.
func (q *Queue) Finish(id string, r Result, now time.Time) error {
	return q.update(func(s *state) error {
		s.finish(id, r, now)
		return nil
	})
}

// Acks returns up to n results for the server, oldest first.
func (q *Queue) Acks(n int) []agentapi.AckEvent {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.state.Acks[:min(n, len(q.state.Acks))])
}

// DropAcks removes results that the server has answered for.
func (q *Queue) DropAcks(answered []agentapi.AckEvent) error {
	if len(answered) == 0 {
		return nil
	}
	return q.update(func(s *state) error {
		s.Acks = slices.DeleteFunc(s.Acks, func(e agentapi.AckEvent) bool {
			return slices.ContainsFunc(answered, func(a agentapi.AckEvent) bool {
				return a.ActionID == e.ActionID && a.Timestamp.Equal(e.Timestamp)
			})
		})
		return nil
	})
}

func (q *Queue) update(change func(*state) error) error {
	q.writing.Lock()
	defer q.writing.Unlock()
	return q.store(change)
}

// store applies change to a copy, writes it, and then replaces the state in memory, so
// that nothing acts on a change that was not written. The caller holds writing.
func (q *Queue) store(change func(*state) error) error {
	q.mu.Lock()
	next := q.state.clone()
	q.mu.Unlock()
	if err := change(&next); err != nil {
		return err
	}
	if err := q.makeFolder(); err != nil {
		return err
	}
	if err := disk.WriteRecord(q.disk, op, q.path, kind, version, next); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.state = next
	close(q.changed)
	q.changed = make(chan struct{})
	return nil
}

// Check returns an error unless the queue can be written and synced where it is. A folder that does not
// exist is no error: the next change makes it.
func (q *Queue) Check() error {
	q.writing.Lock()
	defer q.writing.Unlock()
	folder := filepath.Dir(q.path)
	err := disk.CheckDurable(q.disk, opCheck, folder, filepath.Base(layout.WriteCheckFile))
	if errors.Is(err, fs.ErrNotExist) {
		if _, missing := q.disk.Lstat(opCheck, folder); errors.Is(missing, fs.ErrNotExist) {
			return nil
		}
	}
	return err
}

// makeFolder creates the queue's folder durably: the queue is only as durable as its
// folder. The caller holds writing.
func (q *Queue) makeFolder() error {
	if q.made {
		return nil
	}
	folder := filepath.Dir(q.path)
	if err := q.disk.MkdirAll(op, folder, 0o700); err != nil {
		return err
	}
	if err := q.disk.SyncDir(op, filepath.Dir(folder)); err != nil {
		return err
	}
	q.made = true
	return nil
}
