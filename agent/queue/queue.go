// Package queue is what an agent still has to do and still has to tell: the
// actions its server gave it, the results the server has not confirmed, and the
// ack token. It lies in run/queue of the versioned home, so a new version starts
// with a copy, and a version that was put back finds its own.
//
// The gateway puts actions in; the daemon takes upgrades out, one at a time, and
// puts results in; the ack sender takes results out once the server has answered
// for each. Every change is on disk before the call returns, which is what makes
// it right to confirm an ack token with the next poll.
package queue

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/server/agentapi"
)

const (
	// MaxDone is how many finished action ids are remembered. A server sends
	// again what was not confirmed, at most 100 actions an answer; ten answers.
	MaxDone = 1000
	// MaxPending bounds the actions waiting here. Only upgrades wait, and a
	// newer one removes older ones, so a full queue is a broken server.
	MaxPending = 100
	// MaxAcks bounds the results waiting for the server; beyond it the oldest
	// goes. Some 300 KB.
	MaxAcks = 1000
	// MaxAttempts is how often one upgrade may be begun again after the agent
	// was interrupted in it: a package that kills the agent while it is being
	// installed must not do so for ever.
	MaxAttempts = 5

	kind    = "queue"
	version = 1
	op      = "queue"
)

// Item is an upgrade that waits or runs.
type Item struct {
	Action agentapi.Action `json:"action"`
	// Local marks one asked for on the host itself: no server knows its id.
	Local      bool      `json:"local,omitempty"`
	ReceivedAt time.Time `json:"received_at"`
	// Attempts counts how often this try was begun; above zero it is running, or
	// was when the agent stopped.
	Attempts int `json:"attempts,omitempty"`
	// Retries counts the tries that failed and were put off; NotBefore is when
	// the next begins, and LastError why the last one ended.
	Retries   int       `json:"retries,omitempty"`
	NotBefore time.Time `json:"not_before,omitzero"`
	LastError string    `json:"last_error,omitempty"`
	// Stop is why what had begun is to end: an operator's CANCEL, or a newer
	// upgrade. It is stored before anybody is told that the upgrade was stopped.
	Stop string `json:"stop,omitempty"`
	// HandedOver is set when this version has done its part, and the new one is
	// about to be started.
	HandedOver bool `json:"handed_over,omitempty"`
}

// Due is when the item may begin.
func (i Item) Due() time.Time {
	switch {
	case !i.NotBefore.IsZero():
		return i.NotBefore
	case i.Action.StartTime != nil:
		return *i.Action.StartTime
	}
	return i.ReceivedAt
}

// ActionID is the id the server knows, empty for a local item.
func (i Item) ActionID() string {
	if i.Local {
		return ""
	}
	return i.Action.ID
}

// state is the record on disk.
type state struct {
	AgentID  string              `json:"agent_id"`
	AckToken string              `json:"ack_token,omitempty"`
	Pending  []Item              `json:"pending,omitempty"`
	Acks     []agentapi.AckEvent `json:"acks,omitempty"`
	Done     []string            `json:"done,omitempty"` // oldest first
	// PolicyID and PolicyRevision are of the last policy that was received.
	PolicyID       string `json:"policy_id,omitempty"`
	PolicyRevision int64  `json:"policy_revision,omitempty"`
	Unenrolled     bool   `json:"unenrolled,omitempty"`
}

// Queue is safe for concurrent use.
type Queue struct {
	disk disk.Disk
	path string

	made bool // the folder is there, and durable; under writing

	// writing is held while a change is stored; mu only while the state in
	// memory is read or replaced, so that a slow disk never holds up a reader.
	writing sync.Mutex
	mu      sync.Mutex
	state   state
	changed chan struct{} // closed and replaced at every change
}

// Path is the queue's file in a versioned home.
func Path(home string) string { return filepath.Join(home, "run", "queue") }

// Open reads the queue at path for the agent with the given id. A queue of
// another agent, from before the host was enrolled again, is emptied. A damaged
// queue counts as empty, with err telling why: the caller logs it and goes on
// with the queue it got, since the server sends again what was not confirmed.
func Open(d disk.Disk, path, agentID string) (*Queue, error) {
	q := &Queue{disk: d, path: path, changed: make(chan struct{})}
	err := disk.ReadRecord(d, op, path, kind, version, &q.state)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil || q.state.AgentID != agentID {
		q.state = state{AgentID: agentID}
	}
	return q, err
}

