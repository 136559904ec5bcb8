package presence

import (
	"context"
	"hash/maphash"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/server/store"
)

const (
	// fillPause is the least time from one reading of all agents to the next. While
	// others write more than can be told of, or more than is read again one by one, the
	// store counts: that is about as much work as a reading.
	fillPause = 10 * time.Second
	// tooManyPause is that time after more agents were found than are kept.
	tooManyPause = 10 * time.Minute
	// lateWrite is for how long a write may yet be made after its caller was given an
	// error: longer than SQLite waits for another process (5 s), and then commits.
	lateWrite = 10 * time.Second
	// maxDoubts is how many agents are read again one by one: to read all of 100,000
	// takes as long.
	maxDoubts = 16_384
	// doubtsPage is how many of them are read at once, doubtRounds how often they are
	// if other writes of them end meanwhile.
	doubtsPage, doubtRounds = 512, 3
	// maxJournal bounds the changes to a shard while all agents are read: a fleet of
	// maxAgents that checks in once, with some room.
	maxJournal = 2 * maxAgents / shards
	// maxPolicies is what a row has numbers for.
	maxPolicies = math.MaxUint16
)

// roster is what the status of every agent of the installation depends on, whether
// the agent talks to this process or not. All agents are read from the store once,
// when the first status query asks; from then on every write of this process is
// taken in when it ends, every sign of an agent when it comes, and what other
// processes wrote when the registry looks.
//
// A row is what the store has, or newer. Where that is not sure, because two writes
// of one agent overlapped, one ended with an error, or another process made it, the
// agent is doubtful, and is read again before the next answer.
//
// A shard's lock is taken before mu and that of policies, never after.
type roster struct {
	pause    time.Duration // fillPause, but in tests
	watched  store.Watched
	seeds    [2]maphash.Seed
	shards   [shards]rosterShard
	policies policyNumbers
	// reading is held by who reads agents from the store.
	reading chan struct{}

	mu sync.Mutex
	// era grows when what is in the shards is no longer good.
	era           uint64
	filling, full bool
	next          time.Time // no filling before it
	// doubts are the doubtful agents by id, with the time after which no write of
	// them comes any more; zero: that is past.
	doubts map[string]time.Time
}

type rosterShard struct {
	mu      sync.Mutex
	state   rosterState
	rows    map[rowKey]row
	journal []change // while filling
	torn    bool     // the journal was too long
	// writers are those of the agents that are being written now.
	writers [partCount]map[rowKey]writers
	// watched are agents that are being read again; true: a write of one has ended
	// since.
	watched map[rowKey]bool
}

type rosterState uint8

const (
	rosterEmpty rosterState = iota
	rosterFilling
	rosterFull
)

// rowKey is a hash of an agent's id under two seeds: an id itself would take more
// memory than all that is known of it.
type rowKey [2]uint64

// row is fleet.StatusFacts in 24 bytes.
type row struct {
	enrolled int64 // nanoseconds since 1970
	seen     int64 // as enrolled; neverSeen: it has not checked in
	policy   uint16
	audit    uint8 // in auditReasons
	status   uint8 // in checkinStatuses

	active, upgrading, unenrolling bool
	// anew says that it is another agent than the times seen may be of: another process
	// may have removed the one and made the other. It is doubtful.
	anew bool
}

const neverSeen = math.MinInt64

// What statuses tell apart stands at its number; anything else has number 0.
var (
	auditReasons    = [...]string{"", "uninstall", "orphaned"}
	checkinStatuses = [...]string{"", "error", "degraded"}
)

func numberOf(text string, numbers *[3]string) uint8 {
	for i, t := range numbers {
		if t == text {
			return uint8(i)
		}
	}
	return 0
}

// nanoseconds of times before 1700, as the zero time is, are the earliest there are.
func nanoseconds(t time.Time) int64 {
	if t.Year() < 1700 {
		return neverSeen + 1
	}
	return t.UnixNano()
}

// facts are all but the policy.
func (w row) facts() fleet.StatusFacts {
	return fleet.StatusFacts{
		Active: w.active, EnrolledAt: time.Unix(0, w.enrolled), LastCheckinStatus: checkinStatuses[w.status],
		AuditUnenrolledReason: auditReasons[w.audit], Upgrading: w.upgrading, Unenrolling: w.unenrolling,
	}
}

