package checkin

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"strconv"
	"strings"
	"sync"
)

// Ack tokens are opaque to agents. A token is the store's generation, the sequence number of the
// last delivered action, and a digest of that action's id, with dashes between them.
//
// A store that was put back to an earlier state assigns numbers again that agents have
// acknowledged before. `muster restore` gives it a new generation, and a token of another
// generation says nothing about this store's actions. A copied folder or a snapshot of the machine
// keeps its generation: then the digest shows that a number was given to another action.
type token struct {
	seq    int64
	digest uint64
}

// digestOf returns the digest of an action's id, which is never 0. It has 64 bits: two actions
// meet by chance, and nobody gains by making them meet.
func digestOf(actionID string) uint64 {
	sum := sha256.Sum256([]byte(actionID))
	return max(binary.BigEndian.Uint64(sum[:]), 1)
}

// appendToken appends the ack token of an action.
func appendToken(b []byte, generation string, seq int64, actionID string) []byte {
	b = strconv.AppendInt(append(append(b, generation...), '-'), seq, 10)
	return strconv.AppendUint(append(b, '-'), digestOf(actionID), 16)
}

// parseToken returns the parts of an ack token, or zero if the token is not of the generation.
func parseToken(text, generation string) token {
	rest, ok := strings.CutPrefix(text, generation)
	if !ok || len(rest) < 2 || rest[0] != '-' || rest[1] < '1' || rest[1] > '9' { // ParseInt accepts signs and zeros
		return token{}
	}
	number, hex, _ := strings.Cut(rest[1:], "-")
	seq, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return token{}
	}
	digest, err := strconv.ParseUint(hex, 16, 64)
	if err != nil || digest == 0 {
		return token{}
	}
	return token{seq, digest}
}

// maxDigests bounds digests: as many actions as a fleet may have that upgrades host by host, in
// some 6 MB. When it is full it is emptied, and each number costs one read of the store again.
const maxDigests = 1 << 17

// digests are the digests of actions by their numbers, so that the tokens of a fleet cost the
// store one read for each action and not for each check-in. They stay valid: a store never gives
// a number to another action while it runs.
type digests struct {
	mu    sync.Mutex
	bySeq map[int64]uint64
}

// note adds the digest of an action, or 0 for a number that has no action any more.
func (d *digests) note(seq int64, digest uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bySeq == nil || len(d.bySeq) >= maxDigests {
		d.bySeq = map[int64]uint64{}
	}
	d.bySeq[seq] = digest
}

// check returns the number of a token, 0 if it names another action than the store has under the
// number. known is false if the store must be asked.
func (d *digests) check(t token) (seq int64, known bool) {
	if t.seq == 0 {
		return 0, true
	}
	d.mu.Lock()
	digest, known := d.bySeq[t.seq]
	d.mu.Unlock()
	return t.against(digest), known
}

// against returns the number of a token, given the digest of the store's action. An action that
// is gone (0) was too old to be assigned again.
func (t token) against(digest uint64) int64 {
	if digest != 0 && digest != t.digest {
		return 0
	}
	return t.seq
}

// verify is check with the store. The number of t must not be above that of the newest action.
func (s *Service) verify(ctx context.Context, t token) (int64, error) {
	if seq, known := s.digests.check(t); known {
		return seq, nil
	}
	list, err := s.Actions.After(ctx, t.seq-1, 1)
	if err != nil {
		return 0, err
	}
	digest := uint64(0)
	if len(list) > 0 && list[0].Seq == t.seq {
		digest = digestOf(list[0].ID)
	}
	s.digests.note(t.seq, digest)
	return t.against(digest), nil
}
