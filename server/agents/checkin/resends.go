package checkin

import (
	"maps"
	"sync"
	"time"
)

const (
	// freeSends is how often a policy is sent to an agent without a pause: its connection
	// may have broken, a newer check-in may have ended the poll, and the agent may have
	// been restarted before it had applied the policy.
	freeSends = 4
	// firstResend doubles with each further time, up to maxResend. An agent that cannot
	// apply its policy, or never acknowledges it, checks in at once after each answer, and
	// would get it hundreds of times a minute.
	firstResend = time.Minute
	maxResend   = time.Hour
)

// resends bounds how often the same policy is sent to an agent that does not have it
// afterwards. The zero value is ready. A restart of the server forgets it.
type resends struct {
	mu    sync.Mutex
	by    map[string]resend // by agent
	swept time.Time
}

type resend struct {
	actionID string
	times    int
	at       time.Time
}

// pause returns how long to wait after the times-th time.
func pause(times int) time.Duration {
	if times < freeSends {
		return 0
	}
	return min(firstResend<<min(times-freeSends, 6), maxResend)
}

// send reports whether an action is to be sent to an agent now, and then counts it.
func (r *resends) send(agentID, actionID string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	is := r.by[agentID]
	if is.actionID != actionID {
		is = resend{actionID: actionID}
	}
	if now.Before(is.at.Add(pause(is.times))) {
		return false
	}
	r.sweep(now)
	if r.by == nil {
		r.by = map[string]resend{}
	}
	r.by[agentID] = resend{actionID, is.times + 1, now}
	return true
}

// sweep forgets agents that no pause concerns any more, once in maxResend. Nearly all have
// their policy by then.
func (r *resends) sweep(now time.Time) {
	if now.Sub(r.swept) < maxResend {
		return
	}
	old := now.Add(-2 * maxResend)
	maps.DeleteFunc(r.by, func(_ string, is resend) bool { return is.at.Before(old) })
	r.swept = now
}