// part of an agent that is written apart from the other.
type part uint8

const (
	document part = iota
	lastSeen
	partCount
)

// writers are those of one part of an agent that have begun and not ended.
type writers struct {
	n int32
	// met says that two of them overlapped: who of them came last is not known, nor
	// of those that overlap with either.
	met bool
}

type changeKind uint8

const (
	created changeKind = iota
	updated
	touched
	deleted
)

// parts a change writes.
func (k changeKind) parts() []part {
	switch k {
	case updated:
		return []part{document}
	case touched:
		return []part{lastSeen}
	}
	return []part{document, lastSeen}
}

// change is what a write does to a row.
type change struct {
	kind    changeKind
	agentID string
	key     rowKey             // from begin
	facts   *fleet.StatusFacts // created and updated
	at      int64              // touched
	status  string             // touched; empty: it stays

	// clean says that the write was made, and is the last of its parts.
	clean bool
	// until is when at the latest the write was made if its outcome is not known.
	until time.Time
}

func creation(a *fleet.Agent) change {
	facts := a.Facts()
	return change{kind: created, agentID: a.ID, facts: &facts}
}

func update(a *fleet.Agent) change {
	facts := a.Facts()
	return change{kind: updated, agentID: a.ID, facts: &facts}
}

func touch(t *fleet.Touch) change {
	return change{kind: touched, agentID: t.AgentID, at: nanoseconds(t.At), status: t.Status}
}

func deletion(id string) change { return change{kind: deleted, agentID: id} }

func newRoster(watched store.Watched) *roster {
	return &roster{
		pause: fillPause, watched: watched, seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, reading: make(chan struct{}, 1),
	}
}

func (r *roster) keyOf(agentID string) rowKey {
	return rowKey{maphash.String(r.seeds[0], agentID), maphash.String(r.seeds[1], agentID)}
}

func (r *roster) of(k rowKey) *rosterShard { return &r.shards[k[0]%shards] }

// begin comes before a write. A nil roster hears nothing.
func (r *roster) begin(c *change) {
	if r == nil {
		return
	}
	c.key = r.keyOf(c.agentID)
	s, k := r.of(c.key), c.key
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range c.kind.parts() {
		if s.writers[p] == nil {
			s.writers[p] = map[rowKey]writers{}
		}
		w := s.writers[p][k]
		w.n++
		w.met = w.n > 1
		s.writers[p][k] = w
	}
}

// end comes after the write, with its outcome, and before whoever asked for it hears
// of that. c was begun.
func (r *roster) end(c *change, err error) {
	if r == nil {
		return
	}
	// These say that the write was refused, not that it may come yet.
	if kind := fleet.KindOf(err); err != nil && kind != fleet.Conflict && kind != fleet.NotFound {
		c.until = time.Now().Add(lateWrite)
	}
	r.ended(c, err == nil)
}

// elsewhere is a write of another process, which has ended. It is like one that
// overlapped with all that are under way here: which came first is not known, and
// neither is what it wrote.
func (r *roster) elsewhere(a *store.AgentChange) {
	c := change{agentID: a.AgentID, status: a.Status, at: nanoseconds(a.At)}
	switch {
	case a.Kind != store.AgentWritten:
		c.kind = touched
	case a.Stance != 0:
		c.kind = updated
	default: // created or deleted, for all that is known
		c.kind = deleted
	}
	r.begin(&c)
	r.ended(&c, false)
}

func (r *roster) ended(c *change, clean bool) {
	c.clean = clean
	s, k := r.of(c.key), c.key
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range c.kind.parts() {
		w := s.writers[p][k]
		c.clean = c.clean && !w.met
		if w.n--; w.n > 0 {
			s.writers[p][k] = w
		} else {
			delete(s.writers[p], k)
		}
	}
	if _, ok := s.watched[k]; ok {
		s.watched[k] = true
	}
	r.take(s, c)
}