// Changed returns a channel that is closed at the next change.
func (q *Queue) Changed() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.changed
}

// AckToken is the last one a server gave.
func (q *Queue) AckToken() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.state.AckToken
}

// Policy is the last policy that was received.
func (q *Queue) Policy() (id string, revision int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.state.PolicyID, q.state.PolicyRevision
}

// Unenrolled says whether the server has told this agent to leave.
func (q *Queue) Unenrolled() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.state.Unenrolled
}

// Stopper asks an upgrade that has begun to end, and says whether it still can.
type Stopper func(actionID, why string) bool

// Accept stores the actions and the token of one answer. stop is called when a
// CANCEL or a newer upgrade ends one that has begun.
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

// AddLocal stores an upgrade asked for on the host. It is refused while another
// upgrade waits or runs: a person is there to decide.
func (q *Queue) AddLocal(id string, data []byte, now time.Time) error {
	return q.update(func(s *state) error {
		if len(s.Pending) > 0 {
			return fmt.Errorf("another upgrade (%s) is waiting or running", s.Pending[0].Action.ID)
		}
		s.Pending = append(s.Pending, Item{
			Action:     agentapi.Action{ID: id, Type: agentapi.ActionUpgrade, CreatedAt: now, Data: data},
			Local:      true,
			ReceivedAt: now,
		})
		return nil
	})
}

// Next gives the upgrade that is to run now, or nil and the time after which to
// ask again (zero: only after a change). Expired ones are finished on the way.
func (q *Queue) Next(now time.Time) (*Item, time.Time, error) {
	q.mu.Lock()
	expired := slices.ContainsFunc(q.state.Pending, func(i Item) bool { return i.expired(now) })
	item, again := q.state.next(now)
	q.mu.Unlock()
	if !expired {
		return item, again, nil
	}
	err := q.update(func(s *state) error {
		s.expire(now)
		item, again = s.next(now)
		return nil
	})
	return item, again, err
}

// Waiting is the upgrade that will run next, begun or not; nil when there is
// none.
func (q *Queue) Waiting() *Item {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.state.Pending) == 0 {
		return nil
	}
	first := slices.MinFunc(q.state.Pending, byOrder)
	return &first
}

// Begun returns the upgrade that was running when the agent stopped, or nil.
func (q *Queue) Begun() *Item {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, i := range q.state.Pending {
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

// PutOff ends one try of an upgrade; the next begins at the time given.
func (q *Queue) PutOff(id string, at time.Time, why string) error {
	return q.update(func(s *state) error {
		return s.item(id, func(i *Item) {
			i.Attempts = 0
			i.Retries++
			i.NotBefore, i.LastError = at, why
		})
	})
}

// Adopt takes over what another version of this agent answered before it was
// replaced by this one: its actions are not done again, and results it could not
// tell any more are told. path is its queue; one that is not there, or cannot be
// read, changes nothing, with err telling why.
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

// HandOver marks an upgrade as handed over and runs replace, which copies what
// the new version needs and replaces this process. Until replace has returned,
// which means that it failed, nothing can enter the queue: an action accepted
// after the copy would be lost with this process.
func (q *Queue) HandOver(id string, replace func() error) error {
	q.writing.Lock()
	defer q.writing.Unlock()
	mark := func(handedOver bool) error {
		return q.store(func(s *state) error {
			return s.item(id, func(i *Item) { i.HandedOver = handedOver })
		})
	}
	if err := mark(true); err != nil {
		return err
	}
	err := replace()
	if err != nil {
		err = errors.Join(err, mark(false))
	}
	return err
}

// Finish ends an upgrade and queues its result. An id that is not pending gets
// its result all the same, but never a second one.
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

// DropAcks forgets results the server has answered for.
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

// store applies change to a copy, stores it, and only then makes it the truth:
// what a failed write did not keep must not be acted on. Called with writing
// held.
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

// makeFolder makes the queue's folder, and its name durable: a power cut that
// takes the folder takes the queue, whatever was synced in it. Called with
// writing held.
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
