package checkin

import (
	"testing"

	"pgregory.net/rapid"
)

// Whatever is set, moved and removed, each slot fires once, at its tick and not
// before it, also when the machine has slept for several turns.
func TestTheWheelFiresEachAtItsTick(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &wheel{}
		want := map[*slot]int32{}
		var slots []*slot
		now := int32(0)
		step := rapid.OneOf(rapid.Int32Range(0, 3), rapid.Int32Range(0, 3*wheelSize))
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "do") {
			case 0:
				slots = append(slots, &slot{})
				fallthrough
			case 1:
				if len(slots) == 0 {
					continue
				}
				s := rapid.SampledFrom(slots).Draw(t, "slot")
				at := now - 2 + step.Draw(t, "in")
				w.set(s, at)
				want[s] = max(at, now+1)
			case 2:
				if len(slots) == 0 {
					continue
				}
				s := rapid.SampledFrom(slots).Draw(t, "slot")
				w.remove(s)
				delete(want, s)
			case 3:
				now += step.Draw(t, "on")
				for _, s := range w.advance(now, nil) {
					at, ok := want[s]
					if !ok || at > now {
						t.Fatalf("fired at %d, set for %d (%v)", now, at, ok)
					}
					delete(want, s)
				}
				for _, at := range want {
					if at <= now {
						t.Fatalf("at %d, what was set for %d has not fired", now, at)
					}
				}
			}
		}
	})
}