// sign notes that an agent is there. The store may not hear of it for some seconds.
func (r *roster) sign(agentID string, at time.Time) {
	if r == nil {
		return
	}
	c := change{kind: touched, agentID: agentID, key: r.keyOf(agentID), at: nanoseconds(at), clean: true}
	s := r.of(c.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	r.take(s, &c)
}

// take takes a change in, under the shard's lock.
func (r *roster) take(s *rosterShard, c *change) {
	if !c.until.IsZero() {
		// It may yet come, whatever is read or written before: also one that would do
		// nothing to the row as that is now.
		r.doubt(c)
	}
	switch s.state {
	case rosterFull:
		r.apply(s, c)
	case rosterFilling:
		// The reading may have been before the change or after it.
		if s.torn = s.torn || len(s.journal) >= maxJournal; s.torn {
			s.journal = nil
			return
		}
		s.journal = append(s.journal, *c)
	case rosterEmpty: // what is read from now on has it
	}
}

// apply changes the row as the write changed the store. Each write may be applied to
// what was read after it, as long as those behind it are applied as well.
func (r *roster) apply(s *rosterShard, c *change) {
	k := c.key
	is, ok := s.rows[k]
	if c.kind == touched {
		if !ok {
			return // as the store passes it over
		}
		// The agent was there, whatever became of the write.
		if number := numberOf(c.status, &checkinStatuses); c.status != "" && number != is.status {
			// Behind a later sign, of which the store may not have heard, or have heard
			// first.
			if !c.clean || c.at < is.seen {
				r.doubt(c)
			} else {
				is.status = number
			}
		}
		if !c.clean && c.at < is.enrolled {
			r.doubt(c) // it may have been of the agent that had the id before
		} else {
			is.seen = max(is.seen, c.at)
		}
		s.rows[k] = is
		return
	}
	if !c.clean || c.kind == updated && !ok {
		r.doubt(c)
		return
	}
	if c.kind == deleted {
		delete(s.rows, k)
		return
	}
	w, fits := r.row(c.facts)
	if !fits {
		return
	}
	if c.kind == updated {
		w.seen, w.status, w.anew = is.seen, is.status, is.anew
		if w.enrolled != is.enrolled {
			w.anew = true
			r.doubt(c)
		}
	}
	r.put(s, k, w)
}

// row makes one; false: there are too many policies.
func (r *roster) row(f *fleet.StatusFacts) (row, bool) {
	number, ok := r.policies.number(f.PolicyID)
	if !ok {
		r.giveUp(tooManyPause)
		return row{}, false
	}
	out := row{
		enrolled: nanoseconds(f.EnrolledAt), seen: neverSeen, policy: number, audit: numberOf(f.AuditUnenrolledReason, &auditReasons),
		status: numberOf(f.LastCheckinStatus, &checkinStatuses), active: f.Active, upgrading: f.Upgrading, unenrolling: f.Unenrolling,
	}
	if f.LastCheckin != nil {
		out.seen = nanoseconds(*f.LastCheckin)
	}
	return out, true
}

func (r *roster) put(s *rosterShard, k rowKey, w row) {
	if _, ok := s.rows[k]; !ok && len(s.rows) >= maxAgents/shards {
		r.giveUp(tooManyPause)
		return
	}
	s.rows[k] = w
}

// doubt has the agent of a change read again.
func (r *roster) doubt(c *change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.full && !r.filling && c.until.IsZero() {
		return
	}
	if r.doubts == nil {
		r.doubts = map[string]time.Time{}
	}
	if until := r.doubts[c.agentID]; c.until.After(until) {
		r.doubts[c.agentID] = c.until
	} else {
		r.doubts[c.agentID] = until
	}
	if len(r.doubts) > maxDoubts {
		// All are read anew, when none of these writes can come any more.
		var last time.Time
		for _, until := range r.doubts {
			if until.After(last) {
				last = until
			}
		}
		r.doubts = nil
		r.forgetRows(time.Until(last))
	}
}

// forget has all agents read again: another process has changed something.
func (r *roster) forget() {
	if r != nil {
		r.giveUp(0)
	}
}

// giveUp has all agents read again, not before the pause is over.
func (r *roster) giveUp(pause time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forgetRows(pause)
}

// forgetRows is giveUp under mu. The rows themselves are replaced by the next filling.
func (r *roster) forgetRows(pause time.Duration) {
	r.era++
	r.full = false
	if next := time.Now().Add(pause); pause > 0 && next.After(r.next) {
		r.next = next
	}
}

// countStatuses counts the agents that a filter which isPlain has; see
// store.CountStatuses. ok is false if the store is to be asked. agents are the
// store's.
func (r *roster) countStatuses(
	ctx context.Context, agents store.Agents, filter store.AgentFilter, timeouts map[string]time.Duration, now time.Time,
) (counts map[fleet.Status]int, ok bool) {
	era, ok := r.ready(ctx, agents)
	if !ok {
		return nil, false
	}
	counts = r.count(filter, timeouts, now)
	r.mu.Lock()
	defer r.mu.Unlock()
	return counts, r.era == era
}

// isPlain says that a filter asks for no more than a row has.
func isPlain(f store.AgentFilter) bool {
	if _, all := f.Query.(kql.Everything); f.Query != nil && !all {
		return false
	}
	return len(f.SeenSince) == 0 && f.VersionBelow == ""
}

// ready says whether the rows are all there and beyond doubt, and in which era. It
// reads what is missing.
func (r *roster) ready(ctx context.Context, agents store.Agents) (era uint64, ok bool) {
	era, good, readable := r.state()
	if good || !readable {
		return era, good
	}
	select {
	case r.reading <- struct{}{}:
		defer func() { <-r.reading }()
	case <-ctx.Done():
		return 0, false
	}
	if r.mayFill() && !r.fill(ctx, agents) {
		return 0, false
	}
	return r.settle(ctx)
}

// state says whether the rows are good as they are, or else whether to read is worth
// the wait. Where somebody reads all agents already, the store answers sooner.
func (r *roster) state() (era uint64, good, readable bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	good = r.full && len(r.doubts) == 0
	return r.era, good, r.full || !r.filling && !time.Now().Before(r.next)
}

func (r *roster) mayFill() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.full && !time.Now().Before(r.next)
}

// fill reads all agents, for whom holds reading.
func (r *roster) fill(ctx context.Context, agents store.Agents) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	era := r.beginFill()
	filled := false
	defer func() { r.endFill(era, filled) }()
	err := agents.Facts(ctx, store.AgentFilter{}, func(id string, f fleet.StatusFacts) {
		k := r.keyOf(id)
		s := r.of(k)
		s.mu.Lock()
		defer s.mu.Unlock()
		if w, ok := r.row(&f); ok {
			r.put(s, k, w)
		}
		if !r.is(era) { // forgotten, or too many: the rest is of no use
			cancel()
		}
	})
	filled = err == nil
	for i := range r.shards {
		filled = r.shards[i].replay(r, filled) && filled
	}
	return filled
}

func (r *roster) is(era uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.era == era
}

func (r *roster) beginFill() (era uint64) {
	r.mu.Lock()
	now := time.Now()
	r.era++
	era = r.era
	r.filling, r.full, r.next = true, false, now.Add(r.pause)
	for id, until := range r.doubts {
		if !until.After(now) {
			delete(r.doubts, id) // its write is over, and will be read
		}
	}
	r.mu.Unlock()
	// Until a shard is told, changes go to its rows of before, which nobody counts: the
	// reading that follows has them.
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		s.state, s.rows, s.journal, s.torn = rosterFilling, map[rowKey]row{}, nil, false
		s.mu.Unlock()
	}
	return era
}

func (r *roster) endFill(era uint64, filled bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.filling = false
	r.full = filled && r.era == era
}

// replay takes in what has changed while all agents were read, unless that failed. It
// says whether the rows are good.
func (s *rosterShard) replay(r *roster, filled bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	journal := s.journal
	s.journal = nil
	if !filled || s.torn {
		s.state, s.rows = rosterEmpty, nil
		return false
	}
	s.state = rosterFull
	for i := range journal {
		r.apply(s, &journal[i])
	}
	return true
}

// settle reads the doubtful agents again, for whom holds reading. It says in which
// era no doubt was left.
func (r *roster) settle(ctx context.Context) (era uint64, ok bool) {
	r.mu.Lock()
	era, ok = r.era, r.full
	ids := make([]string, 0, len(r.doubts))
	for id := range r.doubts {
		ids = append(ids, id)
	}
	r.mu.Unlock()
	for round := 0; ok && len(ids) > 0; round++ {
		if round == doubtRounds {
			return 0, false
		}
		var again []string
		for len(ids) > 0 {
			page := ids[:min(len(ids), doubtsPage)]
			ids = ids[len(page):]
			missed, err := r.readAgain(ctx, page)
			if err != nil {
				return 0, false // the store says it better
			}
			again = append(again, missed...)
		}
		ids = again
	}
	return era, ok
}

// readAgain reads agents, and returns those that were written meanwhile.
func (r *roster) readAgain(ctx context.Context, ids []string) (missed []string, err error) {
	began := time.Now()
	keys := make([]rowKey, len(ids))
	for i, id := range ids {
		k := r.keyOf(id)
		s := r.of(k)
		keys[i] = k
		s.mu.Lock()
		if s.watched == nil {
			s.watched = map[rowKey]bool{}
		}
		s.watched[k] = false
		s.mu.Unlock()
	}
	facts := make(map[string]fleet.StatusFacts, len(ids))
	err = r.watched.FactsOf(ctx, ids, func(id string, f fleet.StatusFacts) { facts[id] = f })
	for i, id := range ids {
		k := keys[i]
		s := r.of(k)
		s.mu.Lock()
		written := s.watched[k]
		delete(s.watched, k)
		switch {
		case err != nil:
		case written:
			missed = append(missed, id)
		case s.state == rosterFull:
			f, there := facts[id]
			r.correct(s, k, f, there)
			r.resolve(id, began)
		}
		s.mu.Unlock()
	}
	return missed, err
}

// correct makes a row be as it was read, but for signs of the agent of which the store
// has yet to hear.
func (r *roster) correct(s *rosterShard, k rowKey, f fleet.StatusFacts, there bool) {
	if !there {
		delete(s.rows, k)
		return
	}
	w, fits := r.row(&f)
	if !fits {
		return
	}
	// Another enrolment is another agent.
	if is, ok := s.rows[k]; ok && is.enrolled == w.enrolled && !is.anew {
		w.seen = max(w.seen, is.seen)
	}
	r.put(s, k, w)
}

// resolve ends the doubt about an agent that was read, unless a write of it may have
// come after the reading began.
func (r *roster) resolve(agentID string, began time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if until, ok := r.doubts[agentID]; ok && !until.After(began) {
		delete(r.doubts, agentID)
	}
}

// count goes through all rows. Each shard is held for a fraction of a millisecond.
func (r *roster) count(filter store.AgentFilter, timeouts map[string]time.Duration, now time.Time) map[fleet.Status]int {
	var numbers [len(fleet.Statuses)]int
	only, known := r.policies.lookup(filter.PolicyID)
	if filter.PolicyID == "" {
		known = true
	}
	limits := r.policies.limits(timeouts)
	for i := range r.shards {
		if !known {
			break // no agent has the policy
		}
		s := &r.shards[i]
		s.mu.Lock()
		for _, w := range s.rows {
			if filter.PolicyID != "" && w.policy != only || filter.ActiveOnly && !w.active {
				continue
			}
			if int(w.policy) >= len(limits) { // its policy is newer than this query
				limits = r.policies.limits(timeouts)
			}
			facts := w.facts()
			if w.seen != neverSeen {
				seen := time.Unix(0, w.seen)
				facts.LastCheckin = &seen
			}
			// Nearly all are the first in the list: that is quicker than a map.
			numbers[slices.Index(fleet.Statuses[:], facts.StatusAt(now, limits[w.policy]))]++
		}
		s.mu.Unlock()
	}
	counts := make(map[fleet.Status]int, len(fleet.Statuses))
	for i, status := range fleet.Statuses {
		counts[status] = numbers[i]
	}
	return counts
}

// policyNumbers gives each policy a number. Those of policies without agents stay
// taken: there are hundreds of policies, not millions.
type policyNumbers struct {
	mu      sync.RWMutex
	numbers map[string]uint16
	ids     []string
}

func (p *policyNumbers) lookup(id string) (number uint16, ok bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	number, ok = p.numbers[id]
	return number, ok
}

// number is false if there are none left.
func (p *policyNumbers) number(id string) (uint16, bool) {
	if number, ok := p.lookup(id); ok {
		return number, true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	number, ok := p.numbers[id]
	if ok || len(p.ids) >= maxPolicies {
		return number, ok
	}
	if p.numbers == nil {
		p.numbers = map[string]uint16{}
	}
	number = uint16(len(p.ids))
	p.numbers[id], p.ids = number, append(p.ids, id)
	return number, true
}

// limits are the timeouts of the policies by their number.
func (p *policyNumbers) limits(timeouts map[string]time.Duration) []time.Duration {
	p.mu.RLock()
	defer p.mu.RUnlock()
	out := make([]time.Duration, len(p.ids))
	for number, id := range p.ids {
		out[number] = timeouts[id]
	}
	return out
}
